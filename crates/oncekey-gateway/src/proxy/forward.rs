//! One exchange with the application.
//!
//! The order matters: the request is made ready, a connection is chosen, and only then does the
//! codec get the request. From that moment on every early end means "perhaps sent", whatever the
//! counter says at that instant, because the codec's task writes on its own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, request};
use http_body::Body;
use hyper::body::Incoming;
use oncekey::http::StatusEnding;
use tokio_util::sync::CancellationToken;

use super::body::{Outgoing, ProxyBody};
use super::error::{ErrorKind, ProxyError, Sent};
use super::{Cancel, Keyed, Shared, headers, upgrade};
use crate::listener::Peer;
use crate::upstream::pool::Held;
use crate::upstream::socket::Line;

/// How a request can end before its answer's head has come.
struct Limits {
    cancel: Option<CancellationToken>,
    timeout: Option<Timeout>,
}

enum Timeout {
    /// From the moment that the request is handed over.
    Plain(Duration),
    /// From the last byte that the application took.
    Progress(Duration),
}

/// What became of an attempt that brought no answer.
enum Failed {
    /// The request came back whole; the connection was of no use.
    Unsent(Box<Request<Outgoing>>, hyper::Error),
    /// The attempt is over, for good or ill.
    Over(ProxyError),
}

pub(super) async fn forward(
    shared: Arc<Shared>,
    mut request: Request<Outgoing>,
) -> Result<Response<ProxyBody>, ProxyError> {
    if request.method() == Method::CONNECT {
        return Ok(refusal(StatusCode::NOT_IMPLEMENTED));
    }
    let limits = Limits::of(&shared, &request);
    let wanted = upgrade::wanted(&mut request);
    if wanted.is_some() && !shared.upgrades.have_room() {
        return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE));
    }
    let (mut parts, body) = request.into_parts();
    if let Err(status) = prepare(&shared, &mut parts, &body, wanted.as_ref()) {
        return Ok(refusal(status));
    }
    let request = Request::from_parts(parts, body);
    let (mut response, mut held) = exchange(&shared, request, &limits).await?;

    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if switched {
        let Some(wanted) = wanted else {
            let error = ProxyError::new(ErrorKind::Broken, Sent::Perhaps);
            return Err(error.because("101 to a request that asked for no upgrade"));
        };
        let theirs = hyper::upgrade::on(&mut response);
        let (mut parts, _) = response.into_parts();
        headers::switched(&mut parts);
        shared.upgrades.join(wanted, theirs);
        return Ok(Response::from_parts(parts, ProxyBody::empty()));
    }
    let (mut parts, incoming) = response.into_parts();
    if let Some(idle) = headers::answer(&mut parts) {
        held.keep_for(idle);
    }
    Ok(Response::from_parts(parts, ProxyBody::new(incoming, held, limits.cancel)))
}

impl Limits {
    fn of(shared: &Shared, request: &Request<Outgoing>) -> Self {
        let extensions = request.extensions();
        let cancel = extensions.get().map(|Cancel(token)| token.clone());
        if extensions.get::<Keyed>().is_some() {
            return Self { cancel, timeout: None };
        }
        let timeout = match request.body().is_end_stream() {
            true => Timeout::Plain(shared.timeout),
            false => Timeout::Progress(shared.timeout),
        };
        Self { cancel, timeout: Some(timeout) }
    }

    /// Waits for `work`, but not after the request's owner has ended it.
    async fn unless_cancelled<T>(
        &self,
        sent: Sent,
        work: impl Future<Output = T>,
    ) -> Result<T, ProxyError> {
        let Some(token) = &self.cancel else { return Ok(work.await) };
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = token.cancelled() => Err(ProxyError::new(ErrorKind::Cancelled, sent)),
        }
    }

    /// Waits for the head of an answer, but no longer than allowed.
    async fn in_time<T>(
        &self,
        line: &Line,
        work: impl Future<Output = T>,
    ) -> Result<T, ProxyError> {
        let late = || ProxyError::new(ErrorKind::Timeout, Sent::Perhaps);
        match self.timeout {
            None => Ok(work.await),
            Some(Timeout::Plain(allowed)) => {
                tokio::time::timeout(allowed, work).await.map_err(|_| late())
            }
            Some(Timeout::Progress(allowed)) => {
                tokio::select! {
                    biased;
                    done = work => Ok(done),
                    () = standstill(line, allowed) => Err(late()),
                }
            }
        }
    }
}

/// Returns once no byte has been taken for `allowed`, or up to a quarter longer: the counter is
/// looked at four times in that span, which costs nothing per write.
async fn standstill(line: &Line, allowed: Duration) {
    const LOOKS: u32 = 4;
    let mut seen = line.written();
    let mut still = 0;
    while still < LOOKS {
        tokio::time::sleep(allowed / LOOKS).await;
        let now = line.written();
        still = if now == seen { still + 1 } else { 0 };
        seen = now;
    }
}

/// Makes the head fit for the application, or says with what status it is refused.
fn prepare(
    shared: &Shared,
    parts: &mut request::Parts,
    body: &Outgoing,
    wanted: Option<&upgrade::Wanted>,
) -> Result<(), StatusCode> {
    let peer = parts.extensions.get::<Peer>().map(|Peer(address)| *address);
    headers::request(parts, peer, shared.connector.address().authority())?;
    if let Some(wanted) = wanted {
        wanted.ask(&mut parts.headers);
    }
    if matches!(parts.method, Method::GET | Method::HEAD)
        && !body.is_end_stream()
        && body.size_hint().exact().is_none()
    {
        // Without this the codec takes it that such a method has no body and drops it.
        headers::announce_chunks(&mut parts.headers);
    }
    parts.version = Version::HTTP_11;
    // What the client's connection left there (its own upgrade, say) means nothing to the next.
    parts.extensions.clear();
    Ok(())
}

async fn exchange(
    shared: &Shared,
    mut request: Request<Outgoing>,
    limits: &Limits,
) -> Result<(Response<Incoming>, Held), ProxyError> {
    if let Some(held) = shared.pool.take(shared.idle) {
        match attempt(held, request, limits).await {
            Ok(done) => return Ok(done),
            Err(Failed::Over(error)) => return Err(error),
            // Not a byte has left. The next kept one may be dead as well, so none is tried.
            Err(Failed::Unsent(whole, _)) => request = *whole,
        }
    }
    let unreachable = || ProxyError::new(ErrorKind::Unreachable, Sent::Nothing);
    let held = limits
        .unless_cancelled(Sent::Nothing, shared.connector.connect(&shared.pool))
        .await?
        .map_err(|error| unreachable().because(error))?;
    match attempt(held, request, limits).await {
        Ok(done) => Ok(done),
        Err(Failed::Over(error)) => Err(error),
        Err(Failed::Unsent(_, error)) => Err(unreachable().because(error)),
    }
}

/// Sends the request on this connection and waits for the head of the answer.
async fn attempt(
    mut held: Held,
    request: Request<Outgoing>,
    limits: &Limits,
) -> Result<(Response<Incoming>, Held), Failed> {
    let line = Arc::clone(held.line());
    let before = line.written();
    line.expect_request();
    let head = limits.in_time(&line, held.sender().try_send_request(request));
    let answered = limits.unless_cancelled(Sent::Perhaps, head).await;
    match answered.and_then(|in_time| in_time).map_err(Failed::Over)? {
        Ok(response) => {
            line.answered();
            Ok((response, held))
        }
        Err(mut failure) => {
            if let Some(request) = failure.take_message() {
                return Err(Failed::Unsent(Box::new(request), failure.into_error()));
            }
            let error = failure.into_error();
            let sent = if line.written() == before { Sent::Nothing } else { Sent::Perhaps };
            let kind = match sent {
                _ if error.is_user() => ErrorKind::RequestBody,
                Sent::Nothing => ErrorKind::Unreachable,
                Sent::Perhaps => ErrorKind::Broken,
            };
            Err(Failed::Over(ProxyError::new(kind, sent).because(error)))
        }
    }
}

/// An answer of the proxy's own. What the client asked for is outside of HTTP's common ground, so
/// nobody needs more than the status; how it would go on is anybody's guess, so it ends there.
fn refusal(status: StatusCode) -> Response<ProxyBody> {
    let mut response = Response::new(ProxyBody::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    // Nothing was sent: an answer that the application never gave must not be kept (O1).
    response.extensions_mut().insert(StatusEnding::Release);
    response
}

//! The service: decides what passes, reads what a keyed request wishes, and leaves the rest to a
//! task of its own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderValue, ORIGIN};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::sync::oneshot;
use tower_service::Service;

use super::body::{BoxError, RequestBody, ResponseBody};
use super::cors::{Author, Cors};
use super::drive::{self, Case};
use super::names::{self, Status};
use super::policy::{Mode, Policy};
use super::problem::{Code, Problem};
use super::request::{self, Wish};
use super::room::Room;
use super::scoping::{Scoping, Trust};
use crate::engine::Engine;
use crate::fingerprint::Secret;

type Policies = dyn Fn(&Parts) -> Arc<Policy> + Send + Sync;

/// What all requests of a layer have in common.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) engine: Engine,
    pub(super) scoping: Scoping,
    pub(super) secret: Secret,
    pub(super) policies: Arc<Policies>,
    pub(super) cors: Cors,
    pub(super) problem_base: Option<Arc<str>>,
    pub(super) room: Room,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Front {
    /// A problem as this layer answers it.
    pub(super) fn problem<R>(&self, problem: Problem) -> Response<ResponseBody<R>> {
        let mut response = problem.with_base(self.problem_base.clone()).into_response();
        let unknown = response
            .extensions()
            .get::<Problem>()
            .is_some_and(|problem| problem.code() == Code::OutcomeUnknown);
        if unknown {
            Status::Unknown.set(response.headers_mut());
        }
        response.map(ResponseBody::whole)
    }
}

/// A service whose keyed requests happen once. Made by [`Layer`](super::Layer).
#[derive(Clone, Debug)]
pub struct Once<S> {
    inner: S,
    front: Arc<Front>,
}

impl<S> Once<S> {
    pub(super) fn new(inner: S, front: Arc<Front>) -> Self {
        Self { inner, front }
    }
}

/// The answer on its way.
type Answer<R, E> = Result<Response<ResponseBody<R>>, E>;

impl<S, B, R> Service<Request<B>> for Once<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Answer<R, S::Error>> + Send>>;

    /// Always ready: a replay needs no handler, so it must not wait for the handler's turn (P5).
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let front = Arc::clone(&self.front);
        let inner = self.inner.clone();
        let (parts, body) = request.into_parts();
        let origin = parts.headers.get(ORIGIN).cloned();
        if front.cors.answers(origin.as_ref()) {
            return Box::pin(async move {
                let answer = serve(Arc::clone(&front), inner, parts, body).await;
                answer.map(|response| with_cors(&front.cors, origin, response))
            });
        }
        Box::pin(serve(front, inner, parts, body))
    }
}

fn with_cors<R>(
    cors: &Cors,
    origin: Option<HeaderValue>,
    mut response: Response<ResponseBody<R>>,
) -> Response<ResponseBody<R>> {
    if let Some(origin) = origin {
        let ours = response.extensions().get::<Problem>().is_some()
            || response.headers().contains_key(&names::IDEMPOTENT_REPLAYED);
        let author = if ours { Author::Us } else { Author::Inner };
        cors.complete(&origin, author, response.headers_mut());
    }
    response
}

async fn serve<S, B, R>(
    front: Arc<Front>,
    inner: S,
    mut parts: Parts,
    body: B,
) -> Answer<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    let arrived = front.engine.clock().now();
    if parts.headers.contains_key(&names::IDEMPOTENCY_RECORD)
        && front.scoping.trust(&parts) == Trust::Trusted
    {
        // A layer of ours in front of this one keeps the record (S7).
        return below(inner, parts, RequestBody::stream(body)).await;
    }
    names::strip(&mut parts.headers);
    let policy = (front.policies)(&parts);
    if !policy.applies_to(&parts.method) {
        let ignored = policy.mode != Mode::Off && request::has_key_header(&policy, &parts.headers);
        let mark = ignored.then_some(Status::Ignored);
        return pass(inner, parts, RequestBody::stream(body), mark).await;
    }
    match request::wish(&front, &policy, &mut parts, body).await {
        Wish::Pass(body) => pass(inner, parts, body, None).await,
        Wish::Refused(problem, body) if policy.mode == Mode::Observe => {
            tracing::warn!(code = problem.code().as_str(), "observed: would be refused");
            pass(inner, parts, body, None).await
        }
        Wish::Refused(problem, _) => Ok(front.problem(problem)),
        Wish::Once(claim, bytes) => {
            let (answer, waiting) = oneshot::channel();
            let case = Case::new(Arc::clone(&front), policy, &claim, &parts);
            // From here on a lost client changes nothing (L6).
            // Boxed, since it is large and would be moved several times on its way into the task.
            let work = Box::pin(drive::drive(case, inner, (parts, bytes), claim, arrived, answer));
            front.engine.spawn(tracing::Instrument::in_current_span(work));
            match waiting.await {
                Ok(answer) => answer,
                // The task ended without a word: nobody knows what it did.
                Err(_) => {
                    let problem =
                        Problem::new(Code::OutcomeUnknown).with_status(StatusCode::GATEWAY_TIMEOUT);
                    Ok(front.problem(problem))
                }
            }
        }
    }
}

/// Passes a request on without a record.
pub(super) async fn pass<S, B, R>(
    mut inner: S,
    parts: Parts,
    body: RequestBody<B>,
    mark: Option<Status>,
) -> Answer<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
{
    std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
    let response = inner.call(Request::from_parts(parts, body)).await?;
    let (mut parts, body) = response.into_parts();
    names::strip(&mut parts.headers);
    if let Some(mark) = mark {
        mark.set(&mut parts.headers);
    }
    Ok(Response::from_parts(parts, ResponseBody::inner(body)))
}

/// Passes on a request whose record a layer in front of this one keeps (S7).
async fn below<S, B, R>(mut inner: S, parts: Parts, body: RequestBody<B>) -> Answer<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
{
    std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
    let mut response = inner.call(Request::from_parts(parts, body)).await?;
    names::strip_for_the_keeper(response.headers_mut());
    Ok(response.map(ResponseBody::inner))
}

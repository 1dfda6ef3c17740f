//! From the handler's answer to the record's ending (O1, O2, O3, O5, P3).
//!
//! The task reads the answer's body, not the client's connection. What arrives soon is gathered
//! whole, recorded, and sent in one piece. What takes longer, is larger than what is kept, or is
//! a stream of events goes out as it comes, with its end held back until the record is decided.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::body::{BoxError, Fed, ResponseBody};
use super::drive::{Case, Client, panicked};
use super::names::{self, Status};
use super::policy::{StatusEnding, StoreBody};
use super::problem::{Code, MEDIA_TYPE, Problem};
use super::response::{self, Kept};
use crate::engine::{Run, RunEnded};
use crate::record::{Outcome, Why};
use crate::store::MAX_OUTCOME;

/// How long an answer is gathered before its head goes out alone.
const GATHER: Duration = Duration::from_millis(50);
/// How long a body is read on when its client has left or does not read (P3).
const DRAIN: Duration = Duration::from_secs(30);

/// Records the answer and passes it to the client, if there still is one.
pub(super) async fn record<R, E>(
    case: Case,
    run: Run,
    response: Response<R>,
    client: Option<Client<R, E>>,
) where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    let (mut parts, body) = response.into_parts();
    let ending = ending(&case, &parts);
    names::strip(&mut parts.headers);
    let mut body = Box::pin(body);
    // A body is the handler's code, too, and the head is not out yet (O7).
    let gathering = AssertUnwindSafe(gather(&case, &parts, &mut body)).catch_unwind().await;
    let gathered = match gathering {
        Ok(Ok(gathered)) => gathered,
        Err(panic) => return panicked(case, run, client, panic).await,
        Ok(Err(error)) => {
            tracing::warn!(record = %case.record, %error, "an answer broke off");
            let _ = run.abandon(Why::Abandoned).await;
            if let Some(client) = client {
                let problem = Problem::new(Code::OutcomeUnknown)
                    .with_status(StatusCode::GATEWAY_TIMEOUT)
                    .with_record(case.record);
                drop(client.send(Ok(case.front.problem(problem))));
            }
            return;
        }
    };
    match gathered {
        Gathered::Whole(bytes) => whole(case, run, (parts, bytes), ending, client).await,
        Gathered::Part(frames) => {
            let (answer, feed) = ResponseBody::fed(declared(&parts.headers, &body, &frames));
            let copy = Copying::new(case, &parts, ending, feed);
            match client {
                Some(client) => {
                    copy.mark(&mut parts.headers);
                    drop(client.send(Ok(Response::from_parts(parts, answer))));
                }
                // Nobody reads: the body must not wait for a reader.
                None => drop(answer),
            }
            copy.run(run, frames, body).await;
        }
    }
}

/// What the answer says about the run: our own problems first (S7), then the handler (O3), then
/// the status (O1, O2).
fn ending(case: &Case, parts: &Parts) -> StatusEnding {
    if let Some(problem) = parts.extensions.get::<Problem>() {
        return of_problem(problem.code());
    }
    if let Some(ending) = parts.extensions.get::<StatusEnding>() {
        return *ending;
    }
    let mut said = parts.headers.get_all(&names::IDEMPOTENCY_OUTCOME).into_iter();
    if let Some(value) = said.next() {
        let named = value.to_str().ok().and_then(StatusEnding::from_name);
        if let (Some(ending), None) = (named, said.next()) {
            return ending;
        }
        tracing::warn!(record = %case.record, "an Idempotency-Outcome is not understood: unknown");
        return StatusEnding::Unknown;
    }
    if matches!(parts.status.as_u16(), 206 | 304 | 416) {
        tracing::warn!(
            record = %case.record,
            status = parts.status.as_u16(),
            "an answer has a status that RFC 9110 section 9.3.3 does not give to a POST"
        );
    }
    case.policy.endings.of(parts.status)
}

fn of_problem(code: Code) -> StatusEnding {
    match code {
        Code::OutcomeUnknown => StatusEnding::Unknown,
        _ => StatusEnding::Release,
    }
}

/// What was read of an answer before its head goes out.
enum Gathered {
    Whole(Bytes),
    Part(Vec<Frame<Bytes>>),
}

/// Reads what comes soon, up to what is kept.
async fn gather<R>(case: &Case, parts: &Parts, body: &mut Pin<Box<R>>) -> Result<Gathered, BoxError>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError> + Send,
{
    let mut frames: Vec<Frame<Bytes>> = Vec::new();
    if is_event_stream(&parts.headers) {
        return Ok(Gathered::Part(frames));
    }
    // A problem is small, and what it says decides the run (S7): its end is worth waiting for.
    let patience = match is_problem(&parts.headers) {
        true => case.policy.timeout.unwrap_or(DRAIN),
        false => GATHER,
    };
    let mut length = 0;
    let mut deadline = None;
    loop {
        let next = match body.frame().now_or_never() {
            Some(next) => next,
            None => {
                let deadline =
                    deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
                tokio::select! {
                    biased;
                    next = body.frame() => next,
                    () = deadline => return Ok(Gathered::Part(frames)),
                }
            }
        };
        match next {
            None => return Ok(Gathered::Whole(join(frames, length))),
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(frame)) => {
                length += frame.data_ref().map_or(0, Bytes::len);
                let goes_on = frame.is_data() && length <= largest(case);
                frames.push(frame);
                if !goes_on {
                    return Ok(Gathered::Part(frames));
                }
            }
        }
    }
}

/// The largest body that is kept: what the policy says, as far as stores take it (P3).
fn largest(case: &Case) -> usize {
    case.policy.max_response_body.min(MAX_OUTCOME - 2 * response::MAX_HEADERS)
}

fn join(frames: Vec<Frame<Bytes>>, length: usize) -> Bytes {
    let mut pieces = frames.into_iter().filter_map(|frame| frame.into_data().ok());
    let first = pieces.next().unwrap_or_default();
    if first.len() == length {
        return first;
    }
    let mut whole = BytesMut::with_capacity(length);
    whole.extend_from_slice(&first);
    for piece in pieces {
        whole.extend_from_slice(&piece);
    }
    whole.freeze()
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    let essence = essence.trim_ascii();
    essence.eq_ignore_ascii_case(b"text/event-stream")
        || essence.eq_ignore_ascii_case(b"application/x-ndjson")
}

/// The length of a body of which `frames` were read already, where it is known.
fn declared<R: Body>(headers: &HeaderMap, body: &R, frames: &[Frame<Bytes>]) -> Option<u64> {
    let read: u64 = frames.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
    body.size_hint().exact().map(|rest| rest + read).filter(|_| {
        // Trailers need a body that ends by itself, not by its length.
        headers.contains_key(CONTENT_LENGTH) && frames.iter().all(Frame::is_data)
    })
}

/// Records an answer that is known in full, then sends it.
async fn whole<R, E>(
    case: Case,
    run: Run,
    (mut parts, bytes): (Parts, Bytes),
    mut ending: StatusEnding,
    client: Option<Client<R, E>>,
) {
    if is_problem(&parts.headers)
        && let Some(code) = Problem::code_in(&bytes, case.front.problem_base.as_deref())
    {
        ending = of_problem(code);
    }
    let keep =
        if case.policy.store_body == StoreBody::Keep { Kept::Body(&bytes) } else { Kept::Omitted };
    let (status, expires_in) = decide(
        &case,
        run,
        ending,
        |case| {
            response::store(
                parts.status,
                &parts.headers,
                keep,
                case.origin.as_ref(),
                &case.policy.replay,
            )
        },
        parts.status,
    )
    .await;
    let Some(client) = client else { return };
    parts.headers.remove(CONTENT_LENGTH);
    status.set(&mut parts.headers);
    if let (Status::Stored, Some(expires_in)) = (status, expires_in) {
        mark_expiry(&case, expires_in, &mut parts.headers);
    }
    drop(client.send(Ok(Response::from_parts(parts, ResponseBody::whole(bytes)))));
}

fn is_problem(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(MEDIA_TYPE.as_bytes()))
}

/// Ends the run as `ending` says. The answer is made only where it is needed.
async fn decide(
    case: &Case,
    run: Run,
    ending: StatusEnding,
    answer: impl FnOnce(&Case) -> Outcome,
    status: StatusCode,
) -> (Status, Option<Duration>) {
    let policy = &case.policy;
    let (ended, status) = match ending {
        StatusEnding::Keep => {
            let less = response::without_body;
            let stored = run.complete_at_least(answer(case), policy.retention, less).await;
            (stored, Status::Stored)
        }
        StatusEnding::Retry => {
            let answer = Some(answer(case));
            (run.retry(status.as_u16(), policy.retention, answer).await, Status::Retry)
        }
        StatusEnding::Release => (run.release().await, Status::Released),
        StatusEnding::Unknown => (run.abandon(Why::Abandoned).await, Status::Unknown),
    };
    match ended {
        RunEnded::Stored { expires_in } => (status, Some(expires_in)),
        RunEnded::Lost => (Status::Lost, None),
        RunEnded::Unstored => (Status::Unstored, None),
    }
}

/// Says until when an answer is kept (P1).
pub(super) fn mark_expiry(case: &Case, expires_in: Duration, headers: &mut HeaderMap) {
    let until = case.front.engine.clock().now().after(expires_in).wall();
    // A date beyond what HTTP can write is as good as for ever: nothing is said.
    let last = std::time::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    if until > last {
        return;
    }
    if let Ok(value) = HeaderValue::try_from(httpdate::fmt_http_date(until)) {
        headers.insert(names::IDEMPOTENCY_EXPIRES, value);
    }
}

/// Ends when the time for draining is over; never, where nothing is drained.
async fn overdue(drain: &mut Option<Pin<Box<tokio::time::Sleep>>>) {
    match drain {
        Some(drain) => drain.await,
        None => std::future::pending().await,
    }
}

/// An answer that goes out while it is recorded.
struct Copying {
    case: Case,
    ending: StatusEnding,
    status: StatusCode,
    headers: HeaderMap,
    /// What is kept of the body so far; none once it is too large, or a stream of events.
    kept: Option<BytesMut>,
    events: bool,
    length: Option<u64>,
    passed: u64,
    /// The last bytes of a known length, and trailers: sent once the record is decided (O5).
    held: Vec<Frame<Bytes>>,
    feed: mpsc::Sender<Fed>,
}

/// How the copying of a body ended.
enum Copied {
    ToItsEnd,
    ClientLeftEvents,
    Broken(BoxError),
    Overdue,
}

impl Copying {
    fn new(case: Case, parts: &Parts, ending: StatusEnding, feed: mpsc::Sender<Fed>) -> Self {
        let events = is_event_stream(&parts.headers);
        let keeps = !events && case.policy.store_body == StoreBody::Keep;
        let length = parts
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse().ok());
        Self {
            case,
            ending,
            status: parts.status,
            headers: parts.headers.clone(),
            kept: keeps.then(BytesMut::new),
            events,
            length,
            passed: 0,
            held: Vec::new(),
            feed,
        }
    }

    /// The head goes out before the end is known: it says what the end will be if all goes well.
    fn mark(&self, headers: &mut HeaderMap) {
        let status = match self.ending {
            StatusEnding::Keep => Status::Stored,
            StatusEnding::Retry => Status::Retry,
            StatusEnding::Release => Status::Released,
            StatusEnding::Unknown => Status::Unknown,
        };
        status.set(headers);
    }

    async fn run<R>(mut self, run: Run, first: Vec<Frame<Bytes>>, mut body: Pin<Box<R>>)
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError> + Send,
    {
        let copied = self.copy(first, &mut body).await;
        // The upstream is let go before the store is asked.
        drop(body);
        match copied {
            Copied::ToItsEnd | Copied::ClientLeftEvents => {
                self.decide(run).await;
                for frame in std::mem::take(&mut self.held) {
                    drop(self.feed.send(Fed::Frame(frame)).await);
                }
                drop(self.feed.send(Fed::End).await);
            }
            Copied::Broken(error) => {
                tracing::warn!(record = %self.case.record, %error, "an answer broke off");
                let _ = run.abandon(Why::Abandoned).await;
                drop(self.feed.send(Fed::Broken(error)).await);
            }
            Copied::Overdue => {
                tracing::warn!(record = %self.case.record, "an answer did not end in time");
                let _ = run.abandon(Why::Abandoned).await;
            }
        }
    }

    async fn copy<R>(&mut self, first: Vec<Frame<Bytes>>, body: &mut Pin<Box<R>>) -> Copied
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError> + Send,
    {
        for frame in first {
            if let Err(broken) = self.pass_on(frame).await {
                return broken;
            }
        }
        let mut drain = None;
        loop {
            if self.feed.is_closed() && drain.is_none() {
                if self.events {
                    return Copied::ClientLeftEvents;
                }
                drain = Some(Box::pin(tokio::time::sleep(DRAIN)));
            }
            let next = tokio::select! {
                biased;
                next = body.frame() => next,
                () = self.feed.closed(), if drain.is_none() => continue,
                () = overdue(&mut drain) => return Copied::Overdue,
            };
            match next {
                None => return Copied::ToItsEnd,
                Some(Err(error)) => return Copied::Broken(error.into()),
                Some(Ok(frame)) => {
                    if let Err(broken) = self.pass_on(frame).await {
                        return broken;
                    }
                }
            }
        }
    }

    /// Keeps a frame as far as the limit allows, and passes it on unless it is the end.
    async fn pass_on(&mut self, frame: Frame<Bytes>) -> Result<(), Copied> {
        if let Some(data) = frame.data_ref() {
            self.passed += data.len() as u64;
            if self.length.is_some_and(|length| self.passed > length) {
                return Err(Copied::Broken("the answer is longer than it declared".into()));
            }
            let limit = largest(&self.case) as u64;
            match &mut self.kept {
                Some(kept) if self.passed <= limit => kept.extend_from_slice(data),
                _ => self.kept = None,
            }
        }
        if !frame.is_data() || self.length.is_some_and(|length| self.passed >= length) {
            self.held.push(frame);
            return Ok(());
        }
        // A client that has left is no reason to stop, and one that does not read for this long
        // counts as one that has left.
        if let Err(_late) = tokio::time::timeout(DRAIN, self.feed.send(Fed::Frame(frame))).await {
            let (nobody, _) = mpsc::channel(1);
            self.feed = nobody;
        }
        Ok(())
    }

    async fn decide(&mut self, run: Run) {
        let kept = self.kept.take().map(BytesMut::freeze);
        let base = self.case.front.problem_base.as_deref();
        let problem = kept.as_ref().filter(|_| is_problem(&self.headers));
        if let Some(code) = problem.and_then(|bytes| Problem::code_in(bytes, base)) {
            // Its head went out with another word; what is kept must be right all the same (S7).
            self.ending = of_problem(code);
        }
        let body = kept.as_ref().map_or(Kept::Omitted, Kept::Body);
        let (status, headers) = (self.status, &self.headers);
        let answer = |case: &Case| {
            let origin = case.origin.as_ref();
            response::store(status, headers, body, origin, &case.policy.replay)
        };
        let (marked, _) = decide(&self.case, run, self.ending, answer, status).await;
        if matches!(marked, Status::Lost | Status::Unstored) {
            tracing::error!(record = %self.case.record, "a streamed answer is not stored");
        }
    }
}

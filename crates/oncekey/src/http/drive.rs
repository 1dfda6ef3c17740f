//! The task of a keyed request: claim, run or replay, and tell the client (L6).
//!
//! It outlives the client: whatever the client does after the claim, the work runs to its end and
//! the record is decided.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{HeaderValue, ORIGIN};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::body::{BoxError, RequestBody, ResponseBody};
use super::names::{self, Status};
use super::policy::{Mode, Policy, StoreDown};
use super::problem::{Code, Problem};
use super::record;
use super::response;
use super::service::{Front, pass};
use crate::clock::Stamp;
use crate::engine::{Begun, Run, Terms, Wait};
use crate::key::RecordId;
use crate::record::{Outcome, Standing, Why};
use crate::store::{Claim, StoreError, StoreErrorKind};

/// How long an observed request waits for the store.
const OBSERVING: Duration = Duration::from_millis(500);

/// What the task knows of its request.
pub(super) struct Case {
    pub(super) front: Arc<Front>,
    pub(super) policy: Arc<Policy>,
    pub(super) record: RecordId,
    pub(super) origin: Option<HeaderValue>,
}

impl Case {
    pub(super) fn new(
        front: Arc<Front>,
        policy: Arc<Policy>,
        claim: &Claim,
        parts: &Parts,
    ) -> Self {
        Self { front, policy, record: claim.id, origin: parts.headers.get(ORIGIN).cloned() }
    }

    fn terms(&self) -> Terms {
        let wait = match self.policy.mode {
            // Observing never makes anybody wait.
            Mode::Observe => Wait::Reject,
            _ => self.policy.wait,
        };
        Terms { wait, max_run: self.policy.max_run }
    }
}

/// The handler's view of its run, among the request's extensions.
#[derive(Clone, Debug)]
pub struct Attempt {
    record: RecordId,
    number: u32,
    told: CancellationToken,
    lost: CancellationToken,
}

impl Attempt {
    /// The record's id.
    #[must_use]
    pub fn record(&self) -> RecordId {
        self.record
    }

    /// How often the work was started: 1 for the first run.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A key for a provider's own idempotency keys (M4.4): the same in every attempt, so that a
    /// provider that saw the first one recognises the second.
    #[must_use]
    pub fn provider_key(&self) -> String {
        self.record.to_string()
    }

    /// Cancelled when the run has lasted as long as its lease is renewed (L1).
    #[must_use]
    pub fn told(&self) -> &CancellationToken {
        &self.told
    }

    /// Cancelled as soon as another holds the record, and may be at the work: what is not done yet
    /// should be left (L5). The answer still reaches the client, and is not kept (L3).
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

/// Where the client waits for its answer.
pub(super) type Client<R, E> = oneshot::Sender<Result<Response<ResponseBody<R>>, E>>;

pub(super) async fn drive<S, B, R>(
    case: Case,
    inner: S,
    (parts, bytes): (Parts, Bytes),
    claim: Box<Claim>,
    arrived: Stamp,
    mut client: Client<R, S::Error>,
) where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send,
    S::Future: Send,
    B: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    let engine = case.front.engine.clone();
    let beginning = engine.begin(*claim, arrived, case.terms(), client.closed());
    let begun = match case.policy.mode {
        // A store in trouble must not hold up what is only observed (A8).
        Mode::Observe => tokio::time::timeout(OBSERVING, beginning)
            .await
            .unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout))),
        Mode::Protect | Mode::Off => beginning.await,
    };
    let told = match begun {
        Ok(Begun::Run(run)) => return work(case, inner, (parts, bytes), run, client).await,
        Ok(Begun::Gone) => return,
        other if case.policy.mode == Mode::Observe => {
            report(&case, &other);
            let answer = pass(inner, parts, RequestBody::whole(bytes), None).await;
            drop(client.send(answer));
            return;
        }
        Err(error)
            if case.policy.store_down == StoreDown::InsecurePassThrough
                && error.kind() == StoreErrorKind::Unavailable =>
        {
            tracing::warn!(%error, "the store is not reached: a request runs unprotected");
            let mark = Some(Status::Degraded);
            let answer = pass(inner, parts, RequestBody::whole(bytes), mark).await;
            drop(client.send(answer));
            return;
        }
        Ok(begun) => tell(&case, begun),
        Err(error) => trouble(&case, &error),
    };
    drop(client.send(Ok(told)));
}

/// What would have happened to an observed request (A8).
fn report(case: &Case, begun: &Result<Begun, StoreError>) {
    let what = match begun {
        Ok(Begun::Replay { .. }) => "would be replayed",
        Ok(Begun::Mismatch { .. }) => "would be refused: the key was used for another request",
        Ok(Begun::OtherPrincipal) => "would be refused: the key is somebody else's",
        Ok(Begun::InProgress { .. } | Begun::Ended { .. }) => "would wait for the first request",
        Ok(_) => "would be refused",
        Err(_) => "would be refused: the store is in trouble",
    };
    tracing::warn!(record = %case.record, "observed: {what}");
}

/// The answer to a request that does not run.
fn tell<R>(case: &Case, begun: Begun) -> Response<ResponseBody<R>> {
    let problem = |code| Problem::new(code).with_record(case.record);
    let problem = match begun {
        Begun::Replay { outcome, expires_in } => return replay(case, &outcome, expires_in),
        Begun::Ended { answer: Some(answer) } => return same_answer(case, &answer),
        Begun::InProgress { retry_after } => {
            // The holder renews its lease, so its end says little about the end of the work.
            problem(Code::InProgress).with_retry_after(retry_after.min(Duration::from_secs(5)))
        }
        Begun::Ended { answer: None } => {
            problem(Code::InProgress).with_retry_after(Duration::from_secs(1))
        }
        Begun::Unknown { .. } => problem(Code::OutcomeUnknown),
        Begun::Expired => problem(Code::KeyExpired),
        Begun::Mismatch { first } => {
            // What a tombstone stands for was completed.
            let first = if first == Standing::Tombstone { Standing::Completed } else { first };
            problem(Code::KeyReused).with_first(first).with_status(case.policy.mismatch)
        }
        Begun::OtherPrincipal => Problem::new(Code::OtherPrincipal),
        Begun::Draining => Problem::new(Code::Draining).with_retry_after(Duration::from_secs(1)),
        // Handled before; told the safe way.
        Begun::Run(_) | Begun::Gone => problem(Code::OutcomeUnknown),
    };
    case.front.problem(problem)
}

fn replay<R>(case: &Case, outcome: &Outcome, expires_in: Duration) -> Response<ResponseBody<R>> {
    let Ok(mut response) = response::restore(outcome, case.origin.as_ref()) else {
        return unreadable(case);
    };
    response::mark_replayed(response.headers_mut());
    record::mark_expiry(case, expires_in, response.headers_mut());
    response.map(ResponseBody::whole)
}

/// The answer of the run that was waited for, which ended in `retry` (C4).
fn same_answer<R>(case: &Case, answer: &Outcome) -> Response<ResponseBody<R>> {
    let Ok(mut response) = response::restore(answer, case.origin.as_ref()) else {
        return unreadable(case);
    };
    Status::Retry.set(response.headers_mut());
    response.map(ResponseBody::whole)
}

fn unreadable<R>(case: &Case) -> Response<ResponseBody<R>> {
    tracing::error!(record = %case.record, "a stored answer cannot be read");
    case.front.problem(Problem::new(Code::RecordUnreadable).with_record(case.record))
}

fn trouble<R>(case: &Case, error: &StoreError) -> Response<ResponseBody<R>> {
    tracing::error!(record = %case.record, %error, "a claim failed; nothing runs");
    let code = match error.kind() {
        StoreErrorKind::Full => Code::StoreFull,
        StoreErrorKind::Unreadable => Code::RecordUnreadable,
        StoreErrorKind::Unavailable | StoreErrorKind::Timeout | StoreErrorKind::OutOfBounds => {
            Code::StoreUnavailable
        }
    };
    case.front.problem(Problem::new(code).with_retry_after(Duration::from_secs(1)))
}

/// Runs the handler, and records how it ended.
async fn work<S, B, R>(
    case: Case,
    mut inner: S,
    (mut parts, bytes): (Parts, Bytes),
    run: Run,
    client: Client<R, S::Error>,
) where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send,
    S::Future: Send,
    B: Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    introduce(&mut parts, &run);
    let ready = std::future::poll_fn(|cx| inner.poll_ready(cx));
    match AssertUnwindSafe(ready).catch_unwind().await {
        Ok(Ok(())) => {}
        // The handler never ran.
        Ok(Err(error)) => {
            let _ = run.release().await;
            drop(client.send(Err(error)));
            return;
        }
        Err(panic) => return panicked(case, run, Some(client), panic).await,
    }
    let request = Request::from_parts(parts, RequestBody::whole(bytes));
    // A handler may panic before it returns its future, too.
    let called = std::panic::catch_unwind(AssertUnwindSafe(|| inner.call(request)));
    let answer = match called {
        Ok(future) => AssertUnwindSafe(future).catch_unwind(),
        Err(panic) => return panicked(case, run, Some(client), panic).await,
    };
    let (answer, client) = patiently(&case, answer, client).await;
    match answer {
        Ok(Ok(response)) => record::record(case, run, response, client).await,
        Ok(Err(error)) => {
            let _ = run.abandon(Why::Abandoned).await;
            if let Some(client) = client {
                drop(client.send(Err(error)));
            }
        }
        Err(panic) => panicked(case, run, client, panic).await,
    }
}

/// Tells the handler which record it works for, and for the how manieth time (H).
fn introduce(parts: &mut Parts, run: &Run) {
    let lease = run.lease();
    let id = lease.id.to_string();
    // Hex digits are always a header value.
    if let Ok(id) = HeaderValue::try_from(id) {
        parts.headers.insert(names::IDEMPOTENCY_RECORD, id);
    }
    parts.headers.insert(names::IDEMPOTENCY_ATTEMPT, HeaderValue::from(lease.attempt));
    let (told, lost) = (run.told().clone(), run.lost().clone());
    parts.extensions.insert(Attempt { record: lease.id, number: lease.attempt, told, lost });
}

/// Waits for the answer; at the time-out the client is told that nobody knows, and the work goes
/// on (O4).
async fn patiently<T, R, E>(
    case: &Case,
    answer: impl Future<Output = T>,
    client: Client<R, E>,
) -> (T, Option<Client<R, E>>) {
    let Some(timeout) = case.policy.timeout else {
        return (answer.await, Some(client));
    };
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => return (answer, Some(client)),
        () = tokio::time::sleep(timeout) => {}
    }
    let problem = Problem::new(Code::OutcomeUnknown)
        .with_status(StatusCode::GATEWAY_TIMEOUT)
        .with_record(case.record);
    drop(client.send(Ok(case.front.problem(problem))));
    (answer.await, None)
}

/// Nobody knows what a handler did before it panicked (O7).
pub(super) async fn panicked<R, E>(
    case: Case,
    run: Run,
    client: Option<Client<R, E>>,
    panic: Box<dyn Any + Send>,
) {
    // What a panic says may hold a key or a body, so it is not logged here.
    tracing::error!(record = %case.record, "a handler panicked");
    drop(panic);
    let _ = run.abandon(Why::Panicked).await;
    if let Some(client) = client {
        let problem = Problem::new(Code::OutcomeUnknown)
            .with_status(StatusCode::INTERNAL_SERVER_ERROR)
            .with_record(case.record);
        drop(client.send(Ok(case.front.problem(problem))));
    }
}

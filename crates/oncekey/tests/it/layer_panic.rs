//! A handler panics at any point (O7, L6): 500 while the head is not out, a cut answer afterwards,
//! the record unknown, and no second run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use oncekey::clock::Clock;
use oncekey::engine::{Engine, Limits};
use oncekey::events;
use oncekey::fingerprint::Secret;
use oncekey::http::{BoxError, Layer, Policy, RequestBody, Scoping};
use oncekey::store::{MemoryStore, Store};
use tower::{Layer as _, Service, ServiceExt};

use crate::rig::pay;

/// Where it panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Ready,
    Call,
    FirstPoll,
    AfterAnAwait,
    FutureDropped,
    FirstFrame,
    /// With the head not out yet.
    LaterFrame,
    /// With the head out: what came before is more than is gathered.
    FrameOfAStream,
    SizeHint,
    BodyDropped,
    BodyOfAStreamDropped,
    Nowhere,
}

/// Whether the head is out, and whether all of the answer was there, when it panics.
const POINTS: [(Point, Expect); 11] = [
    (Point::Ready, Expect::Panicked),
    (Point::Call, Expect::Panicked),
    (Point::FirstPoll, Expect::Panicked),
    (Point::AfterAnAwait, Expect::Panicked),
    (Point::FutureDropped, Expect::Decided),
    (Point::FirstFrame, Expect::Panicked),
    (Point::LaterFrame, Expect::Panicked),
    (Point::FrameOfAStream, Expect::Cut),
    (Point::SizeHint, Expect::Decided),
    (Point::BodyDropped, Expect::Decided),
    (Point::BodyOfAStreamDropped, Expect::Decided),
];

/// What the client and the next request see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// 500, then unknown.
    Panicked,
    /// A head and no end, then unknown.
    Cut,
    /// The answer was there: it is kept, or unknown, but never run again.
    Decided,
}

#[derive(Clone, Debug)]
struct Handler {
    point: Point,
    runs: Arc<AtomicUsize>,
}

impl Handler {
    /// The first run alone panics, so that a second one would be seen.
    fn may_panic(&self, point: Point) {
        if self.point == point && self.runs.load(Ordering::SeqCst) <= 1 {
            panic!("the handler was told to");
        }
    }
}

impl Service<Request<RequestBody<Full<Bytes>>>> for Handler {
    type Response = Response<Pieces>;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.may_panic(Point::Ready);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody<Full<Bytes>>>) -> Answer {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.may_panic(Point::Call);
        Answer { handler: self.clone(), polls: 0 }
    }
}

/// Pending once, then an answer.
struct Answer {
    handler: Handler,
    polls: usize,
}

impl Future for Answer {
    type Output = Result<Response<Pieces>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls += 1;
        if self.polls == 1 {
            self.handler.may_panic(Point::FirstPoll);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.handler.may_panic(Point::AfterAnAwait);
        let body = Pieces { handler: self.handler.clone(), given: 0 };
        Poll::Ready(Ok(Response::builder().status(201).body(body)?))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.handler.may_panic(Point::FutureDropped);
        }
    }
}

/// Three pieces.
struct Pieces {
    handler: Handler,
    given: usize,
}

impl Pieces {
    fn streams(&self) -> bool {
        matches!(self.handler.point, Point::FrameOfAStream | Point::BodyOfAStreamDropped)
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.given += 1;
        match self.given {
            1 => self.handler.may_panic(Point::FirstFrame),
            2 if self.streams() => self.handler.may_panic(Point::FrameOfAStream),
            2 => self.handler.may_panic(Point::LaterFrame),
            _ => return Poll::Ready(None),
        }
        // A piece of a stream is more than is gathered.
        let length = if self.streams() { LARGEST + 1 } else { 1 };
        Poll::Ready(Some(Ok(Frame::data(vec![b'x'; length].into()))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.handler.may_panic(Point::SizeHint);
        http_body::SizeHint::default()
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.handler.may_panic(Point::BodyDropped);
            self.handler.may_panic(Point::BodyOfAStreamDropped);
        }
    }
}

/// The largest body that is kept here.
const LARGEST: usize = 16;

type Protected = oncekey::http::Once<Handler>;

fn protected(store: &Arc<dyn Store>, clock: &Clock, point: Point) -> (Protected, Engine, Handler) {
    let engine =
        Engine::with(Arc::clone(store), clock.clone(), events::nobody(), Limits::default());
    let handler = Handler { point, runs: Arc::default() };
    let policy = Policy::default().with(|policy| policy.max_response_body = LARGEST);
    let layer = Layer::new(engine.clone(), Scoping::shared(), Secret::from_bytes([7; 32]));
    (layer.with_policy(policy).layer(handler.clone()), engine, handler)
}

/// Status, `Idempotency-Status`, and the body if it came to its end.
type Told = (u16, String, Option<Bytes>);

async fn send(service: &Protected, key: &str) -> Told {
    let response = service.clone().oneshot(pay(key, "", "")).await.expect("an answer");
    let status = response.status().as_u16();
    let told = response.headers().get("idempotency-status").map(|value| value.to_str().unwrap());
    let told = told.unwrap_or("-").to_owned();
    let body = response.into_body().collect().await.ok().map(http_body_util::Collected::to_bytes);
    (status, told, body)
}

async fn at_every_point(store: Arc<dyn Store>, clock: &Clock) {
    for (point, expect) in POINTS {
        let (service, engine, handler) = protected(&store, clock, point);
        let key = format!("{point:?}");
        let waiter = tokio::spawn({
            let (service, key) = (service.clone(), key.clone());
            async move { send(&service, &key).await }
        });
        let one = send(&service, &key).await;
        let two = waiter.await.unwrap();
        let later = send(&service, &key).await;
        // Which of the two ran is not said; the other waited.
        let (ran, waited) =
            if one.1 == "replayed" || one.0 == 409 { (two, one) } else { (one, two) };
        let what = format!("{point:?}: {ran:?} {waited:?} {later:?}");
        match expect {
            Expect::Panicked => assert_eq!((ran.0, ran.1.as_str()), (500, "unknown"), "{what}"),
            Expect::Cut => assert_eq!((ran.0, ran.2.is_none()), (201, true), "{what}"),
            Expect::Decided => assert!(ran.0 == 201 || ran.1 == "unknown", "{what}"),
        }
        for other in [&waited, &later] {
            let unknown = other.0 == 409 && other.1 == "unknown";
            let replayed = other.1 == "replayed" && expect == Expect::Decided;
            assert!(unknown || replayed, "{what}");
        }
        assert!(handler.runs.load(Ordering::SeqCst) <= 1, "{what}: ran again");
        assert_eq!(engine.stop(Duration::from_secs(20)).await, 0, "{what}: left running");
    }
    let (service, ..) = protected(&store, clock, Point::Nowhere);
    assert_eq!(send(&service, "fine").await.1, "stored", "the layer still works");
}

#[tokio::test]
async fn o7_l6_b31_a_panic_at_any_point_of_the_handler_leaves_a_decided_record_in_memory() {
    let clock = Clock::manual();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    at_every_point(store, &clock).await;
}

#[cfg(feature = "embedded")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o7_l6_b31_a_panic_at_any_point_of_the_handler_leaves_a_decided_record_on_disk() {
    use oncekey::store::embedded::{EmbeddedStore, Options};
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path(), Options::default()).unwrap();
    at_every_point(Arc::new(store), &Clock::real()).await;
}

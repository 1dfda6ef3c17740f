//! A scripted application behind the layer, on a memory store.
//!
//! The handler does what the request's `x-do` header says, counts how often it ran, and can be held
//! at a gate that the test opens.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use oncekey::clock::Clock;
use oncekey::engine::{Engine, Limits};
use oncekey::events;
use oncekey::fingerprint::Secret;
use oncekey::http::{Attempt, BoxError, Layer, Policy, RequestBody, ResponseBody, Scoping};
use oncekey::store::{MemoryStore, Store};
use tokio::sync::Semaphore;
use tower::{Layer as _, Service, ServiceExt};

pub(crate) type AppBody = BoxBody<Bytes, BoxError>;
type Answer = Pin<Box<dyn Future<Output = Result<Response<AppBody>, BoxError>> + Send>>;

/// The application: counts its runs, and waits at its gate where it is told to.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) runs: Arc<AtomicUsize>,
    pub(crate) entered: Arc<Semaphore>,
    pub(crate) gate: Arc<Semaphore>,
}

impl Default for App {
    fn default() -> Self {
        Self {
            runs: Arc::default(),
            entered: Arc::new(Semaphore::new(0)),
            gate: Arc::new(Semaphore::new(0)),
        }
    }
}

impl App {
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Waits until the handler was entered once more.
    pub(crate) async fn entered(&self) {
        self.entered.acquire().await.expect("never closed").forget();
    }

    /// Lets one held handler go on.
    pub(crate) fn open(&self) {
        self.gate.add_permits(1);
    }
}

impl Service<Request<RequestBody<Full<Bytes>>>> for App {
    type Response = Response<AppBody>;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Full<Bytes>>>) -> Answer {
        let app = self.clone();
        Box::pin(async move { app.handle(request).await })
    }
}

impl App {
    async fn handle(
        &self,
        request: Request<RequestBody<Full<Bytes>>>,
    ) -> Result<Response<AppBody>, BoxError> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.entered.add_permits(1);
        let script = request.headers().get("x-do").map(|v| v.to_str().expect("text").to_owned());
        let attempt = request.extensions().get::<Attempt>().cloned();
        let mut response = Response::builder().status(201).header("x-run", run);
        if let Some(attempt) = attempt {
            response = response
                .header("x-attempt", attempt.number())
                .header("x-provider-key", attempt.provider_key())
                .header("x-record-header", request.headers()["idempotency-record"].clone());
        }
        for step in script.as_deref().unwrap_or_default().split(' ') {
            match step.split_once('=').unwrap_or((step, "")) {
                ("wait", _) => self.gate.acquire().await.expect("never closed").forget(),
                ("status", code) => {
                    response = response.status(code.parse::<u16>().expect("a status"))
                }
                ("outcome", how) => response = response.header("idempotency-outcome", how),
                ("panic", _) => panic!("the handler was told to"),
                ("error", _) => return Err("the handler was told to fail".into()),
                ("type", value) => response = response.header("content-type", value),
                ("header", pair) => {
                    let (name, value) = pair.split_once(':').expect("name:value");
                    response = response.header(name, value);
                }
                ("big", size) => {
                    let body = Bytes::from(vec![b'x'; size.parse().expect("a size")]);
                    return Ok(response.body(Full::new(body).map_err(|e| match e {}).boxed())?);
                }
                ("frames", count) => return Ok(response.body(frames(count))?),
                ("stream", _) => return Ok(response.body(self.stream())?),
                ("broken", _) => return Ok(response.body(broken())?),
                ("", _) => {}
                (other, _) => panic!("no such step: {other}"),
            }
        }
        let body = request.into_body().collect().await?.to_bytes();
        let text = format!("run {run}: {}", String::from_utf8_lossy(&body));
        Ok(response.body(Full::from(text).map_err(|never: Infallible| match never {}).boxed())?)
    }

    /// Two frames; the second and the end each wait at the gate.
    fn stream(&self) -> AppBody {
        let gate = Arc::clone(&self.gate);
        let frames = futures_util::stream::unfold(0, move |step| {
            let gate = Arc::clone(&gate);
            async move {
                if step > 0 {
                    gate.acquire().await.expect("never closed").forget();
                }
                let text: &[u8] = [&b"one"[..], b"two"].get(step)?;
                let frame = http_body::Frame::data(Bytes::copy_from_slice(text));
                Some((Ok::<_, BoxError>(frame), step + 1))
            }
        });
        BodyExt::boxed(StreamBody::new(Box::pin(frames).into_sync()))
    }
}

/// Streams are `Send`; a boxed body must be `Sync` too.
trait IntoSync: Sized {
    fn into_sync(self) -> SyncStream<Self>;
}

impl<S> IntoSync for S {
    fn into_sync(self) -> SyncStream<S> {
        SyncStream(std::sync::Mutex::new(self))
    }
}

struct SyncStream<S>(std::sync::Mutex<S>);

impl<S: futures_util::Stream + Unpin> futures_util::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        Pin::new(self.0.get_mut().expect("not poisoned")).poll_next(cx)
    }
}

/// As many frames of one byte.
fn frames(count: &str) -> AppBody {
    let count: usize = count.parse().expect("a number");
    let frames =
        (0..count).map(|_| Ok::<_, BoxError>(http_body::Frame::data(Bytes::from_static(b"x"))));
    BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

fn broken() -> AppBody {
    let frames = [
        Ok(http_body::Frame::data(Bytes::from_static(b"half"))),
        Err(BoxError::from("the application broke off")),
    ];
    BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames).into_sync()))
}

pub(crate) type Protected = oncekey::http::Once<App>;

/// The application with the layer around it.
#[derive(Clone, Debug)]
pub(crate) struct Rig {
    pub(crate) app: App,
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) service: Protected,
    pub(crate) store: Arc<dyn Store>,
}

impl Rig {
    pub(crate) fn new(policy: Policy) -> Self {
        let clock = Clock::manual();
        let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
        Self::on(store, clock, policy, Scoping::shared())
    }

    pub(crate) fn on(
        store: Arc<dyn Store>,
        clock: Clock,
        policy: Policy,
        scoping: Scoping,
    ) -> Self {
        let engine =
            Engine::with(Arc::clone(&store), clock.clone(), events::nobody(), Limits::default());
        let app = App::default();
        let layer =
            Layer::new(engine.clone(), scoping, Secret::from_bytes([7; 32])).with_policy(policy);
        let service = layer.layer(app.clone());
        Self { app, engine, clock, service, store }
    }

    /// Sends a request and reads the answer to its end.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        let response = self.service.clone().oneshot(request).await.expect("an answer");
        Reply::read(response).await
    }

    /// Sends in a task of its own, as a client of its own would.
    pub(crate) fn spawn(&self, request: Request<Full<Bytes>>) -> tokio::task::JoinHandle<Reply> {
        let rig = self.clone();
        tokio::spawn(async move { rig.send(request).await })
    }

    /// Waits until so many requests wait for the record of others.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        for _ in 0..5_000 {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it did not come to this: {what}");
    }
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the body came to its end.
    pub(crate) whole: bool,
}

impl Reply {
    pub(crate) async fn read(response: Response<ResponseBody<AppBody>>) -> Self {
        let (parts, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        let mut whole = true;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend(frame.into_data().unwrap_or_default()),
                Err(_) => {
                    whole = false;
                    break;
                }
            }
        }
        let headers = parts.headers;
        Self { status: parts.status.as_u16(), headers, body: bytes.into(), whole }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// The `Idempotency-Status`.
    pub(crate) fn told(&self) -> &str {
        self.header("idempotency-status").unwrap_or("-")
    }

    /// The problem's code, where the answer is one.
    pub(crate) fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["code"].as_str().unwrap_or("-").to_owned()
    }

    pub(crate) fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }
}

/// `POST /pay` with this key, script and body.
pub(crate) fn pay(key: &str, script: &str, body: &'static str) -> Request<Full<Bytes>> {
    request("/pay", &[("idempotency-key", key), ("x-do", script)], body)
}

pub(crate) fn request(
    uri: &str,
    headers: &[(&str, &str)],
    body: &'static str,
) -> Request<Full<Bytes>> {
    let mut request = Request::post(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::from(body)).expect("a request")
}

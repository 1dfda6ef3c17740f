//! A scripted application, a gateway in front of it, and a client that sees every byte.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use oncekey_gateway::listener::{Listener, Serving, Settings, Upload};
use oncekey_gateway::proxy::{Keyed, Proxy, ProxyBody, Sent};
use oncekey_gateway::upstream::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service;

/// Whatever a test waits for comes in this time, or the test fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("waited in vain: {what}"),
    }
}

/// Returns once the condition holds.
pub(super) async fn until(what: &str, condition: impl Fn() -> bool) {
    soon(what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// One side of a connection, with what was read beyond the last message.
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub(super) async fn to(address: SocketAddr) -> Self {
        Self::new(soon("a connection", TcpStream::connect(address)).await.unwrap())
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon("a write", self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Everything up to and with `mark`; at the end of the stream what there is.
    pub(super) async fn read_to(&mut self, mark: &str) -> String {
        let mark = mark.as_bytes();
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                let rest = self.buffer.split_off(at + mark.len());
                let found = std::mem::replace(&mut self.buffer, rest);
                return String::from_utf8_lossy(&found).into_owned();
            }
            if self.fill().await == 0 {
                return String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned();
            }
        }
    }

    pub(super) async fn head(&mut self) -> String {
        self.read_to("\r\n\r\n").await
    }

    pub(super) async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert_ne!(self.fill().await, 0, "the stream ended early");
        }
        let rest = self.buffer.split_off(count);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Everything until the other side closes; a reset counts as the end.
    pub(super) async fn rest(&mut self) -> String {
        while self.fill().await > 0 {}
        String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned()
    }

    async fn fill(&mut self) -> usize {
        let mut chunk = vec![0; 64 * 1024];
        let count = soon("bytes", self.stream.read(&mut chunk)).await.unwrap_or(0);
        self.buffer.extend_from_slice(&chunk[..count]);
        count
    }

    /// A message with `Content-Length` or without a body.
    pub(super) async fn message(&mut self) -> String {
        let mut message = self.head().await;
        let length = field(&message, "content-length").map_or(0, |value| value.parse().unwrap());
        message.push_str(&String::from_utf8_lossy(&self.exactly(length).await));
        message
    }
}

/// The value of a field in a raw head, lines joined as they stand.
pub(super) fn field(head: &str, name: &str) -> Option<String> {
    let lines: Vec<_> = head
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':'))
        .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
        .collect();
    (!lines.is_empty()).then(|| lines.join("|"))
}

/// An application that does what the test says with each connection.
pub(super) struct App {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<String>>>,
}

/// Where a script notes the requests it has read.
#[derive(Clone)]
pub(super) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(super) fn note(&self, request: String) {
        self.0.lock().unwrap().push(request);
    }
}

impl App {
    /// `script` gets each connection with its number, from 0.
    pub(super) async fn start<F, R>(script: F) -> Self
    where
        F: Fn(Wire, usize, Seen) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let app = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            seen: Arc::default(),
        };
        let (connections, seen) = (Arc::clone(&app.connections), Seen(Arc::clone(&app.seen)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(script(Wire::new(stream), number, seen.clone()));
            }
        });
        app
    }

    /// Answers every request with the same bytes and keeps the connection.
    pub(super) async fn answering(answer: &'static str) -> Self {
        Self::start(move |mut wire, _, seen| async move {
            loop {
                let request = wire.message().await;
                if request.is_empty() {
                    return;
                }
                seen.note(request);
                wire.send(answer).await;
            }
        })
        .await
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn proxy(&self) -> Proxy {
        Proxy::new(format!("http://{}", self.address).parse::<Address>().unwrap())
    }
}

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An address where nobody listens.
pub(super) async fn nowhere() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap()).parse().unwrap()
}

/// The proxy as an unkeyed request meets it, its errors told in the answer's head. A request with
/// the field `keyed` counts as keyed.
#[derive(Clone)]
pub(super) struct Told(pub(super) Proxy);

impl Service<Request<Upload>> for Told {
    type Response = Response<ProxyBody>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Upload>) -> Self::Future {
        if request.headers().contains_key("keyed") {
            request.extensions_mut().insert(Keyed);
        }
        let answer = self.0.call(request);
        Box::pin(async move {
            Ok(answer.await.unwrap_or_else(|error| {
                let sent = match error.sent() {
                    Sent::Nothing => "nothing",
                    Sent::Perhaps => "perhaps",
                };
                Response::builder()
                    .status(error.status())
                    .header("sent", sent)
                    .body(ProxyBody::empty())
                    .unwrap()
            }))
        })
    }
}

pub(super) fn settings() -> Settings {
    Settings::new("127.0.0.1:0".parse().unwrap())
}

pub(super) fn serve(settings: Settings, proxy: Proxy) -> Serving {
    let listener = Listener::bind(settings).unwrap();
    listener.serve(move |_| Told(proxy.clone())).unwrap()
}

/// A gateway with one worker, so that the pool's doings can be foretold.
pub(super) fn gateway(proxy: Proxy) -> Serving {
    let mut settings = settings();
    settings.workers = std::num::NonZeroUsize::MIN;
    serve(settings, proxy)
}

/// Sends one request on a connection of its own and returns all that comes back.
pub(super) async fn ask(address: SocketAddr, request: &str) -> String {
    let mut wire = Wire::to(address).await;
    wire.send(request).await;
    wire.rest().await
}

//! Many clients at once, and an application that is quick enough for them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::rig::{Gateway, PATIENCE, Request};

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// Reads one message whose body, if any, has a length; its head. None at the end.
async fn message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            let whole = end + 4 + length.unwrap_or(0);
            while buffer.len() < whole {
                if stream.read_buf(buffer).await.ok()? == 0 {
                    return None;
                }
            }
            buffer.drain(..whole);
            return Some(head);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// The status of the next answer; 0 where there is none.
async fn status(stream: &mut TcpStream) -> u16 {
    let head = timeout(PATIENCE, message(stream, &mut Vec::new())).await.ok().flatten();
    head.and_then(|head| head.get(9..12)?.parse().ok()).unwrap_or(0)
}

/// Answers 404 under a path that ends in `missing`, 201 elsewhere; under `/held` once it is opened.
pub(super) struct Application {
    address: SocketAddr,
    open: watch::Sender<bool>,
    held: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Application {
    pub(super) fn start() -> Self {
        let runtime = runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (open, opened) = watch::channel(false);
        let held = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&held);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Self::serve(stream, opened.clone(), Arc::clone(&count)));
            }
        });
        Self { address, open, held, _runtime: runtime }
    }

    async fn serve(mut stream: TcpStream, mut open: watch::Receiver<bool>, held: Arc<AtomicUsize>) {
        let _ = stream.set_nodelay(true);
        let mut buffer = Vec::new();
        while let Some(head) = message(&mut stream, &mut buffer).await {
            let target = head.split(' ').nth(1).unwrap_or_default();
            if target == "/held" {
                held.fetch_add(1, Ordering::SeqCst);
                let _ = open.wait_for(|open| *open).await;
            }
            let status = if target.ends_with("missing") { 404 } else { 201 };
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests were held, or still are.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    pub(super) fn open(&self) {
        let _ = self.open.send(true);
    }
}

/// A client that asks for new keys, one after another, while a flood goes on.
pub(super) struct Probe {
    over: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Probe {
    pub(super) fn start(gateway: &Gateway) -> Self {
        let over = Arc::<AtomicBool>::default();
        let (told, address) = (Arc::clone(&over), gateway.address());
        let thread = thread::spawn(move || {
            let mut asked = 0;
            while !told.load(Ordering::SeqCst) || asked < 3 {
                asked += 1;
                let request = Request::post("/pay").key(&format!("probe-{asked}")).json("{}");
                let reply = request.reply(address);
                assert_eq!((reply.status, reply.replayed()), (201, false), "{reply:?}");
                thread::sleep(Duration::from_millis(5));
            }
            asked
        });
        Self { over, thread }
    }

    /// Ends it; every key was answered.
    #[track_caller]
    pub(super) fn stop(self) {
        self.over.store(true, Ordering::SeqCst);
        let asked = self.thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
        assert!(asked > 0);
    }
}

/// A connection from one of many addresses of this machine, so that ports do not run out.
async fn connect(gateway: SocketAddr, number: usize) -> TcpStream {
    let last = u8::try_from(2 + number % 250).expect("below 252");
    for _ in 0..1_000 {
        let socket = TcpSocket::new_v4().expect("a socket");
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
        socket.bind(from).expect("an address of the loopback");
        match timeout(PATIENCE, socket.connect(gateway)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return stream;
            }
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    panic!("no connection to {gateway}");
}

/// Asks `count` requests over `wide` connections; each must be answered with 404.
pub(super) fn ask_all(
    gateway: &Gateway,
    wide: usize,
    count: usize,
    request: impl Fn(usize) -> String + Send + Sync + 'static,
) {
    let (address, request) = (gateway.address(), Arc::new(request));
    let next = Arc::<AtomicUsize>::default();
    runtime().block_on(async move {
        let mut clients = JoinSet::new();
        for client in 0..wide {
            let (request, next) = (Arc::clone(&request), Arc::clone(&next));
            clients.spawn(async move {
                let mut stream = connect(address, client).await;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    stream.write_all(request(number).as_bytes()).await.unwrap();
                    assert_eq!(status(&mut stream).await, 404, "request {number}");
                }
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
    });
}

/// Clients that have sent something and stay.
pub(super) struct Held {
    runtime: Runtime,
    streams: Vec<TcpStream>,
}

/// Opens `count` connections and sends each its bytes.
pub(super) fn hold(gateway: &Gateway, count: usize, bytes: impl Fn(usize) -> String) -> Held {
    let (address, runtime) = (gateway.address(), runtime());
    let mut streams = Vec::with_capacity(count);
    runtime.block_on(async {
        for number in 0..count {
            let mut stream = connect(address, number).await;
            let bytes = bytes(number);
            // What does not fit into the sockets' buffers is not read, and that is well.
            let _ = timeout(Duration::from_millis(500), stream.write_all(bytes.as_bytes())).await;
            streams.push(stream);
        }
    });
    Held { runtime, streams }
}

impl Held {
    /// Sends a little more on each; one that was closed meanwhile takes nothing.
    pub(super) fn send_all(&self, bytes: impl Fn(usize) -> &'static str) {
        for (number, stream) in self.streams.iter().enumerate() {
            let _ = stream.try_write(bytes(number).as_bytes());
        }
    }

    /// The status that each is answered with; 0 where there is none.
    pub(super) fn statuses(self) -> Vec<u16> {
        let Self { runtime, streams } = self;
        runtime.block_on(async {
            let reading = streams
                .into_iter()
                .map(|mut stream| tokio::spawn(async move { status(&mut stream).await }));
            let mut statuses = Vec::new();
            for reading in reading.collect::<Vec<_>>() {
                statuses.push(reading.await.unwrap());
            }
            statuses
        })
    }

    pub(super) fn leave(self) {}
}

/// Opens `count` connections, each after the one before it has ended: sends the bytes, reads the
/// answer where a whole request was sent, and goes.
pub(super) fn one_after_another(
    gateway: &Gateway,
    count: usize,
    bytes: impl Fn(usize) -> &'static str,
) {
    let address = gateway.address();
    runtime().block_on(async {
        for number in 0..count {
            let mut stream = connect(address, number).await;
            let bytes = bytes(number);
            stream.write_all(bytes.as_bytes()).await.unwrap();
            if bytes.ends_with("\r\n\r\n") || bytes.ends_with("{}") {
                assert_ne!(status(&mut stream).await, 0, "connection {number}");
            }
        }
    });
}

/// The status of the answer to these bytes, on a connection of their own.
pub(super) fn reply_to(gateway: &Gateway, bytes: &str) -> u16 {
    runtime().block_on(async {
        let mut stream = connect(gateway.address(), 0).await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        status(&mut stream).await
    })
}

//! Raw bytes to the whole gateway: listener, layer, proxy, and an application that counts.
//!
//! 1. No record is run twice, over all inputs together: the application answers 201 to
//!    everything, so every run is kept.
//! 2. What reaches the application is well-formed to a strict reader, framed in one way, and, where
//!    it bears a key on a keyed method, protected.
//! 3. Where the input is nothing but whole requests to the strict reader, each answer is that to
//!    the request in its place: gateway and client agree where one request ends and the next
//!    begins. An answer, or the end of the connection, comes soon.
//!
//! Each input is sent twice, each time over a connection of its own. What an input that is no
//! whole request sets going may break a promise while the next input is looked at.

mod application;
mod wire;

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use oncekey_gateway::config::{self, Flags};
use oncekey_gateway::gateway::Gateway;

use application::Application;
use wire::{Message, Reader, Start};

/// What the parser knows.
pub const WORDS: &[&str] = &[
    "POST /pay HTTP/1.1\r\n",
    "GET / HTTP/1.1\r\n",
    "PATCH ",
    "HEAD ",
    "OPTIONS * ",
    "HTTP/1.0",
    "Host: a\r\n",
    "Idempotency-Key: k1\r\n",
    "Idempotency-Key: ",
    "\"k2\"",
    "Content-Length: ",
    "Content-Length: 2\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: ",
    "chunked",
    "identity",
    "\r\n\r\n",
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    "\0",
    ":",
    ",",
    ";a=b",
    "0\r\n\r\n",
    "2\r\n{}\r\n",
    "Connection: close\r\n",
    "Connection: Idempotency-Key\r\n",
    "Expect: 100-continue\r\n",
    "Upgrade: websocket\r\n",
    "http://b/pay",
    "/../pay",
    "%2e%2e/",
    "?a=1",
    "Trailer: Idempotency-Key\r\n",
    "Idempotency-Record: 00\r\n",
    "Authorization: Bearer x\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// An answer that is later than this does not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// See the [module](self).
///
/// # Panics
/// Where a promise is broken.
pub fn check(input: &[u8]) {
    static RIG: OnceLock<Rig> = OnceLock::new();
    let rig = RIG.get_or_init(Rig::start);
    let expected = whole_requests(input);
    for _ in 0..2 {
        match &expected {
            Some(requests) => in_order(rig.address, input, requests),
            None => send_and_leave(rig.address, input),
        }
    }
    let broken = rig.application.broken();
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The gateway, for as long as the process lives, and the application behind it.
struct Rig {
    address: SocketAddr,
    application: Arc<Application>,
}

impl Rig {
    fn start() -> Self {
        let application = Application::start();
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nheader_timeout = \"300ms\"\n\
             body_timeout = \"2s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [upstream]\nurl = \"http://{}\"\n[store]\nkind = \"memory\"\n",
            application.address()
        );
        let file = Some(("fuzz.toml".into(), text));
        let loaded = config::parse(file, [], &Flags::default()).expect("it is well-formed");
        let (started, address) = std::sync::mpsc::sync_channel(1);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let gateway = Gateway::start(loaded).await.expect("both addresses are free");
                started.send(gateway.address()).expect("it is waited for");
                std::future::pending::<()>().await;
            });
        });
        Self { address: address.recv().expect("it starts"), application }
    }
}

/// The requests that the input is made of, where it is nothing else.
fn whole_requests(input: &[u8]) -> Option<Vec<Message>> {
    let mut reader = Reader::new(input);
    let mut requests = Vec::new();
    while !reader.is_at_end() {
        let request = reader.request().ok()?;
        // Nothing is promised about what follows these.
        let last = request.field("connection").is_some() || request.method() == "CONNECT";
        requests.push(request);
        if last && !reader.is_at_end() {
            return None;
        }
    }
    let tunnel = requests.iter().any(|request| request.method() == "CONNECT");
    (!requests.is_empty() && !tunnel).then_some(requests)
}

/// Sends whole requests and compares each answer with its request.
fn in_order(address: SocketAddr, input: &[u8], requests: &[Message]) {
    let mut client = connect(address);
    // It may answer and close before it has read all.
    let _ = client.write_all(input);
    let mut answers = Reader::new(client.try_clone().expect("a socket can be shared"));
    for request in requests {
        let answer = match answers.answer_to(request.method()) {
            Ok(answer) => answer,
            Err(wire::Flaw::Ended) => return,
            Err(wire::Flaw::Late) => panic!("neither an answer nor an end"),
            Err(wire::Flaw::TooLong) => panic!("an answer of more than a MiB"),
            Err(wire::Flaw::Malformed(why)) => panic!("a malformed answer: {why}"),
        };
        let Start::Answer(status) = answer.start else { unreachable!("an answer was read") };
        // The gateway's own answers are no echo; a form is the same whatever its boundary.
        let form = request.field("content-type").is_some_and(|kind| kind.contains("multipart"));
        if status == 201 && request.method() != "HEAD" && !form {
            let echo = application::echo(request);
            assert_eq!(
                String::from_utf8_lossy(&answer.body),
                echo,
                "the answer to another request"
            );
        }
    }
}

/// Sends what is no whole request, then says that nothing more comes, and waits for the end.
fn send_and_leave(address: SocketAddr, input: &[u8]) {
    let mut client = connect(address);
    let _ = client.write_all(input);
    let _ = client.shutdown(Shutdown::Write);
    let rest = Reader::new(client).rest();
    assert!(rest != Err(wire::Flaw::Late), "the connection does not end");
}

fn connect(address: SocketAddr) -> TcpStream {
    // The machine may be out of ports for a moment: each input takes two.
    for _ in 0..600 {
        if let Ok(client) = TcpStream::connect(address) {
            client.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
            client.set_nodelay(true).expect("it is connected");
            return client;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("the gateway does not accept");
}

//! A scripted application: it sees exact bytes, sends exact bytes, and misbehaves on demand.
//!
//! ```ignore
//! // Answers the first request, falls silent on the second, resets on every other.
//! let upstream = Upstream::start(|exchange| match exchange.request.number {
//!     1 => exchange.answer(201, &[("Location", "/1")], b"done"),
//!     2 => exchange.stay_silent(),
//!     _ => After::Reset,
//! });
//! ```

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use super::message::{Fields, Framing, Head, ReadBody};
use super::wire::{Broken, Wire};
use super::{Gate, wait_until};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Which one it is for this upstream, from 1.
    pub(crate) number: usize,
    /// The connection it came on, from 1.
    pub(crate) connection: usize,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Fields,
    /// Without chunk marks.
    pub(crate) body: Vec<u8>,
    pub(crate) framing: Framing,
    /// The head's bytes.
    pub(crate) raw_head: Vec<u8>,
    /// Whether all of the body arrived.
    pub(crate) whole: bool,
}

/// What becomes of the connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The next request may come.
    Keep,
    /// It is closed in order.
    Close,
    /// The other side sees a reset.
    Reset,
}

/// A request and the wire to answer it on.
pub(crate) struct Exchange<'a> {
    pub(crate) request: Received,
    wire: &'a mut Wire,
    ended: &'a Gate,
}

impl Exchange<'_> {
    /// Sends these bytes and no others; whether they left.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.wire.send(bytes).is_ok()
    }

    /// Sends a whole answer with a `Content-Length`, and keeps the connection.
    pub(crate) fn answer(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> After {
        let mut bytes = format!("HTTP/1.1 {status} Scripted\r\n").into_bytes();
        for (name, value) in headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        if self.send(bytes) { After::Keep } else { After::Close }
    }

    /// Sends the bytes in pieces with a pause after each; whether all left.
    pub(crate) fn trickle(&mut self, bytes: &[u8], piece: usize, pause: Duration) -> bool {
        bytes.chunks(piece).all(|part| self.send(part) && !self.ended.opens_within(pause))
    }

    /// Waits until the gate opens; false if the upstream ended before.
    pub(crate) fn wait(&self, gate: &Gate) -> bool {
        while !gate.opens_within(Duration::from_millis(20)) {
            if self.ended.is_open() {
                return false;
            }
        }
        true
    }

    /// Says nothing until the other side leaves or the upstream ends.
    pub(crate) fn stay_silent(&mut self) -> After {
        self.wire.set_patience(Duration::from_secs(3600));
        self.wire.read_to_end();
        After::Close
    }

    /// Waits until the other side leaves; true if it closed, false if it reset.
    pub(crate) fn see_it_leave(&mut self) -> bool {
        self.wire.read_to_end().1 == Broken::Closed
    }

    /// The bytes below HTTP.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        self.wire
    }
}

#[derive(Default)]
struct Shared {
    connections: AtomicUsize,
    requests: Mutex<Vec<Received>>,
    open: Mutex<Vec<Weak<TcpStream>>>,
    ended: Gate,
}

impl Shared {
    fn note(&self, mut request: Received) -> Received {
        let mut requests = self.requests.lock().unwrap();
        request.number = requests.len() + 1;
        requests.push(request.clone());
        request
    }
}

/// A scripted application; its connections end when it is dropped.
pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Upstream {
    /// `script` gets every request, whole, on a thread of its connection.
    pub(crate) fn start<S>(script: S) -> Self
    where
        S: Fn(&mut Exchange<'_>) -> After + Send + Sync + 'static,
    {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)), script)
    }

    /// The same on an address, as an application that comes back.
    #[track_caller]
    pub(crate) fn start_on<S>(address: SocketAddr, script: S) -> Self
    where
        S: Fn(&mut Exchange<'_>) -> After + Send + Sync + 'static,
    {
        Self::accepting(address, move |mut wire, connection, shared| {
            loop {
                let Some(request) = receive(&mut wire, connection) else { return };
                let request = shared.note(request);
                let mut exchange = Exchange { request, wire: &mut wire, ended: &shared.ended };
                match script(&mut exchange) {
                    After::Keep => {}
                    After::Close => return,
                    After::Reset => return wire.reset(),
                }
            }
        })
    }

    /// Answers every request with the same bytes.
    pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |exchange| if exchange.send(&bytes) { After::Keep } else { After::Close })
    }

    /// `script` gets every connection with its number, from 1, before a byte is read.
    pub(crate) fn raw<S>(script: S) -> Self
    where
        S: Fn(Wire, usize) + Send + Sync + 'static,
    {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::accepting(address, move |wire, number, _| script(wire, number))
    }

    #[track_caller]
    fn accepting<S>(address: SocketAddr, script: S) -> Self
    where
        S: Fn(Wire, usize, &Shared) + Send + Sync + 'static,
    {
        let listener = TcpListener::bind(address).expect("the address is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let (script, own) = (Arc::new(script), Arc::clone(&shared));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if own.ended.is_open() {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let number = own.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let wire = Wire::new(stream);
                own.open.lock().unwrap().push(wire.handle());
                let (script, shared) = (Arc::clone(&script), Arc::clone(&own));
                thread::spawn(move || script(wire, number, &shared));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests arrived.
    pub(crate) fn count(&self) -> usize {
        self.shared.requests.lock().unwrap().len()
    }

    /// How many connections were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Every request, in the order of arrival.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Returns once so many requests have arrived.
    #[track_caller]
    pub(crate) fn wait_for_requests(&self, count: usize) {
        wait_until(&format!("{count} requests at the upstream"), || self.count() >= count);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.ended.open();
        for stream in self.shared.open.lock().unwrap().drain(..).filter_map(|open| open.upgrade()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the acceptor, which then gives the port back.
        let _ = TcpStream::connect(self.address);
    }
}

fn receive(wire: &mut Wire, connection: usize) -> Option<Received> {
    // A pooled connection may rest longer than anything is waited for.
    wire.set_patience(Duration::from_secs(3600));
    let head = Head::read(wire).ok()??;
    wire.set_patience(super::PATIENCE);
    let framing = head.framing(Framing::NoBody);
    if head.fields.text("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        let _: io::Result<()> = wire.send("HTTP/1.1 100 Continue\r\n\r\n");
    }
    let body = ReadBody::read(wire, framing, head.length());
    let [method, target, _] = head.start;
    Some(Received {
        number: 0,
        connection,
        method,
        target,
        headers: head.fields,
        whole: body.broken.is_none() && !body.malformed,
        body: body.bytes,
        framing,
        raw_head: head.raw,
    })
}

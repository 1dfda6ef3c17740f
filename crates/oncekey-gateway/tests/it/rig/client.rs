//! A client that sends exact bytes and reads whole answers.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::message::{Framing, Head, ReadBody, Reply};
use super::wire::{Broken, Wire};

/// Why there is no whole answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody listens.
    Connect(io::Error),
    /// The connection ended, or nothing came, before the end of a head.
    NoAnswer { how: Broken, received: Vec<u8> },
    /// The body broke off; what came of it is in the reply.
    Cut { how: Broken, reply: Box<Reply> },
    /// This is not HTTP/1.1.
    Malformed { received: Vec<u8> },
}

/// A request, to be written as it is given: nothing but the framing of the body is added.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    head: Vec<u8>,
    method: String,
    body: Vec<u8>,
    chunked: bool,
}

impl Request {
    /// A request with the `Host` field `test.example`.
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self::bare(method, target).header("Host", "test.example")
    }

    /// A request with no field at all.
    pub(crate) fn bare(method: &str, target: &str) -> Self {
        let head = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
        Self { head, method: method.to_owned(), body: Vec::new(), chunked: false }
    }

    pub(crate) fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head.extend_from_slice(name.as_bytes());
        self.head.extend_from_slice(b": ");
        self.head.extend_from_slice(value.as_ref());
        self.head.extend_from_slice(b"\r\n");
        self
    }

    /// A body with its `Content-Length`.
    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        let length = self.body.len().to_string();
        self.header("Content-Length", length)
    }

    /// A JSON body with its type and length.
    pub(crate) fn json(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    /// A body in chunks of these.
    pub(crate) fn chunks(mut self, chunks: &[&[u8]]) -> Self {
        for chunk in chunks {
            self.body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            self.body.extend_from_slice(chunk);
            self.body.extend_from_slice(b"\r\n");
        }
        self.body.extend_from_slice(b"0\r\n\r\n");
        self.chunked = true;
        self.header("Transfer-Encoding", "chunked")
    }

    /// The head's bytes, blank line and all.
    pub(crate) fn head_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// Everything that goes over the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends it on a connection of its own.
    pub(crate) fn send(&self, address: SocketAddr) -> Result<Reply, Failure> {
        let mut connection = Connection::open(address)?;
        connection.ask(self)
    }

    /// Sends it on a connection of its own; the test fails without a whole answer.
    #[track_caller]
    pub(crate) fn reply(&self, address: SocketAddr) -> Reply {
        self.send(address).unwrap_or_else(|why| panic!("no answer from {address}: {why:?}"))
    }
}

/// A client's connection, used for as many requests as the test likes.
pub(crate) struct Connection(Wire);

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Failure> {
        Wire::open(address).map(Self).map_err(Failure::Connect)
    }

    /// How long one read may take in all.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.0.set_patience(patience);
    }

    /// Sends a request and reads its answer.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        // A server may answer and close before it has read all; the answer counts.
        let _ = self.0.send(request.bytes());
        self.read_reply_to(&request.method)
    }

    /// Sends these bytes and no others.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.send(bytes)
    }

    /// Reads the answer to anything but HEAD and CONNECT.
    pub(crate) fn read_reply(&mut self) -> Result<Reply, Failure> {
        self.read_reply_to("POST")
    }

    /// Reads the answer to a request with this method.
    pub(crate) fn read_reply_to(&mut self, method: &str) -> Result<Reply, Failure> {
        let mut reply = self.read_head_to(method)?;
        let length = reply.headers.text("content-length");
        let length = length.and_then(|text| text.parse().ok()).unwrap_or(0);
        let body = ReadBody::read(&mut self.0, reply.framing, length);
        (reply.body, reply.chunks, reply.trailers) = (body.bytes, body.chunks, body.trailers);
        match body.broken {
            Some(how) => Err(Failure::Cut { how, reply: Box::new(reply) }),
            None if body.malformed => Err(Failure::Malformed { received: reply.body }),
            None => Ok(reply),
        }
    }

    /// Reads an answer's head only, past any 1xx; the body is empty and still to be read.
    pub(crate) fn read_head_to(&mut self, method: &str) -> Result<Reply, Failure> {
        let mut interim = Vec::new();
        loop {
            let head = match Head::read(&mut self.0) {
                Ok(head) => head,
                Err(how) => return Err(Failure::NoAnswer { how, received: self.0.unread() }),
            };
            let head = head.filter(|head| head.start[0].starts_with("HTTP/1."));
            let framing = head.as_ref().map_or(Framing::NoBody, |head| framing_of(head, method));
            let Some(reply) = head.and_then(|head| Reply::new(head, framing, interim.clone()))
            else {
                return Err(Failure::Malformed { received: self.0.unread() });
            };
            if reply.status == 101 || reply.status >= 200 {
                return Ok(reply);
            }
            interim.push(reply.status);
        }
    }

    /// The bytes below HTTP, for streams, upgrades and malformed answers.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.0
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.0.finish()
    }

    /// Whether the other side closes now, without another byte.
    pub(crate) fn is_closed_by_the_other_side(&mut self) -> bool {
        let (rest, how) = self.0.read_to_end();
        rest.is_empty() && how != Broken::TimedOut
    }

    /// Leaves in order, as a browser does whose tab is closed.
    pub(crate) fn leave(self) {}

    /// Leaves so that the other side sees a reset.
    pub(crate) fn reset(self) {
        self.0.reset();
    }
}

fn framing_of(head: &Head, method: &str) -> Framing {
    match head.start[1].as_str() {
        "204" | "304" => Framing::NoBody,
        status if status.starts_with('1') => Framing::NoBody,
        _ if method == "HEAD" => Framing::NoBody,
        _ => head.framing(Framing::UntilClose),
    }
}

/// Posts on a connection of its own: the address as `Host`, these headers, `Content-Length`, and
/// `Content-Type: application/json` where no other type is given.
pub(crate) fn try_post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Result<Reply, Failure> {
    let mut request = Request::bare("POST", path).header("Host", address.to_string());
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        request = request.header("Content-Type", "application/json");
    }
    request.body(body).send(address)
}

/// [`try_post`]; the test fails without a whole answer.
#[track_caller]
pub(crate) fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Reply {
    let reply = try_post(address, path, headers, body);
    reply.unwrap_or_else(|why| panic!("no answer from {address} to POST {path}: {why:?}"))
}

/// Gets on a connection of its own.
pub(crate) fn try_get(address: SocketAddr, path: &str) -> Result<Reply, Failure> {
    Request::bare("GET", path).header("Host", address.to_string()).send(address)
}

/// [`try_get`]; the test fails without a whole answer.
#[track_caller]
pub(crate) fn get(address: SocketAddr, path: &str) -> Reply {
    let reply = try_get(address, path);
    reply.unwrap_or_else(|why| panic!("no answer from {address} to GET {path}: {why:?}"))
}

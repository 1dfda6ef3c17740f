//! What is malformed gets its own answer, and reaches neither the application nor the store.
//!
//! Each row of a table is one request as bytes, with the status and the code it must get. A code
//! that is empty means the bare answer of the HTTP parser. One gateway serves a whole table.

mod body;
mod config;
mod key;
mod wire;

use super::rig::{After, Builder, Connection, Gateway, Upstream};

/// A request that must be refused.
pub(super) struct Row {
    what: &'static str,
    bytes: Vec<u8>,
    status: u16,
    code: &'static str,
}

/// A row with these bytes.
pub(super) fn row(
    what: &'static str,
    bytes: impl AsRef<[u8]>,
    expected: (u16, &'static str),
) -> Row {
    let (status, code) = expected;
    Row { what, bytes: bytes.as_ref().to_vec(), status, code }
}

/// A POST to `path` with these header lines, each with its end, and this body.
pub(super) fn post(path: &str, lines: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = format!("POST {path} HTTP/1.1\r\nHost: test.example\r\n").into_bytes();
    bytes.extend_from_slice(lines.as_ref());
    bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The line of a key header with these bytes.
pub(super) fn key_line(value: impl AsRef<[u8]>) -> Vec<u8> {
    let mut line = b"Idempotency-Key: ".to_vec();
    line.extend_from_slice(value.as_ref());
    line.extend_from_slice(b"\r\n");
    line
}

/// Sends every row on a connection of its own; all that is wrong is told at once. At the end a
/// good request runs, which shows that it was the rows that were refused.
pub(super) fn refuses(config: impl FnOnce(Builder) -> Builder, good: &[u8], rows: &[Row]) {
    let upstream = Upstream::start(|exchange| exchange.answer(201, &[], b"done"));
    let gateway = config(Gateway::to(upstream.address())).start();
    let mut wrong = Vec::new();
    for Row { what, bytes, status, code } in rows {
        let mut connection = Connection::open(gateway.address()).unwrap();
        // The refusal may come, and the connection end, before all is written.
        let _ = connection.send(bytes);
        let _ = connection.finish();
        match connection.read_reply() {
            Ok(reply) if (reply.status, reply.code().as_str()) == (*status, code) => {}
            other => wrong.push(format!("{what}: expected {status} {code:?}, got {other:?}")),
        }
        if upstream.count() > 0 {
            wrong.push(format!("{what}: reached the application"));
            break;
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    let claims: f64 = ["acquired", "replayed", "in_progress", "mismatch"]
        .iter()
        .filter_map(|result| {
            gateway.metric(&format!("oncekey_claims_total{{result=\"{result}\"}}"))
        })
        .sum();
    assert!(claims.abs() < f64::EPSILON, "a refused request asked the store: {claims}");

    let mut connection = Connection::open(gateway.address()).unwrap();
    connection.send(good).unwrap();
    assert_eq!(connection.read_reply().unwrap().status, 201);
    assert_eq!(upstream.count(), 1);
}

/// An upstream that must never be reached.
pub(super) fn untouched() -> Upstream {
    Upstream::start(|_| After::Reset)
}

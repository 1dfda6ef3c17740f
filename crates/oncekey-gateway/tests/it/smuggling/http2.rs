//! HTTP/2 requests that would be two, or another one, if they were written down as HTTP/1.1.

use std::time::Duration;

use super::{HIDDEN, paid};
use crate::rig::{Gateway, Request, Wire};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A field as a literal that no table takes in, with lengths below 127 and no Huffman code.
fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).ok().filter(|length| *length < 127);
    let mut field = vec![0, length(name).expect("a short name")];
    field.extend(name);
    match length(value) {
        Some(length) => field.push(length),
        None => {
            // The rest of the length, in groups of seven bits (RFC 7541, 5.1).
            let mut rest = value.len() - 127;
            field.push(127);
            while rest >= 128 {
                field.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            field.push(u8::try_from(rest).unwrap());
        }
    }
    field.extend(value);
    field
}

type Fields<'a> = Vec<(&'a [u8], &'a [u8])>;

fn good(key: &str) -> Fields<'_> {
    vec![
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":authority", b"a.example"),
        (b":path", b"/pay"),
        (b"idempotency-key", key.as_bytes()),
    ]
}

/// Sends one request on a connection of its own; the kind and flags of the frame that decides it,
/// none where the connection just ends.
fn ask(gateway: &Gateway, fields: &Fields<'_>, body: &[u8]) -> Option<u8> {
    decided(gateway, fields, &[frame(DATA, END_STREAM, 1, body)])
}

/// The same, with these frames after the head.
fn decided(gateway: &Gateway, fields: &Fields<'_>, frames: &[Vec<u8>]) -> Option<u8> {
    let mut wire = Wire::open(gateway.address()).unwrap();
    wire.set_patience(Duration::from_secs(10));
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, b""));
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
    bytes.extend(frame(HEADERS, END_HEADERS, 1, &block));
    bytes.extend(frames.concat());
    // An answer to this comes after the answer to what precedes it.
    bytes.extend(frame(PING, 0, 0, &[0; 8]));
    let _ = wire.send(bytes);
    loop {
        let head = wire.read_exactly(9).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let _ = wire.read_exactly(length as usize).ok()?;
        if matches!(head[3], HEADERS | RESET | GO_AWAY) {
            return Some(head[3]);
        }
        // One that was reset is answered by nothing.
        if head[3] == PING && frames.last().is_some_and(|last| last[3] == RESET) {
            return None;
        }
    }
}

#[test]
fn k3_fields_that_http_2_does_not_allow_reach_nobody() {
    let upstream = paid();
    let gateway = Gateway::to(upstream.address()).start();
    let split = format!("x\r\n\r\n{HIDDEN}");
    let rows: [(&[u8], &[u8]); 14] = [
        (b"connection", b"close"),
        (b"connection", b"idempotency-key"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-connection", b"keep-alive"),
        (b"te", b"gzip"),
        (b"X-A", b"an upper case name"),
        (b"x-a\r\nx-b", b"a name with a line break"),
        (b"x a", b"a name with a blank"),
        (b"x-a:", b"a name with a colon"),
        (b"x-a", b"a\nb"),
        (b"x-a", b"a\0b"),
        (b"x-a", split.as_bytes()),
    ];
    for (name, value) in rows {
        let mut fields = good("k1");
        fields.push((name, value));
        let decided = ask(&gateway, &fields, b"{}");
        let what = String::from_utf8_lossy(name);
        assert_eq!(upstream.count(), 0, "{what} reached the application, {decided:?}");
    }
    assert_eq!(gateway.metric("oncekey_claims_total{result=\"acquired\"}"), Some(0.0));
    assert_eq!(ask(&gateway, &good("k1"), b"{}"), Some(HEADERS));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn k3_a_length_that_http_2_frames_contradict_claims_nothing() {
    let upstream = paid();
    let gateway = Gateway::to(upstream.address()).start();
    for lengths in [&["1"][..], &["3"], &["2", "3"], &["+2"], &["2, 2"], &["x"], &["-1"], &["0"]] {
        let mut fields = good("k1");
        for length in lengths {
            fields.push((b"content-length", length.as_bytes()));
        }
        ask(&gateway, &fields, b"{}");
        assert_eq!(upstream.count(), 0, "{lengths:?} reached the application");
    }
    let mut fields = good("k1");
    fields.push((b"content-length", b"2"));
    assert_eq!(ask(&gateway, &fields, b"{}"), Some(HEADERS));
    let seen = upstream.requests();
    assert_eq!((seen.len(), &*seen[0].body), (1, &b"{}"[..]));
}

#[test]
fn s3_pseudo_fields_carry_no_second_line_into_the_application_s_request() {
    let upstream = paid();
    let gateway = Gateway::to(upstream.address()).start();
    let replaced = |name: &'static [u8], value: &'static [u8]| {
        let mut fields = good("k1");
        for field in fields.iter_mut().filter(|(found, _)| *found == name) {
            field.1 = value;
        }
        fields
    };
    let added = |name: &'static [u8], value: &'static [u8]| {
        let mut fields = good("k1");
        fields.push((name, value));
        fields
    };
    let without = |name: &'static [u8]| -> Fields<'_> {
        good("k1").into_iter().filter(|(found, _)| *found != name).collect()
    };
    let mut behind = good("k1");
    behind.rotate_left(1);
    let rows = [
        ("a method with a line", replaced(b":method", b"POST /hidden HTTP/1.1\r\nHost: b\r\n\r\n")),
        ("a method with a blank", replaced(b":method", b"GET /hidden")),
        ("a path with a line", replaced(b":path", b"/pay HTTP/1.1\r\nX-A: b")),
        ("a path with a blank", replaced(b":path", b"/pay HTTP/1.1")),
        ("a path with a zero byte", replaced(b":path", b"/pay\0")),
        ("an empty path", replaced(b":path", b"")),
        ("an authority with a line", replaced(b":authority", b"a.example\r\nX-A: b")),
        ("an authority with a user", replaced(b":authority", b"u@a.example")),
        ("an authority with a path", replaced(b":authority", b"a.example/hidden")),
        ("an authority with a blank", replaced(b":authority", b"a.example b")),
        ("a scheme with a line", replaced(b":scheme", b"http://b/hidden HTTP/1.1\r\nX:")),
        ("a second path", added(b":path", b"/hidden")),
        ("a second method", added(b":method", b"GET")),
        ("an unknown pseudo field", added(b":hidden", b"x")),
        ("no path", without(b":path")),
        ("no method", without(b":method")),
        ("no scheme", without(b":scheme")),
        ("a pseudo field behind a field", behind),
        ("two hosts", {
            let mut fields = added(b"host", b"a.example");
            fields.push((b"host", b"b.example"));
            fields
        }),
    ];
    for (what, fields) in rows {
        let decided = ask(&gateway, &fields, b"{}");
        assert_eq!(upstream.count(), 0, "{what} reached the application, {decided:?}");
    }
    assert_eq!(gateway.metric("oncekey_claims_total{result=\"acquired\"}"), Some(0.0));
}

#[test]
fn s3_the_authority_of_http_2_is_the_host_for_scope_and_application_alike() {
    let upstream = paid();
    let config = "[tenant]\nfrom = \"host\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let mut fields = good("k1");
    fields.push((b"host", b"b.example"));
    ask(&gateway, &fields, b"{}");
    let seen = upstream.requests();
    for seen in &seen {
        assert_eq!(seen.headers.all("host"), [b"a.example"], "{seen:?}");
    }
    // By either way of writing it, the key is that of the authority's host.
    let plain =
        |host: &str| Request::bare("POST", "/pay").header("Host", host).key("k1").body("{}");
    assert_eq!(plain("a.example").reply(gateway.address()).replayed(), !seen.is_empty());
    assert!(!plain("b.example").reply(gateway.address()).replayed());
}

#[test]
fn k3_a_preface_behind_a_request_starts_no_second_protocol() {
    let upstream = paid();
    let gateway = Gateway::to(upstream.address()).start();
    let head = "POST /pay HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: k1\r\n\
                Content-Length: 2\r\n\r\n{}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let replies = super::answers(gateway.address(), head.as_bytes());
    assert!(replies.iter().filter(|reply| reply.status == 201).count() <= 1, "{replies:?}");
    assert!(upstream.count() <= 1);
}

#[test]
fn f4_an_upload_that_its_client_resets_runs_nothing_whatever_the_reason() {
    let upstream = paid();
    let gateway = Gateway::to(upstream.address()).start();
    // Among them the one that means no error (RFC 9113, 8.1).
    for (reason, data) in [(0_u32, "{\"amount\":10"), (0, ""), (1, "{}"), (8, "{}"), (7, "")] {
        let reset = frame(RESET, 0, 1, &reason.to_be_bytes());
        let data = frame(DATA, 0, 1, data.as_bytes());
        let declared: Fields<'_> = [good("k1"), vec![(b"content-length", b"15")]].concat();
        for fields in [good("k1"), declared] {
            let _ = decided(&gateway, &fields, &[data.clone(), reset.clone()]);
        }
    }
    assert_eq!(ask(&gateway, &good("k1"), b"{\"amount\":100}"), Some(HEADERS));
    let bodies: Vec<_> = upstream.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, [b"{\"amount\":100}"], "the whole request ran, and nothing before it");
}

//! Bytes that are no HTTP, or more of it than is taken: the bare answer, with a key or without.

use super::{key_line, post, refuses, row};
use crate::rig::{Gateway, Request, Upstream};

const BARE: (u16, &str) = (400, "");

#[test]
fn k3_bytes_that_the_parser_refuses_get_its_bare_400() {
    let with = |lines: &[u8]| post("/pay", lines, "{}");
    let good = post("/pay", key_line("k"), "{}");
    let rows = [
        row("a control byte in the key", with(b"Idempotency-Key: a\x01b\r\n"), BARE),
        row("NUL in the key", with(b"Idempotency-Key: a\0b\r\n"), BARE),
        row("DEL in the key", with(b"Idempotency-Key: a\x7fb\r\n"), BARE),
        row("a lone CR in the key", with(b"Idempotency-Key: a\rb\r\n"), BARE),
        row("a folded key", with(b"Idempotency-Key: a\r\n b\r\n"), BARE),
        row("a blank before the colon", with(b"Idempotency-Key : a\r\n"), BARE),
        row("a line without a colon", with(b"Idempotency-Key\r\n"), BARE),
        row("a name with a blank", with(b"Idempotency Key: a\r\n"), BARE),
        row("an empty name", with(b": a\r\n"), BARE),
        row("no method", b" /pay HTTP/1.1\r\nHost: a\r\n\r\n", BARE),
        row("no version", b"POST /pay\r\nHost: a\r\n\r\n", BARE),
        row("no HTTP at all", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", BARE),
        row("a target with a blank", b"POST /p ay HTTP/1.1\r\nHost: a\r\n\r\n", BARE),
    ];
    refuses(|gateway| gateway, &good, &rows);
}

#[test]
fn k3_a_request_whose_length_is_in_doubt_gets_the_bare_400() {
    let raw = |lines: &str, body: &str| {
        format!("POST /pay HTTP/1.1\r\nIdempotency-Key: k\r\n{lines}\r\n{body}")
    };
    let good = post("/pay", key_line("k"), "{}");
    let host = "Host: a\r\n";
    let length = |value: &str| raw(&format!("{host}Content-Length: {value}\r\n"), "{}");
    let coding = |value: &str| raw(&format!("{host}Transfer-Encoding: {value}\r\n"), "0\r\n\r\n");
    let rows = [
        row("a word for a length", length("two"), BARE),
        row("a negative length", length("-2"), BARE),
        row("a signed length", length("+2"), BARE),
        row(
            "two lengths",
            raw("Host: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n", "{}"),
            BARE,
        ),
        row("a length beyond counting", length("99999999999999999999999"), BARE),
        row("a coding that does not end", coding("gzip"), BARE),
        row("chunks that are not last", coding("chunked, gzip"), BARE),
    ];
    refuses(|gateway| gateway, &good, &rows);
}

#[test]
fn x6_a_head_that_is_too_large_gets_a_bare_431() {
    let good = post("/pay", key_line("k"), "{}");
    let padding = format!("X-Padding: {}\r\n", "x".repeat(70 * 1024));
    let many: String = (0..2_000).map(|number| format!("X-{number}: x\r\n")).collect();
    let key = format!("Idempotency-Key: {}\r\n", "k".repeat(70 * 1024));
    let rows = [
        row("a long field", post("/pay", padding, "{}"), (431, "")),
        row("many fields", post("/pay", many, "{}"), (431, "")),
        row("a long key", post("/pay", key, "{}"), (431, "")),
    ];
    refuses(|gateway| gateway, &good, &rows);
}

#[test]
fn o1_a_request_without_one_host_is_refused_and_its_key_stays_new() {
    let upstream = Upstream::start(|exchange| exchange.answer(201, &[], b"done"));
    let gateway = Gateway::to(upstream.address()).start();
    let request = |hosts: &[&str]| {
        let request = Request::bare("POST", "/pay").key("k");
        hosts.iter().fold(request, |request, host| request.header("Host", host)).body("{}")
    };
    for hosts in [&[][..], &["a", "b"], &["a", "a"], &["a b"], &["u@a"], &["a/b"]] {
        for _ in 0..2 {
            let reply = request(hosts).reply(gateway.address());
            let told = (reply.status, reply.code(), reply.replayed());
            assert_eq!(told, (400, String::new(), false), "{hosts:?}: {reply:?}");
        }
    }
    let user = Request::bare("POST", "http://u@a/pay").header("Host", "a").key("k").body("{}");
    assert_eq!(user.reply(gateway.address()).status, 400);
    assert_eq!(upstream.count(), 0);
    assert_eq!(request(&["a"]).reply(gateway.address()).idempotency(), "stored");
}

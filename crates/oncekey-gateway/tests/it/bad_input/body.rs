//! Bodies that are too large or do not arrive (F4, X6).

use super::{key_line, post, refuses, row};

const TOO_LARGE: (u16, &str) = (413, "request-too-large");
const BROKEN: (u16, &str) = (400, "request-incomplete");

fn chunked(path: &str, body: &str) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n");
    format!("{head}Transfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
}

#[test]
fn f4_a_body_over_the_limit_is_refused_before_any_claim() {
    let config = "[[route]]\nmatch = \"POST /small\"\nmax_request_body = \"16B\"\n";
    let of = |size: usize| post("/small", key_line("k"), "x".repeat(size));
    let piece = format!("8\r\n{}\r\n", "x".repeat(8));
    let declared = "POST /small HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n\
                    Content-Length: 4000000000\r\n\r\n";
    let pieces = |count: usize| chunked("/small", &format!("{}0\r\n\r\n", piece.repeat(count)));
    let mebibyte = post("/pay", key_line("k"), "x".repeat((1 << 20) + 1));
    let rows = [
        row("one byte too many", of(17), TOO_LARGE),
        row("declared, and never sent", declared, TOO_LARGE),
        row("in chunks", pieces(3), TOO_LARGE),
        row("one byte above the default", mebibyte, TOO_LARGE),
    ];
    refuses(|gateway| gateway.config(config), &of(16), &rows);
}

#[test]
fn f4_a_body_that_breaks_off_or_makes_no_sense_runs_nothing() {
    let short =
        "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 9\r\n\r\n{}";
    let rows = [
        row("a chunk without a size", chunked("/pay", "zz\r\n{}\r\n0\r\n\r\n"), BROKEN),
        row("a chunk longer than it says", chunked("/pay", "1\r\n{}\r\n0\r\n\r\n"), BROKEN),
        row("a size beyond counting", chunked("/pay", "ffffffffffffffffff\r\n{}"), BROKEN),
        row("no last chunk", chunked("/pay", "2\r\n{}\r\n"), BROKEN),
        row("fewer bytes than declared", short, BROKEN),
    ];
    refuses(|gateway| gateway, &post("/pay", key_line("k"), "{}"), &rows);
}

#[test]
fn x6_a_body_that_does_not_come_in_time_is_refused() {
    use crate::rig::{Connection, Gateway};
    let upstream = super::untouched();
    let config = "[server]\nbody_timeout = \"200ms\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let mut connection = Connection::open(gateway.address()).unwrap();
    let head = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 9\r\n\r\n{}";
    connection.send(head).unwrap();
    let reply = connection.read_reply().unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (408, "request-incomplete"));
    assert_eq!(upstream.count(), 0);
}

//! Bytes that two readers could take apart differently: each is refused, or has one meaning before
//! its key and scope are read, and the application sees one well-formed request or none (K3, S3,
//! RFC 9112).

mod http2;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::rig::{Connection, Gateway, Reply, Request, Upstream};

/// A request that must never come to life.
const HIDDEN: &str = "POST /hidden HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: hidden\r\n\
                      Content-Length: 0\r\n\r\n";

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Refused; the application sees nothing and the key stays new.
    Refused,
    /// The application sees one request with this body.
    One(&'static str),
    /// One of the two.
    Either(&'static str),
}
use Fate::{Either, One, Refused};

/// What it is, its bytes, and what becomes of it.
type Row = (&'static str, Vec<u8>, Fate);

fn paid() -> Upstream {
    Upstream::start(|exchange| exchange.answer(201, &[], b"paid"))
}

/// Whatever comes back for these bytes.
fn answers(address: SocketAddr, bytes: &[u8]) -> Vec<Reply> {
    let mut connection = Connection::open(address).unwrap();
    connection.set_patience(Duration::from_secs(5));
    let _ = connection.send(bytes);
    let mut replies = Vec::new();
    while let Ok(reply) = connection.read_reply() {
        replies.push(reply);
    }
    replies
}

/// Sends each row's bytes with a key of its own in place of `{key}`.
#[track_caller]
fn demand(rows: &[Row]) {
    let upstream = paid();
    let config = "[server]\nbody_timeout = \"2s\"\nheader_timeout = \"2s\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let failed = rows.iter().enumerate().filter(|(number, row)| {
        // Every row that fails is told, not the first alone.
        catch_unwind(AssertUnwindSafe(|| demand_row(&upstream, &gateway, *number, row))).is_err()
    });
    let failed: Vec<_> = failed.map(|(_, (what, ..))| what).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn demand_row(upstream: &Upstream, gateway: &Gateway, number: usize, row: &Row) {
    let (what, bytes, fate) = row;
    let key = format!("k{number}");
    let before = upstream.count();
    let replies = answers(gateway.address(), &with_key(bytes, &key));
    let seen = upstream.requests().split_off(before);
    assert!(seen.len() <= 1, "{what}: {seen:?}");
    for seen in &seen {
        assert!(seen.whole && seen.target == "/pay", "{what}: {seen:?}");
        let framings =
            seen.headers.all("content-length").len() + seen.headers.all("transfer-encoding").len();
        assert!(framings <= 1, "{what}: two framings: {seen:?}");
        assert_eq!(seen.headers.all("host").len(), 1, "{what}: {seen:?}");
        assert_eq!(seen.headers.text("idempotency-key"), Some(key.clone()), "{what}");
    }
    let answered = replies.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(answered, seen.len(), "{what}: {replies:?}");
    match (fate, seen.first()) {
        (Refused, None) | (Either(_), None) => {
            let status = replies.first().map(|reply| reply.status);
            assert!(matches!(status, None | Some(400..=499 | 501 | 505)), "{what}: {status:?}");
        }
        (One(body) | Either(body), Some(seen)) => {
            assert_eq!(String::from_utf8_lossy(&seen.body), *body, "{what}");
        }
        (fate, seen) => panic!("{what}: {fate:?} expected, {seen:?} seen; {replies:?}"),
    }
    // The next one is in step, and a key that was refused is new.
    let next = upstream.count();
    let clean = Request::post("/clean").key(&key).json("{}").reply(gateway.address());
    assert_eq!((clean.status, clean.text()), (201, "paid"), "after {what}");
    let seen = upstream.requests().split_off(next);
    assert_eq!(seen.len(), 1, "after {what}");
    assert_eq!((seen[0].target.as_str(), &*seen[0].body), ("/clean", &b"{}"[..]), "{what}");
}

fn with_key(bytes: &[u8], key: &str) -> Vec<u8> {
    let mark = b"{key}";
    let at = bytes.windows(mark.len()).position(|window| window == mark).expect("a key");
    [&bytes[..at], key.as_bytes(), &bytes[at + mark.len()..]].concat()
}

/// A keyed request with these further lines and this after its head.
fn request(lines: &[u8], after: &[u8]) -> Vec<u8> {
    let head = b"POST /pay HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: {key}\r\n";
    [&head[..], lines, b"\r\n", after].concat()
}

fn row(
    what: &'static str,
    lines: &[u8],
    after: &[u8],
    fate: Fate,
) -> (&'static str, Vec<u8>, Fate) {
    (what, request(lines, after), fate)
}

#[test]
fn k3_odd_spellings_of_a_coding_hide_no_request() {
    let chunked = |lines: &[u8]| {
        let after = format!("2\r\n{{}}\r\n0\r\n\r\n{HIDDEN}");
        let close = [lines, b"Connection: close\r\n"].concat();
        request(&close, after.as_bytes())
    };
    // Beside a length that covers what follows, as the reader takes it that ignores the coding.
    let beside = |line: &[u8]| {
        let length = b"Content-Length: 5\r\n";
        request(&[&length[..], line, b"Connection: close\r\n"].concat(), b"0\r\n\r\n")
    };
    demand(&[
        ("mixed case", chunked(b"Transfer-Encoding: ChUnKeD\r\n"), One("{}")),
        ("a tab before it", chunked(b"Transfer-Encoding:\tchunked\r\n"), One("{}")),
        ("a blank after it", chunked(b"Transfer-Encoding: chunked \r\n"), One("{}")),
        ("a blank before the colon", beside(b"Transfer-Encoding : chunked\r\n"), Refused),
        ("a tab before the colon", beside(b"Transfer-Encoding\t: chunked\r\n"), Refused),
        ("a vertical tab", beside(b"Transfer-Encoding:\x0bchunked\r\n"), Refused),
        ("a form feed", beside(b"Transfer-Encoding: chunked\x0c\r\n"), Refused),
        ("a zero byte", beside(b"Transfer-Encoding: chunked\0\r\n"), Refused),
        ("a lone CR", beside(b"Transfer-Encoding: chunked\rX: y\r\n"), Refused),
        ("quotes", chunked(b"Transfer-Encoding: \"chunked\"\r\n"), Refused),
        ("a prefix", beside(b"Transfer-Encoding: xchunked\r\n"), Refused),
        ("a parameter", chunked(b"Transfer-Encoding: chunked;a=b\r\n"), Refused),
        ("two values in a line", chunked(b"Transfer-Encoding: chunked, chunked\r\n"), Either("{}")),
        ("identity after it", chunked(b"Transfer-Encoding: chunked, identity\r\n"), Refused),
        (
            "identity on a second line",
            chunked(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
            Refused,
        ),
        (
            "cow on a first line",
            chunked(b"Transfer-Encoding: cow\r\nTransfer-Encoding: chunked\r\n"),
            Either("{}"),
        ),
        ("folded", beside(b"Transfer-Encoding:\r\n chunked\r\n"), Refused),
        ("an empty value", beside(b"Transfer-Encoding:\r\n"), Refused),
        ("an underscore", beside(b"Transfer_Encoding: chunked\r\n"), One("0\r\n\r\n")),
    ]);
}

#[test]
fn k3_a_length_with_two_readings_is_refused() {
    let rows = |rows: &[(&'static str, &'static [u8], Fate)]| -> Vec<_> {
        let row = |(what, line, fate): &(&'static str, &[u8], Fate)| {
            let lines = [line, &b"\r\nConnection: close\r\n"[..]].concat();
            row(what, &lines, format!("{{}}{HIDDEN}").as_bytes(), *fate)
        };
        rows.iter().map(row).collect()
    };
    demand(&rows(&[
        ("one length", b"Content-Length: 2", One("{}")),
        ("leading zeroes", b"Content-Length: 002", Either("{}")),
        ("equal lengths on two lines", b"Content-Length: 2\r\nContent-Length: 2", Either("{}")),
        ("equal lengths in a list", b"Content-Length: 2, 2", Either("{}")),
        ("unequal lengths on two lines", b"Content-Length: 2\r\nContent-Length: 144", Refused),
        ("unequal lengths in a list", b"Content-Length: 2, 144", Refused),
        ("a plus", b"Content-Length: +2", Refused),
        ("a minus", b"Content-Length: -2", Refused),
        ("a blank in it", b"Content-Length: 1 2", Refused),
        ("hexadecimal", b"Content-Length: 0x2", Refused),
        ("a fraction", b"Content-Length: 2.0", Refused),
        ("an exponent", b"Content-Length: 2e0", Refused),
        ("digits of another script", "Content-Length: \u{0662}".as_bytes(), Refused),
        ("nothing", b"Content-Length:", Refused),
        ("a folded length", b"Content-Length:\r\n 2", Refused),
        ("beyond 64 bits", b"Content-Length: 18446744073709551618", Refused),
        ("an underscore beside it", b"Content-Length: 2\r\nContent_Length: 144", One("{}")),
    ]));
}

#[test]
fn k3_chunks_with_two_readings_are_refused_and_extensions_stay_here() {
    let chunks = |what: &'static str, body: &[u8], fate| {
        let lines = b"Transfer-Encoding: chunked\r\nConnection: close\r\n";
        row(what, lines, &[body, HIDDEN.as_bytes()].concat(), fate)
    };
    let long = [&b"2;"[..], &vec![b'x'; 70_000], b"\r\n{}\r\n0\r\n\r\n"].concat();
    demand(&[
        chunks("an extension", b"2;a=b\r\n{}\r\n0\r\n\r\n", One("{}")),
        chunks("an extension in quotes", b"2;a=\"b;c\"\r\n{}\r\n0;d\r\n\r\n", One("{}")),
        chunks("an extension with a bare LF", b"2;a\nb\r\n{}\r\n0\r\n\r\n", Refused),
        chunks("an extension with a bare CR", b"2;a\rb\r\n{}\r\n0\r\n\r\n", Refused),
        chunks("extensions without end", &long, Refused),
        chunks("a size with a prefix", b"0x2\r\n{}\r\n0\r\n\r\n", Refused),
        chunks("a size with a plus", b"+2\r\n{}\r\n0\r\n\r\n", Refused),
        chunks("a size with a minus", b"-2\r\n{}\r\n0\r\n\r\n", Refused),
        chunks("no size", b"\r\n{}\r\n0\r\n\r\n", Refused),
        chunks("a size beyond 64 bits", b"10000000000000002\r\n{}\r\n0\r\n\r\n", Refused),
        chunks("a size with a blank before", b" 2\r\n{}\r\n0\r\n\r\n", Refused),
        chunks("a size with a blank after", b"2 \r\n{}\r\n0\r\n\r\n", Either("{}")),
        chunks("a size that ends in LF", b"2\n{}\r\n0\r\n\r\n", Refused),
        chunks("a size that ends in CR", b"2\r{}\r\n0\r\n\r\n", Refused),
        chunks("data that ends in LF", b"2\r\n{}\n0\r\n\r\n", Refused),
        chunks("data that ends otherwise", b"2\r\n{}xx0\r\n\r\n", Refused),
        chunks("data longer than its size", b"1\r\n{}\r\n0\r\n\r\n", Refused),
        chunks("a last chunk that ends in LF", b"2\r\n{}\r\n0\n\n", Refused),
        chunks("many zeroes", b"00000002\r\n{}\r\n00\r\n\r\n", Either("{}")),
        chunks(
            "lengths in the trailer",
            b"2\r\n{}\r\n0\r\nContent-Length: 144\r\nTransfer-Encoding: chunked\r\n\r\n",
            Either("{}"),
        ),
    ]);
}

#[test]
fn k3_what_follows_a_request_on_its_connection_is_another_one() {
    // Steps: a body that looks like a request is a body; what lies behind the body is a request of
    // its own, with its own key, and never a part of the first.
    let upstream = paid();
    let config = "[server]\nheader_timeout = \"2s\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let length = format!("Content-Length: {}\r\nConnection: close\r\n", HIDDEN.len());
    let inside = with_key(&request(length.as_bytes(), HIDDEN.as_bytes()), "k1");
    assert_eq!(answers(gateway.address(), &inside).len(), 1);
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[0].target.as_str()), (1, "/pay"));
    assert_eq!(seen[0].body, HIDDEN.as_bytes());

    let behind = [request(b"Content-Length: 2\r\n", b"{}"), HIDDEN.into()].concat();
    let replies = answers(gateway.address(), &with_key(&behind, "k2"));
    let stored = replies.iter().filter(|reply| reply.idempotency() == "stored").count();
    assert_eq!((stored, replies.len()), (2, 2), "{replies:?}");
    let seen = upstream.requests().split_off(1);
    let told: Vec<_> = seen.iter().map(|seen| (seen.target.as_str(), seen.whole)).collect();
    assert_eq!(told, [("/pay", true), ("/hidden", true)]);
}

#[test]
fn s3_odd_targets_and_request_lines_are_refused_or_mean_one_thing() {
    let first = |line: &str| {
        let rest = "Host: a.example\r\nIdempotency-Key: {key}\r\nConnection: close\r\n\
                    Content-Length: 2\r\n\r\n{}";
        format!("{line}\r\n{rest}").into_bytes()
    };
    demand(&[
        ("empty lines before", first("\r\n\r\nPOST /pay HTTP/1.1"), Either("{}")),
        ("a tab in the line", first("POST\t/pay HTTP/1.1"), Refused),
        ("two blanks", first("POST  /pay HTTP/1.1"), Refused),
        ("a trailing blank", first("POST /pay HTTP/1.1 "), Refused),
        ("no slash", first("POST pay HTTP/1.1"), Refused),
        ("a host alone", first("POST a.example:80 HTTP/1.1"), Refused),
        ("a star", first("POST * HTTP/1.1"), Refused),
        ("another version", first("POST /pay HTTP/1.2"), Either("{}")),
        ("version 0.9", first("POST /pay HTTP/0.9"), Refused),
        ("version 2.0", first("POST /pay HTTP/2.0"), Refused),
        ("version 1.10", first("POST /pay HTTP/1.10"), Refused),
        ("a name in lower case", first("POST /pay http/1.1"), Refused),
        ("a user in the target", first("POST http://u@a.example/pay HTTP/1.1"), Refused),
        ("no host in the target", first("POST http:///pay HTTP/1.1"), Refused),
        ("a host in capitals", first("POST HTTP://A.EXAMPLE/pay HTTP/1.1"), Either("{}")),
        ("a line break in the target", first("POST /pay%0d%0aX HTTP/1.1\rX: y"), Refused),
        ("a byte order mark", first("\u{feff}POST /pay HTTP/1.1"), Refused),
        ("a colon in the method", first("PO:ST /pay HTTP/1.1"), Refused),
    ]);
}

#[test]
fn s3_odd_hosts_and_names_are_refused_or_mean_one_thing() {
    let hosts = |what: &'static str, lines: &str, fate| {
        let request = format!(
            "POST /pay HTTP/1.1\r\n{lines}\r\nIdempotency-Key: {{key}}\r\nConnection: close\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        );
        (what, request.into_bytes(), fate)
    };
    demand(&[
        hosts("an empty host", "Host:", Either("{}")),
        hosts("two hosts", "Host: a.example\r\nHost: b.example", Refused),
        hosts("two equal hosts", "Host: a.example\r\nhost: a.example", Refused),
        hosts("a blank before the colon", "Host : a.example", Refused),
        hosts("a folded host", "Host: a.example\r\n b.example", Refused),
        hosts("a blank line's worth before it", " Host: a.example", Refused),
        hosts("a user", "Host: a.example@b.example", Refused),
        hosts("a path", "Host: a.example/b", Refused),
        hosts("a tab within", "Host: a.example\tb.example", Refused),
        hosts("a port that is none", "Host: a.example:x", Either("{}")),
        hosts("parentheses in a name", "Host: a.example\r\nX(A): b", Refused),
        hosts("a name in another script", "Host: a.example\r\nX\u{e9}: b", Refused),
        hosts("no colon", "Host: a.example\r\nX-A", Refused),
        hosts("a key without its name", "Host: a.example\r\n: b", Refused),
    ]);
}

#[test]
fn k7_an_upgrade_to_http_2_is_not_carried_to_the_application() {
    let upstream = paid();
    let gateway = Gateway::to(upstream.address()).start();
    for method in ["POST", "GET", "PUT"] {
        for connection in ["Upgrade, HTTP2-Settings", "HTTP2-Settings", "Upgrade"] {
            let request = Request::new(method, "/pay")
                .key(&format!("{method} {}", connection.len()).replace(' ', "-"))
                .header("Connection", connection)
                .header("Upgrade", "h2c")
                .header("HTTP2-Settings", "AAMAAABkAAQAAP__");
            let reply = request.body("").reply(gateway.address());
            assert_eq!((reply.status, reply.text()), (201, "paid"), "{method} {connection}");
        }
    }
    for seen in upstream.requests() {
        for name in ["upgrade", "http2-settings", "connection"] {
            assert!(!seen.headers.has(name), "{name}: {seen:?}");
        }
    }
}

#[test]
fn p1_a_value_that_could_split_an_answer_is_never_stored_or_sent() {
    let upstream = Upstream::start(|exchange| {
        let value: &[u8] = match exchange.request.target.as_str() {
            "/cr" => b"a\rSet-Cookie: b",
            "/zero" => b"a\0b",
            "/fold" => b"a\r\n Set-Cookie: b",
            _ => b"\xe9\t\x80\xff=\"; a, b",
        };
        let head = [b"HTTP/1.1 201 X\r\nContent-Length: 2\r\nX-A: ", value, b"\r\n\r\nok"].concat();
        exchange.send(head);
        crate::rig::After::Keep
    });
    let gateway = Gateway::to(upstream.address()).start();
    for target in ["/cr", "/zero", "/fold"] {
        let ask = || Request::post(target).key("k1").json("{}").reply(gateway.address());
        let (first, second) = (ask(), ask());
        assert_eq!((first.status, first.code().as_str()), (504, "outcome-unknown"), "{target}");
        assert_eq!((second.status, second.code().as_str()), (409, "outcome-unknown"), "{target}");
        assert!(!first.headers.has("set-cookie") && !second.headers.has("set-cookie"));
    }
    let ask = || Request::post("/odd").key("k1").json("{}").reply(gateway.address());
    let (first, second) = (ask(), ask());
    assert!(second.replayed(), "{second:?}");
    let odd: &[u8] = b"\xe9\t\x80\xff=\"; a, b";
    assert_eq!((first.headers.get("x-a"), second.headers.get("x-a")), (Some(odd), Some(odd)));
    assert_eq!(upstream.count(), 4);
}

#[test]
fn k3_a_method_in_small_letters_is_another_one_to_us_and_not_to_every_application() {
    let head = |method: &str| {
        format!(
            "{method} /pay HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: {{key}}\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        )
        .into_bytes()
    };
    demand(&[
        ("small letters", head("post"), Refused),
        ("small letters", head("patch"), Refused),
        ("a small letter", head("PoST"), Refused),
        ("capitals", head("POST"), One("{}")),
    ]);
}

#[test]
fn k3_a_body_that_is_compressed_for_the_transfer_is_not_passed_off_as_plain() {
    let head = |coding: &str| {
        format!(
            "POST /pay HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: {{key}}\r\n\
             Transfer-Encoding: {coding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"
        )
        .into_bytes()
    };
    demand(&[
        ("compressed", head("gzip, chunked"), Refused),
        ("on two lines", head("gzip\r\nTransfer-Encoding: chunked"), Refused),
        ("chunks", head("Chunked"), One("{}")),
    ]);
}

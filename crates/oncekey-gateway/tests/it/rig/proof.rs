//! The rig itself: what the other tests stand on must tell the truth.

use std::time::Duration;

use serde_json::json;

use super::message::Framing;
use super::wire::Broken;
use super::{
    After, Connection, Express, Failure, Gate, Request, Upstream, get, nowhere, post, race,
    try_post,
};

#[test]
fn the_application_counts_the_runs_of_each_handler() {
    let mut express = Express::start();
    let address = express.address();
    assert_eq!(express.count("/pay"), 0);
    let first = post(address, "/pay", &[], r#"{"amount":420}"#);
    let second = post(address, "/pay", &[], r#"{"amount":420}"#);
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!((first.header("x-run"), second.header("x-run")), ("1".into(), "2".into()));
    assert_eq!(first.header("location"), "/payments/1");
    assert_eq!(first.header("etag"), "\"payment-1\"");
    assert!(first.header("set-cookie").starts_with("session=s1;"), "{first:?}");
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
    assert_eq!(first.json()["amount"], 420);
    assert_eq!(express.count("/pay"), 2);
    assert_eq!(express.count("/fail"), 0);

    express.kill();
    assert!(matches!(try_post(address, "/pay", &[], ""), Err(Failure::Connect(_))));
    express.restart();
    assert_eq!(express.address(), address);
    assert_eq!(express.count("/pay"), 0);
}

#[test]
fn the_application_answers_in_every_shape() {
    let express = Express::start();
    let ask = |path| post(express.address(), path, &[], "{}");

    let binary = ask("/binary");
    assert_eq!(binary.header("content-type"), "application/octet-stream");
    assert!(binary.body.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 256));
    assert_eq!(binary.body.len(), 4096);

    let empty = ask("/empty");
    assert_eq!((empty.status, empty.framing), (204, Framing::NoBody));
    let accepted = ask("/empty202");
    assert_eq!((accepted.status, accepted.body.len()), (202, 0));

    let big = ask("/big");
    assert_eq!(big.body.len(), 2 * 1024 * 1024);

    let gzip = ask("/gzip");
    assert_eq!(gzip.header("content-encoding"), "gzip");
    assert!(gzip.body.starts_with(&[0x1f, 0x8b]), "{gzip:?}");

    let stream = ask("/stream");
    assert_eq!(stream.framing, Framing::Chunked);
    assert!(stream.chunks.len() > 1, "{:?}", stream.chunks);
    assert!(stream.text().ends_with("part 5 of run 1\n"), "{stream:?}");

    let events = ask("/sse");
    assert_eq!(events.header("content-type"), "text/event-stream");
    assert_eq!(events.text().matches("data: ").count(), 3);

    assert_eq!(ask("/fail").status, 500);
    assert_eq!(ask("/fail?status=503").status, 503);
    assert_eq!(ask("/slow?ms=1").json(), json!({ "run": 1 }));

    let headers = ask("/headers");
    let links: [&[u8]; 3] = [b"</a>; rel=prev", b"</b>; rel=next", b"</c>; rel=last"];
    assert_eq!(headers.headers.all("link"), links);
    assert_eq!(headers.headers.get("x-latin"), Some(&b"caf\xe9"[..]));
    assert_eq!(headers.headers.get("x-empty"), Some(&b""[..]));

    let crashed = try_post(express.address(), "/crash", &[], "{}");
    assert!(matches!(crashed, Err(Failure::NoAnswer { .. })), "{crashed:?}");
    assert_eq!(express.count("/crash"), 1);
}

#[test]
fn the_application_tells_what_arrived() {
    let express = Express::start();
    let request = Request::post("/echo?a=1").key("k1").header("X-Odd", b"\xe9").body(b"\x00\xff");
    let told = request.reply(express.address()).json();
    assert_eq!((&told["method"], &told["url"]), (&json!("POST"), &json!("/echo?a=1")));
    assert_eq!(told["headers"][1], json!(["Idempotency-Key", "k1"]));
    assert_eq!(told["headers"][2], json!(["X-Odd", "\u{e9}"]));
    assert_eq!(told["body"], "AP8=");
    assert_eq!(get(express.address(), "/echo").json()["method"], "GET");
}

#[test]
fn npm_installs_once_for_many_at_a_time() {
    let folders = race(3, |_| super::express::installed());
    assert!(folders.iter().all(|folder| folder == &folders[0]));
    assert!(folders[0].join("node_modules/express/package.json").is_file());
}

#[test]
fn the_upstream_counts_and_records_what_arrives() {
    let upstream = Upstream::start(|exchange| {
        let body = exchange.request.body.clone();
        exchange.answer(200, &[("X-Number", &exchange.request.number.to_string())], &body)
    });
    let mut connection = Connection::open(upstream.address()).unwrap();
    let request = Request::post("/a").header("X-One", "1").body("hello");
    assert_eq!(connection.ask(&request).unwrap().text(), "hello");
    let chunked = Request::post("/b").chunks(&[b"by ", b"parts"]);
    let second = connection.ask(&chunked).unwrap();
    assert_eq!((second.text(), second.header("x-number").as_str()), ("by parts", "2"));
    assert_eq!((upstream.count(), upstream.connections()), (2, 1));
    let seen = upstream.requests();
    assert_eq!(seen[0].raw_head, request.head_bytes());
    assert_eq!(seen[1].framing, Framing::Chunked);
    assert!(seen.iter().all(|request| request.whole));
}

#[test]
fn the_upstream_closes_resets_and_breaks_off() {
    let upstream = Upstream::start(|exchange| match exchange.request.target.as_str() {
        "/close" => After::Close,
        "/reset" => After::Reset,
        _ => {
            exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            After::Close
        }
    });
    let ask = |path| try_post(upstream.address(), path, &[], "").unwrap_err();
    assert!(matches!(ask("/close"), Failure::NoAnswer { how: Broken::Closed, .. }));
    assert!(matches!(ask("/reset"), Failure::NoAnswer { how: Broken::Reset, .. }));
    match ask("/half") {
        Failure::Cut { how: Broken::Closed, reply } => assert_eq!(reply.text(), "half"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_upstream_waits_for_a_gate_and_is_silent() {
    let gate = Gate::new();
    let own = gate.clone();
    let upstream = Upstream::start(move |exchange| {
        if exchange.request.target == "/silent" {
            return exchange.stay_silent();
        }
        exchange.wait(&own);
        exchange.trickle(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 7, Duration::ZERO);
        After::Keep
    });
    let mut waiting = Connection::open(upstream.address()).unwrap();
    waiting.send(Request::post("/gate").body("").bytes()).unwrap();
    upstream.wait_for_requests(1);
    waiting.set_patience(Duration::from_millis(30));
    let early = waiting.read_reply().unwrap_err();
    assert!(matches!(early, Failure::NoAnswer { how: Broken::TimedOut, .. }), "{early:?}");
    gate.open();
    waiting.set_patience(super::PATIENCE);
    assert_eq!(waiting.read_reply().unwrap().text(), "ok");

    let mut silent = Connection::open(upstream.address()).unwrap();
    silent.send(Request::post("/silent").body("").bytes()).unwrap();
    upstream.wait_for_requests(2);
    drop(upstream);
    assert!(silent.is_closed_by_the_other_side());
}

#[test]
fn the_client_reads_every_framing_and_what_comes_before() {
    let script = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                  HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Trailer: t\r\n\r\n\
                  HTTP/1.1 204 No Content\r\n\r\n\
                  HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Raw:  a\t\r\n\r\nxyz\
                  HTTP/1.0 200 OK\r\n\r\nuntil the end";
    let upstream = Upstream::raw(move |mut wire, _| {
        let _ = wire.read_to(b"\r\n\r\n");
        let _ = wire.send(script);
    });
    let mut connection = Connection::open(upstream.address()).unwrap();
    connection.send("GET / HTTP/1.1\r\n\r\n").unwrap();
    let chunked = connection.read_reply().unwrap();
    assert_eq!((chunked.interim.as_slice(), chunked.text()), (&[103][..], "abcde"));
    assert_eq!(chunked.chunks, [3, 2]);
    assert_eq!(chunked.trailers.get("x-trailer"), Some(&b"t"[..]));
    assert_eq!(connection.read_reply().unwrap().framing, Framing::NoBody);
    let sized = connection.read_reply().unwrap();
    assert_eq!((sized.text(), sized.header("x-raw")), ("xyz", "a".into()));
    let last = connection.read_reply().unwrap();
    assert_eq!((last.framing, last.text()), (Framing::UntilClose, "until the end"));
}

#[test]
fn nowhere_refuses() {
    let (address, _socket) = nowhere();
    assert!(matches!(try_post(address, "/", &[], ""), Err(Failure::Connect(_))));
}

//! The first answer and its replay, as raw bytes (P).

use crate::rig::{
    After, Connection, Exchange, Fields, Framing, Gate, Gateway, Reply, Request, Upstream,
};

/// What a replay may differ in: the marks, and what belongs to a moment or to one exchange (P2).
const MARKS: [&str; 14] = [
    "idempotent-replayed",
    "idempotency-status",
    "idempotency-expires",
    "idempotency-body",
    "date",
    "content-length",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "set-cookie",
    "x-request-id",
    "server",
    "via",
    "retry-after",
];

/// The headers that an answer and its replay share.
pub(crate) fn lasting(reply: &Reply) -> Fields {
    reply.headers.without(&MARKS)
}

/// The same as names and values in the order in which they stood.
pub(crate) fn in_order(reply: &Reply) -> Vec<(Vec<u8>, Vec<u8>)> {
    lasting(reply).0
}

fn keyed(key: &str) -> Request {
    Request::post("/pay").key(key).json("{}")
}

/// The first answer and its replay.
#[track_caller]
fn twice(gateway: &Gateway, key: &str) -> (Reply, Reply) {
    let first = keyed(key).reply(gateway.address());
    let second = keyed(key).reply(gateway.address());
    assert!(!first.replayed() && second.replayed(), "{first:?} {second:?}");
    assert_eq!((first.status, &first.reason), (second.status, &second.reason));
    assert_eq!(in_order(&first), in_order(&second));
    (first, second)
}

fn answering(bytes: impl Into<Vec<u8>>) -> (Upstream, Gateway) {
    let upstream = Upstream::answering(bytes);
    let gateway = Gateway::to(upstream.address()).start();
    (upstream, gateway)
}

const ODD: &[u8] = b"HTTP/1.1 201 Whatever You Say\r\n\
    X-Latin: caf\xe9\r\n\
    X-Bytes: \x80\xff\t tab\r\n\
    Link: </a>\r\n\
    X-Empty:\r\n\
    Link: </b>\r\n\
    x-lOWER: MiXed\r\n\
    Link: </a>\r\n\
    Content-Type: application/octet-stream\r\n\
    Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
    Age: 7\r\n\
    Server: old\r\n\
    Server-Timing: db;dur=53\r\n\
    Via: 1.1 cache\r\n\
    X-Hop: only this hop\r\n\
    Connection: X-Hop\r\n\
    Proxy-Status: x\r\n\
    NEL: {}\r\n\
    Report-To: {}\r\n\
    Retry-After: 3\r\n\
    Alt-Svc: h3=\":443\"\r\n\
    Strict-Transport-Security: max-age=1\r\n\
    Content-Length: 6\r\n\r\n\
    \x00\xff\r\n\r\n";

#[test]
fn p1_odd_bytes_repeated_fields_and_empty_values_are_replayed() {
    let upstream = Upstream::answering(ODD);
    let gateway = Gateway::to(upstream.address()).start();
    let first = keyed("k1").reply(gateway.address());
    let second = keyed("k1").reply(gateway.address());
    assert!(second.replayed(), "{second:?}");
    for reply in [&first, &second] {
        assert_eq!(reply.body, b"\x00\xff\r\n\r\n");
        assert_eq!(reply.headers.get("x-latin"), Some(&b"caf\xe9"[..]));
        assert_eq!(reply.headers.get("x-bytes"), Some(&b"\x80\xff\t tab"[..]));
        assert_eq!(reply.headers.get("x-empty"), Some(&b""[..]));
        assert_eq!(reply.headers.get("x-lower"), Some(&b"MiXed"[..]));
        let links: [&[u8]; 3] = [b"</a>", b"</b>", b"</a>"];
        assert_eq!(reply.headers.all("link"), links);
        assert_eq!(reply.header("content-length"), "6");
        assert_eq!((reply.status, reply.reason.as_str()), (201, "Created"));
        assert!(!reply.headers.has("x-hop"), "{reply:?}");
        assert_eq!(reply.headers.all("date").len(), 1, "{reply:?}");
    }
    // P2: of this moment, of this server, or of this exchange.
    for name in ["age", "server", "server-timing", "via", "proxy-status", "nel", "report-to"] {
        assert!(!second.headers.has(name), "{name}: {second:?}");
    }
    for name in ["retry-after", "alt-svc", "strict-transport-security"] {
        assert!(first.headers.has(name), "{name}: {first:?}");
        assert!(!second.headers.has(name), "{name}: {second:?}");
    }
    assert_ne!(second.header("date"), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn p1_a_kept_answer_and_its_replay_say_until_when() {
    let (_upstream, gateway) = answering("HTTP/1.1 201 C\r\nContent-Length: 2\r\n\r\nok");
    let (first, second) = twice(&gateway, "k1");
    let expires = first.header("idempotency-expires");
    assert!(expires.ends_with(" GMT") && expires.len() == 29, "{expires}");
    assert!(second.headers.has("idempotency-expires"), "{second:?}");
    assert_eq!((first.idempotency(), second.idempotency()), ("stored".into(), "replayed".into()));
}

#[test]
fn p1_chunks_and_lengths_become_the_same_bytes() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
    let (_upstream, gateway) = answering(chunked);
    let (first, second) = twice(&gateway, "k1");
    assert_eq!((first.text(), second.text()), ("abcde", "abcde"));
    assert_eq!(
        (first.header("content-length"), second.header("content-length")),
        ("5".into(), "5".into(),)
    );

    let until_close = "HTTP/1.1 200 OK\r\n\r\nuntil the end";
    let upstream = Upstream::start(move |exchange| {
        exchange.send(until_close);
        After::Close
    });
    let gateway = Gateway::to(upstream.address()).start();
    let (first, second) = twice(&gateway, "k1");
    assert_eq!((first.text(), second.text()), ("until the end", "until the end"));
}

#[test]
fn p1_a_slow_answer_is_streamed_and_replayed_whole() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let pause = std::time::Duration::from_millis(120);
        exchange.trickle(b"3\r\nabc\r\n4\r\ndefg\r\n", 8, pause);
        exchange.send("0\r\n\r\n");
        After::Keep
    });
    let gateway = Gateway::to(upstream.address()).start();
    let (first, second) = twice(&gateway, "k1");
    assert_eq!((first.framing, second.framing), (Framing::Chunked, Framing::Length));
    assert_eq!((first.text(), second.text()), ("abcdefg", "abcdefg"));
}

#[test]
fn p1_trailers_reach_the_first_client() {
    let answer = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                  3\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n";
    let (_upstream, gateway) = answering(answer);
    let first = keyed("k1").header("TE", "trailers").reply(gateway.address());
    assert_eq!((first.text(), first.idempotency()), ("abc", "stored".into()));
    let second = keyed("k1").header("TE", "trailers").reply(gateway.address());
    assert!(second.replayed(), "{second:?}");
    assert_eq!(second.text(), "abc");
}

#[test]
fn p1_an_old_client_gets_the_same_answer() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    let gateway = Gateway::to(upstream.address()).start();
    let old = |key: &str| {
        let mut connection = Connection::open(gateway.address()).unwrap();
        let request = format!(
            "POST /pay HTTP/1.0\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        connection.send(request).unwrap();
        let reply = connection.read_reply().unwrap();
        assert!(connection.is_closed_by_the_other_side());
        reply
    };
    let (first, second) = (old("k1"), old("k1"));
    assert_eq!((first.text(), second.text()), ("abc", "abc"));
    assert_eq!((first.idempotency(), second.replayed()), ("stored".into(), true));
    assert_eq!(in_order(&first), in_order(&second));
    assert!(!first.headers.has("transfer-encoding"), "{first:?}");
    // Another version is no other request.
    assert!(keyed("k1").reply(gateway.address()).replayed());
    assert_eq!(upstream.count(), 1);
}

#[test]
fn p5_a_replay_needs_no_upstream() {
    let upstream = Upstream::answering("HTTP/1.1 201 C\r\nContent-Length: 2\r\n\r\nok");
    let mut gateway = Gateway::to(upstream.address()).start();
    let first = keyed("k1").reply(gateway.address());
    drop(upstream);
    for _ in 0..2 {
        let second = keyed("k1").reply(gateway.address());
        assert!(second.replayed(), "{second:?}");
        assert_eq!(first.body, second.body);
        gateway.restart();
    }
    let fresh = keyed("k2").reply(gateway.address());
    assert_eq!((fresh.status, fresh.code().as_str()), (502, "upstream-unreachable"));
}

#[test]
fn p2_cors_headers_are_replayed_to_the_first_origin_only() {
    let (upstream, gateway) = answering(
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: https://a.example\r\n\
         Access-Control-Expose-Headers: X-A\r\nVary: Origin\r\nContent-Length: 2\r\n\r\nok",
    );
    let from = |key: &str, origin: Option<&str>| {
        let request = Request::post("/pay").key(key);
        let request = match origin {
            Some(origin) => request.header("Origin", origin),
            None => request,
        };
        request.json("{}").reply(gateway.address())
    };
    let first = from("k1", Some("https://a.example"));
    assert_eq!(first.header("access-control-allow-origin"), "https://a.example");
    let same = from("k1", Some("https://a.example"));
    assert!(same.replayed(), "{same:?}");
    assert_eq!(same.header("access-control-allow-origin"), "https://a.example");
    assert_eq!(same.header("access-control-expose-headers"), "X-A");
    for other in [Some("https://b.example"), Some("null"), None] {
        let reply = from("k1", other);
        assert!(reply.replayed(), "{reply:?}");
        assert!(!reply.headers.names().iter().any(|name| name.starts_with("access-control-")));
        assert_eq!(reply.header("vary"), "Origin");
    }
    // Without an origin at first, none is the same.
    from("k2", None);
    assert!(!from("k2", Some("https://a.example")).headers.has("access-control-allow-origin"));
    assert_eq!(upstream.count(), 2);
}

#[test]
fn p2_the_gateway_answers_configured_origins_itself() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let config = "[cors]\norigins = [\"https://a.example\"]\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let ask = |origin: &str, body: &str| {
        Request::post("/pay").key("k1").header("Origin", origin).json(body).reply(gateway.address())
    };
    ask("https://a.example", "{}");
    let replay = ask("https://a.example", "{}");
    let refused = ask("https://a.example", "[]");
    assert_eq!((replay.replayed(), refused.status), (true, 422));
    for reply in [&replay, &refused] {
        assert_eq!(reply.header("access-control-allow-origin"), "https://a.example");
        let exposed = reply.header("access-control-expose-headers").to_ascii_lowercase();
        assert!(exposed.contains("idempotency-status"), "{reply:?}");
    }
    let stranger = ask("https://b.example", "[]");
    assert!(!stranger.headers.has("access-control-allow-origin"), "{stranger:?}");
}

#[test]
fn p2_lists_of_a_route_and_an_omitted_body() {
    let upstream = Upstream::answering(
        "HTTP/1.1 201 C\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Secret: s\r\nETag: \"e\"\r\n\
         X-Request-Id: r\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\nok",
    );
    let config = r#"
        [[route]]
        match = "POST /pay"
        body = "omit"
        [defaults]
        replay = { allow = ["Set-Cookie"], deny = ["x-secret"] }
    "#;
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let ask = |path| Request::post(path).key("k1").json("{}").reply(gateway.address());
    let (first, second) = (ask("/other"), ask("/other"));
    assert_eq!(second.headers.all("set-cookie"), [b"a=1", b"b=2"]);
    assert!(first.headers.has("x-secret") && !second.headers.has("x-secret"), "{second:?}");
    assert!(!second.headers.has("x-request-id") && second.headers.has("etag"), "{second:?}");

    let (first, second) = (ask("/pay"), ask("/pay"));
    assert_eq!((first.text(), second.text(), second.replayed()), ("ok", "", true));
    assert_eq!(second.header("idempotency-body"), "omitted");
    assert!(!second.headers.has("etag") && !second.headers.has("content-encoding"));
    assert_eq!((first.status, second.status), (201, 201));
}

#[test]
fn p4_interim_answers_are_not_stored() {
    let (upstream, gateway) = answering(
        "HTTP/1.1 103 Early Hints\r\nLink: </early>\r\n\r\n\
         HTTP/1.1 100 Continue\r\n\r\n\
         HTTP/1.1 201 C\r\nContent-Length: 2\r\n\r\nok",
    );
    let (first, second) = twice(&gateway, "k1");
    assert_eq!((first.status, second.status), (201, 201));
    assert!(second.interim.is_empty() && !second.headers.has("link"), "{second:?}");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn p4_204_and_304_have_neither_body_nor_length() {
    for status in [204, 304] {
        let answer = format!("HTTP/1.1 {status} X\r\nETag: \"e\"\r\nContent-Length: 9\r\n\r\n");
        // No application may send a length with 204, and some do.
        let (upstream, gateway) = answering(answer);
        let (first, second) = twice(&gateway, "k1");
        for reply in [&first, &second] {
            assert_eq!((reply.status, reply.framing), (status, Framing::NoBody));
            assert!(!reply.headers.has("content-length"), "{status}: {reply:?}");
            assert!(!reply.headers.has("transfer-encoding"), "{status}: {reply:?}");
            assert_eq!(reply.header("etag"), "\"e\"");
        }
        assert_eq!(upstream.count(), 1);
    }
}

#[test]
fn k7_the_key_of_a_get_or_head_is_ignored_and_that_is_said() {
    let upstream = Upstream::start(|exchange| match exchange.request.method.as_str() {
        "HEAD" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
            if exchange.send(head) { After::Keep } else { After::Close }
        }
        _ => exchange.answer(200, &[], exchange.request.number.to_string().as_bytes()),
    });
    let gateway = Gateway::to(upstream.address()).start();
    for method in ["GET", "HEAD", "GET"] {
        let reply = Request::new(method, "/pay").key("k1").reply(gateway.address());
        assert_eq!((reply.status, reply.idempotency()), (200, "ignored".into()), "{method}");
        assert!(!reply.replayed());
        if method == "HEAD" {
            assert_eq!(reply.header("content-length"), "7");
        }
    }
    assert_eq!(upstream.count(), 3);
}

#[test]
fn p3_a_replay_of_a_large_compressed_answer_says_nothing_of_the_missing_bytes() {
    let upstream = Upstream::start(large);
    let config = "[defaults]\nmax_response_body = \"64KiB\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let (first, second) =
        (keyed("k1").reply(gateway.address()), keyed("k1").reply(gateway.address()));
    assert_eq!((first.body.len(), second.body.len()), (64 * 1024 + 1, 0));
    assert!(first.headers.has("content-encoding") && first.headers.has("repr-digest"));
    for name in ["content-encoding", "repr-digest", "content-digest", "etag", "digest"] {
        assert!(!second.headers.has(name), "{name}: {second:?}");
    }
    assert_eq!(second.header("idempotency-body"), "omitted");
    assert_eq!(second.header("x-kept"), "yes");
    assert_eq!(upstream.count(), 1);
}

fn large(exchange: &mut Exchange<'_>) -> After {
    let headers = [
        ("Content-Encoding", "gzip"),
        ("Repr-Digest", "sha-256=:x:"),
        ("Content-Digest", "sha-256=:x:"),
        ("Digest", "x"),
        ("ETag", "\"e\""),
        ("X-Kept", "yes"),
    ];
    exchange.answer(200, &headers, &vec![7; 64 * 1024 + 1])
}

#[test]
fn p3_when_the_client_of_events_leaves_the_upstream_is_closed() {
    let left = Gate::new();
    let own = left.clone();
    let upstream = Upstream::start(move |exchange| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Kept: yes\r\n\r\n";
        exchange.send(head);
        let events = "data: 1\n\n".repeat(20_000);
        let all = exchange.trickle(events.as_bytes(), 9, std::time::Duration::from_millis(5));
        if !all {
            own.open();
        }
        After::Close
    });
    let gateway = Gateway::to(upstream.address()).start();
    let mut client = Connection::open(gateway.address()).unwrap();
    client.send(keyed("k1").bytes()).unwrap();
    assert_eq!(client.read_head_to("POST").unwrap().idempotency(), "stored");
    client.wire().read_to(b"data: 1\n\n").unwrap();
    client.leave();
    left.pass();
    let replay = keyed("k1").reply(gateway.address());
    assert!(replay.replayed(), "{replay:?}");
    assert_eq!((replay.header("x-kept"), replay.body.len()), ("yes".into(), 0));
    assert_eq!(replay.header("idempotency-body"), "omitted");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn p1_an_http2_client_gets_the_same_answer() {
    let upstream = Upstream::answering(ODD);
    let gateway = Gateway::to(upstream.address()).start();
    let stream = tokio::net::TcpStream::connect(gateway.address()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let mut heads = Vec::new();
    for _ in 0..2 {
        let request = http::Request::post("http://test.example/pay")
            .header("idempotency-key", "k1")
            .header("content-type", "application/json")
            .body(http_body_util::Full::new(bytes::Bytes::from_static(b"{}")))
            .unwrap();
        sender.ready().await.unwrap();
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        assert_eq!((head.status.as_u16(), &body[..]), (201, &b"\x00\xff\r\n\r\n"[..]));
        assert_eq!(head.headers["x-latin"].as_bytes(), b"caf\xe9");
        let links: Vec<_> =
            head.headers.get_all("link").iter().map(|link| link.as_bytes()).collect();
        assert_eq!(links, [&b"</a>"[..], b"</b>", b"</a>"]);
        heads.push(head);
    }
    assert_eq!(heads[0].headers["idempotency-status"], "stored");
    assert_eq!(heads[1].headers["idempotent-replayed"], "true");
    // The same operation, whatever the version.
    assert!(keyed("k1").reply(gateway.address()).replayed());
    assert_eq!(upstream.count(), 1);
}

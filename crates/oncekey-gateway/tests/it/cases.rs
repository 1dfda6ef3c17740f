//! Ways in which libraries of this kind were seen to fail, where the bytes on the wire matter. The
//! others are tested behind the layer alone, and listed there.

use std::time::Duration;

use super::rig::{After, Connection, Failure, Gateway, Request, Upstream, post, wait_for};

/// The header that a request sends beside its host, as bytes.
fn keyed(lines: &[&[u8]]) -> Request {
    let with = |request: Request, line: &&[u8]| request.header("Idempotency-Key", line);
    lines.iter().fold(Request::post("/pay"), with).body("{}")
}

fn echoing() -> Upstream {
    Upstream::start(|exchange| {
        let body = format!("run {}", exchange.request.number);
        exchange.answer(201, &[], body.as_bytes())
    })
}

/// A name, the lines of the key's header, and the status with its status word or code.
type Row<'a> = (&'a str, &'a [&'a [u8]], (u16, &'a str));

#[test]
fn k2_k3_b139_odd_keys_on_the_wire() {
    let upstream = echoing();
    let gateway = Gateway::to(upstream.address()).start();
    assert_eq!(keyed(&[b"\"abc\""]).reply(gateway.address()).idempotency(), "stored");
    let long = [b'k'; 256];
    let table: &[Row<'_>] = &[
        ("bare", &[b"abc"], (201, "replayed")),
        ("white space around it", &[b"  abc \t"], (201, "replayed")),
        ("another case", &[b"ABC"], (201, "stored")),
        ("a slash", &[b"a/bc"], (201, "stored")),
        ("empty", &[b""], (400, "invalid-key")),
        ("blank", &[b"    "], (400, "invalid-key")),
        ("an ellipsis", &["ab\u{2026}".as_bytes()], (400, "invalid-key")),
        ("a byte that is no text", &[b"abc\xff"], (400, "invalid-key")),
        ("two lines", &[b"abc", b"abd"], (400, "invalid-key")),
        ("two equal lines", &[b"abc", b"abc"], (400, "invalid-key")),
        ("256 bytes", &[&long], (400, "invalid-key")),
        ("a control byte", &[b"a\x01bc"], (400, "")),
        ("a folded line", &[b"abc\r\n def"], (400, "")),
    ];
    for (name, lines, (status, word)) in table {
        let before = upstream.count();
        let reply = keyed(lines).reply(gateway.address());
        assert_eq!(reply.status, *status, "{name}: {reply:?}");
        let told = if *status == 201 { reply.idempotency() } else { reply.code() };
        assert_eq!(told, *word, "{name}: {reply:?}");
        let ran = usize::from(*word == "stored");
        assert_eq!(upstream.count() - before, ran, "{name}");
    }
    let shouted = Request::post("/pay").header("IDEMPOTENCY-KEY", "abc").body("{}");
    assert!(shouted.reply(gateway.address()).replayed());
}

#[test]
fn k6_b139_a_key_that_is_required_and_missing_is_told_as_missing() {
    let upstream = echoing();
    let gateway =
        Gateway::to(upstream.address()).variable("ONCEKEY__DEFAULTS__REQUIRE_KEY", "true").start();
    for (lines, code) in [(&[][..], "missing-key"), (&[&b"a b"[..]][..], "invalid-key")] {
        let reply = keyed(lines).reply(gateway.address());
        assert_eq!((reply.status, reply.code().as_str()), (400, code));
    }
    assert_eq!(upstream.count(), 0, "what is unusable is never forwarded");
}

#[test]
fn c1_b11_one_key_twice_in_one_packet_is_one_run() {
    let upstream = echoing();
    let gateway = Gateway::to(upstream.address()).start();
    let request = keyed(&[b"k"]);
    let mut connection = Connection::open(gateway.address()).unwrap();
    connection.send([request.bytes(), request.bytes()].concat()).unwrap();
    let first = connection.read_reply().unwrap();
    let second = connection.read_reply().unwrap();
    assert_eq!((first.text(), first.replayed()), ("run 1", false));
    assert_eq!((second.text(), second.replayed()), ("run 1", true));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn p1_b104_b107_b109_b116_an_answer_comes_back_byte_for_byte() {
    let mut answer = b"HTTP/1.1 201 Created\r\nLocation: /orders/1\r\nETag: W/\"1\"\r\n\
        Link: </a>; rel=next\r\nLink: </b>; rel=last\r\nX-Name: caf\xe9\r\n\
        Content-Type: image/png\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding\r\n\
        Content-Length: 1024\r\n\r\n"
        .to_vec();
    let body: Vec<u8> = (0..=255).cycle().take(1_024).collect();
    answer.extend_from_slice(&body);
    let upstream = Upstream::answering(answer);
    let gateway = Gateway::to(upstream.address()).start();
    let first = keyed(&[b"k"]).reply(gateway.address());
    let second = keyed(&[b"k"]).reply(gateway.address());
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!((&first.body, &second.body), (&body, &body));
    let marks = ["date", "idempotency-status", "idempotent-replayed"];
    let (one, two) = (first.headers.without(&marks), second.headers.without(&marks));
    for name in one.names() {
        assert_eq!(one.all(&name), two.all(&name), "{name}");
    }
    assert_eq!(one.names().len(), two.names().len(), "{one:?} and {two:?}");
    assert_eq!(second.headers.get("x-name"), Some(&b"caf\xe9"[..]));
    assert_eq!(second.headers.all("link").len(), 2);
    assert_eq!((second.replayed(), upstream.count()), (true, 1));
}

#[test]
fn p4_b110_answers_without_a_body_protect_like_any_other() {
    for status in [200, 201, 202, 204, 205, 304] {
        let length = if matches!(status, 204 | 304) { "" } else { "Content-Length: 0\r\n" };
        let upstream = Upstream::answering(format!("HTTP/1.1 {status} Scripted\r\n{length}\r\n"));
        let gateway = Gateway::to(upstream.address()).start();
        let mut connection = Connection::open(gateway.address()).unwrap();
        for replayed in [false, true] {
            let reply = connection.ask(&keyed(&[b"k"])).unwrap();
            assert_eq!((reply.status, reply.replayed()), (status, replayed), "{reply:?}");
            assert!(reply.body.is_empty());
            let bodiless = matches!(status, 204 | 304);
            assert!(!(bodiless && reply.headers.has("content-length")), "{reply:?}");
        }
        assert_eq!(upstream.count(), 1, "{status}");
    }
}

#[test]
fn f4_b32_an_upload_that_breaks_off_leaves_no_record() {
    let upstream = echoing();
    let gateway = Gateway::to(upstream.address()).start();
    let whole = keyed(&[b"k"]);
    let mut connection = Connection::open(gateway.address()).unwrap();
    let head = b"POST /pay HTTP/1.1\r\nHost: test.example\r\nIdempotency-Key: k\r\n\
        Content-Length: 10000\r\n\r\nonly this";
    connection.send(head).unwrap();
    connection.finish().unwrap();
    match connection.read_reply() {
        Ok(reply) => assert_eq!(reply.status, 400, "{reply:?}"),
        Err(Failure::Connect(why)) => panic!("it was connected: {why:?}"),
        Err(_) => {}
    }
    assert_eq!(upstream.count(), 0);
    assert_eq!(whole.reply(gateway.address()).idempotency(), "stored", "the key is new");
}

#[test]
fn s3_b97_a_tenant_that_a_stranger_names_is_not_believed() {
    let upstream = echoing();
    let config = format!(
        "[upstream]\nurl = \"http://{}\"\n[tenant]\nfrom = \"header:X-Tenant-Id\"\n\
         trusted_peers = [\"10.0.0.0/8\"]\n",
        upstream.address()
    );
    let gateway = Gateway::with_config(&config).start();
    for headers in
        [&[("Idempotency-Key", "1"), ("X-Tenant-Id", "acme")][..], &[("Idempotency-Key", "1")]]
    {
        let reply = post(gateway.address(), "/pay", headers, "{}");
        assert_eq!((reply.status, reply.code().as_str()), (400, "missing-tenant"));
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn o4_b30_a_reset_after_the_first_byte_is_unknown_and_never_sent_again() {
    let upstream = Upstream::start(|_| After::Reset);
    let gateway = Gateway::to(upstream.address()).start();
    let first = keyed(&[b"k"]).reply(gateway.address());
    assert_eq!(first.code(), "outcome-unknown", "{first:?}");
    let second = keyed(&[b"k"]).reply(gateway.address());
    assert_eq!((second.status, second.code().as_str()), (409, "outcome-unknown"));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn p3_b113_an_endless_stream_of_events_is_not_withheld() {
    const EVENT: &[u8] = b"9\r\ndata: 1\n\n\r\n";
    let upstream = Upstream::start(|exchange| {
        exchange.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
        );
        while exchange.trickle(EVENT, EVENT.len(), Duration::from_millis(20)) {}
        After::Close
    });
    let gateway = Gateway::to(upstream.address()).start();
    let request = keyed(&[b"k"]);
    let mut connection = Connection::open(gateway.address()).unwrap();
    connection.send(request.bytes()).unwrap();
    assert_eq!(connection.read_head_to("POST").unwrap().status, 200);
    connection.wire().read_to(b"data: 1\n\n").unwrap();
    // The gateway finds at the next event that nobody is there, and closes the upstream.
    connection.leave();
    let replay = wait_for("the outcome", || {
        let reply = request.reply(gateway.address());
        reply.replayed().then_some(reply)
    });
    assert_eq!((replay.status, replay.header("idempotency-body").as_str()), (200, "omitted"));
    assert_eq!((replay.body.len(), upstream.count()), (0, 1));
}

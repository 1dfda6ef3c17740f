//! Requests that say two things at once are refused, or have one meaning for the key, the scope
//! and the application alike (K, S, RFC 9112).

use std::net::SocketAddr;

use crate::rig::{Connection, Failure, Gateway, Reply, Request, Upstream};

fn echo() -> Upstream {
    Upstream::start(|exchange| {
        let host = exchange.request.headers.text("host").unwrap_or_default();
        let told = format!("{} {host} {}", exchange.request.target, exchange.request.body.len());
        exchange.answer(201, &[], told.as_bytes())
    })
}

/// Sends these bytes; the answer, if one came.
fn raw(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Result<Reply, Failure> {
    let mut connection = Connection::open(address)?;
    let _ = connection.send(bytes);
    connection.read_reply()
}

/// Every answer to these bytes, until the connection ends or nothing more comes.
fn all(address: SocketAddr, bytes: &str) -> Vec<Reply> {
    let mut connection = Connection::open(address).unwrap();
    connection.send(bytes).unwrap();
    let _ = connection.finish();
    let mut replies = Vec::new();
    while let Ok(reply) = connection.read_reply() {
        replies.push(reply);
    }
    replies
}

#[test]
fn k3_a_head_with_two_meanings_is_refused_and_reaches_nobody() {
    let upstream = echo();
    let gateway = Gateway::to(upstream.address()).start();
    let heads = [
        ("two lengths", "Content-Length: 2\r\nContent-Length: 3\r\n"),
        ("two lengths in a list", "Content-Length: 2, 3\r\n"),
        ("a signed length", "Content-Length: +2\r\n"),
        ("a length that is no number", "Content-Length: 0x2\r\n"),
        ("a coding that is not the last", "Transfer-Encoding: chunked, identity\r\n"),
        ("an unknown coding", "Transfer-Encoding: xchunked\r\n"),
        ("a folded key", "Content-Length: 2\r\nX-A: b\r\n Idempotency-Key: k9\r\n"),
        ("a name with a space", "Content-Length: 2\r\nIdempotency-Key : k9\r\n"),
        ("a name in quotes", "Content-Length: 2\r\n\"X\": k9\r\n"),
        ("a zero byte", "Content-Length: 2\r\nX-A: \0\r\n"),
        ("a bare CR", "Content-Length: 2\r\nX-A: a\rIdempotency-Key: k9\r\n"),
    ];
    for (what, fields) in heads {
        let request = format!(
            "POST /pay HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: k1\r\n\
             Content-Type: application/json\r\n{fields}\r\n{{}}"
        );
        let reply = raw(gateway.address(), request);
        let reply = reply.unwrap_or_else(|why| panic!("{what}: {why:?}"));
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
        assert_eq!(upstream.count(), 0, "{what} reached the application");
    }
    // The key was never claimed.
    let clean = Request::post("/pay").key("k1").json("{}").reply(gateway.address());
    assert_eq!((clean.status, clean.replayed()), (201, false));
}

#[test]
fn k3_a_length_beside_a_coding_smuggles_no_second_request() {
    // Steps: CL.TE and TE.CL. Whoever believes the other field would find a request in the body.
    let upstream = echo();
    let gateway = Gateway::to(upstream.address()).start();
    let hidden = "POST /hidden HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: k9\r\n\
                  Content-Length: 0\r\n\r\n";
    let cl_te = format!(
        "POST /pay HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: k1\r\n\
         Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        5 + hidden.len()
    );
    let te_cl = format!(
        "POST /pay HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: k2\r\n\
         Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n{:x}\r\n{hidden}\r\n0\r\n\r\n",
        hidden.len()
    );
    for request in [cl_te, te_cl] {
        let replies = all(gateway.address(), &request);
        assert!(replies.len() <= 1, "two answers: {replies:?}");
    }
    for seen in upstream.requests() {
        assert_eq!(seen.target, "/pay", "smuggled: {seen:?}");
        let framings = ["content-length", "transfer-encoding"];
        let framed = framings.iter().filter(|name| seen.headers.has(name)).count();
        assert!(framed <= 1, "two framings: {seen:?}");
    }
}

#[test]
fn k3_equal_lengths_are_one_and_bare_line_feeds_hide_no_key() {
    let upstream = echo();
    let gateway = Gateway::to(upstream.address()).start();
    let equal = "POST /pay HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: k1\r\n\
                 Content-Type: application/json\r\n\
                 Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}";
    let reply = raw(gateway.address(), equal).unwrap();
    assert!(matches!(reply.status, 201 | 400), "{reply:?}");
    for seen in upstream.requests() {
        assert_eq!(seen.headers.all("content-length").len(), 1, "{seen:?}");
    }
    // Either refused, or the key is seen: never passed on unprotected.
    let before = upstream.count();
    let bare = "POST /bare HTTP/1.1\nHost: a.example\nIdempotency-Key: k1\nContent-Length: 2\n\n{}";
    let replies = [raw(gateway.address(), bare), raw(gateway.address(), bare)];
    for reply in replies.into_iter().flatten() {
        assert!(reply.status == 400 || reply.headers.has("idempotency-status"), "{reply:?}");
    }
    assert!(upstream.count() <= before + 1, "a key was not seen");
}

#[test]
fn s3_the_target_of_an_absolute_form_is_the_host_for_scope_and_application_alike() {
    let upstream = echo();
    let config = "[tenant]\nfrom = \"host\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let ask = |target: &str, host: &str| {
        let request = Request::bare("POST", target).header("Host", host);
        request.key("k1").json("{}").reply(gateway.address())
    };
    let first = ask("http://a.example/pay", "b.example");
    assert_eq!((first.status, first.text()), (201, "/pay a.example 2"));
    let doubtful = Request::bare("POST", "http://a.example/pay").header("Host", "a.example");
    let doubtful = doubtful.header("Host", "b.example").key("k1").json("{}");
    assert_eq!(doubtful.reply(gateway.address()).status, 400);
    // The same tenant, written plainly: the same key.
    assert!(ask("/pay", "a.example").replayed());
    let other = ask("/pay", "b.example");
    assert_eq!((other.replayed(), other.text()), (false, "/pay b.example 2"));
    assert_eq!(upstream.count(), 2);
}

#[test]
fn s3_no_host_or_two_hosts_are_refused_before_the_key_is_claimed() {
    let upstream = echo();
    let shared = Gateway::to(upstream.address()).start();
    let config = "[tenant]\nfrom = \"host\"\n";
    let by_host = Gateway::to(upstream.address()).config(config).start();
    let config = "[defaults]\nauthority = true\n";
    let authority = Gateway::to(upstream.address()).config(config).start();
    for gateway in [&shared, &by_host, &authority] {
        let no_host = Request::bare("POST", "/pay");
        let two_hosts = Request::post("/pay").header("Host", "other.example");
        for request in [no_host, two_hosts] {
            for _ in 0..2 {
                let reply = request.clone().key("k1").json("{}").reply(gateway.address());
                assert_eq!((reply.status, reply.replayed()), (400, false), "{reply:?}");
                assert_ne!(reply.idempotency(), "stored", "a refusal was kept: {reply:?}");
            }
        }
        assert_eq!(gateway.metric("oncekey_claims_total{result=\"acquired\"}"), Some(0.0));
        let good = Request::post("/pay").key("k1").json("{}").reply(gateway.address());
        assert_eq!((good.status, good.replayed()), (201, false));
    }
    assert_eq!(upstream.count(), 3);
}

#[test]
fn k1_a_key_in_the_query_or_in_a_trailer_is_no_key() {
    let upstream = echo();
    let gateway = Gateway::to(upstream.address()).start();
    for round in 1..=2 {
        let target = "/pay?Idempotency-Key=k1&idempotency_key=k1";
        let query = Request::post(target).json("{}").reply(gateway.address());
        assert_eq!((query.status, query.idempotency()), (201, String::new()));
        let trailer = "POST /pay HTTP/1.1\r\nHost: a.example\r\nTrailer: Idempotency-Key\r\n\
                       Transfer-Encoding: chunked\r\n\r\n\
                       2\r\n{}\r\n0\r\nIdempotency-Key: k1\r\n\r\n";
        let trailer = raw(gateway.address(), trailer).unwrap();
        assert_eq!((trailer.status, trailer.idempotency()), (201, String::new()));
        assert_eq!(upstream.count(), 2 * round);
    }
    // A key in the trailer beside one in the head changes nothing either.
    let both = "POST /pay HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: k1\r\n\
                Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nIdempotency-Key: k2\r\n\r\n";
    assert_eq!(raw(gateway.address(), both).unwrap().idempotency(), "stored");
    assert!(raw(gateway.address(), both).unwrap().replayed());
}

#[test]
fn k3_malformed_keys_are_refused_and_never_taken_for_absent() {
    let upstream = echo();
    let gateway = Gateway::to(upstream.address()).start();
    let long = "k".repeat(256);
    let keys: [&[u8]; 9] =
        [b"", b"  ", b"\"\"", b"\"open", b"a,b", b"a b", b"\"a\\b\"", b"caf\xe9", long.as_bytes()];
    for key in keys {
        let reply = Request::post("/pay").header("Idempotency-Key", key).json("{}");
        let reply = reply.reply(gateway.address());
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid-key"), "{key:?}");
    }
    for second in ["k1", "k2"] {
        let twice = Request::post("/pay").key("k1").key(second).json("{}");
        assert_eq!(twice.reply(gateway.address()).code(), "invalid-key");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn s2_other_spellings_of_a_path_are_the_same_operation() {
    let upstream = echo();
    let config = "[[route]]\nmatch = \"POST /pay\"\nrequire_key = true\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    for target in ["/pay", "/pay/", "/%70ay", "/./pay", "/x/../pay", "/x/%2e%2e/pay", "/pay?a=1"] {
        let reply = Request::post(target).json("{}").reply(gateway.address());
        assert_eq!(reply.code(), "missing-key", "{target} slips by: {reply:?}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn s2_a_target_without_a_path_is_that_of_a_slash_for_key_and_application_alike() {
    let upstream = echo();
    let gateway = Gateway::to(upstream.address()).start();
    for target in ["/", "http://test.example", "http://test.example#a", "test.example"] {
        let reply = Request::post(target).key("k1").json("{}").reply(gateway.address());
        assert!(reply.status == 201 || reply.status == 400, "{target}: {reply:?}");
        let plain = Request::post(target).json("{}").reply(gateway.address());
        assert!(plain.status == 400 || plain.text().starts_with("/ "), "{target}: {plain:?}");
    }
    let seen = upstream.requests();
    let keyed = seen.iter().filter(|seen| seen.headers.has("idempotency-key")).count();
    assert_eq!(keyed, 1, "one key, several runs: {seen:?}");
    assert!(seen.iter().all(|seen| seen.target == "/"), "{seen:?}");
}

#[test]
fn f4_an_upload_that_is_too_large_or_breaks_off_claims_nothing() {
    let upstream = echo();
    let config = "[defaults]\nmax_request_body = \"64KiB\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let large = vec![b'x'; 64 * 1024 + 1];
    let sized = Request::post("/pay").key("k1").body(&large).reply(gateway.address());
    assert_eq!((sized.status, sized.code().as_str()), (413, "request-too-large"));
    let chunked = Request::post("/pay").key("k1").chunks(&[&large]).reply(gateway.address());
    assert_eq!((chunked.status, chunked.code().as_str()), (413, "request-too-large"));
    let mut broken = Connection::open(gateway.address()).unwrap();
    let part = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k1\r\nContent-Length: 9\r\n\r\n{";
    broken.send(part).unwrap();
    broken.reset();
    let good = Request::post("/pay").key("k1").json("{}").reply(gateway.address());
    assert_eq!((good.status, good.replayed()), (201, false));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn s3_a_host_that_is_no_host_is_refused() {
    let upstream = echo();
    let gateway = Gateway::to(upstream.address()).start();
    let hosts: [&[u8]; 6] =
        [b"a.example, b.example", b"a.example/x", b"u@a.example", b"a b", b"caf\xe9", b"a?b"];
    for host in hosts {
        let request = Request::bare("POST", "/pay").header("Host", host).key("k1").json("{}");
        let reply = request.reply(gateway.address());
        assert_eq!((reply.status, reply.idempotency()), (400, String::new()), "{host:?}");
    }
    let user = Request::bare("POST", "http://u:p@a.example/pay").header("Host", "a.example");
    assert_eq!(user.key("k1").json("{}").reply(gateway.address()).status, 400);
    for host in ["[::1]:80", "a.example:8080", "127.0.0.1", "a_b.example"] {
        let request = Request::bare("POST", "/pay").header("Host", host).key(host).json("{}");
        // The colon and brackets are printable, so they are a key as well.
        assert_eq!(request.reply(gateway.address()).status, 201, "{host}");
    }
    assert_eq!(upstream.count(), 4);
}

#[test]
fn k7_an_upgrade_or_a_connection_field_takes_no_key_away() {
    let upstream = echo();
    let gateway = Gateway::to(upstream.address()).start();
    let fields = [
        ("Connection", "Idempotency-Key"),
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Connection", "close, idempotency-key"),
    ];
    for (number, (name, value)) in fields.into_iter().enumerate() {
        let request = Request::post("/pay").key(&format!("k{number}")).header(name, value);
        let request = request.header("Upgrade", "websocket").json("{}");
        let first = request.reply(gateway.address());
        assert_eq!((first.status, first.idempotency()), (201, "stored".into()), "{value}");
        assert!(request.reply(gateway.address()).replayed(), "{value}");
    }
    let seen = upstream.requests();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|seen| seen.headers.has("idempotency-key")), "{seen:?}");
    assert!(!seen.iter().any(|seen| seen.headers.has("upgrade")), "{seen:?}");
}

#[test]
fn h_what_only_the_gateway_may_say_is_removed_from_the_application_s_answer() {
    let upstream = Upstream::start(|exchange| {
        let forged = [
            ("Idempotent-Replayed", "true"),
            ("Idempotency-Status", "replayed"),
            ("Idempotency-Expires", "never"),
            ("Idempotency-Body", "omitted"),
            ("Idempotency-Record", "x"),
            ("Idempotency-Key", "kept"),
        ];
        exchange.answer(201, &forged, b"ok")
    });
    let gateway = Gateway::to(upstream.address()).start();
    let keyed = Request::post("/pay").key("k1").json("{}").reply(gateway.address());
    let plain = Request::post("/pay").json("{}").reply(gateway.address());
    let get = Request::new("GET", "/pay").reply(gateway.address());
    assert_eq!(keyed.headers.all("idempotency-status"), [b"stored"]);
    for reply in [&keyed, &plain, &get] {
        assert!(!reply.replayed() && !reply.headers.has("idempotency-record"), "{reply:?}");
        assert!(!reply.headers.has("idempotency-body"), "{reply:?}");
        assert_eq!(reply.header("idempotency-key"), "kept");
    }
    assert_eq!((plain.idempotency(), get.idempotency()), (String::new(), String::new()));
}

#[test]
fn f4_a_client_that_waits_for_100_continue_is_told_to_go_on() {
    let upstream = echo();
    let gateway = Gateway::to(upstream.address()).start();
    for replayed in [false, true] {
        let mut client = Connection::open(gateway.address()).unwrap();
        let request = Request::post("/pay").key("k1").header("Expect", "100-continue").json("{}");
        client.send(request.head_bytes()).unwrap();
        client.wire().read_to(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        client.send("{}").unwrap();
        let reply = client.read_reply().unwrap();
        assert_eq!((reply.status, reply.replayed()), (201, replayed));
    }
    assert_eq!(upstream.count(), 1);
}

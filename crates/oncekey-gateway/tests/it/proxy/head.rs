//! What heads look like on the other side of the gateway.

use super::rig::{App, OK, Wire, ask, field, gateway};

#[tokio::test]
async fn h_a_request_arrives_with_these_bytes() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    ask(
        serving.address(),
        "POST http://shop.example/pay?a=1&b=%20 HTTP/1.1\r\nHost: ignored\r\nX-Custom: Value\r\n\
         Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nTE: gzip\r\n\
         Proxy-Authorization: Basic c2VjcmV0\r\nIdempotency-Key: \"k-1\"\r\n\
         X-Forwarded-For: 203.0.113.9\r\nVia: 1.0 edge\r\nContent-Length: 4\r\n\r\nbody",
    )
    .await;
    let expected = "POST /pay?a=1&b=%20 HTTP/1.1\r\nhost: shop.example\r\nx-custom: Value\r\n\
        idempotency-key: \"k-1\"\r\nx-forwarded-for: 203.0.113.9, 127.0.0.1\r\n\
        via: 1.0 edge, 1.1 oncekey\r\ncontent-length: 4\r\nx-forwarded-host: shop.example\r\n\
        forwarded: for=127.0.0.1;host=shop.example;proto=http\r\n\
        x-forwarded-proto: http\r\n\r\nbody";
    let sorted = |message: &str| {
        let mut lines: Vec<_> = message.split("\r\n").map(str::to_owned).collect();
        lines[1..].sort();
        lines
    };
    assert_eq!(sorted(&app.seen()[0]), sorted(expected));
}

#[tokio::test]
async fn h_an_answer_arrives_with_these_bytes() {
    let app = App::answering(
        "HTTP/1.1 201 Nicely Made\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nX-Custom: Value\r\n\
         Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nConnection: keep-alive, x-hop\r\nX-Hop: 1\r\n\
         Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\n\
         Content-Length: 4\r\n\r\nmade",
    )
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let expected = "HTTP/1.1 201 Created\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
        x-custom: Value\r\nset-cookie: a=1\r\nset-cookie: b=2\r\ncontent-length: 4\r\n\r\nmade";
    let answer = wire.message().await;
    let lines = |text: &str| {
        let mut lines: Vec<_> = text.split("\r\n").map(str::to_owned).collect();
        lines[1..].sort();
        lines
    };
    assert_eq!(lines(&answer), lines(expected), "{answer}");
}

#[tokio::test]
async fn h_an_answer_without_date_gets_one() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(field(&wire.message().await, "date").is_some());
}

#[tokio::test]
async fn h_a_request_of_http_1_0_is_answered_and_its_connection_closed() {
    let app =
        App::answering("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            .await;
    let serving = gateway(app.proxy());
    let answer = ask(serving.address(), "GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    assert!(field(&answer, "transfer-encoding").is_none());
    assert_eq!(field(&app.seen()[0], "host").unwrap(), app.address.to_string());
    assert_eq!(field(&app.seen()[0], "via").unwrap(), "1.0 oncekey");
}

#[tokio::test]
async fn h_connect_is_refused() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let answer = ask(
        serving.address(),
        "CONNECT bank:443 HTTP/1.1\r\nhost: bank:443\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
    assert_eq!(app.connections(), 0);
}

#[tokio::test]
async fn h_two_hosts_are_refused() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let answer =
        ask(serving.address(), "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n")
            .await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(app.connections(), 0);
}

#[tokio::test]
async fn h_expect_is_answered_by_the_gateway() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n")
        .await;
    assert_eq!(wire.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    wire.send("body").await;
    assert!(wire.message().await.starts_with("HTTP/1.1 200"));
    assert!(field(&app.seen()[0], "expect").is_none());
}

#[tokio::test]
async fn p4_informational_answers_are_not_the_answer() {
    let app = App::answering(
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    )
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let answer = wire.message().await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
}

#[tokio::test]
async fn p4_answers_without_a_body_leave_the_connection_in_step() {
    // Goal: after each of these the next request on the same connections gets its own answer.
    for (request, answer, status, length) in [
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 700\r\n\r\n", "200", Some("700")),
        ("HEAD", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "200", None),
        ("GET", "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", "204", None),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", "204", None),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\ncontent-length: 9\r\n\r\n",
            "304",
            None,
        ),
        ("DELETE", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "200", Some("0")),
    ] {
        let app = App::start(move |mut wire, _, seen| async move {
            seen.note(wire.message().await);
            wire.send(answer).await;
            seen.note(wire.message().await);
            wire.send(OK).await;
            wire.rest().await;
        })
        .await;
        let serving = gateway(app.proxy());
        let mut wire = Wire::to(serving.address()).await;
        wire.send(format!("{request} / HTTP/1.1\r\nhost: a\r\n\r\n")).await;
        let head = wire.head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{answer}: {head}");
        assert_eq!(field(&head, "content-length").as_deref(), length, "{answer}: {head}");
        assert!(field(&head, "transfer-encoding").is_none() || request == "HEAD", "{head}");
        wire.send("GET /next HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let next = wire.message().await;
        assert!(next.starts_with("HTTP/1.1 200") && next.ends_with("ok"), "{answer}: {next}");
        assert_eq!(app.connections(), 1, "{answer}");
    }
}

//! Bodies and trailers, both ways, without being gathered.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Version};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::rig::{App, OK, Wire, field, gateway, soon};

#[tokio::test]
async fn h_chunks_go_both_ways() {
    let app = App::start(|mut wire, _, seen| async move {
        seen.note(wire.read_to("\r\n0\r\n\r\n").await);
        wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        wire.send("5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n").await;
        wire.rest().await;
    })
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send(
        "POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n\
         3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    )
    .await;
    let answer = wire.read_to("\r\n0\r\n\r\n").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(field(head, "transfer-encoding").unwrap(), "chunked");
    assert_eq!(unchunked(body), "hello world");
    let seen = app.seen().remove(0);
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    assert_eq!(field(head, "transfer-encoding").unwrap(), "chunked");
    assert_eq!(field(head, "content-length"), None);
    assert_eq!(unchunked(body), "abcde");
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
}

#[tokio::test]
async fn h_a_get_with_a_body_keeps_it() {
    let app = App::start(|mut wire, _, seen| async move {
        seen.note(wire.read_to("\r\n0\r\n\r\n").await);
        wire.send(OK).await;
        wire.rest().await;
    })
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        .await;
    assert!(wire.message().await.ends_with("ok"));
    assert!(app.seen()[0].ends_with("1\r\nx\r\n0\r\n\r\n"));
}

#[tokio::test]
async fn h_trailers_go_both_ways() {
    let app = App::start(|mut wire, _, seen| async move {
        seen.note(wire.read_to("\r\n\r\n").await + &wire.read_to("\r\n\r\n").await);
        wire.send(
            "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n",
        )
        .await;
        wire.rest().await;
    })
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send(
        "POST / HTTP/1.1\r\nhost: a\r\nTE: trailers\r\nConnection: TE\r\nTrailer: X-Up\r\n\
         Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Up: 7\r\n\r\n",
    )
    .await;
    let head = wire.head().await;
    assert_eq!(field(&head, "trailer").unwrap(), "X-Sum");
    assert_eq!(wire.read_to("\r\n\r\n").await, "2\r\nok\r\n0\r\nx-sum: 42\r\n\r\n");
    let seen = app.seen().remove(0);
    assert_eq!(field(&seen, "te").unwrap(), "trailers");
    assert!(seen.ends_with("1\r\na\r\n0\r\nx-up: 7\r\n\r\n"), "{seen}");
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[tokio::test]
async fn h_a_large_answer_is_streamed_in_bounded_memory() {
    const CHUNK: usize = 64 * 1024;
    const CHUNKS: usize = 1600;
    let app = App::start(|mut wire, _, _| async move {
        wire.message().await;
        wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", CHUNK * CHUNKS)).await;
        let chunk = vec![b'x'; CHUNK];
        for _ in 0..CHUNKS {
            wire.send(&chunk).await;
        }
        wire.rest().await;
    })
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    wire.head().await;
    let before = resident();
    let mut most = before;
    for _ in 0..CHUNKS {
        let chunk = wire.exactly(CHUNK).await;
        assert!(chunk.iter().all(|byte| *byte == b'x'));
        most = most.max(resident());
    }
    let grown = most - before;
    assert!(grown < 32 * 1024 * 1024, "{grown} bytes were gathered");
}

#[tokio::test]
async fn h_a_large_upload_is_streamed() {
    const SIZE: usize = 16 * 1024 * 1024;
    let app = App::start(|mut wire, _, seen| async move {
        let head = wire.head().await;
        let mut left: usize = field(&head, "content-length").unwrap().parse().unwrap();
        while left > 0 {
            left -= wire.exactly(left.min(100_000)).await.len();
        }
        seen.note(head);
        wire.send(OK).await;
        wire.rest().await;
    })
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send(format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {SIZE}\r\n\r\n")).await;
    let part = vec![b'y'; 1024 * 1024];
    for _ in 0..16 {
        wire.send(&part).await;
    }
    assert!(wire.message().await.ends_with("ok"));
}

#[tokio::test]
async fn h_an_http_2_client_is_served() {
    // Goal: host from the authority, cookie crumbs joined, a body without length, trailers, and
    // several streams at once on one connection.
    let app = App::start(|mut wire, _, seen| async move {
        loop {
            let head = wire.head().await;
            if head.is_empty() {
                return;
            }
            let mut request = head.clone();
            if field(&head, "transfer-encoding").is_some() {
                request += &wire.read_to("\r\n0\r\n\r\n").await;
            }
            seen.note(request);
            wire.send(
                "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
                 2\r\nok\r\n0\r\nx-sum: 42\r\n\r\n",
            )
            .await;
        }
    })
    .await;
    let serving = gateway(app.proxy());
    let stream = tokio::net::TcpStream::connect(serving.address()).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);

    let frames = ["a", "b"].map(|part| {
        Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(part.as_bytes())))
    });
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed();
    let mut request = Request::post("http://shop.example/pay").body(body).unwrap();
    for crumb in ["a=1", "b=2", "c=3"] {
        request.headers_mut().append("cookie", HeaderValue::from_static(crumb));
    }
    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    let empty = || Empty::new().map_err(|never| match never {}).boxed();
    let plain = Request::get("http://shop.example/list").body(empty()).unwrap();

    let first = client.send_request(request);
    let second = client.send_request(plain);
    let (first, second) = soon("both answers", async { tokio::join!(first, second) }).await;
    for answer in [first.unwrap(), second.unwrap()] {
        assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
        let whole = soon("a body", answer.into_body().collect()).await.unwrap();
        let mut sum = HeaderMap::new();
        sum.insert("x-sum", HeaderValue::from_static("42"));
        assert_eq!(whole.trailers(), Some(&sum));
        assert_eq!(whole.to_bytes(), "ok");
    }
    let seen = app.seen();
    let post = seen.iter().find(|request| request.starts_with("POST /pay HTTP/1.1\r\n")).unwrap();
    assert_eq!(field(post, "host").unwrap(), "shop.example");
    assert_eq!(field(post, "cookie").unwrap(), "a=1; b=2; c=3");
    assert_eq!(field(post, "te").unwrap(), "trailers");
    assert_eq!(unchunked(post.split_once("\r\n\r\n").unwrap().1), "ab");
    let get = seen.iter().find(|request| request.starts_with("GET /list HTTP/1.1\r\n")).unwrap();
    assert_eq!(field(get, "transfer-encoding"), None);
}

//! Nothing is sent twice, and every failure says whether anything was sent (rule O4).

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, StreamBody};
use oncekey::clock::Clock;
use oncekey_gateway::proxy::{Cancel, ErrorKind, Keyed, Proxy, ProxyBody, ProxyError, Sent};
use oncekey_gateway::upstream::{Address, Bounds};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::rig::{App, OK, Wire, ask, field, gateway, nowhere, soon, until};

fn post(body: &'static str) -> Request<Full<Bytes>> {
    Request::post("/pay").header("host", "shop").body(Full::from(body)).unwrap()
}

async fn call<B>(
    proxy: &Proxy,
    request: Request<B>,
) -> Result<http::Response<ProxyBody>, ProxyError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    soon("an answer", proxy.clone().call(request)).await
}

async fn whole(answer: http::Response<ProxyBody>) -> Bytes {
    soon("a body", answer.into_body().collect()).await.unwrap().to_bytes()
}

/// An application on a thread of its own. It answers one request a connection and closes it without
/// having announced that, when it is told to.
struct Silent {
    address: Address,
    close: SyncSender<()>,
    closed: Receiver<String>,
}

impl Silent {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (close, told_to_close) = sync_channel(0);
        let (tell, closed) = sync_channel(0);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read_whole(&mut stream);
                stream.write_all(OK.as_bytes()).unwrap();
                if told_to_close.recv().is_err() {
                    return;
                }
                drop(stream);
                tell.send(request).unwrap();
            }
        });
        Self { address, close, closed }
    }

    /// Blocks the test's only thread until the connection is closed, so that nothing of ours can
    /// have noticed. Returns the request that the connection carried.
    fn close(&self) -> String {
        self.close.send(()).unwrap();
        self.closed.recv().unwrap()
    }
}

/// A request whose body ends with `end`, in one piece or in chunks.
fn read_whole(stream: &mut std::net::TcpStream) -> String {
    let mut request = String::new();
    let mut chunk = [0; 4096];
    while !request.ends_with("end") && !request.ends_with("\r\n0\r\n\r\n") {
        let count = stream.read(&mut chunk).unwrap();
        assert_ne!(count, 0, "the request is not whole: {request}");
        request.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
    }
    request
}

#[tokio::test]
async fn o4_a_connection_that_was_closed_unnoticed_is_not_written_to() {
    // Goal: the end of stream lies unread in our socket when the next request comes.
    let app = Silent::start();
    let proxy = Proxy::new(app.address.clone());
    for round in 0..50 {
        let body = if round % 2 == 0 { "even end" } else { "odd end" };
        let answer = call(&proxy, post(body)).await.unwrap_or_else(|e| panic!("{round}: {e:?}"));
        assert_eq!(whole(answer).await, "ok");
        let request = app.close();
        assert!(request.ends_with(body), "{round}: {request}");
    }
}

#[tokio::test]
async fn o4_a_streamed_upload_moves_whole_to_a_fresh_connection() {
    let app = Silent::start();
    let proxy = Proxy::new(app.address.clone());
    whole(call(&proxy, post("first end")).await.unwrap()).await;
    app.close();

    let frames = ["a", "b", "c"].map(|part| {
        Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(part.as_bytes())))
    });
    let body = StreamBody::new(futures_util::stream::iter(frames));
    let request = Request::post("/pay").header("host", "shop").body(body).unwrap();
    assert_eq!(whole(call(&proxy, request).await.unwrap()).await, "ok");
    let request = app.close();
    assert!(request.ends_with("1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n"), "{request}");
}

#[tokio::test]
async fn o4_keep_alive_races_lose_and_repeat_nothing() {
    // The application closes after each answer; the next request races with the close.
    let app = App::start(|mut wire, _, seen| async move {
        seen.note(wire.message().await);
        wire.send(OK).await;
    })
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    for round in 0..300 {
        wire.send(format!("POST /{round} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx")).await;
        let answer = wire.message().await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{round}: {answer}");
    }
    let seen = app.seen();
    for (round, request) in seen.iter().enumerate() {
        assert!(request.starts_with(&format!("POST /{round} ")), "{round}: {request}");
    }
    assert_eq!(seen.len(), 300);
}

#[tokio::test]
async fn o4_connections_are_used_again() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    for _ in 0..10 {
        wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        wire.message().await;
    }
    assert_eq!((app.seen().len(), app.connections()), (10, 1));
}

#[tokio::test]
async fn o4_b30_refused_connection_means_nothing_was_sent() {
    let serving = gateway(Proxy::new(nowhere().await));
    let answer = ask(
        serving.address(),
        "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert_eq!(field(&answer, "sent").unwrap(), "nothing");
}

#[tokio::test]
async fn o4_nothing_was_sent_when_the_fresh_connection_is_refused_too() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: Address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        let mut wire = Wire::new(listener.accept().await.unwrap().0);
        wire.message().await;
        wire.send(OK).await;
        drop((wire, listener));
        tell.send(()).unwrap();
    });
    let proxy = Proxy::new(address);
    whole(call(&proxy, post("x")).await.unwrap()).await;
    told.await.unwrap();
    let error = call(&proxy, post("x")).await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (ErrorKind::Unreachable, Sent::Nothing));
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn o4_b30_a_request_that_was_read_and_not_answered_was_perhaps_run() {
    let app = App::start(|mut wire, _, seen| async move {
        seen.note(wire.message().await);
    })
    .await;
    let proxy = app.proxy();
    let error = call(&proxy, post("x")).await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (ErrorKind::Broken, Sent::Perhaps));
    assert_eq!(app.seen().len(), 1, "a request was repeated");
}

#[tokio::test]
async fn o4_a_pooled_request_that_was_read_and_not_answered_is_not_repeated() {
    let app = App::start(|mut wire, _, seen| async move {
        seen.note(wire.message().await);
        wire.send(OK).await;
        seen.note(wire.message().await);
    })
    .await;
    let proxy = app.proxy();
    whole(call(&proxy, post("one")).await.unwrap()).await;
    let error = call(&proxy, post("two")).await.unwrap_err();
    assert_eq!(error.sent(), Sent::Perhaps);
    assert_eq!((app.seen().len(), app.connections()), (2, 1));
}

#[tokio::test]
async fn o4_an_answer_that_is_not_http_was_perhaps_a_run() {
    let app = App::start(|mut wire, _, _| async move {
        wire.message().await;
        wire.send("garbage\r\n\r\n").await;
    })
    .await;
    let error = call(&app.proxy(), post("x")).await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (ErrorKind::Broken, Sent::Perhaps));
}

#[tokio::test]
async fn o4_an_answer_that_breaks_off_is_an_error_and_never_an_end() {
    let app = App::start(|mut wire, _, _| async move {
        wire.message().await;
        wire.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
        socket2::SockRef::from(&wire.stream).set_linger(Some(Duration::ZERO)).unwrap();
    })
    .await;
    let answer = call(&app.proxy(), post("x")).await.unwrap();
    let error = soon("the break", answer.into_body().collect()).await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (ErrorKind::Broken, Sent::Perhaps));
}

#[tokio::test]
async fn o4_a_client_that_stops_uploading_is_told_apart() {
    let app = App::start(|mut wire, _, _| async move {
        wire.rest().await;
    })
    .await;
    let frames = [
        Ok(http_body::Frame::data(Bytes::from_static(b"a"))),
        Err(std::io::Error::other("the client left")),
    ];
    let body = StreamBody::new(futures_util::stream::iter(frames));
    let request = Request::post("/").header("host", "shop").body(body).unwrap();
    let error = call(&app.proxy(), request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RequestBody);
}

#[tokio::test]
async fn o4_a_silent_application_is_given_up_unless_the_request_is_keyed() {
    let app = App::start(|mut wire, _, _| async move {
        let request = wire.message().await;
        if request.contains("/late") {
            tokio::time::sleep(Duration::from_millis(400)).await;
            wire.send(OK).await;
        } else {
            wire.rest().await;
        }
    })
    .await;
    let proxy = app.proxy().with_timeout(Duration::from_millis(100));
    let error = call(&proxy, post("x")).await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (ErrorKind::Timeout, Sent::Perhaps));
    let mut late = Request::post("/late").header("host", "shop").body(Full::from("x")).unwrap();
    late.extensions_mut().insert(Keyed);
    assert_eq!(whole(call(&proxy, late).await.unwrap()).await, "ok");
}

#[tokio::test]
async fn o4_an_upload_that_moves_is_not_given_up() {
    let app = App::start(|mut wire, _, _| async move {
        wire.read_to("\r\n0\r\n\r\n").await;
        wire.send(OK).await;
    })
    .await;
    let proxy = app.proxy().with_timeout(Duration::from_secs(1));
    let parts = futures_util::stream::unfold(0, |sent| async move {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let part = Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(b"part")));
        (sent < 10).then_some((part, sent + 1))
    });
    let body = StreamBody::new(parts);
    let request = Request::post("/").header("host", "shop").body(body).unwrap();
    assert_eq!(whole(call(&proxy, request).await.unwrap()).await, "ok");
}

#[tokio::test]
async fn o4_a_small_upload_that_moves_is_not_given_up_either() {
    let app = App::start(|mut wire, _, _| async move {
        wire.read_to("0123456789").await;
        wire.send(OK).await;
    })
    .await;
    let serving = gateway(app.proxy().with_timeout(Duration::from_secs(1)));
    let mut wire = Wire::to(serving.address()).await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n").await;
    for digit in "0123456789".chars() {
        // Slow in all, never silent for as long as the time-out.
        tokio::time::sleep(Duration::from_millis(150)).await;
        wire.send(digit.to_string()).await;
    }
    assert!(wire.message().await.ends_with("ok"));
}

#[tokio::test]
async fn o4_the_owner_of_a_request_can_end_it() {
    // Steps: cancelled while the head is awaited, then while the body is streamed. Each time the
    // application sees its connection close.
    let (closed, mut closes) = tokio::sync::mpsc::channel(4);
    let app = App::start(move |mut wire, number, seen| {
        let closed = closed.clone();
        async move {
            seen.note(wire.message().await);
            if number > 0 {
                wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n").await;
            }
            wire.rest().await;
            closed.send(number).await.unwrap();
        }
    })
    .await;
    let proxy = app.proxy();
    let cancellable = || {
        let token = CancellationToken::new();
        let mut request = post("x");
        request.extensions_mut().insert(Keyed);
        request.extensions_mut().insert(Cancel(token.clone()));
        (request, token)
    };

    let (request, token) = cancellable();
    let answer = tokio::spawn(proxy.clone().call(request));
    until("the request", || app.seen().len() == 1).await;
    token.cancel();
    let error = soon("an error", answer).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.sent()), (ErrorKind::Cancelled, Sent::Perhaps));
    assert_eq!(soon("the close", closes.recv()).await, Some(0));

    let (request, token) = cancellable();
    let mut body = call(&proxy, request).await.unwrap().into_body();
    assert!(soon("a frame", body.frame()).await.unwrap().is_ok());
    token.cancel();
    let error = soon("an error", body.frame()).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.sent()), (ErrorKind::Cancelled, Sent::Perhaps));
    assert_eq!(soon("the close", closes.recv()).await, Some(1));
}

async fn connections_after(answer: &'static str, pause: Duration) -> usize {
    let app = App::answering(answer).await;
    let clock = Clock::manual();
    let address: Address = format!("http://{}", app.address).parse().unwrap();
    let proxy = Proxy::with_bounds(address, Bounds::default(), clock.clone());
    whole(call(&proxy, post("x")).await.unwrap()).await;
    clock.advance(pause);
    whole(call(&proxy, post("x")).await.unwrap()).await;
    app.connections()
}

#[tokio::test]
async fn o4_an_idle_connection_is_dropped_before_the_application_drops_it() {
    const TOLD: &str = "HTTP/1.1 200 OK\r\nkeep-alive: timeout=20\r\ncontent-length: 2\r\n\r\nok";
    assert_eq!(connections_after(OK, Duration::from_millis(3_999)).await, 1);
    assert_eq!(connections_after(OK, Duration::from_millis(4_000)).await, 2);
    assert_eq!(connections_after(TOLD, Duration::from_millis(18_999)).await, 1);
    assert_eq!(connections_after(TOLD, Duration::from_millis(19_000)).await, 2);
}

#[tokio::test]
async fn o4_an_old_connection_is_closed_without_being_asked_for() {
    let (closed, mut closes) = tokio::sync::mpsc::channel(1);
    let app = App::start(move |mut wire, _, _| {
        let closed = closed.clone();
        async move {
            wire.message().await;
            wire.send(OK).await;
            wire.rest().await;
            closed.send(()).await.unwrap();
        }
    })
    .await;
    let clock = Clock::manual();
    let address: Address = format!("http://{}", app.address).parse().unwrap();
    let proxy = Proxy::with_bounds(address, Bounds::default(), clock.clone());
    whole(call(&proxy, post("x")).await.unwrap()).await;
    tokio::task::yield_now().await;
    clock.advance(Duration::from_secs(5));
    soon("the close", closes.recv()).await.unwrap();
    drop(proxy);
}

#[tokio::test]
async fn o4_a_connection_that_the_application_ends_is_not_kept() {
    let app = App::start(|mut wire, _, seen| async move {
        seen.note(wire.message().await);
        wire.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").await;
        // Left open, as some applications do.
        wire.rest().await;
    })
    .await;
    let proxy = app.proxy();
    for _ in 0..3 {
        assert_eq!(whole(call(&proxy, post("x")).await.unwrap()).await, "ok");
    }
    assert_eq!((app.seen().len(), app.connections()), (3, 3));
}

#[tokio::test]
async fn an_application_can_be_named() {
    let app = App::answering(OK).await;
    let address: Address = format!("http://localhost:{}", app.address.port()).parse().unwrap();
    assert_eq!(whole(call(&Proxy::new(address), post("x")).await.unwrap()).await, "ok");
}

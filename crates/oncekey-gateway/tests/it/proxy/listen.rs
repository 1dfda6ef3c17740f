//! Accepting clients, the bounds of what they may take, and stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oncekey_gateway::listener::{BindError, Listener, Stopped};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::rig::{App, OK, Wire, ask, field, gateway, serve, settings, soon, until};

#[tokio::test]
async fn u5_a_stop_finishes_what_runs_and_takes_nothing_new() {
    let (read, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let app = App::start({
        let (read, answer) = (Arc::clone(&read), Arc::clone(&answer));
        move |mut wire, _, _| {
            let (read, answer) = (Arc::clone(&read), Arc::clone(&answer));
            async move {
                wire.message().await;
                read.notify_one();
                answer.notified().await;
                wire.send(OK).await;
                wire.rest().await;
            }
        }
    })
    .await;
    let serving = serve(settings(), app.proxy());
    let address = serving.address();
    let mut idle = Wire::to(address).await;
    let mut wire = Wire::to(address).await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx").await;
    soon("the request", read.notified()).await;

    let stopping = tokio::spawn(serving.stop(Duration::from_secs(15), async {}));
    // The idle connection is closed, and no new one is accepted.
    assert_eq!(idle.rest().await, "");
    soon("the refusal", async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert!(!stopping.is_finished());
    answer.notify_one();
    let last = wire.rest().await;
    assert!(last.starts_with("HTTP/1.1 200") && last.ends_with("ok"), "{last}");
    assert_eq!(field(&last, "connection").as_deref(), Some("close"));
    assert_eq!(soon("the stop", stopping).await.unwrap(), Stopped::Finished);
}

#[tokio::test]
async fn u5_what_does_not_end_is_cut_off_at_the_bound() {
    let app = App::start(|mut wire, _, seen| async move {
        seen.note(wire.message().await);
        wire.rest().await;
    })
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx").await;
    until("the request", || app.seen().len() == 1).await;
    let how = soon("the stop", serving.stop(Duration::from_millis(50), async {})).await;
    assert_eq!(how, Stopped::CutOff);
    assert_eq!(wire.rest().await, "");
}

#[tokio::test]
async fn u5_work_without_a_client_is_waited_for() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let (done, drained) = tokio::sync::oneshot::channel::<()>();
    let stopping = tokio::spawn(serving.stop(Duration::from_secs(15), async {
        let _ = drained.await;
    }));
    tokio::task::yield_now().await;
    assert!(!stopping.is_finished());
    done.send(()).unwrap();
    assert_eq!(soon("the stop", stopping).await.unwrap(), Stopped::Finished);
}

#[tokio::test]
async fn x6_a_client_that_sends_its_head_too_slowly_is_cut_off() {
    let app = App::answering(OK).await;
    let mut settings = settings();
    settings.head_timeout = Duration::from_millis(200);
    let serving = serve(settings, app.proxy());
    for start in ["", "P", "PR", "GET / HTTP/1.1\r\nhost: a\r\nx-slow: "] {
        let mut wire = Wire::to(serving.address()).await;
        wire.send(start).await;
        let rest = wire.rest().await;
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408"), "{start:?}: {rest}");
    }
    until("the end of all connections", || serving.connections() == 0).await;
    assert_eq!(app.connections(), 0);
}

#[tokio::test]
async fn x6_an_answer_may_take_longer_than_a_head() {
    let app = App::start(|mut wire, _, _| async move {
        wire.message().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        wire.send(OK).await;
        wire.rest().await;
    })
    .await;
    let mut settings = settings();
    settings.head_timeout = Duration::from_millis(100);
    let serving = serve(settings, app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(wire.message().await.ends_with("ok"));
}

#[tokio::test]
async fn x6_a_head_has_a_bound() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let fits = format!(
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx: {}\r\n\r\n",
        "y".repeat(60_000)
    );
    assert!(ask(serving.address(), &fits).await.starts_with("HTTP/1.1 200"));
    let mut wire = Wire::to(serving.address()).await;
    let large = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(70_000));
    // The gateway may close before it has read all of it.
    let _ = wire.stream.write_all(large.as_bytes()).await;
    let answer = wire.rest().await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many: String = (0..101).map(|n| format!("x-{n}: y\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n");
    assert!(ask(serving.address(), &many).await.starts_with("HTTP/1.1 431"));
    assert_eq!(app.seen().len(), 1);
}

#[tokio::test]
async fn h_what_is_not_http_gets_a_bare_400() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    for request in [
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nidempotency-key: a\x01b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx y: z\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: many\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n",
        "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
        "PRO / HTTP/1.1\r\n\r\n",
    ] {
        let answer = ask(serving.address(), request).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{request:?}: {answer}");
    }
    assert_eq!(app.seen().len(), 0);
}

#[tokio::test]
async fn p3_a_client_that_closes_has_left_and_the_application_sees_it() {
    let app = App::start(|mut wire, _, seen| async move {
        seen.note(wire.message().await);
        // Ends when the gateway closes the exchange.
        seen.note(wire.rest().await);
    })
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx").await;
    until("the request came", || app.seen().len() == 1).await;
    drop(wire);
    until("the application saw it", || app.seen().len() == 2).await;
}

#[tokio::test]
async fn h_requests_in_one_packet_are_answered_in_order() {
    let app = App::start(|mut wire, _, _| async move {
        loop {
            let request = wire.message().await;
            if request.is_empty() {
                return;
            }
            let path = request.split(' ').nth(1).unwrap().to_owned();
            let length = path.len();
            wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{path}")).await;
        }
    })
    .await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send("GET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(wire.message().await.ends_with("/1"));
    assert!(wire.message().await.ends_with("/2"));
}

#[tokio::test]
async fn x6_a_connection_above_the_bound_waits_for_its_turn() {
    let app = App::answering(OK).await;
    let mut settings = settings();
    settings.workers = std::num::NonZeroUsize::MIN;
    settings.connections = 1;
    let serving = serve(settings, app.proxy());
    let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut first = Wire::to(serving.address()).await;
    first.send(request).await;
    first.message().await;
    let mut second = Wire::to(serving.address()).await;
    second.send(request).await;
    assert_eq!((serving.connections(), app.seen().len()), (1, 1));
    drop(first);
    assert!(second.message().await.ends_with("ok"));
}

#[tokio::test]
async fn a_taken_address_is_refused_with_a_clear_error() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let mut settings = settings();
    settings.address = serving.address();
    let error = Listener::bind(settings).unwrap_err();
    assert!(matches!(error, BindError::InUse(at) if at == serving.address()));
    let shown = error.to_string();
    assert!(shown.contains(&SocketAddr::to_string(&serving.address())), "{shown}");
}

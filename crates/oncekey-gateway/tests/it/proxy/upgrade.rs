//! WebSocket and the like: obeyed on GET, dropped elsewhere (rule K7).

use std::time::Duration;

use oncekey_gateway::proxy::Upgrades;

use super::rig::{App, OK, Wire, ask, field, gateway, soon, until};

const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

async fn echo() -> App {
    App::start(|mut wire, _, seen| async move {
        let head = wire.head().await;
        seen.note(head);
        wire.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello",
        )
        .await;
        loop {
            let line = wire.read_to("\n").await;
            if line.is_empty() {
                return;
            }
            wire.send(line.to_uppercase()).await;
        }
    })
    .await
}

#[tokio::test]
async fn k7_a_get_upgrade_passes_untouched() {
    let app = echo().await;
    let upgrades = Upgrades::default();
    let serving = gateway(app.proxy().with_upgrades(upgrades.clone()));
    let mut wire = Wire::to(serving.address()).await;
    wire.send(ASK).await;
    let head = wire.head().await;
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert_eq!(field(&head, "upgrade").unwrap(), "websocket");
    assert_eq!(field(&head, "connection").unwrap(), "upgrade");
    assert_eq!(field(&head, "sec-websocket-accept").unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(wire.exactly(5).await, b"hello");
    for line in ["one\n", "two\n", "POST / HTTP/1.1\n"] {
        wire.send(line).await;
        assert_eq!(wire.read_to("\n").await, line.to_uppercase());
    }
    let seen = app.seen().remove(0);
    assert_eq!(field(&seen, "upgrade").unwrap(), "websocket");
    assert_eq!(field(&seen, "connection").unwrap(), "upgrade");
    assert_eq!(field(&seen, "sec-websocket-key").unwrap(), "dGhlIHNhbXBsZSBub25jZQ==");

    assert_eq!(upgrades.open(), 1);
    drop(wire);
    until("the end of the upgraded connection", || upgrades.open() == 0).await;
}

#[tokio::test]
async fn u5_upgraded_connections_end_with_the_gateway() {
    let app = echo().await;
    let upgrades = Upgrades::default();
    let serving = gateway(app.proxy().with_upgrades(upgrades.clone()));
    let mut wire = Wire::to(serving.address()).await;
    wire.send(ASK).await;
    wire.head().await;
    assert_eq!(wire.exactly(5).await, b"hello");
    soon("the stop", serving.stop(Duration::from_secs(10), upgrades.end())).await;
    assert_eq!(wire.rest().await, "");
}

#[tokio::test]
async fn k7_an_upgrade_is_refused_when_there_are_too_many() {
    let app = echo().await;
    let serving = gateway(app.proxy().with_upgrades(Upgrades::new(0)));
    let mut wire = Wire::to(serving.address()).await;
    wire.send(ASK).await;
    assert!(wire.head().await.starts_with("HTTP/1.1 503"));
}

#[tokio::test]
async fn k7_an_upgrade_on_another_method_is_dropped() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    let request = ASK.replace("GET", "POST").replace("\r\n\r\n", "\r\nContent-Length: 1\r\n\r\nx");
    wire.send(request).await;
    assert!(wire.message().await.starts_with("HTTP/1.1 200"));
    let seen = app.seen().remove(0);
    assert_eq!((field(&seen, "upgrade"), field(&seen, "connection")), (None, None));
    assert!(seen.ends_with("\r\n\r\nx"));
}

#[tokio::test]
async fn k7_an_upgrade_to_http_2_is_dropped() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let answer = ask(
        serving.address(),
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: close, upgrade, http2-settings\r\n\
         upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = app.seen().remove(0);
    assert_eq!((field(&seen, "upgrade"), field(&seen, "http2-settings")), (None, None));
}

#[tokio::test]
async fn k7_a_declined_upgrade_is_an_ordinary_answer() {
    let app = App::answering(OK).await;
    let serving = gateway(app.proxy());
    let mut wire = Wire::to(serving.address()).await;
    wire.send(ASK).await;
    assert!(wire.message().await.ends_with("ok"));
    wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(wire.message().await.ends_with("ok"));
}

#[tokio::test]
async fn k7_an_upgrade_that_nobody_asked_for_is_no_answer() {
    let app = App::answering(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n",
    )
    .await;
    let serving = gateway(app.proxy());
    let answer = ask(
        serving.address(),
        "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert_eq!(field(&answer, "sent").unwrap(), "perhaps");
}

//! A route that is only observed (A8).

use super::{Gateway, Request, Upstream, counting, keyed};
use crate::rig::{After, Gate};

const OBSERVE: &str = "[defaults]\nmode = \"observe\"\n";

#[track_caller]
fn reported(gateway: &Gateway, text: &str) {
    gateway.wait_for_log(text, |line| {
        line["message"].as_str().is_some_and(|message| message.contains(text))
    });
}

#[test]
fn a8_nothing_is_replayed_or_refused_and_everything_is_reported() {
    let upstream = counting();
    let config = format!("{OBSERVE}require_key = true\nmax_request_body = \"16B\"\n");
    let gateway = Gateway::to(upstream.address()).config(&config).start();
    let mut expected = 0;
    let mut runs = |request: Request| {
        expected += 1;
        let reply = request.reply(gateway.address());
        assert_eq!((reply.status, reply.text()), (201, format!("run {expected}").as_str()));
        assert!(!reply.replayed(), "{reply:?}");
    };
    runs(keyed("/pay", "k"));
    runs(keyed("/pay", "k"));
    reported(&gateway, "observed: would be replayed");
    runs(Request::post("/pay").key("k").json("[]"));
    reported(&gateway, "observed: would be refused: the key was used for another request");
    runs(keyed("/pay", "k").header("Authorization", "other"));
    runs(Request::post("/pay").header("Authorization", "other").key("k").json("{}"));
    reported(&gateway, "observed: would be refused: the key is somebody else's");
    runs(keyed("/pay", "\""));
    runs(Request::post("/pay").json("{}"));
    // The body passes whole, though it is longer than what would be compared.
    let long = "x".repeat(100_000);
    runs(Request::post("/pay").key("long").json(&long));
    assert_eq!(upstream.requests().pop().unwrap().body, long.as_bytes());
    let codes = ["invalid-key", "missing-key", "request-too-large"];
    for code in codes {
        gateway.wait_for_log(code, |line| line["code"] == code);
    }
}

#[test]
fn a8_an_observed_repeat_does_not_wait_for_the_first() {
    let gate = Gate::new();
    let opened = gate.clone();
    let upstream = Upstream::start(move |exchange| match exchange.request.number {
        1 if !exchange.wait(&opened) => After::Close,
        _ => exchange.answer(201, &[], b"done"),
    });
    let gateway = Gateway::to(upstream.address()).config(OBSERVE).start();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| keyed("/pay", "k").reply(gateway.address()));
        upstream.wait_for_requests(1);
        let second = keyed("/pay", "k").reply(gateway.address());
        gate.open();
        assert_eq!(second.status, 201);
        assert_eq!(first.join().unwrap().status, 201);
    });
    reported(&gateway, "observed: would wait for the first request");
}

#[test]
fn a8_what_was_observed_is_kept_for_the_day_of_protection() {
    let upstream = counting();
    let mut gateway = Gateway::to(upstream.address()).config(OBSERVE).start();
    keyed("/pay", "k").reply(gateway.address());
    std::fs::write(gateway.config_file().unwrap(), "").unwrap();
    gateway.restart();
    let reply = keyed("/pay", "k").reply(gateway.address());
    assert_eq!((reply.replayed(), reply.text()), (true, "run 1"));
}

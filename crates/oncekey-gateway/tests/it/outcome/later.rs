//! What a key meets after a run that had no good end, a stop or an expiry (U, C3, L2, T2), and
//! answers of ours that come from behind (S7).

use std::time::Duration;

use super::{asked, held, keyed, tell};
use crate::rig::{After, Gate, Gateway, Request, Upstream, wait_until};

#[test]
fn u1_retry_takes_an_unknown_record_over_and_counts_the_attempts() {
    let upstream = Upstream::start(|exchange| match exchange.request.number {
        1 | 2 => After::Reset,
        _ => tell(exchange, 201),
    });
    let config = "[defaults]\non_unknown = \"retry\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    assert_eq!(keyed("k1").reply(gateway.address()).status, 504);
    gateway.restart();
    assert_eq!(keyed("k1").reply(gateway.address()).status, 504);
    let third = keyed("k1").reply(gateway.address());
    assert_eq!((third.status, third.text()), (201, "run 3 attempt 3"));
    let attempts = upstream.requests();
    let attempts = attempts.iter().map(|seen| seen.headers.text("idempotency-attempt").unwrap());
    assert_eq!(attempts.collect::<Vec<_>>(), ["1", "2", "3"]);
    assert!(keyed("k1").reply(gateway.address()).replayed());
}

#[test]
fn u1_every_attempt_bears_the_same_record_and_each_key_another() {
    let upstream = Upstream::start(|exchange| tell(exchange, 500));
    let gateway = Gateway::to(upstream.address()).start();
    for key in ["k1", "k1", "k2"] {
        keyed(key).reply(gateway.address());
    }
    let seen = upstream.requests();
    let records: Vec<_> =
        seen.iter().map(|request| request.headers.text("idempotency-record").unwrap()).collect();
    assert_eq!(records[0], records[1]);
    assert_ne!(records[0], records[2]);
}

#[test]
fn u4_unknown_never_becomes_new_by_a_retention() {
    // Goal: a kept answer that is younger has expired, so the retention has passed for both.
    let upstream = Upstream::start(|exchange| match exchange.request.headers.text("x-act") {
        Some(_) => After::Reset,
        None => tell(exchange, 201),
    });
    let config = "[defaults]\nretention = \"1s\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    let unknown = || keyed("k1").header("X-Act", "reset").reply(gateway.address());
    assert_eq!(unknown().status, 504);
    keyed("k2").reply(gateway.address());
    wait_until("the kept answer expires", || !keyed("k2").reply(gateway.address()).replayed());
    assert_eq!(unknown().code(), "outcome-unknown");
    gateway.restart();
    assert_eq!(keyed("k1").reply(gateway.address()).code(), "outcome-unknown");
    let runs = upstream.requests();
    let first_key = runs.iter().filter(|run| run.headers.get("idempotency-key") == Some(b"k1"));
    assert_eq!(first_key.count(), 1);
}

#[test]
fn c3_a_mismatch_is_told_of_an_unknown_and_of_a_retried_record() {
    let upstream = Upstream::start(|exchange| match exchange.request.target.as_str() {
        "/unknown" => After::Reset,
        _ => tell(exchange, 500),
    });
    let gateway = Gateway::to(upstream.address()).start();
    for (path, first) in [("/unknown", "unknown"), ("/retry", "retry")] {
        let ask = |body| Request::post(path).key("k1").json(body).reply(gateway.address());
        ask("{}");
        let other = ask("[]");
        assert_eq!((other.status, other.code().as_str()), (422, "key-reused"));
        assert_eq!(other.json()["first"], first);
    }
    assert_eq!(upstream.count(), 2);
}

#[test]
fn u5_a_graceful_stop_finishes_running_work_and_answers_waiters() {
    let gate = Gate::new();
    let upstream = held(&gate);
    let config = "[defaults]\nin_progress = { wait = \"50s\" }\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    let mut first = asked(&gateway, "k1");
    upstream.wait_for_requests(1);
    let mut waiter = asked(&gateway, "k1");
    wait_until("a waiter", || gateway.metric("oncekey_waiters") == Some(1.0));
    gateway.terminate();
    let told = waiter.read_reply().unwrap();
    assert_eq!((told.status, told.code().as_str()), (503, "draining"));
    gate.open();
    assert_eq!(first.read_reply().unwrap().idempotency(), "stored");
    assert!(gateway.wait_for_exit().success());
    gateway.restart();
    assert!(keyed("k1").reply(gateway.address()).replayed());
    assert_eq!(upstream.count(), 1);
}

#[test]
fn u5_what_a_graceful_stop_cuts_off_is_unknown_and_its_client_is_told() {
    let upstream = Upstream::start(|exchange| exchange.stay_silent());
    let config = "[server]\ndrain_timeout = \"300ms\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    let mut client = asked(&gateway, "k1");
    upstream.wait_for_requests(1);
    gateway.terminate();
    let told = client.read_reply().unwrap();
    assert_eq!((told.status, told.code().as_str()), (504, "outcome-unknown"));
    assert_eq!(told.idempotency(), "unknown");
    gateway.wait_for_log("what was cut off", |line| line["cut"] == 1);
    assert!(gateway.wait_for_exit().success());
    gateway.restart();
    assert_eq!(keyed("k1").reply(gateway.address()).code(), "outcome-unknown");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn l2_a_holder_that_stood_still_past_its_lease_still_completes() {
    // Steps: the process is frozen for longer than a lease while the answer and a second request
    // arrive; whichever it sees first, the work is not run again and its answer is kept.
    let gate = Gate::new();
    let upstream = held(&gate);
    let config = "[defaults]\nlease = \"1s\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let mut first = asked(&gateway, "k1");
    upstream.wait_for_requests(1);
    gateway.freeze();
    let mut second = asked(&gateway, "k1");
    gate.open();
    Gate::new().opens_within(Duration::from_millis(1500));
    gateway.go_on();
    let first = first.read_reply().unwrap();
    assert_eq!((first.status, first.idempotency()), (201, "stored".into()));
    let second = second.read_reply().unwrap();
    assert!(second.replayed() || second.code() == "outcome-unknown", "{second:?}");
    assert!(keyed("k1").reply(gateway.address()).replayed());
    assert_eq!(upstream.count(), 1);
}

#[test]
fn t2_after_a_tombstone_s_retention_a_repeat_is_refused_and_not_run() {
    let upstream = Upstream::start(|exchange| tell(exchange, 201));
    let config = "[defaults]\nretention = \"1s\"\ntombstone = \"1h\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    assert_eq!(keyed("k1").reply(gateway.address()).status, 201);
    wait_until("the answer expires", || !keyed("k1").reply(gateway.address()).replayed());
    gateway.restart();
    let gone = keyed("k1").reply(gateway.address());
    assert_eq!((gone.status, gone.code().as_str()), (410, "key-expired"));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn s7_our_own_problems_from_a_gateway_behind_are_never_kept() {
    // Steps: each is sent in one piece, then in two with a pause that a streamed answer would not
    // be gathered over.
    let upstream = Upstream::start(|exchange| {
        let mut words = exchange.request.target[1..].split('/').map(str::to_owned);
        let (code, way) = (words.next().unwrap(), words.next().unwrap());
        let body = format!("{{\"type\":\"urn:oncekey:problem:{code}\",\"status\":409}}");
        let head = format!(
            "HTTP/1.1 409 C\r\nContent-Type: application/problem+json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        exchange.send(head);
        let (piece, pause) = match way.as_str() {
            "whole" => (body.len(), Duration::ZERO),
            _ => (body.len() / 2, Duration::from_millis(120)),
        };
        exchange.trickle(body.as_bytes(), piece, pause);
        After::Keep
    });
    let gateway = Gateway::to(upstream.address()).start();
    for way in ["whole", "parts"] {
        for (code, status) in [
            ("in-progress", "released"),
            ("key-reused", "released"),
            ("store-unavailable", "released"),
            ("outcome-unknown", "unknown"),
        ] {
            let request = Request::post(&format!("/{code}/{way}")).key("k1").json("{}");
            let first = request.reply(gateway.address());
            assert_eq!(first.idempotency(), status, "{code} {way}: {first:?}");
            let second = request.reply(gateway.address());
            assert_eq!(second.idempotency(), status, "{code} {way}: {second:?}");
            assert!(!second.replayed());
        }
        let theirs = Request::post(&format!("/no-such-code/{way}")).key("k1").json("{}");
        assert_eq!(theirs.reply(gateway.address()).idempotency(), "stored", "{way}");
    }
}

#[test]
fn s7_a_problem_that_comes_too_slowly_is_passed_on_at_the_timeout_and_still_not_kept() {
    let gate = Gate::new();
    let own = gate.clone();
    let upstream = Upstream::start(move |exchange| {
        if exchange.request.number > 1 {
            return tell(exchange, 201);
        }
        let body = r#"{"type":"urn:oncekey:problem:in-progress","status":409}"#;
        let head = format!(
            "HTTP/1.1 409 C\r\nContent-Type: application/problem+json\r\n\
             Content-Length: {}\r\n\r\n{}",
            body.len(),
            &body[..9]
        );
        exchange.send(head);
        if exchange.wait(&own) && exchange.send(&body[9..]) { After::Keep } else { After::Close }
    });
    let config = "[upstream]\ntimeout = \"300ms\"\nconnect_timeout = \"100ms\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let mut first = asked(&gateway, "k1");
    assert_eq!(first.read_head_to("POST").unwrap().status, 409);
    gate.open();
    assert!(first.wire().read_to(b"409}").is_ok());
    let second = keyed("k1").reply(gateway.address());
    assert_eq!((second.status, second.text()), (201, "run 2 attempt 1"));
}

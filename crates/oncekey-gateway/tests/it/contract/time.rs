//! How long answers and keys are kept (T1, T2, T4, P1).

use oncekey::clock::Clock;

use super::{Gateway, Upstream, counting, keyed};
use crate::rig::{After, Gate, wait_for, wait_until};

#[test]
fn t1_t2_after_its_retention_a_key_is_new() {
    let upstream = counting();
    let config = "[defaults]\nretention = \"2s\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let send = || keyed("/pay", "k").reply(gateway.address());
    assert_eq!(send().text(), "run 1");
    assert!(send().replayed());
    let fresh = wait_for("the key is new", || Some(send()).filter(|reply| !reply.replayed()));
    assert_eq!((fresh.text(), fresh.idempotency().as_str()), ("run 2", "stored"));
    let attempt = upstream.requests().pop().unwrap().headers.text("idempotency-attempt").unwrap();
    assert_eq!(attempt, "1", "a new operation, not another attempt of the old one");
}

#[test]
fn t2_with_a_tombstone_the_key_is_refused_and_never_runs() {
    let upstream = counting();
    let config = "[defaults]\nretention = \"1s\"\ntombstone = \"1h\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    keyed("/pay", "k").reply(gateway.address());
    wait_until("the answer is gone", || keyed("/pay", "k").reply(gateway.address()).status == 410);
    for _ in 0..2 {
        let gone = keyed("/pay", "k").reply(gateway.address());
        assert_eq!((gone.status, gone.code().as_str()), (410, "key-expired"));
        let reused = keyed("/pay?other", "k").reply(gateway.address());
        assert_eq!((reused.status, reused.json()["first"].as_str()), (422, Some("completed")));
        gateway.restart();
    }
    assert_eq!(upstream.count(), 1);
}

#[test]
fn t1_a_retention_is_a_routes_own() {
    let upstream = counting();
    let config = "[[route]]\nmatch = \"POST /short\"\nretention = \"1s\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    for path in ["/short", "/long"] {
        keyed(path, "k").reply(gateway.address());
    }
    wait_until("the short one is gone", || {
        !keyed("/short", "k").reply(gateway.address()).replayed()
    });
    assert!(keyed("/long", "k").reply(gateway.address()).replayed());
}

#[test]
fn t1_a_run_that_ended_in_retry_is_forgotten_after_the_retention() {
    let upstream = Upstream::start(|exchange| exchange.answer(503, &[], b""));
    let config = "[defaults]\nretention = \"2s\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    assert_eq!(keyed("/pay", "k").reply(gateway.address()).idempotency(), "retry");
    let reused = || keyed("/pay?other", "k").reply(gateway.address()).status;
    assert_eq!(reused(), 422);
    // Then another request may have the key.
    wait_until("the key is new", || reused() == 503);
}

#[test]
fn t1_a_record_in_progress_does_not_expire() {
    let gate = Gate::new();
    let opened = gate.clone();
    let upstream = Upstream::start(move |exchange| match exchange.request.target.as_str() {
        "/slow" if !exchange.wait(&opened) => After::Close,
        _ => exchange.answer(201, &[], b"done"),
    });
    let config = "[defaults]\nretention = \"1s\"\nlease = \"3s\"\nin_progress = \"reject\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| keyed("/slow", "k").reply(gateway.address()));
        upstream.wait_for_requests(1);
        // Another key's whole retention passes.
        keyed("/pay", "k").reply(gateway.address());
        wait_until("a retention has passed", || {
            !keyed("/pay", "k").reply(gateway.address()).replayed()
        });
        let second = keyed("/slow", "k").reply(gateway.address());
        gate.open();
        assert_eq!(second.code(), "in-progress", "{second:?}");
        assert_eq!(first.join().unwrap().idempotency(), "stored");
    });
}

#[test]
fn p1_the_answer_says_until_when_it_is_kept() {
    let upstream = counting();
    let config = "[defaults]\nretention = \"10m\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let expiry = || {
        let reply = keyed("/pay", "k").reply(gateway.address());
        let date = httpdate::parse_http_date(&reply.header("idempotency-expires")).unwrap();
        date.duration_since(Clock::real().now().wall()).unwrap().as_secs()
    };
    for _ in 0..2 {
        let left = expiry();
        assert!((580..=601).contains(&left), "{left}");
    }
}

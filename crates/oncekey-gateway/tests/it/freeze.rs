//! A process that stands still longer than the lease lasts, and goes on (L1, L2, U1, O4): the
//! gateway, and the application behind it.

use std::thread;
use std::time::Duration;

use crate::rig::{After, Gate, Gateway, Reply, Request, Upstream, wait_for, wait_until};

/// Longer than the lease and `max_run` of these tests together.
const TOO_LONG: Duration = Duration::from_millis(2500);

fn keyed(key: &str) -> Request {
    Request::post("/charge").key(key).json(r#"{"amount":420}"#)
}

/// Answers when the gate opens.
fn gated(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |exchange| {
        if !exchange.wait(&gate) {
            return After::Close;
        }
        let number = exchange.request.number;
        exchange.answer(201, &[], format!("effect {number}").as_bytes())
    })
}

/// Stands still so long. The time itself is what is tested.
fn stand_still(gateway: &Gateway, while_it_does: impl FnOnce()) {
    gateway.freeze();
    while_it_does();
    Gate::new().opens_within(TOO_LONG);
    gateway.go_on();
}

fn assert_effect(reply: &Reply, told: &str) {
    assert_eq!((reply.status, reply.text()), (201, "effect 1"), "{reply:?}");
    assert_eq!(reply.idempotency(), told, "{reply:?}");
}

#[test]
fn l2_u1_after_standing_still_past_its_lease_a_duplicate_is_held_and_a_late_answer_decides() {
    // Goal: the lease ended unrenewed; whoever asks meanwhile is told so, and the answer that comes
    // afterwards is the outcome all the same.
    let answer = Gate::new();
    let upstream = gated(&answer);
    let config = "[defaults]\nlease = \"1s\"\nmax_run = \"1s\"\n\
                  in_progress = { wait = \"500ms\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let address = gateway.address();
    thread::scope(|scope| {
        let first = scope.spawn(|| keyed("k1").reply(address));
        upstream.wait_for_requests(1);
        let mut during = None;
        stand_still(&gateway, || during = Some(scope.spawn(|| keyed("k1").reply(address))));
        let during = during.unwrap().join().unwrap();
        assert_eq!((during.status, during.code().as_str()), (409, "outcome-unknown"));
        let after = keyed("k1").reply(address);
        assert_eq!((after.status, after.code().as_str()), (409, "outcome-unknown"));
        assert_eq!(upstream.count(), 1, "a held record ran again");
        answer.open();
        let first = first.join().unwrap();
        assert!(matches!(first.status, 201 | 504), "{first:?}");
        if first.status == 201 {
            assert_effect(&first, "stored");
        }
    });
    assert_eq!(upstream.count(), 1);
}

#[test]
fn l2_an_answer_that_came_while_the_gateway_stood_still_is_the_outcome() {
    let answer = Gate::new();
    let upstream = gated(&answer);
    let config = "[defaults]\nlease = \"1s\"\nmax_run = \"1h\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let address = gateway.address();
    thread::scope(|scope| {
        let first = scope.spawn(|| keyed("k1").reply(address));
        upstream.wait_for_requests(1);
        let mut during = None;
        stand_still(&gateway, || {
            during = Some(scope.spawn(|| keyed("k1").reply(address)));
            answer.open();
        });
        assert_effect(&first.join().unwrap(), "stored");
        let during = during.unwrap().join().unwrap();
        // It met the ended lease, or waited for the outcome; it never ran.
        let held = (during.status, during.code().as_str()) == (409, "outcome-unknown");
        assert!(held || during.replayed(), "{during:?}");
    });
    assert_effect(&keyed("k1").reply(address), "replayed");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn l1_l2_a_lease_that_ended_while_the_gateway_stood_still_is_renewed_and_nothing_runs_twice() {
    let answer = Gate::new();
    let upstream = gated(&answer);
    let config = "[defaults]\nlease = \"1s\"\nmax_run = \"1h\"\n\
                  in_progress = { wait = \"500ms\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let address = gateway.address();
    thread::scope(|scope| {
        let first = scope.spawn(|| keyed("k1").reply(address));
        upstream.wait_for_requests(1);
        for _ in 0..2 {
            let mut during = None;
            stand_still(&gateway, || during = Some(scope.spawn(|| keyed("k1").reply(address))));
            let during = during.unwrap().join().unwrap();
            assert!(
                matches!(during.code().as_str(), "outcome-unknown" | "in-progress"),
                "{during:?}"
            );
            // Nobody has another token, so the lease is its own again.
            wait_until("the lease is renewed", || {
                keyed("k1").reply(address).code() == "in-progress"
            });
        }
        assert_eq!(upstream.count(), 1, "a held record ran again");
        answer.open();
        assert_effect(&first.join().unwrap(), "stored");
    });
    assert_effect(&keyed("k1").reply(address), "replayed");
    assert_eq!(upstream.count(), 1);
}

/// A process that can be stopped in front of the application: a gateway that looks for no key.
fn stoppable(upstream: &Upstream) -> Gateway {
    let config = "[defaults]\nkey = [\"header:X-No-Such-Key\"]\n";
    Gateway::to(upstream.address()).config(config).start()
}

#[test]
fn o4_an_application_that_stood_still_past_lease_and_time_out_decides_with_its_late_answer() {
    let upstream = Upstream::start(|exchange| exchange.answer(201, &[], b"effect 1"));
    let application = stoppable(&upstream);
    let config = "[upstream]\ntimeout = \"1s\"\n[defaults]\nlease = \"1s\"\nmax_run = \"1h\"\n\
                  in_progress = { wait = \"500ms\" }\n";
    let gateway = Gateway::to(application.address()).config(config).start();
    let address = gateway.address();
    stand_still(&application, || {
        let first = keyed("k1").reply(address);
        assert_eq!((first.status, first.code().as_str()), (504, "outcome-unknown"));
        assert_eq!(first.idempotency(), "unknown");
        // The exchange goes on, with its lease renewed.
        let during = keyed("k1").reply(address);
        assert_eq!((during.status, during.code().as_str()), (409, "in-progress"));
        assert_eq!(upstream.count(), 0, "it stands still");
    });
    let late = wait_for("the late answer is kept", || {
        let reply = keyed("k1").reply(address);
        assert!(reply.replayed() || reply.code() == "in-progress", "{reply:?}");
        reply.replayed().then_some(reply)
    });
    assert_effect(&late, "replayed");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn l1_an_application_that_stood_still_past_max_run_is_sent_nothing_again() {
    let upstream = Upstream::start(|exchange| exchange.answer(201, &[], b"effect 1"));
    let application = stoppable(&upstream);
    let config = "[upstream]\ntimeout = \"1s\"\n[defaults]\nlease = \"1s\"\nmax_run = \"1s\"\n\
                  in_progress = { wait = \"500ms\" }\n";
    let gateway = Gateway::to(application.address()).config(config).start();
    let address = gateway.address();
    stand_still(&application, || {
        let first = keyed("k1").reply(address);
        assert_eq!((first.status, first.code().as_str()), (504, "outcome-unknown"));
        wait_until("the run is given up", || {
            keyed("k1").reply(address).code() == "outcome-unknown"
        });
    });
    // Another key shows that the application is back, and that it has read what came before.
    assert_eq!(keyed("k2").reply(address).status, 201);
    let last = keyed("k1").reply(address);
    assert_eq!((last.status, last.code().as_str()), (409, "outcome-unknown"), "{last:?}");
    let effects = upstream.requests();
    let effects =
        effects.iter().filter(|seen| seen.headers.text("idempotency-key").unwrap() == "k1");
    assert!(effects.count() <= 1, "sent again");
}

//! Many requests with one key at once (C).

use crate::rig::{
    After, Connection, Exchange, Gate, Gateway, Reply, Request, Upstream, race, wait_until,
};

fn keyed(key: &str) -> Request {
    Request::post("/pay").key(key).json(r#"{"amount":420}"#)
}

/// Answers with this status, the request's number and its attempt, once the gate is open.
fn gated(gate: &Gate, status: u16) -> Upstream {
    let gate = gate.clone();
    Upstream::start(
        move |exchange| {
            if exchange.wait(&gate) { tell(exchange, status) } else { After::Close }
        },
    )
}

fn tell(exchange: &mut Exchange<'_>, status: u16) -> After {
    let attempt = exchange.request.headers.text("idempotency-attempt").unwrap_or_default();
    let body = format!("run {} attempt {attempt}", exchange.request.number);
    exchange.answer(status, &[], body.as_bytes())
}

/// Connections that have asked and wait for their answers.
fn asked(gateway: &Gateway, count: usize, key: &str) -> Vec<Connection> {
    let ask = |_| {
        let mut connection = Connection::open(gateway.address()).unwrap();
        connection.send(keyed(key).bytes()).unwrap();
        connection
    };
    (0..count).map(ask).collect()
}

fn replies(connections: Vec<Connection>) -> Vec<Reply> {
    connections.into_iter().map(|mut connection| connection.read_reply().unwrap()).collect()
}

fn wait_for_waiters(gateway: &Gateway, count: usize) {
    wait_until(&format!("{count} waiters"), || {
        gateway.metric("oncekey_waiters") == Some(count as f64)
    });
}

#[test]
fn c1_of_fifty_claims_at_once_exactly_one_runs() {
    let upstream = Upstream::start(|exchange| tell(exchange, 201));
    let gateway = Gateway::to(upstream.address()).start();
    for round in 0..5 {
        let key = format!("k{round}");
        let replies = race(50, |_| keyed(&key).reply(gateway.address()));
        assert_eq!(upstream.count(), round + 1, "a key ran twice");
        let ran = replies.iter().filter(|reply| reply.idempotency() == "stored").count();
        assert_eq!(ran, 1);
        for reply in &replies {
            assert_eq!((reply.status, &reply.body), (201, &replies[0].body));
            assert!(reply.replayed() || reply.idempotency() == "stored", "{reply:?}");
        }
    }
}

#[test]
fn c1_of_many_that_take_an_unknown_record_over_exactly_one_runs() {
    let upstream = Upstream::start(|exchange| match exchange.request.number {
        1 => After::Reset,
        _ => tell(exchange, 201),
    });
    let config = "[defaults]\non_unknown = \"retry\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    assert_eq!(keyed("k1").reply(gateway.address()).status, 504);
    gateway.restart();
    let replies = race(30, |_| keyed("k1").reply(gateway.address()));
    for reply in &replies {
        assert_eq!((reply.status, reply.text()), (201, "run 2 attempt 2"), "{reply:?}");
    }
    assert_eq!(replies.iter().filter(|reply| !reply.replayed()).count(), 1);
    assert_eq!(upstream.count(), 2);
}

#[test]
fn c4_waiters_of_a_run_that_ends_unknown_are_told_so_and_run_nothing() {
    for (on_unknown, code) in [("hold", "outcome-unknown"), ("retry", "in-progress")] {
        let gate = Gate::new();
        let own = gate.clone();
        let upstream = Upstream::start(move |exchange| {
            exchange.wait(&own);
            After::Reset
        });
        let config = format!("[defaults]\non_unknown = \"{on_unknown}\"\n");
        let gateway = Gateway::to(upstream.address()).config(&config).start();
        let mut first = asked(&gateway, 1, "k1").remove(0);
        upstream.wait_for_requests(1);
        let waiting = asked(&gateway, 5, "k1");
        wait_for_waiters(&gateway, 5);
        gate.open();
        assert_eq!(first.read_reply().unwrap().status, 504);
        for reply in replies(waiting) {
            assert_eq!((reply.status, reply.code().as_str()), (409, code), "{reply:?}");
        }
        assert_eq!(upstream.count(), 1, "a waiter ran the work");
    }
}

#[test]
fn c4_fifty_waiters_replay_the_answer_of_the_one_that_runs() {
    let gate = Gate::new();
    let upstream = gated(&gate, 201);
    let gateway = Gateway::to(upstream.address()).start();
    let connections = asked(&gateway, 50, "k1");
    wait_for_waiters(&gateway, 49);
    gate.open();
    let replies = replies(connections);
    assert!(replies.iter().all(|reply| reply.status == 201 && reply.text() == "run 1 attempt 1"));
    assert_eq!(replies.iter().filter(|reply| reply.replayed()).count(), 49);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn c4_a_double_click_on_a_handler_that_fails_runs_it_once() {
    // Steps: both get the first run's answer; only a request that arrives later starts the next.
    let gate = Gate::new();
    let upstream = gated(&gate, 500);
    let gateway = Gateway::to(upstream.address()).start();
    let connections = asked(&gateway, 10, "k1");
    wait_for_waiters(&gateway, 9);
    gate.open();
    for reply in replies(connections) {
        assert_eq!((reply.status, reply.text()), (500, "run 1 attempt 1"));
        assert_eq!((reply.idempotency(), reply.replayed()), ("retry".into(), false));
    }
    assert_eq!(upstream.count(), 1);
    let later = keyed("k1").reply(gateway.address());
    assert_eq!((later.status, later.text()), (500, "run 2 attempt 2"));
}

#[test]
fn c4_after_a_release_one_waiter_runs_the_work_itself() {
    let gate = Gate::new();
    let own = gate.clone();
    let upstream = Upstream::start(move |exchange| match exchange.request.number {
        1 if exchange.wait(&own) => tell(exchange, 429),
        _ => tell(exchange, 201),
    });
    let gateway = Gateway::to(upstream.address()).start();
    let mut first = asked(&gateway, 1, "k1").remove(0);
    upstream.wait_for_requests(1);
    let waiting = asked(&gateway, 5, "k1");
    wait_for_waiters(&gateway, 5);
    gate.open();
    let released = first.read_reply().unwrap();
    assert_eq!((released.status, released.idempotency()), (429, "released".into()));
    for reply in replies(waiting) {
        assert_eq!((reply.status, reply.text()), (201, "run 2 attempt 1"), "{reply:?}");
    }
    assert_eq!(upstream.count(), 2);
}

#[test]
fn c4_the_hundred_and_first_waiter_is_told_at_once() {
    let gate = Gate::new();
    let upstream = gated(&gate, 201);
    // Longer than a test waits for anything: an answer before the gate opens came at once.
    let config = "[defaults]\nin_progress = { wait = \"55s\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let connections = asked(&gateway, 101, "k1");
    wait_for_waiters(&gateway, 100);
    let over = keyed("k1").reply(gateway.address());
    assert_eq!((over.status, over.code().as_str()), (409, "in-progress"));
    let retry_after: u64 = over.header("retry-after").parse().unwrap();
    assert!((1..=30).contains(&retry_after), "{over:?}");

    gate.open();
    assert!(replies(connections).iter().all(|reply| reply.status == 201));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn c4_in_reject_mode_nobody_waits() {
    let gate = Gate::new();
    let upstream = gated(&gate, 201);
    let config = "[defaults]\nin_progress = \"reject\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let first = asked(&gateway, 1, "k1");
    upstream.wait_for_requests(1);
    for _ in 0..3 {
        let second = keyed("k1").reply(gateway.address());
        assert_eq!((second.status, second.code().as_str()), (409, "in-progress"));
        assert!(!second.headers.has("idempotency-status"), "{second:?}");
        assert!(second.header("retry-after").parse::<u64>().unwrap() >= 1);
    }
    gate.open();
    assert_eq!(replies(first)[0].status, 201);
    assert!(keyed("k1").reply(gateway.address()).replayed());
    assert_eq!(upstream.count(), 1);
}

#[test]
fn c4_at_the_bound_a_waiter_is_told_and_the_run_goes_on() {
    let gate = Gate::new();
    let upstream = gated(&gate, 201);
    let config = "[defaults]\nin_progress = { wait = \"100ms\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let first = asked(&gateway, 1, "k1");
    upstream.wait_for_requests(1);
    assert_eq!(keyed("k1").reply(gateway.address()).code(), "in-progress");
    gate.open();
    assert_eq!(replies(first)[0].idempotency(), "stored");
    assert!(keyed("k1").reply(gateway.address()).replayed());
    assert_eq!(upstream.count(), 1);
}

#[test]
fn c4_a_waiter_that_leaves_changes_nothing() {
    let gate = Gate::new();
    let upstream = gated(&gate, 201);
    let gateway = Gateway::to(upstream.address()).start();
    let first = asked(&gateway, 1, "k1");
    upstream.wait_for_requests(1);
    let mut waiting = asked(&gateway, 3, "k1");
    wait_for_waiters(&gateway, 3);
    waiting.pop().unwrap().reset();
    waiting.pop().unwrap().leave();
    gate.open();
    assert_eq!(replies(first)[0].idempotency(), "stored");
    assert!(replies(waiting)[0].replayed());
    assert_eq!(upstream.count(), 1);
}

#[test]
fn c3_a_mismatch_is_told_while_the_first_request_runs_and_waits_for_nothing() {
    let gate = Gate::new();
    let upstream = gated(&gate, 201);
    let gateway = Gateway::to(upstream.address()).start();
    let first = asked(&gateway, 1, "k1");
    upstream.wait_for_requests(1);
    let other = || Request::post("/pay").key("k1").json("{}").reply(gateway.address());
    let told = other();
    assert_eq!((told.status, told.code().as_str()), (422, "key-reused"));
    assert_eq!(told.json()["first"], "in-progress");
    gate.open();
    assert_eq!(replies(first)[0].status, 201);
    let told = other();
    assert_eq!((told.status, &told.json()["first"]), (422, &"completed".into()));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn c5_ten_replays_at_once_are_ten_replays() {
    let upstream = Upstream::start(|exchange| tell(exchange, 201));
    let gateway = Gateway::to(upstream.address()).start();
    let first = keyed("k1").reply(gateway.address());
    let replies = race(10, |_| keyed("k1").reply(gateway.address()));
    assert!(replies.iter().all(|reply| reply.replayed() && reply.body == first.body));
    assert_eq!(upstream.count(), 1);
    assert_eq!(gateway.metric("oncekey_replays_total"), Some(10.0));
}

#[test]
fn c6_a_hot_key_slows_no_other() {
    // Steps: a run and a hundred waiters on one key stand still; fifty other keys run and replay.
    let gate = Gate::new();
    let own = gate.clone();
    let upstream = Upstream::start(move |exchange| {
        let hot = exchange.request.headers.get("idempotency-key") == Some(b"hot");
        if hot && !exchange.wait(&own) { After::Close } else { tell(exchange, 201) }
    });
    let config = "[defaults]\nin_progress = { wait = \"55s\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let hot = asked(&gateway, 101, "hot");
    wait_for_waiters(&gateway, 100);
    let cold = race(50, |number| {
        let key = format!("k{number}");
        [(); 2].map(|()| keyed(&key).reply(gateway.address()))
    });
    for [first, second] in cold {
        assert_eq!((first.status, first.idempotency()), (201, "stored".into()));
        assert!(second.replayed(), "{second:?}");
    }
    assert_eq!(upstream.count(), 51);
    gate.open();
    assert!(replies(hot).iter().all(|reply| reply.status == 201));
    assert_eq!(upstream.count(), 51);
}

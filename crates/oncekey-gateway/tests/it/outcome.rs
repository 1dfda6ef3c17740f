//! How a run ends, and what stays of it (O, U, L).

mod later;

use std::time::Duration;

use crate::rig::{
    After, Connection, Exchange, Failure, Gate, Gateway, Port, Reply, Request, Upstream, wait_until,
};

fn keyed(key: &str) -> Request {
    Request::post("/pay").key(key).json(r#"{"amount":420}"#)
}

fn asked(gateway: &Gateway, key: &str) -> Connection {
    let mut connection = Connection::open(gateway.address()).unwrap();
    connection.send(keyed(key).bytes()).unwrap();
    connection
}

fn attempt(exchange: &Exchange<'_>) -> String {
    exchange.request.headers.text("idempotency-attempt").unwrap_or_default()
}

/// An application that answers 201 once the gate is open.
fn held(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(
        move |exchange| {
            if exchange.wait(&gate) { tell(exchange, 201) } else { After::Close }
        },
    )
}

fn tell(exchange: &mut Exchange<'_>, status: u16) -> After {
    let body = format!("run {} attempt {}", exchange.request.number, attempt(exchange));
    exchange.answer(status, &[], body.as_bytes())
}

/// Answers with the status that the target ends with.
fn by_target(exchange: &mut Exchange<'_>) -> After {
    let status = exchange.request.target[1..].parse().unwrap();
    if !matches!(status, 204 | 304) {
        return tell(exchange, status);
    }
    let head = format!("HTTP/1.1 {status} X\r\n\r\n");
    if exchange.send(head) { After::Keep } else { After::Close }
}

fn ask(gateway: &Gateway, status: u16) -> Reply {
    Request::post(&format!("/{status}")).key("k1").json("{}").reply(gateway.address())
}

/// Asks twice for an answer of this status; how the first run ended, and whether there was another.
#[track_caller]
fn ends(gateway: &Gateway, status: u16) -> (String, &'static str) {
    let first = ask(gateway, status);
    let second = ask(gateway, status);
    assert_eq!(first.status, status, "{first:?}");
    let then = match second.code().as_str() {
        "outcome-unknown" => "held",
        _ if second.replayed() => "replayed",
        _ if second.text().ends_with("run 2 attempt 1") => "a new operation",
        _ if second.text().ends_with("attempt 2") => "attempt 2",
        _ if second.text().ends_with("attempt 1") => "a new operation",
        _ => panic!("{status}: {second:?}"),
    };
    (first.idempotency(), then)
}

#[test]
fn o1_the_status_decides_what_stays() {
    let upstream = Upstream::start(by_target);
    let gateway = Gateway::to(upstream.address()).start();
    for status in [200, 201, 202, 204, 206, 301, 303, 304, 400, 404, 409, 410, 416, 422, 451] {
        assert_eq!(ends(&gateway, status), ("stored".into(), "replayed"), "{status}");
    }
    for status in [401, 403, 408, 425, 429] {
        assert_eq!(ends(&gateway, status), ("released".into(), "a new operation"), "{status}");
    }
    for status in [500, 501, 503, 505, 521, 599] {
        assert_eq!(ends(&gateway, status), ("retry".into(), "attempt 2"), "{status}");
    }
    for status in [502, 504, 520, 524, 600, 799] {
        assert_eq!(ends(&gateway, status), ("unknown".into(), "held"), "{status}");
    }
}

#[test]
fn o2_a_route_sets_statuses_and_classes() {
    let upstream = Upstream::start(by_target);
    let config = r#"
        [[route]]
        match = "POST /*"
        [route.status]
        "409" = "release"
        "4xx" = "retry"
        "500" = "keep"
        "201" = "unknown"
        "429" = "keep"
    "#;
    let gateway = Gateway::to(upstream.address()).config(config).start();
    assert_eq!(ends(&gateway, 409), ("released".into(), "a new operation"));
    assert_eq!(ends(&gateway, 404), ("retry".into(), "attempt 2"));
    assert_eq!(ends(&gateway, 500), ("stored".into(), "replayed"));
    assert_eq!(ends(&gateway, 503), ("retry".into(), "attempt 2"));
    assert_eq!(ends(&gateway, 201), ("unknown".into(), "held"));
    assert_eq!(ends(&gateway, 429), ("stored".into(), "replayed"));
    assert_eq!(ends(&gateway, 504), ("unknown".into(), "held"));
}

#[test]
fn o2_profiles_change_what_5xx_mean() {
    let upstream = Upstream::start(by_target);
    let profile = |name: &str| {
        let config = format!("[defaults]\nprofile = \"{name}\"\n");
        Gateway::to(upstream.address()).config(&config).start()
    };
    let payment = profile("payment");
    for status in [500, 503, 504] {
        assert_eq!(ends(&payment, status), ("unknown".into(), "held"), "{status}");
    }
    assert_eq!(ends(&payment, 402), ("stored".into(), "replayed"));
    let missing = Request::post("/200").json("{}").reply(payment.address());
    assert_eq!((missing.status, missing.code().as_str()), (400, "missing-key"));

    let stripe = profile("stripe");
    for status in [500, 503] {
        assert_eq!(ends(&stripe, status), ("stored".into(), "replayed"), "{status}");
    }
    assert_eq!(ends(&stripe, 502), ("unknown".into(), "held"));
    let reused = Request::post("/500").key("k1").json("[]").reply(stripe.address());
    assert_eq!((reused.status, reused.code().as_str()), (400, "key-reused"));
}

#[test]
fn o3_the_handler_decides_by_a_header_which_the_client_never_sees() {
    let upstream = Upstream::start(|exchange| {
        let (outcome, number) = (exchange.request.target[1..].to_owned(), exchange.request.number);
        let body = format!("run {number} attempt {}", attempt(exchange));
        let status = if outcome == "keep" { 500 } else { 200 };
        exchange.answer(status, &[("Idempotency-Outcome", &outcome)], body.as_bytes())
    });
    let gateway = Gateway::to(upstream.address()).start();
    for (said, status, then) in [
        ("keep", "stored", "replayed"),
        ("retry", "retry", "attempt 2"),
        ("release", "released", "attempt 1"),
        ("unknown", "unknown", "held"),
        ("nonsense", "unknown", "held"),
        ("Keep", "unknown", "held"),
    ] {
        let request = Request::post(&format!("/{said}")).key("k1").json("{}");
        let first = request.reply(gateway.address());
        assert_eq!(first.idempotency(), status, "{said}: {first:?}");
        assert!(!first.headers.has("idempotency-outcome"), "{first:?}");
        let second = request.reply(gateway.address());
        match then {
            "replayed" => assert!(second.replayed(), "{said}: {second:?}"),
            "held" => assert_eq!(second.code(), "outcome-unknown", "{said}"),
            attempt => assert!(second.text().ends_with(attempt), "{said}: {second:?}"),
        }
    }
}

#[test]
fn o4_nothing_sent_is_released_and_runs_once_the_upstream_is_there() {
    let port = Port::reserve();
    let gateway = Gateway::to(port.address()).start();
    for _ in 0..2 {
        let refused = keyed("k1").reply(gateway.address());
        assert_eq!((refused.status, refused.code().as_str()), (502, "upstream-unreachable"));
        assert_eq!(refused.idempotency(), "released");
    }
    let upstream = Upstream::start_on(port.address(), |exchange| tell(exchange, 201));
    let ran = keyed("k1").reply(gateway.address());
    assert_eq!((ran.status, ran.text()), (201, "run 1 attempt 1"));
    assert!(keyed("k1").reply(gateway.address()).replayed());
    assert_eq!(upstream.count(), 1);
}

#[test]
fn o4_a_pooled_connection_that_died_is_replaced_by_a_fresh_one() {
    // The upstream closes after each answer without having said so.
    let upstream = Upstream::start(|exchange| {
        tell(exchange, 201);
        After::Close
    });
    let gateway = Gateway::to(upstream.address()).start();
    let mut connection = Connection::open(gateway.address()).unwrap();
    for number in 1..=100 {
        let reply = connection.ask(&keyed(&format!("k{number}"))).unwrap();
        assert_eq!((reply.status, reply.idempotency()), (201, "stored".into()), "{reply:?}");
    }
    assert_eq!(upstream.count(), 100);
}

#[test]
fn o4_an_upstream_that_reads_and_closes_or_resets_is_unknown_at_once() {
    let upstream = Upstream::start(|exchange| match exchange.request.target.as_str() {
        "/close" => After::Close,
        "/reset" => After::Reset,
        "/garbage" => {
            exchange.send("garbage\r\n\r\n");
            After::Close
        }
        "/half-head" => {
            exchange.send("HTTP/1.1 200 OK\r\nContent-Le");
            After::Close
        }
        "/half" => {
            exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            After::Close
        }
        "/until-reset" => {
            exchange.send("HTTP/1.1 200 OK\r\n\r\nabc");
            After::Reset
        }
        _ => {
            exchange.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab");
            After::Reset
        }
    });
    // The time-outs are longer than a test waits: what comes, comes at once.
    let config = "[upstream]\ntimeout = \"10m\"\n[defaults]\nmax_run = \"20m\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    for (count, path) in
        ["/close", "/reset", "/garbage", "/half-head", "/half", "/chunk", "/until-reset"]
            .into_iter()
            .enumerate()
    {
        let request = Request::post(path).key("k1").json("{}");
        let first = request.reply(gateway.address());
        assert_eq!((first.status, first.code().as_str()), (504, "outcome-unknown"), "{path}");
        assert_eq!(first.idempotency(), "unknown", "{path}");
        let second = request.reply(gateway.address());
        assert_eq!((second.status, second.code().as_str()), (409, "outcome-unknown"), "{path}");
        assert_eq!(second.idempotency(), "unknown", "{path}");
        assert_eq!(upstream.count(), count + 1, "{path} ran again");
    }
}

#[test]
fn o4_an_answer_that_breaks_off_after_its_head_went_out_is_cut_and_unknown() {
    let upstream = Upstream::start(|exchange| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n";
        exchange.send(head);
        exchange.trickle(&[b'x'; 200], 50, Duration::from_millis(60));
        After::Close
    });
    let gateway = Gateway::to(upstream.address()).start();
    match keyed("k1").send(gateway.address()) {
        Err(Failure::Cut { reply, .. }) => assert!(reply.body.len() <= 200),
        other => panic!("a broken answer has an end: {other:?}"),
    }
    assert_eq!(keyed("k1").reply(gateway.address()).code(), "outcome-unknown");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn o4_at_the_timeout_the_client_is_told_and_a_late_answer_completes_the_record() {
    let gate = Gate::new();
    let upstream = held(&gate);
    let config = "[upstream]\ntimeout = \"200ms\"\nconnect_timeout = \"100ms\"\n\
                  [defaults]\nin_progress = \"reject\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let first = keyed("k1").reply(gateway.address());
    assert_eq!((first.status, first.code().as_str()), (504, "outcome-unknown"));
    assert_eq!(first.idempotency(), "unknown");
    // The exchange goes on, so the key is in progress, not unknown.
    let second = keyed("k1").reply(gateway.address());
    assert_eq!((second.status, second.code().as_str()), (409, "in-progress"));
    gate.open();
    let third = wait_for_end(&gateway, "k1");
    assert!(third.replayed(), "{third:?}");
    assert_eq!((third.status, third.text()), (201, "run 1 attempt 1"));
    assert_eq!(upstream.count(), 1);
}

/// The first answer that does not say that the key is in progress.
fn wait_for_end(gateway: &Gateway, key: &str) -> Reply {
    crate::rig::wait_for("the run ends", || {
        let reply = keyed(key).reply(gateway.address());
        (reply.code() != "in-progress").then_some(reply)
    })
}

#[test]
fn l1_max_run_ends_the_exchange_and_leaves_an_unknown_outcome() {
    let left = Gate::new();
    let own = left.clone();
    let upstream = Upstream::start(move |exchange| {
        exchange.stay_silent();
        own.open();
        After::Close
    });
    let config = "[upstream]\ntimeout = \"300ms\"\nconnect_timeout = \"100ms\"\n\
                  [defaults]\nlease = \"1s\"\nmax_run = \"1200ms\"\nin_progress = \"reject\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    assert_eq!(keyed("k1").reply(gateway.address()).status, 504);
    left.pass();
    let after = wait_for_end(&gateway, "k1");
    assert_eq!((after.status, after.code().as_str()), (409, "outcome-unknown"));
    assert_eq!(upstream.count(), 1);
    wait_until("no run is left", || gateway.metric("oncekey_runs_in_progress") == Some(0.0));
}

#[test]
fn l1_a_lease_is_renewed_while_the_handler_runs() {
    // A handler of more than two leases; a second request waits and replays, and nothing becomes
    // unknown. The lease leaves a busy machine two seconds for a renewal.
    let upstream = Upstream::start(|exchange| {
        let nobody = Gate::new();
        nobody.opens_within(Duration::from_secs(8));
        tell(exchange, 201)
    });
    let config = "[defaults]\nlease = \"3s\"\nin_progress = { wait = \"20s\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let mut first = asked(&gateway, "k1");
    upstream.wait_for_requests(1);
    let second = keyed("k1").reply(gateway.address());
    assert!(second.replayed(), "{second:?}");
    assert_eq!(first.read_reply().unwrap().idempotency(), "stored");
    assert_eq!(gateway.metric("oncekey_lease_lost_total"), Some(0.0));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn l6_a_client_that_leaves_during_the_handler_changes_nothing() {
    let gate = Gate::new();
    let upstream = held(&gate);
    let gateway = Gateway::to(upstream.address()).start();
    let (first, second) = (asked(&gateway, "k1"), asked(&gateway, "k2"));
    // A client that leaves before its request was read leaves no claim.
    upstream.wait_for_requests(2);
    first.reset();
    second.leave();
    gate.open();
    for key in ["k1", "k2"] {
        let later = keyed(key).reply(gateway.address());
        assert!(later.replayed() && later.status == 201, "{later:?}");
    }
    assert_eq!(upstream.count(), 2);
}

#[test]
fn l6_a_client_that_leaves_during_the_answer_changes_nothing() {
    let gate = Gate::new();
    let own = gate.clone();
    let upstream = Upstream::start(move |exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        exchange.wait(&own);
        if exchange.send("half") { After::Keep } else { After::Close }
    });
    let gateway = Gateway::to(upstream.address()).start();
    let mut client = asked(&gateway, "k1");
    let head = client.read_head_to("POST").unwrap();
    assert_eq!(head.idempotency(), "stored");
    client.reset();
    gate.open();
    let later = keyed("k1").reply(gateway.address());
    assert!(later.replayed(), "{later:?}");
    assert_eq!((later.text(), upstream.count()), ("halfhalf", 1));
}

/// An answer of known length that is streamed: all but the last two bytes, then the gate.
fn streamed(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |exchange| {
        exchange.send("HTTP/1.1 201 C\r\nContent-Length: 10\r\n\r\n01234567");
        if exchange.wait(&gate) && exchange.send("89") { After::Keep } else { After::Close }
    })
}

#[test]
fn o5_a_kill_before_the_end_was_seen_leaves_an_unknown_outcome_and_no_second_run() {
    let gate = Gate::new();
    let upstream = streamed(&gate);
    let mut gateway = Gateway::to(upstream.address()).start();
    let mut client = asked(&gateway, "k1");
    assert_eq!(client.read_head_to("POST").unwrap().header("content-length"), "10");
    assert_eq!(client.wire().read_exactly(8).unwrap(), b"01234567");
    gateway.kill();
    assert!(client.is_closed_by_the_other_side());
    gateway.restart();
    for _ in 0..2 {
        let later = keyed("k1").reply(gateway.address());
        assert_eq!((later.status, later.code().as_str()), (409, "outcome-unknown"));
        gateway.restart();
    }
    assert_eq!(upstream.count(), 1);
}

#[test]
fn o5_whoever_saw_the_end_of_a_streamed_answer_gets_it_again_after_a_kill() {
    for round in 0..5 {
        let gate = Gate::new();
        let upstream = streamed(&gate);
        let mut gateway = Gateway::to(upstream.address()).start();
        let mut client = asked(&gateway, "k1");
        client.read_head_to("POST").unwrap();
        client.wire().read_exactly(8).unwrap();
        gate.open();
        assert_eq!(client.wire().read_exactly(2).unwrap(), b"89");
        gateway.kill();
        gateway.restart();
        let later = keyed("k1").reply(gateway.address());
        assert!(later.replayed(), "round {round}: {later:?}");
        assert_eq!((later.status, later.text()), (201, "0123456789"));
        assert_eq!(upstream.count(), 1);
    }
}

#[test]
fn o5_the_end_mark_of_a_body_of_unknown_length_waits_for_the_record() {
    let gate = Gate::new();
    let own = gate.clone();
    let upstream = Upstream::start(move |exchange| {
        exchange.send("HTTP/1.1 201 C\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        if exchange.wait(&own) && exchange.send("0\r\n\r\n") { After::Keep } else { After::Close }
    });
    let mut gateway = Gateway::to(upstream.address()).start();
    let mut client = asked(&gateway, "k1");
    client.read_head_to("POST").unwrap();
    assert_eq!(client.wire().read_to(b"abc\r\n").unwrap(), b"3\r\nabc\r\n");
    gate.open();
    assert_eq!(client.wire().read_to(b"0\r\n\r\n").unwrap(), b"0\r\n\r\n");
    gateway.kill();
    gateway.restart();
    let later = keyed("k1").reply(gateway.address());
    assert!(later.replayed() && later.text() == "abc", "{later:?}");
}

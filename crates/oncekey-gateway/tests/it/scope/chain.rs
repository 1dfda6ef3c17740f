//! Gateways behind gateways (S7).

use super::{Gateway, ask, counting, is_problem, is_replay, is_run, keyed};
use crate::rig::{Request, Upstream};

const TRUSTING: &str = "[tenant]\ntrusted_peers = [\"127.0.0.0/8\"]\n";
const RECORD: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[test]
fn s7_a_record_from_a_trusted_peer_passes_through_unkept() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).config(TRUSTING).start();
    let headers = [("Idempotency-Record", RECORD), ("Idempotency-Attempt", "3")];
    for number in 1..=2 {
        let reply = ask(gateway.address(), "/pay", &headers);
        assert_eq!(reply.text(), format!("run {number}"));
        assert!(!reply.headers.has("idempotency-status"), "{reply:?}");
    }
    let seen = upstream.requests().pop().unwrap().headers;
    assert_eq!(seen.text("idempotency-record").unwrap(), RECORD);
    assert_eq!(seen.text("idempotency-attempt").unwrap(), "3");
    assert_eq!(seen.text("idempotency-key").unwrap(), "k");
}

#[test]
fn s7_a_record_from_anybody_else_is_removed_and_the_request_is_kept() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let headers = [("Idempotency-Record", RECORD), ("Idempotency-Attempt", "3")];
    is_run(&ask(gateway.address(), "/pay", &headers), 1);
    is_replay(&ask(gateway.address(), "/pay", &headers), 1);
    let seen = upstream.requests().pop().unwrap().headers;
    assert_ne!(seen.text("idempotency-record").unwrap(), RECORD);
    assert_eq!(seen.all("idempotency-attempt"), [b"1"]);
}

#[test]
fn s7_in_a_chain_the_outer_gateway_keeps_and_the_handler_runs_once() {
    let upstream = counting();
    let inner = Gateway::to(upstream.address()).config(TRUSTING).start();
    let outer = Gateway::to(inner.address()).start();
    let first = ask(outer.address(), "/pay", &[]);
    is_run(&first, 1);
    assert_eq!(first.headers.all("idempotency-status").len(), 1, "{first:?}");
    let second = ask(outer.address(), "/pay", &[]);
    is_replay(&second, 1);
    assert_eq!(second.headers.all("idempotent-replayed"), [b"true"]);
    assert_eq!(upstream.count(), 1);
    let acquired = "oncekey_claims_total{result=\"acquired\"}";
    assert_eq!((outer.metric(acquired), inner.metric(acquired)), (Some(1.0), Some(0.0)));
}

#[test]
fn s7_what_the_handler_says_of_its_run_reaches_the_gateway_that_keeps() {
    let upstream = Upstream::start(|exchange| {
        let said = [("Idempotency-Outcome", "release"), ("Idempotency-Status", "stored")];
        exchange.answer(200, &said, b"nothing happened")
    });
    let inner = Gateway::to(upstream.address()).config(TRUSTING).start();
    let outer = Gateway::to(inner.address()).start();
    for _ in 0..2 {
        let reply = ask(outer.address(), "/pay", &[]);
        assert_eq!(reply.headers.all("idempotency-status"), [b"released"]);
        assert!(!reply.headers.has("idempotency-outcome"), "{reply:?}");
    }
    assert_eq!(upstream.count(), 2);
}

#[test]
fn s7_gateways_that_do_not_know_each_other_both_keep_and_mark_once() {
    let upstream = counting();
    let inner = Gateway::to(upstream.address()).start();
    let outer = Gateway::to(inner.address()).start();
    is_run(&ask(outer.address(), "/pay", &[]), 1);
    // A second way in, with a store of its own: the inner one replays, the outer one runs.
    let other = Gateway::to(inner.address()).start();
    let reply = ask(other.address(), "/pay", &[]);
    is_run(&reply, 1);
    assert!(!reply.headers.has("idempotent-replayed"), "{reply:?}");
    let again = ask(other.address(), "/pay", &[]);
    is_replay(&again, 1);
    assert_eq!(again.headers.all("idempotent-replayed"), [b"true"]);
    assert_eq!(upstream.count(), 1);
}

fn problem(status: u16, kind: &'static str) -> Upstream {
    Upstream::start(move |exchange| {
        let body = format!(r#"{{"type":"{kind}","status":{status}}}"#);
        exchange.answer(status, &[("Content-Type", "application/problem+json")], body.as_bytes())
    })
}

#[test]
fn s7_a_problem_of_our_own_from_below_is_released_and_never_kept() {
    for (status, code) in [(409, "in-progress"), (422, "key-reused"), (410, "key-expired")] {
        let upstream = problem(status, Box::leak(format!("urn:oncekey:problem:{code}").into()));
        let gateway = Gateway::to(upstream.address()).start();
        for _ in 0..2 {
            let reply = ask(gateway.address(), "/pay", &[]);
            assert_eq!((reply.status, reply.idempotency().as_str()), (status, "released"));
        }
        assert_eq!(upstream.count(), 2, "{code}");
    }
}

#[test]
fn s7_an_outcome_unknown_from_below_is_unknown_here() {
    let upstream = problem(409, "urn:oncekey:problem:outcome-unknown");
    let gateway = Gateway::to(upstream.address()).start();
    let first = ask(gateway.address(), "/pay", &[]);
    assert_eq!((first.status, first.idempotency().as_str()), (409, "unknown"));
    is_problem(&ask(gateway.address(), "/pay", &[]), 409, "outcome-unknown");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn s7_somebody_elses_problem_is_an_answer_like_any_other() {
    let upstream = problem(409, "https://shop.example/problems/in-progress");
    let gateway = Gateway::to(upstream.address()).start();
    for status in ["stored", "replayed"] {
        let reply = ask(gateway.address(), "/pay", &[]);
        assert_eq!((reply.status, reply.idempotency().as_str()), (409, status));
    }
    assert_eq!(upstream.count(), 1);
}

#[test]
fn s7_an_inner_gateway_without_its_application_does_not_spoil_the_key() {
    // The inner gateway's own 502 is told to the outer one, which lets the key go.
    let (address, _held) = crate::rig::nowhere();
    let inner = Gateway::to(address).config(TRUSTING).start();
    let outer = Gateway::to(inner.address()).start();
    let request: Request = keyed("/pay", &[]).body("{}");
    for _ in 0..2 {
        let reply = request.reply(outer.address());
        is_problem(&reply, 502, "upstream-unreachable");
        assert_eq!(reply.headers.all("idempotency-status"), [b"released"]);
    }
}

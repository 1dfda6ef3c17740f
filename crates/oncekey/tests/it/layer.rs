//! The layer when nothing fails: keys, scopes, replays, waits, endings.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use oncekey::clock::Clock;
use oncekey::engine::Wait;
use oncekey::fingerprint::Secret;
use oncekey::http::{Endings, Layer, Mode, Policy, Scoping, StatusEnding, StoreBody, Trust};
use oncekey::record::Retention;
use oncekey::store::{MemoryStore, OnUnknown};
use tower::{Layer as _, ServiceExt};

use crate::rig::{Reply, Rig, pay, request};

#[tokio::test]
async fn m1_1_the_first_answer_comes_back_byte_for_byte_and_runs_once() {
    let rig = Rig::new(Policy::default());
    let first = rig.send(pay("k", "header=location:/1", "5 EUR")).await;
    assert_eq!((first.status, first.told()), (201, "stored"));
    assert!(first.header("idempotency-expires").is_some());
    assert!(!first.replayed());
    let second = rig.send(pay("k", "header=location:/1", "5 EUR")).await;
    assert_eq!((second.status, second.told()), (201, "replayed"));
    assert!(second.replayed());
    assert_eq!(second.body, first.body);
    assert_eq!(second.header("location"), Some("/1"));
    assert_eq!(second.header("x-run"), Some("1"));
    assert_eq!(second.header("idempotency-expires"), first.header("idempotency-expires"));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn k6_a_request_without_a_key_passes_unmarked() {
    let rig = Rig::new(Policy::default());
    for run in 1..=2 {
        let reply = rig.send(request("/pay", &[], "5 EUR")).await;
        assert_eq!((reply.status, reply.told()), (201, "-"));
        assert_eq!(rig.app.runs(), run);
    }
}

#[tokio::test]
async fn k7_the_key_is_ignored_where_the_method_is_not_keyed() {
    let rig = Rig::new(Policy::default());
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
        for _ in 0..2 {
            let request = Request::builder().method(method).uri("/pay");
            let request = request.header("idempotency-key", "k").body(Full::default());
            let reply = rig.send(request.expect("a request")).await;
            assert_eq!((reply.status, reply.told()), (201, "ignored"), "{method}");
        }
    }
    assert_eq!(rig.app.runs(), 12);
}

#[tokio::test]
async fn k7_put_and_delete_are_protected_by_configuration() {
    let mut policy = Policy::default();
    policy.methods.push(http::Method::DELETE);
    let rig = Rig::new(policy);
    for told in ["stored", "replayed"] {
        let request = Request::delete("/pay/1").header("idempotency-key", "k");
        let reply = rig.send(request.body(Full::default()).expect("a request")).await;
        assert_eq!(reply.told(), told);
    }
}

#[tokio::test]
async fn m1_3_b83_b85_another_endpoint_is_another_operation() {
    let rig = Rig::new(Policy::default());
    for uri in ["/pay", "/order", "/tickets/1", "/tickets/2"] {
        let reply = rig.send(request(uri, &[("idempotency-key", "k")], "")).await;
        assert_eq!(reply.told(), "stored", "{uri}");
    }
    assert_eq!(rig.app.runs(), 4);
}

#[tokio::test]
async fn s2_tenant_wide_keys_make_another_endpoint_a_mismatch() {
    let mut policy = Policy::default();
    policy.operation = oncekey::http::Operation::Tenant;
    let rig = Rig::new(policy);
    assert_eq!(rig.send(request("/pay", &[("idempotency-key", "k")], "")).await.status, 201);
    let other = rig.send(request("/order", &[("idempotency-key", "k")], "")).await;
    assert_eq!((other.status, other.code().as_str()), (422, "key-reused"));
}

#[tokio::test]
async fn s3_b97_tenants_never_meet_and_are_never_assumed() {
    let tenant = Scoping::by_tenant(|parts| {
        parts.headers.get("tenant").and_then(|value| value.to_str().ok()).map(str::to_owned)
    });
    let clock = Clock::manual();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let rig = Rig::on(store, clock, Policy::default(), tenant);
    for tenant in ["a", "b"] {
        let reply = rig.send(request("/pay", &[("idempotency-key", "k"), ("tenant", tenant)], ""));
        assert_eq!(reply.await.told(), "stored");
    }
    let nobody = rig.send(request("/pay", &[("idempotency-key", "k")], "")).await;
    assert_eq!((nobody.status, nobody.code().as_str()), (400, "missing-tenant"));
    assert_eq!(rig.app.runs(), 2);
}

#[tokio::test]
async fn s6_a_layer_is_made_with_an_explicit_scoping_and_goes_by_it_alone() {
    let clock = Clock::manual();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let on = |scoping| Rig::on(Arc::clone(&store) as _, clock.clone(), Policy::default(), scoping);
    let send = async |rig: &Rig| rig.send(pay("k", "", "")).await;
    let shared = on(Scoping::shared());
    assert_eq!(send(&shared).await.told(), "stored");
    assert_eq!(send(&on(Scoping::shared())).await.told(), "replayed");
    let other = on(Scoping::by_tenant(|_| Some("a".to_owned())));
    assert_eq!(send(&other).await.told(), "stored", "the shared keys are not a tenant's");
    let nobody = on(Scoping::by_tenant(|_| None));
    assert_eq!(send(&nobody).await.code(), "missing-tenant");
    assert_eq!(nobody.app.runs(), 0);
}

#[tokio::test]
async fn s4_a_guessed_key_leaks_nothing() {
    let rig = Rig::new(Policy::default());
    let of = |who: &str| request("/pay", &[("idempotency-key", "k"), ("authorization", who)], "x");
    assert_eq!(rig.send(of("Bearer alice")).await.told(), "stored");
    for who in ["Bearer bob", "Bearer mallory"] {
        let reply = rig.send(of(who)).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "other-principal"));
        assert!(!String::from_utf8_lossy(&reply.body).contains("run 1"));
    }
    let anonymous = rig.send(request("/pay", &[("idempotency-key", "k")], "x")).await;
    assert_eq!(anonymous.status, 403);
    assert_eq!(rig.send(of("Bearer alice")).await.told(), "replayed");
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn s7_a_nested_layer_passes_through_and_our_problems_are_never_kept() {
    let outer = Rig::new(Policy::default());
    let reply = outer.send(pay("k", "type=application/problem+json status=409", "")).await;
    assert_eq!(reply.told(), "stored", "somebody else's problem is an answer like any other");

    let trusting = Scoping::shared().with_trusted(|_| Trust::Trusted);
    let clock = Clock::manual();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let inner = Rig::on(store, clock, Policy::default(), trusting);
    let record = "0".repeat(64);
    for _ in 0..2 {
        let headers = [("idempotency-key", "k"), ("idempotency-record", record.as_str())];
        assert_eq!(inner.send(request("/pay", &headers, "")).await.told(), "-");
    }
    assert_eq!(inner.app.runs(), 2, "the outer layer keeps the record");
    let distrusting = Rig::new(Policy::default());
    let headers = [("idempotency-key", "k"), ("idempotency-record", record.as_str())];
    let reply = distrusting.send(request("/pay", &headers, "")).await;
    assert_eq!(reply.told(), "stored");
    assert_ne!(reply.header("x-record-header"), Some(record.as_str()), "it was removed");
}

#[tokio::test]
async fn s7_a_problem_of_an_inner_layer_releases_or_abandons() {
    for (code, told) in [("draining", "released"), ("outcome-unknown", "unknown")] {
        let rig = Rig::new(Policy::default());
        let inner = tower::service_fn(move |_: Request<_>| async move {
            let problem = oncekey::http::Code::from_name(code).expect("a code");
            let response = oncekey::http::Problem::new(problem).into_response();
            // As it would come over the wire: the extension is lost, the body is not.
            let (mut parts, body) = response.into_parts();
            parts.extensions.clear();
            Ok::<_, std::convert::Infallible>(http::Response::from_parts(parts, Full::new(body)))
        });
        let layer = Layer::new(rig.engine.clone(), Scoping::shared(), Secret::from_bytes([7; 32]));
        let response = layer.layer(inner).oneshot(pay("k", "", "")).await.expect("an answer");
        assert_eq!(response.headers()["idempotency-status"], told, "{code}");
    }
}

#[tokio::test]
async fn c3_b89_a_mismatch_is_told_wherever_the_record_stands() {
    let rig = Rig::new(Policy::default());
    let running = rig.spawn(pay("k", "wait", "a"));
    rig.app.entered().await;
    let reply = rig.send(pay("k", "wait", "b")).await;
    assert_eq!((reply.status, reply.code().as_str()), (422, "key-reused"));
    let first = |reply: &Reply| {
        let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        body["first"].as_str().expect("a word").to_owned()
    };
    assert_eq!(first(&reply), "in-progress");
    rig.app.open();
    running.await.expect("an answer");
    assert_eq!(first(&rig.send(pay("k", "wait", "b")).await), "completed");
    assert_eq!(rig.send(pay("k", "wait", "a")).await.told(), "replayed", "it was not poisoned");
    rig.send(pay("r", "status=500", "a")).await;
    assert_eq!(first(&rig.send(pay("r", "status=500", "b")).await), "retry");
    rig.send(pay("u", "status=504", "a")).await;
    assert_eq!(first(&rig.send(pay("u", "status=504", "b")).await), "unknown");
}

#[tokio::test]
async fn c4_m1_6_a_second_request_waits_and_gets_the_first_answer() {
    let rig = Rig::new(Policy::default());
    let first = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    let second = rig.spawn(pay("k", "wait", ""));
    tokio::task::yield_now().await;
    rig.app.open();
    let (first, second) = (first.await.expect("an answer"), second.await.expect("an answer"));
    assert_eq!((first.told(), second.told()), ("stored", "replayed"));
    assert_eq!(first.body, second.body);
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn c4_a_waiter_is_told_at_the_bound_and_a_rejecting_route_at_once() {
    let rig = Rig::new(Policy::default());
    let _first = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    let second = rig.spawn(pay("k", "wait", ""));
    // The clock is moved until the waiter has seen its bound pass.
    while !second.is_finished() {
        rig.clock.advance(Duration::from_millis(200));
        tokio::task::yield_now().await;
    }
    let reply = second.await.expect("an answer");
    assert_eq!((reply.status, reply.code().as_str()), (409, "in-progress"));
    let seconds: u64 = reply.header("retry-after").expect("a hint").parse().expect("a number");
    assert!((1..=30).contains(&seconds));

    let policy = Policy::default().with(|p| {
        p.wait = Wait::Reject;
    });
    let rig = Rig::new(policy);
    let _first = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    assert_eq!(rig.send(pay("k", "wait", "")).await.status, 409);
}

#[tokio::test]
async fn c4_a_double_click_on_a_handler_that_fails_runs_it_once() {
    let rig = Rig::new(Policy::default());
    let first = rig.spawn(pay("k", "wait status=500", ""));
    rig.app.entered().await;
    let second = rig.spawn(pay("k", "wait status=500", ""));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    rig.clock.advance(Duration::from_millis(50));
    rig.app.open();
    let (first, second) = (first.await.expect("an answer"), second.await.expect("an answer"));
    assert_eq!((first.status, first.told()), (500, "retry"));
    assert_eq!((second.status, second.told()), (500, "retry"), "the same answer");
    assert_eq!(first.body, second.body);
    assert_eq!(rig.app.runs(), 1);
    rig.clock.advance(Duration::from_millis(1));
    rig.app.open();
    let third = rig.send(pay("k", "wait status=500", "")).await;
    assert_eq!(third.header("x-attempt"), Some("2"), "a later request starts the next attempt");
    assert_eq!(rig.app.runs(), 2);
}

#[tokio::test]
async fn c4_a_waiter_runs_the_work_itself_after_a_release() {
    let rig = Rig::new(Policy::default());
    let first = rig.spawn(pay("k", "wait status=429", ""));
    rig.app.entered().await;
    let second = rig.spawn(pay("k", "wait status=429", ""));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    rig.app.gate.add_permits(2);
    let (first, second) = (first.await.expect("an answer"), second.await.expect("an answer"));
    assert_eq!((first.told(), second.told()), ("released", "released"));
    assert_eq!(rig.app.runs(), 2);
    assert_eq!(second.header("x-attempt"), Some("1"), "nothing stayed of the first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c1_b1_of_fifty_requests_one_runs() {
    let rig = Rig::new(Policy::default());
    rig.app.gate.add_permits(1);
    let sent: Vec<_> = (0..50).map(|_| rig.spawn(pay("k", "wait", ""))).collect();
    let mut stored = 0;
    for reply in sent {
        let reply = reply.await.expect("an answer");
        assert_eq!(reply.body, "run 1: ");
        stored += usize::from(reply.told() == "stored");
    }
    assert_eq!((rig.app.runs(), stored), (1, 1));
}

#[tokio::test]
async fn c5_b20_ten_replays_at_once_are_ten_replays() {
    let rig = Rig::new(Policy::default());
    rig.send(pay("k", "", "")).await;
    let sent: Vec<_> = (0..10).map(|_| rig.spawn(pay("k", "", ""))).collect();
    for reply in sent {
        assert_eq!(reply.await.expect("an answer").told(), "replayed");
    }
}

#[tokio::test]
async fn c6_b17_a_held_key_affects_no_other() {
    let rig = Rig::new(Policy::default());
    let _held = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    assert_eq!(rig.send(pay("other", "", "")).await.told(), "stored");
}

#[tokio::test]
async fn o1_the_final_status_decides() {
    let table: [(u16, &str, &str); 17] = [
        (200, "stored", "replayed"),
        (303, "stored", "replayed"),
        (400, "stored", "replayed"),
        (402, "stored", "replayed"),
        (404, "stored", "replayed"),
        (409, "stored", "replayed"),
        (401, "released", "released"),
        (403, "released", "released"),
        (408, "released", "released"),
        (425, "released", "released"),
        (429, "released", "released"),
        (500, "retry", "retry"),
        (503, "retry", "retry"),
        (502, "unknown", "unknown"),
        (504, "unknown", "unknown"),
        (520, "unknown", "unknown"),
        (524, "unknown", "unknown"),
    ];
    for (status, first, second) in table {
        let rig = Rig::new(Policy::default());
        let script = format!("status={status}");
        let reply = rig.send(pay("k", &script, "")).await;
        assert_eq!((reply.status, reply.told()), (status, first));
        rig.clock.advance(Duration::from_millis(1));
        let reply = rig.send(pay("k", &script, "")).await;
        assert_eq!(reply.told(), second, "{status}");
        let runs = if matches!(first, "released" | "retry") { 2 } else { 1 };
        assert_eq!(rig.app.runs(), runs, "{status}");
    }
}

#[tokio::test]
async fn o2_a_route_sets_statuses_and_classes() {
    let endings = Endings::default()
        .with_class(4, StatusEnding::Release)
        .with_class(5, StatusEnding::Unknown)
        .with_status(503, StatusEnding::Retry);
    for (status, told) in [(404, "released"), (500, "unknown"), (503, "retry"), (502, "unknown")] {
        let rig = Rig::new(Policy::default().with(|p| {
            p.endings = endings.clone();
        }));
        let reply = rig.send(pay("k", &format!("status={status}"), "")).await;
        assert_eq!(reply.told(), told, "{status}");
    }
}

#[tokio::test]
async fn o2_the_payment_profile_requires_a_key_and_never_runs_a_5xx_again() {
    let rig = Rig::new(Policy::payment());
    let keyless = rig.send(request("/pay", &[], "")).await;
    assert_eq!((keyless.status, keyless.code().as_str()), (400, "missing-key"));
    assert_eq!(rig.send(pay("k", "status=500", "")).await.told(), "unknown");
    rig.clock.advance(Duration::from_secs(1));
    let again = rig.send(pay("k", "status=500", "")).await;
    assert_eq!((again.status, again.code().as_str()), (409, "outcome-unknown"));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn h_the_stripe_profile_keeps_500_and_answers_400_to_a_reused_key() {
    let rig = Rig::new(Policy::stripe());
    assert_eq!(rig.send(pay("k", "status=500", "a")).await.told(), "stored");
    let again = rig.send(pay("k", "status=500", "a")).await;
    assert_eq!((again.status, again.told()), (500, "replayed"));
    let reused = rig.send(pay("k", "status=500", "b")).await;
    assert_eq!((reused.status, reused.code().as_str()), (400, "key-reused"));
    assert_eq!(rig.send(pay("u", "status=504", "")).await.told(), "unknown");
}

#[tokio::test]
async fn o3_b125_the_handler_decides_by_a_header() {
    for (said, told) in [
        ("keep", "stored"),
        ("retry", "retry"),
        ("release", "released"),
        ("unknown", "unknown"),
        ("maybe", "unknown"),
    ] {
        let rig = Rig::new(Policy::default());
        let reply = rig.send(pay("k", &format!("status=500 outcome={said}"), "")).await;
        assert_eq!(reply.told(), told, "{said}");
        assert!(reply.header("idempotency-outcome").is_none(), "it is for us alone");
    }
}

#[tokio::test]
async fn o3_the_handler_decides_by_an_extension() {
    let rig = Rig::new(Policy::default());
    let inner = tower::service_fn(|_: Request<_>| async {
        let mut response = http::Response::new(Full::<Bytes>::default());
        response.extensions_mut().insert(StatusEnding::Release);
        Ok::<_, std::convert::Infallible>(response)
    });
    let layer = Layer::new(rig.engine.clone(), Scoping::shared(), Secret::from_bytes([7; 32]));
    let response = layer.layer(inner).oneshot(pay("k", "", "")).await.expect("an answer");
    assert_eq!(response.headers()["idempotency-status"], "released");
}

#[tokio::test]
async fn m4_4_the_handler_gets_its_attempt_and_a_key_for_its_provider() {
    let rig = Rig::new(Policy::default());
    let first = rig.send(pay("k", "status=500", "")).await;
    rig.clock.advance(Duration::from_millis(1));
    let second = rig.send(pay("k", "status=500", "")).await;
    assert_eq!((first.header("x-attempt"), second.header("x-attempt")), (Some("1"), Some("2")));
    assert_eq!(first.header("x-provider-key"), second.header("x-provider-key"));
    assert_eq!(first.header("x-provider-key"), first.header("x-record-header"));
}

#[tokio::test]
async fn p2_a_route_may_leave_the_body_out() {
    let rig = Rig::new(Policy::default().with(|p| {
        p.store_body = StoreBody::Omit;
    }));
    let first = rig.send(pay("k", "", "")).await;
    assert_eq!(&first.body[..], b"run 1: ");
    let second = rig.send(pay("k", "", "")).await;
    assert!(second.body.is_empty());
    assert_eq!(second.header("idempotency-body"), Some("omitted"));
}

#[tokio::test]
async fn p3_b112_a_large_answer_goes_out_whole_and_is_never_run_again() {
    let rig = Rig::new(Policy::default().with(|p| {
        p.max_response_body = 1_000;
    }));
    let first = rig.send(pay("k", "big=5000", "")).await;
    assert_eq!((first.body.len(), first.whole), (5_000, true));
    let second = rig.send(pay("k", "big=5000", "")).await;
    assert_eq!((second.status, second.body.len(), second.told()), (201, 0, "replayed"));
    assert_eq!(second.header("idempotency-body"), Some("omitted"));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn t1_an_answer_is_kept_for_its_retention_and_then_the_key_is_new() {
    let keep = Duration::from_secs(15 * 60);
    let rig = Rig::new(Policy::default().with(|p| {
        p.retention = Retention::keep(keep);
    }));
    rig.send(pay("k", "", "")).await;
    rig.clock.advance(keep - Duration::from_micros(1));
    assert_eq!(rig.send(pay("k", "", "")).await.told(), "replayed");
    rig.clock.advance(Duration::from_micros(1));
    assert_eq!(rig.send(pay("k", "", "")).await.told(), "stored");
    assert_eq!(rig.app.runs(), 2);
}

#[tokio::test]
async fn t2_b71_a_tombstone_refuses_the_key_without_running() {
    let rig = Rig::new(Policy::payment());
    rig.send(pay("k", "", "")).await;
    rig.clock.advance(Duration::from_secs(25 * 3600));
    let reply = rig.send(pay("k", "", "")).await;
    assert_eq!((reply.status, reply.code().as_str()), (410, "key-expired"));
    let other = rig.send(pay("k", "", "other")).await;
    assert_eq!((other.status, other.code().as_str()), (422, "key-reused"));
    rig.clock.advance(Duration::from_secs(31 * 24 * 3600));
    assert_eq!(rig.send(pay("k", "", "")).await.told(), "stored");
    assert_eq!(rig.app.runs(), 2);
}

#[tokio::test]
async fn u1_u4_an_unknown_outcome_is_held_and_never_becomes_new() {
    let rig = Rig::new(Policy::default());
    assert_eq!(rig.send(pay("k", "status=504", "")).await.told(), "unknown");
    for _ in 0..3 {
        rig.clock.advance(Duration::from_secs(30 * 24 * 3600));
        let reply = rig.send(pay("k", "status=504", "")).await;
        assert_eq!((reply.status, reply.code().as_str()), (409, "outcome-unknown"));
        assert_eq!(reply.told(), "unknown");
    }
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn u1_where_nobody_can_be_asked_an_unknown_outcome_is_held() {
    let rig = Rig::new(Policy::default().with(|p| {
        p.on_unknown = OnUnknown::Ask;
    }));
    assert_eq!(rig.send(pay("k", "status=504", "")).await.told(), "unknown");
    rig.clock.advance(Duration::from_millis(1));
    let reply = rig.send(pay("k", "status=504", "")).await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "outcome-unknown"));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn u1_a_route_may_run_an_unknown_one_again() {
    let rig = Rig::new(Policy::default().with(|p| {
        p.on_unknown = OnUnknown::TakeOver;
    }));
    rig.send(pay("k", "status=504", "")).await;
    rig.clock.advance(Duration::from_millis(1));
    let reply = rig.send(pay("k", "status=504", "")).await;
    assert_eq!(reply.header("x-attempt"), Some("2"));
    assert_eq!(rig.app.runs(), 2);
}

#[tokio::test]
async fn a8_observing_never_blocks_and_never_replays() {
    let rig = Rig::new(Policy::default().with(|p| {
        p.mode = Mode::Observe;
    }));
    assert_eq!(rig.send(pay("k", "", "a")).await.status, 201);
    for (key, body) in [("k", "a"), ("k", "b"), ("a b", "a")] {
        let reply = rig.send(pay(key, "", body)).await;
        assert_eq!(reply.status, 201, "{key} {body}");
        assert!(!reply.replayed());
    }
    assert_eq!(rig.app.runs(), 4);
    let held = rig.spawn(pay("h", "wait", ""));
    for _ in 0..5 {
        rig.app.entered().await;
    }
    assert_eq!(rig.send(pay("h", "", "")).await.status, 201, "nobody waits");
    rig.app.open();
    held.await.expect("an answer");
}

#[tokio::test]
async fn h_our_headers_are_removed_from_both_sides() {
    let rig = Rig::new(Policy::default());
    let script = "header=idempotency-status:lie header=idempotent-replayed:true";
    let reply = rig.send(request("/pay", &[("x-do", script)], "")).await;
    assert_eq!(reply.told(), "-");
    assert!(!reply.replayed());
    let reply = rig.send(pay("k", script, "")).await;
    assert_eq!(reply.told(), "stored");
    assert!(!reply.replayed());
}

#[tokio::test]
async fn u5_a_draining_engine_refuses_new_keys_and_lets_waiters_go() {
    let rig = Rig::new(Policy::default());
    let running = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    let waiting = rig.spawn(pay("k", "wait", ""));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    rig.engine.drain();
    let waited = waiting.await.expect("an answer");
    assert_eq!((waited.status, waited.code().as_str()), (503, "draining"));
    let refused = rig.send(pay("new", "", "")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "draining"));
    let stopping = tokio::spawn({
        let engine = rig.engine.clone();
        async move { engine.stop(Duration::from_secs(25)).await }
    });
    rig.app.open();
    assert_eq!(running.await.expect("an answer").told(), "stored", "running work is finished");
    assert_eq!(stopping.await.expect("a number"), 0);
}

#[tokio::test]
async fn u5_what_a_stop_cuts_off_becomes_unknown() {
    let rig = Rig::new(Policy::default());
    let _running = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    assert_eq!(rig.engine.stop(Duration::from_millis(10)).await, 1);
    let after =
        Rig::on(Arc::clone(&rig.store), rig.clock.clone(), Policy::default(), Scoping::shared());
    assert_eq!(after.send(pay("k", "wait", "")).await.code(), "outcome-unknown");
}

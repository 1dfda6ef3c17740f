//! Crashes, time-outs, cancellation and stale claims (B22 to B44), on each store.
//!
//! Elsewhere: B32, a body that breaks off, with the reader of requests and through the gateway's
//! sockets; B33, a claim that nobody can free, with the tools for people. The futures of the layer
//! are dropped at every await in [`cases_dropped`](super::cases_dropped) (B28, B29).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncekey::engine::{Begun, RunEnded, Wait};
use oncekey::fingerprint::{Fingerprint, Recipe};
use oncekey::http::Policy;
use oncekey::record::{Outcome, Retention, Standing, Why};
use oncekey::store::{
    By, Change, Changed, Claim, Claimed, Ending, Filter, Held, OnUnknown, StoreErrorKind,
};

use crate::bed::{Bed, begin, on_each_store, run, until};
use crate::engine::{DAY, LEASE, claim, done, why};
use crate::faulty::{Call, Fault};
use crate::rig::pay;

const MICRO: Duration = Duration::from_micros(1);

on_each_store! {
    l1_b22_a_lease_and_a_retention_of_nothing_are_over_at_once
    l1_b22_b43_no_duration_is_too_long
    l1_b22_a_lease_of_nothing_keeps_no_other_from_its_renewal
    l4_b23_a_lease_and_a_retention_end_at_their_microsecond
    l6_b25_b31_b41_after_the_effect_no_way_to_fail_runs_it_again_or_leaves_it_open
    t1_b26_after_its_retention_a_key_is_new_and_nothing_is_left
    o4_b30_what_gives_up_before_the_send_is_free_and_after_it_is_unknown
    l1_b34_b38_a_slow_run_keeps_a_lease_of_any_length
    c3_b35_a_takeover_keeps_the_fingerprint_and_a_mismatch_comes_first
    o6_b37_an_outcome_that_cannot_be_stored_is_stored_later_or_unknown_and_never_new
    o4_b40_what_comes_after_the_time_out_is_kept_with_status_headers_and_type
    l1_b43_a_claim_that_nobody_ends_is_unknown_and_can_be_resolved
    c2_b19_b44_a_claim_finds_itself_while_nobody_ended_it
}

fn taking_over(key: &str) -> Claim {
    Claim { on_unknown: OnUnknown::TakeOver, ..claim(key) }
}

fn reject() -> Policy {
    Policy::default().with(|policy| policy.wait = Wait::Reject)
}

/// Returns once the keeper knows of the renewal that is written: the next is due from then on.
async fn settled(bed: &Bed, key: &str) {
    // Answers come in the order of their calls.
    let told = bed.store.claim(&claim(key)).await;
    assert!(matches!(told, Ok(Claimed::InProgress { .. } | Claimed::Mismatch { .. })), "{told:?}");
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn l1_b22_a_lease_and_a_retention_of_nothing_are_over_at_once(bed: Bed) {
    for (at, nothing) in [Duration::ZERO, Duration::from_nanos(1)].into_iter().enumerate() {
        let key = |name: &str| format!("{name}{at}");
        let dead = bed.acquire(&Claim { lease: nothing, ..claim(&key("lease")) }).await;
        let told = bed.store.claim(&claim(&key("lease"))).await;
        assert!(matches!(told, Ok(Claimed::Unknown { why: Why::LeaseEnded, .. })), "{told:?}");
        assert_eq!(bed.acquire(&taking_over(&key("lease"))).await.attempt, 2);
        let late = bed.store.complete(&dead, &done(), DAY).await;
        assert!(matches!(late, Ok(Held::Lost { .. })), "{late:?}");

        let lease = bed.acquire(&claim(&key("renew"))).await;
        let held = bed.store.renew(&lease, nothing, None).await;
        assert!(matches!(held, Ok(Held::Ours { .. })), "{held:?}");
        assert_eq!(bed.standing(&key("renew")).await, Some(Standing::Unknown));

        let lease = bed.acquire(&claim(&key("complete"))).await;
        let held = bed.store.complete(&lease, &done(), Retention::keep(nothing)).await;
        assert!(matches!(held, Ok(Held::Ours { .. })), "{held:?}");
        assert_eq!(bed.acquire(&claim(&key("complete"))).await.attempt, 1, "it is a new key");

        let lease = bed.acquire(&claim(&key("retry"))).await;
        let how = Ending::Retry { status: 500, keep: Retention::keep(nothing) };
        assert!(matches!(bed.store.end(&lease, how).await, Ok(Held::Ours { .. })));
        assert_eq!(bed.acquire(&claim(&key("retry"))).await.attempt, 1);
    }
}

async fn l1_b22_b43_no_duration_is_too_long(bed: Bed) {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let ever = Duration::MAX;
    let lease = bed.acquire(&Claim { lease: ever, horizon: ever, ..claim("held") }).await;
    let how = Ending::Unknown { why: Why::Abandoned, after: ever };
    let closed = bed.acquire(&claim("closed")).await;
    assert!(matches!(bed.store.end(&closed, how).await, Ok(Held::Ours { .. })));
    let kept = bed.acquire(&claim("kept")).await;
    let keep = Retention { keep: ever, tombstone: ever };
    assert!(matches!(bed.store.complete(&kept, &done(), keep).await, Ok(Held::Ours { .. })));
    bed.clock.advance(CENTURY);
    let old = Claim { age: ever, ..claim("held") };
    let told = bed.store.claim(&old).await;
    assert!(matches!(told, Ok(Claimed::InProgress { .. })), "{told:?}");
    let told = bed.store.claim(&taking_over("closed")).await;
    assert!(matches!(told, Ok(Claimed::Unknown { .. })), "{told:?}");
    let told = bed.store.claim(&claim("kept")).await;
    assert!(matches!(told, Ok(Claimed::Completed { .. })), "{told:?}");
    // Whoever waits for ever is still woken.
    let seen = bed.record("held").await.expect("a record").version;
    let store = Arc::clone(&bed.store);
    let waiter = tokio::spawn(async move { store.changed(&lease.id, seen, ever).await });
    let held = bed.store.complete(&lease, &done(), DAY).await;
    assert!(matches!(held, Ok(Held::Ours { .. })), "{held:?}");
    waiter.await.expect("no panic").expect("no trouble");
}

async fn l1_b22_a_lease_of_nothing_keeps_no_other_from_its_renewal(bed: Bed) {
    let store = bed.faulty();
    let engine = bed.engine_on(Arc::clone(&store) as _);
    let mut dead = Vec::new();
    for (at, lease) in [Duration::ZERO, Duration::from_nanos(5), MICRO].into_iter().enumerate() {
        dead.push(run(&engine, Claim { lease, ..claim(&format!("dead{at}")) }).await);
    }
    let alive = run(&engine, claim("alive")).await;
    for _ in 0..6 {
        bed.clock.advance(LEASE / 3);
        let fresh = bed.clock.now().after(LEASE);
        let renewed = async || {
            let record = bed.record("alive").await.expect("a record");
            record.state == oncekey::record::State::InProgress { lease_until: fresh }
        };
        until("the living one is renewed", renewed).await;
        settled(&bed, "alive").await;
    }
    assert!(matches!(alive.complete(done(), DAY).await, RunEnded::Stored { .. }));
    bed.clock.advance(MICRO);
    for (at, dead) in dead.into_iter().enumerate() {
        assert_eq!(bed.standing(&format!("dead{at}")).await, Some(Standing::Unknown));
        assert!(matches!(dead.complete(done(), DAY).await, RunEnded::Stored { .. }));
    }
    let renewals = store.calls(Call::Renew);
    assert!(renewals < 1_000, "{renewals} renewals in six turns");
}

async fn l4_b23_a_lease_and_a_retention_end_at_their_microsecond(bed: Bed) {
    let mut lengths: Vec<Duration> = [1, 999, 1_000, 999_999, 1_000_000, 30_000_000, 900_000_001]
        .map(Duration::from_micros)
        .into();
    lengths.extend([3_600, 86_399, 86_400, 7 * 86_400, 400 * 86_400].map(Duration::from_secs));
    lengths.extend((1..20_u64).map(|n| Duration::from_micros(n.pow(7) * 7_919)));
    for (at, length) in lengths.into_iter().enumerate() {
        let [lease, kept] = [format!("lease{at}"), format!("kept{at}")];
        let _ = bed.acquire(&Claim { lease: length, ..claim(&lease) }).await;
        let ended = bed.acquire(&claim(&kept)).await;
        let held = bed.store.complete(&ended, &done(), Retention::keep(length)).await;
        assert!(matches!(held, Ok(Held::Ours { .. })), "{held:?}");
        bed.clock.advance(length - MICRO);
        let told = bed.store.claim(&taking_over(&lease)).await;
        assert!(matches!(told, Ok(Claimed::InProgress { .. })), "{length:?}: {told:?}");
        let told = bed.store.claim(&claim(&kept)).await;
        assert!(matches!(told, Ok(Claimed::Completed { .. })), "{length:?}: {told:?}");
        bed.clock.advance(MICRO);
        let told = bed.store.claim(&claim(&lease)).await;
        assert!(matches!(told, Ok(Claimed::Unknown { .. })), "{length:?}: {told:?}");
        bed.clock.advance(MICRO);
        assert_eq!(bed.acquire(&taking_over(&lease)).await.attempt, 2, "{length:?}");
        assert_eq!(bed.acquire(&claim(&kept)).await.attempt, 1, "{length:?}");
    }
}

async fn l6_b25_b31_b41_after_the_effect_no_way_to_fail_runs_it_again_or_leaves_it_open(bed: Bed) {
    let ways = ["error", "panic", "broken", "status=504", "status=500", "status=503 broken"];
    for way in ways {
        let rig = bed.rig(Policy::payment().with(|policy| policy.wait = Wait::Reject));
        let key = way.replace(' ', "-");
        let _ = tower::ServiceExt::oneshot(rig.service.clone(), pay(&key, way, "")).await;
        for _ in 0..3 {
            let again = rig.send(pay(&key, "", "")).await;
            assert_eq!((again.status, again.code().as_str()), (409, "outcome-unknown"), "{way}");
        }
        assert_eq!(rig.app.runs(), 1, "{way}");
        // A handler that is known to bear it is run again, as the next attempt.
        bed.clock.advance(Duration::from_secs(1));
        let again = bed.rig(reject().with(|policy| policy.on_unknown = OnUnknown::TakeOver));
        let reply = again.send(pay(&key, "", "")).await;
        assert_eq!((reply.told(), reply.header("x-attempt")), ("stored", Some("2")), "{way}");
    }
}

async fn t1_b26_after_its_retention_a_key_is_new_and_nothing_is_left(bed: Bed) {
    let keep = Retention::keep(Duration::from_secs(60));
    let rig = bed.rig(Policy::default().with(|policy| policy.retention = keep));
    for round in 1..=5 {
        assert_eq!(rig.send(pay("k", "", "")).await.header("x-attempt"), Some("1"));
        assert_eq!(rig.send(pay("k", "", "")).await.told(), "replayed");
        assert_eq!(rig.app.runs(), round);
        bed.clock.advance(Duration::from_secs(60));
    }
    assert_eq!(bed.record("k").await, None);
    bed.clock.advance(Duration::from_secs(24 * 3600));
    bed.store.purge_expired(100).await.expect("no trouble");
    let page = bed.store.list(&Filter::default(), None, 100).await.expect("a page");
    assert!(page.records.is_empty() && page.unreadable == 0);
    assert_eq!(bed.store.purge_expired(100).await.expect("no trouble"), 0, "nothing is left");
}

async fn o4_b30_what_gives_up_before_the_send_is_free_and_after_it_is_unknown(bed: Bed) {
    let engine = bed.engine_on(Arc::clone(&bed.store) as _);
    let charges = AtomicUsize::new(0);
    let held = run(&engine, claim("before")).await;
    assert!(matches!(held.release().await, RunEnded::Stored { .. }));
    let held = run(&engine, claim("before")).await;
    assert_eq!(held.lease().attempt, 1, "nothing happened");
    charges.fetch_add(1, Ordering::SeqCst);
    assert!(matches!(held.complete(done(), DAY).await, RunEnded::Stored { .. }));

    let held = run(&engine, claim("after")).await;
    let count = Arc::new(AtomicUsize::new(0));
    let work = engine.spawn({
        let count = Arc::clone(&count);
        async move {
            let _held = held;
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
    });
    until("it was sent", async || count.load(Ordering::SeqCst) == 1).await;
    work.abort();
    until("it is unknown", async || why(bed.record("after").await).is_some()).await;
    for _ in 0..3 {
        let again = begin(&engine, claim("after")).await;
        assert!(matches!(again, Ok(Begun::Unknown { .. })), "{again:?}");
    }
    let replay = begin(&engine, claim("before")).await;
    assert!(matches!(replay, Ok(Begun::Replay { .. })), "{replay:?}");
    assert_eq!((charges.into_inner(), count.load(Ordering::SeqCst)), (1, 1));
}

async fn l1_b34_b38_a_slow_run_keeps_a_lease_of_any_length(bed: Bed) {
    for lease in [3, 30, 300].map(Duration::from_secs) {
        let key = format!("k{}", lease.as_secs());
        let store = bed.faulty();
        let rig = bed.rig_on(
            Arc::clone(&store) as _,
            reject().with(|p| {
                p.lease = lease;
                p.max_run = Duration::from_secs(24 * 3600);
            }),
        );
        let slow = rig.spawn(pay(&key, "wait", ""));
        rig.app.entered().await;
        let other = bed.rig(reject().with(|p| p.on_unknown = OnUnknown::TakeOver));
        // Three leases long: by its age alone it would have been taken over.
        for turn in 1..=9 {
            bed.clock.advance(lease / 3);
            until("it is renewed", async || store.calls(Call::Renew) >= turn).await;
            until("the renewal holds", async || {
                bed.standing(&key).await == Some(Standing::InProgress)
            })
            .await;
            assert_eq!(other.send(pay(&key, "", "")).await.code(), "in-progress", "{lease:?}");
            settled(&bed, &key).await;
        }
        rig.app.open();
        assert_eq!(slow.await.expect("an answer").told(), "stored");
        assert_eq!(other.send(pay(&key, "", "")).await.told(), "replayed");
        assert_eq!((rig.app.runs(), other.app.runs()), (1, 0), "{lease:?}");
    }
}

async fn c3_b35_a_takeover_keeps_the_fingerprint_and_a_mismatch_comes_first(bed: Bed) {
    let other = |key: &str| {
        let fingerprint = Fingerprint::from_parts(Recipe::from_number(1), [1; 32]);
        Claim { fingerprint, ..taking_over(key) }
    };
    for left in ["lapsed", "unknown", "retry"] {
        let lease = bed.acquire(&claim(left)).await;
        let how = match left {
            "unknown" => Some(Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO }),
            "retry" => Some(Ending::Retry { status: 500, keep: DAY }),
            _ => None,
        };
        if let Some(how) = how {
            assert!(matches!(bed.store.end(&lease, how).await, Ok(Held::Ours { .. })));
        }
        bed.clock.advance(LEASE);
        let before = bed.record(left).await;
        let told = bed.store.claim(&other(left)).await;
        assert!(matches!(told, Ok(Claimed::Mismatch { .. })), "{left}: {told:?}");
        assert_eq!(bed.record(left).await, before, "{left}: it took nothing and wrote nothing");
        // By another recipe it counts as equal (F1), and is still not what was first.
        let fingerprint = Fingerprint::from_parts(Recipe::from_number(2), [5; 32]);
        let lease = bed.acquire(&Claim { fingerprint, ..taking_over(left) }).await;
        let taken = bed.record(left).await.expect("a record");
        assert_eq!(taken.fingerprint, claim(left).fingerprint, "{left}");
        assert!(matches!(bed.store.complete(&lease, &done(), DAY).await, Ok(Held::Ours { .. })));
        let told = bed.store.claim(&other(left)).await;
        assert!(matches!(told, Ok(Claimed::Mismatch { .. })), "{left}: {told:?}");
        let told = bed.store.claim(&claim(left)).await;
        assert!(matches!(told, Ok(Claimed::Completed { .. })), "{left}: {told:?}");
    }
}

/// A run whose outcome the store refuses for ever, as it is told; the answer reaches the client.
async fn unstored(bed: &Bed, key: &str, fault: Fault) {
    let store = bed.faulty();
    let rig = bed.rig_on(Arc::clone(&store) as _, reject());
    for _ in 0..1_000 {
        store.fail(Call::Complete, fault);
        store.fail(Call::Renew, Fault::Before(StoreErrorKind::Unavailable));
    }
    let reply = rig.send(pay(key, "", "")).await;
    assert_eq!((reply.status, reply.told()), (201, "unstored"), "{fault:?}");
    let other = bed.rig(reject());
    assert_eq!(other.send(pay(key, "", "")).await.code(), "in-progress", "{fault:?}");
    bed.clock.advance(LEASE);
    for _ in 0..3 {
        assert_eq!(other.send(pay(key, "", "")).await.code(), "outcome-unknown", "{fault:?}");
    }
    store.heal();
    let id = claim(key).id;
    let is_final =
        matches!(fault, Fault::Before(StoreErrorKind::OutOfBounds | StoreErrorKind::Unreadable));
    if is_final {
        bed.clock.advance(Duration::from_secs(3600));
        assert_eq!(bed.standing(key).await, Some(Standing::Unknown), "{fault:?}");
        // What is out of bounds is tried without its body in between.
        let tries = if fault == Fault::Before(StoreErrorKind::OutOfBounds) { 3 } else { 2 };
        assert_eq!(store.calls(Call::Complete), tries, "{fault:?} is final, once it is said twice");
    } else {
        until("it is stored in the background", async || {
            bed.clock.advance(Duration::from_secs(1));
            let record = bed.store.get(&id).await.expect("it can be read").expect("never gone");
            record.standing(bed.clock.now()) == Standing::Completed
        })
        .await;
        assert_eq!(other.send(pay(key, "", "")).await.told(), "replayed", "{fault:?}");
    }
    assert_eq!((rig.app.runs(), other.app.runs()), (1, 0), "{fault:?}");
}

async fn o6_b37_an_outcome_that_cannot_be_stored_is_stored_later_or_unknown_and_never_new(
    bed: Bed,
) {
    for (at, fault) in [
        Fault::Before(StoreErrorKind::Unavailable),
        Fault::Before(StoreErrorKind::Timeout),
        Fault::Before(StoreErrorKind::OutOfBounds),
        Fault::Before(StoreErrorKind::Unreadable),
    ]
    .into_iter()
    .enumerate()
    {
        unstored(&bed, &format!("k{at}"), fault).await;
    }
}

async fn o4_b40_what_comes_after_the_time_out_is_kept_with_status_headers_and_type(bed: Bed) {
    let rig = bed.rig(reject().with(|p| p.timeout = Some(Duration::from_millis(20))));
    let script = "wait status=202 type=text/csv header=location:/orders/1";
    let first = rig.send(pay("k", script, "")).await;
    assert_eq!((first.status, first.code().as_str()), (504, "outcome-unknown"));
    assert_eq!(rig.send(pay("k", script, "")).await.code(), "in-progress", "504 is not kept");
    bed.clock.advance(Duration::from_secs(10));
    rig.app.open();
    until("it is kept", async || bed.standing("k").await == Some(Standing::Completed)).await;
    let replay = rig.send(pay("k", script, "")).await;
    assert_eq!((replay.status, replay.told()), (202, "replayed"));
    assert_eq!(replay.header("content-type"), Some("text/csv"));
    assert_eq!(replay.header("location"), Some("/orders/1"));
    assert_eq!((&replay.body[..], rig.app.runs()), (&b"run 1: "[..], 1));
}

async fn l1_b43_a_claim_that_nobody_ends_is_unknown_and_can_be_resolved(bed: Bed) {
    let store = bed.faulty();
    let rig = bed.rig_on(Arc::clone(&store) as _, reject());
    // The record cannot be read when the handler has panicked: nobody will ever say how it ended.
    for _ in 0..2 {
        store.fail(Call::End, Fault::Before(StoreErrorKind::Unreadable));
    }
    assert_eq!(rig.send(pay("k", "panic", "")).await.status, 500);
    assert_eq!(rig.send(pay("k", "", "")).await.code(), "in-progress");
    bed.clock.advance(LEASE);
    assert_eq!(rig.send(pay("k", "", "")).await.code(), "outcome-unknown");
    let record = bed.record("k").await.expect("a record");
    let by = By { who: "ann".into(), reason: "nothing was booked".into() };
    let made = bed.store.change(&record.id, record.version, Change::Release, &by).await;
    assert!(matches!(made, Ok(Changed::Made(_))), "{made:?}");
    assert_eq!(rig.send(pay("k", "", "")).await.told(), "stored");
    assert_eq!(rig.app.runs(), 2);
}

async fn c2_b19_b44_a_claim_finds_itself_while_nobody_ended_it(bed: Bed) {
    let first = claim("k");
    for _ in 0..3 {
        assert_eq!(bed.acquire(&first).await.attempt, 1);
        // Also after its lease has ended.
        bed.clock.advance(LEASE);
    }
    let lease = bed.acquire(&first).await;
    bed.clock.advance(LEASE);
    assert_eq!(bed.acquire(&taking_over("k")).await.attempt, 2);
    let told = bed.store.claim(&first).await;
    assert!(matches!(told, Ok(Claimed::InProgress { .. })), "it is theirs now: {told:?}");
    let late = bed.store.complete(&lease, &Outcome::default(), DAY).await;
    assert!(matches!(late, Ok(Held::Lost { attempt: Some(2) })), "{late:?}");

    let given_up = taking_over("given up");
    let lease = bed.acquire(&given_up).await;
    let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
    assert!(matches!(bed.store.end(&lease, how).await, Ok(Held::Ours { .. })));
    bed.clock.advance(LEASE);
    let copy = bed.store.claim(&given_up).await;
    assert!(matches!(copy, Ok(Claimed::Unknown { .. })), "one token is one attempt: {copy:?}");
}

#[cfg(feature = "embedded")]
#[tokio::test]
async fn c2_b44_a_claim_finds_itself_when_the_store_was_opened_again() {
    use oncekey::store::Store;

    let rig = crate::embedded::Rig::new();
    let (first, given_up) = (claim("k"), taking_over("given up"));
    let Ok(Claimed::Acquired(_)) = rig.store.claim(&first).await else { panic!("no lease") };
    let Ok(Claimed::Acquired(lease)) = rig.store.claim(&given_up).await else { panic!("none") };
    let how = Ending::Unknown { why: Why::Panicked, after: Duration::ZERO };
    assert!(matches!(rig.store.end(&lease, how).await, Ok(Held::Ours { .. })));
    let rig = rig.reopen(|_| {});
    let told = rig.store.claim(&claim("k")).await;
    assert!(matches!(told, Ok(Claimed::Unknown { why: Why::ProcessEnded, .. })), "{told:?}");
    let again = rig.store.claim(&first).await;
    let Ok(Claimed::Acquired(lease)) = again else { panic!("its own: {again:?}") };
    assert_eq!(lease.attempt, 1);
    let held = rig.store.complete(&lease, &done(), DAY).await;
    assert!(matches!(held, Ok(Held::Ours { .. })), "{held:?}");
    rig.clock.advance(Duration::from_secs(1));
    let copy = rig.store.claim(&given_up).await;
    assert!(matches!(copy, Ok(Claimed::Unknown { why: Why::Panicked, .. })), "{copy:?}");
}

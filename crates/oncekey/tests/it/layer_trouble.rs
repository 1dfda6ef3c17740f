//! The layer when the store is in trouble (X1, X2, X4, O6, L1, L3, L5).

use std::sync::Arc;
use std::time::Duration;

use oncekey::clock::Clock;
use oncekey::http::{Policy, Scoping, StoreDown};
use oncekey::store::{MemoryStore, StoreErrorKind};

use crate::faulty::{Call, Fault, Faulty};
use crate::rig::{Rig, pay};

fn rig(policy: Policy) -> (Rig, Arc<Faulty>) {
    let clock = Clock::manual();
    let memory = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let store = Arc::new(Faulty::new(memory));
    (Rig::on(Arc::clone(&store) as _, clock, policy, Scoping::shared()), store)
}

#[tokio::test]
async fn x1_x2_no_error_of_the_store_runs_anything() {
    for (kind, code) in [
        (StoreErrorKind::Unavailable, "store-unavailable"),
        (StoreErrorKind::Timeout, "store-unavailable"),
        (StoreErrorKind::Full, "store-full"),
        (StoreErrorKind::Unreadable, "record-unreadable"),
        (StoreErrorKind::OutOfBounds, "store-unavailable"),
    ] {
        let (rig, store) = rig(Policy::default());
        store.fail(Call::Claim, Fault::Before(kind));
        let reply = rig.send(pay("k", "", "")).await;
        assert_eq!((reply.status, reply.code().as_str()), (503, code));
        assert!(reply.header("retry-after").is_some());
        assert_eq!(rig.app.runs(), 0, "{kind:?}");
    }
}

#[tokio::test]
async fn x1_an_insecure_route_runs_unprotected_but_never_after_a_time_out() {
    let insecure = || {
        Policy::default().with(|p| {
            p.store_down = StoreDown::InsecurePassThrough;
        })
    };
    let (rig_, store) = rig(insecure());
    store.fail(Call::Claim, Fault::Before(StoreErrorKind::Unavailable));
    let reply = rig_.send(pay("k", "", "")).await;
    assert_eq!((reply.status, reply.told()), (201, "degraded"));
    assert_eq!(rig_.app.runs(), 1);

    let (rig_, store) = rig(insecure());
    store.fail(Call::Claim, Fault::After(StoreErrorKind::Timeout));
    assert_eq!(rig_.send(pay("k", "", "")).await.status, 503);
    assert_eq!(rig_.app.runs(), 0);
}

#[tokio::test]
async fn c2_b19_a_claim_whose_answer_is_lost_is_taken_back() {
    let (rig, store) = rig(Policy::default());
    store.fail(Call::Claim, Fault::After(StoreErrorKind::Timeout));
    store.fail(Call::End, Fault::Before(StoreErrorKind::Unavailable));
    assert_eq!(rig.send(pay("k", "", "")).await.status, 503);
    // The release is tried again until the store answers; the clock is moved past its pause.
    rig.until("the release was tried twice", || {
        rig.clock.advance(Duration::from_millis(100));
        store.is_spent()
    })
    .await;
    let mut reply = rig.send(pay("k", "", "")).await;
    for _ in 0..100 {
        if reply.status != 409 {
            break;
        }
        rig.clock.advance(Duration::from_millis(100));
        reply = rig.send(pay("k", "", "")).await;
    }
    assert_eq!((reply.status, reply.told()), (201, "stored"));
    assert_eq!(reply.header("x-attempt"), Some("1"));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn x4_an_outcome_whose_reply_was_lost_is_kept_once() {
    let (rig, store) = rig(Policy::default());
    store.fail(Call::Complete, Fault::After(StoreErrorKind::Timeout));
    let moving = tokio::spawn({
        let clock = rig.clock.clone();
        async move {
            loop {
                clock.advance(Duration::from_millis(10));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let reply = rig.send(pay("k", "", "")).await;
    moving.abort();
    assert_eq!((reply.status, reply.told()), (201, "stored"), "the second try found the first");
    assert_eq!(rig.send(pay("k", "", "")).await.told(), "replayed");
}

#[tokio::test(start_paused = true)]
async fn o6_b37_an_answer_that_cannot_be_stored_still_reaches_the_client() {
    let (rig, store) = rig(Policy::default());
    for _ in 0..3 {
        store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    }
    let reply = rig.send(pay("k", "", "")).await;
    assert_eq!((reply.status, reply.told()), (201, "unstored"));
    // The claim stands: nobody runs it again meanwhile.
    let policy = Policy::default().with(|p| {
        p.wait = oncekey::engine::Wait::Reject;
    });
    let other = Rig::on(Arc::clone(&rig.store), rig.clock.clone(), policy, Scoping::shared());
    assert_eq!(other.send(pay("k", "", "")).await.code(), "in-progress");
    // In the background it is tried until it is stored.
    let mut reply = other.send(pay("k", "", "")).await;
    for _ in 0..200 {
        if reply.replayed() {
            break;
        }
        rig.clock.advance(Duration::from_millis(200));
        tokio::time::sleep(Duration::from_millis(1)).await;
        reply = other.send(pay("k", "", "")).await;
    }
    assert_eq!(reply.told(), "replayed");
    assert_eq!((rig.app.runs(), other.app.runs()), (1, 0));
}

#[tokio::test]
async fn l1_l5_b50_a_lease_is_renewed_while_the_work_runs_and_a_failed_renewal_is_no_loss() {
    let (rig, store) = rig(Policy::default());
    store.fail(Call::Renew, Fault::Before(StoreErrorKind::Unavailable));
    let running = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    // Ten minutes, four seconds at a time: far more than the lease of 30 seconds.
    for _ in 0..150 {
        rig.clock.advance(Duration::from_secs(4));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert!(store.is_spent(), "a renewal failed on the way");
    let policy = Policy::default().with(|p| {
        p.wait = oncekey::engine::Wait::Reject;
    });
    let other = Rig::on(Arc::clone(&rig.store), rig.clock.clone(), policy, Scoping::shared());
    assert_eq!(other.send(pay("k", "wait", "")).await.code(), "in-progress");
    rig.app.open();
    assert_eq!(running.await.expect("an answer").told(), "stored");
}

#[tokio::test]
async fn l1_after_max_run_renewal_stops_and_a_late_answer_still_decides() {
    let policy = Policy::default().with(|p| {
        p.max_run = Duration::from_secs(60);
    });
    let (rig, _) = rig(policy);
    let running = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    for _ in 0..60 {
        rig.clock.advance(Duration::from_secs(4));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    let other =
        Rig::on(Arc::clone(&rig.store), rig.clock.clone(), Policy::default(), Scoping::shared());
    assert_eq!(other.send(pay("k", "wait", "")).await.code(), "outcome-unknown");
    rig.app.open();
    assert_eq!(
        running.await.expect("an answer").told(),
        "stored",
        "L2: the token was still its own"
    );
    assert_eq!(other.send(pay("k", "wait", "")).await.told(), "replayed");
}

#[tokio::test]
async fn l3_b47_a_holder_that_lost_its_lease_answers_and_stores_nothing() {
    let policy = || {
        Policy::default().with(|p| {
            p.max_run = Duration::from_secs(1);
            p.on_unknown = oncekey::store::OnUnknown::TakeOver;
        })
    };
    let (rig, _) = rig(policy());
    let slow = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    rig.clock.advance(Duration::from_secs(31));
    let other = Rig::on(Arc::clone(&rig.store), rig.clock.clone(), policy(), Scoping::shared());
    other.app.open();
    rig.clock.advance(Duration::from_secs(1));
    let taken = other.send(pay("k", "wait", "")).await;
    assert_eq!((taken.told(), taken.header("x-attempt")), ("stored", Some("2")));
    rig.app.open();
    let lost = slow.await.expect("an answer");
    assert_eq!((lost.status, lost.told()), (201, "lost"), "the client still gets its answer");
    let replay = other.send(pay("k", "wait", "")).await;
    assert_eq!(replay.header("x-attempt"), Some("2"), "the second run's answer stands");
}

#[tokio::test(start_paused = true)]
async fn o6_a_store_that_hangs_holds_the_answer_back_for_seconds_only() {
    let (rig, store) = rig(Policy::default());
    store.fail(Call::Complete, Fault::Hangs);
    let reply = rig.send(pay("k", "", "")).await;
    assert_eq!((reply.status, reply.told()), (201, "unstored"), "two seconds were enough");
    assert!(store.is_spent());
    // The next try goes on in the background.
    let mut reply = rig.send(pay("k", "", "")).await;
    for _ in 0..100 {
        if reply.replayed() {
            break;
        }
        rig.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(1)).await;
        reply = rig.send(pay("k", "", "")).await;
    }
    assert_eq!(reply.told(), "replayed");
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn x1_an_insecure_route_never_runs_beside_a_run_that_is_known() {
    let (rig, store) = rig(Policy::default().with(|p| {
        p.store_down = StoreDown::InsecurePassThrough;
    }));
    let first = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    let second = rig.spawn(pay("k", "wait", ""));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    store.fail(Call::Claim, Fault::Before(StoreErrorKind::Unavailable));
    rig.app.gate.add_permits(2);
    assert_eq!(first.await.expect("an answer").told(), "stored");
    let second = second.await.expect("an answer");
    assert_eq!((second.status, second.code().as_str()), (503, "store-unavailable"));
    assert!(store.is_spent());
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn o6_an_ending_that_no_store_takes_is_given_up_at_once() {
    let (rig, store) = rig(Policy::default());
    // The whole of it, the answer without body, and that once more in the background.
    for _ in 0..3 {
        store.fail(Call::Complete, Fault::Before(StoreErrorKind::OutOfBounds));
    }
    let reply = rig.send(pay("k", "", "")).await;
    assert_eq!((reply.status, reply.told()), (201, "unstored"));
    assert_eq!(rig.engine.stop(Duration::from_secs(5)).await, 0, "nothing is left running");
    rig.clock.advance(Duration::from_secs(31));
    let after =
        Rig::on(Arc::clone(&rig.store), rig.clock.clone(), Policy::default(), Scoping::shared());
    assert_eq!(after.send(pay("k", "", "")).await.code(), "outcome-unknown");
}

#[tokio::test]
async fn x5_p3_at_worst_an_answer_is_kept_without_its_body() {
    let (rig, store) = rig(Policy::default());
    store.fail(Call::Complete, Fault::Before(StoreErrorKind::Full));
    let script = "status=402 header=etag:\"1\" header=x-paid:no";
    let first = rig.send(pay("k", script, "the body")).await;
    assert_eq!((first.status, first.told()), (402, "stored"));
    assert_eq!((&first.body[..], first.header("etag")), (&b"run 1: the body"[..], Some("\"1\"")));
    let replay = rig.send(pay("k", script, "the body")).await;
    assert_eq!((replay.status, replay.told()), (402, "replayed"));
    assert_eq!(replay.header("idempotency-body"), Some("omitted"));
    assert_eq!((replay.header("etag"), replay.header("x-paid")), (None, Some("no")));
    assert!(replay.body.is_empty(), "{replay:?}");
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn x5_a_memory_store_that_is_full_keeps_large_answers_without_their_body() {
    let clock = Clock::manual();
    let memory = MemoryStore::new().with_clock(clock.clone()).with_limits(10, 64 << 10);
    let rig = Rig::on(Arc::new(memory), clock, Policy::default(), Scoping::shared());
    let slow = ["a", "b"].map(|key| rig.spawn(pay(key, "wait big=100000", "")));
    rig.app.entered().await;
    rig.app.entered().await;
    rig.app.open();
    rig.app.open();
    let mut kept = 0;
    for (client, key) in slow.into_iter().zip(["a", "b"]) {
        let first = client.await.expect("no panic");
        assert_eq!((first.told(), first.body.len()), ("stored", 100_000));
        let replay = rig.send(pay(key, "wait big=100000", "")).await;
        assert!(replay.replayed(), "{replay:?}");
        kept += usize::from(replay.body.len() == 100_000);
        assert_eq!(replay.body.is_empty(), replay.header("idempotency-body") == Some("omitted"));
    }
    assert_eq!(kept, 1, "the first passed the bound, the second met it");
    let refused = rig.send(pay("c", "", "")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "store-full"));
}

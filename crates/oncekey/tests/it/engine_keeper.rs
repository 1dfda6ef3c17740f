//! The keeper: leases are renewed while their work runs, and not a moment longer (L1, L5, B52).

use std::sync::Arc;
use std::time::Duration;

use oncekey::clock::Clock;
use oncekey::engine::{Begun, Engine, Run, RunEnded, Terms, Wait};
use oncekey::fingerprint::{Fingerprint, Recipe};
use oncekey::record::{Principal, Standing, State};
use oncekey::store::{Claim, MemoryStore, OnUnknown, Store, StoreErrorKind};
use tokio::runtime::Handle;

use crate::engine::{Bench, DAY, LEASE, claim, done, until, why};
use crate::faulty::{Call, Fault};

/// Whether the record's lease was renewed at this moment of the clock.
async fn is_fresh(bench: &Bench, key: &str) -> bool {
    let record = bench.record(&claim(key).id).await.expect("a record");
    record.state == State::InProgress { lease_until: bench.clock.now().after(LEASE) }
}

#[tokio::test]
async fn l1_many_leases_are_renewed_at_a_third_of_their_length() {
    const MANY: usize = 600;
    let bench = Bench::new();
    let mut runs: Vec<Run> = Vec::new();
    for number in 0..MANY {
        runs.push(bench.run(claim(&format!("k{number}"))).await);
    }
    // Four thirds: without renewal every one of them would have ended.
    for turn in 1..=4 {
        bench.clock.advance(LEASE / 3);
        until("all are renewed", async || bench.store.calls(Call::Renew) == turn * MANY).await;
        for number in [0, 255, 256, MANY - 1] {
            assert!(is_fresh(&bench, &format!("k{number}")).await, "{number} in turn {turn}");
        }
    }
    for run in runs {
        assert!(matches!(run.complete(done(), DAY).await, RunEnded::Stored { .. }));
    }
    bench.clock.advance(LEASE * 100);
    assert_eq!(bench.engine.stop(Duration::from_secs(1)).await, 0);
    assert_eq!(bench.store.calls(Call::Renew), 4 * MANY, "what has ended is not renewed");
}

#[tokio::test]
async fn l1_short_and_long_leases_are_each_renewed_in_their_time() {
    let bench = Bench::new();
    let _long = bench.run(Claim { lease: Duration::from_secs(300), ..claim("long") }).await;
    tokio::task::yield_now().await;
    // The keeper sleeps towards the long one, and must hear of the short one.
    let _short = bench.run(Claim { lease: Duration::from_secs(3), ..claim("short") }).await;
    for turn in 1..=20 {
        bench.clock.advance(Duration::from_secs(1));
        until("the short one is renewed", async || bench.store.calls(Call::Renew) == turn).await;
    }
    assert_eq!(bench.standing(&claim("short").id).await, Some(Standing::InProgress));
}

#[tokio::test]
async fn l1_l2_after_max_run_the_work_is_told_and_its_late_outcome_still_counts() {
    let bench = Bench::new();
    let terms = Terms { wait: Wait::Reject, max_run: Duration::from_secs(45) };
    let begun =
        bench.engine.begin(claim("k"), bench.clock.now(), terms, std::future::pending()).await;
    let Ok(Begun::Run(run)) = begun else { panic!("no run: {begun:?}") };
    for turn in 1..=4 {
        assert!(!run.told().is_cancelled());
        bench.clock.advance(LEASE / 3);
        until("it is renewed", async || bench.store.calls(Call::Renew) == turn).await;
    }
    bench.clock.advance(Duration::from_secs(5));
    run.told().cancelled().await;
    bench.clock.advance(LEASE);
    assert_eq!(bench.standing(&claim("k").id).await, Some(Standing::Unknown));
    assert_eq!(bench.store.calls(Call::Renew), 4);
    assert!(matches!(run.complete(done(), DAY).await, RunEnded::Stored { .. }));
    assert_eq!(bench.standing(&claim("k").id).await, Some(Standing::Completed));
}

#[tokio::test(start_paused = true)]
async fn l5_a_renewal_that_fails_or_hangs_is_tried_again_in_time() {
    for fault in [
        Fault::Before(StoreErrorKind::Unavailable),
        Fault::After(StoreErrorKind::Timeout),
        Fault::Hangs,
    ] {
        let bench = Bench::new();
        let run = bench.run(claim("k")).await;
        let other = bench.run(claim("other")).await;
        bench.store.fail(Call::Renew, fault);
        bench.clock.advance(LEASE / 3);
        until("the failing one is tried", async || bench.store.is_spent()).await;
        until("both were tried", async || bench.store.calls(Call::Renew) == 2).await;
        // A call that hangs is given up after some seconds of real time, which is paused here.
        tokio::time::sleep(Duration::from_secs(6)).await;
        bench.clock.advance(LEASE / 12);
        until("it is tried again", async || bench.store.calls(Call::Renew) == 3).await;
        bench.clock.advance(LEASE * 2 / 3 - Duration::from_secs(1));
        for key in ["k", "other"] {
            let standing = bench.standing(&claim(key).id).await;
            assert_eq!(standing, Some(Standing::InProgress), "{key} after {fault:?}");
        }
        assert!(!run.told().is_cancelled() && !other.told().is_cancelled(), "no loss");
    }
}

#[tokio::test]
async fn l5_b49_b50_a_lease_that_ended_is_no_loss_and_one_that_was_taken_is_let_go() {
    let bench = Bench::new();
    let run = bench.run(claim("k")).await;
    for _ in 0..1_000 {
        bench.store.fail(Call::Renew, Fault::Before(StoreErrorKind::Unavailable));
    }
    for turn in 1..=20 {
        bench.clock.advance(LEASE / 3);
        until("it goes on trying", async || bench.store.calls(Call::Renew) >= turn).await;
    }
    assert_eq!(bench.standing(&claim("k").id).await, Some(Standing::Unknown));
    bench.store.heal();
    let before = bench.store.calls(Call::Renew);
    bench.clock.advance(LEASE / 3);
    until("it is renewed", async || bench.store.calls(Call::Renew) > before).await;
    until("it lives again", async || is_fresh(&bench, "k").await).await;

    for _ in 0..1_000 {
        bench.store.fail(Call::Renew, Fault::Before(StoreErrorKind::Unavailable));
    }
    bench.clock.advance(LEASE);
    let theirs = Claim { on_unknown: OnUnknown::TakeOver, ..claim("k") };
    bench.store.claim(&theirs).await.expect("no trouble");
    bench.store.heal();
    let taken = bench.record(&theirs.id).await;
    let before = bench.store.calls(Call::Renew);
    bench.clock.advance(LEASE / 3);
    until("it finds the loss", async || bench.store.calls(Call::Renew) > before).await;
    let after = bench.store.calls(Call::Renew);
    for _ in 0..20 {
        bench.clock.advance(LEASE);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(bench.store.calls(Call::Renew), after, "a lost lease is not renewed");
    assert_eq!(bench.record(&theirs.id).await, taken, "theirs is untouched");
    assert!(matches!(run.complete(done(), DAY).await, RunEnded::Lost));
}

/// Every way to leave early. The claim is for a key of its own.
async fn leave(bench: &Bench, way: &str) {
    let fresh = || claim(way);
    let completed = || claim("completed");
    match way {
        "complete" => {
            let _ = bench.run(fresh()).await.complete(done(), DAY).await;
        }
        "retry" => {
            let _ = bench.run(fresh()).await.retry(500, DAY, None).await;
        }
        "release" => {
            let _ = bench.run(fresh()).await.release().await;
        }
        "abandon" => {
            let _ = bench.run(fresh()).await.abandon(oncekey::record::Why::Abandoned).await;
        }
        "drop" => drop(bench.run(fresh()).await),
        "panic" => {
            let run = bench.run(fresh()).await;
            let work = bench.engine.spawn(async move {
                let _held = run;
                panic!("the work was told to");
            });
            assert!(work.await.is_err());
        }
        "cancel" => {
            let run = bench.run(fresh()).await;
            let work = bench.engine.spawn(async move {
                let _held = run;
                std::future::pending::<()>().await;
            });
            work.abort();
            assert!(work.await.is_err());
        }
        "lost reply" => {
            bench.store.fail(Call::Complete, Fault::After(StoreErrorKind::Timeout));
            let _ = bench.run(fresh()).await.complete(done(), DAY).await;
        }
        "given up" => {
            for _ in 0..2 {
                bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unreadable));
            }
            let _ = bench.run(fresh()).await.complete(done(), DAY).await;
        }
        "taken back in vain" => {
            bench.store.fail(Call::Claim, Fault::After(StoreErrorKind::Timeout));
            bench.store.fail(Call::End, Fault::Before(StoreErrorKind::Unreadable));
            assert!(bench.begin(fresh()).await.is_err());
        }
        "replay" => drop(bench.begin(completed()).await),
        "mismatch" => {
            let digest = Fingerprint::from_parts(Recipe::from_number(1), [1; 32]);
            drop(bench.begin(Claim { fingerprint: digest, ..completed() }).await);
        }
        "other principal" => {
            let principal = Principal::named("eve");
            drop(bench.begin(Claim { principal, ..completed() }).await);
        }
        "claim refused" => {
            bench.store.fail(Call::Claim, Fault::Before(StoreErrorKind::Full));
            assert!(bench.begin(fresh()).await.is_err());
        }
        "claim lost" => {
            bench.store.fail(Call::Claim, Fault::After(StoreErrorKind::Timeout));
            assert!(bench.begin(fresh()).await.is_err());
        }
        "claim dropped" => {
            bench.store.fail(Call::Claim, Fault::Hangs);
            let asks = tokio::time::timeout(Duration::from_secs(1), bench.begin(fresh()));
            assert!(asks.await.is_err());
        }
        other => panic!("no such way: {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn l6_b52_no_task_and_no_renewal_is_left_by_any_early_exit() {
    let bench = Bench::new();
    let _ = bench.run(claim("completed")).await.complete(done(), DAY).await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 1, "the keeper");
    for way in [
        "complete",
        "retry",
        "release",
        "abandon",
        "drop",
        "panic",
        "cancel",
        "lost reply",
        "given up",
        "taken back in vain",
        "replay",
        "mismatch",
        "other principal",
        "claim refused",
        "claim lost",
        "claim dropped",
    ] {
        leave(&bench, way).await;
        until(way, async || Handle::current().metrics().num_alive_tasks() == tasks).await;
        bench.clock.advance(LEASE * 10);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.store.calls(Call::Renew), 0, "{way}");
        let standing = bench.standing(&claim(way).id).await;
        assert_ne!(standing, Some(Standing::InProgress), "{way}");
        assert_ne!(why(bench.record(&claim(way).id).await), Some(oncekey::record::Why::LeaseEnded));
    }
    assert_eq!(bench.engine.stop(Duration::from_secs(1)).await, 0);
}

#[tokio::test]
async fn b52_an_engine_that_is_dropped_lets_its_store_go() {
    let store = Arc::new(MemoryStore::new().with_clock(Clock::manual()));
    let held = Arc::downgrade(&store);
    let engine = Engine::new(store);
    let terms = Terms { wait: Wait::Reject, max_run: LEASE };
    let now = engine.clock().now();
    let begun = engine.begin(claim("k"), now, terms, std::future::pending()).await;
    let Ok(Begun::Run(run)) = begun else { panic!("no run: {begun:?}") };
    drop(engine);
    tokio::task::yield_now().await;
    assert!(held.upgrade().is_some(), "the run needs it");
    assert!(matches!(run.complete(done(), DAY).await, RunEnded::Stored { .. }));
    until("nobody holds the store", async || held.upgrade().is_none()).await;
}

//! Stores that are full, damaged, or have a cache in front (B130 to B137).
//!
//! These cannot be met here: B128, keys in several slots, needs a Redis cluster; B133 and B134, a
//! lock of a session behind a pool of connections, need SQL: no store here has a session or a pool.

use std::sync::Arc;
use std::time::Duration;

use oncekey::clock::Clock;
use oncekey::engine::{RunEnded, Wait};
use oncekey::fingerprint::{Fingerprint, Recipe};
use oncekey::http::{Policy, StoreDown};
use oncekey::record::{Outcome, Retention, Standing, Why};
use oncekey::store::{
    By, Change, Changed, Claim, Claimed, Ending, Held, Inspect, MemoryStore, OnUnknown, Store,
    StoreErrorKind,
};

use crate::bed::{Bed, begin, on_each_store, run, until};
use crate::engine::{DAY, LEASE, claim, done};
use crate::faulty::{Call, Fault};
use crate::rig::pay;

on_each_store! {
    x5_b131_a_full_store_refuses_new_keys_and_forgets_nothing_that_lives
    t1_b137_what_is_at_hand_answers_only_while_it_is_the_truth
    u3_b137_what_a_person_changes_is_what_the_next_claim_meets
    x3_an_unreadable_record_runs_nothing_whichever_call_meets_it
}

fn reject() -> Policy {
    Policy::default().with(|policy| policy.wait = Wait::Reject)
}

/// The memory of this process that is in use, in bytes.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn t3_b26_b130_two_hundred_thousand_keys_that_are_over_take_no_memory() {
    let clock = Clock::manual();
    let store = MemoryStore::new().with_clock(clock.clone());
    let body = vec![b'x'; 2048];
    let before = resident();
    for number in 0..200_000 {
        let lease = match store.claim(&claim(&format!("k{number}"))).await {
            Ok(Claimed::Acquired(lease)) => lease,
            other => panic!("{other:?}"),
        };
        let keep = Retention::keep(Duration::ZERO);
        let held = match number % 3 {
            0 => store.end(&lease, Ending::Retry { status: 500, keep }).await,
            1 => store.end(&lease, Ending::Release).await,
            _ => store.complete(&lease, &Outcome::new(body.clone()), keep).await,
        };
        assert!(matches!(held, Ok(Held::Ours { .. })));
        clock.advance(Duration::from_millis(1));
        assert!(store.len() <= 200, "{} records at {number}", store.len());
        assert!(store.bytes() <= 1 << 20, "{} bytes at {number}", store.bytes());
    }
    let grown = resident().saturating_sub(before);
    // Kept, their bodies alone would take 130 MiB.
    assert!(grown < 64 << 20, "it grew by {grown} bytes");
}

#[tokio::test]
async fn x5_b130_b131_a_store_is_full_by_bytes_as_by_records_and_what_is_over_makes_room() {
    let clock = Clock::manual();
    let store = MemoryStore::new().with_clock(clock.clone()).with_limits(1_000_000, 100_000);
    let held = store.claim(&claim("held")).await;
    assert!(matches!(held, Ok(Claimed::Acquired(_))), "{held:?}");
    let keep = Retention::keep(Duration::from_secs(60));
    let mut taken = Vec::new();
    let refused = loop {
        let key = format!("k{}", taken.len());
        match store.claim(&claim(&key)).await {
            Ok(Claimed::Acquired(lease)) => {
                let outcome = Outcome::new(vec![b'x'; 4_000]);
                let held = store.complete(&lease, &outcome, keep).await;
                assert!(matches!(held, Ok(Held::Ours { .. })));
                taken.push(key);
            }
            other => break other,
        }
        assert!(taken.len() < 100, "it never fills up");
    };
    assert!(matches!(&refused, Err(e) if e.kind() == StoreErrorKind::Full), "{refused:?}");
    assert!(taken.len() > 10 && store.bytes() <= 110_000, "{} bytes", store.bytes());
    for key in &taken {
        let replay = store.claim(&claim(key)).await;
        assert!(matches!(replay, Ok(Claimed::Completed { .. })), "{key}: {replay:?}");
    }
    clock.advance(Duration::from_secs(60));
    for number in 0..taken.len() {
        let fresh = store.claim(&claim(&format!("fresh{number}"))).await;
        let Ok(Claimed::Acquired(lease)) = fresh else { panic!("there is room: {fresh:?}") };
        let held = store.complete(&lease, &Outcome::new(vec![b'x'; 4_000]), keep).await;
        assert!(matches!(held, Ok(Held::Ours { .. })));
    }
    let told = store.claim(&claim("held")).await;
    assert!(matches!(told, Ok(Claimed::Unknown { .. })), "what lives does not: {told:?}");
}

/// The same kind of store with room for so many living records.
fn with_room(bed: &Bed, records: usize) -> (Arc<dyn Inspect>, Option<tempfile::TempDir>) {
    #[cfg(feature = "embedded")]
    if format!("{:?}", bed.store).starts_with("Embedded") {
        use oncekey::store::embedded::{EmbeddedStore, Options};

        let folder = tempfile::tempdir().unwrap();
        let clock = Some(bed.clock.clone());
        let options = Options { clock, max_live: records, ..Options::default() };
        let store = EmbeddedStore::open(folder.path(), options).unwrap();
        return (Arc::new(store), Some(folder));
    }
    let store = MemoryStore::new().with_clock(bed.clock.clone()).with_limits(records, 1 << 20);
    (Arc::new(store), None)
}

async fn x5_b131_a_full_store_refuses_new_keys_and_forgets_nothing_that_lives(mut bed: Bed) {
    let (store, _folder) = with_room(&bed, 10);
    bed.store = store;
    let rig = bed.rig(reject());
    let running = rig.spawn(pay("running", "wait", ""));
    rig.app.entered().await;
    assert_eq!(rig.send(pay("unknown", "status=504", "")).await.told(), "unknown");
    for number in 0..8 {
        let held = bed.acquire(&claim(&format!("held{number}"))).await;
        assert_eq!(held.attempt, 1);
    }
    for number in 0..30 {
        let refused = rig.send(pay(&format!("new{number}"), "", "")).await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "store-full"));
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(rig.app.runs(), 2, "whatever is refused does not run");
    assert_eq!(rig.send(pay("running", "", "")).await.code(), "in-progress");
    assert_eq!(rig.send(pay("unknown", "", "")).await.code(), "outcome-unknown");
    for number in 0..8 {
        let key = format!("held{number}");
        assert_eq!(bed.standing(&key).await, Some(Standing::InProgress), "{key}");
        assert_eq!(bed.record(&format!("new{number}")).await, None);
    }
    rig.app.open();
    assert_eq!(running.await.expect("an answer").told(), "stored", "running work completes");
    assert_eq!(rig.send(pay("running", "", "")).await.told(), "replayed");
}

async fn t1_b137_what_is_at_hand_answers_only_while_it_is_the_truth(bed: Bed) {
    let other = |key: &str| {
        let fingerprint = Fingerprint::from_parts(Recipe::from_number(1), [1; 32]);
        Claim { fingerprint, ..claim(key) }
    };
    let minute = Retention::keep(Duration::from_secs(60));
    for key in ["plain", "tombstone"] {
        let lease = bed.acquire(&claim(key)).await;
        for _ in 0..3 {
            let told = bed.store.claim(&claim(key)).await;
            assert!(matches!(told, Ok(Claimed::InProgress { .. })), "not yet: {told:?}");
        }
        let keep = match key {
            "tombstone" => minute.with_tombstone(Duration::from_secs(60)),
            _ => minute,
        };
        let held = bed.store.complete(&lease, &Outcome::new(&b"1"[..]), keep).await;
        assert!(matches!(held, Ok(Held::Ours { .. })));
        for _ in 0..3 {
            let told = bed.store.claim(&claim(key)).await;
            assert!(matches!(told, Ok(Claimed::Completed { .. })), "at once: {told:?}");
            let told = bed.store.claim(&other(key)).await;
            assert!(matches!(told, Ok(Claimed::Mismatch { .. })), "after validation: {told:?}");
        }
        bed.clock.advance(Duration::from_secs(60));
        if key == "tombstone" {
            for _ in 0..3 {
                assert!(matches!(bed.store.claim(&claim(key)).await, Ok(Claimed::Expired)));
            }
            assert_eq!(bed.standing(key).await, Some(Standing::Tombstone));
            bed.clock.advance(Duration::from_secs(60));
        }
        assert_eq!(bed.record(key).await, None, "{key}: over is over");
        // The key is used for something else, and its old answer is nobody's.
        let lease = bed.acquire(&other(key)).await;
        let told = bed.store.claim(&claim(key)).await;
        let running = Claimed::Mismatch { first: Standing::InProgress };
        assert_eq!(told.expect("no trouble"), running, "{key}");
        let told = bed.store.claim(&other(key)).await;
        assert!(matches!(told, Ok(Claimed::InProgress { .. })), "{key}: {told:?}");
        let held = bed.store.complete(&lease, &Outcome::new(&b"2"[..]), minute).await;
        assert!(matches!(held, Ok(Held::Ours { .. })));
        match bed.store.claim(&other(key)).await {
            Ok(Claimed::Completed { outcome, .. }) => assert_eq!(outcome.bytes(), &b"2"[..]),
            told => panic!("{key}: {told:?}"),
        }
        // Purged, it is gone for good.
        bed.clock.advance(Duration::from_secs(24 * 3600));
        bed.store.purge_expired(100).await.expect("no trouble");
        assert_eq!(bed.acquire(&claim(key)).await.attempt, 1, "{key}");
    }
}

async fn u3_b137_what_a_person_changes_is_what_the_next_claim_meets(bed: Bed) {
    let by = By { who: "ann".into(), reason: "looked it up".into() };
    let change = async |key: &str, change: Change| {
        let record = bed.record(key).await.expect("a record");
        let made = bed.store.change(&record.id, record.version, change, &by).await;
        assert!(matches!(made, Ok(Changed::Made(_))), "{key}: {made:?}");
        bed.clock.advance(Duration::from_secs(1));
    };
    for left in ["retry", "unknown"] {
        for what in ["complete", "retry", "release"] {
            let key = format!("{left}-{what}");
            let lease = bed.acquire(&claim(&key)).await;
            let how = match left {
                "retry" => Ending::Retry { status: 500, keep: DAY },
                _ => Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO },
            };
            assert!(matches!(bed.store.end(&lease, how).await, Ok(Held::Ours { .. })));
            match what {
                "complete" => change(&key, Change::Complete(done(), DAY)).await,
                "retry" => change(&key, Change::Retry(DAY)).await,
                _ => change(&key, Change::Release).await,
            }
            for _ in 0..2 {
                let told = bed.store.claim(&claim(&key)).await;
                match (what, told) {
                    ("complete", Ok(Claimed::Completed { outcome, .. })) => {
                        assert_eq!(outcome, done(), "{key}");
                    }
                    ("retry", Ok(Claimed::Acquired(lease))) => assert_eq!(lease.attempt, 2),
                    ("release", Ok(Claimed::Acquired(lease))) => assert_eq!(lease.attempt, 1),
                    ("retry" | "release", Ok(Claimed::InProgress { .. })) => {}
                    (_, told) => panic!("{key}: {told:?}"),
                }
            }
            let late = bed.store.complete(&lease, &Outcome::new(&b"late"[..]), DAY).await;
            assert!(matches!(late, Ok(Held::Lost { .. })), "{key}: {late:?}");
        }
    }
}

async fn x3_an_unreadable_record_runs_nothing_whichever_call_meets_it(bed: Bed) {
    const UNREADABLE: Fault = Fault::Before(StoreErrorKind::Unreadable);
    let store = bed.faulty();
    let insecure = reject().with(|p| p.store_down = StoreDown::InsecurePassThrough);
    let rig = bed.rig_on(Arc::clone(&store) as _, insecure);
    store.fail(Call::Claim, UNREADABLE);
    let reply = rig.send(pay("claim", "", "")).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "record-unreadable"));
    assert!(reply.header("retry-after").is_some());
    assert_eq!((rig.app.runs(), store.calls(Call::End)), (0, 0), "nothing was taken, or undone");

    // A waiter that meets it is told, and runs nothing.
    let waiting = bed.rig_on(Arc::clone(&store) as _, Policy::default());
    let held = waiting.spawn(pay("wait", "wait", ""));
    waiting.app.entered().await;
    store.fail(Call::Changed, UNREADABLE);
    let reply = waiting.send(pay("wait", "", "")).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "record-unreadable"));
    waiting.app.open();
    assert_eq!(held.await.expect("an answer").told(), "stored");

    // The answer reaches its client; nothing is tried for ever; the record is unknown, not new.
    for (key, script, told) in [("complete", "", "unstored"), ("retry", "status=500", "unstored")] {
        let tried = store.calls(Call::Complete) + store.calls(Call::End);
        for _ in 0..2 {
            store.fail(if key == "complete" { Call::Complete } else { Call::End }, UNREADABLE);
        }
        assert_eq!(rig.send(pay(key, script, "")).await.told(), told, "{key}");
        bed.clock.advance(LEASE);
        for _ in 0..3 {
            assert_eq!(rig.send(pay(key, "", "")).await.code(), "outcome-unknown", "{key}");
        }
        assert_eq!(store.calls(Call::Complete) + store.calls(Call::End), tried + 2, "{key}");
    }

    // A claim whose answer was lost cannot be taken back: that is given up, and holds up no stop.
    let engine = bed.engine_on(Arc::clone(&store) as _);
    store.fail(Call::Claim, Fault::After(StoreErrorKind::Timeout));
    store.fail(Call::End, UNREADABLE);
    assert!(begin(&engine, claim("lost")).await.is_err());
    until("it was tried", async || store.is_spent()).await;
    let renewed = run(&engine, claim("renew")).await;
    store.fail(Call::Renew, UNREADABLE);
    bed.clock.advance(LEASE / 3);
    until("it was tried", async || store.is_spent()).await;
    assert!(!renewed.lost().is_cancelled(), "it may be there: that is no loss");
    assert!(matches!(renewed.complete(done(), DAY).await, RunEnded::Stored { .. }));
    assert_eq!(engine.stop(Duration::from_secs(30)).await, 0);
    bed.clock.advance(LEASE);
    let told = bed.store.claim(&claim("lost")).await;
    assert!(matches!(told, Ok(Claimed::Unknown { .. })), "{told:?}");
    let retaken = Claim { on_unknown: OnUnknown::TakeOver, ..claim("lost") };
    assert_eq!(bed.acquire(&retaken).await.attempt, 2);
}

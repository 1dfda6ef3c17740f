//! Time in the embedded store: retention, tombstones, buckets that go as a whole.

use std::path::Path;
use std::time::Duration;

use oncekey::record::{Retention, Standing, Why};
use oncekey::store::{Claimed, Ending, Held, Inspect, Store};

use crate::embedded::{
    DAY, LEASE, Rig, acquire, claim, complete, fingerprint, replays, store_outcome,
};

const HOUR: Duration = Duration::from_secs(3600);

/// The names of the buckets in a folder that nobody has open.
pub(crate) fn buckets(path: &Path) -> Vec<String> {
    let database = fjall::Database::builder(path.join("db")).open().unwrap();
    let names = database.list_keyspace_names();
    let mut names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
    names.retain(|name| name.starts_with("ended"));
    names.sort();
    names
}

#[tokio::test]
async fn t1_a_record_at_hand_is_not_replayed_beyond_its_retention() {
    let rig = Rig::new();
    store_outcome(&rig.store, "key", "first", Retention::keep(HOUR)).await;
    rig.clock.advance(HOUR - Duration::from_micros(1));
    replays(&rig.store, "key", "first").await;
    rig.clock.advance(Duration::from_micros(1));
    // Its bucket is still there, and so is the copy in memory: the key is new all the same.
    assert_eq!(rig.store.get(&claim("key").id).await.unwrap(), None);
    let lease = acquire(&rig.store, "key").await;
    assert_eq!(lease.attempt, 1);
    let repeat = rig.store.claim(&claim("key")).await.unwrap();
    assert!(matches!(repeat, Claimed::InProgress { .. }), "{repeat:?}");
    complete(&rig.store, &lease, "second", Retention::keep(HOUR)).await;
    replays(&rig.store, "key", "second").await;
    let rig = rig.reopen(|_| {});
    replays(&rig.store, "key", "second").await;
}

#[tokio::test]
async fn t2_a_tombstone_refuses_the_key_until_it_is_gone_too() {
    let rig = Rig::new();
    let keep = Retention::keep(HOUR).with_tombstone(30 * DAY);
    store_outcome(&rig.store, "key", "answer", keep).await;
    rig.clock.advance(2 * HOUR);
    assert_eq!(rig.store.claim(&claim("key")).await.unwrap(), Claimed::Expired);
    let other = oncekey::store::Claim { fingerprint: fingerprint("other"), ..claim("key") };
    let mismatch = Claimed::Mismatch { first: Standing::Tombstone };
    assert_eq!(rig.store.claim(&other).await.unwrap(), mismatch);
    let rig = rig.reopen(|_| {});
    assert_eq!(rig.store.claim(&claim("key")).await.unwrap(), Claimed::Expired);
    rig.clock.advance(30 * DAY);
    let _ = acquire(&rig.store, "key").await;
}

#[tokio::test]
async fn t3_buckets_follow_the_clock_and_go_as_a_whole() {
    let rig = Rig::new();
    for hour in 0..72 {
        let key = format!("hour {hour}");
        store_outcome(&rig.store, &key, &key, Retention::keep(DAY)).await;
        rig.clock.advance(HOUR);
    }
    store_outcome(&rig.store, "for ever", "effect", Retention::keep(Duration::MAX)).await;
    let mut purged = 0;
    loop {
        let count = rig.store.purge_expired(1).await.unwrap();
        purged += count;
        if count == 0 {
            break;
        }
    }
    // Buckets of 4 hours, deleted once their newest possible record, kept 32 hours, is over.
    assert!((32..=40).contains(&purged), "{purged}");
    for hour in 0..72 {
        let found = rig.store.get(&claim(&format!("hour {hour}")).id).await.unwrap();
        assert_eq!(found.is_some(), hour > 48, "hour {hour}");
    }
    let rig = rig.reopen(|path| {
        let left = buckets(path);
        assert!((9..=11).contains(&left.len()), "{left:?}");
        assert!(left.iter().any(|name| name == "ended-ever"), "{left:?}");
    });
    replays(&rig.store, "hour 71", "hour 71").await;

    rig.clock.advance(3_000 * DAY);
    while rig.store.purge_expired(10_000).await.unwrap() > 0 {}
    replays(&rig.store, "for ever", "effect").await;
    rig.reopen(|path| assert_eq!(buckets(path), ["ended-ever"]));
}

#[tokio::test]
async fn t1_u4_purging_spares_the_living() {
    let rig = Rig::new();
    let held = acquire(&rig.store, "held").await;
    let unknown = acquire(&rig.store, "unknown").await;
    let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
    let told = rig.store.end(&unknown, how).await.unwrap();
    assert!(matches!(told, Held::Ours { .. }));
    store_outcome(&rig.store, "short", "x", Retention::keep(Duration::from_secs(1))).await;
    store_outcome(&rig.store, "long", "x", Retention::keep(400 * DAY)).await;
    rig.clock.advance(89 * DAY);
    assert_eq!(rig.store.purge_expired(10_000).await.unwrap(), 1);
    assert_eq!(rig.store.purge_expired(10_000).await.unwrap(), 0);
    let rig = rig.reopen(|_| {});
    for id in [held.id, unknown.id] {
        let record = rig.store.get(&id).await.unwrap().expect("it is alive");
        assert_eq!(record.standing(rig.clock.now()), Standing::Unknown);
    }
    replays(&rig.store, "long", "x").await;
    assert_eq!(rig.store.counts().await.unwrap().unknown, 2);
}

#[tokio::test]
async fn l2_a_late_completion_decides_an_unknown_record_also_after_its_process_ended() {
    let rig = Rig::new();
    let lease = acquire(&rig.store, "key").await;
    rig.clock.advance(2 * LEASE);
    let rig = rig.reopen(|_| {});
    let told = rig.store.claim(&claim("key")).await.unwrap();
    assert!(matches!(told, Claimed::Unknown { why: Why::ProcessEnded, .. }), "{told:?}");
    complete(&rig.store, &lease, "late", Retention::keep(DAY)).await;
    replays(&rig.store, "key", "late").await;
}

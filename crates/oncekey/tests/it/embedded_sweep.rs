//! What time takes from the embedded store: unknown requests, buckets, their disk; and a wall clock
//! that steps.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use oncekey::clock::{Clock, Skew, Stamp};
use oncekey::decide::SHRINK_AFTER;
use oncekey::events::{Event, Observer};
use oncekey::key::RecordId;
use oncekey::record::{Kind, Lease, Principal, Record, Retention, Standing, Why};
use oncekey::store::embedded::{EmbeddedStore, Options};
use oncekey::store::{
    By, Change, Changed, Claim, Claimed, Ending, Held, Inspect, OnUnknown, Store,
};

use crate::embedded::{
    DAY, Rig, acquire, claim, complete, fingerprint, in_tables, open, replays, store_outcome,
};
use crate::embedded_open::rewrite;
use crate::embedded_time::buckets;

const HOUR: Duration = Duration::from_secs(3600);
const MICRO: Duration = Duration::from_micros(1);

/// What a store tells of time.
#[derive(Debug, Default)]
struct Told {
    ended: AtomicUsize,
    steps: Mutex<Vec<Skew>>,
}

impl Observer for Told {
    fn note(&self, event: Event) {
        match event {
            Event::UnknownEnded => drop(self.ended.fetch_add(1, Ordering::SeqCst)),
            Event::WallClock(skew) => self.steps.lock().unwrap().push(skew),
            _ => {}
        }
    }
}

fn told_to(path: &Path, clock: &Clock) -> (EmbeddedStore, Arc<Told>) {
    let told = Arc::new(Told::default());
    let observer = Arc::clone(&told) as Arc<dyn Observer>;
    let options = Options { clock: Some(clock.clone()), observer, ..Options::default() };
    (EmbeddedStore::open(path, options).unwrap(), told)
}

async fn acquire_as(store: &EmbeddedStore, claim: &Claim) -> Lease {
    match store.claim(claim).await.unwrap() {
        Claimed::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// Leaves the record of `claim` unknown.
async fn abandon(store: &EmbeddedStore, claim: &Claim) -> Lease {
    let lease = acquire_as(store, claim).await;
    let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
    let told = store.end(&lease, how).await.unwrap();
    assert!(matches!(told, Held::Ours { .. }), "{told:?}");
    lease
}

fn with_memo(key: &str) -> Claim {
    Claim { memo: Bytes::from(vec![7; Record::MAX_MEMO]), ..claim(key) }
}

async fn found(store: &EmbeddedStore, key: &str) -> Record {
    store.get(&claim(key).id).await.unwrap().expect("it is there")
}

async fn is_unknown(store: &EmbeddedStore, key: &str) -> bool {
    matches!(store.claim(&claim(key)).await.unwrap(), Claimed::Unknown { .. })
}

#[tokio::test]
async fn u3_an_unknown_request_shrinks_on_disk_and_is_answered_as_before() {
    let mut rig = Rig::new();
    let lease = abandon(&rig.store, &with_memo("late")).await;
    let _ = abandon(&rig.store, &with_memo("resolved")).await;
    let _ = acquire_as(&rig.store, &with_memo("silent")).await;
    let before = found(&rig.store, "resolved").await;
    rig.clock.advance(SHRINK_AFTER - MICRO);
    assert_eq!(rig.store.purge_expired(10_000).await.unwrap(), 0);
    assert_eq!(found(&rig.store, "resolved").await, before, "not yet");
    rig.clock.advance(HOUR);
    assert_eq!(rig.store.purge_expired(10_000).await.unwrap(), 0, "nothing is deleted");
    for reopened in [false, true] {
        if reopened {
            rig = rig.reopen(|_| {});
        }
        let shrunk = found(&rig.store, "resolved").await;
        assert_eq!(shrunk, Record { memo: Bytes::new(), ..before.clone() });
        assert!(found(&rig.store, "silent").await.memo.is_empty());
        for key in ["late", "resolved", "silent"] {
            assert!(is_unknown(&rig.store, key).await, "{key}");
            let other = Claim { fingerprint: fingerprint("other"), ..claim(key) };
            let told = rig.store.claim(&other).await.unwrap();
            assert_eq!(told, Claimed::Mismatch { first: Standing::Unknown }, "{key}");
            let other = Claim { principal: Principal::named("mallory"), ..claim(key) };
            assert_eq!(rig.store.claim(&other).await.unwrap(), Claimed::OtherPrincipal, "{key}");
        }
    }
    complete(&rig.store, &lease, "late", Retention::keep(DAY)).await;
    replays(&rig.store, "late", "late").await;
    let by = By { who: "ann".into(), reason: "the bank says so".into() };
    let change = Change::Retry(Retention::keep(DAY));
    let made = rig.store.change(&before.id, before.version, change, &by).await.unwrap();
    assert!(matches!(made, Changed::Made(_)), "the version that was seen holds: {made:?}");
    let again = acquire(&rig.store, "resolved").await;
    assert_eq!(again.attempt, 2);
}

#[tokio::test]
async fn u3_u4_an_unknown_request_ends_only_after_its_horizon_by_a_purge_that_says_so() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
    let (store, told) = told_to(folder.path(), &clock);
    let lease = abandon(&store, &claim("said")).await;
    let _ = acquire(&store, "silent").await;
    let effect = {
        let (kind, claim) = (Kind::Effect, claim("effect"));
        Claim { id: RecordId::derive(kind, &claim.scope, &claim.key), kind, ..claim }
    };
    let _ = abandon(&store, &effect).await;
    clock.advance(90 * DAY - MICRO);
    assert_eq!(store.purge_expired(10_000).await.unwrap(), 0);
    clock.advance(MICRO);
    assert!(is_unknown(&store, "said").await, "no claim ends it, however late the purge comes");
    assert_eq!(store.purge_expired(0).await.unwrap(), 0);
    assert_eq!(store.purge_expired(10_000).await.unwrap(), 1);
    assert_eq!(told.ended.load(Ordering::SeqCst), 1);
    assert!(is_unknown(&store, "silent").await, "its horizon counts from its lease's end");
    let late = store.complete(&lease, &crate::embedded::outcome("x"), Retention::keep(DAY)).await;
    assert_eq!(late.unwrap(), Held::Lost { attempt: None });
    assert_eq!(acquire(&store, "said").await.attempt, 1, "only now the key is new");

    clock.advance(HOUR);
    assert_eq!(store.purge_expired(10_000).await.unwrap(), 1);
    assert_eq!(store.purge_expired(10_000).await.unwrap(), 0);
    drop(store);
    let (store, _) = told_to(folder.path(), &clock);
    assert_eq!(store.get(&claim("silent").id).await.unwrap(), None);
    clock.advance(3_000 * DAY);
    while store.purge_expired(10_000).await.unwrap() > 0 {}
    let told = store.claim(&Claim { on_unknown: OnUnknown::Hold, ..effect }).await.unwrap();
    assert!(matches!(told, Claimed::Unknown { .. }), "an effect waits for ever: {told:?}");
}

#[tokio::test]
async fn u3_the_horizon_of_what_a_dead_process_held_counts_from_the_opening() {
    let rig = Rig::new();
    let _ = acquire(&rig.store, "key").await;
    rig.clock.advance(30 * DAY);
    let rig = rig.reopen(|_| {});
    rig.clock.advance(90 * DAY - MICRO);
    assert_eq!(rig.store.purge_expired(10_000).await.unwrap(), 0);
    assert!(is_unknown(&rig.store, "key").await);
    rig.clock.advance(MICRO);
    assert_eq!(rig.store.purge_expired(10_000).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t3_u3_a_thousand_unknown_requests_end_in_batches_and_make_room() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
    let options = Options { clock: Some(clock.clone()), max_live: 1_000, ..Options::default() };
    let store = Arc::new(EmbeddedStore::open(folder.path(), options).unwrap());
    let tasks: Vec<_> = (0..1_000)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { abandon(&store, &claim(&format!("key {number}"))).await })
        })
        .collect();
    for task in tasks {
        let _ = task.await.unwrap();
    }
    clock.advance(90 * DAY);
    store.claim(&claim("another")).await.expect_err("it is full");
    assert_eq!(store.purge_expired(300).await.unwrap(), 300, "no more than asked");
    assert_eq!(store.counts().await.unwrap().unknown, 700);
    assert_eq!(store.purge_expired(10_000).await.unwrap(), 700);
    assert_eq!(store.counts().await.unwrap().unknown, 0);
    let _ = acquire(&store, "another").await;
}

/// Leaves one record in each of `count` buckets, the last of which ends now.
async fn fill_buckets(rig: &Rig, count: usize, text: &str) {
    for number in 0..count {
        let keep = Retention::keep(Duration::from_secs(60));
        store_outcome(&rig.store, &format!("key {number}"), text, keep).await;
        rig.clock.advance(Duration::from_secs(113));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t3_claims_go_on_while_two_hundred_buckets_are_deleted() {
    let rig = Rig::new();
    fill_buckets(&rig, 200, "x").await;
    rig.clock.advance(HOUR);
    let Rig { clock, folder, store } = rig;
    let store = Arc::new(store);
    let purge = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.purge_expired(10_000).await.unwrap() }
    });
    let mut claims = 0;
    while !purge.is_finished() {
        let key = format!("meanwhile {claims}");
        store_outcome(&store, &key, &key, Retention::keep(DAY)).await;
        claims += 1;
    }
    assert_eq!(purge.await.unwrap(), 200, "one call is enough");
    // A bucket at a time: each claim waits for one at most.
    assert!(claims >= 20, "{claims} claims while 200 buckets went");
    assert_eq!(store.purge_expired(10_000).await.unwrap(), 0);
    drop(Arc::into_inner(store).expect("nobody else has it"));
    assert_eq!(buckets(folder.path()).len(), 1, "look-ups have one bucket to look at");
    replays(&open(folder.path(), &clock), "meanwhile 0", "meanwhile 0").await;
}

#[tokio::test]
async fn t3_look_ups_never_meet_more_buckets_than_retention_needs() {
    let rig = Rig::new();
    for _ in 0..3 {
        fill_buckets(&rig, 16, "x").await;
        while rig.store.purge_expired(10_000).await.unwrap() > 0 {}
    }
    // The class of a quarter of an hour: at most nine can hold what is kept.
    rig.reopen(|path| assert!(buckets(path).len() <= 9, "{:?}", buckets(path)));
}

/// The bytes of the files below `path`.
fn size(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t3_the_disk_of_what_is_over_comes_back_while_the_store_is_open() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
    let memtable_bytes = 1 << 20;
    let options = Options { clock: Some(clock.clone()), memtable_bytes, ..Options::default() };
    let store = EmbeddedStore::open(folder.path(), options).unwrap();
    let keyspaces = folder.path().join("db/keyspaces");
    // What does not repeat, so that it does not compress.
    let text: String =
        (0..100_000_u64).map(|n| format!("{:x}", n.wrapping_mul(n) ^ 0x5bd1)).collect();
    for number in 0..24 {
        let keep = Retention::keep(Duration::from_secs(60));
        store_outcome(&store, &format!("key {number}"), &text, keep).await;
    }
    in_tables(&store).await;
    let full = size(&keyspaces);
    clock.advance(HOUR);
    assert!(store.purge_expired(10_000).await.unwrap() >= 24);
    let freed = async {
        while size(&keyspaces) > full / 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let freed = tokio::time::timeout(Duration::from_secs(60), freed).await;
    assert!(freed.is_ok(), "{} of {full} bytes are left", size(&keyspaces));
    let _ = acquire(&store, "key 0").await;
}

#[tokio::test]
async fn l4_nothing_is_deleted_while_the_wall_clock_is_off_and_each_step_is_told_once() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
    let (store, told) = told_to(folder.path(), &clock);
    store_outcome(&store, "over", "x", Retention::keep(Duration::from_secs(1))).await;
    let _ = abandon(&store, &claim("unknown")).await;
    clock.advance(90 * DAY);
    store_outcome(&store, "kept", "kept", Retention::keep(HOUR)).await;
    let steps = [Skew::Ahead(HOUR), Skew::Behind(HOUR)];
    for step in steps {
        clock.step_wall(step);
        assert_eq!(store.purge_expired(10_000).await.unwrap(), 0, "{step:?}");
        assert_eq!(store.purge_expired(10_000).await.unwrap(), 0, "{step:?}");
        assert!(is_unknown(&store, "unknown").await);
        // Leases and retentions go on by the store's time.
        assert_eq!(store.get(&claim("over").id).await.unwrap(), None);
        replays(&store, "kept", "kept").await;
        let lease = acquire(&store, &format!("{step:?}")).await;
        clock.advance(Duration::from_secs(29));
        let held = store.claim(&claim(&format!("{step:?}"))).await.unwrap();
        assert!(matches!(held, Claimed::InProgress { .. }), "{held:?}");
        complete(&store, &lease, "x", Retention::keep(HOUR)).await;
    }
    assert_eq!(*told.steps.lock().unwrap(), steps, "each once");
    assert_eq!(told.ended.load(Ordering::SeqCst), 0);
    clock.step_wall(Skew::Ahead(Duration::from_secs(60)));
    assert_eq!(store.purge_expired(10_000).await.unwrap(), 2, "they agree again");
    assert_eq!(told.steps.lock().unwrap().len(), 3, "which is told too");
}

#[tokio::test]
async fn l4_a_step_is_told_by_the_next_write_not_by_the_next_purge() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
    let (store, told) = told_to(folder.path(), &clock);
    clock.step_wall(Skew::Behind(2 * HOUR));
    let _ = acquire(&store, "key").await;
    assert_eq!(*told.steps.lock().unwrap(), [Skew::Behind(2 * HOUR)]);
}

/// Writes into a closed folder that it was opened by the machine's clock a moment ago, when the
/// store's time was `at`.
fn anchor(path: &Path, at: Stamp) {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let uptime = Duration::from_secs_f64(uptime).as_micros() as u64;
    let mut bytes = blake3::hash(boot.trim().as_bytes()).as_bytes()[..16].to_vec();
    for number in [uptime, at.as_micros(), 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    rewrite(path, |_, _, _| None, &[("clock", bytes)]);
}

/// Where the wall clock stands against a store's time. The manual clock begins at a day that is
/// over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wall {
    Ahead,
    Behind,
}

#[tokio::test]
async fn l4_a_wall_clock_set_while_the_store_was_closed_moves_neither_retention_nor_purging() {
    // By the store's time a record was completed a moment ago; the wall clock says that it was
    // long ago, or that it will be.
    for wall_clock in [Wall::Ahead, Wall::Behind] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
        let wall = Clock::real().now();
        if wall_clock == Wall::Behind {
            clock.advance(wall.after(1_000 * DAY).since(clock.now()));
        }
        let then = clock.now();
        let off = if then > wall { then.since(wall) } else { wall.since(then) };
        assert!(off > DAY, "it is off: {off:?}");
        let store = open(folder.path(), &clock);
        store_outcome(&store, "key", "answer", Retention::keep(HOUR)).await;
        drop(store);
        anchor(folder.path(), then);
        for _ in 0..2 {
            let store = EmbeddedStore::open(folder.path(), Options::default()).unwrap();
            let passed = store.clock().now().since(then);
            assert!(store.clock().now() >= then && passed < HOUR, "{passed:?}");
            replays(&store, "key", "answer").await;
            assert_eq!(store.purge_expired(10_000).await.unwrap(), 0);
        }
    }
}

#[tokio::test]
async fn l4_where_only_the_wall_clock_tells_how_late_it_is_nothing_is_deleted_for_an_hour() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
    let store = open(folder.path(), &clock);
    store_outcome(&store, "over", "x", Retention::keep(HOUR)).await;
    drop(store);
    let day = Clock::real().now().since(clock.now());
    assert!(day > DAY, "the manual clock stands at a day that is over");
    // The hour is not over by opening the folder again.
    for _ in 0..2 {
        let store = EmbeddedStore::open(folder.path(), Options::default()).unwrap();
        assert_eq!(store.purge_expired(10_000).await.unwrap(), 0);
        assert_eq!(store.get(&claim("over").id).await.unwrap(), None, "it reads as over");
    }
    assert_eq!(buckets(folder.path()).len(), 1);
    let store = open(folder.path(), &{
        clock.advance(day + HOUR);
        clock
    });
    assert_eq!(store.purge_expired(10_000).await.unwrap(), 1);
}

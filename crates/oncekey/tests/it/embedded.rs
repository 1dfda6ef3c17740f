//! The embedded store at work: group commit, reads beside the writer, waiting, bounds.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use oncekey::clock::Clock;
use oncekey::events::{Event, Observer};
use oncekey::fingerprint::{Fingerprint, Recipe, Secret};
use oncekey::key::{Key, RecordId, Scope};
use oncekey::record::{
    Kind, Lease, LeaseToken, Outcome, Principal, Retention, Standing, Version, Why,
};
use oncekey::store::embedded::{EmbeddedStore, Options};
use oncekey::store::{
    By, Change, Changed, Claim, Claimed, Ending, Filter, Held, Inspect, Note, OnUnknown, Recover,
    Store, StoreErrorKind,
};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A store in a fresh folder, on a clock that stands still.
pub(crate) struct Rig {
    pub(crate) clock: Clock,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: EmbeddedStore,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let (clock, folder) = (Clock::manual(), tempfile::tempdir().unwrap());
        let store = open(folder.path(), &clock);
        Self { clock, folder, store }
    }

    /// Closes the store and opens it again, after `between` was done to the folder.
    pub(crate) fn reopen(self, between: impl FnOnce(&Path)) -> Self {
        let Self { clock, folder, store } = self;
        drop(store);
        between(folder.path());
        let store = open(folder.path(), &clock);
        Self { clock, folder, store }
    }
}

pub(crate) fn open(path: &Path, clock: &Clock) -> EmbeddedStore {
    EmbeddedStore::open(path, Options { clock: Some(clock.clone()), ..Options::default() }).unwrap()
}

pub(crate) fn fingerprint(of: &str) -> Fingerprint {
    let secret = Secret::from_bytes([7; 32]);
    Recipe::new(&secret, b"test").digester(&secret).field(of.as_bytes()).finish()
}

pub(crate) fn claim(key: &str) -> Claim {
    let (scope, key) = (Scope::new("main", "shared", "POST /pay"), Key::from_text(key).unwrap());
    Claim {
        id: RecordId::derive(Kind::Request, &scope, &key),
        kind: Kind::Request,
        scope,
        key,
        principal: Principal::anonymous(),
        fingerprint: fingerprint("body"),
        token: LeaseToken::random(),
        lease: LEASE,
        horizon: 90 * DAY,
        on_unknown: OnUnknown::Hold,
        age: Duration::ZERO,
        memo: Bytes::new(),
    }
}

pub(crate) async fn acquire(store: &EmbeddedStore, key: &str) -> Lease {
    match store.claim(&claim(key)).await.unwrap() {
        Claimed::Acquired(lease) => lease,
        other => panic!("{key} is acquired, not {other:?}"),
    }
}

pub(crate) fn outcome(text: &str) -> Outcome {
    Outcome::new(Bytes::copy_from_slice(text.as_bytes()))
}

pub(crate) async fn complete(store: &EmbeddedStore, lease: &Lease, text: &str, keep: Retention) {
    let held = store.complete(lease, &outcome(text), keep).await.unwrap();
    assert!(matches!(held, Held::Ours { .. }), "{held:?}");
}

/// Waits until everything so far is in the tables.
pub(crate) async fn in_tables(store: &EmbeddedStore) {
    let _ = store.list(&Filter::default(), None, 1).await.unwrap();
}

/// Claims and completes.
pub(crate) async fn store_outcome(store: &EmbeddedStore, key: &str, text: &str, keep: Retention) {
    let lease = acquire(store, key).await;
    complete(store, &lease, text, keep).await;
}

pub(crate) async fn replays(store: &EmbeddedStore, key: &str, text: &str) {
    match store.claim(&claim(key)).await.unwrap() {
        Claimed::Completed { outcome: found, .. } => assert_eq!(found, outcome(text), "{key}"),
        other => panic!("{key} replays, not {other:?}"),
    }
}

#[derive(Debug, Default)]
struct Batches {
    sizes: Mutex<Vec<usize>>,
}

impl Observer for Batches {
    fn note(&self, event: Event) {
        if let Event::StoreBatch(size) = event {
            self.sizes.lock().unwrap().push(size);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_arrive_while_a_batch_is_synced_share_the_next_sync() {
    let (folder, batches) = (tempfile::tempdir().unwrap(), Arc::new(Batches::default()));
    let options = Options { observer: batches.clone(), ..Options::default() };
    let store = Arc::new(EmbeddedStore::open(folder.path(), options).unwrap());
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..20 {
                    let key = format!("{task}-{round}");
                    store_outcome(&store, &key, &key, Retention::keep(DAY)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let sizes = batches.sizes.lock().unwrap().clone();
    assert_eq!(sizes.iter().sum::<usize>(), 2 * 64 * 20, "every write is told once");
    assert!(sizes.iter().any(|size| *size > 8), "{sizes:?}");
    for key in ["0-0", "63-19"] {
        replays(&store, key, key).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_one_of_a_hundred_simultaneous_claims_wins() {
    let Rig { store, folder: _folder, .. } = Rig::new();
    let store = Arc::new(store);
    for round in 0..20 {
        let won = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let (store, won) = (Arc::clone(&store), Arc::clone(&won));
                tokio::spawn(async move {
                    match store.claim(&claim(&format!("round {round}"))).await.unwrap() {
                        Claimed::Acquired(_) => won.fetch_add(1, Ordering::SeqCst),
                        Claimed::InProgress { .. } => 0,
                        other => panic!("{other:?}"),
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(won.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_replays_are_right_while_others_write() {
    let Rig { store, folder: _folder, .. } = Rig::new();
    let store = Arc::new(store);
    store_outcome(&store, "known", "answer", Retention::keep(DAY)).await;
    let writers: Vec<_> = (0..8)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..50 {
                    let key = format!("{task}-{round}");
                    store_outcome(&store, &key, &key, Retention::keep(DAY)).await;
                    // Whoever completed it sees it at once, and so does everybody else.
                    replays(&store, &key, &key).await;
                }
            })
        })
        .collect();
    while writers.iter().any(|writer| !writer.is_finished()) {
        replays(&store, "known", "answer").await;
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn s4_f1_a_completed_record_at_hand_still_tells_principal_and_mismatch() {
    let Rig { store, folder: _folder, .. } = Rig::new();
    store_outcome(&store, "key", "answer", Retention::keep(DAY)).await;
    let other = Claim { principal: Principal::named("somebody"), ..claim("key") };
    assert_eq!(store.claim(&other).await.unwrap(), Claimed::OtherPrincipal);
    let other = Claim { fingerprint: fingerprint("another body"), ..claim("key") };
    let mismatch = Claimed::Mismatch { first: Standing::Completed };
    assert_eq!(store.claim(&other).await.unwrap(), mismatch);
}

#[tokio::test]
async fn c4_a_waiter_is_woken_by_the_completion() {
    let rig = Rig::new();
    let store = Arc::new(rig.store);
    let lease = acquire(&store, "key").await;
    let Claimed::InProgress { version, .. } = store.claim(&claim("key")).await.unwrap() else {
        panic!("it is in progress");
    };
    let waiter = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.changed(&lease.id, version, DAY).await.unwrap() }
    });
    tokio::task::yield_now().await;
    complete(&store, &lease, "answer", Retention::keep(DAY)).await;
    // The clock stands still: only a wake-up ends it.
    tokio::time::timeout(Duration::from_secs(10), waiter).await.expect("woken").unwrap();
    // And one that comes too late does not wait at all.
    let late = store.changed(&lease.id, version, DAY);
    tokio::time::timeout(Duration::from_secs(10), late).await.expect("at once").unwrap();
}

#[tokio::test]
async fn l1_a_renewed_lease_is_kept_in_memory_and_a_note_on_disk() {
    let rig = Rig::new();
    let lease = acquire(&rig.store, "key").await;
    rig.clock.advance(LEASE / 2);
    let held = rig.store.renew(&lease, LEASE, None).await.unwrap();
    assert_eq!(held, Held::Ours { attempt: 1, expires_in: LEASE });
    rig.clock.advance(LEASE - Duration::from_secs(1));
    let repeat = rig.store.claim(&claim("key")).await.unwrap();
    assert!(matches!(repeat, Claimed::InProgress { .. }), "{repeat:?}");

    let note = Note::Reference("ch_1".into());
    let held = rig.store.renew(&lease, LEASE, Some(&note)).await.unwrap();
    assert!(matches!(held, Held::Ours { .. }));
    let rig = rig.reopen(|_| {});
    let record = rig.store.get(&lease.id).await.unwrap().expect("it is there");
    assert_eq!(record.reference.as_deref(), Some("ch_1"));
}

#[tokio::test]
async fn c2_a_released_record_leaves_nothing_and_its_token_stays_dead() {
    let rig = Rig::new();
    let first = claim("key");
    let Claimed::Acquired(lease) = rig.store.claim(&first).await.unwrap() else { panic!() };
    let held = rig.store.end(&lease, Ending::Release).await.unwrap();
    assert!(matches!(held, Held::Ours { .. }));
    assert_eq!(rig.store.get(&lease.id).await.unwrap(), None);
    assert_eq!(rig.store.claim(&first).await.unwrap(), Claimed::Lost);
    let rig = rig.reopen(|_| {});
    assert_eq!(rig.store.get(&lease.id).await.unwrap(), None);
    assert_eq!(acquire(&rig.store, "key").await.attempt, 1);
}

#[tokio::test]
async fn o1_a_run_that_ended_in_retry_runs_again_and_leaves_no_second_copy() {
    let rig = Rig::new();
    let lease = acquire(&rig.store, "key").await;
    let how = Ending::Retry { status: 500, keep: Retention::keep(DAY) };
    let held = rig.store.end(&lease, how).await.unwrap();
    assert!(matches!(held, Held::Ours { .. }));
    rig.clock.advance(Duration::from_secs(1));
    let rig = rig.reopen(|_| {});
    let lease = acquire(&rig.store, "key").await;
    assert_eq!(lease.attempt, 2);
    // The second run is released: the first one's ending must not come back.
    let held = rig.store.end(&lease, Ending::Release).await.unwrap();
    assert!(matches!(held, Held::Ours { .. }));
    assert_eq!(acquire(&rig.store, "key").await.attempt, 1);
}

#[tokio::test]
async fn u3_a_person_resolves_an_unknown_record_and_it_is_kept() {
    let rig = Rig::new();
    let lease = acquire(&rig.store, "key").await;
    let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
    let held = rig.store.end(&lease, how).await.unwrap();
    assert!(matches!(held, Held::Ours { .. }));
    let seen = rig.store.get(&lease.id).await.unwrap().expect("it is there").version;
    let by = By { who: "ann".into(), reason: "looked it up".into() };
    let change = Change::Complete(outcome("resolved"), Retention::keep(DAY));
    let stale = rig.store.change(&lease.id, Version::from_number(1), change.clone(), &by).await;
    assert!(matches!(stale.unwrap(), Changed::Moved(Some(_))));
    let made = rig.store.change(&lease.id, seen, change, &by).await.unwrap();
    assert!(matches!(made, Changed::Made(version) if version > seen));
    let rig = rig.reopen(|_| {});
    replays(&rig.store, "key", "resolved").await;
    let record = rig.store.get(&lease.id).await.unwrap().expect("it is there");
    assert_eq!(record.audit[0].who, "ann");
}

#[tokio::test]
async fn e4_recovery_takes_each_unknown_record_once() {
    let rig = Rig::new();
    for key in ["a", "b", "c"] {
        let _ = acquire(&rig.store, key).await;
    }
    let store = rig.store;
    rig.clock.advance(2 * LEASE);
    let take = || store.take_unknown(Kind::Request, Duration::ZERO, LEASE, 10, 2);
    let (first, second) = (take().await.unwrap(), take().await.unwrap());
    assert_eq!((first.len(), second.len()), (2, 1));
    let mut ids: Vec<_> = first.iter().chain(&second).map(|(record, _)| record.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert_eq!(take().await.unwrap(), Vec::new());
    // The new holder completes.
    complete(&store, &first[0].1, "found out", Retention::keep(DAY)).await;
}

#[tokio::test]
async fn x5_above_the_bound_new_claims_are_refused_and_running_work_completes() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        EmbeddedStore::open(folder.path(), Options { max_live: 2, ..Options::default() }).unwrap();
    let lease = acquire(&store, "a").await;
    let _ = acquire(&store, "b").await;
    let error = store.claim(&claim("c")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full);
    let repeat = store.claim(&claim("a")).await.unwrap();
    assert!(matches!(repeat, Claimed::InProgress { .. }), "known keys are answered: {repeat:?}");
    complete(&store, &lease, "answer", Retention::keep(DAY)).await;
    let _ = acquire(&store, "c").await;
}

#[tokio::test]
async fn x5_what_is_beyond_the_bounds_is_refused_before_it_is_queued() {
    let Rig { store, folder: _folder, .. } = Rig::new();
    let large = Claim { memo: Bytes::from(vec![0; 4097]), ..claim("key") };
    let error = store.claim(&large).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutOfBounds);
    let lease = acquire(&store, "key").await;
    let huge = Outcome::new(vec![0; (16 << 20) + 1]);
    let error = store.complete(&lease, &huge, Retention::keep(DAY)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutOfBounds);
    let most = Outcome::new(vec![7; 16 << 20]);
    let held = store.complete(&lease, &most, Retention::keep(DAY)).await.unwrap();
    assert!(matches!(held, Held::Ours { .. }));
}

#[tokio::test]
async fn a_listing_meets_every_record_once_in_order_and_by_pages() {
    let rig = Rig::new();
    for number in 0..30 {
        store_outcome(&rig.store, &format!("done {number}"), "x", Retention::keep(DAY)).await;
    }
    for number in 0..5 {
        let _ = acquire(&rig.store, &format!("held {number}")).await;
    }
    store_outcome(&rig.store, "short", "x", Retention::keep(Duration::from_secs(1))).await;
    rig.clock.advance(Duration::from_secs(2));

    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = rig.store.list(&Filter::default(), cursor, 7).await.unwrap();
        assert!(page.records.len() <= 7);
        ids.extend(page.records.iter().map(|record| record.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(ids.len(), 35);
    assert!(ids.is_sorted());
    ids.dedup();
    assert_eq!(ids.len(), 35);

    let held = Filter { standing: Some(Standing::InProgress), ..Filter::default() };
    let page = rig.store.list(&held, None, 100).await.unwrap();
    assert_eq!((page.records.len(), page.next), (5, None));
    let counts = rig.store.counts().await.unwrap();
    assert_eq!((counts.in_progress, counts.unknown), (5, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_misses_no_record_that_moves_between_keyspaces() {
    let Rig { store, clock, folder: _folder } = Rig::new();
    let store = Arc::new(store);
    for key in 0..20 {
        let _ = acquire(&store, &key.to_string()).await;
    }
    let movers: Vec<_> = (0..20)
        .map(|key: usize| {
            let (store, clock) = (Arc::clone(&store), clock.clone());
            tokio::spawn(async move {
                let key = key.to_string();
                let again = Claim { on_unknown: OnUnknown::TakeOver, ..claim(&key) };
                clock.advance(2 * LEASE);
                for _ in 0..20 {
                    // Now and then into a bucket of its own.
                    clock.advance(LEASE);
                    let again = Claim { token: LeaseToken::random(), ..again.clone() };
                    let lease = match store.claim(&again).await.unwrap() {
                        Claimed::Acquired(lease) => lease,
                        _ => continue,
                    };
                    let how = Ending::Retry { status: 500, keep: Retention::keep(DAY) };
                    let _ = store.end(&lease, how).await.unwrap();
                }
            })
        })
        .collect();
    while movers.iter().any(|mover| !mover.is_finished()) {
        let page = store.list(&Filter::default(), None, 100).await.unwrap();
        assert_eq!((page.records.len(), page.next, page.unreadable), (20, None, 0));
    }
    for mover in movers {
        mover.await.unwrap();
    }
}

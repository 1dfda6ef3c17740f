//! The embedded store on disks that fill, hang and disappear (X5, X7).

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use oncekey::engine::{Begun, Engine, RunEnded, Terms, Wait};
use oncekey::events::{Event, Observer};
use oncekey::record::{Lease, Outcome, Retention, Why};
use oncekey::store::embedded::{EmbeddedStore, Failure, OpenError, Options, Room};
use oncekey::store::{
    By, Change, Changed, Claimed, Ending, Filter, Held, Inspect, Store, StoreErrorKind,
};

use crate::embedded::{DAY, LEASE, acquire, claim, complete, outcome, replays, store_outcome};
use crate::small_disk::SmallDisk;

const MIB: u64 = 1 << 20;

/// How long a test waits for what must come.
const PATIENCE: usize = 3_000;

/// Returns once the condition holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..PATIENCE {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to this: {what}");
}

async fn failure(store: &EmbeddedStore) -> Failure {
    until("the store fails", || store.failed().is_cancelled()).await;
    store.failure().expect("the cause is there before the signal")
}

/// No call gets more than an error.
async fn is_of_no_use(store: &EmbeddedStore, held: &Lease) {
    let kinds = [
        store.claim(&claim("another")).await.err(),
        store.claim(&claim("ended")).await.err(),
        store.renew(held, LEASE, None).await.err(),
        store.complete(held, &outcome("done"), Retention::keep(DAY)).await.err(),
        store.end(held, Ending::Release).await.err(),
        store.get(&held.id).await.err(),
        store.list(&Filter::default(), None, 10).await.err(),
        store.counts().await.err(),
        store.purge_expired(10).await.err(),
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let kind = kind.unwrap_or_else(|| panic!("call {at} is answered")).kind();
        assert_eq!(kind, StoreErrorKind::Unavailable, "call {at}");
    }
    assert!(!store.is_healthy());
}

/// A store on a small disk that keeps 32 MiB free.
fn reserved(disk: &SmallDisk) -> EmbeddedStore {
    let options = Options { reserve_bytes: Some(32 * MIB), ..Options::default() };
    EmbeddedStore::open(disk.folder(), options).unwrap()
}

async fn refuses(store: &EmbeddedStore, key: &str) {
    let refused = store.claim(&claim(key)).await.expect_err("the store is full");
    assert_eq!(refused.kind(), StoreErrorKind::Full);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x5_a_full_disk_refuses_new_claims_and_lets_running_ones_complete() {
    let Some(disk) = SmallDisk::mount(96) else { return };
    let store = reserved(&disk);
    let mut running = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        running.push(acquire(&store, key).await);
    }
    let [a, b, c, d, e] = running[..] else { panic!("five") };
    store_outcome(&store, "ended", "done", Retention::keep(DAY)).await;
    assert_eq!(store.space().room, Room::Open);
    disk.leave(20);
    until("the disk is seen to be full", || store.space().room == Room::Full).await;
    assert_eq!(store.space().reserve_bytes, 32 * MIB);

    refuses(&store, "new").await;
    replays(&store, "ended", "done").await;
    assert!(matches!(store.renew(&a, LEASE, None).await, Ok(Held::Ours { .. })));
    complete(&store, &a, &"x".repeat(200_000), Retention::keep(DAY)).await;
    assert!(matches!(store.end(&b, Ending::Release).await, Ok(Held::Ours { .. })));
    let unknown = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
    assert!(matches!(store.end(&c, unknown).await, Ok(Held::Ours { .. })));
    let seen = store.get(&c.id).await.unwrap().unwrap().version;
    let by = By { who: "me".into(), reason: "seen at the provider".into() };
    let resolution = Change::Complete(outcome("paid"), Retention::keep(DAY));
    let changed = store.change(&c.id, seen, resolution, &by).await.unwrap();
    assert!(matches!(changed, Changed::Made(_)), "{changed:?}");
    assert_eq!(store.list(&Filter::default(), None, 10).await.unwrap().records.len(), 5);
    store.purge_expired(10).await.unwrap();
    refuses(&store, "b").await;

    // Below a quarter of the reserve only small outcomes are taken.
    disk.leave(6);
    until("it is seen to be worse", || store.space().room == Room::Critical).await;
    let large = outcome(&"x".repeat(100_000));
    let refused = store.complete(&d, &large, Retention::keep(DAY)).await.expect_err("too large");
    assert_eq!(refused.kind(), StoreErrorKind::Full);
    assert!(matches!(store.claim(&claim("d")).await, Ok(Claimed::InProgress { .. })));
    complete(&store, &d, "small", Retention::keep(DAY)).await;
    // The same call again finds what it wrote (X4).
    let again = store.complete(&a, &large, Retention::keep(DAY)).await;
    assert!(matches!(again, Ok(Held::Ours { .. })), "{again:?}");
    refuses(&store, "new").await;

    disk.relieve();
    until("there is room again", || store.space().room == Room::Open).await;
    complete(&store, &e, &"x".repeat(200_000), Retention::keep(DAY)).await;
    store_outcome(&store, "new", "done", Retention::keep(DAY)).await;
    assert!(store.is_healthy());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x5_at_worst_an_outcome_is_stored_without_what_may_be_left_out() {
    let Some(disk) = SmallDisk::mount(96) else { return };
    let store = Arc::new(reserved(&disk));
    let engine = Engine::new(Arc::clone(&store) as _);
    let terms = Terms { wait: Wait::Reject, max_run: LEASE };
    let begun = engine.begin(claim("k"), engine.clock().now(), terms, std::future::pending()).await;
    let Ok(Begun::Run(run)) = begun else { panic!("{begun:?}") };
    disk.leave(6);
    until("the disk is nearly full", || store.space().room == Room::Critical).await;
    let lessen = |_: &Outcome| outcome("status and headers");
    let large = outcome(&"x".repeat(1_000_000));
    let ended = run.complete_at_least(large, Retention::keep(DAY), lessen).await;
    assert!(matches!(ended, RunEnded::Stored { .. }), "{ended:?}");
    replays(&store, "k", "status and headers").await;
}

#[tokio::test]
async fn x5_a_folder_above_its_bound_refuses_new_claims() {
    let folder = tempfile::tempdir().unwrap();
    let bounded = |most| Options { max_bytes: Some(most), ..Options::default() };
    let store = EmbeddedStore::open(folder.path(), bounded(1024 * MIB)).unwrap();
    store_outcome(&store, "ended", "done", Retention::keep(DAY)).await;
    let held = acquire(&store, "running").await;
    assert!(store.space().used_bytes >= 64 * MIB, "a journal: {:?}", store.space());
    drop(store);
    let store = EmbeddedStore::open(folder.path(), bounded(1)).unwrap();
    assert_eq!(store.space().room, Room::Full);
    refuses(&store, "new").await;
    replays(&store, "ended", "done").await;
    // A late completion decides, however large.
    complete(&store, &held, &"x".repeat(200_000), Retention::keep(DAY)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_a_disk_that_is_filled_to_the_last_byte_fails_the_store_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount(96) else { return };
    // No reserve: the worst case of somebody who fills it faster than the guard looks.
    let options = || Options { reserve_bytes: Some(0), ..Options::default() };
    let store = EmbeddedStore::open(disk.folder(), options()).unwrap();
    store_outcome(&store, "ended", "done", Retention::keep(DAY)).await;
    let held = acquire(&store, "held").await;
    disk.fill();
    let large = outcome(&"x".repeat(1_000_000));
    let mut acknowledged = Vec::new();
    for number in 0..1_000 {
        let key = format!("k{number}");
        let Ok(Claimed::Acquired(lease)) = store.claim(&claim(&key)).await else { break };
        let stored = store.complete(&lease, &large, Retention::keep(DAY)).await;
        if !matches!(stored, Ok(Held::Ours { .. })) {
            break;
        }
        acknowledged.push(key);
    }
    let failure = failure(&store).await;
    assert!(matches!(&failure, Failure::Write { .. }), "{failure:?}");
    assert!(failure.to_string().contains("free space"), "{failure}");
    is_of_no_use(&store, &held).await;
    drop(store);
    disk.relieve();
    let store = EmbeddedStore::open(disk.folder(), options()).unwrap();
    replays(&store, "ended", "done").await;
    for key in &acknowledged {
        assert!(matches!(store.claim(&claim(key)).await, Ok(Claimed::Completed { .. })), "{key}");
    }
    assert!(matches!(store.claim(&claim("held")).await, Ok(Claimed::Unknown { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_an_engine_that_fails_in_the_background_fails_an_idle_store() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { memtable_bytes: 64 << 10, ..Options::default() };
    let store = EmbeddedStore::open(folder.path(), options).unwrap();
    let held = acquire(&store, "held").await;
    // So that its bucket is there: nothing but a file of it is still to be made.
    store_outcome(&store, "ended", "done", Retention::keep(DAY)).await;
    let keyspaces = folder.path().join("db/keyspaces");
    fs::rename(&keyspaces, folder.path().join("elsewhere")).unwrap();
    fs::write(&keyspaces, "").unwrap();
    // Enough for a file to be written, by a thread that nobody waits for. Then nothing is asked.
    complete(&store, &held, &"x".repeat(200_000), Retention::keep(DAY)).await;
    let failure = failure(&store).await;
    assert!(matches!(failure, Failure::Write { .. }), "{failure:?}");
    is_of_no_use(&store, &held).await;
}

#[tokio::test]
async fn x7_a_folder_that_is_deleted_fails_the_store_within_a_second_or_so() {
    for replace in [Replace::No, Replace::ByACopy] {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("data");
        let store = EmbeddedStore::open(&folder, Options::default()).unwrap();
        let held = acquire(&store, "held").await;
        match replace {
            Replace::No => fs::remove_dir_all(&folder).unwrap(),
            Replace::ByACopy => {
                let away = outer.path().join("away");
                fs::rename(&folder, &away).unwrap();
                let copied = Command::new("cp").arg("-r").args([&away, &folder]).status();
                assert!(copied.unwrap().success());
            }
        }
        // Nothing is asked: an idle store must notice, too.
        let failure = failure(&store).await;
        assert!(matches!(&failure, Failure::FolderGone { path } if *path == folder), "{failure:?}");
        is_of_no_use(&store, &held).await;
    }
}

#[derive(Clone, Copy)]
enum Replace {
    No,
    ByACopy,
}

/// Holds the writer up, as a disk does that does not answer, until its other end is dropped.
#[derive(Debug)]
struct Hanging {
    armed: Mutex<Option<Receiver<()>>>,
}

impl Hanging {
    fn new() -> (Arc<Self>, SyncSender<()>) {
        let (release, held) = sync_channel(0);
        (Arc::new(Self { armed: Mutex::new(Some(held)) }), release)
    }
}

impl Observer for Hanging {
    fn note(&self, event: Event) {
        if let Event::StoreBatch(_) = event {
            let held = self.armed.lock().unwrap().take();
            held.map(|held| held.recv());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_a_writer_that_hangs_fails_the_store_and_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let (observer, release) = Hanging::new();
    let stall = Duration::from_millis(300);
    let options = Options { observer, stall, ..Options::default() };
    let store = Arc::new(EmbeddedStore::open(folder.path(), options).unwrap());
    let hangs = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.claim(&claim("k")).await.map(drop) }
    });
    let failure = failure(&store).await;
    assert!(matches!(failure, Failure::Stuck { .. }), "{failure:?}");
    let again = store.claim(&claim("k")).await.expect_err("it has failed");
    assert_eq!(again.kind(), StoreErrorKind::Unavailable);
    hangs.abort();
    let _ = hangs.await;
    // Dropped although a write hangs; the folder stays taken as long as it does.
    drop(Arc::into_inner(store).expect("nobody else has it"));
    let taken = EmbeddedStore::open(folder.path(), Options::default());
    assert!(matches!(taken, Err(OpenError::InUse { .. })), "{taken:?}");
    // Before anybody has looked at the engine's files.
    let lock = fs::File::open(folder.path().join("lock")).unwrap();
    assert!(lock.try_lock().is_err());
    drop(release);
    let path = folder.path().to_owned();
    until("the folder is free", || EmbeddedStore::open(&path, Options::default()).is_ok()).await;
}

const STOPPED: &str = "ONCEKEY_TEST_STOPPED_FOLDER";

/// Writes all the time, and says so, until its store fails.
#[test]
fn child_that_is_stopped() {
    let Some(path) = std::env::var_os(STOPPED) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let options = Options { stall: Duration::from_secs(3), ..Options::default() };
        let store = EmbeddedStore::open(Path::new(&path), options).unwrap();
        for number in 0.. {
            match store.claim(&claim(&format!("{number}"))).await {
                Ok(_) => println!("\nclaimed {number}"),
                Err(_) => return println!("\nfailed {:?}", store.failure()),
            }
        }
    });
}

#[test]
fn x7_a_process_that_was_stopped_for_long_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "embedded_guard::child_that_is_stopped", "--nocapture"])
        .env(STOPPED, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id().to_string();
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, id.as_str()]).status().unwrap();
        assert!(sent.success(), "{name}");
    };
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut claims = |count: usize| {
        let mut claimed = 0;
        while claimed < count {
            let line = lines.next().expect("it goes on").unwrap();
            assert!(!line.starts_with("failed"), "{line}");
            claimed += usize::from(line.starts_with("claimed"));
        }
    };
    claims(50);
    signal("-STOP");
    // Longer than a writer may stand still: the time itself is what is tried.
    thread::sleep(Duration::from_secs(4));
    signal("-CONT");
    // More than a pipe holds of what was said before.
    claims(6_000);
    child.kill().unwrap();
    child.wait().unwrap();
}

//! Opening a folder of the embedded store: what is refused, and what is left alone by a refusal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use oncekey::clock::Clock;
use oncekey::key::RecordId;
use oncekey::record::{Retention, Version};
use oncekey::store::embedded::{Damage, EmbeddedStore, OpenError, Options};
use oncekey::store::{By, Change, Changed, Filter, Held, Inspect, Store, StoreErrorKind};

use crate::embedded::{DAY, Rig, acquire, claim, outcome, replays, store_outcome};

/// Where the child of a test finds its folder.
const FOLDER: &str = "ONCEKEY_TEST_OPEN_FOLDER";

/// What a folder holds: names and contents, the locks left out.
fn content(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let name = entry.path().display().to_string();
        if entry.path().is_dir() {
            found.extend(content(&entry.path()));
            found.push((name, Vec::new()));
        } else {
            found.push((name, fs::read(entry.path()).unwrap()));
        }
    }
    found.sort();
    found
}

/// Writes what `change` makes of every entry of a closed folder that it changes, and `more` into
/// the keyspace `meta`, in a batch that follows on the store's own.
pub(crate) fn rewrite(
    path: &Path,
    mut change: impl FnMut(&str, &[u8], &[u8]) -> Option<Vec<u8>>,
    more: &[(&str, Vec<u8>)],
) {
    let database = fjall::Database::builder(path.join("db")).open().unwrap();
    let (mut batch, mut last, mut touched) = (database.batch(), [0; 32], Vec::new());
    let number = |mark: &[u8]| u64::from_le_bytes(mark[..8].try_into().unwrap());
    for name in database.list_keyspace_names() {
        let keyspace = database.keyspace(&name, Default::default).unwrap();
        let mut is_touched = false;
        for entry in keyspace.iter() {
            let (key, value) = entry.into_inner().unwrap();
            if &*key == b"mark" {
                if number(&value) > number(&last) {
                    last.copy_from_slice(&value);
                }
            } else if let Some(changed) = change(&name, &key, &value) {
                batch.insert(&keyspace, &key[..], changed);
                is_touched = true;
            }
        }
        if &*name == "meta" {
            for (key, value) in more {
                batch.insert(&keyspace, *key, value.as_slice());
                is_touched = true;
            }
        }
        if is_touched {
            touched.push(keyspace);
        }
    }
    let next = number(&last) + 1;
    last[..8].copy_from_slice(&next.to_le_bytes());
    for keyspace in &touched {
        batch.insert(keyspace, "mark", last);
    }
    batch.durability(Some(fjall::PersistMode::SyncAll)).commit().unwrap();
}

/// Changes one bit of each of these records.
pub(crate) fn damage(path: &Path, ids: &[RecordId]) {
    let change = |_: &str, key: &[u8], value: &[u8]| {
        ids.iter().any(|id| id.as_bytes() == key).then(|| {
            let mut value = value.to_vec();
            let middle = value.len() / 2;
            value[middle] ^= 1;
            value
        })
    };
    rewrite(path, change, &[]);
}

/// Runs this test binary again, only to open the folder and say how that went.
fn open_in_child(path: &Path, user: Option<u32>) -> String {
    // Another user may not even reach this binary where it was built.
    let reach = tempfile::tempdir().unwrap();
    fs::set_permissions(reach.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (here, there) = (std::env::current_exe().unwrap(), reach.path().join("test"));
    fs::hard_link(&here, &there).or_else(|_| fs::copy(&here, &there).map(drop)).unwrap();
    let mut command = Command::new(there);
    command.args(["--exact", "embedded_open::child_that_opens", "--nocapture"]).env(FOLDER, path);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn child_that_opens() {
    // It works only where another test runs it, in a process of its own.
    let Some(path) = std::env::var_os(FOLDER) else { return };
    match EmbeddedStore::open(Path::new(&path), Options::default()) {
        Ok(_) => println!("opened"),
        Err(error) => println!("refused: {error}"),
    }
}

#[tokio::test]
async fn a_folder_that_is_in_use_is_refused_and_free_once_the_store_is_dropped() {
    let rig = Rig::new();
    let error = EmbeddedStore::open(rig.folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    let told = open_in_child(rig.folder.path(), None);
    assert!(told.contains("refused") && told.contains("in use"), "{told}");
    assert!(told.contains(&rig.folder.path().display().to_string()), "{told}");

    let Rig { folder, store, .. } = rig;
    drop(store);
    let told = open_in_child(folder.path(), None);
    assert!(told.contains("opened"), "{told}");
}

#[test]
fn a_folder_that_is_not_writable_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = Some(65_534);
    let told = open_in_child(folder.path(), nobody);
    assert!(told.contains("is not writable"), "{told}");
    assert_eq!(content(folder.path()), Vec::new());
    // One that would have to be made there is not either.
    let told = open_in_child(&folder.path().join("data"), nobody);
    assert!(told.contains("is not writable"), "{told}");
}

#[test]
fn a_new_folder_is_nobody_elses_business() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("a/b");
    drop(EmbeddedStore::open(&path, Options::default()).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn x3_a_newer_format_is_refused_and_nothing_is_changed() {
    let rig = Rig::new();
    store_outcome(&rig.store, "key", "answer", Retention::keep(DAY)).await;
    let Rig { folder, store, .. } = rig;
    drop(store);
    fs::write(folder.path().join("format"), "oncekey embedded 2\n").unwrap();
    fs::remove_file(folder.path().join("lock")).unwrap();
    let before = content(folder.path());
    let error = EmbeddedStore::open(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::NewerVersion { found: 2, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("newer version"), "{error}");
    assert_eq!(content(folder.path()), before);
}

#[test]
fn a_format_that_is_missing_or_unreadable_is_damage_not_an_empty_store() {
    let folder = tempfile::tempdir().unwrap();
    drop(EmbeddedStore::open(folder.path(), Options::default()).unwrap());
    let format = folder.path().join("format");
    for text in ["", "oncekey embedded 1", "oncekey embedded 0\n", "hello\n"] {
        fs::write(&format, text).unwrap();
        let error = EmbeddedStore::open(folder.path(), Options::default()).unwrap_err();
        let expected = matches!(error, OpenError::Damaged { damage: Damage::FormatUnreadable, .. });
        assert!(expected, "{text:?}: {error}");
    }
    fs::remove_file(&format).unwrap();
    let error = EmbeddedStore::open(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { damage: Damage::FormatMissing, .. }), "{error}");
}

#[tokio::test]
async fn s4_the_secret_is_made_once_and_kept() {
    let rig = Rig::new();
    let secret = rig.store.secret();
    assert_ne!(Rig::new().store.secret(), secret);
    let rig = rig.reopen(|_| {});
    assert_eq!(rig.store.secret(), secret);
}

#[tokio::test]
async fn x3_a_damaged_record_refuses_its_own_key_and_no_other() {
    let rig = Rig::new();
    let live = acquire(&rig.store, "live").await.id;
    store_outcome(&rig.store, "ended", "answer", Retention::keep(DAY)).await;
    store_outcome(&rig.store, "fine", "answer", Retention::keep(DAY)).await;
    let ended = claim("ended").id;
    let rig = rig.reopen(|path| damage(path, &[live, ended]));
    for (key, id) in [("live", live), ("ended", ended)] {
        let error = rig.store.claim(&claim(key)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unreadable, "{key}");
        let error = rig.store.get(&id).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unreadable, "{key}");
    }
    replays(&rig.store, "fine", "answer").await;
    let page = rig.store.list(&Filter::default(), None, 10).await.unwrap();
    assert_eq!((page.records.len(), page.unreadable), (1, 2));

    // A person may delete it, and only then is the key new.
    let by = By { who: "ann".into(), reason: "damaged".into() };
    for (key, id) in [("live", live), ("ended", ended)] {
        let seen = Version::UNREADABLE;
        let made = rig.store.change(&id, seen, Change::Release, &by).await.unwrap();
        assert_eq!(made, Changed::Made(Version::ABSENT), "{key}");
        assert_eq!(acquire(&rig.store, key).await.attempt, 1);
    }
}

#[tokio::test]
async fn l4_the_clock_never_runs_behind_what_the_folder_has_seen() {
    let (folder, ahead) = (tempfile::tempdir().unwrap(), Clock::manual());
    ahead.advance(10_000 * DAY);
    let options = Options { clock: Some(ahead.clone()), ..Options::default() };
    let store = EmbeddedStore::open(folder.path(), options).unwrap();
    store_outcome(&store, "key", "answer", Retention::keep(DAY)).await;
    drop(store);
    // The wall clock lies far behind now.
    let store = EmbeddedStore::open(folder.path(), Options::default()).unwrap();
    assert!(store.clock().now() >= ahead.now());
    replays(&store, "key", "answer").await;
}

#[tokio::test]
async fn versions_grow_across_a_restart() {
    let (mut rig, mut last) = (Rig::new(), Version::ABSENT);
    for round in 0..3 {
        let id = acquire(&rig.store, &format!("round {round}")).await.id;
        let version = rig.store.get(&id).await.unwrap().expect("it is there").version;
        assert!(version > last, "{version:?} > {last:?}");
        rig = rig.reopen(|_| {});
        // Opening made it unknown, which is a write too.
        last = rig.store.get(&id).await.unwrap().expect("it is there").version;
        assert!(last > version, "{last:?} > {version:?}");
    }
}

#[tokio::test]
async fn x7_a_store_that_could_not_write_says_so_and_serves_nothing_more() {
    let rig = Rig::new();
    let lease = acquire(&rig.store, "key").await;
    // The first completion needs a bucket, and there is nowhere to make it.
    let keyspaces = rig.folder.path().join("db/keyspaces");
    fs::remove_dir_all(&keyspaces).unwrap();
    fs::write(&keyspaces, "").unwrap();
    let keep = Retention::keep(DAY);
    // It is in the log, and so it is kept, whatever becomes of the tables.
    let held = rig.store.complete(&lease, &outcome("answer"), keep).await.unwrap();
    assert!(matches!(held, Held::Ours { .. }), "{held:?}");
    rig.store.failed().cancelled().await;
    assert!(!rig.store.is_healthy());
    let error = rig.store.claim(&claim("other")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let error = rig.store.complete(&lease, &outcome("answer"), keep).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

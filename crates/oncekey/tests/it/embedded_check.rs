//! Looking at a folder without changing it: what is found intact, what is named as damaged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncekey::clock::Clock;
use oncekey::record::{Retention, Why};
use oncekey::store::embedded::{
    Damage, EmbeddedStore, OpenError, Options, Progress, Report, Step, accept_loss, check,
};
use oncekey::store::{Ending, Store};

use crate::embedded::{DAY, Rig, acquire, claim, store_outcome};
use crate::embedded_open::damage;

/// How many records of [`filled`] are completed.
pub(crate) const COMPLETED: usize = 120;

/// Everything in a folder, by name: what a file holds, and when it was last changed.
pub(crate) fn tree(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let meta = fs::metadata(&folder).unwrap();
        found.insert(folder.clone(), (Vec::new(), meta.mtime(), meta.mtime_nsec()));
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let meta = fs::metadata(&path).unwrap();
            // Journals are preallocated: what was never written is not worth holding.
            let mut bytes = fs::read(&path).unwrap();
            bytes.truncate(used(&bytes));
            bytes.shrink_to_fit();
            bytes.extend(meta.len().to_le_bytes());
            found.insert(path, (bytes, meta.mtime(), meta.mtime_nsec()));
        }
    }
    found
}

/// How many bytes there are before nothing but zeros.
fn used(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 1 << 12] = [0; 1 << 12];
    let mut used = bytes.len();
    // Whole pieces first: that is a comparison of memory, and most of a journal.
    while used >= ZEROS.len() && bytes[used - ZEROS.len()..used] == ZEROS {
        used -= ZEROS.len();
    }
    bytes[..used].iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
}

/// A closed store that has tables as well as journals, and records of every standing.
pub(crate) async fn filled() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { memtable_bytes: 32 << 10, ..Options::default() };
    let store = EmbeddedStore::open(folder.path(), options).unwrap();
    for number in 0..COMPLETED {
        let answer = format!("answer {number} ").repeat(100);
        store_outcome(&store, &format!("key {number}"), &answer, Retention::keep(DAY)).await;
    }
    let lease = acquire(&store, "retry").await;
    let how = Ending::Retry { status: 500, keep: Retention::keep(DAY) };
    let _ = store.end(&lease, how).await.unwrap();
    let lease = acquire(&store, "unknown").await;
    let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
    let _ = store.end(&lease, how).await.unwrap();
    let _ = acquire(&store, "in progress").await;
    // Background threads make the tables; there is no other way to be told of them.
    let deadline = Clock::real();
    let end = deadline.now().after(Duration::from_secs(30));
    while tables(folder.path()).is_empty() {
        assert!(deadline.now() < end, "no table is made");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(store);
    folder
}

/// The tables of records, not those of the engine's own keyspace.
pub(crate) fn tables(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for keyspace in fs::read_dir(folder.join("db/keyspaces")).unwrap() {
        let keyspace = keyspace.unwrap().path();
        if keyspace.ends_with("0") {
            continue;
        }
        let tables = fs::read_dir(keyspace.join("tables")).into_iter().flatten();
        found.extend(tables.map(|table| table.unwrap().path()));
    }
    found.sort();
    found
}

pub(crate) fn quietly(path: &Path) -> Result<Report, OpenError> {
    check(path, &mut |_| {})
}

/// Changes one bit in the middle of a file.
pub(crate) fn flip(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let at = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[tokio::test]
async fn a4_an_intact_folder_is_counted_and_not_changed() {
    let folder = filled().await;
    let before = tree(folder.path());
    let mut steps: Vec<Progress> = Vec::new();
    let report = check(folder.path(), &mut |progress| steps.push(progress)).unwrap();
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(tree(folder.path()), before);

    let standings = report.standings;
    assert_eq!(standings.completed, COMPLETED as u64);
    assert_eq!((standings.retry, standings.unknown, standings.in_progress), (1, 1, 1));
    assert_eq!(report.format, 1);
    assert!(report.tables > 1 && report.table_bytes > 32 << 10, "{report:?}");
    let live = report.keyspaces.iter().find(|space| space.name == "live").unwrap();
    assert_eq!((live.records, live.unreadable), (2, 0));
    assert!(report.keyspaces.iter().all(|space| space.last_batch > 0));
    let records: u64 = report.keyspaces.iter().map(|space| space.records).sum();
    assert_eq!(records, COMPLETED as u64 + 3);

    for step in [Step::Files, Step::Records] {
        let told: Vec<_> = steps.iter().filter(|told| told.step == step).collect();
        assert!(told.is_sorted_by_key(|told| told.done), "{told:?}");
        assert!(told.iter().all(|told| told.done <= told.total), "{told:?}");
        let last = told.last().expect("each step is told");
        assert_eq!(last.done, last.total, "{step:?}");
    }
}

#[tokio::test]
async fn a4_a_folder_on_a_read_only_disk_can_be_checked() {
    let folder = filled().await;
    // Whoever took a snapshot of it has no lock file to make either.
    fs::remove_file(folder.path().join("lock")).unwrap();
    let before = tree(folder.path());
    assert!(quietly(folder.path()).unwrap().is_intact());
    assert_eq!(tree(folder.path()), before);
}

#[tokio::test]
async fn a4_a_folder_in_use_is_refused() {
    let rig = Rig::new();
    let error = quietly(rig.folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
}

#[test]
fn a4_where_there_is_no_store_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_path_buf(), folder.path().join("none")] {
        let error = quietly(&path).unwrap_err();
        assert!(matches!(error, OpenError::NoStore { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn x3_a_newer_format_is_refused() {
    let folder = filled().await;
    fs::write(folder.path().join("format"), "oncekey embedded 2\n").unwrap();
    let error = quietly(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::NewerVersion { found: 2, .. }), "{error}");
}

#[tokio::test]
async fn x3_every_damaged_or_missing_table_is_named() {
    let folder = filled().await;
    let tables = tables(folder.path());
    for (number, table) in tables.iter().enumerate() {
        let intact = fs::read(table).unwrap();
        match number % 3 {
            0 => flip(table),
            1 => fs::write(table, &intact[..intact.len() - 1]).unwrap(),
            _ => fs::remove_file(table).unwrap(),
        }
        let before = tree(folder.path());
        let report = quietly(folder.path()).unwrap();
        assert_eq!(tree(folder.path()), before);
        assert!(!report.is_intact());
        let named =
            report.flaws.iter().find(|flaw| flaw.path.ends_with(table.file_name().unwrap()));
        let damage = &named.unwrap_or_else(|| panic!("{report:?}")).damage;
        match number % 3 {
            2 => assert!(matches!(damage, Damage::FileMissing), "{damage}"),
            _ => assert!(matches!(damage, Damage::FileChanged), "{damage}"),
        }
        fs::write(table, intact).unwrap();
    }
    assert!(quietly(folder.path()).unwrap().is_intact());
}

#[tokio::test]
async fn x3_a_damaged_list_of_tables_is_named() {
    let folder = filled().await;
    for keyspace in fs::read_dir(folder.path().join("db/keyspaces")).unwrap() {
        for entry in fs::read_dir(keyspace.unwrap().path()).unwrap() {
            let file = entry.unwrap().path();
            let current = fs::read(file.with_file_name("current")).unwrap();
            let in_force = format!("v{}", u64::from_le_bytes(current[..8].try_into().unwrap()));
            // Older lists are left over until the next opening.
            if !file.ends_with("current") && !file.ends_with(in_force) {
                continue;
            }
            let intact = fs::read(&file).unwrap();
            flip(&file);
            let report = quietly(folder.path()).unwrap();
            assert!(!report.is_intact(), "{} is flipped", file.display());
            fs::write(&file, intact).unwrap();
        }
    }
}

#[tokio::test]
async fn x3_what_is_left_of_a_deleted_keyspace_is_no_damage() {
    let folder = filled().await;
    let deleted = folder.path().join("db/keyspaces/99");
    fs::create_dir_all(deleted.join("tables")).unwrap();
    fs::write(deleted.join("tables/1"), "what is left").unwrap();
    assert!(quietly(folder.path()).unwrap().is_intact());
    fs::write(deleted.join("current"), "as good as gone").unwrap();
    assert!(quietly(folder.path()).unwrap().is_intact());
    // Where it cannot be told what is needed, nothing passes for deleted.
    fs::remove_file(folder.path().join("synced")).unwrap();
    let report = quietly(folder.path()).unwrap();
    assert!(report.flaws.iter().any(|flaw| flaw.path.starts_with(&deleted)), "{report:?}");
}

#[tokio::test]
async fn x3_a_keyspace_or_a_batch_that_is_missing_is_named() {
    let folder = filled().await;
    let live = tables(folder.path())[0].ancestors().nth(2).unwrap().to_path_buf();
    fs::rename(&live, folder.path().join("gone")).unwrap();
    let report = quietly(folder.path()).unwrap();
    let missing = |damage: &Damage| matches!(damage, Damage::KeyspaceMissing { .. });
    assert!(report.flaws.iter().any(|flaw| missing(&flaw.damage)), "{report:?}");
    assert!(!report.records_read);
    fs::rename(folder.path().join("gone"), &live).unwrap();

    for file in ["db/version", "db/keyspaces/0/current"] {
        fs::rename(folder.path().join(file), folder.path().join("gone")).unwrap();
        let report = quietly(folder.path()).unwrap();
        assert!(report.flaws.iter().any(|flaw| flaw.path.ends_with(file)), "{report:?}");
        fs::rename(folder.path().join("gone"), folder.path().join(file)).unwrap();
    }

    let journal = &quietly(folder.path()).unwrap().journals[0];
    let file = File::options().write(true).open(&journal.path).unwrap();
    file.set_len(journal.intact - 1).unwrap();
    let before = tree(folder.path());
    let report = quietly(folder.path()).unwrap();
    let short = |damage: &Damage| matches!(damage, Damage::Journal { .. });
    assert!(report.flaws.iter().any(|flaw| short(&flaw.damage)), "{report:?}");
    assert_eq!(tree(folder.path()), before);
}

#[tokio::test]
async fn x3_without_a_file_of_the_engine_nothing_is_opened_and_nothing_changes() {
    let folder = filled().await;
    let keyspace = tables(folder.path())[0].ancestors().nth(2).unwrap().to_path_buf();
    let current = fs::read(keyspace.join("current")).unwrap();
    let list = format!("v{}", u64::from_le_bytes(current[..8].try_into().unwrap()));
    let files = [
        folder.path().join("db/version"),
        folder.path().join("db/keyspaces/0/current"),
        tables(folder.path())[0].clone(),
        keyspace.join(list),
    ];
    for file in files {
        let whole = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let before = tree(folder.path());
        let Err(OpenError::Damaged { path, damage }) =
            EmbeddedStore::open(folder.path(), Options::default())
        else {
            panic!("{} is missed by nobody", file.display());
        };
        assert_eq!(path, file);
        assert!(damage.seen_before_opening(), "{damage:?}");
        assert!(accept_loss(folder.path(), "ann", "it is gone").is_err());
        assert_eq!(tree(folder.path()), before, "{}", file.display());
        fs::write(&file, whole).unwrap();
    }
    EmbeddedStore::open(folder.path(), Options::default()).expect("it is whole again");
}

#[tokio::test]
async fn x3_an_unreadable_record_is_listed_by_its_id_and_the_others_are_read() {
    let folder = filled().await;
    let id = claim("key 7").id;
    damage(folder.path(), &[id]);
    let report = quietly(folder.path()).unwrap();
    assert_eq!(report.unreadable_ids, [id]);
    assert_eq!(report.unreadable, 1);
    assert_eq!(report.standings.completed, COMPLETED as u64 - 1);
    assert!(!report.is_intact());
}

//! Files of a folder that are gone, exchanged or of another time; and going on without them.

use std::fs;
use std::path::Path;

use oncekey::record::{Retention, Version};
use oncekey::store::embedded::{
    Accepted, Damage, EmbeddedStore, Fault, OpenError, Options, accept_loss, scan,
};
use oncekey::store::{Claimed, Store, StoreErrorKind};

use crate::embedded::{DAY, acquire, claim, outcome, store_outcome};
use crate::embedded_images::{Image, Keyspaces, ends, flip, reads_back, tree};

async fn split() -> Image {
    let image = Image::new(Keyspaces::Several).await;
    image.split();
    image
}

fn first_damage(image: &Image) -> Damage {
    match image.open().unwrap_err() {
        OpenError::Damaged { damage, .. } => damage,
        other => panic!("{other}"),
    }
}

fn accept(image: &Image) -> Accepted {
    accept_loss(image.path(), "ann", "the disk broke").unwrap()
}

#[tokio::test]
async fn x3_a_journal_that_is_gone_is_taken_from_its_second_name() {
    for file in 0..3 {
        let image = split().await;
        fs::remove_file(image.journal(file)).unwrap();
        assert!(!image.is_refused(&format!("without {file}")).await);
    }
}

#[tokio::test]
async fn x3_a_journal_that_is_gone_under_both_names_is_missed() {
    for file in 0..3 {
        let image = split().await;
        fs::remove_file(image.journal(file)).unwrap();
        fs::remove_file(image.path().join(format!("journals/{file}.jnl"))).unwrap();
        assert!(image.is_refused(&format!("without {file}")).await);
    }
    // All of them: the engine would begin a new one and say nothing.
    let image = Image::new(Keyspaces::Several).await;
    fs::remove_file(image.journal(0)).unwrap();
    fs::remove_dir_all(image.path().join("journals")).unwrap();
    assert!(image.is_refused("without any").await);
    let damage = first_damage(&image);
    assert!(matches!(damage, Damage::Journal { fault: Fault::Absent, .. }), "{damage}");
}

#[tokio::test]
async fn x3_journals_that_were_exchanged_are_refused() {
    for (one, other) in [(0, 1), (1, 2), (0, 2)] {
        let image = split().await;
        let aside = image.path().join("aside");
        fs::rename(image.journal(one), &aside).unwrap();
        fs::rename(image.journal(other), image.journal(one)).unwrap();
        fs::rename(&aside, image.journal(other)).unwrap();
        assert!(image.is_refused(&format!("{one} and {other}")).await);
    }
}

#[tokio::test]
async fn x3_a_folder_that_lost_what_says_what_was_synced_is_refused_until_that_is_accepted() {
    let image = split().await;
    let synced = image.path().join("synced");
    let whole = fs::read(&synced).unwrap();
    fs::remove_file(&synced).unwrap();
    assert!(image.is_refused("removed").await);
    for at in (0..whole.len()).step_by(64 << 10) {
        fs::write(&synced, &whole).unwrap();
        // One slot: another one, a second older at most, is there.
        flip(&synced, at + 20);
        assert!(!image.copy().is_refused("one slot").await);
    }
    fs::write(&synced, vec![0; whole.len()]).unwrap();
    assert!(image.is_refused("no slot").await);
    let version = scan(image.path()).unwrap();
    assert!(matches!(version.damages[0], Damage::SyncedUnreadable));
    accept(&image);
    assert!(!image.is_refused("accepted").await);
}

#[tokio::test]
async fn x3_what_was_synced_in_another_folder_is_refused() {
    let (image, other) = (split().await, split().await);
    fs::copy(other.path().join("synced"), image.path().join("synced")).unwrap();
    let damage = first_damage(&image);
    assert!(matches!(damage, Damage::SyncedOfAnother), "{damage}");
    accept(&image);
    assert!(!image.is_refused("accepted").await);
}

#[tokio::test]
async fn x3_a_folder_of_an_earlier_day_under_what_is_synced_today_is_refused() {
    let image = Image::new(Keyspaces::Several).await;
    let earlier = image.copy();
    let store = image.open().unwrap();
    store_outcome(&store, "later", "later", Retention::keep(DAY)).await;
    drop(store);
    fs::copy(image.path().join("synced"), earlier.path().join("synced")).unwrap();
    assert!(earlier.is_refused("an older copy").await);
}

#[tokio::test]
async fn x3_a_keyspace_whose_folder_is_gone_is_refused() {
    let image = Image::new(Keyspaces::Several).await;
    let folders = fs::read_dir(image.path().join("db/keyspaces")).unwrap();
    let folders: Vec<_> = folders.map(|entry| entry.unwrap().file_name()).collect();
    // The engine's own list of keyspaces is its number 0.
    for name in folders.iter().filter(|name| *name != "0") {
        let image = image.copy();
        fs::remove_dir_all(image.path().join("db/keyspaces").join(name)).unwrap();
        let what = format!("keyspace {name:?}");
        let damage = first_damage(&image);
        assert!(matches!(damage, Damage::KeyspaceMissing { .. }), "{what}: {damage}");
        let before = tree(image.path());
        assert!(image.open().is_err());
        assert!(tree(image.path()) == before, "{what}");
    }
}

#[tokio::test]
async fn x3_a_database_that_is_gone_is_refused() {
    let image = Image::new(Keyspaces::Several).await;
    fs::remove_dir_all(image.path().join("db")).unwrap();
    fs::remove_dir_all(image.path().join("journals")).unwrap();
    let before = tree(image.path());
    assert!(image.open().is_err());
    assert!(accept_loss(image.path(), "ann", "all is gone").is_err(), "only a backup helps");
    assert!(tree(image.path()) == before);
}

#[tokio::test]
async fn a_database_that_was_never_finished_is_made_anew() {
    let image = Image::new(Keyspaces::One).await;
    let new = Image { folder: tempfile::tempdir().unwrap(), keys: Vec::new(), ..image };
    drop(new.open().unwrap());
    // As after a crash between the engine's first files and its last.
    fs::remove_dir_all(new.path().join("journals")).unwrap();
    fs::remove_dir_all(new.path().join("db")).unwrap();
    fs::create_dir(new.path().join("db")).unwrap();
    fs::write(new.path().join("db/0.jnl"), [0; 64]).unwrap();
    fs::remove_file(new.path().join("synced")).unwrap();
    assert!(matches!(first_damage(&new), Damage::SyncedUnreadable));
    accept(&new);
    store_outcome(&new.open().unwrap(), "key", "answer", Retention::keep(DAY)).await;
}

/// Moves everything from the journals into tables.
fn flush(path: &Path) {
    let database = fjall::Database::builder(path.join("db")).open().unwrap();
    for name in database.list_keyspace_names() {
        let keyspace = database.keyspace(&name, Default::default).unwrap();
        keyspace.rotate_memtable_and_wait().unwrap();
    }
}

#[tokio::test]
async fn x3_damaged_tables_never_make_a_record_absent() {
    let image = Image::new(Keyspaces::Several).await;
    flush(image.path());
    // What the journals still hold is older than the tables, and the engine passes over it.
    let tables: Vec<_> = tree(&image.path().join("db/keyspaces"))
        .into_iter()
        .filter(|(path, ..)| path.is_file() && path.components().any(|c| c.as_os_str() == "tables"))
        .map(|(path, ..)| path.strip_prefix(image.path()).unwrap().to_path_buf())
        .collect();
    assert!(tables.len() >= 4, "{tables:?}");
    for table in &tables {
        let length = fs::metadata(image.path().join(table)).unwrap().len() as usize;
        for at in (0..length).step_by(97) {
            let image = image.copy();
            flip(&image.path().join(table), at);
            // Whatever is refused at opening is no absence either.
            let Ok(store) = image.open() else { continue };
            for (key, _) in &image.keys {
                match store.claim(&claim(key)).await {
                    Ok(Claimed::Completed { outcome: found, .. }) => {
                        assert_eq!(found, outcome(key));
                    }
                    Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unreadable, "{error}"),
                    other => panic!("{table:?} at {at}: {key} is {other:?}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn accepting_where_nothing_is_missing_says_so_and_changes_nothing() {
    let image = Image::new(Keyspaces::Several).await;
    let accepted = accept(&image);
    assert!(accepted.damages.is_empty() && accepted.copies.is_none());
    assert!(!image.path().join("audit").exists());
    assert!(!image.is_refused("afterwards").await);
    let missing = accept_loss(image.path().join("nothing"), "ann", "none").unwrap_err();
    assert!(matches!(missing, OpenError::Io { .. }), "{missing}");
}

#[tokio::test]
async fn an_accepted_loss_is_written_down_and_another_one_is_refused() {
    let image = split().await;
    let synced = scan(image.path()).unwrap().synced.unwrap().number;
    let damaged = |file| {
        let bytes = fs::read(image.journal(file)).unwrap();
        flip(&image.journal(file), ends(&bytes)[0] + 20);
        fs::read(image.journal(file)).unwrap()
    };
    let evidence = damaged(1);
    let accepted = accept(&image);
    assert_eq!(accepted.damages.len(), 1, "{accepted:?}");
    let copies = accepted.copies.unwrap();
    assert_eq!(fs::read(copies.join("1.jnl")).unwrap(), evidence);
    assert!(copies.join("synced").exists());
    let audit = fs::read_to_string(image.path().join("audit")).unwrap();
    for part in ["\"who\":\"ann\"", "the disk broke", "are missing", "1.jnl"] {
        assert!(audit.contains(part), "{audit}");
    }
    // Nothing more is missing, now and after a second opening; numbers went on.
    assert!(scan(image.path()).unwrap().damages.is_empty());
    let store = image.open().unwrap();
    // The first batches are in front of the damage.
    reads_back(&store, "key 0", true, "in front").await;
    let id = acquire(&store, "new").await.id;
    assert!(store.get(&id).await.unwrap().unwrap().version > Version::from_number(synced - 1));
    drop(store);
    drop(image.open().unwrap());
    assert!(scan(image.path()).unwrap().synced.unwrap().number > synced);

    // A loss in another place, in the journal that is written now.
    let last = scan(image.path()).unwrap().journals.last().unwrap().path.clone();
    let bytes = fs::read(&last).unwrap();
    let ends = ends(&bytes);
    flip(&last, ends[ends.len() - 2] + 20);
    assert!(image.open().is_err());
    // What a crash left of an entry spoils none that comes after it.
    fs::write(image.path().join("audit"), format!("{audit}{{\"at\":17")).unwrap();
    let accepted = accept(&image);
    assert_eq!(accepted.damages.len(), 1);
    drop(image.open().unwrap());
    let audit = fs::read_to_string(image.path().join("audit")).unwrap();
    assert_eq!(audit.lines().count(), 3);
    let last = audit.lines().last().unwrap();
    assert!(last.starts_with('{') && last.contains("\"who\":\"ann\""), "{audit}");
}

#[tokio::test]
async fn a_loss_anywhere_can_be_accepted_and_what_is_in_front_of_it_stays() {
    let image = split().await;
    for file in 0..3 {
        let bytes = fs::read(image.journal(file)).unwrap();
        for begin in [0].into_iter().chain(ends(&bytes)).filter(|at| at + 64 < bytes.len()) {
            for inside in [0, 5, 20] {
                let what = format!("journal {file} at {begin} + {inside}");
                let image = image.copy();
                flip(&image.journal(file), begin + inside);
                if scan(image.path()).unwrap().damages.is_empty() {
                    continue;
                }
                accept(&image);
                let found = scan(image.path()).unwrap();
                assert!(found.damages.is_empty(), "{what}: {:?}", found.damages);
                let store = image.open().unwrap_or_else(|error| panic!("{what}: {error}"));
                if file > 0 {
                    reads_back(&store, "key 0", true, &what).await;
                }
                store_outcome(&store, "new", "new", Retention::keep(DAY)).await;
                drop(store);
                let store = image.open().unwrap_or_else(|error| panic!("{what}: {error}"));
                reads_back(&store, "new", true, &what).await;
            }
        }
    }
}

#[tokio::test]
async fn a_folder_in_use_is_neither_scanned_nor_accepted() {
    let image = Image::new(Keyspaces::One).await;
    let _store = EmbeddedStore::open(image.path(), Options::default()).unwrap();
    assert!(matches!(scan(image.path()).unwrap_err(), OpenError::InUse { .. }));
    let error = accept_loss(image.path(), "ann", "none").unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }));
}

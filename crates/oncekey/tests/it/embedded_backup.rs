//! Backups: everything is in them, they vouch for themselves, and nothing is ever written over.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use oncekey::store::embedded::{
    Backup, BackupError, Damage, EmbeddedStore, OpenError, Options, Restored, Step, backup, restore,
};

use crate::embedded::{Rig, replays};
use crate::embedded_check::{COMPLETED, filled, flip, quietly, tables, tree};

fn back_up(from: &Path, to: &Path) -> Result<Backup, BackupError> {
    backup(from, to, &mut |_| {})
}

fn bring_back(from: &Path, to: &Path) -> Result<Restored, BackupError> {
    restore(from, to, &mut |_| {})
}

/// A backup of a [`filled`] store.
async fn taken() -> (tempfile::TempDir, tempfile::TempDir) {
    let (folder, to) = (filled().await, tempfile::tempdir().unwrap());
    back_up(folder.path(), to.path()).unwrap();
    (folder, to)
}

#[tokio::test]
async fn a4_a_backup_that_is_restored_replays_everything() {
    let folder = filled().await;
    let before = tree(folder.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let (to, again) = (elsewhere.path().join("a/backup"), elsewhere.path().join("b/data"));
    let taken = back_up(folder.path(), &to).unwrap();
    assert_eq!(tree(folder.path()), before, "the store is not changed");
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o700);

    // The backup stands for itself.
    drop(folder);
    let kept = tree(&to);
    let restored = bring_back(&to, &again).unwrap();
    assert_eq!(tree(&to), kept, "the backup is not changed");
    assert_eq!((restored.taken, restored.files), (taken.taken, taken.files));
    assert_eq!(restored.by, env!("CARGO_PKG_VERSION"));
    assert_eq!(fs::metadata(&again).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(quietly(&again).unwrap().is_intact());

    let store = EmbeddedStore::open(&again, Options::default()).unwrap();
    for number in 0..COMPLETED {
        let answer = format!("answer {number} ").repeat(100);
        replays(&store, &format!("key {number}"), &answer).await;
    }
}

#[tokio::test]
async fn a4_a_store_that_its_process_left_open_can_be_backed_up() {
    let rig = Rig::new();
    let _ = crate::embedded::acquire(&rig.store, "key").await;
    let (image, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // As a snapshot of the volume has it.
    for path in tree(rig.folder.path()).keys() {
        let target = image.path().join(path.strip_prefix(rig.folder.path()).unwrap());
        if path.is_dir() {
            fs::create_dir_all(target).unwrap();
        } else {
            fs::copy(path, target).unwrap();
        }
    }
    back_up(image.path(), to.path()).unwrap();
    let again = tempfile::tempdir().unwrap();
    bring_back(to.path(), again.path()).unwrap();
    // Its lease ended long ago: that clock stood still.
    assert_eq!(quietly(again.path()).unwrap().standings.unknown, 1);
}

#[tokio::test]
async fn a4_a_store_in_use_is_not_backed_up() {
    let (rig, to) = (Rig::new(), tempfile::tempdir().unwrap());
    let error = back_up(rig.folder.path(), to.path()).unwrap_err();
    assert!(matches!(error, BackupError::Store(OpenError::InUse { .. })), "{error}");
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a4_a_damaged_store_is_not_backed_up() {
    let (folder, elsewhere) = (filled().await, tempfile::tempdir().unwrap());
    flip(&tables(folder.path())[0]);
    let to = elsewhere.path().join("backup");
    let error = back_up(folder.path(), &to).unwrap_err();
    let BackupError::Store(OpenError::Damaged { damage, .. }) = error else { panic!("{error}") };
    assert!(matches!(damage, Damage::FileChanged), "{damage}");
    assert!(!to.exists());
}

#[tokio::test]
async fn a4_nothing_is_written_over_or_into_itself() {
    let (folder, to) = taken().await;
    let (kept, before) = (tree(to.path()), tree(folder.path()));
    let error = back_up(folder.path(), to.path()).unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
    let error = bring_back(to.path(), folder.path()).unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
    let error = back_up(folder.path(), &folder.path().join("db/a/b")).unwrap_err();
    assert!(matches!(error, BackupError::Inside { .. }), "{error}");
    let error = bring_back(to.path(), &to.path().join("a")).unwrap_err();
    assert!(matches!(error, BackupError::Inside { .. }), "{error}");
    let file = folder.path().with_extension("file");
    fs::write(&file, "mine").unwrap();
    assert!(back_up(folder.path(), &file).is_err());
    assert!(bring_back(to.path(), &file).is_err());
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    fs::remove_file(&file).unwrap();
    assert_eq!((tree(to.path()), tree(folder.path())), (kept, before));
}

#[tokio::test]
async fn a4_a_store_that_is_made_meanwhile_is_left_alone() {
    let (_folder, from) = taken().await;
    let to = tempfile::tempdir().unwrap();
    let theirs = to.path().join("format");
    // A gateway is started on the empty folder while the backup is read.
    let error = restore(from.path(), to.path(), &mut |progress| {
        if progress.step == Step::Files {
            fs::write(&theirs, "theirs").unwrap();
        }
    });
    assert!(matches!(error, Err(BackupError::NotEmpty { .. })), "{error:?}");
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
}

#[tokio::test]
async fn a4_a_half_backup_is_none() {
    let (_folder, to) = taken().await;
    fs::remove_file(to.path().join("manifest")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let again = elsewhere.path().join("data");
    for from in [to.path(), elsewhere.path(), Path::new("/nowhere")] {
        let error = bring_back(from, &again).unwrap_err();
        assert!(matches!(error, BackupError::NoBackup { .. }), "{error}");
        assert!(!again.exists());
    }
}

#[tokio::test]
async fn a4_a_backup_with_any_file_changed_or_missing_is_refused_before_anything_is_written() {
    let (_folder, to) = taken().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let good = elsewhere.path().join("data");
    // Nobody can write there: what is told comes before the first try.
    let again = Path::new("/proc/none/data");
    let files: Vec<_> = tree(to.path()).into_keys().filter(|path| path.is_file()).collect();
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        let intact = fs::read(&file).unwrap();
        if !intact.is_empty() {
            flip(&file);
            let error = bring_back(to.path(), again).unwrap_err();
            match &error {
                BackupError::Manifest { .. } => assert!(file.ends_with("manifest")),
                BackupError::Damaged { path, damage: Damage::FileChanged } => {
                    assert_eq!(*path, file);
                }
                other => panic!("{other}: {}", file.display()),
            }
            assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
        }
        fs::remove_file(&file).unwrap();
        let error = bring_back(to.path(), again).unwrap_err();
        match &error {
            BackupError::NoBackup { .. } => assert!(file.ends_with("manifest")),
            BackupError::Damaged { path, damage: Damage::FileMissing } => assert_eq!(*path, file),
            other => panic!("{other}: {}", file.display()),
        }
        fs::write(&file, intact).unwrap();
    }
    let error = bring_back(to.path(), again).unwrap_err();
    assert!(matches!(error, BackupError::Store(_) | BackupError::Io { .. }), "{error}");
    bring_back(to.path(), &good).unwrap();
}

#[tokio::test]
async fn a4_whenever_a_process_dies_what_it_leaves_is_refused() {
    let (folder, to) = (filled().await, tempfile::tempdir().unwrap());
    let (elsewhere, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut looks = 0;
    backup(folder.path(), to.path(), &mut |progress| {
        if progress.step == Step::Copy {
            let error = bring_back(to.path(), elsewhere.path()).unwrap_err();
            assert!(matches!(error, BackupError::NoBackup { .. }), "{error}");
            looks += 1;
        }
    })
    .unwrap();
    restore(to.path(), again.path(), &mut |progress| {
        if progress.step == Step::Copy {
            let error = EmbeddedStore::open(again.path(), Options::default()).unwrap_err();
            let half = matches!(error, OpenError::Damaged { damage: Damage::HalfRestored, .. });
            assert!(half, "{error}");
            looks += 1;
        }
    })
    .unwrap();
    assert!(looks > 20, "{looks}");
}

#[tokio::test]
async fn a4_a_journal_that_only_its_second_name_is_left_of_is_in_the_backup() {
    let (folder, to) = (filled().await, tempfile::tempdir().unwrap());
    let journals: Vec<_> = fs::read_dir(folder.path().join("journals")).unwrap().collect();
    assert!(!journals.is_empty());
    for journal in journals {
        let name = journal.unwrap().file_name();
        fs::remove_file(folder.path().join("db").join(name)).unwrap();
    }
    assert!(quietly(folder.path()).unwrap().is_intact());
    back_up(folder.path(), to.path()).unwrap();
    let again = tempfile::tempdir().unwrap();
    bring_back(to.path(), again.path()).unwrap();
    let store = EmbeddedStore::open(again.path(), Options::default()).unwrap();
    for number in 0..COMPLETED {
        let answer = format!("answer {number} ").repeat(100);
        replays(&store, &format!("key {number}"), &answer).await;
    }
}

#[tokio::test]
async fn a4_a_restore_that_did_not_end_is_refused_at_every_point() {
    let (_folder, to) = taken().await;
    let again = tempfile::tempdir().unwrap();
    bring_back(to.path(), again.path()).unwrap();
    // As it is just before its last step, and then backwards.
    let aside = again.path().join("restoring");
    fs::create_dir(&aside).unwrap();
    for moved in ["", "format", "audit", "synced", "db"] {
        if again.path().join(moved).exists() && !moved.is_empty() {
            fs::rename(again.path().join(moved), aside.join(moved)).unwrap();
        }
        let before = tree(again.path());
        let error = EmbeddedStore::open(again.path(), Options::default()).unwrap_err();
        let half = matches!(error, OpenError::Damaged { damage: Damage::HalfRestored, .. });
        assert!(half, "{moved}: {error}");
        let error = bring_back(to.path(), again.path()).unwrap_err();
        assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
        assert_eq!(tree(again.path()), before);
    }
}

#[tokio::test]
async fn a4_a_backup_is_not_opened_by_mistake() {
    let (_folder, to) = taken().await;
    let before = tree(to.path());
    let error = EmbeddedStore::open(to.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Backup { .. }), "{error}");
    assert_eq!(tree(to.path()), before);
}

#[tokio::test]
async fn a4_a_newer_backup_is_refused() {
    let (_folder, to) = taken().await;
    let manifest = to.path().join("manifest");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("oncekey backup 1\n", "oncekey backup 2\n")).unwrap();
    let again = tempfile::tempdir().unwrap();
    let error = bring_back(to.path(), again.path()).unwrap_err();
    assert!(matches!(error, BackupError::NewerVersion { found: 2, known: 1, .. }), "{error}");
}

//! Disks as crashes and damage leave them: every acknowledged record is there, or the folder is
//! refused, unchanged, and says what is missing.
//!
//! The journals are small, so every byte is tried; of one long batch every seventeenth. A real
//! journal is cut into three, as the engine would have begun a new one there: the oldest, a middle
//! one and the active one.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use oncekey::clock::Clock;
use oncekey::record::Retention;
use oncekey::store::embedded::{Damage, EmbeddedStore, OpenError, Options, scan};
use oncekey::store::{Claimed, Store};

use crate::embedded::{DAY, acquire, claim, complete, in_tables, open, outcome};

/// What ends a batch in a journal.
const TRAILER: &[u8] = b"FJL\x03";

/// Opening judges by the same scan that every byte is tried with; at every so many bytes the
/// refusal itself is tried.
const OFTEN: usize = 13;

/// A closed folder, and what was acknowledged in it.
pub(crate) struct Image {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: Clock,
    /// Keys that were claimed, and whether they were completed.
    pub(crate) keys: Vec<(String, bool)>,
}

/// How many keyspaces the batches touch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyspaces {
    One,
    Several,
}

/// In memory where there is such a place: thousands of images are made.
pub(crate) fn temporary() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

impl Image {
    /// A folder after some work and a clean end.
    pub(crate) async fn new(keyspaces: Keyspaces) -> Self {
        let (folder, clock) = (temporary(), Clock::manual());
        let store = open(folder.path(), &clock);
        let mut keys = Vec::new();
        let keep = [Retention::keep(DAY), Retention::keep(8 * DAY), Retention::keep(Duration::MAX)];
        for number in 0..6 {
            let key = format!("key {number}");
            let lease = acquire(&store, &key).await;
            // Each call a batch of the engine's.
            in_tables(&store).await;
            if keyspaces == Keyspaces::Several {
                complete(&store, &lease, &key, keep[number % 3]).await;
                in_tables(&store).await;
            }
            keys.push((key, keyspaces == Keyspaces::Several));
        }
        drop(store);
        let image = Self { folder, clock, keys };
        image.shrink();
        image
    }

    /// Preallocated room is zeros; a little of it is as good as much.
    pub(crate) fn shrink(&self) {
        let shrink = |path: &Path, length: u64| {
            File::options().write(true).open(path).unwrap().set_len(length).unwrap();
        };
        let intact = scan(self.path()).unwrap().journals[0].intact;
        shrink(&self.journal(0), intact + 64);
        for slot in fs::read_dir(self.path().join("log")).unwrap() {
            let slot = slot.unwrap().path();
            let bytes = fs::read(&slot).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            shrink(&slot, used.next_multiple_of(8) as u64 + 128);
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn journal(&self, file: u64) -> PathBuf {
        self.path().join(format!("db/{file}.jnl"))
    }

    /// Changes a journal, under both of its names.
    pub(crate) fn edit(&self, file: u64, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.journal(file)).unwrap();
        edit(&mut bytes);
        fs::write(self.journal(file), bytes).unwrap();
    }

    /// Cuts the only journal into three.
    pub(crate) fn split(&self) {
        let bytes = fs::read(self.journal(0)).unwrap();
        let ends = ends(&bytes);
        let (one, two) = (ends[ends.len() / 3], ends[2 * ends.len() / 3]);
        let kept = self.path().join("journals");
        let parts = [&bytes[..one], &bytes[one..two], &bytes[two..]];
        for (file, part) in parts.into_iter().enumerate() {
            let name = self.journal(file as u64);
            let mut part = part.to_vec();
            part.resize(part.len() + 64, 0);
            // In place, so that the first keeps its second name.
            fs::write(&name, part).unwrap();
            let _ = fs::hard_link(&name, kept.join(format!("{file}.jnl")));
        }
    }

    /// Another folder with the same content.
    pub(crate) fn copy(&self) -> Self {
        let folder = temporary();
        copy(self.path(), folder.path());
        let (clock, keys) = (self.clock.clone(), self.keys.clone());
        Self { folder, clock, keys }
    }

    pub(crate) fn open(&self) -> Result<EmbeddedStore, OpenError> {
        let clock = Some(self.clock.clone());
        EmbeddedStore::open(self.path(), Options { clock, ..Options::default() })
    }

    /// Whether it is refused, and then unchanged; all that was acknowledged is there otherwise.
    pub(crate) async fn is_refused(&self, what: &str) -> bool {
        let before = tree(self.path());
        match self.open() {
            Ok(store) => {
                for (key, completed) in &self.keys {
                    reads_back(&store, key, *completed, what).await;
                }
                false
            }
            Err(OpenError::Damaged { damage, path }) => {
                assert!(damage.seen_before_opening(), "{what}: {damage}");
                let told = OpenError::Damaged { damage, path }.to_string();
                assert!(told.contains("missing"), "{what}: {told}");
                assert!(told.contains("oncekey store accept-loss"), "{what}: {told}");
                assert!(tree(self.path()) == before, "{what}: the refusal changed the disk");
                true
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }
}

pub(crate) async fn reads_back(store: &EmbeddedStore, key: &str, completed: bool, what: &str) {
    match store.claim(&claim(key)).await.unwrap() {
        Claimed::Completed { outcome: found, .. } if completed => assert_eq!(found, outcome(key)),
        Claimed::Unknown { .. } if !completed => {}
        other => panic!("{what}: {key} is {other:?}"),
    }
}

/// Names, contents and times of everything in a folder.
pub(crate) fn tree(path: &Path) -> Vec<(PathBuf, SystemTime, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let times = fs::metadata(&path).unwrap().modified().unwrap();
        if path.is_dir() {
            found.extend(tree(&path));
            found.push((path, times, Vec::new()));
        } else {
            let content = fs::read(&path).unwrap();
            found.push((path, times, content));
        }
    }
    found.sort();
    found
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Where the batches of a journal end.
pub(crate) fn ends(bytes: &[u8]) -> Vec<usize> {
    let found = bytes.windows(TRAILER.len()).enumerate();
    found.filter(|(_, window)| *window == TRAILER).map(|(at, _)| at + TRAILER.len()).collect()
}

fn used(bytes: &[u8]) -> usize {
    *ends(bytes).last().unwrap()
}

/// Changes one bit of a file, which one depends on where.
pub(crate) fn flip(path: &Path, at: usize) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    byte[0] ^= 1 << (at % 8);
    file.write_all_at(&byte, at as u64).unwrap();
}

async fn every_flip_is_seen(keyspaces: Keyspaces) {
    let image = Image::new(keyspaces).await;
    image.split();
    let mut accepted = 0;
    for file in 0..3 {
        let length = fs::metadata(image.journal(file)).unwrap().len() as usize;
        for at in 0..length {
            flip(&image.journal(file), at);
            let what = format!("journal {file}, byte {at} of {length}");
            let tried = scan(image.path()).unwrap().damages.is_empty();
            if tried {
                // It is opened in a copy: that changes the folder.
                assert!(!image.copy().is_refused(&what).await, "{what}");
                accepted += 1;
            } else if at % OFTEN == 0 {
                assert!(image.is_refused(&what).await, "{what}");
            }
            flip(&image.journal(file), at);
        }
    }
    // The zeros behind each end; and the engine's sequence numbers where the order stays.
    assert!((150..400).contains(&accepted), "{accepted} of them did no harm");
    assert!(!image.is_refused("undamaged").await);
}

#[tokio::test]
async fn x3_any_byte_changed_in_any_journal_is_seen_with_one_keyspace() {
    every_flip_is_seen(Keyspaces::One).await;
}

#[tokio::test]
async fn x3_any_byte_changed_in_any_journal_is_seen_with_several_keyspaces() {
    every_flip_is_seen(Keyspaces::Several).await;
}

/// How a cut looks: the file ends, or its preallocated room follows.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Ends,
    Zeros,
}

impl Cut {
    fn at(self, bytes: &mut Vec<u8>, at: usize) {
        match self {
            Self::Ends => bytes.truncate(at),
            Self::Zeros => bytes[at..].fill(0),
        }
    }
}

/// Tries every `step`th byte.
async fn every_cut_after_the_last_sync_opens(cut: Cut, keyspaces: Keyspaces, step: usize) {
    let whole = Image::new(keyspaces).await;
    let bytes = fs::read(whole.journal(0)).unwrap();
    let synced = used(&bytes);
    // One more batch, that of opening it again; the older file of what was synced does not know
    // of it.
    let before = fs::read(whole.path().join("synced")).unwrap();
    let file = Image { keys: whole.keys.clone(), ..whole.copy() };
    let store = file.open().unwrap();
    drop(store);
    let later = fs::read(file.journal(0)).unwrap();
    let later = &later[..used(&later)];
    assert_eq!(later[..synced], bytes[..synced]);
    for at in (synced..=later.len()).step_by(step) {
        let image = whole.copy();
        fs::write(image.path().join("synced"), &before).unwrap();
        image.edit(0, |bytes| {
            *bytes = later.to_vec();
            bytes.resize(later.len() + 64, 0);
            cut.at(bytes, at);
        });
        let what = format!("{cut:?} at {at}, synced to {synced}");
        assert!(!image.is_refused(&what).await, "{what}");
    }
}

#[tokio::test]
async fn l6_a_journal_that_ends_anywhere_after_the_last_sync_opens_with_everything() {
    every_cut_after_the_last_sync_opens(Cut::Ends, Keyspaces::Several, 1).await;
    // Its last batch is long: it makes every record unknown.
    every_cut_after_the_last_sync_opens(Cut::Ends, Keyspaces::One, 17).await;
}

#[tokio::test]
async fn l6_a_journal_torn_to_zeros_anywhere_after_the_last_sync_opens_with_everything() {
    every_cut_after_the_last_sync_opens(Cut::Zeros, Keyspaces::Several, 1).await;
    every_cut_after_the_last_sync_opens(Cut::Zeros, Keyspaces::One, 17).await;
}

#[tokio::test]
async fn x3_a_journal_cut_anywhere_before_the_last_sync_is_refused() {
    for (keyspaces, cut) in [(Keyspaces::One, Cut::Ends), (Keyspaces::Several, Cut::Zeros)] {
        let image = Image::new(keyspaces).await;
        image.split();
        for file in 0..3 {
            let whole = fs::read(image.journal(file)).unwrap();
            for at in 0..used(&whole) {
                image.edit(file, |bytes| cut.at(bytes, at));
                let what = format!("journal {file}: {cut:?} at {at}");
                assert!(!scan(image.path()).unwrap().damages.is_empty(), "{what}");
                if at % OFTEN == 0 {
                    assert!(image.is_refused(&what).await, "{what}");
                }
                image.edit(file, |bytes| *bytes = whole.clone());
            }
        }
        assert!(!image.is_refused("undamaged").await);
    }
}

#[tokio::test]
async fn x3_the_refusal_names_file_offset_and_the_missing_batches() {
    let image = Image::new(Keyspaces::Several).await;
    image.split();
    let bytes = fs::read(image.journal(1)).unwrap();
    // The second batch of the middle journal: it and all behind it there are lost.
    let (first, batches) = (ends(&bytes)[0], ends(&bytes).len() as u64);
    let oldest = ends(&fs::read(image.journal(0)).unwrap()).len() as u64;
    flip(&image.journal(1), first + 20);
    let error = image.open().unwrap_err();
    let OpenError::Damaged { damage: Damage::Journal { file, offset, missing, .. }, .. } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((file, *offset), (&image.journal(1), first as u64));
    assert_eq!((missing.first, missing.last), (Some(oldest + 2), Some(oldest + batches)));
    for part in ["1.jnl", &first.to_string(), &format!("{} to", oldest + 2)] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn x3_a_scan_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let found = scan(folder.path()).unwrap();
    assert!(found.damages.is_empty() && found.journals.is_empty() && found.synced.is_none());
    assert_eq!(tree(folder.path()), []);
}

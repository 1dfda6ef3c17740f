//! The log as a loss of power, a crash or damage leaves it: everything acknowledged is there, or
//! the folder is refused, unchanged, and says what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncekey::clock::Clock;
use oncekey::record::Retention;
use oncekey::store::embedded::{
    Damage, EmbeddedStore, OpenError, Options, accept_loss, check, scan,
};

use crate::embedded::{DAY, acquire, complete, in_tables, open, replays, store_outcome};
use crate::embedded_images::{Image, copy, flip, temporary};

/// At every so many bytes the refusal itself is tried, and going on after it.
const OFTEN: usize = 101;

/// A folder after a loss of power that took all that the engine had not synced, which is all that
/// was acknowledged since the store was opened.
async fn powerless() -> Image {
    powerless_after(12).await
}

/// The same, one call earlier.
async fn powerless_but_one() -> Image {
    powerless_after(11).await
}

/// After so many calls: each key is claimed and then completed, but for the fourth.
async fn powerless_after(calls: usize) -> Image {
    let (folder, clock, live) = (temporary(), Clock::manual(), temporary());
    let store = open(live.path(), &clock);
    copy(live.path(), folder.path());
    let keep = [Retention::keep(DAY), Retention::keep(8 * DAY), Retention::keep(Duration::MAX)];
    let mut keys = Vec::new();
    for number in 0..6 {
        let key = format!("key {number}");
        let lease = acquire(&store, &key).await;
        let completed = number != 3 && 2 * number + 1 < calls;
        if completed {
            complete(&store, &lease, &key, keep[number % 3]).await;
        }
        keys.push((key, completed));
    }
    let image = Image { folder, clock, keys };
    image.take_log(live.path());
    image.shrink();
    image
}

impl Image {
    /// Takes the log, and what was known about it, from another folder.
    fn take_log(&self, from: &Path) {
        fs::remove_dir_all(self.path().join("log")).unwrap();
        copy(&from.join("log"), &self.path().join("log"));
        fs::copy(from.join("synced"), self.path().join("synced")).unwrap();
    }

    /// The slot that is in use, and where it ends.
    fn slot(&self) -> (PathBuf, usize) {
        let found = scan(self.path()).unwrap();
        let slot = found.log.into_iter().find(|slot| slot.batches > 0).unwrap();
        (slot.path, slot.intact as usize)
    }
}

#[tokio::test]
async fn l6_what_is_in_the_log_alone_is_there_after_a_loss_of_power() {
    let image = powerless().await;
    assert_eq!(scan(image.path()).unwrap().log.iter().map(|slot| slot.batches).sum::<u64>(), 11);
    let report = check(image.path(), &mut |_| {}).unwrap();
    assert!(report.is_intact());
    let records: u64 = report.keyspaces.iter().map(|keyspace| keyspace.records).sum();
    assert_eq!(records, 6, "a check reads the log as well");
    // Twice: a crash in the middle of the first opening leaves what it has applied.
    let between = image.copy();
    assert!(!image.is_refused("undamaged").await);
    copy(&image.path().join("db"), &between.path().join("db"));
    assert!(!between.is_refused("applied in part").await);
    assert!(!image.is_refused("opened again").await);
}

#[tokio::test]
async fn x3_any_byte_changed_in_the_log_is_seen_and_can_be_accepted() {
    let image = powerless().await;
    let (slot, end) = image.slot();
    let mut harmless = Vec::new();
    for at in 0..end {
        flip(&slot, at);
        if scan(image.path()).unwrap().damages.is_empty() {
            harmless.push(at);
        } else if at % OFTEN == 0 {
            assert!(image.is_refused(&format!("byte {at}")).await);
            let image = image.copy();
            let accepted = accept_loss(image.path(), "ann", "the disk broke").unwrap();
            assert_eq!(accepted.damages.len(), 1, "{:?}", accepted.damages);
            assert!(accepted.copies.unwrap().join("log").is_dir());
            let store = image.open().unwrap();
            store_outcome(&store, "new", "new", Retention::keep(DAY)).await;
            drop(store);
            replays(&image.open().unwrap(), "new", "new").await;
        }
        flip(&slot, at);
    }
    // Not one: even the room at the slot's head is written.
    assert_eq!(harmless, [0_usize; 0]);
    assert!(!image.is_refused("undamaged").await);
}

#[tokio::test]
async fn l6_a_batch_that_is_torn_anywhere_was_told_to_nobody_and_what_precedes_it_is_there() {
    let image = powerless().await;
    let (slot, end) = image.slot();
    let bytes = fs::read(&slot).unwrap();
    // The last batch completes the last key. Without it nobody was told that it is.
    let last = last_frame(&bytes[..end]);
    let (key, _) = image.keys.last().unwrap().clone();
    let before = powerless_but_one().await;
    assert_eq!(before.keys.last().unwrap(), &(key, false));
    let (slot, synced) = before.slot();
    assert_eq!(synced, last);
    for at in (last..end).step_by(7) {
        for torn in [bytes[..at].to_vec(), [&bytes[..at], &vec![0; end - at]].concat()] {
            let image = before.copy();
            fs::write(image.path().join("log").join(slot.file_name().unwrap()), torn).unwrap();
            assert!(scan(image.path()).unwrap().damages.is_empty(), "torn at {at}");
            if (at - last).is_multiple_of(7 * 13) {
                assert!(!image.is_refused(&format!("torn at {at}")).await);
            }
        }
    }
}

fn last_frame(bytes: &[u8]) -> usize {
    bytes.windows(4).rposition(|window| window == b"OKLF").unwrap() - 8
}

#[tokio::test]
async fn x3_a_log_or_a_part_of_it_that_is_gone_is_missed() {
    let image = powerless().await;
    let (slot, _) = image.slot();
    let without = image.copy();
    fs::remove_file(without.path().join("log").join(slot.file_name().unwrap())).unwrap();
    assert!(without.is_refused("without a slot").await);
    let without = image.copy();
    fs::remove_dir_all(without.path().join("log")).unwrap();
    assert!(without.is_refused("without a log").await);
    accept_loss(without.path(), "ann", "gone").unwrap();
    drop(without.open().unwrap());
}

#[tokio::test]
async fn a_closed_store_needs_nothing_of_its_log() {
    let image = powerless().await;
    drop(image.open().unwrap());
    fs::remove_dir_all(image.path().join("log")).unwrap();
    assert!(!image.is_refused("without a log").await);
}

#[tokio::test]
async fn x3_an_older_log_under_newer_tables_is_refused_and_brings_nothing_back() {
    let (live, clock) = (temporary(), Clock::manual());
    let store = open(live.path(), &clock);
    let lease = acquire(&store, "key").await;
    let earlier = Image { folder: temporary(), clock: clock.clone(), keys: Vec::new() };
    copy(live.path(), earlier.path());
    complete(&store, &lease, "answer", Retention::keep(DAY)).await;
    drop(store);
    let image = Image { folder: temporary(), clock, keys: vec![("key".to_owned(), true)] };
    copy(live.path(), image.path());
    image.take_log(earlier.path());
    let Err(OpenError::Damaged { damage, .. }) = image.open() else { panic!("it opens") };
    assert!(matches!(damage, Damage::LogBehind { .. }), "{damage}");
    let report = check(image.path(), &mut |_| {}).unwrap();
    assert!(!report.is_intact(), "and a check sees it");
    accept_loss(image.path(), "ann", "an old copy").unwrap();
    let store = image.open().unwrap();
    // The older state is not put over the newer one.
    if let oncekey::store::Claimed::Completed { outcome: found, .. } =
        oncekey::store::Store::claim(&store, &crate::embedded::claim("answer of key"))
            .await
            .unwrap()
    {
        panic!("{found:?}");
    }
    replays(&store, "key", "answer").await;
}

#[tokio::test]
async fn x5_the_log_stays_small_however_much_goes_through_it() {
    let (live, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
    let store = open(live.path(), &clock);
    let text = "x".repeat(300_000);
    for number in 0..400 {
        let key = format!("key {number}");
        store_outcome(&store, &key, &text, Retention::keep(DAY)).await;
    }
    let kept = tempfile::tempdir().unwrap();
    in_tables(&store).await;
    let size = |path: &Path| -> u64 {
        fs::read_dir(path).unwrap().map(|slot| slot.unwrap().metadata().unwrap().len()).sum()
    };
    assert!(size(&live.path().join("log")) < 80 << 20, "{}", size(&live.path().join("log")));
    copy(live.path(), kept.path());
    drop(store);
    let options = Options { clock: Some(clock), ..Options::default() };
    let store = EmbeddedStore::open(kept.path(), options).unwrap();
    assert!(size(&kept.path().join("log")) <= 70 << 20);
    for number in 0..400 {
        replays(&store, &format!("key {number}"), &text).await;
    }
}

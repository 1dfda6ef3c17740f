//! Which records a bucket does not hold, for certain, without asking the storage engine.
//!
//! The engine makes whoever looks into a keyspace wait while it notes a new table there, for as
//! long as the disk takes for that. A new key is looked for in every bucket, and only the newest
//! of a class gets new tables: for that one the answer is nearly always here.
//!
//! 1. A filter says "not there" only when it is whole: it saw every record that the bucket holds.
//! 2. The filter of a new bucket is whole from the start. One of a bucket that was there before is
//!    once a thread of its own has read all keys; until then the engine is asked.
//! 3. It takes three bytes a record, for up to 33 million records. A fuller bucket has none.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use fastbloom::AtomicBloomFilter;
use fjall::Keyspace;

use super::desk::Desk;
use crate::key::RecordId;

/// Records of the first block; each further one has room for twice as many.
const FIRST: usize = 1 << 18;

/// Bits for a record, and how many of them it sets. One new key in fifty thousand is asked for in
/// vain: with sixteen bits it is one in a thousand, and at thousands a second some always meet a
/// table that is being noted.
const BITS: usize = 24;
const HASHES: u32 = 10;

/// Keys that are read at a time, and the pause after them: others have the disk and the processor
/// first.
const KEYS: usize = 1_000;
const PAUSE: Duration = Duration::from_millis(1);

/// Buckets that may wait to be read; one that finds no place asks again.
const WAITING: usize = 16;

/// Blocks of a full filter.
const BLOCKS: usize = 7;

/// Of one bucket. No lock: the thread that writes it gives way to those that ask it.
#[derive(Debug)]
pub(super) struct Filter {
    /// A [`Stage`].
    stage: AtomicU8,
    /// Records noted so far.
    count: AtomicUsize,
    blocks: [OnceLock<AtomicBloomFilter>; BLOCKS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The bucket was there before, and is not written.
    Idle,
    /// It is being read.
    Loading,
    Whole,
    /// There are too many records.
    Off,
}

impl Filter {
    fn new(stage: Stage) -> Arc<Self> {
        let blocks = Default::default();
        Arc::new(Self { stage: AtomicU8::new(stage as u8), count: AtomicUsize::new(0), blocks })
    }

    /// Of a bucket that is empty.
    pub(super) fn whole() -> Arc<Self> {
        Self::new(Stage::Whole)
    }

    /// Of a bucket that holds anything.
    pub(super) fn idle() -> Arc<Self> {
        Self::new(Stage::Idle)
    }

    fn is_at(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Acquire) == stage as u8
    }

    /// Goes from one stage to the next, if it is there.
    fn goes(&self, from: Stage, to: Stage) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the bucket holds no record with this id.
    pub(super) fn says_absent(&self, id: &RecordId) -> bool {
        let hash = hash(id);
        self.is_at(Stage::Whole)
            && !self.blocks.iter().filter_map(OnceLock::get).any(|bits| bits.contains_hash(hash))
    }

    /// Before a record can be in the bucket.
    pub(super) fn insert(&self, id: &RecordId) {
        self.insert_hash(hash(id));
    }

    fn insert_hash(&self, hash: u64) {
        if !self.is_at(Stage::Loading) && !self.is_at(Stage::Whole) {
            return;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        // Each block has room for twice as many as the one before it.
        let at = (number / FIRST + 1).ilog2() as usize;
        let Some(block) = self.blocks.get(at) else {
            self.stage.store(Stage::Off as u8, Ordering::Release);
            return;
        };
        // Ids are digests: their bits need no seed to be spread.
        let make =
            || AtomicBloomFilter::with_num_bits((FIRST << at) * BITS).seed(&0).hashes(HASHES);
        block.get_or_init(make).insert_hash(hash);
    }

    /// Before the first record is written: whether the bucket must be read.
    pub(super) fn begins(&self) -> bool {
        self.goes(Stage::Idle, Stage::Loading)
    }

    /// It could not be read; it may be tried again. What it has noted does no harm then.
    fn give_up(&self) {
        self.goes(Stage::Loading, Stage::Idle);
    }
}

fn hash(id: &RecordId) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&id.as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// A bucket to be read.
pub(super) struct Load {
    keyspace: Keyspace,
    filter: Arc<Filter>,
}

/// Has buckets read by another thread.
#[derive(Clone)]
pub(super) struct Loader(SyncSender<Load>);

impl Loader {
    pub(super) fn new() -> (Self, Receiver<Load>) {
        let (sender, loads) = sync_channel(WAITING);
        (Self(sender), loads)
    }

    /// Has a bucket read whose filter has [begun](Filter::begins).
    pub(super) fn load(&self, keyspace: Keyspace, filter: Arc<Filter>) {
        let load = Load { keyspace, filter: Arc::clone(&filter) };
        if self.0.try_send(load).is_err() {
            filter.give_up();
        }
    }
}

/// Reads buckets until nobody asks any more, or the store is closed.
pub(super) fn run(loads: &Receiver<Load>, desk: &Desk) {
    for Load { keyspace, filter } in loads {
        if read(&keyspace, &filter, desk).is_none() {
            filter.give_up();
        }
    }
}

fn read(keyspace: &Keyspace, filter: &Filter, desk: &Desk) -> Option<()> {
    // What is written from now on is noted by whoever writes it.
    let mut keys = keyspace.iter();
    let mut hashes = Vec::with_capacity(KEYS);
    loop {
        for entry in keys.by_ref().take(KEYS) {
            let key = entry.key().ok()?;
            // The mark is no record.
            if let Ok(id) = <[u8; 32]>::try_from(&*key) {
                hashes.push(hash(&RecordId::from_bytes(id)));
            }
        }
        if hashes.is_empty() {
            filter.goes(Stage::Loading, Stage::Whole);
            return Some(());
        }
        hashes.drain(..).for_each(|hash| filter.insert_hash(hash));
        if !filter.is_at(Stage::Loading) {
            return Some(());
        }
        if desk.is_over() {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;

//! Which records a bucket does not hold, for certain, without asking the storage engine.
//!
//! The engine makes whoever looks into a keyspace wait while it notes a new table there, for as
//! long as the disk takes for that. A new key is looked for in every bucket, and only the newest
//! of a class gets new tables: for that one the answer is nearly always here.
//!
//! 1. A filter says "not there" only when it is whole: it saw every record that the bucket holds.
//! 2. The filter of a new bucket is whole from the start. One of a bucket that was there before is
//!    once a thread of its own has read all keys; until then the engine is asked.
//! 3. It takes two bytes a record, for up to [`MOST`] records. A fuller bucket has none.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fastbloom::BloomFilter;
use fjall::Keyspace;

use super::desk::Desk;
use crate::key::RecordId;

/// Records of the first block; each further one has room for twice as many.
const FIRST: usize = 1 << 18;

/// The most records that are noted in one filter: 64 MiB.
const MOST: usize = 1 << 25;

/// Bits for a record, and how many of them it sets: one new key in a thousand is asked for in vain.
const BITS: usize = 16;
const HASHES: u32 = 6;

/// Keys that are read at a time, and the pause after them: others have the disk and the processor
/// first.
const KEYS: usize = 1_000;
const PAUSE: Duration = Duration::from_millis(1);

/// Buckets that may wait to be read; one that finds no place asks again.
const WAITING: usize = 16;

/// Of one bucket.
#[derive(Debug)]
pub(super) struct Filter(Mutex<State>);

#[derive(Debug)]
struct State {
    blocks: Vec<Block>,
    stage: Stage,
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

#[derive(Debug)]
struct Block {
    bits: BloomFilter,
    /// Records that still have room.
    left: usize,
}

impl Filter {
    /// Of a bucket that is empty.
    pub(super) fn whole() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { blocks: Vec::new(), stage: Stage::Whole })))
    }

    /// Of a bucket that holds anything.
    pub(super) fn idle() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { blocks: Vec::new(), stage: Stage::Idle })))
    }

    /// Whether the bucket holds no record with this id.
    pub(super) fn says_absent(&self, id: &RecordId) -> bool {
        let state = self.lock();
        let hash = hash(id);
        state.stage == Stage::Whole
            && !state.blocks.iter().any(|block| block.bits.contains_hash(hash))
    }

    /// Before a record can be in the bucket.
    pub(super) fn insert(&self, id: &RecordId) {
        self.lock().insert(hash(id));
    }

    /// Before the first record is written: whether the bucket must be read.
    pub(super) fn begins(&self) -> bool {
        let mut state = self.lock();
        let is_idle = state.stage == Stage::Idle;
        if is_idle {
            state.stage = Stage::Loading;
        }
        is_idle
    }

    /// It could not be read; it may be tried again.
    fn give_up(&self) {
        *self.lock() = State { blocks: Vec::new(), stage: Stage::Idle };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // One bit more or less set by whoever panicked says nothing that is not true.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, hash: u64) {
        if !matches!(self.stage, Stage::Loading | Stage::Whole) {
            return;
        }
        let full = self.blocks.last().is_none_or(|block| block.left == 0);
        if full {
            let records = FIRST << self.blocks.len();
            if records > MOST / 2 {
                *self = Self { blocks: Vec::new(), stage: Stage::Off };
                return;
            }
            // Ids are digests: their bits need no seed to be spread.
            let bits = BloomFilter::with_num_bits(records * BITS).seed(&0).hashes(HASHES);
            self.blocks.push(Block { bits, left: records });
        }
        if let Some(block) = self.blocks.last_mut() {
            block.bits.insert_hash(hash);
            block.left -= 1;
        }
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
        let mut state = filter.lock();
        if state.stage != Stage::Loading {
            return Some(());
        }
        if hashes.is_empty() {
            state.stage = Stage::Whole;
            return Some(());
        }
        hashes.drain(..).for_each(|hash| state.insert(hash));
        drop(state);
        if desk.is_over() {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;

//! How records lie in the storage engine: names, keys, and the options they were measured with.
//!
//! ```text
//! meta          secret, epoch, clock
//! live          records in progress and unknown, by id
//! ended-CC-N    records that ended, by id: class CC, bucket N
//! ended-ever    records that are kept for ever
//! ```
//!
//! 1. A record that ended lies in the bucket of its retention class and of the time it ended. Its
//!    class is its retention rounded up to a power of two times 15 minutes; a bucket is an eighth
//!    of that wide. So at most nine buckets of a class hold records that are still kept, only the
//!    newest is written, and one whose newest record is over is deleted as a whole.
//! 2. Every keyspace that a batch touches gets the batch's [`Mark`] under [`MARK`], a key that no
//!    record can have. The numbers of batches have no gap, so what is missing can be told.
//! 3. Names, keys and marks are an on-disk format.

use std::sync::Arc;
use std::time::Duration;

use fjall::KeyspaceCreateOptions;
use fjall::compaction::Leveled;
use fjall::config::{
    BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PartitioningPolicy, PinningPolicy,
};

use super::Options;
use crate::clock::Stamp;
use crate::record::{Record, State};

/// The keyspace of what is there once.
pub(super) const META: &str = "meta";
/// The keyspace of records in progress and unknown.
pub(super) const LIVE: &str = "live";
/// Where a batch's mark lies in each keyspace: shorter than an id, so no record's key.
pub(super) const MARK: &[u8] = b"mark";

/// Keys in [`META`].
pub(super) const SECRET: &[u8] = b"secret";
pub(super) const EPOCH: &[u8] = b"epoch";
pub(super) const ANCHOR: &[u8] = b"clock";

const PREFIX: &str = "ended-";
const EVER: &str = "ever";

/// The smallest class.
const UNIT: Duration = Duration::from_secs(15 * 60);
/// Buckets that one class is wide.
const BUCKETS: u64 = 8;
/// The greatest class, some 120 000 years: what is kept longer is kept for ever.
const MAX_EXPONENT: u8 = 32;

/// What a batch leaves in every keyspace it touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// The engine's batch: the one before it and one.
    pub(super) number: u64,
    /// The log's last batch that it goes back to.
    pub(super) logged: u64,
    /// The highest version given out so far.
    pub(super) version: u64,
    /// The store's time, so that it never runs backwards.
    pub(super) stamp: Stamp,
}

impl Mark {
    /// Of an encoded mark, in bytes.
    pub(super) const LENGTH: usize = 32;

    pub(super) fn encode(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.logged.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.version.to_le_bytes());
        bytes[24..].copy_from_slice(&self.stamp.as_micros().to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let [number, logged, version, stamp] = numbers else { return None };
        let mark = Self {
            number: u64::from_le_bytes(*number),
            logged: u64::from_le_bytes(*logged),
            version: u64::from_le_bytes(*version),
            stamp: Stamp::from_micros(u64::from_le_bytes(*stamp)),
        };
        // After the last number there would be no next one, so no store has written it.
        let counts_on = [mark.number, mark.logged, mark.version].iter().all(|it| *it < u64::MAX);
        (rest.is_empty() && counts_on).then_some(mark)
    }

    /// The higher of both in every part.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            number: self.number.max(other.number),
            logged: self.logged.max(other.logged),
            version: self.version.max(other.version),
            stamp: self.stamp.max(other.stamp),
        }
    }
}

/// The name of a bucket: which records that ended lie there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bucket {
    /// Records that are kept for ever.
    Ever,
    /// Records of a retention class that ended in one window of time.
    Window {
        /// The class: its retention is [`UNIT`] times two to this power at most.
        exponent: u8,
        /// Which window, counted from the epoch in widths.
        index: u64,
    },
}

impl Bucket {
    /// Where `record` belongs; `None` while it is alive.
    pub(super) fn of(record: &Record) -> Option<Self> {
        let (at, gone) = match &record.state {
            State::Completed { at, gone, .. } => (*at, *gone),
            State::Retry { at, expires, .. } => (*at, *expires),
            State::InProgress { .. } | State::Unknown { .. } => return None,
        };
        if gone == Stamp::default().after(Duration::MAX) {
            return Some(Self::Ever);
        }
        let kept = gone.since(at);
        let exponent = (0..=MAX_EXPONENT).find(|exponent| class(*exponent) >= kept);
        Some(exponent.map_or(Self::Ever, |exponent| Self::Window {
            exponent,
            index: at.as_micros() / width(exponent),
        }))
    }

    /// The keyspace's name.
    pub(super) fn name(self) -> String {
        match self {
            Self::Ever => format!("{PREFIX}{EVER}"),
            Self::Window { exponent, index } => format!("{PREFIX}{exponent:02}-{index}"),
        }
    }

    /// The bucket with this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(PREFIX)?;
        if rest == EVER {
            return Some(Self::Ever);
        }
        let (exponent, index) = rest.split_once('-')?;
        let bucket = Self::Window { exponent: exponent.parse().ok()?, index: index.parse().ok()? };
        // Only names that `name` gives, so that no two names are one bucket.
        let Self::Window { exponent, .. } = bucket else { return None };
        (exponent <= MAX_EXPONENT && bucket.name() == name).then_some(bucket)
    }

    /// The end of the window: newer records are elsewhere.
    pub(super) fn end(self) -> Stamp {
        match self {
            Self::Ever => Stamp::from_micros(u64::MAX),
            Self::Window { exponent, index } => {
                Stamp::from_micros(index.saturating_add(1).saturating_mul(width(exponent)))
            }
        }
    }

    /// When the newest record that can be in it is over.
    pub(super) fn over(self) -> Stamp {
        match self {
            Self::Ever => self.end(),
            Self::Window { exponent, .. } => self.end().after(class(exponent)),
        }
    }
}

/// The longest retention of a class.
fn class(exponent: u8) -> Duration {
    // The exponent is at most 32, and so the product far below the end of a Duration.
    Duration::from_secs(UNIT.as_secs() << exponent.min(MAX_EXPONENT))
}

/// How wide the buckets of a class are, in microseconds.
fn width(exponent: u8) -> u64 {
    let micros = u64::try_from(class(exponent).as_micros()).unwrap_or(u64::MAX);
    micros / BUCKETS
}

/// Options of every keyspace, as measured with 50 million records. They are kept with a keyspace
/// from its creation on, so a change applies to new buckets alone.
pub(super) fn keyspace_options(options: &Options) -> KeyspaceCreateOptions {
    let tables = Leveled::default().with_table_target_size(options.table_bytes);
    KeyspaceCreateOptions::default()
        // A new key asks nine filters: with 10 bits a key every fourteenth would be sent to the
        // disk by one of them, for nothing; with 16 every two hundred and fiftieth.
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(
            BloomConstructionPolicy::BitsPerKey(16.0),
        )))
        // A new key is looked for in every bucket: its filters must be in memory, whole.
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::all(true))
        // Most look-ups miss, so the last level needs its filters too.
        .expect_point_read_hits(false)
        .max_memtable_size(options.memtable_bytes)
        .compaction_strategy(Arc::new(tables))
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;

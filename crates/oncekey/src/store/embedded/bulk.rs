//! Filling a new folder with records that have ended, as fast as the disk takes them.
//!
//! For measurements and moves: the writer would take half an hour for what this does in minutes.
//!
//! 1. The folder holds afterwards what the writer would have left there: each record in its
//!    bucket, and the mark of the last batch in every keyspace that was touched.
//! 2. Only a folder without records is filled, and by records in ascending order of id, for they
//!    go to files as they come: memory does not grow with their number.
//! 3. Nothing is promised about a folder whose filling failed: delete it.
//!
//! ```
//! use oncekey::store::embedded::{Options, bulk};
//!
//! # fn main() -> Result<(), bulk::FillError> {
//! # let folder = tempfile::tempdir().expect("a temporary folder");
//! # let folder = folder.path().join("data");
//! let nothing = std::iter::empty();
//! assert_eq!(bulk::fill(&folder, &Options::default(), nothing)?, 0);
//! # Ok(())
//! # }
//! ```

use std::cell::OnceCell;
use std::path::Path;

use fjall::{Keyspace, OwnedWriteBatch, PersistMode};

use super::Options;
use super::applier::Tables;
use super::check;
use super::error::OpenError;
use super::layout::{Bucket, MARK, Mark};
use super::open::{self, Opened};
use crate::key::RecordId;
use crate::record::{Record, State, codec};

/// The most buckets that are filled at a time: each has a file open.
const MAX_BUCKETS: usize = 32;

/// Why a folder was not filled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// It cannot be opened, or not be written.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// It has records already.
    #[error("the folder is not empty")]
    NotEmpty,
    /// A record that has not ended, or whose id is not greater than the one before it.
    #[error("record {0} is alive, or out of order")]
    Unfit(RecordId),
    /// The records belong to more than 32 buckets.
    #[error("the records belong to too many buckets")]
    TooManyBuckets,
}

/// Fills the folder at `path` with `records` and says how many they were.
///
/// # Errors
/// [`FillError`]; the folder is of no use then.
pub fn fill(
    path: &Path,
    options: &Options,
    records: impl IntoIterator<Item = Record>,
) -> Result<u64, FillError> {
    let (folder, synced) = check::take(path)?;
    let Opened { tables, live, .. } = open::open(folder.path(), options, &synced)?;
    let Tables { mut buckets, mark, .. } = tables;
    if live > 0 || !buckets.is_empty() {
        return Err(FillError::NotEmpty);
    }
    let engine = |error| OpenError::engine(path, error);

    let made: [OnceCell<Keyspace>; MAX_BUCKETS] = Default::default();
    let mut filling = Vec::new();
    let (mut scratch, mut last) = (Vec::new(), None);
    let mut next = Mark { number: mark.number + 1, ..mark };
    let mut count = 0;
    for record in records {
        let fits = last.is_none_or(|last| last < record.id);
        let bucket = Bucket::of(&record).filter(|_| fits).ok_or(FillError::Unfit(record.id))?;
        let at = match filling.iter().position(|(name, _)| *name == bucket) {
            Some(at) => at,
            None => {
                let slot = made.get(filling.len()).ok_or(FillError::TooManyBuckets)?;
                let (keyspace, _) = buckets.for_record(bucket, &record.id).map_err(engine)?;
                let keyspace = slot.get_or_init(|| keyspace);
                filling.push((bucket, keyspace.start_ingestion().map_err(engine)?));
                filling.len() - 1
            }
        };
        scratch.clear();
        codec::encode(&record, &mut scratch);
        filling[at].1.write(*record.id.as_bytes(), scratch.as_slice()).map_err(engine)?;
        next.version = next.version.max(record.version.number());
        next.stamp = next.stamp.max(ended(&record));
        last = Some(record.id);
        count += 1;
    }
    for (_, ingestion) in filling {
        ingestion.finish().map_err(engine)?;
    }

    let mut batch = OwnedWriteBatch::with_capacity(buckets.database().clone(), MAX_BUCKETS + 1);
    // The writer's completions would have touched the keyspace that they were taken out of, too.
    let touched: Vec<Keyspace> = [buckets.live()]
        .into_iter()
        .chain(made.iter().filter_map(OnceCell::get))
        .cloned()
        .collect();
    for keyspace in &touched {
        batch.insert(keyspace, MARK, next.encode());
    }
    batch.durability(Some(PersistMode::SyncData)).commit().map_err(engine)?;
    let noted = synced.change(|table| touched.iter().for_each(|it| table.note(it, next)));
    noted.and_then(|()| synced.sync()).map_err(|error| OpenError::io(path, error))?;
    Ok(count)
}

/// When its last change was made.
fn ended(record: &Record) -> crate::clock::Stamp {
    match &record.state {
        State::Completed { at, .. } | State::Retry { at, .. } => *at,
        State::InProgress { .. } | State::Unknown { .. } => record.created,
    }
}

#[cfg(test)]
#[path = "bulk_tests.rs"]
mod tests;

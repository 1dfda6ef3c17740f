//! The buckets of records that ended: found, made and deleted by the writer alone.
//!
//! The storage engine does not look whether a keyspace was deleted when it writes: a write to a
//! deleted bucket vanishes in silence. So nobody else may do either.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::layout::{Bucket, Mark};
use super::synced::Synced;
use super::view::Keyspaces;
use crate::clock::Stamp;
use crate::key::RecordId;
use crate::record::codec::{self, DecodeError};
use crate::record::{Record, Standing};

/// Every bucket there is, newest first.
pub(super) struct Buckets {
    database: Database,
    options: KeyspaceCreateOptions,
    live: Keyspace,
    open: Vec<Open>,
    /// Deleted ones go there: whoever drops a last handle deletes files, for as long as it takes.
    deleted: SyncSender<Keyspace>,
    /// Deleted, and not handed over yet.
    over: Option<Keyspace>,
    synced: Arc<Synced>,
}

struct Open {
    name: Bucket,
    keyspace: Keyspace,
    /// About how many records it holds.
    records: usize,
}

/// A record that was found in a bucket.
pub(super) struct Ended {
    pub(super) bucket: Bucket,
    pub(super) record: Record,
}

/// Why a look-up gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    #[error(transparent)]
    Engine(#[from] fjall::Error),
    /// The stored bytes are no record.
    #[error("{error}")]
    Unreadable {
        /// Where they lie.
        bucket: Bucket,
        /// Why.
        error: DecodeError,
    },
}

impl Buckets {
    pub(super) fn new(
        database: Database,
        live: Keyspace,
        options: KeyspaceCreateOptions,
        found: Vec<(Bucket, Keyspace)>,
        deleted: SyncSender<Keyspace>,
        synced: Arc<Synced>,
    ) -> Self {
        let open = found.into_iter().map(|(name, keyspace)| {
            // The mark is no record.
            let records = keyspace.approximate_len().saturating_sub(1);
            Open { name, keyspace, records }
        });
        let mut buckets =
            Self { database, options, live, open: open.collect(), deleted, over: None, synced };
        buckets.sort();
        buckets
    }

    /// Newest first: that is where most look-ups that hit end.
    fn sort(&mut self) {
        self.open.sort_by_key(|open| std::cmp::Reverse(open.name.end()));
    }

    /// The record that ended and is not over yet.
    ///
    /// There is one at most: whoever takes a record out of a bucket deletes it there, unless it is
    /// over, and then it stays over.
    pub(super) fn find(&self, id: &RecordId, now: Stamp) -> Result<Option<Ended>, LookError> {
        for open in &self.open {
            // Saves the probe; its bucket only waits for the sweeper.
            if open.name.over() <= now {
                continue;
            }
            let Some(bytes) = open.keyspace.get(id.as_bytes())? else { continue };
            let bucket = open.name;
            let unreadable = |error| LookError::Unreadable { bucket, error };
            let record = codec::decode(&bytes).map_err(unreadable)?;
            if record.id != *id {
                return Err(unreadable(DecodeError::Unknown));
            }
            if record.standing(now) != Standing::Gone {
                return Ok(Some(Ended { bucket, record }));
            }
        }
        Ok(None)
    }

    /// The keyspace of a bucket that is there.
    pub(super) fn get(&self, name: Bucket) -> Option<&Keyspace> {
        self.open.iter().find(|open| open.name == name).map(|open| &open.keyspace)
    }

    /// The keyspace of a bucket, made if it is not there; says whether it was made.
    pub(super) fn get_or_make(&mut self, name: Bucket) -> fjall::Result<(Keyspace, Made)> {
        if let Some(open) = self.open.iter_mut().find(|open| open.name == name) {
            open.records += 1;
            return Ok((open.keyspace.clone(), Made::Before));
        }
        let keyspace = self.database.keyspace(&name.name(), || self.options.clone())?;
        self.open.push(Open { name, keyspace: keyspace.clone(), records: 1 });
        self.sort();
        Ok((keyspace, Made::Now))
    }

    /// Deletes a bucket whose every record is over at `now`, the oldest first; says about how many
    /// records it held. It waits to be handed over then.
    pub(super) fn delete_over(&mut self, now: Stamp) -> fjall::Result<Option<usize>> {
        let Some(at) = self.open.iter().rposition(|open| open.name.over() <= now) else {
            return Ok(None);
        };
        let open = self.open.remove(at);
        // On disk before the bucket goes: one that is listed and not there is damage.
        let id = open.keyspace.id();
        self.synced.change(|table| table.keyspaces.retain(|entry| entry.id != id))?;
        self.synced.sync()?;
        self.over = Some(open.keyspace.clone());
        self.database.delete_keyspace(open.keyspace)?;
        Ok(Some(open.records))
    }

    /// Hands the bucket that was deleted last to whoever may wait for its files to go; says
    /// whether none waits any more.
    pub(super) fn hand_over(&mut self) -> bool {
        if let Some(keyspace) = self.over.take()
            && let Err(TrySendError::Full(keyspace)) = self.deleted.try_send(keyspace)
        {
            self.over = Some(keyspace);
        }
        self.over.is_none()
    }

    /// The keyspaces, for readers.
    pub(super) fn keyspaces(&self) -> Keyspaces {
        Keyspaces {
            live: self.live.clone(),
            ended: self.open.iter().map(|open| open.keyspace.clone()).collect(),
        }
    }

    /// Whether there is no bucket at all.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn live(&self) -> &Keyspace {
        &self.live
    }

    /// After a commit: these keyspaces got this mark.
    pub(super) fn note(&self, touched: &[Keyspace], mark: Mark) -> fjall::Result<()> {
        Ok(self.synced.note(touched, mark)?)
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }
}

/// Whether a bucket is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Now,
    Before,
}

#[cfg(test)]
#[path = "buckets_tests.rs"]
mod tests;

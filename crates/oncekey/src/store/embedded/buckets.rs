//! The buckets of records that ended: made, written and deleted by the applier alone.
//!
//! The storage engine does not look whether a keyspace was deleted when it writes: a write to a
//! deleted bucket vanishes in silence. So nobody else may do either.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::filter::{Filter, Loader};
use super::layout::Bucket;
use super::synced::Synced;
use super::view::{Keyspaces, Part};
use crate::clock::Stamp;
use crate::key::RecordId;

/// Every bucket there is, newest first.
pub(super) struct Buckets {
    database: Database,
    options: KeyspaceCreateOptions,
    live: Keyspace,
    open: Vec<Open>,
    /// Reads buckets for their filters, if anybody will ask those.
    loader: Option<Loader>,
}

struct Open {
    name: Bucket,
    keyspace: Keyspace,
    filter: Arc<Filter>,
    /// About how many records it holds.
    records: usize,
}

impl Open {
    fn part(&self) -> Part {
        let (keyspace, filter) = (self.keyspace.clone(), Arc::clone(&self.filter));
        Part { bucket: self.name, keyspace, filter }
    }
}

impl Buckets {
    pub(super) fn new(
        database: Database,
        live: Keyspace,
        options: KeyspaceCreateOptions,
        found: Vec<(Bucket, Keyspace)>,
    ) -> Self {
        let open = found.into_iter().map(|(name, keyspace)| {
            // The mark is no record.
            let records = keyspace.approximate_len().saturating_sub(1);
            Open { name, keyspace, filter: Filter::idle(), records }
        });
        let mut buckets = Self { database, options, live, open: open.collect(), loader: None };
        buckets.sort();
        buckets
    }

    /// Newest first, for look-ups.
    fn sort(&mut self) {
        self.open.sort_by_key(|open| std::cmp::Reverse(open.name.end()));
    }

    /// The keyspace of a bucket that is there.
    pub(super) fn get(&self, name: Bucket) -> Option<&Keyspace> {
        self.open.iter().find(|open| open.name == name).map(|open| &open.keyspace)
    }

    /// Has filters made from now on.
    pub(super) fn set_loader(&mut self, loader: Loader) {
        self.loader = Some(loader);
    }

    /// The keyspace of a bucket that gets record `id` next, made if it is not there; says whether
    /// it was made.
    pub(super) fn for_record(
        &mut self,
        name: Bucket,
        id: &RecordId,
    ) -> fjall::Result<(Keyspace, Made)> {
        if let Some(open) = self.open.iter_mut().find(|open| open.name == name) {
            open.records += 1;
            if let Some(loader) = &self.loader
                && open.filter.begins()
            {
                loader.load(open.keyspace.clone(), Arc::clone(&open.filter));
            }
            open.filter.insert(id);
            return Ok((open.keyspace.clone(), Made::Before));
        }
        let keyspace = self.database.keyspace(&name.name(), || self.options.clone())?;
        let filter = Filter::whole();
        filter.insert(id);
        self.open.push(Open { name, keyspace: keyspace.clone(), filter, records: 1 });
        self.sort();
        Ok((keyspace, Made::Now))
    }

    /// Deletes a bucket whose every record is over at `now`, the oldest first. Its files go when
    /// the last handle does.
    pub(super) fn delete_over(
        &mut self,
        now: Stamp,
        synced: &Synced,
    ) -> fjall::Result<Option<Deleted>> {
        let Some(at) = self.open.iter().rposition(|open| open.name.over() <= now) else {
            return Ok(None);
        };
        let Open { keyspace, records, .. } = self.open.remove(at);
        // On disk before the bucket goes: one that is listed and not there is damage.
        let id = keyspace.id();
        synced.change(|table| table.keyspaces.retain(|entry| entry.id != id))?;
        synced.sync()?;
        self.database.delete_keyspace(keyspace.clone())?;
        Ok(Some(Deleted { keyspace, records }))
    }

    /// The keyspaces, for readers.
    pub(super) fn keyspaces(&self) -> Keyspaces {
        Keyspaces { live: self.live.clone(), ended: self.open.iter().map(Open::part).collect() }
    }

    /// Whether there is no bucket at all.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn live(&self) -> &Keyspace {
        &self.live
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }
}

/// A bucket that is no longer there.
pub(super) struct Deleted {
    pub(super) keyspace: Keyspace,
    /// About how many records it held.
    pub(super) records: usize,
}

/// Deleted buckets on their way to whoever may wait for their files to go.
pub(super) struct Leaving {
    /// Whoever drops a last handle deletes files, for as long as it takes.
    to: SyncSender<Keyspace>,
    /// There was no room for it yet.
    held: Option<Keyspace>,
}

impl Leaving {
    pub(super) fn new(to: SyncSender<Keyspace>) -> Self {
        Self { to, held: None }
    }

    /// Sends on what is held; says whether nothing is held any more.
    pub(super) fn is_clear(&mut self) -> bool {
        if let Some(keyspace) = self.held.take()
            && let Err(TrySendError::Full(keyspace)) = self.to.try_send(keyspace)
        {
            self.held = Some(keyspace);
        }
        self.held.is_none()
    }

    /// Sends a bucket on, or holds it: to be asked only while [clear](Self::is_clear).
    pub(super) fn put(&mut self, keyspace: Keyspace) {
        self.held = Some(keyspace);
        self.is_clear();
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

//! What one batch holds before it is committed: for each record touched, where it lay and what it
//! becomes.
//!
//! A record that several calls touch is written once, as the last of them left it.

use std::collections::HashMap;
use std::sync::Arc;

use fjall::{Keyspace, OwnedWriteBatch, PersistMode};

use super::buckets::{Buckets, Made};
use super::layout::{Bucket, MARK, Mark};
use super::mailbox::Mailbox;
use super::request::Answer;
use super::view::View;
use crate::key::RecordId;
use crate::record::Record;
use crate::record::codec;

/// Where a record lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Absent,
    Live,
    Bucket(Bucket),
}

/// A record as a decision finds it.
#[derive(Clone)]
pub(super) struct Found {
    /// Where it lay before the batch.
    pub(super) place: Place,
    /// What it is by now, the batch's own decisions counted.
    pub(super) record: Option<Arc<Record>>,
}

/// How far a change reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// A lease alone: it ends with this process, so it is kept in memory.
    Memory,
    /// It must be on disk before it is told.
    Disk,
}

/// One record that the batch changes.
pub(super) struct Pending {
    pub(super) id: RecordId,
    pub(super) found: Found,
    pub(super) reach: Reach,
}

/// Changes that are not committed, and answers that are not given.
#[derive(Default)]
pub(super) struct Batch {
    changes: Vec<Pending>,
    index: HashMap<RecordId, usize>,
    pub(super) answers: Vec<(Option<Arc<Mailbox>>, Answer)>,
}

impl Batch {
    /// The record, if the batch changes it.
    pub(super) fn get(&self, id: &RecordId) -> Option<&Found> {
        self.index.get(id).map(|at| &self.changes[*at].found)
    }

    /// Takes note of a change.
    pub(super) fn put(&mut self, id: RecordId, found: Found, reach: Reach) {
        if let Some(at) = self.index.get(&id) {
            let pending = &mut self.changes[*at];
            pending.reach = pending.reach.max(reach);
            pending.found.record = found.record;
            return;
        }
        self.index.insert(id, self.changes.len());
        self.changes.push(Pending { id, found, reach });
    }

    /// How many changes it holds.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Empties it for the next round; its room is kept.
    pub(super) fn take_changes(&mut self) -> std::vec::Drain<'_, Pending> {
        self.index.clear();
        self.changes.drain(..)
    }

    /// Writes what must be on disk, syncs, and says how many records that were. Everything or
    /// nothing.
    pub(super) fn commit(
        &self,
        view: &View,
        buckets: &mut Buckets,
        mark: Mark,
        scratch: &mut Vec<u8>,
    ) -> fjall::Result<usize> {
        let database = buckets.database().clone();
        let mut writing = Writing {
            items: OwnedWriteBatch::with_capacity(database, 2 * self.changes.len() + 2),
            touched: Vec::new(),
            scratch,
            writes: 0,
            made: Made::Before,
        };
        for pending in self.changes.iter().filter(|pending| pending.reach == Reach::Disk) {
            writing.change(buckets, pending)?;
        }
        let Writing { mut items, touched, writes, made, .. } = writing;
        if writes == 0 {
            return Ok(0);
        }
        if made == Made::Now {
            // Before a record can be seen there and nowhere else.
            view.set_keyspaces(buckets.keyspaces());
        }
        for keyspace in &touched {
            items.insert(keyspace, MARK, mark.encode());
        }
        items.durability(Some(PersistMode::SyncData)).commit()?;
        buckets.note(&touched, mark)?;
        Ok(writes)
    }
}

/// A batch of the storage engine in the making.
struct Writing<'a> {
    items: OwnedWriteBatch,
    touched: Vec<Keyspace>,
    scratch: &'a mut Vec<u8>,
    /// How many records it writes or deletes.
    writes: usize,
    /// Whether a bucket was made for it.
    made: Made,
}

impl Writing<'_> {
    fn change(&mut self, buckets: &mut Buckets, pending: &Pending) -> fjall::Result<()> {
        let (id, before) = (&pending.id, pending.found.place);
        let mut after = Place::Absent;
        if let Some(record) = &pending.found.record {
            let keyspace = match Bucket::of(record) {
                None => {
                    after = Place::Live;
                    buckets.live().clone()
                }
                Some(bucket) => {
                    after = Place::Bucket(bucket);
                    let (keyspace, made) = buckets.get_or_make(bucket)?;
                    if made == Made::Now {
                        self.made = Made::Now;
                    }
                    keyspace
                }
            };
            self.scratch.clear();
            codec::encode(record, self.scratch);
            self.items.insert(&keyspace, id.as_bytes(), self.scratch.as_slice());
            self.touch(&keyspace);
        }
        // The new place before the old one: a reader beside the writer may see a record twice,
        // but a batch that is applied key by key must not hide an outcome.
        if before != after {
            let old = match before {
                Place::Absent => None,
                Place::Live => Some(buckets.live().clone()),
                Place::Bucket(bucket) => buckets.get(bucket).cloned(),
            };
            if let Some(keyspace) = old {
                self.items.remove(&keyspace, id.as_bytes());
                self.touch(&keyspace);
            }
        }
        if before != Place::Absent || after != Place::Absent {
            self.writes += 1;
        }
        Ok(())
    }

    fn touch(&mut self, keyspace: &Keyspace) {
        // A handful at most: live and the newest bucket of each class in use.
        if !self.touched.iter().any(|known| known.id() == keyspace.id()) {
            self.touched.push(keyspace.clone());
        }
    }
}

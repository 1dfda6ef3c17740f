//! The thread that brings what is in the log into the tables.
//!
//! 1. It alone writes to the storage engine while a store is open, so nobody who waits for an
//!    answer waits for what the engine writes.
//! 2. A batch of the engine has a number of its own, without a gap, and is not synced. Before a
//!    slot of the log is written again, everything in it is applied and synced, and `synced` says
//!    so, synced.
//! 3. It looks at the disk when the [guard](super::guard) asks, and deletes buckets.
//! 4. When the writer is gone it applies what is left, and syncs: a store that was closed has
//!    nothing in its log that it needs.

use std::sync::Arc;

use fjall::{Keyspace, OwnedWriteBatch, PersistMode};

use super::buckets::{Buckets, Deleted, Leaving, Made};
use super::changes::{Pending, Place};
use super::desk::{Desk, Lot};
use super::error::Failure;
use super::layout::{MARK, Mark};
use super::log::Files;
use super::request::{Purged, Reply};
use super::space::Watch;
use super::synced::Synced;
use super::view::{self, Alarm, View};
use crate::record::codec;
use crate::store::{StoreError, StoreErrorKind};

/// The most records in one batch of the engine.
const MAX_BATCH: usize = 512;

/// About the most bytes of one.
const MAX_BYTES: u64 = 1 << 20;

/// Everything that the applying thread owns.
pub(super) struct Applier {
    pub(super) view: Arc<View>,
    pub(super) desk: Arc<Desk>,
    pub(super) tables: Tables,
    pub(super) synced: Arc<Synced>,
    pub(super) files: Files,
    pub(super) watch: Watch,
    pub(super) leaving: Leaving,
}

/// The storage engine as it is written to.
pub(super) struct Tables {
    pub(super) buckets: Buckets,
    /// Of the last batch.
    pub(super) mark: Mark,
    /// Keyspaces that were written since the last sync, and their marks.
    touched: Vec<(Keyspace, Mark)>,
    scratch: Vec<u8>,
}

impl Tables {
    pub(super) fn new(buckets: Buckets, mark: Mark) -> Self {
        Self { buckets, mark, touched: Vec::new(), scratch: Vec::new() }
    }

    /// Writes changes, some hundred in a batch of the engine; they are seen at once, and synced
    /// later. `each` is called before every batch: a record can soon be in a bucket that was made
    /// for it, and nowhere else.
    pub(super) fn write<'a, C, E>(
        &mut self,
        changes: C,
        mark: Mark,
        mut each: E,
    ) -> fjall::Result<()>
    where
        C: IntoIterator<Item = &'a Pending>,
        E: FnMut(&Buckets, Made),
    {
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let mut bytes = 0;
            let batch = std::iter::from_fn(|| {
                let pending = changes.next_if(|_| bytes < MAX_BYTES)?;
                bytes += pending.found.record.as_deref().map_or(0, view::weight);
                Some(pending)
            });
            self.write_batch(batch.take(MAX_BATCH), mark, &mut each)?;
        }
        Ok(())
    }

    fn write_batch<'a, C, E>(&mut self, changes: C, mark: Mark, each: E) -> fjall::Result<()>
    where
        C: Iterator<Item = &'a Pending>,
        E: FnOnce(&Buckets, Made),
    {
        let mark = Mark { number: self.mark.number + 1, ..self.mark.max(mark) };
        let mut writing = Writing {
            items: OwnedWriteBatch::with_capacity(self.buckets.database().clone(), MAX_BATCH),
            touched: Vec::new(),
            scratch: &mut self.scratch,
            made: Made::Before,
        };
        for pending in changes {
            writing.change(&mut self.buckets, pending)?;
        }
        let Writing { mut items, touched, made, .. } = writing;
        if touched.is_empty() {
            return Ok(());
        }
        each(&self.buckets, made);
        for keyspace in &touched {
            items.insert(keyspace, MARK, mark.encode());
        }
        items.commit()?;
        self.mark = mark;
        for keyspace in touched {
            self.touched.retain(|(known, _)| known.id() != keyspace.id());
            self.touched.push((keyspace, mark));
        }
        Ok(())
    }

    /// Syncs what was written, up to batch `logged` of the log, and notes that it is.
    pub(super) fn sync(&mut self, logged: u64, synced: &Synced) -> fjall::Result<()> {
        self.buckets.database().persist(PersistMode::SyncData)?;
        synced.change(|table| {
            let touched = self.touched.drain(..);
            touched.for_each(|(keyspace, mark)| table.note(&keyspace, mark));
            table.applied = table.applied.max(logged);
        })?;
        Ok(synced.sync()?)
    }
}

/// A batch of the storage engine in the making.
struct Writing<'a> {
    items: OwnedWriteBatch,
    touched: Vec<Keyspace>,
    scratch: &'a mut Vec<u8>,
    /// Whether a bucket was made for it.
    made: Made,
}

impl Writing<'_> {
    fn change(&mut self, buckets: &mut Buckets, pending: &Pending) -> fjall::Result<()> {
        let (id, before) = (&pending.id, pending.found.place);
        let record = pending.found.record.as_deref();
        let after = Place::of(record);
        if let Some(record) = record {
            let keyspace = match after {
                Place::Bucket(bucket) => {
                    let (keyspace, made) = buckets.for_record(bucket, id)?;
                    if made == Made::Now {
                        self.made = Made::Now;
                    }
                    keyspace
                }
                _ => buckets.live().clone(),
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
        Ok(())
    }

    fn touch(&mut self, keyspace: &Keyspace) {
        // A handful at most: live and the newest bucket of each class in use.
        if !self.touched.iter().any(|known| known.id() == keyspace.id()) {
            self.touched.push(keyspace.clone());
        }
    }
}

impl Applier {
    /// Applies until the writer is gone.
    pub(super) fn run(mut self) {
        let _alarm = Alarm(Arc::clone(&self.view));
        loop {
            self.view.applying.rest();
            let mut lot = self.desk.take();
            self.view.applying.begin();
            if self.view.is_healthy()
                && let Err(failure) = self.work(&mut lot)
            {
                self.view.fail(failure);
            }
            self.desk.applied();
            for settled in lot.errands.settles {
                // Whoever asked looks whether the store has failed.
                let _ = settled.send(());
            }
            for reply in lot.errands.purges {
                self.purge(reply);
            }
            if lot.errands.ended {
                return;
            }
        }
    }

    fn work(&mut self, lot: &mut Lot) -> Result<(), Failure> {
        let Self { view, tables, watch, synced, .. } = self;
        let each = |buckets: &Buckets, made| {
            if made == Made::Now {
                view.set_keyspaces(buckets.keyspaces());
            }
            view.applying.step();
        };
        let written = tables.write(lot.changes.written(), lot.mark, each);
        written.map_err(|error| watch.failure(error))?;
        if !lot.full.is_empty() || lot.errands.ended {
            tables.sync(lot.mark.logged, synced).map_err(|error| watch.failure(error))?;
            view.applying.step();
            for mut slot in lot.full.drain(..) {
                slot.clear().map_err(|error| watch.failure(error))?;
                self.desk.release(slot);
            }
        }
        if lot.errands.grow
            && let Some(slot) = self.files.grow().map_err(|error| watch.failure(error))?
        {
            self.desk.release(slot);
        }
        if lot.errands.look {
            watch.look(&view.space, tables.buckets.database(), self.files.bytes())?;
        }
        Ok(())
    }

    /// Deletes a bucket.
    fn purge(&mut self, reply: Reply<Purged>) {
        let purged = self.delete().map_err(|failure| {
            self.view.fail(failure.clone());
            StoreError::caused(StoreErrorKind::Unavailable, failure)
        });
        let _ = reply.send(purged);
    }

    fn delete(&mut self) -> Result<Purged, Failure> {
        if let Some(failure) = self.view.failure() {
            return Err(failure.clone());
        }
        if !self.leaving.is_clear() {
            return Ok(Purged::Later);
        }
        let buckets = &mut self.tables.buckets;
        let deleted = buckets.delete_over(self.view.clock.now(), &self.synced);
        let deleted = deleted.map_err(|error| self.watch.failure(error))?;
        let Some(Deleted { keyspace, records }) = deleted else {
            return Ok(Purged::Nothing);
        };
        // Others let go of it first, so that the last handle is the one that is sent on.
        self.view.set_keyspaces(buckets.keyspaces());
        self.tables.touched.retain(|(known, _)| known.id() != keyspace.id());
        self.leaving.put(keyspace);
        Ok(Purged::Bucket { records })
    }
}

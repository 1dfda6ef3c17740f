//! Sweeping: what time has ended goes, in steps between which every other call has its turn (T3).
//!
//! 1. A bucket whose every record is over is deleted whole, by the applier: the storage engine
//!    takes milliseconds for each, under the lock that its every commit takes.
//! 2. Its files are removed by whoever drops the last handle: a thread of their own, never the
//!    writer. A bucket that cannot be handed to it yet holds up the next, so nothing piles up.
//! 3. Unknown requests shrink and end by the batch (U3), like any other write. What is due is found
//!    beside the writer and decided again by it.
//! 4. Nothing is deleted while the wall clock has stepped away from the store's (L4), nor in the
//!    first hour after an opening that had to believe the wall clock about how much time passed.

use std::sync::Arc;
use std::time::Duration;

use super::EmbeddedStore;
use super::changes::{Found, Reach};
use super::request::{Answer, Purged, Reply, Request};
use super::writer::Writer;
use crate::decide::{self, Sweep};
use crate::events;
use crate::key::RecordId;
use crate::record::Record;
use crate::store::{StoreError, StoreErrorKind};

/// Between two buckets: other calls' batches come first.
const PAUSE: Duration = Duration::from_millis(10);
/// The most buckets that one purge deletes.
const MAX_BUCKETS: usize = 256;
/// Unknown requests in one batch.
const MAX_SWEPT: usize = 256;
/// Unknown requests that one look finds.
const MAX_FOUND: usize = 10_000;
/// The most such looks of one purge.
const MAX_LOOKS: usize = 100;

impl EmbeddedStore {
    /// Deletes what time has ended until that were `limit` records, about, or none is left.
    pub(super) async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let mut ended: usize = 0;
        for _ in 0..MAX_BUCKETS {
            if ended >= limit {
                return Ok(ended);
            }
            match self.ask(|reply| Request::Purge { reply }).await? {
                // One that is empty by now was something to delete all the same.
                Purged::Bucket { records } => ended = ended.saturating_add(records.max(1)),
                Purged::Later => {}
                Purged::Nothing => break,
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(ended + self.sweep_living(limit.saturating_sub(ended)).await?)
    }

    /// Shrinks and ends unknown requests that are due, until `limit` ended or none is left.
    async fn sweep_living(&self, limit: usize) -> Result<usize, StoreError> {
        let mut ended = 0;
        for _ in 0..MAX_LOOKS {
            let found = self.due(MAX_FOUND.min(limit - ended)).await?;
            if found.is_empty() {
                break;
            }
            for ids in found.chunks(MAX_SWEPT) {
                let ids = ids.to_vec();
                let Some(swept) = self.ask(|reply| Request::Sweep { ids, reply }).await? else {
                    return Ok(ended);
                };
                ended += swept;
            }
        }
        Ok(ended)
    }

    /// Up to `limit` live records that a sweep would do something to, as far as can be told here.
    async fn due(&self, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        let view = Arc::clone(&self.view);
        // A million records take a while to look at: not on a thread that serves.
        let look = tokio::task::spawn_blocking(move || {
            let now = view.clock.now();
            view.find_live(limit, |record| decide::due(record).is_some_and(|due| due <= now))
        });
        look.await.map_err(|failed| StoreError::caused(StoreErrorKind::Unavailable, failed))
    }
}

impl Writer {
    /// Whether anything may be deleted now (L4).
    fn may_delete(&self) -> bool {
        self.wall.agrees(&self.view.clock, &*self.observer)
            && self.view.clock.now() >= self.delete_from
    }

    /// Sweeps those of `ids` that are still alive, and says how many of them ended; `None` while
    /// nothing may be deleted.
    pub(super) fn sweep(&mut self, ids: &[RecordId]) -> Option<usize> {
        if !self.may_delete() {
            return None;
        }
        let mut ended = 0;
        for id in ids {
            let now = self.view.clock.now();
            // One that cannot be read is listed as such: nothing is lost by leaving it.
            let Ok(Found { place, record: Some(record) }) = self.look(id, now) else { continue };
            if record.gone_at().is_some() {
                continue;
            }
            let left = match decide::sweep(&record, now) {
                Sweep::Keep => continue,
                Sweep::Shrink(smaller) => Some(Arc::<Record>::from(smaller)),
                Sweep::End => {
                    events::horizon_reached(&*self.observer, &record, now);
                    self.count(1, 0);
                    ended += 1;
                    None
                }
            };
            self.batch.put(*id, Found { place, record: left }, Reach::Disk);
        }
        Some(ended)
    }

    /// Has a bucket deleted, if anything may be.
    pub(super) fn purge(&mut self, reply: Reply<Purged>) -> Answer {
        if !self.may_delete() {
            return Answer::Purge(reply, Purged::Nothing);
        }
        self.desk.ask(|errands| errands.purges.push(reply));
        Answer::Nothing
    }
}

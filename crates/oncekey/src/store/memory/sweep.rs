//! Sweeping the memory store: what time has ended goes, a little under each hold of a lock.
//!
//! 1. What ended lies in order of time, so a sweep looks only at what it takes.
//! 2. What is alive does not, for that would cost every claim. A shard knows a moment before which
//!    none of its living is due; a purge after that moment looks at all of them once, and so finds
//!    the next such moment: a week ahead where horizons are long.

use std::sync::atomic::Ordering;

use super::{MemoryStore, NEVER, SHARDS, Shard, size};
use crate::clock::Stamp;
use crate::decide::{self, Sweep};
use crate::events;
use crate::key::RecordId;
use crate::record::Record;

/// Records that are taken out under one hold of a lock.
const SWEPT_AT_ONCE: usize = 128;

/// What a sweep took out of a shard, to be freed without its lock.
#[derive(Default)]
pub(super) struct Swept {
    /// Those that are gone.
    ended: Vec<Record>,
    /// Those that a smaller record took the place of.
    shrunk: Vec<Record>,
}

impl Swept {
    fn len(&self) -> usize {
        self.ended.len() + self.shrunk.len()
    }
}

impl MemoryStore {
    /// Deletes up to `limit` records that time has ended, if the clocks agree (L4).
    pub(super) fn purge(&self, limit: usize) -> usize {
        if !self.wall.agrees(&self.clock, &*self.observer) {
            return 0;
        }
        let purged = self.sweep_all(limit, Self::sweep);
        purged + self.sweep_all(limit - purged, Self::sweep_living)
    }

    /// Makes what room there is: only what is over and unknown requests beyond their horizon go.
    ///
    /// What is over goes whatever the wall clock does: it reads as absent already, and all of it
    /// was timed by one run of the monotonic clock.
    pub(super) fn make_room(&self) {
        self.sweep_all(usize::MAX, Self::sweep);
        self.purge(usize::MAX);
    }

    /// Sweeps every shard, a few records under each hold of a lock, and says how many ended.
    fn sweep_all(
        &self,
        limit: usize,
        sweep: impl Fn(&Self, &mut Shard, Stamp, usize) -> Swept,
    ) -> usize {
        let mut ended = 0;
        for index in 0..SHARDS {
            while ended < limit {
                let now = self.clock.now();
                let most = SWEPT_AT_ONCE.min(limit - ended);
                // The lock is let go at the end of this statement, before anything is freed or
                // logged.
                let swept = sweep(self, &mut self.lock(index), now, most);
                for record in swept.ended.iter().filter(|record| record.gone_at().is_none()) {
                    events::horizon_reached(&*self.observer, record, now);
                }
                ended += swept.ended.len();
                if swept.len() < most {
                    break;
                }
            }
        }
        ended
    }

    /// Takes up to `limit` records that are over out of `shard`, and the answers out of those of
    /// which only a tombstone is left.
    pub(super) fn sweep(&self, shard: &mut Shard, now: Stamp, limit: usize) -> Swept {
        let mut swept = Swept::default();
        while swept.len() < limit
            && let Some((end, id)) = shard.ends.first().copied()
            && end <= now
        {
            self.sweep_one(shard, id, now, &mut swept);
            // Whatever became of the record, it is not to be looked at for this moment again.
            shard.ends.remove(&(end, id));
        }
        swept
    }

    /// The same for up to `limit` records that are alive: unknown requests (U3).
    fn sweep_living(&self, shard: &mut Shard, now: Stamp, limit: usize) -> Swept {
        let mut swept = Swept::default();
        if shard.next_look > now {
            return swept;
        }
        let (mut next, mut ids) = (NEVER, Vec::new());
        for record in shard.records.values().filter(|record| record.gone_at().is_none()) {
            match decide::due(record) {
                Some(due) if due <= now && ids.len() < limit => ids.push(record.id),
                Some(due) => next = next.min(due),
                None => {}
            }
        }
        shard.next_look = next;
        for id in ids {
            self.sweep_one(shard, id, now, &mut swept);
        }
        swept
    }

    /// Does to a record what time wants.
    fn sweep_one(&self, shard: &mut Shard, id: RecordId, now: Stamp, swept: &mut Swept) {
        let Some(record) = shard.records.get(&id) else { return };
        match decide::sweep(record, now) {
            Sweep::Keep => {}
            Sweep::Shrink(smaller) => {
                let left = size(&smaller);
                if let Some(old) = shard.put(id, smaller) {
                    self.bytes.fetch_sub(size(&old) - left, Ordering::Relaxed);
                    swept.shrunk.push(*old);
                }
            }
            Sweep::End => {
                if let Some(old) = shard.take(&id) {
                    self.forget(&old);
                    swept.ended.push(*old);
                }
            }
        }
    }
}

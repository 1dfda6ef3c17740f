//! Everything in one process, for tests and single-process services.
//!
//! 1. Every call decides and writes under one lock of the record's shard: atomic, never blocked by
//!    I/O, and no key slows more than its shard, for as long as a map takes to look.
//! 2. The store is bounded in records and bytes. At the bound what is over is deleted first, then
//!    new claims get [`StoreErrorKind::Full`]; running work still completes (X5). What is alive or
//!    still kept is never evicted.
//! 3. Whatever is over goes a little at a time with every claim, so that a store that nobody
//!    purges does not grow (T3).
//! 4. Nothing outlives the process, so this is no [`Recover`](super::Recover): a lost record would
//!    let an effect happen twice.
//!
//! ```
//! use oncekey::clock::Clock;
//! use oncekey::store::MemoryStore;
//!
//! let clock = Clock::manual();
//! let store = MemoryStore::new().with_clock(clock.clone()).with_limits(10_000, 64 << 20);
//! assert!(store.is_empty());
//! ```

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::{Clock, Stamp};
use crate::decide::{self, Decision, Moment, Token, Write};
use crate::key::RecordId;
use crate::record::{Lease, LeaseToken, Outcome, Record, Retention, Standing, State, Version};
use crate::store::{
    By, Change, Changed, Claim, Claimed, Counts, Cursor, DeadTokens, Ending, Filter, Held, Inspect,
    Look, Note, Page, Store, StoreError, StoreErrorKind, Waiters, bounds, recipe,
};

/// Shards, each a quarter of a first byte wide: their order is the order of ids.
const SHARDS: usize = 64;

/// Expired records that a claim takes out of its shard: more than it puts in, so that what is over
/// never piles up.
const SWEPT_BY_A_CLAIM: usize = 2;

/// Expired records that are deleted at most before a claim is refused for lack of room.
const SWEPT_WHEN_FULL: usize = 1_000;

/// The most records that one page lists.
const MAX_PAGE: usize = 10_000;

/// Keeps records in the memory of this process.
///
/// By default it takes a million records and 1 GiB; see [`with_limits`](Self::with_limits).
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    waiters: Waiters,
    clock: Clock,
    /// The last version that was given out. Shared by all records, so that a key that was released
    /// and claimed again is never at a version it had before.
    version: AtomicU64,
    records: AtomicUsize,
    bytes: AtomicUsize,
    max_records: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct Shard {
    records: HashMap<RecordId, Box<Record>>,
    /// When each record that ended is next to be swept.
    ends: BTreeSet<(Stamp, RecordId)>,
    dead: DeadTokens,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            waiters: Waiters::new(),
            clock: Clock::real(),
            version: AtomicU64::new(0),
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            max_records: 1_000_000,
            max_bytes: 1 << 30,
        }
    }

    /// Judges leases and retentions by `clock`.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Takes new claims up to `max_records` records and about `max_bytes` bytes.
    ///
    /// Outcomes of running work are taken beyond that too: they come once.
    #[must_use]
    pub fn with_limits(self, max_records: usize, max_bytes: usize) -> Self {
        Self { max_records, max_bytes, ..self }
    }

    /// How many records it holds, those included that are over and not yet swept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    /// Whether it holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes the records take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn index(id: &RecordId) -> usize {
        usize::from(id.as_bytes()[0]) * SHARDS / 256
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // A decision that panicked wrote nothing: it is complete before the map is touched.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called under a shard's lock, so that a record's stamps and versions grow together.
    fn moment(&self) -> Moment {
        let next = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        Moment { now: self.clock.now(), next: Version::from_number(next) }
    }

    /// Writes what was decided, lets go of the lock, and wakes whoever waits.
    fn apply<T>(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        id: &RecordId,
        decision: Decision<T>,
        now: Stamp,
    ) -> T {
        let old = match decision.write {
            Write::Keep => return decision.answer,
            Write::Put(record) => {
                let (version, size) = (record.version, size_of(&record));
                if let Some(end) = record.gone_at() {
                    shard.ends.insert((end, *id));
                }
                let old = shard.records.insert(*id, record);
                if old.is_none() {
                    self.records.fetch_add(1, Ordering::Relaxed);
                }
                self.bytes.fetch_add(size, Ordering::Relaxed);
                // A renewal is no news.
                let moved = old.as_ref().is_none_or(|old| old.version != version);
                self.forget(&mut shard, id, old.as_deref());
                drop(shard);
                if moved {
                    self.waiters.wake(id);
                }
                return decision.answer;
            }
            Write::Release(token) => {
                shard.dead.insert(token, now);
                shard.records.remove(id)
            }
        };
        if old.is_some() {
            self.records.fetch_sub(1, Ordering::Relaxed);
            self.forget(&mut shard, id, old.as_deref());
        }
        drop(shard);
        self.waiters.wake(id);
        decision.answer
    }

    /// Takes a record that was replaced or removed out of the counts.
    fn forget(&self, shard: &mut Shard, id: &RecordId, old: Option<&Record>) {
        let Some(old) = old else { return };
        self.bytes.fetch_sub(size_of(old), Ordering::Relaxed);
        if let Some(end) = old.gone_at() {
            // The record in place of it may end at the same moment, and has its own entry then.
            let stands = shard.records.get(id).and_then(|record| record.gone_at()) == Some(end);
            if !stands {
                shard.ends.remove(&(end, *id));
            }
        }
    }

    /// Deletes up to `limit` records of a shard whose time is over.
    fn sweep(&self, shard: &mut Shard, now: Stamp, limit: usize) -> usize {
        let mut swept = 0;
        while swept < limit
            && let Some(&(end, id)) = shard.ends.first()
            && end <= now
        {
            shard.ends.remove(&(end, id));
            let Some(old) = shard.records.remove(&id) else { continue };
            self.records.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(size_of(&old), Ordering::Relaxed);
            swept += 1;
        }
        swept
    }

    /// Whether another record fits (X5).
    fn has_room(&self) -> bool {
        self.records.load(Ordering::Relaxed) < self.max_records
            && self.bytes.load(Ordering::Relaxed) < self.max_bytes
    }

    fn purge(&self, limit: usize) -> usize {
        let mut purged = 0;
        for index in 0..SHARDS {
            // One shard at a time, so that no claim waits for the whole.
            let mut shard = self.lock(index);
            let now = self.clock.now();
            purged += self.sweep(&mut shard, now, limit - purged);
            if purged == limit {
                break;
            }
        }
        purged
    }

    /// One claim under the lock; `None` where there is no room for a new record.
    fn try_claim(&self, claim: &Claim, arrived: Stamp) -> Option<Claimed> {
        let mut shard = self.lock(Self::index(&claim.id));
        let at = self.moment();
        self.sweep(&mut shard, at.now, SWEPT_BY_A_CLAIM);
        let found = shard.records.get(&claim.id).map(AsRef::as_ref);
        let token = liveness(&shard, &claim.token);
        let decision = decide::claim(found, claim, token, arrived, at);
        let other_recipe = recipe::is_other(found, claim, at.now);
        if found.is_none() && decision.write != Write::Keep && !self.has_room() {
            return None;
        }
        let claimed = self.apply(shard, &claim.id, decision, at.now);
        if other_recipe {
            recipe::log(claim);
        }
        Some(claimed)
    }

    /// Any other decision about one record.
    fn decide<T>(
        &self,
        id: &RecordId,
        decide: impl FnOnce(Option<&Record>, &Shard, Moment) -> Decision<T>,
    ) -> T {
        let shard = self.lock(Self::index(id));
        let at = self.moment();
        let found = shard.records.get(id).map(AsRef::as_ref);
        let decision = decide(found, &shard, at);
        self.apply(shard, id, decision, at.now)
    }

    fn read(&self, id: &RecordId) -> (Option<Record>, Stamp) {
        let shard = self.lock(Self::index(id));
        (shard.records.get(id).map(|record| (**record).clone()), self.clock.now())
    }
}

fn liveness(shard: &Shard, token: &LeaseToken) -> Token {
    if shard.dead.contains(token) { Token::Dead } else { Token::Alive }
}

/// About how many bytes a record takes, the map's own included.
fn size_of(record: &Record) -> usize {
    let body = match &record.state {
        State::Completed { outcome, .. } => outcome.bytes().len(),
        State::InProgress { .. } | State::Retry { .. } | State::Unknown { .. } => 0,
    };
    512 + record.key.as_str().len() + record.scope.operation.len() + record.memo.len() + body
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("records", &self.len()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        bounds::claim(claim)?;
        let arrived = self.clock.now().before(claim.age);
        if let Some(claimed) = self.try_claim(claim, arrived) {
            return Ok(claimed);
        }
        // What is over makes room before anybody is refused.
        if self.purge(SWEPT_WHEN_FULL) == 0 {
            return Err(StoreError::new(StoreErrorKind::Full));
        }
        self.try_claim(claim, arrived).ok_or_else(|| StoreError::new(StoreErrorKind::Full))
    }

    async fn renew(
        &self,
        lease: &Lease,
        ttl: Duration,
        note: Option<&Note>,
    ) -> Result<Held, StoreError> {
        bounds::note(note)?;
        Ok(self.decide(&lease.id, |found, _, at| decide::renew(found, lease, ttl, note, at)))
    }

    async fn complete(
        &self,
        lease: &Lease,
        outcome: &Outcome,
        keep: Retention,
    ) -> Result<Held, StoreError> {
        bounds::outcome(outcome)?;
        Ok(self.decide(&lease.id, |found, _, at| decide::complete(found, lease, outcome, keep, at)))
    }

    async fn end(&self, lease: &Lease, how: Ending) -> Result<Held, StoreError> {
        Ok(self.decide(&lease.id, |found, shard, at| {
            decide::end(found, lease, liveness(shard, &lease.token), how, at)
        }))
    }

    async fn changed(
        &self,
        id: &RecordId,
        seen: Version,
        bound: Duration,
    ) -> Result<(), StoreError> {
        let look = async {
            let (found, now) = self.read(id);
            Ok(Look::at(found.as_ref(), seen, now))
        };
        self.waiters.changed(&self.clock, id, bound, look).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let (found, now) = self.read(id);
        Ok(found.filter(|record| record.standing(now) != Standing::Gone))
    }

    async fn purge_expired(&self, limit: usize) -> Result<usize, StoreError> {
        Ok(self.purge(limit))
    }
}

#[async_trait]
impl Inspect for MemoryStore {
    async fn list(
        &self,
        filter: &Filter,
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let limit = limit.clamp(1, MAX_PAGE);
        let mut page = Page::default();
        let first = cursor.map_or(0, |Cursor(id)| Self::index(&id));
        for index in first..SHARDS {
            let shard = self.lock(index);
            let now = self.clock.now();
            let mut here: Vec<_> = shard
                .records
                .values()
                .filter(|record| cursor.is_none_or(|Cursor(after)| record.id > after))
                .filter(|record| filter.matches(record, now))
                .collect();
            here.sort_unstable_by_key(|record| record.id);
            let room = limit - page.records.len();
            let more = here.len() > room;
            page.records.extend(here.into_iter().take(room).map(|record| (**record).clone()));
            if more || (page.records.len() == limit && index + 1 < SHARDS) {
                page.next = page.records.last().map(|record| Cursor(record.id));
                break;
            }
        }
        Ok(page)
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        let mut counts = Counts::default();
        for index in 0..SHARDS {
            let shard = self.lock(index);
            let now = self.clock.now();
            for record in shard.records.values() {
                match record.standing(now) {
                    Standing::InProgress => counts.in_progress += 1,
                    Standing::Unknown => counts.unknown += 1,
                    _ => {}
                }
            }
        }
        Ok(counts)
    }

    async fn change(
        &self,
        id: &RecordId,
        seen: Version,
        change: Change,
        by: &By,
    ) -> Result<Changed, StoreError> {
        bounds::change(&change, by)?;
        Ok(self.decide(id, |found, _, at| decide::change(found, seen, &change, by, at)))
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;

//! Everything in one process, for tests and single-process services.
//!
//! 1. Every call decides and writes under one lock of the record's shard: atomic, never blocked by
//!    I/O, and no key slows more than its shard, for as long as a map takes to look.
//! 2. The store is bounded in records and bytes. At the bound what is over is deleted first, then
//!    new claims get [`StoreErrorKind::Full`]; running work still completes, above a quarter more
//!    bytes only with small outcomes (X5). What is alive or still kept is never evicted.
//! 3. Whatever is over goes a little at a time with every claim, so that a store that nobody
//!    purges does not grow (T3). Unknown requests shrink and end with a purge alone (U3), which a
//!    store at its bound makes by itself, and not while the wall clock has stepped away from the
//!    store's (L4).
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::{Clock, Stamp};
use crate::decide::{self, Decision, Moment, Token, Write};
use crate::events::{self, Event, Observer};
use crate::key::RecordId;
use crate::record::{Lease, LeaseToken, Outcome, Record, Retention, Standing, State, Version};
use crate::store::{
    By, Change, Changed, Claim, Claimed, Counts, Cursor, DeadTokens, Ending, Filter, Held, Inspect,
    Look, Note, Page, Store, StoreError, StoreErrorKind, Waiters, WallWatch, bounds, recipe,
};

mod sweep;

/// Shards, each a quarter of a first byte wide: their order is the order of ids.
const SHARDS: usize = 64;

/// Expired records that a claim takes out of its shard: more than it puts in, so that what is over
/// never piles up.
const SWEPT_BY_A_CLAIM: usize = 2;

/// A moment that does not come.
const NEVER: Stamp = Stamp::from_micros(u64::MAX);

/// The most records that one page lists.
const MAX_PAGE: usize = 10_000;

/// Keeps records in the memory of this process.
///
/// By default it takes a million records and 1 GiB; see [`with_limits`](Self::with_limits).
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    waiters: Waiters,
    clock: Clock,
    wall: WallWatch,
    observer: Arc<dyn Observer>,
    /// The last version that was given out. Shared by all records, so that a key that was released
    /// and claimed again is never at a version it had before.
    version: AtomicU64,
    records: AtomicUsize,
    bytes: AtomicUsize,
    max_records: usize,
    max_bytes: usize,
}

struct Shard {
    records: HashMap<RecordId, Box<Record>>,
    /// When each record that ended is next to be swept.
    ends: BTreeSet<(Stamp, RecordId)>,
    /// No record that is alive is to be swept before.
    next_look: Stamp,
    dead: DeadTokens,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect(),
            waiters: Waiters::new(),
            clock: Clock::real(),
            wall: WallWatch::default(),
            observer: events::nobody(),
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

    /// Tells `observer` of every write.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// Takes new claims up to `max_records` records and about `max_bytes` bytes.
    ///
    /// Outcomes of running work are taken beyond that too: they come once. Large ones are refused
    /// as full above a quarter more bytes, for their callers to store less of them.
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

    /// One claim under the lock; `None` where the store has no room for a new record.
    fn try_claim(&self, claim: &Claim, arrived: Stamp) -> Option<Claimed> {
        let mut shard = self.lock(Self::index(&claim.id));
        let at = self.moment();
        // Bound to a name, so that it is freed at the end, when the lock is gone.
        let _swept = self.sweep(&mut shard, at.now, SWEPT_BY_A_CLAIM);
        let found = shard.records.get(&claim.id).map(AsRef::as_ref);
        let decision = decide::claim(found, claim, liveness(&shard.dead, claim.token), arrived, at);
        let other_recipe = recipe::is_other(found, claim, at.now);
        if let (None, Write::Put(record)) = (found, &decision.write)
            && !self.reserve(record)
        {
            return None;
        }
        let claimed = self.apply(shard, &claim.id, decision, at.now);
        if other_recipe {
            events::other_recipe(claim);
        }
        Some(claimed)
    }

    /// Makes room for a new record, if there is any.
    fn reserve(&self, record: &Record) -> bool {
        let records = self.records.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.fetch_add(size(record), Ordering::Relaxed);
        let fits =
            records < self.max_records && bytes.saturating_add(size(record)) <= self.max_bytes;
        if !fits {
            self.forget(record);
        }
        fits
    }

    /// Whether even running work has taken what it may beyond the bound.
    fn is_crowded(&self) -> bool {
        self.bytes() > self.max_bytes.saturating_add(self.max_bytes / 4)
    }

    /// Gives a record's room back.
    fn forget(&self, record: &Record) {
        self.records.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(size(record), Ordering::Relaxed);
    }

    /// Decides about the record of `id` and writes what was decided.
    fn decide<T>(
        &self,
        id: &RecordId,
        decide: impl FnOnce(Option<&Record>, &DeadTokens, Moment) -> Decision<T>,
    ) -> T {
        let shard = self.lock(Self::index(id));
        let at = self.moment();
        let found = shard.records.get(id).map(AsRef::as_ref);
        let decision = decide(found, &shard.dead, at);
        self.apply(shard, id, decision, at.now)
    }

    /// Writes what was decided, lets go of the lock, and wakes whoever waits.
    ///
    /// A record that was not there before has its room already.
    fn apply<T>(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        id: &RecordId,
        decision: Decision<T>,
        now: Stamp,
    ) -> T {
        let write = match decision.write {
            Write::Bury(token, record) => {
                shard.dead.insert(token, now);
                record.map_or(Write::Keep, Write::Put)
            }
            other => other,
        };
        let old = match write {
            Write::Keep | Write::Bury(..) => return decision.answer,
            Write::Put(record) => {
                let grown = size(&record);
                let old = shard.put(*id, record);
                if let Some(old) = &old {
                    self.bytes.fetch_add(grown, Ordering::Relaxed);
                    self.bytes.fetch_sub(size(old), Ordering::Relaxed);
                }
                old
            }
            Write::Release(token) => {
                shard.dead.insert(token, now);
                let old = shard.take(id);
                if let Some(old) = &old {
                    self.forget(old);
                }
                old
            }
        };
        // Let go first: whoever is woken wants the lock.
        drop(shard);
        drop(old);
        self.waiters.wake(id);
        self.observer.note(Event::StoreBatch(1));
        decision.answer
    }
}

impl Shard {
    fn new() -> Self {
        Self {
            records: HashMap::new(),
            ends: BTreeSet::new(),
            next_look: NEVER,
            dead: DeadTokens::one_of(SHARDS),
        }
    }

    /// Stores `record` and returns what was there.
    fn put(&mut self, id: RecordId, record: Box<Record>) -> Option<Box<Record>> {
        let end = ends_at(&record);
        if end.is_none() {
            self.next_look = self.next_look.min(decide::due(&record).unwrap_or(NEVER));
        }
        let old = self.records.insert(id, record);
        if let Some(old_end) = old.as_deref().and_then(ends_at) {
            self.ends.remove(&(old_end, id));
        }
        if let Some(end) = end {
            self.ends.insert((end, id));
        }
        old
    }

    /// Removes the record of `id`.
    fn take(&mut self, id: &RecordId) -> Option<Box<Record>> {
        let old = self.records.remove(id)?;
        if let Some(end) = ends_at(&old) {
            self.ends.remove(&(end, *id));
        }
        Some(old)
    }
}

/// When a record that ended is next to be swept; `None` while it is alive.
fn ends_at(record: &Record) -> Option<Stamp> {
    record.gone_at().and_then(|_| decide::due(record))
}

/// About how many bytes a record takes in the store.
fn size(record: &Record) -> usize {
    /// The tables' share and the allocations' edges.
    const OVERHEAD: usize = 160;
    let scope = &record.scope;
    let texts = [&*scope.namespace, &*scope.tenant, &*scope.operation, record.key.as_str()];
    let audits = record.audit.iter().map(|audit| audit.who.len() + audit.reason.len() + 64);
    let outcome = match &record.state {
        State::Completed { outcome, .. } => outcome.bytes().len(),
        _ => 0,
    };
    OVERHEAD
        + size_of::<Record>()
        + texts.iter().map(|text| text.len()).sum::<usize>()
        + record.principal.as_str().len()
        + record.memo.len()
        + record.reference.as_deref().map_or(0, str::len)
        + audits.sum::<usize>()
        + outcome
}

fn liveness(dead: &DeadTokens, token: LeaseToken) -> Token {
    if dead.contains(&token) { Token::Dead } else { Token::Alive }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("records", &self.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
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
        // What is over lies in other shards too; nothing else ever gives way.
        self.make_room();
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
        self.decide(&lease.id, |found, _, at| {
            let Decision { answer, write } = decide::complete(found, lease, outcome, keep, at);
            // What was written before has its room.
            if matches!(write, Write::Put(_)) && bounds::is_large(outcome) && self.is_crowded() {
                let full = StoreError::new(StoreErrorKind::Full);
                return Decision { answer: Err(full), write: Write::Keep };
            }
            Decision { answer: Ok(answer), write }
        })
    }

    async fn end(&self, lease: &Lease, how: Ending) -> Result<Held, StoreError> {
        Ok(self.decide(&lease.id, |found, dead, at| {
            decide::end(found, lease, liveness(dead, lease.token), how, at)
        }))
    }

    async fn changed(
        &self,
        id: &RecordId,
        seen: Version,
        bound: Duration,
    ) -> Result<(), StoreError> {
        let look = async {
            let shard = self.lock(Self::index(id));
            Ok(Look::at(shard.records.get(id).map(AsRef::as_ref), seen, self.clock.now()))
        };
        self.waiters.changed(&self.clock, id, bound, look).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let shard = self.lock(Self::index(id));
        let now = self.clock.now();
        let found = shard.records.get(id).filter(|record| record.standing(now) != Standing::Gone);
        Ok(found.map(|record| Record::clone(record)))
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
        let now = self.clock.now();
        let mut page = Page::default();
        let first = cursor.map_or(0, |Cursor(id)| Self::index(&id));
        for index in first..SHARDS {
            let shard = self.lock(index);
            let after = |id: &RecordId| cursor.is_none_or(|Cursor(last)| *id > last);
            let mut matching: Vec<&Record> = shard
                .records
                .values()
                .map(AsRef::as_ref)
                .filter(|record| after(&record.id) && filter.matches(record, now))
                .collect();
            matching.sort_unstable_by_key(|record| record.id);
            let room = limit - page.records.len();
            page.records.extend(matching.iter().take(room).copied().cloned());
            if matching.len() > room {
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

//! What callers see without asking the writer: committed state alone.
//!
//! 1. What was acknowledged alone is seen, so nothing that a crash could undo.
//! 2. A claim is answered from here only by a completed record that is still kept: replay,
//!    mismatch, other principal. Such a record never changes, so however old the copy is, it is
//!    true. Everything else, "not there" included, is the writer's to say: a record that moves
//!    between keyspaces can be seen in neither.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fjall::{Database, Keyspace};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio_util::sync::CancellationToken;

use super::error::Failure;
use super::filter::Filter;
use super::guard::Pulse;
use super::layout::Bucket;
use super::space::Seen;
use crate::clock::{Clock, Stamp};
use crate::decide::{self, Moment, Token};
use crate::events;
use crate::key::RecordId;
use crate::record::codec::{self, DecodeError};
use crate::record::{Record, Standing, State, Version};
use crate::store::{Claim, Claimed, Counts, Waiters, recipe};

/// Shards of the live map: enough that readers seldom meet the writer.
const SHARDS: usize = 16;

/// What an entry of the cache takes beside its outcome and texts.
const ENTRY: usize = 384;

/// Committed state, shared by callers and writer.
pub(super) struct View {
    pub(super) clock: Clock,
    pub(super) waiters: Waiters,
    /// Cancelled once the store has failed, which is after [`failure`](Self::failure) says why.
    failed: CancellationToken,
    failure: OnceLock<Failure>,
    /// The writer's.
    pub(super) pulse: Pulse,
    /// The applier's.
    pub(super) applying: Pulse,
    pub(super) space: Seen,
    live: Box<[Mutex<Live>]>,
    /// Live records that cannot be read (X3).
    unreadable: Mutex<HashSet<RecordId>>,
    completed: Cache<RecordId, Arc<Record>, ByBytes>,
    database: Database,
    keyspaces: Mutex<Arc<Keyspaces>>,
}

/// The live records of one shard.
type Live = HashMap<RecordId, Arc<Record>>;

/// The keyspaces that hold records.
pub(super) struct Keyspaces {
    pub(super) live: Keyspace,
    /// Newest first: that is where most look-ups that hit end.
    pub(super) ended: Vec<Part>,
}

/// A bucket, for readers.
pub(super) struct Part {
    pub(super) bucket: Bucket,
    pub(super) keyspace: Keyspace,
    pub(super) filter: Arc<Filter>,
}

impl Keyspaces {
    /// The record that ended and is not over yet.
    ///
    /// There is one at most: whoever takes a record out of a bucket deletes it there, unless it is
    /// over, and then it stays over.
    pub(super) fn find(&self, id: &RecordId, now: Stamp) -> Result<Option<Ended>, LookError> {
        for Part { bucket, keyspace, filter } in &self.ended {
            // Saves the probe; its bucket only waits for the sweeper.
            if bucket.over() <= now || filter.says_absent(id) {
                continue;
            }
            let Some(bytes) = keyspace.get(id.as_bytes())? else { continue };
            let bucket = *bucket;
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

/// Tells that the store has failed when its thread ends by a panic.
pub(super) struct Alarm(pub(super) Arc<View>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(Failure::Panicked);
        }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<RecordId, Arc<Record>> for ByBytes {
    fn weight(&self, _id: &RecordId, record: &Arc<Record>) -> u64 {
        weight(record)
    }
}

/// About how many bytes a record takes.
pub(super) fn weight(record: &Record) -> u64 {
    let outcome = match &record.state {
        State::Completed { outcome, .. } => outcome.bytes().len(),
        _ => 0,
    };
    (ENTRY + record.memo.len() + outcome) as u64
}

impl View {
    pub(super) fn new(
        clock: Clock,
        database: Database,
        keyspaces: Keyspaces,
        cache_bytes: u64,
    ) -> Self {
        // A guess at how many entries fit; it only sizes the table.
        let entries = usize::try_from(cache_bytes / 1024).unwrap_or(usize::MAX).max(64);
        Self {
            clock,
            waiters: Waiters::new(),
            failed: CancellationToken::new(),
            failure: OnceLock::new(),
            pulse: Pulse::default(),
            applying: Pulse::default(),
            space: Seen::default(),
            live: (0..SHARDS).map(|_| Mutex::default()).collect(),
            unreadable: Mutex::default(),
            completed: Cache::with_weighter(entries, cache_bytes, ByBytes),
            database,
            keyspaces: Mutex::new(Arc::new(keyspaces)),
        }
    }

    /// The record, if it is in progress or unknown.
    pub(super) fn live(&self, id: &RecordId) -> Option<Arc<Record>> {
        self.shard(id).get(id).cloned()
    }

    /// The record, if it is completed, still kept, and at hand.
    pub(super) fn completed(&self, id: &RecordId, now: Stamp) -> Option<Arc<Record>> {
        let record = self.completed.get(id)?;
        if record.standing(now) == Standing::Completed {
            return Some(record);
        }
        // It is over for good: the room is better used.
        self.completed.remove(id);
        None
    }

    /// The answer to a claim, where a completed record gives it.
    pub(super) fn replay(&self, claim: &Claim, arrived: Stamp) -> Option<Claimed> {
        let now = self.clock.now();
        let record = self.completed(&claim.id, now)?;
        // Nothing is written, so no version is given out.
        let at = Moment { now, next: Version::ABSENT };
        let decision = decide::claim(Some(&record), claim, Token::Alive, arrived, at);
        match decision.answer {
            Claimed::Completed { .. } | Claimed::Mismatch { .. } | Claimed::OtherPrincipal => {
                if recipe::is_other(Some(&record), claim, now) {
                    events::other_recipe(claim);
                }
                Some(decision.answer)
            }
            _ => None,
        }
    }

    pub(super) fn is_unreadable(&self, id: &RecordId) -> bool {
        let unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        !unreadable.is_empty() && unreadable.contains(id)
    }

    pub(super) fn set_unreadable(&self, id: RecordId) {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// Takes note of a live record.
    pub(super) fn put_live(&self, record: Arc<Record>) {
        self.shard(&record.id).insert(record.id, record);
    }

    /// Forgets a live record.
    pub(super) fn remove_live(&self, id: &RecordId) {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.shard(id).remove(id);
    }

    /// Keeps a completed record at hand.
    pub(super) fn put_completed(&self, record: Arc<Record>) {
        self.completed.insert(record.id, record);
    }

    /// How many live records stand where, at `now`.
    pub(super) fn counts(&self, now: Stamp) -> Counts {
        let mut counts = Counts::default();
        self.each_live(|record| match record.standing(now) {
            Standing::InProgress => counts.in_progress += 1,
            _ => counts.unknown += 1,
        });
        counts
    }

    /// Up to `limit` live records that `wanted` picks.
    pub(super) fn find_live(
        &self,
        limit: usize,
        wanted: impl Fn(&Record) -> bool,
    ) -> Vec<RecordId> {
        let mut ids = Vec::new();
        self.each_live(|record| {
            if ids.len() < limit && wanted(record) {
                ids.push(record.id);
            }
        });
        ids
    }

    fn each_live(&self, mut look: impl FnMut(&Record)) {
        for shard in &self.live {
            for record in lock(shard).values() {
                look(record);
            }
        }
    }

    /// A consistent view of what is on disk, and all keyspaces that it can see.
    pub(super) fn snapshot(&self) -> (fjall::Snapshot, Arc<Keyspaces>) {
        // In this order: a bucket that is new to the list is merely seen empty, and one that the
        // snapshot sees was on the list before.
        let snapshot = self.database.snapshot();
        (snapshot, self.keyspaces())
    }

    /// The keyspaces as they are.
    pub(super) fn keyspaces(&self) -> Arc<Keyspaces> {
        Arc::clone(&self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the list of keyspaces.
    pub(super) fn set_keyspaces(&self, keyspaces: Keyspaces) {
        let mut held = self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(keyspaces);
    }

    /// The store has failed, for as long as it is open (X7). The first failure is the cause.
    pub(super) fn fail(&self, failure: Failure) {
        tracing::error!("the store failed and serves nothing any more: {failure}");
        let _ = self.failure.set(failure);
        // After the cause: whoever is woken finds it.
        self.failed.cancel();
    }

    /// Cancelled once the store has failed.
    pub(super) fn failed(&self) -> CancellationToken {
        self.failed.clone()
    }

    /// Why the store failed. Asks no lock: every call of a caller looks here.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Whether the store still writes.
    pub(super) fn is_healthy(&self) -> bool {
        self.failure.get().is_none()
    }

    fn shard(&self, id: &RecordId) -> MutexGuard<'_, Live> {
        lock(&self.live[usize::from(id.as_bytes()[0]) % SHARDS])
    }
}

fn lock(shard: &Mutex<Live>) -> MutexGuard<'_, Live> {
    // Every change under this lock is one call of the map: none is left half made.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

//! What lies between writer and applier: batches that are in the log and not yet in the tables.
//!
//! 1. The writer puts them here after each sync, and finds them here before it asks the tables.
//!    Nothing leaves before it can be seen in the tables.
//! 2. The applier takes all that has gathered at a time. A request that is claimed and completed
//!    meanwhile reaches the tables once, completed.
//! 3. It is bounded: a writer that is too far ahead waits, and its callers with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::changes::{Changes, Found, Place, Reach};
use super::layout::Mark;
use super::log::{Appended, Slot};
use super::request::{Purged, Reply};
use crate::key::RecordId;

/// How long changes gather: most requests are done sooner.
const GATHER: Duration = Duration::from_millis(50);

/// So many bytes are taken without waiting for more.
const ENOUGH: usize = 2 << 20;

/// The most bytes that may lie here.
const MOST: usize = 64 << 20;

/// How often a writer that waits looks whether the store has failed.
const LOOK: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    /// For the applier: there is something to do.
    work: Condvar,
    /// For the writer: there is room again.
    room: Condvar,
    over: AtomicBool,
}

#[derive(Default)]
struct State {
    gathering: Changes,
    bytes: usize,
    /// What the applier has taken and the tables may lack.
    applying: Arc<Changes>,
    /// Of the last batch that gathered.
    mark: Mark,
    free: Vec<Slot>,
    full: Vec<Slot>,
    errands: Errands,
}

/// What the applier is asked beside applying.
#[derive(Default)]
pub(super) struct Errands {
    /// The log has no free slot.
    pub(super) grow: bool,
    /// To look at the disk.
    pub(super) look: bool,
    /// To delete a bucket, each.
    pub(super) purges: Vec<Reply<Purged>>,
    /// Told once all that was gathered before is in the tables.
    pub(super) settles: Vec<oneshot::Sender<()>>,
    /// The writer is gone: nothing more comes.
    pub(super) ended: bool,
}

impl Errands {
    fn are_none(&self) -> bool {
        let Self { grow, look, purges, settles, ended } = self;
        !grow && !look && purges.is_empty() && settles.is_empty() && !ended
    }
}

/// What the applier takes at a time.
pub(super) struct Lot {
    pub(super) changes: Arc<Changes>,
    /// Of the last batch in it, or of an earlier one.
    pub(super) mark: Mark,
    /// Slots that hold nothing beyond it.
    pub(super) full: Vec<Slot>,
    pub(super) errands: Errands,
}

impl Desk {
    /// A desk for a log with these slots free, that ends with the batch of `mark`.
    pub(super) fn new(free: Vec<Slot>, mark: Mark) -> Self {
        let state = State { free, mark, ..State::default() };
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// The record, if the tables may lack what became of it.
    pub(super) fn find(&self, id: &RecordId) -> Option<Found> {
        let state = self.lock();
        let found = state.gathering.get(id).or_else(|| state.applying.get(id))?;
        let record = found.record.clone();
        Some(Found { place: Place::of(record.as_deref()), record })
    }

    /// Takes in a batch that is in the log; waits while too much lies here and `may_wait` says so.
    pub(super) fn put(
        &self,
        batch: &Changes,
        mark: Mark,
        size: Appended,
        may_wait: impl Fn() -> bool,
    ) {
        let mut state = self.lock();
        while state.bytes >= MOST && may_wait() {
            let waited = self.room.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let was_empty = state.gathering.is_empty();
        for pending in batch.written() {
            state.gathering.put(pending.id, pending.found.clone(), Reach::Disk);
        }
        let before = state.bytes;
        state.bytes += size.bytes;
        state.mark = mark;
        let is_enough = before < ENOUGH && state.bytes >= ENOUGH;
        drop(state);
        if was_empty || is_enough {
            self.work.notify_one();
        }
    }

    /// Gives a free slot for a full one; the same back, if none is free.
    pub(super) fn exchange(&self, slot: &mut Slot) {
        let mut state = self.lock();
        if let Some(free) = state.free.pop() {
            let full = std::mem::replace(slot, free);
            state.full.push(full);
        }
        state.errands.grow |= state.free.is_empty();
        drop(state);
        self.work.notify_one();
    }

    /// Gives a slot that may be written from its start.
    pub(super) fn release(&self, slot: Slot) {
        self.lock().free.push(slot);
    }

    /// Asks the applier for something.
    pub(super) fn ask(&self, errand: impl FnOnce(&mut Errands)) {
        errand(&mut self.lock().errands);
        self.work.notify_one();
    }

    /// The writer is gone: nothing more comes.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.ask(|errands| errands.ended = true);
    }

    /// Whether the writer is gone.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// For the applier: waits until there is something to do, and takes it.
    pub(super) fn take(&self) -> Lot {
        let idle = |state: &mut State| {
            state.gathering.is_empty() && state.full.is_empty() && state.errands.are_none()
        };
        let gathers = |state: &mut State| {
            state.bytes < ENOUGH && state.full.is_empty() && state.errands.are_none()
        };
        let state = self.work.wait_while(self.lock(), idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let waited = self.work.wait_timeout_while(state, GATHER, gathers);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.applying = Arc::new(std::mem::take(&mut state.gathering));
        state.bytes = 0;
        self.room.notify_one();
        Lot {
            changes: Arc::clone(&state.applying),
            mark: state.mark,
            full: std::mem::take(&mut state.full),
            errands: std::mem::take(&mut state.errands),
        }
    }

    /// What was taken last is in the tables, for everybody to see.
    pub(super) fn applied(&self) {
        let applied = std::mem::take(&mut self.lock().applying);
        // Freed here, where nobody waits for it.
        drop(applied);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked here left the store failed; see `Alarm`.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

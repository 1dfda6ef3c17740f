//! The one task that renews every lease of an engine (L1, L5).
//!
//! A lease is due at a third of its length. Runs that end sooner are entered and taken out again
//! without ever being touched. The keeper is a task of its own, so that work that blocks its
//! thread does not starve its own renewal.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Stamp};
use crate::record::Lease;
use crate::store::{Held, Store, StoreError};

/// Renewals sent at a time.
const BATCH: usize = 256;
/// How long a batch of renewals is waited for; a store that hangs must not stop the others' turn.
const PATIENCE: Duration = Duration::from_secs(5);
/// The shortest pause between two renewals of a lease. One that is shorter ends, and is unknown;
/// it must not keep the keeper from the others.
const SHORTEST: Duration = Duration::from_millis(10);
/// The pause when nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// A lease that is renewed.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) lease: Lease,
    /// The lease's length.
    pub(super) ttl: Duration,
    /// When renewal stops.
    pub(super) until: Stamp,
    /// Cancelled when it stops: the work is told (L1).
    pub(super) told: CancellationToken,
    /// Cancelled when it is found to be somebody else's: the work is told (L5).
    pub(super) lost: CancellationToken,
}

/// The leases of an engine. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Keeper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    book: Mutex<Book>,
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Book {
    /// One slot a lease; free ones are used again.
    slots: Vec<Option<(Stamp, Kept)>>,
    free: Vec<usize>,
    /// The slots by when they are due.
    due: BTreeSet<(Stamp, usize)>,
    /// What the keeper sleeps towards.
    awaited: Option<Stamp>,
}

/// Stands for an entry in the book.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket(usize);

impl Keeper {
    pub(super) fn new(clock: Clock) -> Self {
        let book = Mutex::new(Book::default());
        Self(Arc::new(Shared { clock, book, sooner: Notify::new() }))
    }

    /// Enters a lease; the first renewal is due after a third of it.
    pub(super) fn enter(&self, kept: Kept) -> Ticket {
        let due = self.0.clock.now().after((kept.ttl / 3).max(SHORTEST));
        let mut book = self.book();
        let slot = book.enter(due, kept);
        let sooner = book.awaited.is_none_or(|awaited| due < awaited);
        if sooner {
            book.awaited = Some(due);
        }
        drop(book);
        if sooner {
            self.0.sooner.notify_one();
        }
        Ticket(slot)
    }

    /// Takes a lease out; nothing where it is out already.
    pub(super) fn leave(&self, ticket: Ticket, lease: &Lease) {
        let mut book = self.book();
        let Some(slot) = book.slots.get_mut(ticket.0) else { return };
        if let Some((due, _)) = slot.take_if(|(_, kept)| kept.lease == *lease) {
            book.due.remove(&(due, ticket.0));
            book.free.push(ticket.0);
        }
    }

    /// All leases that are held now, and how their work is told.
    pub(super) fn held(&self) -> Vec<(Lease, CancellationToken)> {
        let book = self.book();
        book.slots.iter().flatten().map(|(_, kept)| (kept.lease, kept.told.clone())).collect()
    }

    /// Renews what is due, for ever.
    pub(super) async fn keep(self, store: Arc<dyn Store>) {
        loop {
            let pause = {
                let mut book = self.book();
                let next = book.due.first().map(|(due, _)| *due);
                book.awaited = next;
                next.map_or(IDLE, |due| due.since(self.0.clock.now()))
            };
            if !pause.is_zero() {
                tokio::select! {
                    () = self.0.clock.sleep(pause) => {}
                    () = self.0.sooner.notified() => continue,
                }
            }
            self.renew_due(&*store).await;
        }
    }

    async fn renew_due(&self, store: &dyn Store) {
        let due = self.take_due();
        let renewals = due.into_iter().map(|(slot, kept)| async move {
            let renewal = store.renew(&kept.lease, kept.ttl, None);
            let answer = tokio::time::timeout(PATIENCE, renewal).await;
            self.renewed(slot, kept, answer.ok());
        });
        join_all(renewals).await;
    }

    /// The leases to renew now; those past their `max_run` are told and not renewed.
    fn take_due(&self) -> Vec<(usize, Kept)> {
        let now = self.0.clock.now();
        let mut book = self.book();
        let mut taken = Vec::new();
        while taken.len() < BATCH
            && let Some(&(due, slot)) = book.due.first()
            && due <= now
        {
            book.due.remove(&(due, slot));
            let Some(Some((_, kept))) = book.slots.get(slot) else { continue };
            if kept.until <= now {
                // It stays in the book: it is still held, and a stop must find it.
                kept.told.cancel();
            } else {
                taken.push((slot, kept.clone()));
            }
        }
        taken
    }

    fn renewed(&self, slot: usize, kept: Kept, answer: Option<Result<Held, StoreError>>) {
        let again = match answer {
            Some(Ok(Held::Ours { .. })) => kept.ttl / 3,
            // Only this is loss (L5). The end of the run will find it too, and count it.
            Some(Ok(Held::Lost { .. })) => {
                kept.lost.cancel();
                // Its run may just be ending. If it is not, its end will tell and count the loss.
                tracing::debug!(record = %kept.lease.id, "a lease is no longer this run's");
                return;
            }
            Some(Err(error)) => {
                tracing::warn!(record = %kept.lease.id, %error, "a renewal failed");
                kept.ttl / 12
            }
            None => kept.ttl / 12,
        };
        let due = self.0.clock.now().after(again.max(SHORTEST)).min(kept.until);
        let mut book = self.book();
        let book = &mut *book;
        // It may have ended meanwhile, and another may have its slot.
        if let Some(Some((at, known))) = book.slots.get_mut(slot)
            && known.lease == kept.lease
        {
            *at = due;
            book.due.insert((due, slot));
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing that panics runs under this lock.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn enter(&mut self, due: Stamp, kept: Kept) -> usize {
        let due = due.min(kept.until);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some((due, kept));
        self.due.insert((due, slot));
        slot
    }
}

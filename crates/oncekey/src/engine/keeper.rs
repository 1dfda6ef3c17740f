//! The one task that renews every lease of an engine (L1, L5).
//!
//! A lease is due at a third of its length. Runs that end sooner are entered and taken out again
//! without ever being touched. The keeper is a task of its own, so that work that blocks its
//! thread does not starve its own renewal.

use std::collections::{BTreeSet, HashMap};
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
    next: u64,
    kept: HashMap<u64, (Stamp, Kept)>,
    due: BTreeSet<(Stamp, u64)>,
    /// What the keeper sleeps towards.
    awaited: Option<Stamp>,
}

/// Stands for an entry in the book.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket(u64);

impl Keeper {
    pub(super) fn new(clock: Clock) -> Self {
        let book = Mutex::new(Book::default());
        Self(Arc::new(Shared { clock, book, sooner: Notify::new() }))
    }

    /// Enters a lease; the first renewal is due after a third of it.
    pub(super) fn enter(&self, kept: Kept) -> Ticket {
        let due = self.0.clock.now().after(kept.ttl / 3);
        let mut book = self.book();
        let number = book.next;
        book.next += 1;
        book.enter(number, due, kept);
        let sooner = book.awaited.is_none_or(|awaited| due < awaited);
        if sooner {
            book.awaited = Some(due);
        }
        drop(book);
        if sooner {
            self.0.sooner.notify_one();
        }
        Ticket(number)
    }

    /// Takes a lease out.
    pub(super) fn leave(&self, ticket: Ticket) {
        let mut book = self.book();
        if let Some((due, _)) = book.kept.remove(&ticket.0) {
            book.due.remove(&(due, ticket.0));
        }
    }

    /// All leases that are held now, and how their work is told.
    pub(super) fn held(&self) -> Vec<(Lease, CancellationToken)> {
        self.book().kept.values().map(|(_, kept)| (kept.lease, kept.told.clone())).collect()
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
        let renewals = due.into_iter().map(|(number, kept)| async move {
            let renewal = store.renew(&kept.lease, kept.ttl, None);
            let answer = tokio::time::timeout(PATIENCE, renewal).await;
            self.renewed(number, kept, answer.ok());
        });
        join_all(renewals).await;
    }

    /// The leases to renew now; those past their `max_run` are told and not renewed.
    fn take_due(&self) -> Vec<(u64, Kept)> {
        let now = self.0.clock.now();
        let mut book = self.book();
        let mut taken = Vec::new();
        while taken.len() < BATCH
            && let Some(&(due, number)) = book.due.first()
            && due <= now
        {
            book.due.remove(&(due, number));
            let Some((_, kept)) = book.kept.get(&number) else { continue };
            if kept.until <= now {
                // It stays in the book: it is still held, and a stop must find it.
                kept.told.cancel();
            } else {
                taken.push((number, kept.clone()));
            }
        }
        taken
    }

    fn renewed(&self, number: u64, kept: Kept, answer: Option<Result<Held, StoreError>>) {
        let again = match answer {
            Some(Ok(Held::Ours { .. })) => kept.ttl / 3,
            // Only this is loss (L5). The end of the run will find it too, and count it.
            Some(Ok(Held::Lost { .. })) => {
                tracing::warn!(record = %kept.lease.id, "a lease was lost while its work ran");
                return;
            }
            Some(Err(error)) => {
                tracing::warn!(record = %kept.lease.id, %error, "a renewal failed");
                kept.ttl / 12
            }
            None => kept.ttl / 12,
        };
        let due = self.0.clock.now().after(again).min(kept.until);
        let mut book = self.book();
        // It may have ended meanwhile.
        if let Some(entry) = book.kept.get_mut(&number) {
            entry.0 = due;
            book.due.insert((due, number));
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing that panics runs under this lock.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn enter(&mut self, number: u64, due: Stamp, kept: Kept) {
        let due = due.min(kept.until);
        self.kept.insert(number, (due, kept));
        self.due.insert((due, number));
    }
}

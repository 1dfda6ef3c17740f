//! A run: the right to do the work, and the duty to say how it ended.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::keeper::{Kept, Ticket};
use super::{FIRST_PAUSE, LONGEST_PAUSE, Shared};
use crate::clock::Stamp;
use crate::events::{Event, RunEnd};
use crate::record::{Lease, Outcome, Retention, Why};
use crate::store::{Ending, Held, StoreError, StoreErrorKind};

/// How long the client waits for an ending that cannot be stored (O6).
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes a smaller outcome of one for which a store has no room: what must not be lost of it.
pub type Lessen = fn(&Outcome) -> Outcome;

/// The right to do the work, and the duty to end it.
///
/// End it by [`complete`](Self::complete), [`retry`](Self::retry), [`release`](Self::release) or
/// [`abandon`](Self::abandon). One that is dropped is abandoned: nobody knows what it did.
#[derive(Debug)]
#[must_use = "a run that is dropped is abandoned"]
pub struct Run {
    shared: Arc<Shared>,
    lease: Lease,
    ticket: Option<Ticket>,
    began: Stamp,
    told: CancellationToken,
    lost: CancellationToken,
}

/// What became of a run's ending.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunEnded {
    /// It is stored.
    Stored {
        /// How long it stays.
        expires_in: Duration,
    },
    /// The lease was somebody else's by then: nothing is stored (L3).
    Lost,
    /// It is not stored yet, and is being tried in the background (O6).
    Unstored,
}

impl Run {
    pub(super) fn begin(shared: Arc<Shared>, lease: Lease, terms: (Duration, Duration)) -> Self {
        let (ttl, max_run) = terms;
        let began = shared.clock.now();
        let (told, lost) = (CancellationToken::new(), CancellationToken::new());
        let until = began.after(max_run);
        let kept = Kept { lease, ttl, until, told: told.clone(), lost: lost.clone() };
        let ticket = Some(shared.keeper.enter(kept));
        shared.observer.note(Event::RunStarted);
        Self { shared, lease, ticket, began, told, lost }
    }

    /// The lease under which the work runs.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Cancelled when the run has lasted `max_run` and its lease is no longer renewed (L1).
    #[must_use]
    pub fn told(&self) -> &CancellationToken {
        &self.told
    }

    /// Cancelled as soon as a renewal finds that the record is no longer this run's (L5): another
    /// may be at the work. What is not done yet should be left; how the run ends is still to be
    /// said, and is told [`RunEnded::Lost`]. It may be cancelled, too, while the ending is stored.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Writes the outcome. It is durable when this returns [`RunEnded::Stored`].
    pub async fn complete(mut self, outcome: Outcome, keep: Retention) -> RunEnded {
        self.finish(Finish::Complete { outcome, keep, lessen: None }).await
    }

    /// Writes the outcome, or what `lessen` leaves of it where the store has no room for the whole
    /// (X5). Either is durable when this returns [`RunEnded::Stored`].
    pub async fn complete_at_least(
        mut self,
        outcome: Outcome,
        keep: Retention,
        lessen: Lessen,
    ) -> RunEnded {
        self.finish(Finish::Complete { outcome, keep, lessen: Some(lessen) }).await
    }

    /// Ends without an outcome: running again is acceptable. Those who wait for this run in this
    /// process get `answer`.
    pub async fn retry(
        mut self,
        status: u16,
        keep: Retention,
        answer: Option<Outcome>,
    ) -> RunEnded {
        if let Some(answer) = answer {
            self.shared.lobby.leave_answer(&self.lease.id, self.lease.attempt, &answer);
        }
        self.finish(Finish::End(Ending::Retry { status, keep })).await
    }

    /// Ends it as if it had never been: only for who knows that nothing happened.
    pub async fn release(mut self) -> RunEnded {
        self.finish(Finish::End(Ending::Release)).await
    }

    /// Ends it unknown.
    pub async fn abandon(mut self, why: Why) -> RunEnded {
        self.finish(Finish::unknown(why)).await
    }

    /// Stores the ending. The first try is waited for; if it fails, the next ones go on in the
    /// background, and are waited for a little.
    async fn finish(&mut self, finish: Finish) -> RunEnded {
        let Some(ticket) = self.ticket.take() else { return RunEnded::Lost };
        let ending = EndingRun {
            shared: Arc::clone(&self.shared),
            lease: self.lease,
            ticket,
            began: self.began,
            finish: Some(finish),
            tries: Tries::First,
        };
        ending.store().await
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let why = if std::thread::panicking() { Why::Panicked } else { Why::Abandoned };
        let ending = EndingRun {
            shared: Arc::clone(&self.shared),
            lease: self.lease,
            ticket,
            began: self.began,
            finish: Some(Finish::unknown(why)),
            tries: Tries::First,
        };
        // Its own drop goes on in the background.
        drop(ending);
    }
}

#[derive(Clone, Debug)]
enum Finish {
    Complete { outcome: Outcome, keep: Retention, lessen: Option<Lessen> },
    End(Ending),
}

impl Finish {
    fn unknown(why: Why) -> Self {
        Self::End(Ending::Unknown { why, after: Duration::ZERO })
    }

    fn label(&self) -> RunEnd {
        match self {
            Self::Complete { .. } => RunEnd::Completed,
            Self::End(Ending::Release) => RunEnd::Released,
            Self::End(Ending::Retry { .. }) => RunEnd::Retry,
            // A run is never taken back: that is for claims that came to none.
            Self::End(Ending::Unknown { .. } | Ending::TakeBack { .. }) => RunEnd::Unknown,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Complete { outcome, .. } => outcome.bytes().len(),
            Self::End(_) => 0,
        }
    }

    /// Makes the outcome smaller, once; says whether it could.
    fn lessen(&mut self) -> bool {
        let Self::Complete { outcome, lessen, .. } = self else { return false };
        let Some(lessen) = lessen.take() else { return false };
        *outcome = lessen(outcome);
        true
    }
}

/// An ending on its way to the store. Dropped on the way, it goes on in the background: the work
/// was done, and what it came to must not be lost with a cancelled future (L6).
struct EndingRun {
    shared: Arc<Shared>,
    lease: Lease,
    ticket: Ticket,
    began: Stamp,
    finish: Option<Finish>,
    tries: Tries,
}

/// Where an ending is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tries {
    /// In the future of whoever ends the run, which may be dropped.
    First,
    /// In a task of its own. Dropped there, the runtime is going down, and nothing can go on.
    Background,
}

impl EndingRun {
    async fn store(mut self) -> RunEnded {
        // One patience for all tries together: the client waits for them.
        let mut over = pin!(tokio::time::sleep(PATIENCE));
        tokio::select! {
            biased;
            answer = self.fitting() => match answer {
                Ok(held) => return self.stored(held),
                Err(error) => {
                    tracing::error!(record = %self.lease.id, %error, "an ending is not stored yet");
                }
            },
            () = &mut over => {
                tracing::error!(record = %self.lease.id, "the store is slow to take an ending");
            }
        }
        let Some(rest) = self.hand_over() else { return RunEnded::Unstored };
        tokio::select! {
            biased;
            ended = rest => ended.unwrap_or(RunEnded::Unstored),
            () = over => RunEnded::Unstored,
        }
    }

    /// Tries the whole outcome, then what must not be lost of it.
    async fn fitting(&mut self) -> Result<Held, StoreError> {
        let answer = self.once().await;
        if answer.as_ref().is_err_and(has_no_room) && self.lessen("the store is full") {
            return self.once().await;
        }
        answer
    }

    /// Makes the outcome smaller, where it can be.
    fn lessen(&mut self, why: &str) -> bool {
        let lessened = self.finish.as_mut().is_some_and(Finish::lessen);
        if lessened {
            tracing::warn!(record = %self.lease.id, why, "an outcome is kept without its body");
            self.shared.observer.note(Event::OutcomeLessened);
        }
        lessened
    }

    async fn once(&self) -> Result<Held, StoreError> {
        match &self.finish {
            Some(Finish::Complete { outcome, keep, .. }) => {
                self.shared.store.complete(&self.lease, outcome, *keep).await
            }
            Some(Finish::End(how)) => self.shared.store.end(&self.lease, *how).await,
            None => Ok(Held::Lost { attempt: None }),
        }
    }

    /// Takes note of the store's answer; the run is over.
    fn stored(&mut self, held: Held) -> RunEnded {
        self.shared.keeper.leave(self.ticket, &self.lease);
        let Some(finish) = self.finish.take() else { return RunEnded::Lost };
        let took = self.shared.clock.now().since(self.began);
        let observer = &self.shared.observer;
        match held {
            Held::Ours { expires_in, .. } => {
                observer.note(Event::RunEnded(finish.label(), took));
                if let Finish::End(Ending::Unknown { why, .. }) = finish {
                    observer.note(Event::BecameUnknown(why));
                }
                RunEnded::Stored { expires_in }
            }
            Held::Lost { attempt } => {
                observer.note(Event::LeaseLost);
                if attempt.is_some_and(|attempt| attempt > self.lease.attempt) {
                    tracing::error!(
                        record = %self.lease.id,
                        "two runs: another attempt began before this one ended"
                    );
                }
                RunEnded::Lost
            }
        }
    }

    /// The ending will never be stored: the lease ends, and the record is unknown.
    fn give_up(&mut self, why: &dyn std::fmt::Display) -> RunEnded {
        self.finish = None;
        tracing::error!(record = %self.lease.id, %why, "an ending is given up: its lease will end");
        self.shared.keeper.leave(self.ticket, &self.lease);
        let took = self.shared.clock.now().since(self.began);
        self.shared.observer.note(Event::RunEnded(RunEnd::Unstored, took));
        RunEnded::Unstored
    }

    /// Goes on trying in a task of its own, if the backlog has room.
    fn hand_over(&mut self) -> Option<tokio::task::JoinHandle<RunEnded>> {
        let runtime = tokio::runtime::Handle::try_current().ok();
        let mut room = self.room();
        if room.is_none() && self.lessen("too much waits for the store") {
            room = self.room();
        }
        let finish = self.finish.take()?;
        let (Some(runtime), Some(room)) = (runtime, room) else {
            self.give_up(&"there is no room to try it again");
            return None;
        };
        let mut rest = Self {
            shared: Arc::clone(&self.shared),
            lease: self.lease,
            ticket: self.ticket,
            began: self.began,
            finish: Some(finish),
            tries: Tries::Background,
        };
        let tries = async move {
            let mut pause = FIRST_PAUSE;
            let ended = loop {
                match rest.fitting().await {
                    Ok(held) => break rest.stored(held),
                    Err(error) if is_final(&error) => break rest.give_up(&error),
                    Err(_) => rest.shared.clock.sleep(pause).await,
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            };
            drop(room);
            ended
        };
        Some(runtime.spawn(self.shared.tasks.track_future(tries)))
    }

    /// Room for the ending among those that wait for the store.
    fn room(&self) -> Option<Room> {
        let bytes = self.finish.as_ref()?.len();
        self.shared.unstored.take(bytes, self.shared.limits.unstored_bytes)
    }
}

/// Whether trying again can only fail again.
pub(super) fn is_final(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::OutOfBounds | StoreErrorKind::Unreadable)
}

/// Whether a smaller outcome might be taken.
fn has_no_room(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Full | StoreErrorKind::OutOfBounds)
}

impl Drop for EndingRun {
    fn drop(&mut self) {
        if self.tries == Tries::First && self.finish.is_some() {
            drop(self.hand_over());
        }
    }
}

/// How many bytes of endings wait for the store (O6).
#[derive(Debug, Default)]
pub(super) struct Backlog(Arc<AtomicUsize>);

/// Room taken in the backlog, until it is dropped.
pub(super) struct Room {
    bytes: usize,
    backlog: Arc<AtomicUsize>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.backlog.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Backlog {
    pub(super) fn take(&self, bytes: usize, limit: usize) -> Option<Room> {
        // Even an ending without a body takes room, so that their number is bounded too.
        let bytes = bytes + 256;
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(bytes).filter(|sum| *sum <= limit)
            })
            .ok()
            .map(|_| Room { bytes, backlog: Arc::clone(&self.0) })
    }

    /// How many bytes wait.
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

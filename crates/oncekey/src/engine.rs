//! The one loop that all faces use: claim, wait, run, renew, end.
//!
//! 1. **Work outlives the client** (L6). [`Engine::spawn`] puts the whole of it in a task of its
//!    own before the claim is made, so that a dropped connection or a cancelled future never
//!    leaves a record that nobody decides.
//! 2. **A run always ends** in one of complete, release, retry or abandon. A [`Run`] that is
//!    dropped, by a panic or otherwise, is abandoned: unknown, never failed.
//! 3. **Leases are renewed** by one keeper task an engine, at a third of their length, until
//!    `max_run`; then the work is told, not killed (L1). A renewal that fails is tried again; only
//!    [`Held::Lost`] means loss (L5), and that is told at once ([`Run::lost`]).
//! 4. **Waiters** are bounded, woken by the store, leave without a trace, and run the work
//!    themselves only after a release (C4).
//! 5. **A claim whose answer never came** is taken back under its token until that is answered
//!    (C2).
//! 6. **An ending that cannot be stored** keeps being tried in the background, within a bound of
//!    memory (O6). Where the store has no room for the whole outcome, what must not be lost of it
//!    is kept (X5).
//!
//! The engine knows no HTTP: an outcome is bytes to it.

use std::future::Future;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::clock::{Clock, Stamp};
use crate::events::{self, ClaimResult, Event, Observer};
use crate::record::{Lease, Outcome, Standing, Version, Why};
use crate::store::{Claim, Claimed, Ending, Held, OnUnknown, Store, StoreError, StoreErrorKind};

mod keeper;
mod lobby;
mod run;

use keeper::Keeper;
use lobby::Lobby;
pub use run::{Lessen, Run, RunEnded};

/// Runs operations once over a store. Cheap to clone; all clones are one engine.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    clock: Clock,
    observer: Arc<dyn Observer>,
    limits: Limits,
    keeper: Keeper,
    keeper_started: Once,
    /// Ends the keeper with the last clone of the engine and the last of its runs.
    keeper_ends: DropGuard,
    lobby: Lobby,
    unstored: run::Backlog,
    tasks: TaskTracker,
    draining: CancellationToken,
}

/// The engine's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Requests that wait for one record (C4).
    pub waiters_per_key: usize,
    /// Requests that wait in this process (C4).
    pub waiters: usize,
    /// Bytes of endings that could not be stored yet (O6).
    pub unstored_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { waiters_per_key: 100, waiters: 10_000, unstored_bytes: 64 << 20 }
    }
}

/// How a claim is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long to wait for another's run (C4).
    pub wait: Wait,
    /// How long the lease is renewed (L1).
    pub max_run: Duration,
}

/// What a claim does while somebody else runs (C4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Says so at once.
    Reject,
    /// Waits for the end, at most so long.
    UpTo(Duration),
}

/// What a claim came to, waiting included.
#[derive(Debug)]
#[non_exhaustive]
pub enum Begun {
    /// The caller runs the work.
    Run(Run),
    /// The outcome is final.
    Replay {
        /// What to answer with.
        outcome: Outcome,
        /// How long it stays.
        expires_in: Duration,
    },
    /// Somebody else runs it.
    InProgress {
        /// When asking again makes sense.
        retry_after: Duration,
    },
    /// The run ended while this request waited, and may be started again by a later one.
    Ended {
        /// What that run answered, where this process has it.
        answer: Option<Outcome>,
    },
    /// Nobody knows how the last run ended.
    Unknown {
        /// The record's version, for a resolution.
        version: Version,
        /// Which run it was.
        attempt: u32,
        /// For how long.
        since: Duration,
        /// Why.
        why: Why,
    },
    /// The answer is gone, the key is not (T2).
    Expired,
    /// The key was first used for something else.
    Mismatch {
        /// Where the first use stands.
        first: Standing,
    },
    /// The key was first used by somebody else.
    OtherPrincipal,
    /// The engine takes no new work (U5).
    Draining,
    /// Whoever asked has left while waiting.
    Gone,
}

impl Engine {
    /// An engine over `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with(store, Clock::real(), events::nobody(), Limits::default())
    }

    /// An engine over `store` with its own clock, observer and bounds.
    #[must_use]
    pub fn with(
        store: Arc<dyn Store>,
        clock: Clock,
        observer: Arc<dyn Observer>,
        limits: Limits,
    ) -> Self {
        Self(Arc::new(Shared {
            store,
            keeper: Keeper::new(clock.clone()),
            clock,
            observer,
            limits,
            keeper_started: Once::new(),
            keeper_ends: CancellationToken::new().drop_guard(),
            lobby: Lobby::default(),
            unstored: run::Backlog::default(),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
        }))
    }

    /// Starts the keeper in the current runtime. The first run does so by itself; a process with
    /// several runtimes calls this in the one that lives longest.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        let shared = &self.0;
        shared.keeper_started.call_once(|| {
            let keeper = shared.keeper.clone();
            let store = Arc::clone(&shared.store);
            let ended = shared.keeper_ends.token().clone();
            // It holds the store, which must be free to be opened again.
            tokio::spawn(async move { ended.run_until_cancelled(keeper.keep(store)).await });
        });
    }

    /// The engine's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The store beneath.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Bytes of endings that wait for the store, at most [`Limits::unstored_bytes`] (O6).
    #[must_use]
    pub fn unstored_bytes(&self) -> usize {
        self.0.unstored.bytes()
    }

    /// Runs `work` in a task of its own, which a graceful stop waits for.
    ///
    /// The current tracing span does not follow by itself; use `in_current_span`.
    pub fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.tasks.spawn(work)
    }

    /// Claims, and waits where `terms` say so. `arrived` is when the request came in, `gone` ends
    /// when whoever asks has left; leaving ends a wait and nothing else.
    ///
    /// Call it inside a task made by [`spawn`](Self::spawn).
    ///
    /// # Errors
    /// What the store said. Nothing was granted; a claim whose answer is missing is being taken
    /// back.
    pub async fn begin(
        &self,
        mut claim: Claim,
        arrived: Stamp,
        terms: Terms,
        gone: impl Future<Output = ()>,
    ) -> Result<Begun, StoreError> {
        if self.0.draining.is_cancelled() {
            return Ok(Begun::Draining);
        }
        let begun = self.claim(&mut claim, arrived, terms, gone).await;
        let took = self.0.clock.now().since(arrived);
        if let Some(result) = label(&begun) {
            self.0.observer.note(Event::Claimed(result, took));
        }
        begun
    }

    /// Tells the observer what a face has seen.
    #[cfg(feature = "http")]
    pub(crate) fn note(&self, event: Event) {
        self.0.observer.note(event);
    }

    async fn claim(
        &self,
        claim: &mut Claim,
        arrived: Stamp,
        terms: Terms,
        gone: impl Future<Output = ()>,
    ) -> Result<Begun, StoreError> {
        let (version, retry_after) = match self.ask(claim, arrived).await? {
            Claimed::InProgress { version, retry_after } => (version, retry_after),
            other => return Ok(self.begun(other, claim, terms, None)),
        };
        let Wait::UpTo(bound) = terms.wait else {
            return Ok(Begun::InProgress { retry_after });
        };
        let Some(seat) = self.0.lobby.enter(claim.id, &self.0.limits) else {
            return Ok(Begun::InProgress { retry_after });
        };
        self.0.observer.note(Event::WaitStarted);
        let begun = tokio::select! {
            biased;
            begun = self.wait(claim, arrived, terms, (version, bound), &seat) => begun,
            () = self.0.draining.cancelled() => Ok(Begun::Draining),
            () = gone => Ok(Begun::Gone),
        };
        self.0.observer.note(Event::WaitEnded);
        begun
    }

    /// Waits for the record to move on and asks again, until it is no longer in progress or the
    /// bound is over. A claim that is dropped half way is taken back: see `ask`.
    async fn wait(
        &self,
        claim: &mut Claim,
        arrived: Stamp,
        terms: Terms,
        (mut version, bound): (Version, Duration),
        seat: &lobby::Seat<'_>,
    ) -> Result<Begun, StoreError> {
        let until = self.0.clock.now().after(bound);
        loop {
            let left = until.since(self.0.clock.now());
            let moved = self.0.store.changed(&claim.id, version, left).await;
            moved.map_err(in_the_middle)?;
            match self.ask(claim, arrived).await.map_err(in_the_middle)? {
                Claimed::InProgress { version: now_at, retry_after } => {
                    if self.0.clock.now() >= until {
                        return Ok(Begun::InProgress { retry_after });
                    }
                    version = now_at;
                }
                other => return Ok(self.begun(other, claim, terms, Some(seat))),
            }
        }
    }

    /// One claim; one whose answer is missing, be it that the caller was dropped, is taken back in
    /// a task of its own (C2).
    async fn ask(&self, claim: &mut Claim, arrived: Stamp) -> Result<Claimed, StoreError> {
        claim.age = self.0.clock.now().since(arrived);
        let lease = Lease { id: claim.id, token: claim.token, attempt: 0 };
        let mut guard = Unanswered { engine: self, claim: Some((lease, claim.on_unknown)) };
        let answer = self.0.store.claim(claim).await;
        match &answer {
            Ok(_) => guard.claim = None,
            Err(error) if wrote_nothing(error) => guard.claim = None,
            // Dropping the guard takes the claim back.
            Err(_) => {}
        }
        answer
    }

    fn begun(
        &self,
        claimed: Claimed,
        claim: &Claim,
        terms: Terms,
        seat: Option<&lobby::Seat<'_>>,
    ) -> Begun {
        match claimed {
            Claimed::Acquired(lease) => {
                self.start();
                Begun::Run(Run::begin(Arc::clone(&self.0), lease, (claim.lease, terms.max_run)))
            }
            Claimed::Completed { outcome, expires_in } => Begun::Replay { outcome, expires_in },
            Claimed::InProgress { retry_after, .. } => Begun::InProgress { retry_after },
            Claimed::Ended { attempt, .. } => {
                Begun::Ended { answer: seat.and_then(|seat| seat.answer(attempt)) }
            }
            Claimed::Unknown { version, attempt, since, why } => {
                Begun::Unknown { version, attempt, since, why }
            }
            Claimed::Expired => Begun::Expired,
            Claimed::Mismatch { first } => Begun::Mismatch { first },
            Claimed::OtherPrincipal => Begun::OtherPrincipal,
            // Only a late copy of a claim is told so, and nobody waits for its answer. Whoever
            // does all the same may come again.
            Claimed::Lost => Begun::InProgress { retry_after: Duration::from_secs(1) },
        }
    }

    /// Takes no new work and lets waiters go (U5).
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// Drains, waits for running work up to `bound`, makes unknown what is left, and tells that
    /// work (U5), which may then still answer its client. Says how many runs were cut off.
    pub async fn stop(&self, bound: Duration) -> usize {
        self.drain();
        self.0.tasks.close();
        let finished = tokio::time::timeout(bound, self.0.tasks.wait()).await;
        if finished.is_ok() {
            return 0;
        }
        let held = self.0.keeper.held();
        let endings = held.iter().map(|(lease, _)| self.cut_off(lease));
        let counted = tokio::time::timeout(LAST_WRITE, join_all(endings)).await;
        // A store that does not answer leaves them to the end of their leases.
        let cut = counted.map_or(held.len(), |cut| cut.into_iter().filter(|cut| *cut).count());
        // After it is written down: whatever the work still says can only make more known.
        for (_, told) in &held {
            told.cancel();
        }
        let _late = tokio::time::timeout(LAST_WORD, self.0.tasks.wait()).await;
        cut
    }

    /// Makes a run unknown that a stop does not wait for; says whether it was still there.
    async fn cut_off(&self, lease: &Lease) -> bool {
        let how = Ending::Unknown { why: Why::Stopped, after: Duration::ZERO };
        match self.0.store.end(lease, how).await {
            Ok(Held::Ours { .. }) => {
                self.0.observer.note(Event::BecameUnknown(Why::Stopped));
                true
            }
            // It ended a moment ago, or is somebody else's run by now.
            Ok(Held::Lost { .. }) => false,
            Err(error) => {
                tracing::error!(record = %lease.id, %error, "a run was cut off unrecorded");
                true
            }
        }
    }

    /// Takes back a claim whose answer is missing, again and again until the store answers (C2).
    fn take_back(&self, lease: Lease, on_unknown: OnUnknown) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let shared = Arc::clone(&self.0);
        // Bounded like all that waits for the store; beyond, the lease's end must do.
        let Some(room) = shared.unstored.take(0, shared.limits.unstored_bytes) else {
            tracing::error!(record = %lease.id, "an unanswered claim stands until its lease ends");
            return;
        };
        let how = Ending::TakeBack { on_unknown };
        let tries = async move {
            let mut pause = FIRST_PAUSE;
            while let Err(error) = shared.store.end(&lease, how).await {
                tracing::warn!(record = %lease.id, %error, "an unanswered claim stands");
                if run::is_final(&error) {
                    break;
                }
                shared.clock.sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            drop(room);
        };
        // A stop waits for it: the claim would else stand until its lease ends.
        runtime.spawn(self.0.tasks.track_future(tries));
    }
}

/// The first and the longest pause between tries of what must reach the store.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long the store may take to write down what a stop cuts off.
const LAST_WRITE: Duration = Duration::from_secs(3);
/// How long work that was cut off may take to tell its client.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Takes the claim back when dropped before its answer came.
struct Unanswered<'a> {
    engine: &'a Engine,
    claim: Option<(Lease, OnUnknown)>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((lease, on_unknown)) = self.claim.take() {
            self.engine.take_back(lease, on_unknown);
        }
    }
}

/// Whether the store is sure that nothing was written.
fn wrote_nothing(error: &StoreError) -> bool {
    error.kind() != StoreErrorKind::Timeout
}

/// Trouble once another's run is known: whatever the store says now, it was reached before, so
/// nobody may run beside that run for lack of a store (X1).
fn in_the_middle(error: StoreError) -> StoreError {
    match error.kind() {
        StoreErrorKind::Unavailable => StoreError::caused(StoreErrorKind::Timeout, error),
        _ => error,
    }
}

fn label(begun: &Result<Begun, StoreError>) -> Option<ClaimResult> {
    Some(match begun {
        Ok(Begun::Run(_)) => ClaimResult::Acquired,
        Ok(Begun::Replay { .. }) => ClaimResult::Replayed,
        Ok(Begun::InProgress { .. } | Begun::Ended { .. }) => ClaimResult::InProgress,
        Ok(Begun::Unknown { .. }) => ClaimResult::Unknown,
        Ok(Begun::Mismatch { .. }) => ClaimResult::Mismatch,
        Ok(Begun::OtherPrincipal) => ClaimResult::OtherPrincipal,
        Ok(Begun::Expired) => ClaimResult::Expired,
        Ok(Begun::Draining | Begun::Gone) => return None,
        Err(_) => ClaimResult::Error,
    })
}

//! What happens, told to whoever watches: the names of events, for metrics and logs.
//!
//! 1. An event carries no key, no body and no secret.
//! 2. An [`Observer`] is called on the path of requests: it counts and returns.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Skew, Stamp};
use crate::record::{Record, Why};

/// How a claim was answered, as a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClaimResult {
    /// The caller runs.
    Acquired,
    /// Answered from the outcome.
    Replayed,
    /// Somebody else holds it, and waiting brought no answer.
    InProgress,
    /// Nobody knows how the last run ended.
    Unknown,
    /// The key was first used for something else.
    Mismatch,
    /// The key was first used by somebody else.
    OtherPrincipal,
    /// The key's answer is gone.
    Expired,
    /// The store could not say.
    Error,
}

impl ClaimResult {
    /// All results, so that a metric's label is known from the start.
    pub const ALL: [Self; 8] = [
        Self::Acquired,
        Self::Replayed,
        Self::InProgress,
        Self::Unknown,
        Self::Mismatch,
        Self::OtherPrincipal,
        Self::Expired,
        Self::Error,
    ];

    /// The label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Replayed => "replayed",
            Self::InProgress => "in_progress",
            Self::Unknown => "unknown",
            Self::Mismatch => "mismatch",
            Self::OtherPrincipal => "other_principal",
            Self::Expired => "expired",
            Self::Error => "error",
        }
    }
}

/// How a run ended, as a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunEnd {
    /// The outcome is stored.
    Completed,
    /// Forgotten.
    Released,
    /// May run again.
    Retry,
    /// Nobody knows.
    Unknown,
    /// The work ran, and its ending could not be stored.
    Unstored,
}

impl RunEnd {
    /// All endings.
    pub const ALL: [Self; 5] =
        [Self::Completed, Self::Released, Self::Retry, Self::Unknown, Self::Unstored];

    /// The label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Retry => "retry",
            Self::Unknown => "unknown",
            Self::Unstored => "unstored",
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A claim was answered after this time, waiting included.
    Claimed(ClaimResult, Duration),
    /// A run began.
    RunStarted,
    /// A run ended after this time.
    RunEnded(RunEnd, Duration),
    /// A run ended unknown, and this is why.
    BecameUnknown(Why),
    /// An outcome was made smaller, for there was no room for the whole (X5).
    OutcomeLessened,
    /// A stale token was told so (L3).
    LeaseLost,
    /// A request waits for another's run.
    WaitStarted,
    /// It no longer does.
    WaitEnded,
    /// A store wrote this many operations in one batch.
    StoreBatch(usize),
    /// An unknown request reached its horizon and was deleted: its key is new (U3).
    UnknownEnded,
    /// The wall clock is this far from a store's clock: stepped, or back in step (L4).
    WallClock(Skew),
    /// A request was refused because its body found no room (X6).
    Overloaded,
}

/// Told of every [`Event`]; counts it and returns at once.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Takes note of one event.
    fn note(&self, event: Event);
}

/// An observer that takes no note.
#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn note(&self, _event: Event) {}
}

/// The observer where none is given.
#[must_use]
pub fn nobody() -> Arc<dyn Observer> {
    Arc::new(Nobody)
}

/// Tells that an unknown request reached its horizon and goes (U3). A store that keeps records on
/// disk calls it before the deletion is written, so that none goes unsaid: one that fails between
/// says it again.
pub(crate) fn horizon_reached(observer: &dyn Observer, record: &Record, now: Stamp) {
    let since = crate::decide::unknown_since(record).unwrap_or_default();
    tracing::warn!(
        record = %record.id,
        attempt = record.attempt,
        unknown_since = since.as_micros() / 1_000_000,
        unknown_for_seconds = now.since(since).as_secs(),
        "nobody ever told how this request ended, and its horizon is over: its key is new"
    );
    observer.note(Event::UnknownEnded);
}

/// Logs that a record and a claim were fingerprinted by different recipes (F1): the configuration
/// changed since, and the two count as equal.
pub(crate) fn other_recipe(claim: &crate::store::Claim) {
    tracing::warn!(
        record = %claim.id,
        "the fingerprint was made by another recipe: it counts as equal"
    );
}

//! The store: where records live, and the only thing that must be atomic.
//!
//! Every store promises these, and the [`conformance`](crate::conformance) suite checks them:
//!
//! 1. **One winner** (C1). Of any number of simultaneous claims for one id, exactly one is
//!    acquired, by one atomic conditional write.
//! 2. **An error never grants** (X2). A time-out is not a miss; a lost race is decided again.
//! 3. **Safe to repeat** (X4). Every call may be sent again after a lost reply. The caller makes
//!    the token before the first try, so a repeated claim finds itself (C2).
//! 4. **Fenced** (L2). Renew, complete and end look only at the token. They succeed until the
//!    token is stale, also after the lease's end, and a stale token changes nothing.
//! 5. **Written once.** An outcome never changes. A late completion by the record's own token
//!    decides an unknown record.
//! 6. **The store's clock decides** (L4). Only durations cross this trait.
//! 7. **No key slows another** (C6). A conflict is a success of the call.
//! 8. **The living are spared** (T1, U4). A record in progress or unknown is never expired, evicted
//!    or purged, but for an unknown request beyond its horizon (U3): a purge deletes it and logs
//!    that it did. No claim does, however late the purge comes.
//!
//! Expected answers are values; only trouble is a [`StoreError`]. What may be written is decided
//! by [`decide`](crate::decide) alone: a backend reads what is there, asks, and writes the answer
//! if the record is still as it was read.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::fingerprint::Fingerprint;
use crate::key::{Key, RecordId, Scope};
use crate::record::{
    Kind, Lease, LeaseToken, Outcome, Principal, Record, Retention, Standing, Version, Why,
};

pub(crate) mod bounds;
mod dead;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod memory;
pub(crate) mod recipe;
mod waiters;
mod wall;

#[cfg(feature = "embedded")]
pub use embedded::EmbeddedStore;
pub use memory::MemoryStore;

pub use bounds::MAX_OUTCOME;
pub(crate) use dead::DeadTokens;
pub(crate) use waiters::{Look, Waiters};
pub(crate) use wall::WallWatch;

/// A keyed record, guarded by a fenced lease, with one write-once outcome.
///
/// The module's rules hold for every implementation. All calls are bounded in time by the store
/// itself: a caller that stops waiting does not know what happened.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Takes the record, or says what already holds it. Atomic.
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError>;

    /// Extends the lease by `ttl` from now; a note is kept with the record. Atomic.
    async fn renew(
        &self,
        lease: &Lease,
        ttl: Duration,
        note: Option<&Note>,
    ) -> Result<Held, StoreError>;

    /// Writes the outcome, once, and starts its retention. Durable when it returns, where the
    /// store is durable at all. Works after the lease's end too, while the token is the record's.
    ///
    /// A store that is short of room may refuse a large outcome as [`StoreErrorKind::Full`], for
    /// the caller to keep less of it; one of 68 KiB or less is never refused so (X5).
    async fn complete(
        &self,
        lease: &Lease,
        outcome: &Outcome,
        keep: Retention,
    ) -> Result<Held, StoreError>;

    /// Ends the run without an outcome. Atomic.
    async fn end(&self, lease: &Lease, how: Ending) -> Result<Held, StoreError>;

    /// Returns once the record is no longer at `seen`, or after `bound`; at once if it already
    /// moved on. May return early, so the caller looks again.
    async fn changed(
        &self,
        id: &RecordId,
        seen: Version,
        bound: Duration,
    ) -> Result<(), StoreError>;

    /// Reads without claiming. A record whose time is over reads as absent.
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError>;

    /// Deletes up to `limit` records that time has ended, and says about how many it deleted: zero
    /// once none is left. Takes the memo of requests that have been unknown for long, too. What
    /// [`decide::sweep`](crate::decide::sweep) says of each record is done, and claims go on
    /// meanwhile (T3). Deletes nothing while the wall clock has stepped away from the store's (L4).
    async fn purge_expired(&self, limit: usize) -> Result<usize, StoreError>;
}

/// What people and recovery need beside [`Store`].
#[async_trait]
pub trait Inspect: Store {
    /// Lists the records that match `filter`, `limit` at a time, in a stable order. The cursor of
    /// one page gives the next; none means the end.
    async fn list(
        &self,
        filter: &Filter,
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError>;

    /// How many records stand where.
    async fn counts(&self) -> Result<Counts, StoreError>;

    /// Changes a record that is still at `seen`; else says where it is now (U3). A record that is
    /// held is never changed. The audit is kept in the record, dated by the store, and the holder
    /// of the token, if any, is fenced.
    async fn change(
        &self,
        id: &RecordId,
        seen: Version,
        change: Change,
        by: &By,
    ) -> Result<Changed, StoreError>;
}

/// Stores that keep an acknowledged write through crash and failover. Effects need one.
#[async_trait]
pub trait Recover: Inspect {
    /// Takes up to `limit` unknown records of `kind`, untouched for `stale_for` and started at
    /// most `max_attempts` times, each under a new lease of `ttl` and the attempt it had. Two
    /// callers never get the same one.
    async fn take_unknown(
        &self,
        kind: Kind,
        stale_for: Duration,
        ttl: Duration,
        max_attempts: u32,
        limit: usize,
    ) -> Result<Vec<(Record, Lease)>, StoreError>;
}

/// A wish to take a record.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The record's name.
    pub id: RecordId,
    /// The face it belongs to.
    pub kind: Kind,
    /// Kept readable for people.
    pub scope: Scope,
    /// Kept readable for people.
    pub key: Key,
    /// Who asks.
    pub principal: Principal,
    /// What the key is used for.
    pub fingerprint: Fingerprint,
    /// Made by the caller before the first try; the same in every repeat of this claim.
    pub token: LeaseToken,
    /// How long the lease lasts without renewal.
    pub lease: Duration,
    /// How long the record is kept at least, from the moment it became unknown (U3).
    pub horizon: Duration,
    /// What to do about an unknown record.
    pub on_unknown: OnUnknown,
    /// How long ago the request arrived. A run that ended since then, in `retry` or unknown, is
    /// not started again by this claim (C4): the request was there while it ran.
    pub age: Duration,
    /// What recovery needs to know about the work, at most [`Record::MAX_MEMO`] bytes. That of a
    /// request goes once it has been unknown for
    /// [`SHRINK_AFTER`](crate::decide::SHRINK_AFTER).
    pub memo: Bytes,
}

/// What a claim does about an unknown record (U1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnUnknown {
    /// Leaves it and says so.
    #[default]
    Hold,
    /// Takes it over to ask what happened: a new token, the same attempt.
    Ask,
    /// Takes it over to run again: a new token, the next attempt.
    TakeOver,
}

/// What a claim came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claimed {
    /// The caller holds the record.
    Acquired(Lease),
    /// The outcome is final.
    Completed {
        /// What to answer with.
        outcome: Outcome,
        /// How long it stays.
        expires_in: Duration,
    },
    /// Somebody holds it.
    InProgress {
        /// What to wait for a change of.
        version: Version,
        /// When asking again makes sense, if nothing is heard before.
        retry_after: Duration,
    },
    /// The run ended after this request had arrived, and may be started again by a later one.
    Ended {
        /// What the run answered; `None` where it is unknown how it ended.
        status: Option<u16>,
        /// Which run it was.
        attempt: u32,
    },
    /// Nobody knows how the last run ended.
    Unknown {
        /// The record's version, for a resolution.
        version: Version,
        /// Which run it was.
        attempt: u32,
        /// For how long it has been unknown.
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
    /// The token was released before (C2): this is a late copy of an old claim.
    Lost,
}

/// Something kept with a renewed lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The other side's name for the work, at most [`Record::MAX_REFERENCE`] bytes.
    Reference(Box<str>),
    /// The work is about to start for the given time: sets the attempt. Safe to repeat.
    Starts(u32),
}

/// How a run ends without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Nothing happened, and the holder knows it: the record is forgotten.
    Release,
    /// No outcome, and running again is acceptable.
    Retry {
        /// What the run answered.
        status: u16,
        /// How long fingerprint and attempt are kept.
        keep: Retention,
    },
    /// The holder cannot know what happened.
    Unknown {
        /// Why.
        why: Why,
        /// How long it may not be taken over.
        after: Duration,
    },
    /// The answer to the claim never came, so nothing ran under it, and it must come to nothing
    /// later either (C2). A first claim leaves nothing. One that may have followed another run
    /// leaves that run's fingerprint, principal and attempt: in `retry`, kept as long as an unknown
    /// run would be, or unknown where it may have taken over an unknown one (U4).
    TakeBack {
        /// What the claim would have done about an unknown record.
        on_unknown: OnUnknown,
    },
}

/// Whether the caller's token is still the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a lost lease must be told"]
pub enum Held {
    /// It is, and the call took effect, now or when it was made before.
    Ours {
        /// The attempt that the record bears.
        attempt: u32,
        /// How long what was written stays: the lease, or the retention.
        expires_in: Duration,
    },
    /// It is not, and nothing changed.
    Lost {
        /// The attempt that the record bears now; `None` where it is gone.
        attempt: Option<u32>,
    },
}

/// What a person writes into a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// This is what happened.
    Complete(Outcome, Retention),
    /// It may run again.
    Retry(Retention),
    /// Nothing happened: forget it.
    Release,
}

/// Who makes a change, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// A name.
    pub who: String,
    /// A reason.
    pub reason: String,
}

/// What a change came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// It was made; the record is at this version now, absent after a release.
    Made(Version),
    /// The record had moved on: this is where it stands.
    Moved(Option<Box<Record>>),
    /// Somebody holds it.
    Held,
    /// Its outcome is final.
    Final,
}

/// Which records to list. Every field that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The face.
    pub kind: Option<Kind>,
    /// Where they stand.
    pub standing: Option<Standing>,
    /// The tenant.
    pub tenant: Option<String>,
    /// First claimed at least this long ago.
    pub older_than: Option<Duration>,
}

impl Filter {
    /// Whether `record` matches at `now`.
    #[must_use]
    pub fn matches(&self, record: &Record, now: crate::clock::Stamp) -> bool {
        let standing = record.standing(now);
        standing != Standing::Gone
            && self.kind.is_none_or(|kind| record.kind == kind)
            && self.standing.is_none_or(|wanted| wanted == standing)
            && self.tenant.as_deref().is_none_or(|tenant| tenant == &*record.scope.tenant)
            && self.older_than.is_none_or(|age| now.since(record.created) >= age)
    }
}

/// Where a listing goes on: after this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub RecordId);

/// Part of a listing.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records, in order of id.
    pub records: Vec<Record>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
    /// Records that could not be read (X3).
    pub unreadable: usize,
}

/// How many records stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Held now.
    pub in_progress: u64,
    /// Nobody knows.
    pub unknown: u64,
}

/// What kind of trouble a store met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It was not reached: nothing was written.
    Unavailable,
    /// No answer came in time: what happened is not known.
    Timeout,
    /// It takes no new records, or not so large an outcome (X5). Nothing was written.
    Full,
    /// The record is there and cannot be read (X3).
    Unreadable,
    /// A value is beyond what the store takes.
    OutOfBounds,
}

/// Trouble with a store. Never a grant.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// Trouble of this kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// Trouble of this kind, caused by `source`.
    pub fn caused(
        kind: StoreErrorKind,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// What kind of trouble it is.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store cannot be reached",
            StoreErrorKind::Timeout => "the store did not answer in time",
            StoreErrorKind::Full => "the store is full",
            StoreErrorKind::Unreadable => "the record cannot be read",
            StoreErrorKind::OutOfBounds => "the value is beyond what the store takes",
        })
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

//! What time alone takes from a record, once a sweep meets it (T1, T3, U3).
//!
//! | where it stands | what a sweep does |
//! |---|---|
//! | held, completed, retry | nothing |
//! | tombstone | takes outcome and memo, if it still has them |
//! | gone: a retention or a tombstone is over | deletes it |
//! | unknown request, for [`SHRINK_AFTER`] | takes the memo; everything else stays |
//! | unknown request, beyond its horizon | deletes it, and the store logs that it did |
//! | unknown event or effect | nothing, however old: a person or recovery ends it |
//!
//! 1. A record in progress whose lease ended counts as unknown from that end on, whether or not
//!    anybody has written that down; the horizon is counted from there too.
//! 2. What shrank is answered as before: identity, principal, fingerprint, token, attempt, version
//!    and audit are what they were, so it is still told as unknown, another request is still a
//!    mismatch, its own token still completes it, and a resolution of the version that was seen
//!    still holds.
//! 3. A retention that is over is over for every reader at that moment. An unknown request is not:
//!    no claim looks at the horizon, so the key is new only once a sweep has deleted the record and
//!    said so. A sweep that comes late, or that a doubtful clock holds up (L4), leaves a key
//!    refused for longer; the other way round a clock alone could start work that was done.

use std::time::Duration;

use bytes::Bytes;

use crate::clock::Stamp;
use crate::record::{Kind, Outcome, Record, Standing, State};

/// How long an unknown request keeps its memo (U3): 7 days.
pub const SHRINK_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a sweep does to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Nothing.
    Keep,
    /// Stores this in its place: the same record, at the same version, with less to carry.
    Shrink(Box<Record>),
    /// Deletes it.
    End,
}

/// Decides what a sweep does to `record` at `now`.
#[must_use]
pub fn sweep(record: &Record, now: Stamp) -> Sweep {
    match record.standing(now) {
        Standing::Gone => Sweep::End,
        Standing::Tombstone if is_bulky(record) => Sweep::Shrink(Box::new(shrunk(record))),
        Standing::Unknown => unknown(record, now),
        Standing::Tombstone | Standing::InProgress | Standing::Completed | Standing::Retry => {
            Sweep::Keep
        }
    }
}

/// The first moment at which [`sweep`] does anything to `record`; `None`: never, unless it changes.
#[must_use]
pub fn due(record: &Record) -> Option<Stamp> {
    match &record.state {
        State::Completed { expires, .. } if is_bulky(record) => Some(*expires),
        State::Completed { gone, .. } => Some(*gone),
        State::Retry { expires, .. } => Some(*expires),
        State::InProgress { .. } | State::Unknown { .. } => {
            let (since, horizon) = span(record)?;
            let shrinks = is_bulky(record).then(|| since.after(SHRINK_AFTER));
            Some(shrinks.map_or(horizon, |at| at.min(horizon)))
        }
    }
}

/// Since when a record is unknown, or will be if nobody renews its lease; `None` once it ended.
#[must_use]
pub fn unknown_since(record: &Record) -> Option<Stamp> {
    match &record.state {
        State::InProgress { lease_until } => Some(*lease_until),
        State::Unknown { since, .. } => Some(*since),
        State::Completed { .. } | State::Retry { .. } => None,
    }
}

fn unknown(record: &Record, now: Stamp) -> Sweep {
    let Some((since, horizon)) = span(record) else { return Sweep::Keep };
    if horizon <= now {
        return Sweep::End;
    }
    if is_bulky(record) && since.after(SHRINK_AFTER) <= now {
        return Sweep::Shrink(Box::new(shrunk(record)));
    }
    Sweep::Keep
}

/// Since when an unknown request is unknown, and until when it is kept; `None` for other kinds:
/// an effect may have moved money, and an event runs again by itself.
fn span(record: &Record) -> Option<(Stamp, Stamp)> {
    if record.kind != Kind::Request {
        return None;
    }
    let since = unknown_since(record)?;
    match &record.state {
        State::Unknown { horizon, .. } => Some((since, *horizon)),
        _ => Some((since, since.after(record.horizon))),
    }
}

/// Whether there is anything to take from it.
fn is_bulky(record: &Record) -> bool {
    let outcome = match &record.state {
        State::Completed { outcome, .. } => outcome.bytes().len(),
        _ => 0,
    };
    outcome > 0 || !record.memo.is_empty()
}

/// The same record without outcome and memo. A reference stays: it is short, and the first thing
/// that whoever resolves an unknown record asks the other side about.
fn shrunk(record: &Record) -> Record {
    let state = match &record.state {
        State::Completed { at, expires, gone, .. } => State::Completed {
            outcome: Outcome::default(),
            at: *at,
            expires: *expires,
            gone: *gone,
        },
        other => other.clone(),
    };
    Record { memo: Bytes::new(), state, ..record.clone() }
}

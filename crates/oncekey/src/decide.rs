//! The only place that decides what may happen to a record.
//!
//! Pure functions: what is there, what is asked, what time it is; out comes what to answer and
//! what to write. They do no I/O and read no clock, so every state can be met with every request
//! in a test.
//!
//! The order of checks of a claim (C3) is fixed, so that a mismatch is told whether the record is
//! in progress, completed or unknown, on every path:
//!
//! 1. the token was released: [`Claimed::Lost`];
//! 2. absent, or gone: acquired, attempt 1;
//! 3. another principal: [`Claimed::OtherPrincipal`];
//! 4. another fingerprint: [`Claimed::Mismatch`];
//! 5. where it stands.
//!
//! Renew, complete and end check only the token (L2).

use std::time::Duration;

mod sweep;

pub use self::sweep::{SHRINK_AFTER, Sweep, due, sweep, unknown_since};
use crate::clock::Stamp;
use crate::fingerprint::Relation;
use crate::record::{
    Audit, Lease, LeaseToken, Outcome, Record, Retention, Standing, State, Version, Why,
};
use crate::store::{By, Change, Changed, Claim, Claimed, Ending, Held, Note, OnUnknown};

/// When a decision is made, and the version that a write would get.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The store's time.
    pub now: Stamp,
    /// Greater than every version written before.
    pub next: Version,
}

/// What a store does to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Nothing.
    Keep,
    /// Stores the record in place of what is there.
    Put(Box<Record>),
    /// Deletes the record, if there is one, and remembers the token as dead (C2).
    Release(LeaseToken),
    /// Remembers the token as dead (C2), and stores the record, if one is given, in place of what
    /// is there.
    Bury(LeaseToken, Option<Box<Record>>),
}

/// A claim's answer, and what must be written before it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<T> {
    /// What to answer, once the write holds.
    pub answer: T,
    /// What to write, if the record is still as it was read.
    pub write: Write,
}

impl<T> Decision<T> {
    fn answer(answer: T) -> Self {
        Self { answer, write: Write::Keep }
    }

    fn put(answer: T, record: Record) -> Self {
        Self { answer, write: Write::Put(Box::new(record)) }
    }
}

/// Whether the token was released before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Not that anybody knows.
    Alive,
    /// It was.
    Dead,
}

/// Decides a claim. `arrived` is the store's time less the claim's age, taken when the call was
/// made, so that a queue does not make the request look younger.
#[must_use]
pub fn claim(
    found: Option<&Record>,
    claim: &Claim,
    token: Token,
    arrived: Stamp,
    at: Moment,
) -> Decision<Claimed> {
    if token == Token::Dead {
        return Decision::answer(Claimed::Lost);
    }
    let Some(record) = found.filter(|record| record.standing(at.now) != Standing::Gone) else {
        return first_run(claim, at);
    };
    if record.principal != claim.principal {
        return Decision::answer(Claimed::OtherPrincipal);
    }
    let standing = record.standing(at.now);
    if record.fingerprint.relation(&claim.fingerprint) == Relation::Differs {
        return Decision::answer(Claimed::Mismatch { first: standing });
    }
    match &record.state {
        State::Completed { .. } if standing == Standing::Tombstone => {
            Decision::answer(Claimed::Expired)
        }
        State::Completed { outcome, expires, .. } => Decision::answer(Claimed::Completed {
            outcome: outcome.clone(),
            expires_in: expires.since(at.now),
        }),
        State::Retry { .. } if record.token == claim.token => Decision::answer(Claimed::Lost),
        State::Retry { status, at: ended, .. } if *ended > arrived => {
            Decision::answer(Claimed::Ended { status: Some(*status), attempt: record.attempt })
        }
        State::Retry { .. } => run(record, claim, record.attempt.saturating_add(1), at),
        State::InProgress { .. } if record.token == claim.token => {
            run(record, claim, record.attempt, at)
        }
        State::InProgress { lease_until } if *lease_until > at.now => {
            Decision::answer(Claimed::InProgress {
                version: record.version,
                retry_after: lease_until.since(at.now),
            })
        }
        State::InProgress { lease_until } => {
            unknown(record, claim, (Why::LeaseEnded, *lease_until, *lease_until), arrived, at)
        }
        // Its holder said nothing, and here it comes (C2): only the store was away.
        state @ State::Unknown { .. } if record.token == claim.token && is_unsaid(state) => {
            run(record, claim, record.attempt, at)
        }
        State::Unknown { why, since, not_before, .. } => {
            unknown(record, claim, (*why, *since, *not_before), arrived, at)
        }
    }
}

fn first_run(claim: &Claim, at: Moment) -> Decision<Claimed> {
    let lease = Lease { id: claim.id, token: claim.token, attempt: 1 };
    let record = Record {
        id: claim.id,
        kind: claim.kind,
        scope: claim.scope.clone(),
        key: claim.key.clone(),
        principal: claim.principal.clone(),
        fingerprint: claim.fingerprint,
        token: claim.token,
        attempt: 1,
        version: at.next,
        created: at.now,
        horizon: claim.horizon,
        memo: claim.memo.clone(),
        reference: None,
        state: State::InProgress { lease_until: at.now.after(claim.lease) },
        audit: Vec::new(),
    };
    Decision::put(Claimed::Acquired(lease), record)
}

/// Hands the record to `claim`. Identity stays as it was first written.
fn run(record: &Record, claim: &Claim, attempt: u32, at: Moment) -> Decision<Claimed> {
    let lease = Lease { id: record.id, token: claim.token, attempt };
    let record = Record {
        token: claim.token,
        attempt,
        version: at.next,
        state: State::InProgress { lease_until: at.now.after(claim.lease) },
        ..record.clone()
    };
    Decision::put(Claimed::Acquired(lease), record)
}

fn unknown(
    record: &Record,
    claim: &Claim,
    (why, since, not_before): (Why, Stamp, Stamp),
    arrived: Stamp,
    at: Moment,
) -> Decision<Claimed> {
    let told = Claimed::Unknown {
        version: record.version,
        attempt: record.attempt,
        since: at.now.since(since),
        why,
    };
    match claim.on_unknown {
        _ if not_before > at.now => Decision::answer(told),
        // A late copy of the claim whose holder gave up: one token is never two attempts.
        _ if record.token == claim.token => Decision::answer(told),
        OnUnknown::Hold => Decision::answer(told),
        OnUnknown::Ask => run(record, claim, record.attempt, at),
        // The request was there while that run lasted: only a later one starts the next (C4).
        OnUnknown::TakeOver if since > arrived => {
            Decision::answer(Claimed::Ended { status: None, attempt: record.attempt })
        }
        OnUnknown::TakeOver => run(record, claim, record.attempt.saturating_add(1), at),
    }
}

/// What a stale token is told.
fn lost(found: Option<&Record>) -> Decision<Held> {
    Decision::answer(Held::Lost { attempt: found.map(|record| record.attempt) })
}

fn ours(record: &Record, expires_in: Duration) -> Held {
    Held::Ours { attempt: record.attempt, expires_in }
}

/// The record, if it is there and bears the lease's token.
fn held<'a>(found: Option<&'a Record>, lease: &Lease) -> Option<&'a Record> {
    found.filter(|record| record.token == lease.token && lease.token != LeaseToken::NOBODY)
}

/// Decides a renewal. It brings no unknown record back: an ending that was said stays said.
#[must_use]
pub fn renew(
    found: Option<&Record>,
    lease: &Lease,
    ttl: Duration,
    note: Option<&Note>,
    at: Moment,
) -> Decision<Held> {
    let Some(record) = held(found, lease) else { return lost(found) };
    match &record.state {
        State::InProgress { .. } => {}
        State::Unknown { .. } => return Decision::answer(ours(record, Duration::ZERO)),
        State::Completed { .. } | State::Retry { .. } => return lost(found),
    }
    let mut renewed = record.clone();
    renewed.state = State::InProgress { lease_until: at.now.after(ttl) };
    match note {
        // A lease alone is no news: whoever waits for the record need not wake.
        None => {}
        Some(Note::Reference(reference)) => {
            renewed.reference = Some(reference.clone());
            renewed.version = at.next;
        }
        Some(Note::Starts(attempt)) => {
            renewed.attempt = *attempt;
            renewed.version = at.next;
        }
    }
    Decision::put(ours(&renewed, ttl), renewed)
}

/// Decides a completion. It also decides an unknown record, as long as the token is its own.
#[must_use]
pub fn complete(
    found: Option<&Record>,
    lease: &Lease,
    outcome: &Outcome,
    keep: Retention,
    at: Moment,
) -> Decision<Held> {
    let Some(record) = held(found, lease) else { return lost(found) };
    match &record.state {
        State::InProgress { .. } | State::Unknown { .. } => {
            let record = Record {
                version: at.next,
                state: completed(outcome, keep, at.now),
                ..record.clone()
            };
            Decision::put(ours(&record, keep.keep), record)
        }
        // The same call again (X4): what was written stays.
        State::Completed { expires, .. } => Decision::answer(ours(record, expires.since(at.now))),
        State::Retry { .. } => lost(found),
    }
}

fn completed(outcome: &Outcome, keep: Retention, now: Stamp) -> State {
    let expires = now.after(keep.keep);
    State::Completed {
        outcome: outcome.clone(),
        at: now,
        expires,
        gone: expires.after(keep.tombstone),
    }
}

/// Decides the end of a run without an outcome.
#[must_use]
pub fn end(
    found: Option<&Record>,
    lease: &Lease,
    token: Token,
    how: Ending,
    at: Moment,
) -> Decision<Held> {
    if let Ending::TakeBack { on_unknown } = how {
        return take_back(found, lease, token, on_unknown, at);
    }
    let Some(record) = held(found, lease) else {
        return not_held(found, lease, token, how);
    };
    match (&record.state, how) {
        (State::InProgress { .. } | State::Unknown { .. }, Ending::Release) => {
            Decision { answer: ours(record, Duration::ZERO), write: Write::Release(record.token) }
        }
        (State::InProgress { .. } | State::Unknown { .. }, Ending::Retry { status, keep }) => {
            let state = State::Retry { status, at: at.now, expires: at.now.after(keep.keep) };
            let record = Record { version: at.next, state, ..record.clone() };
            Decision::put(ours(&record, keep.keep), record)
        }
        (State::InProgress { .. }, Ending::Unknown { why, after }) => {
            let state = State::Unknown {
                why,
                since: at.now,
                not_before: at.now.after(after),
                horizon: at.now.after(record.horizon),
            };
            let record = Record { version: at.next, state, ..record.clone() };
            Decision::put(ours(&record, record.horizon), record)
        }
        // The same ending again.
        (State::Unknown { horizon, .. }, Ending::Unknown { .. }) => {
            Decision::answer(ours(record, horizon.since(at.now)))
        }
        (State::Retry { expires, .. }, Ending::Retry { .. }) => {
            Decision::answer(ours(record, expires.since(at.now)))
        }
        (State::Retry { .. } | State::Completed { .. }, _) => lost(found),
        // Decided above.
        (_, Ending::TakeBack { .. }) => lost(found),
    }
}

/// Whether a run began and its holder has not said how it ended.
fn is_unsaid(state: &State) -> bool {
    match state {
        State::InProgress { .. } => true,
        State::Unknown { why, .. } => matches!(why, Why::LeaseEnded | Why::ProcessEnded),
        State::Completed { .. } | State::Retry { .. } => false,
    }
}

/// Decides about a claim whose answer never came. What it did not write itself is left alone,
/// and it must find its token dead, however late it arrives (C2).
fn take_back(
    found: Option<&Record>,
    lease: &Lease,
    token: Token,
    on_unknown: OnUnknown,
    at: Moment,
) -> Decision<Held> {
    let undone = |attempt| Held::Ours { attempt, expires_in: Duration::ZERO };
    if token == Token::Dead {
        return Decision::answer(undone(lease.attempt));
    }
    let bury = |answer| Decision { answer, write: Write::Bury(lease.token, None) };
    let Some(record) = held(found, lease) else {
        let theirs = found.map(|record| Held::Lost { attempt: Some(record.attempt) });
        return bury(theirs.unwrap_or(undone(lease.attempt)));
    };
    if !is_unsaid(&record.state) {
        // Its answer did come: the run said how it ended.
        return lost(found);
    }
    let state = match on_unknown {
        // The first attempt follows no other, but for one that only asks and counts none.
        OnUnknown::Hold | OnUnknown::TakeOver if record.attempt <= 1 => {
            let write = Write::Release(record.token);
            return Decision { answer: undone(record.attempt), write };
        }
        // It takes over no unknown record, so the run before had ended in `retry`.
        OnUnknown::Hold => {
            State::Retry { status: 0, at: at.now, expires: at.now.after(record.horizon) }
        }
        OnUnknown::Ask | OnUnknown::TakeOver => State::Unknown {
            why: Why::Abandoned,
            since: at.now,
            not_before: at.now,
            horizon: at.now.after(record.horizon),
        },
    };
    // The attempt stays: a number that was given out is given out once. Nothing ran under the
    // token, so nothing can come of it late.
    let token = LeaseToken::NOBODY;
    let left = Record { token, version: at.next, state, ..record.clone() };
    Decision { answer: undone(left.attempt), write: Write::Bury(lease.token, Some(Box::new(left))) }
}

fn not_held(found: Option<&Record>, lease: &Lease, token: Token, how: Ending) -> Decision<Held> {
    let released = Held::Ours { attempt: lease.attempt, expires_in: Duration::ZERO };
    match (how, token, found) {
        // The same release again: the record is gone, or somebody else's by now.
        (Ending::Release, Token::Dead, _) => Decision::answer(released),
        // The claim may still be on its way: it must find its token dead (C2).
        (Ending::Release, Token::Alive, None) => {
            Decision { answer: released, write: Write::Release(lease.token) }
        }
        _ => lost(found),
    }
}

/// Decides a person's change: only against the version seen, never to a held record (U3, U4).
#[must_use]
pub fn change(
    found: Option<&Record>,
    seen: Version,
    change: &Change,
    by: &By,
    at: Moment,
) -> Decision<Changed> {
    let found = found.filter(|record| record.standing(at.now) != Standing::Gone);
    let Some(record) = found.filter(|record| record.version == seen) else {
        return Decision::answer(Changed::Moved(found.cloned().map(Box::new)));
    };
    match record.standing(at.now) {
        Standing::InProgress => return Decision::answer(Changed::Held),
        Standing::Completed | Standing::Tombstone => return Decision::answer(Changed::Final),
        Standing::Unknown | Standing::Retry | Standing::Gone => {}
    }
    let state = match change {
        Change::Release => {
            let write = Write::Release(record.token);
            return Decision { answer: Changed::Made(Version::ABSENT), write };
        }
        Change::Complete(outcome, keep) => completed(outcome, *keep, at.now),
        // The change counts as the moment from which a later request may run.
        Change::Retry(keep) => {
            State::Retry { status: 0, at: at.now, expires: at.now.after(keep.keep) }
        }
    };
    let mut changed =
        Record { token: LeaseToken::NOBODY, version: at.next, state, ..record.clone() };
    if changed.audit.len() == Record::MAX_AUDIT {
        changed.audit.remove(0);
    }
    changed.audit.push(Audit { who: by.who.clone(), reason: by.reason.clone(), at: at.now });
    Decision::put(Changed::Made(at.next), changed)
}

/// Decides whether recovery may take `record`: unknown, untouched for `stale_for`, its kind and
/// attempts as wanted. The attempt stays as it was.
#[must_use]
pub fn recover(
    record: &Record,
    stale_for: Duration,
    ttl: Duration,
    max_attempts: u32,
    at: Moment,
) -> Option<(Record, Lease)> {
    let touched = match &record.state {
        State::InProgress { lease_until } => *lease_until,
        State::Unknown { since, not_before, .. } => (*since).max(*not_before),
        State::Completed { .. } | State::Retry { .. } => return None,
    };
    let stale = at.now >= touched.after(stale_for) && at.now >= touched;
    if record.standing(at.now) != Standing::Unknown || !stale || record.attempt > max_attempts {
        return None;
    }
    let token = LeaseToken::random();
    let lease = Lease { id: record.id, token, attempt: record.attempt };
    let state = State::InProgress { lease_until: at.now.after(ttl) };
    Some((Record { token, version: at.next, state, ..record.clone() }, lease))
}

/// What a record in progress becomes when the process that held it is known to have ended.
#[must_use]
pub fn orphan(record: &Record, at: Moment) -> Option<Record> {
    let State::InProgress { .. } = record.state else { return None };
    let state = State::Unknown {
        why: Why::ProcessEnded,
        since: at.now,
        not_before: at.now,
        horizon: at.now.after(record.horizon),
    };
    Some(Record { version: at.next, state, ..record.clone() })
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

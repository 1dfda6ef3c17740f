//! What every store refuses to take, so that no record grows without a limit.
//!
//! The check comes before a store looks at anything, and answers
//! [`StoreErrorKind::OutOfBounds`]: nothing was read and nothing was written.

use crate::record::{LeaseToken, Outcome, Record};
use crate::store::{By, Change, Claim, Note, StoreError, StoreErrorKind};

/// The longest part of a scope, in bytes: the longest path that HTTP servers take.
const MAX_SCOPE_PART: usize = 65_535;

/// The longest outcome that any store takes, in bytes. Faces keep to much less.
pub const MAX_OUTCOME: usize = 16 << 20;

/// The longest outcome that every store takes, however full it is (X5): status and headers.
const SMALL_OUTCOME: usize = 68 << 10;

/// The longest name of somebody who makes a change, in bytes.
const MAX_WHO: usize = 255;

/// The longest reason for a change, in bytes.
const MAX_REASON: usize = 2048;

/// Checks what a claim would store.
pub(crate) fn claim(claim: &Claim) -> Result<(), StoreError> {
    // Nobody could complete what nobody holds.
    if claim.token == LeaseToken::NOBODY {
        return Err(StoreError::new(StoreErrorKind::OutOfBounds));
    }
    let scope = &claim.scope;
    for part in [&scope.namespace, &scope.tenant, &scope.operation] {
        within(part.len(), MAX_SCOPE_PART)?;
    }
    within(claim.memo.len(), Record::MAX_MEMO)
}

/// Checks what a renewal would store.
pub(crate) fn note(note: Option<&Note>) -> Result<(), StoreError> {
    match note {
        Some(Note::Reference(reference)) => within(reference.len(), Record::MAX_REFERENCE),
        Some(Note::Starts(_)) | None => Ok(()),
    }
}

/// Checks what a completion would store.
pub(crate) fn outcome(outcome: &Outcome) -> Result<(), StoreError> {
    within(outcome.bytes().len(), MAX_OUTCOME)
}

/// Whether a store that is short of room may refuse this outcome, for its caller to lessen it.
pub(crate) fn is_large(outcome: &Outcome) -> bool {
    outcome.bytes().len() > SMALL_OUTCOME
}

/// Checks what a person's change would store.
pub(crate) fn change(change: &Change, by: &By) -> Result<(), StoreError> {
    within(by.who.len(), MAX_WHO)?;
    within(by.reason.len(), MAX_REASON)?;
    match change {
        Change::Complete(written, _) => outcome(written),
        Change::Retry(_) | Change::Release => Ok(()),
    }
}

fn within(len: usize, most: usize) -> Result<(), StoreError> {
    if len <= most { Ok(()) } else { Err(StoreError::new(StoreErrorKind::OutOfBounds)) }
}

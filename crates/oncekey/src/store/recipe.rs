//! Whether a claim met a fingerprint of another recipe (F1), for the line in the log.

use crate::clock::Stamp;
use crate::fingerprint::Relation;
use crate::record::{Record, Standing};
use crate::store::Claim;

/// Whether `claim` counted as equal to `found` only because another recipe made its fingerprint.
///
/// Asked where the record is at hand; `events::other_recipe` tells it later, when no lock is held.
pub(crate) fn is_other(found: Option<&Record>, claim: &Claim, now: Stamp) -> bool {
    found.is_some_and(|record| {
        record.fingerprint.relation(&claim.fingerprint) == Relation::OtherRecipe
            && record.principal == claim.principal
            && record.standing(now) != Standing::Gone
    })
}

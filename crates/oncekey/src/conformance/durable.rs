//! What outlives the store's process.

use super::hands::{Place, acquired};
use super::{Hands, Verdict, ensure};
use crate::fingerprint::{Fingerprint, Recipe};
use crate::record::{Outcome, Standing, Why};
use crate::store::{Claim, Claimed, Ending, Held, Note};

/// Every write that was acknowledged is there when the store is opened again; what was in progress
/// is at worst unknown, never absent.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn acknowledged_is_kept(hands: Hands) -> Verdict {
    let _ = hands.leave("retry", Place::Retry).await?;
    let unknown = hands.leave("unknown", Place::Unknown).await?;
    let held = hands.take("held").await?;
    let note = Note::Reference("ch_1".into());
    let renewed = hands.store.renew(&held, hands.units(10), Some(&note)).await?;
    ensure!(renewed, Held::Ours { .. }, "the holder renews");
    let released = hands.take("released").await?;
    let ended = hands.store.end(&released, Ending::Release).await?;
    ensure!(ended, Held::Ours { .. }, "the holder releases");
    let text = |number: usize| Outcome::new(format!("outcome {number}").into_bytes());
    for number in 0..50 {
        let lease = hands.take(&format!("completed-{number}")).await?;
        let done = hands.store.complete(&lease, &text(number), hands.keep(1_000)).await?;
        ensure!(done, Held::Ours { .. }, "the holder completes");
    }

    let hands = hands.reopen().await?;
    let store = &hands.store;
    for number in 0..50 {
        let told = store.claim(&hands.claim(&format!("completed-{number}"))).await?;
        ensure!(
            told,
            Claimed::Completed { outcome, .. } if outcome == text(number),
            "an outcome that was acknowledged is kept"
        );
    }
    let other = Fingerprint::from_parts(Recipe::from_number(1), [2; 32]);
    let told = store.claim(&Claim { fingerprint: other, ..hands.claim("retry") }).await?;
    ensure!(told, Claimed::Mismatch { first: Standing::Retry }, "an ending in retry is kept");
    let told = store.claim(&hands.claim("unknown")).await?;
    ensure!(
        told,
        Claimed::Unknown { why: Why::Abandoned, attempt: 1, .. },
        "an unknown record is kept, with its reason"
    );
    let told = store.claim(&hands.claim("held")).await?;
    ensure!(
        told,
        Claimed::InProgress { .. } | Claimed::Unknown { attempt: 1, .. },
        "what was in progress is at worst unknown"
    );
    let record = store.get(&held.id).await?;
    ensure!(
        record,
        Some(record) if record.reference.as_deref() == Some("ch_1"),
        "a reference that was acknowledged is kept"
    );
    for lease in [held, unknown] {
        let late = store.complete(&lease, &text(0), hands.keep(1_000)).await?;
        ensure!(late, Held::Ours { attempt: 1, .. }, "the own token still decides");
    }
    let fresh = acquired(store.claim(&hands.claim("released")).await?)?;
    ensure!(fresh.attempt, 1, "what was released stays forgotten");
    Ok(())
}

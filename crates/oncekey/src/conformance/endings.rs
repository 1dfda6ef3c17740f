//! How runs end, and who may say so (L2, C4, U1).

use std::sync::Arc;
use std::time::Duration;

use super::hands::{Place, acquired, race};
use super::{Hands, Verdict, ensure};
use crate::fingerprint::{Fingerprint, Recipe};
use crate::record::{Outcome, Principal, Record, Standing, State, Why};
use crate::store::{Claim, Claimed, Ending, Held, Note, OnUnknown, StoreErrorKind};

fn outcome(text: &str) -> Outcome {
    Outcome::new(text.as_bytes().to_vec())
}

/// Every ending that is not an outcome.
fn endings(hands: &Hands) -> [Ending; 3] {
    [
        Ending::Release,
        Ending::Retry { status: 500, keep: hands.keep(100) },
        Ending::Unknown { why: Why::Stopped, after: Duration::ZERO },
    ]
}

/// An outcome is written once; the same token is told that it holds, and nothing changes it.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn outcome_once(hands: Hands) -> Verdict {
    let store = &hands.store;
    for round in 0..20 {
        let name = format!("raced-{round}");
        let lease = hands.take(&name).await?;
        let keep = hands.keep(100);
        race(8, |number| {
            let store = Arc::clone(store);
            async move {
                let held = store.complete(&lease, &outcome(&number.to_string()), keep).await?;
                ensure!(held, Held::Ours { .. }, "a completion can be repeated");
                Ok(())
            }
        })
        .await?;
        let first = store.claim(&hands.claim(&name)).await?;
        ensure!(first, Claimed::Completed { .. }, "a completed record is replayed");
        let held = store.complete(&lease, &outcome("later"), keep).await?;
        ensure!(held, Held::Ours { .. }, "a completion can be repeated");
        for how in endings(&hands) {
            let held = store.end(&lease, how).await?;
            ensure!(held, Held::Lost { .. }, "a completed record has no other ending");
        }
        let held = store.renew(&lease, hands.units(10), None).await?;
        ensure!(held, Held::Lost { .. }, "a completed record is renewed no more");
        let again = store.claim(&hands.claim(&name)).await?;
        let (Claimed::Completed { outcome: first, .. }, Claimed::Completed { outcome, .. }) =
            (&first, &again)
        else {
            return Err(super::Failure::broken("a completed record stays completed", &again));
        };
        let same = outcome == first && outcome.bytes().len() == 1;
        ensure!((same, outcome), (true, _), "the outcome stays what it was");
    }
    Ok(())
}

/// A completion by the record's own token decides an unknown record.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn late_complete_decides_unknown(hands: Hands) -> Verdict {
    let store = &hands.store;
    let abandoned = hands.leave("abandoned", Place::Unknown).await?;
    let lapsed = hands.take("lapsed").await?;
    hands.pass(11).await;
    let told = store.claim(&hands.claim("lapsed")).await?;
    ensure!(told, Claimed::Unknown { .. }, "a lease that ended leaves an unknown record");
    for (name, lease) in [("abandoned", abandoned), ("lapsed", lapsed)] {
        let held = store.complete(&lease, &outcome("late"), hands.keep(100)).await?;
        ensure!(held, Held::Ours { .. }, "a late completion by the own token is taken");
        let told = store.claim(&hands.claim(name)).await?;
        ensure!(
            told,
            Claimed::Completed { outcome: found, .. } if found == outcome("late"),
            "a late completion decides an unknown record"
        );
    }
    Ok(())
}

/// A token that the record no longer bears changes nothing and is told so.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn stale_token_is_lost(hands: Hands) -> Verdict {
    let store = &hands.store;
    let stale = hands.take("stolen").await?;
    hands.pass(11).await;
    let claim = Claim { on_unknown: OnUnknown::TakeOver, ..hands.claim("stolen") };
    let holder = acquired(store.claim(&claim).await?)?;
    let before = store.get(&claim.id).await?;
    let keep = hands.keep(100);
    for _ in 0..2 {
        let told = store.complete(&stale, &outcome("stale"), keep).await?;
        ensure!(told, Held::Lost { attempt: Some(2) }, "a stale token completes nothing");
        let note = Note::Reference("stale".into());
        let told = store.renew(&stale, hands.units(500), Some(&note)).await?;
        ensure!(told, Held::Lost { attempt: Some(2) }, "a stale token renews nothing");
        for how in endings(&hands) {
            let told = store.end(&stale, how).await?;
            ensure!(told, Held::Lost { attempt: Some(2) }, "a stale token ends nothing");
        }
    }
    ensure!(store.get(&claim.id).await? == before, true, "a stale token changes nothing");
    let held = store.complete(&holder, &outcome("holder"), keep).await?;
    ensure!(held, Held::Ours { attempt: 2, .. }, "the holder is not disturbed");
    let told = store.complete(&stale, &outcome("stale"), keep).await?;
    ensure!(told, Held::Lost { attempt: Some(2) }, "another's outcome is not the stale token's");

    let gone = hands.leave("gone", Place::Held).await?;
    ensure!(store.end(&gone, Ending::Release).await?, Held::Ours { .. }, "the holder releases");
    let told = store.complete(&gone, &outcome("gone"), keep).await?;
    ensure!(told, Held::Lost { attempt: None }, "what was released is not completed");
    ensure!(store.get(&gone.id).await?, None, "a stale token makes no record");
    Ok(())
}

/// A run that ended in `retry` leaves fingerprint, principal and attempt; a request that was there
/// while it ran is told of its end, a later one runs.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn retry_keeps_fingerprint(hands: Hands) -> Verdict {
    let store = &hands.store;
    let lease = hands.take("retried").await?;
    hands.pass(2).await;
    let how = Ending::Retry { status: 503, keep: hands.keep(50) };
    for _ in 0..2 {
        let held = store.end(&lease, how).await?;
        ensure!(held, Held::Ours { attempt: 1, .. }, "an ending in retry can be repeated");
    }
    hands.pass(1).await;
    let other = Fingerprint::from_parts(Recipe::from_number(1), [2; 32]);
    let told = store.claim(&Claim { fingerprint: other, ..hands.claim("retried") }).await?;
    let first = Standing::Retry;
    ensure!(told, Claimed::Mismatch { first: f } if f == first, "retry keeps the fingerprint");
    let waited = Claim { age: hands.units(2), ..hands.claim("retried") };
    let told = store.claim(&waited).await?;
    ensure!(
        told,
        Claimed::Ended { status: Some(503), attempt: 1 },
        "a request that was there while the run lasted starts no other"
    );
    let next = hands.take("retried").await?;
    ensure!(next.attempt, 2, "a later request runs, as the next attempt");
    let told = store.end(&lease, how).await?;
    ensure!(told, Held::Lost { attempt: Some(2) }, "the former run is over");
    Ok(())
}

/// A record is unknown once its holder said so or its lease ended; it is told with why and since
/// when, and taken over only as asked, and no earlier than allowed.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn unknown_is_told(hands: Hands) -> Verdict {
    let store = &hands.store;
    let lease = hands.take("said").await?;
    let how = Ending::Unknown { why: Why::Panicked, after: hands.units(5) };
    for _ in 0..2 {
        let held = store.end(&lease, how).await?;
        ensure!(held, Held::Ours { .. }, "abandoning can be repeated");
    }
    hands.pass(2).await;
    for on_unknown in [OnUnknown::Hold, OnUnknown::Ask, OnUnknown::TakeOver] {
        let told = store.claim(&Claim { on_unknown, ..hands.claim("said") }).await?;
        ensure!(
            told,
            Claimed::Unknown { attempt: 1, why: Why::Panicked, since, .. }
                if since >= hands.units(1),
            "an unknown record is told, and not taken over early"
        );
    }
    hands.pass(4).await;
    let told = store.claim(&hands.claim("said")).await?;
    ensure!(told, Claimed::Unknown { .. }, "holding never takes over");
    let waited =
        Claim { on_unknown: OnUnknown::TakeOver, age: hands.units(20), ..hands.claim("said") };
    let told = store.claim(&waited).await?;
    ensure!(
        told,
        Claimed::Ended { status: None, attempt: 1 },
        "a request that was there while the run lasted starts no other"
    );
    let held = store.renew(&lease, hands.units(10), None).await?;
    ensure!(held, Held::Ours { .. }, "nobody took the record");
    let told = store.claim(&hands.claim("said")).await?;
    ensure!(told, Claimed::Unknown { .. }, "a renewal brings no unknown record back");
    let _ = hands.take("silent").await?;
    hands.pass(11).await;
    let told = store.claim(&hands.claim("silent")).await?;
    ensure!(
        told,
        Claimed::Unknown { attempt: 1, why: Why::LeaseEnded, .. },
        "a lease that ended leaves an unknown record"
    );
    Ok(())
}

/// A release leaves nothing: the key is new, for anybody and for anything.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn release_forgets(hands: Hands) -> Verdict {
    let store = &hands.store;
    let held = hands.leave("held", Place::Held).await?;
    let unknown = hands.leave("unknown", Place::Unknown).await?;
    for (name, lease) in [("held", held), ("unknown", unknown)] {
        let before = store.get(&lease.id).await?.map(|record| record.version);
        let released = store.end(&lease, Ending::Release).await?;
        ensure!(released, Held::Ours { .. }, "the holder releases");
        ensure!(store.get(&lease.id).await?, None, "a released record is gone");
        let other = Fingerprint::from_parts(Recipe::from_number(1), [2; 32]);
        let claim =
            Claim { principal: Principal::named("bob"), fingerprint: other, ..hands.claim(name) };
        let next = acquired(store.claim(&claim).await?)?;
        ensure!(next.attempt, 1, "a released key is new");
        let after = store.get(&lease.id).await?.map(|record| record.version);
        ensure!(after > before, true, "versions grow over a release too");
    }
    Ok(())
}

/// What is within bounds is kept byte for byte; what is beyond them is refused and changes
/// nothing.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn bounds(hands: Hands) -> Verdict {
    let store = &hands.store;
    let memo: Vec<u8> = (0..Record::MAX_MEMO).map(|number| number.to_le_bytes()[0]).collect();
    let claim = Claim { memo: memo.clone().into(), ..hands.claim(&"k".repeat(255)) };
    let lease = acquired(store.claim(&claim).await?)?;
    let reference = "r".repeat(Record::MAX_REFERENCE);
    let note = Note::Reference(reference.clone().into());
    let held = store.renew(&lease, hands.units(10), Some(&note)).await?;
    ensure!(held, Held::Ours { .. }, "the longest reference is kept");
    let longer = Note::Reference(format!("{reference}r").into());
    let refused = store.renew(&lease, hands.units(10), Some(&longer)).await;
    ensure!(
        refused,
        Err(error) if error.kind() == StoreErrorKind::OutOfBounds,
        "a longer reference is refused"
    );
    let memo_too_long = Claim { memo: [&memo[..], b"x"].concat().into(), ..hands.claim("longer") };
    let refused = store.claim(&memo_too_long).await;
    ensure!(
        refused,
        Err(error) if error.kind() == StoreErrorKind::OutOfBounds,
        "a longer memo is refused"
    );
    let large: Vec<u8> = (0..1 << 20_u32).map(|number: u32| number.to_le_bytes()[1]).collect();
    let held = store.complete(&lease, &Outcome::new(large.clone()), hands.keep(50)).await?;
    ensure!(held, Held::Ours { .. }, "an outcome of a mebibyte is kept");
    let record = store.get(&claim.id).await?;
    let whole = record.as_ref().is_some_and(|record| {
        let State::Completed { outcome, .. } = &record.state else { return false };
        record.key == claim.key
            && record.scope == claim.scope
            && record.principal == claim.principal
            && record.fingerprint == claim.fingerprint
            && record.memo == memo
            && record.reference.as_deref() == Some(&*reference)
            && *outcome.bytes() == large
    });
    ensure!((whole, record), (true, _), "what is within bounds is kept byte for byte");
    let empty = hands.take("empty").await?;
    let held = store.complete(&empty, &Outcome::default(), hands.keep(50)).await?;
    ensure!(held, Held::Ours { .. }, "an empty outcome is an outcome");
    let told = store.claim(&hands.claim("empty")).await?;
    ensure!(told, Claimed::Completed { .. }, "an empty outcome is replayed");
    Ok(())
}

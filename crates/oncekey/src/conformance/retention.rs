//! What stays, how long, and by whose clock (T1, T2, L4, U3, U4).

use std::sync::Arc;
use std::time::Duration;

use super::hands::{Place, acquired, race};
use super::{Failure, Hands, Verdict, ensure};
use crate::decide::SHRINK_AFTER;
use crate::fingerprint::{Fingerprint, Recipe};
use crate::key::RecordId;
use crate::record::{Kind, LeaseToken, Outcome, Principal, Standing, Why};
use crate::store::{Claim, Claimed, Ending, Held, OnUnknown};

/// More than any rule leaves.
const ALL: usize = 100_000;

async fn completed(hands: &Hands, name: &str, keep: u32, tombstone: u32) -> Verdict {
    let lease = hands.take(name).await?;
    let keep = hands.keep(keep).with_tombstone(hands.units(tombstone));
    let held = hands.store.complete(&lease, &Outcome::new(&b"done"[..]), keep).await?;
    ensure!(held, Held::Ours { .. }, "the holder completes");
    Ok(())
}

/// A record that is unknown or in progress is neither ended nor made new by any retention.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn unknown_outlives_retention(hands: Hands) -> Verdict {
    let store = &hands.store;
    // The first run's retention must not end the second run.
    let first = hands.take("again").await?;
    let how = Ending::Retry { status: 503, keep: hands.keep(2) };
    ensure!(store.end(&first, how).await?, Held::Ours { .. }, "the holder ends in retry");
    let second = hands.take("again").await?;
    ensure!(second.attempt, 2, "a later request runs");
    let _ = hands.leave("said", Place::Unknown).await?;
    let _ = hands.take("silent").await?;
    for _ in 0..3 {
        hands.pass(11).await;
        store.purge_expired(ALL).await?;
        for (name, reason) in
            [("again", Why::LeaseEnded), ("said", Why::Abandoned), ("silent", Why::LeaseEnded)]
        {
            let told = store.claim(&hands.claim(name)).await?;
            ensure!(
                told,
                Claimed::Unknown { why, .. } if why == reason,
                "an unknown record outlives every retention"
            );
        }
    }
    let late = store.complete(&second, &Outcome::new(&b"late"[..]), hands.keep(10)).await?;
    ensure!(late, Held::Ours { attempt: 2, .. }, "and its token still decides it");
    Ok(())
}

/// An unknown request ends by a purge, after the horizon that began when it became unknown, and by
/// nothing else: then its key is new and its token stale. What is no request never ends so.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn unknown_ends_after_its_horizon(hands: Hands) -> Verdict {
    let store = &hands.store;
    let short = |name| Claim { horizon: hands.units(20), ..hands.claim(name) };
    let event = {
        let claim = short("event");
        let id = RecordId::derive(Kind::Event, &claim.scope, &claim.key);
        Claim { id, kind: Kind::Event, ..claim }
    };
    let said = acquired(store.claim(&short("said")).await?)?;
    let happened = acquired(store.claim(&event).await?)?;
    for lease in [&said, &happened] {
        let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
        ensure!(store.end(lease, how).await?, Held::Ours { .. }, "the holder abandons");
    }
    let _ = acquired(store.claim(&short("silent")).await?)?;
    let again = |claim: &Claim| Claim { token: LeaseToken::random(), ..claim.clone() };
    hands.pass(11).await;
    store.purge_expired(ALL).await?;
    for claim in [&short("said"), &short("silent"), &event] {
        let told = store.claim(&again(claim)).await?;
        ensure!(told, Claimed::Unknown { .. }, "an unknown record is kept for its horizon");
    }
    hands.pass(10).await;
    let told = store.claim(&short("said")).await?;
    ensure!(told, Claimed::Unknown { .. }, "no claim ends an unknown record, however old it is");
    store.purge_expired(ALL).await?;
    let lease = acquired(store.claim(&short("said")).await?)?;
    ensure!(lease.attempt, 1, "beyond its horizon a purge ends it, and its key is new");
    let late = store.complete(&said, &Outcome::default(), hands.keep(10)).await?;
    ensure!(late, Held::Lost { .. }, "the token of a record that ended is stale");
    let told = store.claim(&short("silent")).await?;
    ensure!(told, Claimed::Unknown { .. }, "the horizon counts from the lease's end");
    hands.pass(10).await;
    store.purge_expired(ALL).await?;
    let lease = acquired(store.claim(&short("silent")).await?)?;
    ensure!(lease.attempt, 1, "and ends what nobody said anything about");
    let told = store.claim(&again(&event)).await?;
    ensure!(told, Claimed::Unknown { .. }, "only requests end by their horizon");
    Ok(())
}

/// An unknown request that has shrunk is told as before, and its token still decides it. Only time
/// that is told passes for long enough; else the rule asks the same of one that has not shrunk.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn shrunk_unknown_is_told(hands: Hands) -> Verdict {
    let store = &hands.store;
    let lease = hands.leave("shrunk", Place::Unknown).await?;
    let seen = match store.claim(&hands.claim("shrunk")).await? {
        Claimed::Unknown { version, .. } => version,
        other => return Err(Failure::broken("an unknown record is told", &other)),
    };
    hands.pass_if_told(SHRINK_AFTER).await;
    for _ in 0..2 {
        store.purge_expired(ALL).await?;
    }
    let told = store.claim(&hands.claim("shrunk")).await?;
    ensure!(
        told,
        Claimed::Unknown { version, attempt: 1, why: Why::Abandoned, .. } if version == seen,
        "an unknown record that shrunk is told as it was, at the version it had"
    );
    let other = Fingerprint::from_parts(Recipe::from_number(1), [2; 32]);
    let told = store.claim(&Claim { fingerprint: other, ..hands.claim("shrunk") }).await?;
    ensure!(told, Claimed::Mismatch { first: Standing::Unknown }, "it keeps the fingerprint");
    let stranger = Principal::named("mallory");
    let told = store.claim(&Claim { principal: stranger, ..hands.claim("shrunk") }).await?;
    ensure!(told, Claimed::OtherPrincipal, "it keeps the principal");
    let late = store.complete(&lease, &Outcome::new(&b"late"[..]), hands.keep(10)).await?;
    ensure!(late, Held::Ours { attempt: 1, .. }, "its token still decides it");
    let told = store.claim(&hands.claim("shrunk")).await?;
    ensure!(told, Claimed::Completed { outcome, .. } if outcome.bytes() == "late", "for good");
    Ok(())
}

/// A completed record answers every repeat for its whole retention, many at once too.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn completed_holds_for_retention(hands: Hands) -> Verdict {
    completed(&hands, "kept", 30, 0).await?;
    for left in [30, 20, 10] {
        let (longest, shortest) = (hands.units(left), hands.units(left - 8));
        hands.store.purge_expired(ALL).await?;
        race(8, |_| {
            let (store, claim) = (Arc::clone(&hands.store), hands.claim("kept"));
            async move {
                let told = store.claim(&claim).await?;
                ensure!(
                    told,
                    Claimed::Completed { outcome, expires_in }
                        if outcome.bytes() == "done"
                            && expires_in <= longest
                            && expires_in >= shortest,
                    "a completed record is replayed for its whole retention"
                );
                Ok(())
            }
        })
        .await?;
        hands.pass(10).await;
    }
    Ok(())
}

/// After its retention a key is new, or, where it left a tombstone, refused as expired until that
/// is over too; whether anybody purged or not.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn expired_is_absent_or_tombstone(hands: Hands) -> Verdict {
    let store = &hands.store;
    let other = Fingerprint::from_parts(Recipe::from_number(1), [2; 32]);
    for (read, purged) in [("bare", "bare-purged"), ("stone", "stone-purged")] {
        let tombstone = if read == "stone" { 10 } else { 0 };
        completed(&hands, read, 5, tombstone).await?;
        completed(&hands, purged, 5, tombstone).await?;
    }
    let retried = hands.take("retried").await?;
    let how = Ending::Retry { status: 503, keep: hands.keep(5) };
    ensure!(store.end(&retried, how).await?, Held::Ours { .. }, "the holder ends in retry");
    hands.pass(6).await;
    for name in ["bare", "retried"] {
        ensure!(store.get(&hands.claim(name).id).await?, None, "what expired reads as absent");
        let claim = Claim { fingerprint: other, ..hands.claim(name) };
        let lease = acquired(store.claim(&claim).await?)?;
        ensure!(lease.attempt, 1, "after its retention a key is new");
    }
    store.purge_expired(ALL).await?;
    let _ = hands.take("bare-purged").await?;
    for name in ["stone", "stone-purged"] {
        let told = store.claim(&hands.claim(name)).await?;
        ensure!(told, Claimed::Expired, "a tombstone refuses its key as expired");
        let told = store.claim(&Claim { fingerprint: other, ..hands.claim(name) }).await?;
        ensure!(
            told,
            Claimed::Mismatch { first: Standing::Tombstone },
            "a tombstone keeps the fingerprint"
        );
    }
    hands.pass(10).await;
    for name in ["stone", "stone-purged"] {
        let lease = hands.take(name).await?;
        ensure!(lease.attempt, 1, "after its tombstone a key is new");
    }
    Ok(())
}

/// Leases are judged by the store's clock: a renewal counts from when it is made, and a claim says
/// how long the holder's lease still lasts.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn store_clock(hands: Hands) -> Verdict {
    let store = &hands.store;
    let lease = hands.take("renewed").await?;
    for _ in 0..3 {
        hands.pass(6).await;
        let held = store.renew(&lease, hands.units(10), None).await?;
        ensure!(
            held,
            Held::Ours { expires_in, .. } if expires_in == hands.units(10),
            "a renewal counts from when it is made"
        );
        let told = store.claim(&hands.claim("renewed")).await?;
        ensure!(
            told,
            Claimed::InProgress { retry_after, .. }
                if retry_after <= hands.units(10) && retry_after >= hands.units(5),
            "a lease that is renewed lasts, and is told with what is left of it"
        );
    }
    hands.pass(11).await;
    let told = store.claim(&hands.claim("renewed")).await?;
    ensure!(told, Claimed::Unknown { .. }, "a lease ends when nobody renews it");
    let held = store.renew(&lease, hands.units(10), None).await?;
    ensure!(
        held,
        Held::Ours { .. },
        "a lease that ended is renewed while its token is the record's"
    );
    let told = store.claim(&hands.claim("renewed")).await?;
    ensure!(told, Claimed::InProgress { .. }, "and then lasts again");
    Ok(())
}

/// Purging, and many other keys, leave alone what is alive or still kept.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn purge_spares_the_living(hands: Hands) -> Verdict {
    let store = &hands.store;
    let silent = hands.take("silent").await?;
    completed(&hands, "stone", 5, 400).await?;
    completed(&hands, "over", 5, 0).await?;
    hands.pass(11).await;
    let held = hands.take("held").await?;
    let _ = hands.leave("completed", Place::Completed).await?;
    let _ = hands.leave("retry", Place::Retry).await?;
    let _ = hands.leave("unknown", Place::Unknown).await?;
    for round in 0..400 {
        completed(&hands, &format!("other-{round}"), 100, 0).await?;
    }
    for limit in [0, 1, ALL] {
        store.purge_expired(limit).await?;
    }
    let renewed = store.renew(&held, hands.units(10), None).await?;
    ensure!(renewed, Held::Ours { .. }, "a held record is not purged");
    for (name, standing) in [
        ("held", Standing::InProgress),
        ("completed", Standing::Completed),
        ("retry", Standing::Retry),
        ("unknown", Standing::Unknown),
        ("silent", Standing::Unknown),
        ("stone", Standing::Tombstone),
        ("other-0", Standing::Completed),
        ("other-399", Standing::Completed),
    ] {
        let other = Fingerprint::from_parts(Recipe::from_number(1), [2; 32]);
        let told = store.claim(&Claim { fingerprint: other, ..hands.claim(name) }).await?;
        ensure!(
            told,
            Claimed::Mismatch { first } if first == standing,
            "what is alive or still kept is neither purged nor evicted"
        );
    }
    ensure!(store.get(&hands.claim("over").id).await?, None, "what is over is gone");
    let late = store.complete(&silent, &Outcome::default(), hands.keep(10)).await?;
    ensure!(late, Held::Ours { .. }, "a record whose lease ended is alive");
    let take_over = Claim { on_unknown: OnUnknown::TakeOver, ..hands.claim("unknown") };
    let lease = acquired(store.claim(&take_over).await?)?;
    ensure!(lease.attempt, 2, "an unknown record keeps its attempt");
    Ok(())
}

//! Who gets a record, and who does not (C1 to C3).

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use super::hands::{Place, acquired, race};
use super::{Failure, Hands, Verdict, ensure};
use crate::fingerprint::{Fingerprint, Recipe};
use crate::record::{Lease, LeaseToken, Outcome, Principal, Record, Standing};
use crate::store::{Claim, Claimed, Ending, Held, Note, OnUnknown, Store, StoreErrorKind};

/// How many claim at once.
const RACERS: usize = 16;

/// How often a race is run: a window of a few instructions is met in one of many.
const ROUNDS: usize = 40;

/// Races claims made by `make` and checks that exactly one of them is acquired.
async fn winner(
    hands: &Hands,
    make: impl Fn(usize) -> Claim,
) -> Result<(Lease, Vec<(usize, Claimed)>), Failure> {
    let claimed = race(RACERS, |number| {
        let (store, claim) = (Arc::clone(&hands.store), make(number));
        async move { Ok((number, store.claim(&claim).await?, claim.token)) }
    })
    .await?;
    let (mut won, mut lost) = (Vec::new(), Vec::new());
    for (number, claimed, token) in claimed {
        match claimed {
            Claimed::Acquired(lease) => {
                ensure!(lease.token == token, true, "a lease bears the token of its claim");
                won.push(lease);
            }
            other => lost.push((number, other)),
        }
    }
    match won[..] {
        [lease] => Ok((lease, lost)),
        _ => Err(Failure::broken("of simultaneous claims exactly one is acquired", &won)),
    }
}

/// Of any number of simultaneous claims for one id exactly one is acquired, whether the record is
/// absent, ended in `retry` or unknown; every other one is told what holds it.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn one_winner(hands: Hands) -> Verdict {
    for round in 0..ROUNDS {
        let name = format!("absent-{round}");
        let other = Fingerprint::from_parts(Recipe::from_number(1), [2; 32]);
        // Half of them ask for something else under the same key.
        let (first, lost) = winner(&hands, |number| {
            let claim = hands.claim(&name);
            let fingerprint = if number % 2 == 0 { claim.fingerprint } else { other };
            Claim { fingerprint, ..claim }
        })
        .await?;
        ensure!(first.attempt, 1, "the first run is attempt 1");
        for (number, claimed) in &lost {
            let same = lost.iter().filter(|(other, _)| other % 2 == number % 2).count();
            // The winner is missing on its own side.
            let told = match claimed {
                Claimed::InProgress { .. } => same < RACERS / 2,
                Claimed::Mismatch { first: Standing::InProgress } => same == RACERS / 2,
                _ => false,
            };
            ensure!((told, claimed), (true, _), "the loser of a race is told of mismatch or run");
        }
        let name = format!("retry-{round}");
        let _ = hands.leave(&name, Place::Retry).await?;
        let (next, _) = winner(&hands, |_| hands.claim(&name)).await?;
        ensure!(next.attempt, 2, "the run after a retry is the next attempt");
        let name = format!("unknown-{round}");
        let _ = hands.leave(&name, Place::Unknown).await?;
        let take_over = |_| Claim { on_unknown: OnUnknown::TakeOver, ..hands.claim(&name) };
        let (next, _) = winner(&hands, take_over).await?;
        ensure!(next.attempt, 2, "a takeover is the next attempt");
    }
    Ok(())
}

/// A claim that is repeated under its token is acquired again, with the same attempt.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn claim_again_with_same_token(hands: Hands) -> Verdict {
    for round in 0..ROUNDS {
        let claim = hands.claim(&format!("again-{round}"));
        let leases = race(4, |_| {
            let (store, claim) = (Arc::clone(&hands.store), claim.clone());
            async move { acquired(store.claim(&claim).await?) }
        })
        .await?;
        for lease in leases {
            ensure!(
                (lease.token == claim.token, lease.attempt),
                (true, 1),
                "copies of one claim are one claim"
            );
        }
        let other = hands.store.claim(&hands.claim(&format!("again-{round}"))).await?;
        ensure!(other, Claimed::InProgress { .. }, "another claim finds it held");
        let again = acquired(hands.store.claim(&claim).await?)?;
        ensure!(again.attempt, 1, "a repeated claim starts no new attempt");
    }
    let claim = hands.claim("lapsed");
    let _ = acquired(hands.store.claim(&claim).await?)?;
    hands.pass(11).await;
    let again = acquired(hands.store.claim(&claim).await?)?;
    ensure!(again.attempt, 1, "a claim finds itself also after the lease's end");
    Ok(())
}

/// A token that was released claims nothing for a minute, and its release can be repeated; a
/// release may also come before the claim it takes back.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn released_token_stays_dead(hands: Hands) -> Verdict {
    let store = &hands.store;
    let claim = hands.claim("released");
    let lease = acquired(store.claim(&claim).await?)?;
    ensure!(store.end(&lease, Ending::Release).await?, Held::Ours { .. }, "the holder releases");
    ensure!(store.claim(&claim).await?, Claimed::Lost, "a late copy of a claim acquires nothing");
    let repeated = store.end(&lease, Ending::Release).await?;
    ensure!(repeated, Held::Ours { .. }, "a release can be repeated");
    let next = hands.take("released").await?;
    let repeated = store.end(&lease, Ending::Release).await?;
    ensure!(repeated, Held::Ours { .. }, "a release can be repeated when the key is used again");
    ensure!(store.claim(&claim).await?, Claimed::Lost, "a released token is told so first");
    let renewed = store.renew(&next, hands.units(10), None).await?;
    ensure!(renewed, Held::Ours { .. }, "a repeated release touches no other's record");
    hands.pass(50).await;
    ensure!(store.claim(&claim).await?, Claimed::Lost, "a token stays dead for a minute");

    let early = hands.claim("early");
    let lease = Lease { id: early.id, token: early.token, attempt: 1 };
    let released = store.end(&lease, Ending::Release).await?;
    ensure!(released, Held::Ours { .. }, "a claim can be taken back before it arrives");
    ensure!(store.claim(&early).await?, Claimed::Lost, "a claim that was taken back is dead");
    let _ = hands.take("early").await?;
    Ok(())
}

/// A claim that is taken back leaves what it found, and is dead however late it arrives: nothing of
/// a first one, the run before of one that came after a retry, and an unknown run unknown.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn taken_back_leaves_what_was(hands: Hands) -> Verdict {
    let store = &hands.store;
    for (name, place, on_unknown) in [
        ("fresh", None, OnUnknown::Hold),
        ("retry", Some(Place::Retry), OnUnknown::Hold),
        ("unknown", Some(Place::Unknown), OnUnknown::TakeOver),
    ] {
        if let Some(place) = place {
            let _ = hands.leave(name, place).await?;
            hands.pass(1).await;
        }
        let claim = Claim { on_unknown, ..hands.claim(name) };
        let lease = acquired(store.claim(&claim).await?)?;
        let how = Ending::TakeBack { on_unknown };
        for _ in 0..2 {
            let ended = store.end(&lease, how).await?;
            ensure!(ended, Held::Ours { .. }, "a claim is taken back, and again the same");
        }
        ensure!(store.claim(&claim).await?, Claimed::Lost, "a claim that was taken back is dead");
        hands.pass(1).await;
        let fingerprint = Fingerprint::from_parts(Recipe::from_number(1), [9; 32]);
        let other = Claim { fingerprint, ..hands.claim(name) };
        match place {
            None => {
                let next = acquired(store.claim(&other).await?)?;
                ensure!(next.attempt, 1, "a first claim leaves nothing");
            }
            Some(Place::Unknown) => {
                let told = store.claim(&hands.claim(name)).await?;
                ensure!(told, Claimed::Unknown { .. }, "an unknown run stays unknown");
            }
            Some(_) => {
                let told = store.claim(&other).await?;
                ensure!(told, Claimed::Mismatch { .. }, "the fingerprint of the run before stays");
                let next = hands.take(name).await?;
                ensure!(next.attempt, attempt if attempt > 1, "and its attempt is counted on");
            }
        }
    }
    // One that meets somebody else's run leaves it alone, and is dead once that run is released.
    let held = hands.take("theirs").await?;
    let late = hands.claim("theirs");
    let lease = Lease { id: late.id, token: late.token, attempt: 0 };
    let how = Ending::TakeBack { on_unknown: OnUnknown::Hold };
    ensure!(store.end(&lease, how).await?, Held::Lost { .. }, "theirs is not taken back");
    ensure!(store.end(&held, Ending::Release).await?, Held::Ours { .. }, "they hold it still");
    ensure!(store.claim(&late).await?, Claimed::Lost, "a claim that was taken back stays dead");
    Ok(())
}

/// The principal is checked before the fingerprint, the fingerprint before the state, wherever
/// the record stands; a fingerprint by another recipe counts as equal.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn principal_then_fingerprint(hands: Hands) -> Verdict {
    let places = [
        ("held", Place::Held, Standing::InProgress),
        ("completed", Place::Completed, Standing::Completed),
        ("retry", Place::Retry, Standing::Retry),
        ("unknown", Place::Unknown, Standing::Unknown),
    ];
    for (name, place, standing) in places {
        let _ = hands.leave(name, place).await?;
        checked_in_order(&hands, name, standing).await?;
    }
    hands.pass(11).await;
    checked_in_order(&hands, "held", Standing::Unknown).await
}

async fn checked_in_order(hands: &Hands, name: &str, standing: Standing) -> Verdict {
    let store = &hands.store;
    let claim = hands.claim(name);
    let before = store.get(&claim.id).await?;
    let digest = |recipe| Fingerprint::from_parts(Recipe::from_number(recipe), [2; 32]);
    let stranger =
        Claim { principal: Principal::named("mallory"), fingerprint: digest(1), ..claim.clone() };
    let told = store.claim(&stranger).await?;
    ensure!(told, Claimed::OtherPrincipal, "another principal is told so before anything else");
    let other = Claim {
        fingerprint: digest(1),
        on_unknown: OnUnknown::TakeOver,
        token: LeaseToken::random(),
        ..claim.clone()
    };
    let told = store.claim(&other).await?;
    ensure!(
        told,
        Claimed::Mismatch { first } if first == standing,
        "another fingerprint is a mismatch, wherever the record stands"
    );
    let after = store.get(&claim.id).await?;
    ensure!(after == before, true, "a refused claim changes nothing");
    let newer = Claim { fingerprint: digest(2), token: LeaseToken::random(), ..claim };
    let told = store.claim(&newer).await?;
    ensure!(
        told,
        Claimed::InProgress { .. }
            | Claimed::Completed { .. }
            | Claimed::Unknown { .. }
            | Claimed::Acquired(_),
        "a fingerprint by another recipe counts as equal"
    );
    Ok(())
}

/// The attempt counts runs: 1 at first, one more with each retry and takeover, the same when the
/// record is only taken to ask.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn attempt_counts_runs(hands: Hands) -> Verdict {
    let store = &hands.store;
    let first = hands.leave("runs", Place::Retry).await?;
    ensure!(first.attempt, 1, "the first run is attempt 1");
    let second = hands.take("runs").await?;
    ensure!(second.attempt, 2, "the run after a retry is the next attempt");
    hands.pass(11).await;
    let ask = Claim { on_unknown: OnUnknown::Ask, ..hands.claim("runs") };
    let asking = acquired(store.claim(&ask).await?)?;
    ensure!(asking.attempt, 2, "asking is no attempt");
    for _ in 0..2 {
        let started = store.renew(&asking, hands.units(10), Some(&Note::Starts(3))).await?;
        ensure!(started, Held::Ours { attempt: 3, .. }, "a start is noted, and can be repeated");
    }
    hands.pass(11).await;
    let over = Claim { on_unknown: OnUnknown::TakeOver, ..hands.claim("runs") };
    let fourth = acquired(store.claim(&over).await?)?;
    ensure!(fourth.attempt, 4, "a takeover is the next attempt");
    let record = store.get(&over.id).await?;
    ensure!(
        &record,
        Some(record) if record.attempt == 4 && record.token == over.token,
        "the record bears attempt and token of its holder"
    );
    Ok(())
}

/// An error acquires nothing, and a claim whose answer was not awaited can be taken back.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn failure_is_not_permission(hands: Hands) -> Verdict {
    let store = &hands.store;
    let memo = Bytes::from(vec![0; Record::MAX_MEMO + 1]);
    let refused = store.claim(&Claim { memo, ..hands.claim("refused") }).await;
    ensure!(
        refused,
        Err(error) if error.kind() == StoreErrorKind::OutOfBounds,
        "a claim that is out of bounds is an error and no grant"
    );
    let found = store.get(&hands.claim("refused").id).await?;
    ensure!(found, None, "a claim that failed leaves nothing behind");
    for round in 0..200 {
        let name = format!("dropped-{round}");
        let claim = hands.claim(&name);
        {
            let mut asked = store.claim(&claim);
            // Begun, and given up as when the caller's time is over. What became of it is open.
            let _ = std::future::poll_fn(|context| {
                Poll::Ready(asked.as_mut().poll(context).is_ready())
            })
            .await;
        }
        let lease = Lease { id: claim.id, token: claim.token, attempt: 1 };
        let released = store.end(&lease, Ending::Release).await?;
        ensure!(released, Held::Ours { .. }, "a claim whose answer never came is taken back");
        let next = hands.take(&name).await?;
        ensure!(next.attempt, 1, "a claim that was taken back leaves nothing behind");
        let held = store.complete(&next, &Outcome::default(), hands.keep(10)).await?;
        ensure!(held, Held::Ours { .. }, "a claim that was taken back comes to nothing later");
    }
    Ok(())
}

/// The store is used as `Arc<dyn Store>` from any task, and shows no key when printed.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn works_behind_arc_dyn(hands: Hands) -> Verdict {
    let store: Arc<dyn Store> = Arc::clone(&hands.store);
    let claim = hands.claim("a-key-that-nobody-prints");
    let id = claim.id;
    let lease = {
        let store = Arc::clone(&store);
        let claimed = tokio::spawn(async move { store.claim(&claim).await }).await;
        acquired(claimed.map_err(|_| Failure::Panicked)??)?
    };
    let held = store.complete(&lease, &Outcome::new(&b"done"[..]), hands.keep(10)).await?;
    ensure!(held, Held::Ours { .. }, "another task completes");
    ensure!(store.get(&id).await?, Some(_), "and the record is there for all");
    let printed = format!("{store:?}");
    ensure!(printed.contains("nobody-prints"), false, "a store shows no key when it is printed");
    Ok(())
}

//! What recovery takes, and that nobody else takes it too (E4).

use std::collections::HashSet;
use std::sync::Arc;

use super::hands::{Place, race};
use super::{Hands, Verdict, ensure};
use crate::record::{Kind, Outcome};
use crate::store::{Claimed, Held};

/// Records that are due are taken by one of all who try at once, under a new lease that fences the
/// former holder, with the attempt they had.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn taken_by_one(hands: Hands) -> Verdict {
    const RECORDS: usize = 30;
    let store = hands.recover()?;
    let mut former = Vec::new();
    for number in 0..RECORDS {
        former.push(hands.leave(&format!("due-{number}"), Place::Unknown).await?);
    }
    hands.pass(6).await;
    let (stale_for, ttl) = (hands.units(5), hands.units(50));
    let taken = race(6, |_| {
        let store = Arc::clone(&store);
        async move {
            let mut all = Vec::new();
            loop {
                let taken = store.take_unknown(Kind::Request, stale_for, ttl, 10, 4).await?;
                ensure!(taken.len(), 0..=4, "no more is taken than asked");
                if taken.is_empty() {
                    return Ok(all);
                }
                all.extend(taken);
            }
        }
    })
    .await?;
    let taken: Vec<_> = taken.into_iter().flatten().collect();
    let mine: HashSet<_> = former.iter().map(|lease| lease.id).collect();
    let taken: Vec<_> = taken.into_iter().filter(|(record, _)| mine.contains(&record.id)).collect();
    let once: HashSet<_> = taken.iter().map(|(record, _)| record.id).collect();
    ensure!(
        (taken.len(), once.len()),
        (RECORDS, RECORDS),
        "every record that is due is taken by exactly one"
    );
    for lease in former {
        let told = store.complete(&lease, &Outcome::default(), hands.keep(50)).await?;
        ensure!(told, Held::Lost { attempt: Some(1) }, "the former holder is fenced");
    }
    for (record, lease) in taken {
        ensure!(
            (record.attempt, lease.attempt, record.token == lease.token, record.id == lease.id),
            (1, 1, true, true),
            "a record is taken with its attempt, under the lease's token"
        );
        let told = store.claim(&hands.claim(record.key.as_str())).await?;
        ensure!(told, Claimed::InProgress { .. }, "what was taken is held");
        let held = store.complete(&lease, &Outcome::default(), hands.keep(50)).await?;
        ensure!(held, Held::Ours { .. }, "whoever took it decides it");
    }
    Ok(())
}

/// Only records of the kind asked for are taken, and only those that are unknown, untouched for
/// long enough and not tried too often.
///
/// # Errors
/// [`Failure`](super::Failure) where the store breaks the rule.
pub async fn taken_only_when_due(hands: Hands) -> Verdict {
    let store = hands.recover()?;
    let (stale_for, ttl) = (hands.units(20), hands.units(10));
    for (name, place) in
        [("completed", Place::Completed), ("retry", Place::Retry), ("unknown", Place::Unknown)]
    {
        let _ = hands.leave(name, place).await?;
    }
    let _ = hands.take("silent").await?;
    let tenant = hands.tenant().to_owned();
    let take = async |kind, attempts| {
        let taken = store.take_unknown(kind, stale_for, ttl, attempts, 100).await?;
        let mine = taken.into_iter().filter(|(record, _)| *record.scope.tenant == *tenant);
        let mut names: Vec<_> = mine.map(|(record, _)| record.key.as_str().to_owned()).collect();
        names.sort_unstable();
        Ok::<_, super::Failure>(names)
    };
    hands.pass(11).await;
    let none: [&str; 0] = [];
    ensure!(take(Kind::Request, 10).await?, names if names == none, "what is fresh is left alone");
    hands.pass(10).await;
    ensure!(take(Kind::Effect, 10).await?, names if names == none, "other kinds are left alone");
    ensure!(take(Kind::Request, 0).await?, names if names == none, "what was tried enough is left");
    ensure!(
        take(Kind::Request, 10).await?,
        names if names == ["unknown"],
        "what is unknown for long enough is taken, and nothing else"
    );
    let _ = hands.take("held").await?;
    hands.pass(9).await;
    let held = hands.take("fresh").await?;
    hands.pass(1).await;
    ensure!(
        take(Kind::Request, 10).await?,
        names if names == ["silent"],
        "a lease's end counts as the last touch"
    );
    let renewed = store.renew(&held, hands.units(10), None).await?;
    ensure!(renewed, Held::Ours { .. }, "a held record is left alone");
    Ok(())
}

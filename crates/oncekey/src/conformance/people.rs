//! What people see and change (U3).

use std::sync::Arc;

use super::hands::{Place, acquired, race};
use super::{Failure, Hands, Verdict, ensure};
use crate::record::{Kind, Outcome, Standing, State, Version};
use crate::store::{By, Change, Changed, Claimed, Counts, Filter, Held, Inspect};

fn by(who: &str) -> By {
    By { who: who.to_owned(), reason: "the other side says so".to_owned() }
}

async fn version(store: &dyn Inspect, hands: &Hands, name: &str) -> Result<Version, Failure> {
    let found = store.get(&hands.claim(name).id).await?;
    Ok(found.map_or(Version::ABSENT, |record| record.version))
}

/// A change is made only to the version that was seen, never to a held or a final record, and by
/// one of those who try at once.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn change_needs_the_version_seen(hands: Hands) -> Verdict {
    let store = hands.inspect()?;
    let paid = || Change::Complete(Outcome::new(&b"paid"[..]), hands.keep(100));
    let id = |name: &str| hands.claim(name).id;
    let nobody = store.change(&id("absent"), Version::from_number(7), paid(), &by("ann")).await?;
    ensure!(nobody, Changed::Moved(None), "what is not there is not changed");

    let _ = hands.leave("held", Place::Held).await?;
    let seen = version(&*store, &hands, "held").await?;
    for change in [paid(), Change::Release, Change::Retry(hands.keep(100))] {
        let told = store.change(&id("held"), seen, change, &by("ann")).await?;
        ensure!(told, Changed::Held, "a held record is not changed");
    }
    let _ = hands.leave("final", Place::Completed).await?;
    let seen = version(&*store, &hands, "final").await?;
    for change in [paid(), Change::Release, Change::Retry(hands.keep(100))] {
        let told = store.change(&id("final"), seen, change, &by("ann")).await?;
        ensure!(told, Changed::Final, "a final outcome is not changed");
    }
    for round in 0..20 {
        let name = format!("unknown-{round}");
        let _ = hands.leave(&name, Place::Unknown).await?;
        let seen = version(&*store, &hands, &name).await?;
        let stale = Version::from_number(seen.number().saturating_sub(1));
        let told = store.change(&id(&name), stale, paid(), &by("ann")).await?;
        ensure!(
            told,
            Changed::Moved(Some(record)) if record.version == seen,
            "a change needs the version that is there, and is shown it"
        );
        let made = race(6, |number| {
            let (store, id) = (Arc::clone(&store), id(&name));
            let outcome = Outcome::new(format!("{number}").into_bytes());
            let change = Change::Complete(outcome, hands.keep(100));
            async move { Ok(store.change(&id, seen, change, &by("ann")).await?) }
        })
        .await?;
        let winners = made.iter().filter(|made| matches!(made, Changed::Made(_))).count();
        ensure!((winners, made), (1, _), "of simultaneous changes exactly one is made");
    }
    Ok(())
}

/// A change keeps who made it and why, fences whoever held the record, and is what later claims
/// find.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn change_fences_the_holder(hands: Hands) -> Verdict {
    let store = hands.inspect()?;
    let late = Outcome::new(&b"late"[..]);
    let lease = hands.leave("completed", Place::Unknown).await?;
    let seen = version(&*store, &hands, "completed").await?;
    let change = Change::Complete(Outcome::new(&b"paid"[..]), hands.keep(100));
    let made = store.change(&lease.id, seen, change, &by("ann")).await?;
    ensure!(made, Changed::Made(version) if version > seen, "an unknown record is changed");
    let told = store.complete(&lease, &late, hands.keep(100)).await?;
    ensure!(told, Held::Lost { .. }, "a change fences the holder");
    let told = store.claim(&hands.claim("completed")).await?;
    ensure!(
        told,
        Claimed::Completed { outcome, .. } if outcome.bytes() == "paid",
        "a change is what later claims find"
    );
    let record = store.get(&lease.id).await?;
    let audited = record.as_ref().is_some_and(|record| match &record.audit[..] {
        [audit] => audit.who == "ann" && audit.reason == by("ann").reason,
        _ => false,
    });
    ensure!((audited, record), (true, _), "who changed a record, and why, is kept in it");

    let lease = hands.leave("retried", Place::Unknown).await?;
    let seen = version(&*store, &hands, "retried").await?;
    let change = Change::Retry(hands.keep(100));
    let made = store.change(&lease.id, seen, change, &by("ann")).await?;
    ensure!(made, Changed::Made(_), "an unknown record is opened to run again");
    ensure!(
        store.complete(&lease, &late, hands.keep(100)).await?,
        Held::Lost { .. },
        "a change fences the holder"
    );
    hands.pass(1).await;
    let next = acquired(store.claim(&hands.claim("retried")).await?)?;
    ensure!(next.attempt, 2, "the run after it is the next attempt");

    let lease = hands.leave("released", Place::Unknown).await?;
    let seen = version(&*store, &hands, "released").await?;
    let made = store.change(&lease.id, seen, Change::Release, &by("ann")).await?;
    ensure!(made, Changed::Made(Version::ABSENT), "an unknown record is forgotten");
    ensure!(store.get(&lease.id).await?, None, "what was forgotten is gone");
    ensure!(
        store.complete(&lease, &late, hands.keep(100)).await?,
        Held::Lost { attempt: None },
        "a change fences the holder"
    );
    Ok(())
}

/// A listing shows every record that matches exactly once, a page at a time, in order of id.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn list_shows_each_once(hands: Hands) -> Verdict {
    let store = hands.inspect()?;
    for number in 0..30 {
        let places = [Place::Held, Place::Completed, Place::Retry, Place::Unknown];
        let _ = hands.leave(&format!("listed-{number}"), places[number % places.len()]).await?;
    }
    let mine = Filter { tenant: Some(hands.tenant().to_owned()), ..Filter::default() };
    let filters = [
        (mine.clone(), 30),
        (Filter { standing: Some(Standing::InProgress), ..mine.clone() }, 8),
        (Filter { standing: Some(Standing::Completed), ..mine.clone() }, 8),
        (Filter { standing: Some(Standing::Unknown), ..mine.clone() }, 7),
        (Filter { kind: Some(Kind::Effect), ..mine.clone() }, 0),
        (Filter { older_than: Some(hands.units(400)), ..mine.clone() }, 0),
        (Filter { tenant: Some("nobody".to_owned()), ..mine }, 0),
    ];
    for (filter, count) in filters {
        let mut ids = Vec::new();
        let mut cursor = None;
        loop {
            let page = store.list(&filter, cursor, 4).await?;
            ensure!(page.records.len(), 0..=4, "a page is no longer than asked");
            for record in &page.records {
                let fits = filter.standing.is_none_or(|wanted| match &record.state {
                    State::InProgress { .. } => wanted == Standing::InProgress,
                    State::Completed { .. } => wanted == Standing::Completed,
                    State::Retry { .. } => wanted == Standing::Retry,
                    State::Unknown { .. } => wanted == Standing::Unknown,
                });
                ensure!((fits, record), (true, _), "a listing shows only what matches");
                ids.push(record.id);
            }
            ensure!(ids.len(), 0..=30, "a listing ends");
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        ensure!(ids.is_sorted_by(|a, b| a < b), true, "a listing is in order, each record once");
        ensure!((ids.len() == count, ids.len(), count), (true, _, _), "a listing is complete");
    }
    Ok(())
}

/// Counts tell how many records are held and how many are unknown, leases judged.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn counts_tell_the_living(hands: Hands) -> Verdict {
    let store = hands.inspect()?;
    let start = store.counts().await?;
    let since = |now: Counts| {
        let (held, unknown) = (start.in_progress, start.unknown);
        (now.in_progress.checked_sub(held), now.unknown.checked_sub(unknown))
    };
    for number in 0..3 {
        let _ = hands.leave(&format!("held-{number}"), Place::Held).await?;
    }
    let _ = hands.leave("unknown", Place::Unknown).await?;
    let _ = hands.leave("completed", Place::Completed).await?;
    let _ = hands.leave("retry", Place::Retry).await?;
    let now = store.counts().await?;
    ensure!(since(now), (Some(3), Some(1)), "held and unknown records are counted");
    hands.pass(11).await;
    let now = store.counts().await?;
    ensure!(since(now), (Some(0), Some(4)), "a record whose lease ended counts as unknown");
    Ok(())
}

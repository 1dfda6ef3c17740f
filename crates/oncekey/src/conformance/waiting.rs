//! Whoever waits is woken, and waits for nobody else (C4, C6).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::hands::{Place, race};
use super::{Failure, Hands, Verdict, ensure};
use crate::record::{Lease, Outcome, Version, Why};
use crate::store::{Claimed, Ending, Held, Store};

/// Longer than any test lasts: whoever returns before was woken, or polls.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Waits until the record is no longer at `seen`, as callers do: looking again after each return.
async fn moved(store: &dyn Store, lease: Lease, seen: Version) -> Result<(), Failure> {
    loop {
        store.changed(&lease.id, seen, FOR_EVER).await?;
        let found = store.get(&lease.id).await?.map_or(Version::ABSENT, |record| record.version);
        if found != seen {
            return Ok(());
        }
        // A store that polls returns early, and must let others run.
        tokio::task::yield_now().await;
    }
}

/// Where the record stands now.
async fn version(hands: &Hands, lease: &Lease) -> Result<Version, Failure> {
    let record = hands.store.get(&lease.id).await?;
    let held = record.map(|record| record.version);
    held.ok_or_else(|| Failure::broken("a held record is there", &held))
}

async fn end(store: &dyn Store, lease: &Lease, number: usize) -> Result<(), Failure> {
    let keep = crate::record::Retention::keep(FOR_EVER);
    let held = match number % 4 {
        0 => store.complete(lease, &Outcome::new(&b"done"[..]), keep).await?,
        1 => store.end(lease, Ending::Release).await?,
        2 => store.end(lease, Ending::Retry { status: 503, keep }).await?,
        _ => {
            let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
            store.end(lease, how).await?
        }
    };
    ensure!(held, Held::Ours { .. }, "the holder ends its run");
    Ok(())
}

/// A waiter returns when the record changes, in whatever way; at once, if it already has; and at
/// its bound.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn waiter_is_woken(hands: Hands) -> Verdict {
    for number in 0..4 {
        let lease = hands.take(&format!("waited-{number}")).await?;
        let seen = version(&hands, &lease).await?;
        let store = Arc::clone(&hands.store);
        let waiter = tokio::spawn(async move { moved(&*store, lease, seen).await });
        // So that the waiter has a chance to sleep; the rule holds either way.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        end(&*hands.store, &lease, number).await?;
        hands
            .soon("a waiter is woken when the record changes", waiter)
            .await?
            .map_err(|_| Failure::Panicked)??;
        let late = hands.store.changed(&lease.id, seen, FOR_EVER);
        hands.soon("whoever comes after the change does not wait", late).await??;
    }
    // Nothing ever happens to this one, and it has no lease whose end might count as news.
    let lease = hands.leave("still", Place::Unknown).await?;
    let seen = version(&hands, &lease).await?;
    let (store, bound) = (Arc::clone(&hands.store), hands.units(2));
    let waiter = tokio::spawn(async move { store.changed(&lease.id, seen, bound).await });
    let bounded = async {
        // The store may begin to count only now, so time passes until it is enough.
        while !waiter.is_finished() {
            hands.pass(1).await;
            tokio::task::yield_now().await;
        }
        waiter.await
    };
    let ended = hands.soon("a waiter gives up at its bound", bounded).await?;
    ended.map_err(|_| Failure::Panicked)??;
    Ok(())
}

/// A change at any moment of a wait is heard: before, while and after the waiter looks.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn no_wakeup_is_lost(hands: Hands) -> Verdict {
    const WAITERS: usize = 6;
    for round in 0..200 {
        let lease = hands.take(&format!("round-{round}")).await?;
        let seen = version(&hands, &lease).await?;
        let raced = race(WAITERS + 1, |number| {
            let store = Arc::clone(&hands.store);
            async move {
                if number > 0 {
                    return moved(&*store, lease, seen).await;
                }
                // A little later in each round, to meet every moment of the others' look.
                for _ in 0..round % 17 {
                    tokio::task::yield_now().await;
                }
                end(&*store, &lease, round).await
            }
        });
        hands.soon("no wake-up is lost", raced).await??;
    }
    Ok(())
}

/// A key that many want slows no other key, and a claim for a key that is held comes back.
///
/// # Errors
/// [`Failure`] where the store breaks the rule.
pub async fn hot_key_slows_no_other(hands: Hands) -> Verdict {
    let lease = hands.take("hot").await?;
    let seen = version(&hands, &lease).await?;
    let mut crowd = tokio::task::JoinSet::new();
    let entered = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let (store, entered) = (Arc::clone(&hands.store), Arc::clone(&entered));
        crowd.spawn(async move {
            entered.fetch_add(1, Ordering::SeqCst);
            moved(&*store, lease, seen).await
        });
    }
    // The crowd is there before the others come.
    while entered.load(Ordering::SeqCst) < 100 {
        tokio::task::yield_now().await;
    }
    for _ in 0..8 {
        let (store, claim) = (Arc::clone(&hands.store), hands.claim("hot"));
        crowd.spawn(async move {
            // Told again and again, until the run is over.
            while let Claimed::InProgress { .. } = store.claim(&claim).await? {
                tokio::task::yield_now().await;
            }
            Ok(())
        });
    }
    let others = async {
        for round in 0..100 {
            let other = hands.take(&format!("cold-{round}")).await?;
            end(&*hands.store, &other, 0).await?;
            tokio::task::yield_now().await;
        }
        Ok::<_, Failure>(())
    };
    hands.soon("a hot key slows no other", others).await??;
    end(&*hands.store, &lease, 0).await?;
    let all = async {
        while let Some(ended) = crowd.join_next().await {
            ended.map_err(|_| Failure::Panicked)??;
        }
        Ok::<_, Failure>(())
    };
    hands.soon("all who wanted a key are told of its end", all).await?
}

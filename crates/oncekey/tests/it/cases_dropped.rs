//! Futures that are dropped at every await they have (L6, B28 to B30, C2): the layer's, a claim's,
//! and that of an ending. The store yields before and after each of its effects, so that a future
//! can be dropped on both sides of it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use oncekey::engine::{Begun, Terms, Wait};
use oncekey::fingerprint::{Fingerprint, Recipe};
use oncekey::http::Policy;
use oncekey::record::{Retention, Standing, Why};
use oncekey::store::{Claim, Claimed, Ending, Held, OnUnknown, StoreErrorKind};

use crate::bed::{Bed, on_each_store, run, until};
use crate::engine::{DAY, claim, done};
use crate::faulty::{Call, Fault, Faulty};
use crate::rig::pay;

on_each_store! {
    l6_b28_a_client_that_leaves_at_any_await_leaves_one_effect_and_its_outcome
    l6_b28_a_client_that_leaves_after_the_effect_cancels_no_completion
    l6_b29_a_client_that_leaves_between_two_steps_stops_neither
    l6_b28_an_ending_that_is_dropped_at_any_await_is_stored
    c2_b19_b30_a_claim_that_is_dropped_at_any_await_leaves_what_was_there
}

/// More awaits than anything here has; a test that needs more says so.
const MOST: usize = 100;

/// When a future that waits is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drop {
    /// As soon as it waits: what it waits for has not happened yet.
    Waiting,
    /// When what it waited for has happened, before it learns of it.
    Woken,
}

const DROPS: [Drop; 2] = [Drop::Waiting, Drop::Woken];

/// Drops the future at its await of this number; at 0 before it has begun. Says whether it came to
/// its end before.
async fn drop_at(number: usize, when: Drop, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut awaits = 0;
    std::future::poll_fn(|cx| {
        if number == 0 || (awaits == number && when == Drop::Woken) {
            return Poll::Ready(false);
        }
        if future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        awaits += 1;
        if awaits == number && when == Drop::Waiting { Poll::Ready(false) } else { Poll::Pending }
    })
    .await
}

fn stepping(bed: &Bed) -> Arc<Faulty> {
    Arc::new(Faulty::stepping(Arc::clone(&bed.store) as _, 2))
}

async fn l6_b28_a_client_that_leaves_at_any_await_leaves_one_effect_and_its_outcome(bed: Bed) {
    let scripts = ["", "wait", "frames=5", "stream", "type=text/event-stream stream", "panic"];
    for (script, when) in scripts.into_iter().flat_map(|script| DROPS.map(|when| (script, when))) {
        let name = script.replace([' ', '='], "-");
        for number in 0..=MOST {
            assert!(number < MOST, "{script}: it never comes to its end");
            let key = format!("{name}-{when:?}-{number}");
            let rig = bed.rig_on(stepping(&bed), Policy::default());
            rig.app.gate.add_permits(9);
            let whole = drop_at(number, when, rig.send(pay(&key, script, ""))).await;
            if number > 0 {
                // Once it waits for anything, nothing that it does keeps the work from being done.
                until("it runs", async || rig.app.runs() == 1).await;
            }
            assert_eq!(rig.engine.stop(Duration::from_secs(30)).await, 0, "nothing is cut off");
            // Nobody came back for it, and it is decided.
            let standing = bed.standing(&key).await;
            let decided = if script == "panic" { Standing::Unknown } else { Standing::Completed };
            match rig.app.runs() {
                0 => assert_eq!(standing, None, "{key}"),
                1 => assert_eq!(standing, Some(decided), "{key}"),
                runs => panic!("{key}: {runs} runs"),
            }
            let other = bed.rig(Policy::default());
            other.app.gate.add_permits(9);
            other.send(pay(&key, script, "")).await;
            assert_eq!(rig.app.runs() + other.app.runs(), 1, "{key}");
            if whole {
                break;
            }
        }
    }
}

async fn l6_b28_a_client_that_leaves_after_the_effect_cancels_no_completion(bed: Bed) {
    let store = stepping(&bed);
    let rig = bed.rig_on(Arc::clone(&store) as _, Policy::default());
    // The effect is there and the first tries to keep it fail: the client goes.
    for _ in 0..3 {
        store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    }
    let client = rig.spawn(pay("k", "", ""));
    until("it is being kept", async || store.calls(Call::Complete) > 0).await;
    client.abort();
    assert!(client.await.is_err());
    until("it is kept", async || {
        bed.clock.advance(Duration::from_millis(100));
        bed.standing("k").await == Some(Standing::Completed)
    })
    .await;
    assert_eq!(rig.send(pay("k", "", "")).await.told(), "replayed");
    assert_eq!(rig.app.runs(), 1);
}

async fn l6_b29_a_client_that_leaves_between_two_steps_stops_neither(bed: Bed) {
    let rig = bed.rig(Policy::default());
    let client = rig.spawn(pay("k", "wait wait header=x-step:two", ""));
    rig.app.entered().await;
    rig.app.open();
    until("the first step is done", async || rig.app.gate.available_permits() == 0).await;
    client.abort();
    assert!(client.await.is_err());
    rig.app.open();
    until("it is kept", async || bed.standing("k").await == Some(Standing::Completed)).await;
    let replay = rig.send(pay("k", "wait wait", "")).await;
    assert_eq!((replay.told(), replay.header("x-step")), ("replayed", Some("two")));
    assert_eq!(rig.app.runs(), 1);
}

async fn l6_b28_an_ending_that_is_dropped_at_any_await_is_stored(bed: Bed) {
    let faults = [None, Some(Fault::Before(StoreErrorKind::Timeout))];
    for (fault, when) in faults.into_iter().flat_map(|fault| DROPS.map(|when| (fault, when))) {
        for ending in ["complete", "retry", "release", "abandon", "drop"] {
            for number in 0..=MOST {
                assert!(number < MOST, "{ending}: it never comes to its end");
                let key = format!("{ending}-{when:?}-{number}-{}", fault.is_some());
                let store = stepping(&bed);
                let engine = bed.engine_on(Arc::clone(&store) as _);
                let held = run(&engine, claim(&key)).await;
                if let Some(fault) = fault {
                    store.fail(Call::Complete, fault);
                    store.fail(Call::End, fault);
                }
                let whole = match ending {
                    "complete" => drop_at(number, when, held.complete(done(), DAY)).await,
                    "retry" => drop_at(number, when, held.retry(500, DAY, None)).await,
                    "release" => drop_at(number, when, held.release()).await,
                    "abandon" => drop_at(number, when, held.abandon(Why::Panicked)).await,
                    _ => drop_at(number, when, async move { drop(held) }).await,
                };
                // What was said holds. A future that was never polled has said nothing.
                let said = match ending {
                    _ if number == 0 => Some(Standing::Unknown),
                    "complete" => Some(Standing::Completed),
                    "retry" => Some(Standing::Retry),
                    "release" => None,
                    _ => Some(Standing::Unknown),
                };
                until("the ending holds", async || {
                    bed.clock.advance(Duration::from_millis(1));
                    bed.standing(&key).await == said
                })
                .await;
                if whole {
                    break;
                }
            }
        }
    }
}

/// What a claim finds, and what it must leave where its answer never came.
async fn leave(bed: &Bed, key: &str, left: &str) {
    if left == "nothing" {
        return;
    }
    let lease = bed.acquire(&claim(key)).await;
    let how = match left {
        "retry" => Ending::Retry { status: 500, keep: Retention::keep(Duration::from_secs(60)) },
        _ => Ending::Unknown { why: Why::Panicked, after: Duration::ZERO },
    };
    assert!(matches!(bed.store.end(&lease, how).await, Ok(Held::Ours { .. })));
    bed.clock.advance(Duration::from_millis(1));
}

async fn c2_b19_b30_a_claim_that_is_dropped_at_any_await_leaves_what_was_there(bed: Bed) {
    let fingerprint = Fingerprint::from_parts(Recipe::from_number(1), [1; 32]);
    let found = [
        ("nothing", OnUnknown::Hold),
        ("nothing", OnUnknown::TakeOver),
        ("retry", OnUnknown::Hold),
        ("unknown", OnUnknown::TakeOver),
        ("unknown", OnUnknown::Ask),
    ];
    for ((left, on_unknown), when) in found.into_iter().flat_map(|it| DROPS.map(|when| (it, when)))
    {
        for number in 1..=MOST {
            assert!(number < MOST, "{left}: it never comes to its end");
            let key = format!("{left}-{on_unknown:?}-{when:?}-{number}");
            leave(&bed, &key, left).await;
            let engine = bed.engine_on(stepping(&bed));
            let asked = Claim { on_unknown, ..claim(&key) };
            let terms = Terms { wait: Wait::Reject, max_run: Duration::from_secs(900) };
            let now = bed.clock.now();
            let mut begun = None;
            let begin = async {
                let gone = std::future::pending();
                begun = Some(engine.begin(asked.clone(), now, terms, gone).await);
            };
            if drop_at(number, when, begin).await {
                assert!(matches!(begun, Some(Ok(Begun::Run(_)))), "{key}: {begun:?}");
                break;
            }
            assert_eq!(engine.stop(Duration::from_secs(30)).await, 0);
            // It may have been written only after its caller had left: then it is taken back.
            let standing = match left {
                "nothing" => None,
                "retry" => Some(Standing::Retry),
                _ => Some(Standing::Unknown),
            };
            assert_eq!(bed.standing(&key).await, standing, "{key}");
            let copy = bed.store.claim(&asked).await;
            assert!(matches!(copy, Ok(Claimed::Lost)), "{key}: {copy:?}");
            if left == "retry" {
                let told = bed.store.claim(&Claim { fingerprint, ..claim(&key) }).await;
                assert!(matches!(told, Ok(Claimed::Mismatch { .. })), "{key}: {told:?}");
                bed.clock.advance(Duration::from_millis(1));
                assert!(bed.acquire(&claim(&key)).await.attempt >= 2, "{key}");
            }
        }
    }
}

//! The engine when the store is in trouble: lost replies and endings that cannot be stored (C2,
//! O6, U4, X4).

use std::time::Duration;

use oncekey::engine::{Begun, Limits, RunEnded};
use oncekey::events::{Event, RunEnd};
use oncekey::record::{Outcome, Standing, Why};
use oncekey::store::{Claim, Claimed, OnUnknown, Store, StoreErrorKind};

use crate::engine::{Bench, DAY, LEASE, claim, done, until, why};
use crate::faulty::{Call, Fault};

#[tokio::test(start_paused = true)]
async fn c2_b19_a_claim_without_an_answer_is_released_and_its_token_stays_dead() {
    for fault in [
        Fault::After(StoreErrorKind::Timeout),
        Fault::Before(StoreErrorKind::Timeout),
        Fault::Hangs,
    ] {
        let bench = Bench::new();
        let lost = claim("k");
        bench.store.fail(Call::Claim, fault);
        bench.store.fail(Call::End, Fault::Before(StoreErrorKind::Unavailable));
        let asked = tokio::time::timeout(Duration::from_secs(1), bench.begin(lost.clone())).await;
        assert!(!matches!(asked, Ok(Ok(_))), "{fault:?}: {asked:?}");
        until("the release is tried", async || bench.store.calls(Call::End) == 1).await;
        bench.clock.advance(Duration::from_millis(50));
        until("it is tried again", async || bench.store.calls(Call::End) == 2).await;
        until("the key is free", async || bench.record(&lost.id).await.is_none()).await;
        // A late copy of the claim comes too late.
        bench.clock.advance(Duration::from_secs(59));
        let late = bench.store.claim(&lost).await;
        assert!(matches!(late, Ok(Claimed::Lost)), "{fault:?}: {late:?}");
        assert_eq!(bench.run(claim("k")).await.lease().attempt, 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c2_u5_a_stop_waits_for_claims_that_are_being_taken_back() {
    let bench = Bench::new();
    bench.store.fail(Call::Claim, Fault::After(StoreErrorKind::Timeout));
    bench.store.fail(Call::End, Fault::Before(StoreErrorKind::Unavailable));
    assert!(bench.begin(claim("k")).await.is_err());
    until("the release is tried", async || bench.store.calls(Call::End) == 1).await;
    let stopping = tokio::spawn({
        let engine = bench.engine.clone();
        async move { engine.stop(Duration::from_secs(25)).await }
    });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished());
    bench.clock.advance(Duration::from_millis(50));
    assert_eq!(stopping.await.expect("no panic"), 0);
    assert_eq!(bench.record(&claim("k").id).await, None);
}

#[tokio::test(start_paused = true)]
async fn c2_u4_a_takeover_without_an_answer_leaves_the_record_unknown() {
    for fault in [Fault::After(StoreErrorKind::Timeout), Fault::Before(StoreErrorKind::Timeout)] {
        let bench = Bench::new();
        let _ = bench.run(claim("k")).await.abandon(Why::Panicked).await;
        bench.clock.advance(Duration::from_secs(1));
        bench.store.fail(Call::Claim, fault);
        let ends = bench.store.calls(Call::End);
        let takes = || Claim { on_unknown: OnUnknown::TakeOver, ..claim("k") };
        assert!(bench.begin(takes()).await.is_err());
        until("it is taken back", async || bench.store.calls(Call::End) == ends + 1).await;
        until("it is unknown", async || why(bench.record(&takes().id).await).is_some()).await;
        let held = bench.begin(claim("k")).await;
        assert!(matches!(held, Ok(Begun::Unknown { .. })), "never new: {held:?}");
        bench.clock.advance(Duration::from_secs(1));
        let next = bench.run(takes()).await;
        assert!(next.lease().attempt >= 2, "{fault:?}: {:?}", next.lease());
    }
}

#[tokio::test(start_paused = true)]
async fn o6_what_cannot_be_stored_is_kept_within_a_bound() {
    let mut limits = Limits::default();
    limits.unstored_bytes = 1_000;
    let bench = Bench::with(limits);
    let large = || Outcome::new(vec![b'x'; 600]);
    let runs = [bench.run(claim("a")).await, bench.run(claim("b")).await];
    for _ in 0..100 {
        bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    }
    for run in runs {
        assert!(matches!(run.complete(large(), DAY).await, RunEnded::Unstored));
    }
    let given_up = |e: &Event| matches!(e, Event::RunEnded(RunEnd::Unstored, _));
    assert_eq!(bench.seen.count(given_up), 1, "there is room for one");
    bench.store.heal();
    bench.clock.advance(Duration::from_secs(1));
    let standing = async |key| bench.standing(&claim(key).id).await;
    until("the first is stored", async || standing("a").await == Some(Standing::Completed)).await;
    // Nobody speaks for the second any more: its lease ends, and nobody knows.
    bench.clock.advance(LEASE);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(standing("b").await, Some(Standing::Unknown));
    // The room is free again.
    let run = bench.run(claim("c")).await;
    for _ in 0..2 {
        bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    }
    assert!(matches!(run.complete(large(), DAY).await, RunEnded::Unstored));
    bench.clock.advance(Duration::from_secs(1));
    until("it is stored", async || standing("c").await == Some(Standing::Completed)).await;
    assert_eq!(bench.seen.count(given_up), 1);
}

#[tokio::test(start_paused = true)]
async fn o6_a_store_that_hangs_keeps_the_client_for_two_seconds_in_all() {
    let bench = Bench::new();
    let run = bench.run(claim("k")).await;
    for _ in 0..2 {
        bench.store.fail(Call::Complete, Fault::Hangs);
    }
    let ended = tokio::time::timeout(Duration::from_millis(2_100), run.complete(done(), DAY)).await;
    assert!(matches!(ended, Ok(RunEnded::Unstored)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn x4_o6_while_it_is_tried_in_the_background_the_lease_is_renewed() {
    let bench = Bench::new();
    let run = bench.run(claim("k")).await;
    for _ in 0..1_000 {
        bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    }
    assert!(matches!(run.complete(done(), DAY).await, RunEnded::Unstored));
    for turn in 1..=6 {
        bench.clock.advance(LEASE / 3);
        until("it is renewed", async || bench.store.calls(Call::Renew) >= turn).await;
        let again = bench.begin(claim("k")).await;
        assert!(matches!(again, Ok(Begun::InProgress { .. })), "{again:?}");
    }
    bench.store.heal();
    let id = claim("k").id;
    until("it is stored", async || {
        bench.clock.advance(Duration::from_secs(1));
        bench.standing(&id).await == Some(Standing::Completed)
    })
    .await;
    let replay = bench.begin(claim("k")).await;
    assert!(matches!(replay, Ok(Begun::Replay { .. })), "{replay:?}");
}

/// What must not be lost of an outcome.
fn head(_: &Outcome) -> Outcome {
    Outcome::new(&b"head"[..])
}

#[tokio::test(start_paused = true)]
async fn x5_a_store_without_room_gets_what_must_not_be_lost_at_once() {
    for full in [StoreErrorKind::Full, StoreErrorKind::OutOfBounds] {
        let bench = Bench::new();
        let run = bench.run(claim("k")).await;
        bench.store.fail(Call::Complete, Fault::Before(full));
        let ended = run.complete_at_least(done(), DAY, head).await;
        assert!(matches!(ended, RunEnded::Stored { .. }), "{ended:?}");
        assert_eq!(bench.store.calls(Call::Complete), 2);
        assert_eq!(bench.seen.count(|event| *event == Event::OutcomeLessened), 1);
        let again = bench.begin(claim("k")).await;
        let Ok(Begun::Replay { outcome, .. }) = again else { panic!("{again:?}") };
        assert_eq!(outcome, head(&done()));
    }
}

#[tokio::test(start_paused = true)]
async fn x5_o6_a_store_that_becomes_full_meanwhile_is_tried_with_less_in_the_background() {
    let bench = Bench::new();
    let run = bench.run(claim("k")).await;
    bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Full));
    let ended = run.complete_at_least(done(), DAY, head).await;
    assert!(matches!(ended, RunEnded::Unstored), "{ended:?}");
    assert!(bench.engine.unstored_bytes() > 0);
    bench.clock.advance(Duration::from_secs(1));
    let id = claim("k").id;
    until("it is stored", async || bench.standing(&id).await == Some(Standing::Completed)).await;
    let again = bench.begin(claim("k")).await;
    let Ok(Begun::Replay { outcome, .. }) = again else { panic!("{again:?}") };
    assert_eq!(outcome, head(&done()));
    assert_eq!(bench.engine.unstored_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn o6_x5_where_the_backlog_has_no_room_for_the_whole_it_keeps_what_must_not_be_lost() {
    let mut limits = Limits::default();
    limits.unstored_bytes = 1_000;
    let bench = Bench::with(limits);
    let run = bench.run(claim("k")).await;
    for _ in 0..2 {
        bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    }
    let ended = run.complete_at_least(Outcome::new(vec![b'x'; 2_000]), DAY, head).await;
    assert!(matches!(ended, RunEnded::Unstored), "{ended:?}");
    bench.clock.advance(Duration::from_secs(1));
    let id = claim("k").id;
    until("it is stored", async || bench.standing(&id).await == Some(Standing::Completed)).await;
}

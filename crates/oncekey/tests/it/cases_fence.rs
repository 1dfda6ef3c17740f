//! Ownership, fences and renewals (B46 to B59), on each store.
//!
//! B52, a renewal that outlives its run, is in [`engine_keeper`](super::engine_keeper): there a run
//! leaves in every way there is.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use oncekey::engine::{Begun, Run, RunEnded, Terms, Wait};
use oncekey::fingerprint::Secret;
use oncekey::http::{Attempt, BoxError, Layer, Policy, RequestBody, Scoping};
use oncekey::record::{Outcome, Record, Standing, State, Why};
use oncekey::store::{Claim, Claimed, Ending, Held, Note, OnUnknown, Store, StoreErrorKind};
use tower::{Layer as _, ServiceExt};

use crate::bed::{Bed, begin, on_each_store, run, until};
use crate::engine::{DAY, LEASE, claim, done};
use crate::faulty::{Call, Fault};
use crate::rig::{AppBody, Reply, pay};

on_each_store! {
    l2_b46_a_run_that_lost_its_lease_frees_nothing_and_is_told_so
    l2_b46_b47_b59_a_token_that_was_taken_over_changes_nothing_whatever_it_says
    l5_b49_b50_a_renewal_that_fails_is_no_loss_and_one_that_is_refused_is_told_at_once
    l5_b49_a_handler_is_told_that_another_holds_its_record
    c2_b53_whoever_is_refused_takes_nothing_from_the_holder
    s1_b55_what_the_handler_does_to_its_request_changes_no_key
    s1_b56_what_is_claimed_under_a_name_is_found_and_freed_under_it
    c3_b58_nothing_that_happens_to_a_record_changes_its_identity
}

fn taking_over(key: &str) -> Claim {
    Claim { on_unknown: OnUnknown::TakeOver, ..claim(key) }
}

/// A run whose lease is not renewed, so that its end comes.
async fn brief(engine: &oncekey::engine::Engine, key: &str) -> Run {
    let terms = Terms { wait: Wait::Reject, max_run: Duration::ZERO };
    let now = engine.clock().now();
    match engine.begin(claim(key), now, terms, std::future::pending()).await {
        Ok(Begun::Run(run)) => run,
        other => panic!("no run: {other:?}"),
    }
}

async fn l2_b46_a_run_that_lost_its_lease_frees_nothing_and_is_told_so(bed: Bed) {
    for how in ["release", "retry", "abandon", "complete", "drop"] {
        let engine = bed.engine_on(Arc::clone(&bed.store) as _);
        let first = brief(&engine, how).await;
        bed.clock.advance(LEASE);
        let second = bed.acquire(&taking_over(how)).await;
        let before = bed.record(how).await;
        let ended = match how {
            "release" => first.release().await,
            "retry" => first.retry(500, DAY, None).await,
            "abandon" => first.abandon(Why::Abandoned).await,
            "complete" => first.complete(done(), DAY).await,
            _ => {
                drop(first);
                RunEnded::Lost
            }
        };
        assert!(matches!(ended, RunEnded::Lost), "{how}: {ended:?}");
        engine.stop(Duration::from_secs(30)).await;
        assert_eq!(bed.record(how).await, before, "{how}");
        let third = bed.store.claim(&taking_over(how)).await;
        assert!(matches!(third, Ok(Claimed::InProgress { .. })), "{how}: {third:?}");
        let held = bed.store.complete(&second, &done(), DAY).await;
        assert!(matches!(held, Ok(Held::Ours { attempt: 2, .. })), "{how}: {held:?}");
    }
}

async fn l2_b46_b47_b59_a_token_that_was_taken_over_changes_nothing_whatever_it_says(bed: Bed) {
    let release = Ending::Release;
    let retry = Ending::Retry { status: 500, keep: DAY };
    let unknown = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
    let take_back = Ending::TakeBack { on_unknown: OnUnknown::Hold };
    for end_of_second in ["held", "completed", "unknown", "retry"] {
        let key = end_of_second;
        let first = bed.acquire(&claim(key)).await;
        bed.clock.advance(LEASE);
        let second = bed.acquire(&taking_over(key)).await;
        assert_eq!((first.attempt, second.attempt), (1, 2));
        let ended = match end_of_second {
            "completed" => bed.store.complete(&second, &Outcome::new(&b"2"[..]), DAY).await,
            "unknown" => bed.store.end(&second, unknown).await,
            "retry" => bed.store.end(&second, retry).await,
            _ => bed.store.renew(&second, LEASE, None).await,
        };
        assert!(matches!(ended, Ok(Held::Ours { attempt: 2, .. })), "{key}: {ended:?}");
        let before = bed.record(key).await;
        let store = &bed.store;
        let note = Note::Starts(9);
        let said = [
            store.renew(&first, LEASE * 100, None).await,
            store.renew(&first, LEASE, Some(&note)).await,
            store.complete(&first, &Outcome::new(&b"1"[..]), DAY).await,
            store.end(&first, retry).await,
            store.end(&first, unknown).await,
            store.end(&first, release).await,
            store.end(&first, take_back).await,
        ];
        for (call, told) in said.into_iter().enumerate() {
            let lost = matches!(told, Ok(Held::Lost { attempt: Some(2) }));
            assert!(lost, "{key}, call {call}: {told:?}");
        }
        assert_eq!(bed.record(key).await, before, "{key}");
    }
}

async fn l5_b49_b50_a_renewal_that_fails_is_no_loss_and_one_that_is_refused_is_told_at_once(
    bed: Bed,
) {
    let store = bed.faulty();
    let engine = bed.engine_on(Arc::clone(&store) as _);
    let [kept, taken] = [run(&engine, claim("kept")).await, run(&engine, claim("taken")).await];
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::Timeout, StoreErrorKind::Unreadable] {
        for _ in 0..300 {
            store.fail(Call::Renew, Fault::Before(kind));
        }
    }
    // Two leases long the store is away, whatever it says.
    for turn in 1..=24 {
        bed.clock.advance(LEASE / 12);
        until("it goes on trying", async || store.calls(Call::Renew) >= turn / 4).await;
    }
    assert!(!kept.lost().is_cancelled() && !taken.lost().is_cancelled(), "an error is no loss");
    assert_eq!(bed.standing("kept").await, Some(Standing::Unknown), "and no right either");
    let second = bed.acquire(&taking_over("taken")).await;
    let theirs = bed.record("taken").await;
    store.heal();
    // Renewed by its own token, the one is held again; the other is told at once.
    until("both are tried", async || {
        bed.clock.advance(LEASE / 12);
        taken.lost().is_cancelled() && bed.standing("kept").await == Some(Standing::InProgress)
    })
    .await;
    assert!(!kept.lost().is_cancelled());
    assert!(!taken.told().is_cancelled(), "its time is not over");
    assert_eq!(bed.record("taken").await.map(|r| r.token), theirs.map(|r| r.token));
    assert!(matches!(taken.complete(done(), DAY).await, RunEnded::Lost));
    assert!(matches!(kept.complete(done(), DAY).await, RunEnded::Stored { .. }));
    let held = bed.store.complete(&second, &done(), DAY).await;
    assert!(matches!(held, Ok(Held::Ours { .. })), "{held:?}");
}

/// The layer around `handle`, which gets the whole request.
fn service<F, A>(
    bed: &Bed,
    store: Arc<dyn Store>,
    handle: F,
) -> impl tower::Service<
    Request<Full<Bytes>>,
    Response = Response<oncekey::http::ResponseBody<AppBody>>,
    Error = BoxError,
    Future: Send,
> + Clone
+ use<F, A>
where
    F: Fn(Request<RequestBody<Full<Bytes>>>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = &'static str> + Send + 'static,
{
    let inner = tower::service_fn(move |request| {
        let answer = handle(request);
        async move {
            let body = Full::from(answer.await).map_err(|never: Infallible| match never {});
            Ok::<_, BoxError>(Response::new(body.boxed()))
        }
    });
    let secret = Secret::from_bytes([7; 32]);
    let policy = Policy::default().with(|policy| policy.wait = Wait::Reject);
    Layer::new(bed.engine_on(store), Scoping::shared(), secret).with_policy(policy).layer(inner)
}

async fn l5_b49_a_handler_is_told_that_another_holds_its_record(bed: Bed) {
    let store = bed.faulty();
    for _ in 0..1_000 {
        store.fail(Call::Renew, Fault::Before(StoreErrorKind::Unavailable));
    }
    let entered = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&entered);
    let service = service(&bed, Arc::clone(&store) as _, move |request| {
        let attempt = request.extensions().get::<Attempt>().expect("it is keyed").clone();
        seen.fetch_add(1, Ordering::SeqCst);
        async move {
            attempt.lost().cancelled().await;
            "left the second step"
        }
    });
    let client = tokio::spawn(service.oneshot(pay("k", "", "")));
    until("it runs", async || entered.load(Ordering::SeqCst) == 1).await;
    bed.clock.advance(LEASE);
    let second = bed.acquire(&taking_over("k")).await;
    store.heal();
    until("it is told", async || {
        bed.clock.advance(LEASE / 12);
        let _ = bed.store.renew(&second, LEASE, None).await;
        client.is_finished()
    })
    .await;
    let reply = Reply::read(client.await.expect("no panic").expect("an answer")).await;
    assert_eq!((reply.told(), &reply.body[..]), ("lost", &b"left the second step"[..]));
    let held = bed.store.complete(&second, &done(), DAY).await;
    assert!(matches!(held, Ok(Held::Ours { .. })), "{held:?}");
}

async fn c2_b53_whoever_is_refused_takes_nothing_from_the_holder(bed: Bed) {
    let faults = [
        None,
        Some(Fault::After(StoreErrorKind::Timeout)),
        Some(Fault::Before(StoreErrorKind::Timeout)),
        Some(Fault::Before(StoreErrorKind::Unreadable)),
    ];
    for on_unknown in [OnUnknown::Hold, OnUnknown::Ask, OnUnknown::TakeOver] {
        for (at, fault) in faults.into_iter().enumerate() {
            let key = format!("{on_unknown:?}{at}");
            let winner = bed.acquire(&claim(&key)).await;
            let before = bed.record(&key).await;
            let store = bed.faulty();
            let engine = bed.engine_on(Arc::clone(&store) as _);
            let loser = Claim { on_unknown, ..claim(&key) };
            store.fail(Call::End, Fault::Before(StoreErrorKind::Unavailable));
            if let Some(fault) = fault {
                store.fail(Call::Claim, fault);
            }
            let told = begin(&engine, loser.clone()).await;
            assert!(matches!(told, Err(_) | Ok(Begun::InProgress { .. })), "{key}: {told:?}");
            // It tidies up after itself, and not after the winner.
            let timeout = StoreErrorKind::Timeout;
            let open =
                fault == Some(Fault::After(timeout)) || fault == Some(Fault::Before(timeout));
            until("it is tried again", async || {
                bed.clock.advance(Duration::from_millis(10));
                !open || store.calls(Call::End) == 2
            })
            .await;
            assert_eq!(engine.stop(Duration::from_secs(30)).await, 0);
            assert_eq!(bed.record(&key).await, before, "{key}");
            let held = bed.store.end(&winner, Ending::Release).await;
            assert!(matches!(held, Ok(Held::Ours { .. })), "{key}: {held:?}");
            if open {
                let late = bed.store.claim(&loser).await;
                assert!(matches!(late, Ok(Claimed::Lost)), "its own claim is dead: {late:?}");
            }
        }
    }
}

async fn s1_b55_what_the_handler_does_to_its_request_changes_no_key(bed: Bed) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let service = service(&bed, Arc::clone(&bed.store) as _, move |mut request| {
        count.fetch_add(1, Ordering::SeqCst);
        request.headers_mut().insert("idempotency-key", "another".parse().expect("a value"));
        *request.uri_mut() = "/elsewhere".parse().expect("a path");
        *request.method_mut() = http::Method::PUT;
        async move {
            drop(request.into_body().collect().await.expect("a body"));
            "done"
        }
    });
    for told in ["stored", "replayed", "replayed"] {
        let answer = service.clone().oneshot(pay("k", "", "body")).await.expect("an answer");
        assert_eq!(Reply::read(answer).await.told(), told);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(bed.standing("k").await, Some(Standing::Completed));
    assert_eq!(bed.record("another").await, None);
}

async fn s1_b56_what_is_claimed_under_a_name_is_found_and_freed_under_it(bed: Bed) {
    let spaced = "a key with: slash/ and \u{22}quotes\u{22}";
    for key in ["k", "main", "K", "k%20", spaced] {
        for round in 1..=3 {
            let lease = bed.acquire(&claim(key)).await;
            assert_eq!(lease.attempt, 1, "{key} {round}");
            let record = bed.record(key).await.expect("it is found under its name");
            assert_eq!((record.id, record.key.as_str()), (lease.id, key));
            assert!(matches!(bed.store.end(&lease, Ending::Release).await, Ok(Held::Ours { .. })));
            assert_eq!(bed.record(key).await, None, "{key}");
        }
        let lease = bed.acquire(&claim(key)).await;
        assert!(matches!(bed.store.complete(&lease, &done(), DAY).await, Ok(Held::Ours { .. })));
        let told = bed.store.claim(&claim(key)).await;
        assert!(matches!(told, Ok(Claimed::Completed { .. })), "{key}: {told:?}");
    }
    let page = bed.store.list(&oncekey::store::Filter::default(), None, 100).await.expect("a page");
    assert_eq!(page.records.len(), 5, "each is there once");
}

/// What names the operation, and who made it for what.
fn identity(record: &Record) -> Record {
    let mut identity = record.clone();
    // Everything else is what may change.
    identity.state = State::InProgress { lease_until: identity.created };
    identity.token = oncekey::record::LeaseToken::NOBODY;
    identity.version = oncekey::record::Version::ABSENT;
    identity.attempt = 0;
    identity.reference = None;
    identity
}

async fn c3_b58_nothing_that_happens_to_a_record_changes_its_identity(bed: Bed) {
    let asked = Claim { memo: Bytes::from_static(b"first memo"), ..claim("k") };
    let first = bed.acquire(&asked).await;
    let made = identity(&bed.record("k").await.expect("a record"));
    let same = async |what: &str| {
        let found = bed.record("k").await.expect("a record");
        assert!(identity(&found) == made, "{what}: {found:?}");
    };
    let store = &bed.store;
    let note = Note::Reference("ch_1".into());
    assert!(matches!(store.renew(&first, LEASE, Some(&note)).await, Ok(Held::Ours { .. })));
    same("renewed").await;
    let how = Ending::Retry { status: 500, keep: DAY };
    assert!(matches!(store.end(&first, how).await, Ok(Held::Ours { .. })));
    same("in retry").await;
    bed.clock.advance(LEASE);
    let other = Claim { memo: Bytes::from_static(b"another"), ..claim("k") };
    let second = bed.acquire(&other).await;
    same("claimed again").await;
    let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
    assert!(matches!(store.end(&second, how).await, Ok(Held::Ours { .. })));
    same("unknown").await;
    bed.clock.advance(LEASE);
    let third = bed.acquire(&taking_over("k")).await;
    same("taken over").await;
    let how = Ending::TakeBack { on_unknown: OnUnknown::TakeOver };
    assert!(matches!(store.end(&third, how).await, Ok(Held::Ours { .. })));
    same("taken back").await;
    bed.clock.advance(LEASE);
    let fourth = bed.acquire(&taking_over("k")).await;
    assert!(matches!(store.complete(&fourth, &done(), DAY).await, Ok(Held::Ours { .. })));
    same("completed").await;
    let replay = store.claim(&claim("k")).await;
    assert!(matches!(replay, Ok(Claimed::Completed { .. })), "{replay:?}");
}

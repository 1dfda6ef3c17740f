//! The engine by itself: waiting, endings, stopping, and what an observer is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use oncekey::clock::{Clock, Stamp};
use oncekey::engine::{Begun, Engine, Limits, Run, RunEnded, Terms, Wait};
use oncekey::events::{ClaimResult, Event, Observer, RunEnd};
use oncekey::fingerprint::{Fingerprint, Recipe};
use oncekey::key::{Key, RecordId, Scope};
use oncekey::record::{
    Kind, LeaseToken, Outcome, Principal, Record, Retention, Standing, State, Why,
};
use oncekey::store::{Claim, MemoryStore, OnUnknown, Store, StoreError, StoreErrorKind};
use tokio::task::JoinHandle;

use crate::faulty::{Call, Fault, Faulty};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const DAY: Retention = Retention::keep(Duration::from_secs(24 * 3600));

/// Keeps every event.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Vec<Event>>);

impl Observer for Seen {
    fn note(&self, event: Event) {
        self.0.lock().expect("not poisoned").push(event);
    }
}

impl Seen {
    pub(crate) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().expect("not poisoned").iter().filter(|event| wanted(event)).count()
    }
}

/// An engine on a store that fails as it is told, with a clock that is moved by hand.
pub(crate) struct Bench {
    pub(crate) clock: Clock,
    pub(crate) store: Arc<Faulty>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) engine: Engine,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let clock = Clock::manual();
        let memory = Arc::new(MemoryStore::new().with_clock(clock.clone()));
        let store = Arc::new(Faulty::new(memory));
        let seen = Arc::new(Seen::default());
        let engine =
            Engine::with(Arc::clone(&store) as _, clock.clone(), Arc::clone(&seen) as _, limits);
        Self { clock, store, seen, engine }
    }

    /// Claims without waiting.
    pub(crate) async fn begin(&self, claim: Claim) -> Result<Begun, StoreError> {
        let terms = Terms { wait: Wait::Reject, max_run: Duration::from_secs(900) };
        self.engine.begin(claim, self.clock.now(), terms, std::future::pending()).await
    }

    /// The run of a claim that must get one.
    pub(crate) async fn run(&self, claim: Claim) -> Run {
        match self.begin(claim).await {
            Ok(Begun::Run(run)) => run,
            other => panic!("no run: {other:?}"),
        }
    }

    /// Claims and waits, as a request of its own.
    fn wait(&self, claim: Claim) -> JoinHandle<Result<Begun, StoreError>> {
        let (engine, arrived): (_, Stamp) = (self.engine.clone(), self.clock.now());
        let wait = Wait::UpTo(Duration::from_secs(5));
        let terms = Terms { wait, max_run: Duration::from_secs(900) };
        self.engine
            .spawn(async move { engine.begin(claim, arrived, terms, std::future::pending()).await })
    }

    pub(crate) async fn record(&self, id: &RecordId) -> Option<Record> {
        self.store.get(id).await.expect("reading never fails here")
    }

    pub(crate) async fn standing(&self, id: &RecordId) -> Option<Standing> {
        self.record(id).await.map(|record| record.standing(self.clock.now()))
    }

    async fn waiting(&self, count: usize) {
        until("so many wait", async || {
            self.seen.count(|event| *event == Event::WaitStarted) == count
        })
        .await;
    }
}

/// Returns once the condition holds. Tasks get their turn; the clock stands still.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..20_000 {
        if holds().await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it did not come to this: {what}");
}

pub(crate) fn claim(key: &str) -> Claim {
    let key = Key::from_text(key).expect("a key");
    let scope = Scope::new("main", "shared", "POST /pay");
    Claim {
        id: RecordId::derive(Kind::Request, &scope, &key),
        kind: Kind::Request,
        scope,
        key,
        principal: Principal::anonymous(),
        fingerprint: Fingerprint::from_parts(Recipe::from_number(1), [0; 32]),
        token: LeaseToken::random(),
        lease: LEASE,
        horizon: Duration::from_secs(90 * 24 * 3600),
        on_unknown: OnUnknown::Hold,
        age: Duration::ZERO,
        memo: Bytes::new(),
    }
}

pub(crate) fn done() -> Outcome {
    Outcome::new(&b"done"[..])
}

pub(crate) fn why(record: Option<Record>) -> Option<Why> {
    match record?.state {
        State::Unknown { why, .. } => Some(why),
        _ => None,
    }
}

#[tokio::test]
async fn c4_above_its_bounds_nobody_waits() {
    let mut limits = Limits::default();
    limits.waiters_per_key = 2;
    limits.waiters = 4;
    let bench = Bench::with(limits);
    let held = [bench.run(claim("a")).await, bench.run(claim("b")).await];
    // The clock stands still: whoever waited would never be told.
    let refused = async |key, bound| {
        let told = bench.wait(claim(key)).await.expect("no panic");
        assert!(matches!(told, Ok(Begun::InProgress { .. })), "{bound}: {told:?}");
    };
    let mut waiting = vec![bench.wait(claim("a")), bench.wait(claim("a"))];
    bench.waiting(2).await;
    refused("a", "two wait for this key").await;
    waiting.extend([bench.wait(claim("b")), bench.wait(claim("b"))]);
    bench.waiting(4).await;
    let other = bench.run(claim("other")).await;
    refused("other", "four wait in all").await;
    assert!(matches!(other.release().await, RunEnded::Stored { .. }));
    for run in held {
        assert!(matches!(run.complete(done(), DAY).await, RunEnded::Stored { .. }));
    }
    for waiter in waiting {
        let told = waiter.await.expect("no panic");
        assert!(matches!(told, Ok(Begun::Replay { .. })), "{told:?}");
    }
    assert_eq!(bench.seen.count(|event| *event == Event::WaitEnded), 4);
    // The seats are free again.
    let _held = bench.run(claim("c")).await;
    let _waits = [bench.wait(claim("c")), bench.wait(claim("c"))];
    bench.waiting(6).await;
}

#[tokio::test]
async fn c4_of_those_who_wait_for_a_released_run_one_gets_the_next() {
    let bench = Bench::new();
    let run = bench.run(claim("k")).await;
    let waiting: Vec<_> = (0..5).map(|_| bench.wait(claim("k"))).collect();
    bench.waiting(5).await;
    assert!(matches!(run.release().await, RunEnded::Stored { .. }));
    let mut runs = 0;
    for waiter in waiting {
        match waiter.await.expect("no panic").expect("no trouble") {
            Begun::Run(run) => {
                runs += 1;
                assert_eq!(run.lease().attempt, 1);
                assert!(matches!(run.complete(done(), DAY).await, RunEnded::Stored { .. }));
            }
            Begun::Replay { outcome, .. } => assert_eq!(outcome, done()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn o7_b25_b31_a_run_that_is_dropped_is_unknown_and_says_why() {
    let bench = Bench::new();
    let run = bench.run(claim("dropped")).await;
    drop(run);
    let run = bench.run(claim("panicked")).await;
    let panicked = bench.engine.spawn(async move {
        let _held = run;
        panic!("the work was told to");
    });
    assert!(panicked.await.is_err());
    let run = bench.run(claim("cancelled")).await;
    let cancelled = bench.engine.spawn(async move {
        let _held = run;
        std::future::pending::<()>().await;
    });
    cancelled.abort();
    assert!(cancelled.await.is_err());
    for (key, expected) in
        [("dropped", Why::Abandoned), ("panicked", Why::Panicked), ("cancelled", Why::Abandoned)]
    {
        let id = claim(key).id;
        until("it is unknown", async || why(bench.record(&id).await).is_some()).await;
        assert_eq!(why(bench.record(&id).await), Some(expected), "{key}");
        let again = bench.begin(claim(key)).await;
        assert!(matches!(again, Ok(Begun::Unknown { attempt: 1, .. })), "{key}: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn u5_a_stop_finishes_what_runs_lets_waiters_go_and_waits_for_the_background() {
    let bench = Bench::new();
    let run = bench.run(claim("slow")).await;
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let work = bench.engine.spawn(async move {
        finished.await.expect("it is sent");
        run.complete(done(), DAY).await
    });
    let waiter = bench.wait(claim("slow"));
    bench.waiting(1).await;
    // An ending that the store did not take yet goes on in the background.
    let unstored = bench.run(claim("unstored")).await;
    bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    bench.store.fail(Call::Complete, Fault::Before(StoreErrorKind::Unavailable));
    assert!(matches!(unstored.complete(done(), DAY).await, RunEnded::Unstored));

    let stopping = tokio::spawn({
        let engine = bench.engine.clone();
        async move { engine.stop(Duration::from_secs(25)).await }
    });
    assert!(matches!(waiter.await.expect("no panic"), Ok(Begun::Draining)));
    assert!(matches!(bench.begin(claim("new")).await, Ok(Begun::Draining)));
    assert!(!stopping.is_finished(), "it waits for what runs");
    finish.send(()).expect("it is awaited");
    assert!(matches!(work.await.expect("no panic"), RunEnded::Stored { .. }));
    assert!(!stopping.is_finished(), "it waits for what is not stored yet");
    bench.clock.advance(Duration::from_millis(50));
    assert_eq!(stopping.await.expect("no panic"), 0, "nothing was cut off");
    for key in ["slow", "unstored"] {
        assert_eq!(bench.standing(&claim(key).id).await, Some(Standing::Completed), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn u5_what_a_stop_cuts_off_is_unknown_and_what_is_not_its_own_is_left() {
    let bench = Bench::new();
    let cut = bench.run(claim("cut")).await;
    let lost = bench.run(claim("lost")).await;
    // The second run's lease ends, and another process takes the record.
    let renewals = StoreErrorKind::Unavailable;
    for _ in 0..50 {
        bench.store.fail(Call::Renew, Fault::Before(renewals));
    }
    bench.clock.advance(LEASE);
    let theirs = Claim { on_unknown: OnUnknown::TakeOver, ..claim("lost") };
    bench.store.claim(&theirs).await.expect("no trouble");
    let _work = bench.engine.spawn(async move {
        let _held = (cut, lost);
        std::future::pending::<()>().await;
    });
    assert_eq!(bench.engine.stop(Duration::from_millis(10)).await, 1, "one was cut off");
    assert_eq!(why(bench.record(&claim("cut").id).await), Some(Why::Stopped));
    assert_eq!(bench.standing(&theirs.id).await, Some(Standing::InProgress), "it is theirs");
    assert_eq!(bench.seen.count(|e| *e == Event::BecameUnknown(Why::Stopped)), 1);
}

#[tokio::test]
async fn every_event_is_told() {
    let bench = Bench::new();
    let ends =
        |end: RunEnd| bench.seen.count(|e| matches!(e, Event::RunEnded(known, _) if *known == end));
    let claims = |result: ClaimResult| {
        bench.seen.count(|e| matches!(e, Event::Claimed(known, _) if *known == result))
    };

    let _ = bench.run(claim("completed")).await.complete(done(), DAY).await;
    let _ = bench.run(claim("released")).await.release().await;
    let _ = bench.run(claim("retry")).await.retry(500, DAY, None).await;
    let _ = bench.run(claim("unknown")).await.abandon(Why::Abandoned).await;
    assert_eq!(bench.seen.count(|e| *e == Event::RunStarted), 4);
    assert_eq!(claims(ClaimResult::Acquired), 4);
    for end in [RunEnd::Completed, RunEnd::Released, RunEnd::Retry, RunEnd::Unknown] {
        assert_eq!(ends(end), 1, "{end:?}");
    }
    assert_eq!(bench.seen.count(|e| *e == Event::BecameUnknown(Why::Abandoned)), 1);

    let _ = bench.begin(claim("completed")).await;
    let _ = bench.begin(claim("unknown")).await;
    let digest = Fingerprint::from_parts(Recipe::from_number(1), [1; 32]);
    let _ = bench.begin(Claim { fingerprint: digest, ..claim("completed") }).await;
    let _ = bench.begin(Claim { principal: Principal::named("eve"), ..claim("completed") }).await;
    let held = bench.run(claim("held")).await;
    let _ = bench.begin(claim("held")).await;
    bench.store.fail(Call::Claim, Fault::Before(StoreErrorKind::Full));
    let _ = bench.begin(claim("error")).await;
    let keep = Retention::keep(Duration::from_secs(1)).with_tombstone(Duration::from_secs(60));
    let _ = bench.run(claim("expired")).await.complete(done(), keep).await;
    bench.clock.advance(Duration::from_secs(1));
    let _ = bench.begin(claim("expired")).await;
    for result in ClaimResult::ALL {
        assert!(claims(result) >= 1, "{result:?}");
    }

    let waiter = bench.wait(claim("held"));
    bench.waiting(1).await;
    let _ = held.complete(done(), DAY).await;
    waiter.await.expect("no panic").expect("no trouble");
    assert_eq!(bench.seen.count(|e| *e == Event::WaitEnded), 1);

    let lost = bench.run(claim("lost")).await;
    bench.clock.advance(LEASE);
    let theirs = Claim { on_unknown: OnUnknown::TakeOver, ..claim("lost") };
    bench.store.claim(&theirs).await.expect("no trouble");
    assert!(matches!(lost.complete(done(), DAY).await, RunEnded::Lost));
    assert_eq!(bench.seen.count(|e| *e == Event::LeaseLost), 1);
}

#[cfg(feature = "embedded")]
#[tokio::test]
async fn every_batch_of_the_embedded_store_is_told() {
    use oncekey::store::{EmbeddedStore, embedded::Options};
    let folder = tempfile::tempdir().expect("a folder");
    let seen = Arc::new(Seen::default());
    let options = Options { observer: Arc::clone(&seen) as _, ..Options::default() };
    let store = EmbeddedStore::open(folder.path(), options).expect("a store");
    store.claim(&claim("k")).await.expect("no trouble");
    assert!(seen.count(|event| matches!(event, Event::StoreBatch(1))) >= 1);
}

//! Ways in which libraries of this kind were seen to fail, each made impossible here: the races for
//! a claim (B1 to B20). [`cases_crash`](super::cases_crash) and
//! [`cases_dropped`](super::cases_dropped) have crashes, time-outs and cancellation (B22 to B44),
//! [`cases_fence`](super::cases_fence) ownership and renewals (B46 to B59),
//! [`cases_keys`](super::cases_keys) identity, tenancy and keys (B74 to B101, B139),
//! [`cases_answers`](super::cases_answers) what is kept and replayed (B104 to B127),
//! [`cases_stores`](super::cases_stores) and `cases_damage` the stores (B130 to B137).
//!
//! A test bears the number of its case. These have none:
//!
//! - B8, a store that cannot compare and set: `Store` demands one atomic conditional write, and the
//!   conformance suite races whoever claims to have it.
//! - B11, one key twice in a batch: a request has one key. Two requests in one packet are tried
//!   through the gateway, two lines of the header are a row of B139.
//! - B13, a locking read of a missing row: of an SQL store.
//! - B103, secrets in stored answers: needs records that are encrypted.
//! - B140, a client that makes a new key for each try: of a helper for clients.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use oncekey::clock::Clock;
use oncekey::engine::Wait;
use oncekey::http::{Policy, Scoping};
use oncekey::key::RecordId;
use oncekey::record::{Lease, Outcome, Record, Retention, State, Version};
use oncekey::store::{
    Claim, Claimed, Ending, Held, MemoryStore, Note, OnUnknown, Store, StoreError, StoreErrorKind,
};

use crate::faulty::{Call, Fault, Faulty};
use crate::rig::{App, Rig, pay};

fn reject() -> Policy {
    Policy::default().with(|policy| policy.wait = Wait::Reject)
}

/// Runs an unknown one again, and lets its own lease end after its 30 seconds.
fn taking_over() -> Policy {
    Policy::default().with(|policy| {
        policy.on_unknown = OnUnknown::TakeOver;
        policy.wait = Wait::Reject;
        policy.max_run = Duration::from_secs(1);
    })
}

/// Another process on the same store.
fn beside(rig: &Rig, policy: Policy) -> Rig {
    Rig::on(Arc::clone(&rig.store), rig.clock.clone(), policy, Scoping::shared())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c1_b1_of_a_thousand_shuffled_races_each_has_one_run() {
    const KEYS: usize = 1_000;
    let rig = Rig::new(Policy::default());
    // Three requests a key, in an order that mixes keys: 7919 is prime and shares no factor.
    let sent: Vec<_> = (0..3 * KEYS)
        .map(|at| at * 7_919 % (3 * KEYS) % KEYS)
        .map(|key| (key, rig.spawn(pay(&format!("k{key}"), "", ""))))
        .collect();
    let mut bodies = vec![None; KEYS];
    for (key, reply) in sent {
        let reply = reply.await.expect("an answer");
        assert_eq!(reply.status, 201);
        let first = bodies[key].get_or_insert_with(|| reply.body.clone());
        assert_eq!(*first, reply.body, "one key has one answer");
    }
    assert_eq!(rig.app.runs(), KEYS);
}

#[tokio::test]
async fn c4_b2_an_impatient_client_never_starts_a_second_run() {
    let rig = Rig::new(reject());
    let first = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    for _ in 0..3 {
        rig.clock.advance(Duration::from_secs(3));
        let again = rig.send(pay("k", "wait", "")).await;
        assert_eq!((again.status, again.code().as_str()), (409, "in-progress"));
        assert!(again.header("retry-after").is_some());
    }
    rig.app.open();
    assert_eq!(first.await.expect("an answer").told(), "stored");
    assert_eq!(rig.app.runs(), 1);
}

/// A store in which the run that holds the record ends just before anybody waits for it.
#[derive(Debug)]
struct EndsInBetween {
    inner: MemoryStore,
    app: OnceLock<App>,
}

#[async_trait]
impl Store for EndsInBetween {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.inner.claim(claim).await
    }

    async fn renew(
        &self,
        lease: &Lease,
        ttl: Duration,
        note: Option<&Note>,
    ) -> Result<Held, StoreError> {
        self.inner.renew(lease, ttl, note).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        outcome: &Outcome,
        keep: Retention,
    ) -> Result<Held, StoreError> {
        self.inner.complete(lease, outcome, keep).await
    }

    async fn end(&self, lease: &Lease, how: Ending) -> Result<Held, StoreError> {
        self.inner.end(lease, how).await
    }

    async fn changed(
        &self,
        id: &RecordId,
        seen: Version,
        bound: Duration,
    ) -> Result<(), StoreError> {
        self.app.get().expect("it is set").open();
        for _ in 0..10_000 {
            let found = self.inner.get(id).await?;
            if found.is_some_and(|record| matches!(record.state, State::Completed { .. })) {
                return self.inner.changed(id, seen, bound).await;
            }
            tokio::task::yield_now().await;
        }
        panic!("the run did not end");
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.get(id).await
    }

    async fn purge_expired(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge_expired(limit).await
    }
}

#[tokio::test]
async fn c4_b4_a_winner_that_ends_between_look_and_wait_is_replayed_at_once() {
    let clock = Clock::manual();
    let inner = MemoryStore::new().with_clock(clock.clone());
    let store = Arc::new(EndsInBetween { inner, app: OnceLock::new() });
    let rig = Rig::on(Arc::clone(&store) as _, clock, Policy::default(), Scoping::shared());
    store.app.set(rig.app.clone()).expect("it was not set");
    let winner = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    // The clock stands still: a wait that missed the end would never be over.
    let loser = rig.send(pay("k", "wait", "")).await;
    assert_eq!((loser.status, loser.told()), (201, "replayed"));
    assert_eq!(winner.await.expect("an answer").told(), "stored");
}

#[tokio::test]
async fn c1_b5_a_claim_never_replaces_a_living_one() {
    let rig = Rig::new(reject());
    let first = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    let other = beside(&rig, reject());
    for _ in 0..3 {
        assert_eq!(other.send(pay("k", "", "")).await.code(), "in-progress");
    }
    rig.app.open();
    assert_eq!(first.await.expect("an answer").told(), "stored", "its lease was its own");
    assert_eq!((rig.app.runs(), other.app.runs()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c1_b7_of_many_that_take_over_one_runs_and_its_outcome_stays() {
    let policy = || taking_over().with(|p| p.wait = Wait::UpTo(Duration::from_secs(5)));
    for _ in 0..50 {
        let rig = Rig::new(policy());
        assert_eq!(rig.send(pay("k", "status=504", "")).await.told(), "unknown");
        rig.clock.advance(Duration::from_millis(1));
        let other = beside(&rig, policy());
        let sent: Vec<_> = [&rig, &other]
            .into_iter()
            .cycle()
            .take(10)
            .map(|r| r.spawn(pay("k", "", "")))
            .collect();
        for reply in sent {
            let reply = reply.await.expect("an answer");
            assert_eq!((reply.status, reply.header("x-attempt")), (201, Some("2")));
        }
        assert_eq!(rig.app.runs() + other.app.runs(), 2);
    }
}

#[tokio::test]
async fn x2_b10_b16_a_loser_whose_claim_fails_stops_and_takes_nothing_from_the_winner() {
    for kind in [
        StoreErrorKind::Unavailable,
        StoreErrorKind::Timeout,
        StoreErrorKind::Full,
        StoreErrorKind::Unreadable,
    ] {
        let clock = Clock::manual();
        let memory = Arc::new(MemoryStore::new().with_clock(clock.clone()));
        let store = Arc::new(Faulty::new(memory));
        let rig = Rig::on(Arc::clone(&store) as _, clock, reject(), Scoping::shared());
        let winner = rig.spawn(pay("k", "wait", ""));
        rig.app.entered().await;
        store.fail(Call::Claim, Fault::After(kind));
        assert_eq!(rig.send(pay("k", "wait", "")).await.status, 503, "{kind:?}");
        // What the loser tidies up is its own.
        for _ in 0..3 {
            assert_eq!(rig.send(pay("k", "wait", "")).await.code(), "in-progress", "{kind:?}");
        }
        rig.app.open();
        assert_eq!(winner.await.expect("an answer").told(), "stored", "{kind:?}");
        assert_eq!(rig.app.runs(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn l4_b14_a_lease_ends_at_one_moment_for_everybody() {
    let rig = Rig::new(taking_over());
    let _slow = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    let hold = beside(&rig, reject());
    let take = beside(&rig, taking_over());
    rig.clock.advance(Duration::from_secs(30) - Duration::from_micros(1));
    assert_eq!(hold.send(pay("k", "", "")).await.code(), "in-progress");
    assert_eq!(take.send(pay("k", "", "")).await.code(), "in-progress");
    rig.clock.advance(Duration::from_micros(1));
    assert_eq!(hold.send(pay("k", "", "")).await.code(), "outcome-unknown");
    assert_eq!(take.send(pay("k", "", "")).await.header("x-attempt"), Some("2"));
    assert_eq!((hold.app.runs(), take.app.runs()), (0, 1));
}

#[tokio::test]
async fn c4_b16_whoever_is_refused_or_leaves_frees_nothing() {
    let rig = Rig::new(Policy::default());
    let first = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    let refusing = beside(&rig, reject());
    let waiting = beside(&rig, Policy::default());
    for _ in 0..3 {
        assert_eq!(refusing.send(pay("k", "", "")).await.code(), "in-progress");
        let leaves = waiting.spawn(pay("k", "", ""));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        leaves.abort();
        assert!(leaves.await.is_err());
    }
    rig.app.open();
    assert_eq!(first.await.expect("an answer").told(), "stored");
    assert_eq!((rig.app.runs(), refusing.app.runs(), waiting.app.runs()), (1, 0, 0));
}

#[tokio::test]
async fn c5_b20_replays_are_told_although_the_store_takes_no_writes() {
    let clock = Clock::manual();
    let memory = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let store = Arc::new(Faulty::new(memory));
    let rig = Rig::on(Arc::clone(&store) as _, clock, reject(), Scoping::shared());
    rig.send(pay("k", "", "")).await;
    for call in [Call::Renew, Call::Complete, Call::End] {
        store.fail(call, Fault::Before(StoreErrorKind::Unavailable));
    }
    let sent: Vec<_> = (0..10).map(|_| rig.spawn(pay("k", "", ""))).collect();
    for reply in sent {
        assert_eq!(reply.await.expect("an answer").told(), "replayed");
    }
    assert!(!store.is_spent(), "a replay asks once and writes nothing");
    assert_eq!(rig.app.runs(), 1);
}

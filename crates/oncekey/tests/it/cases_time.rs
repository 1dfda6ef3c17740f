//! Ways in which libraries of this kind were seen to fail with time, each made impossible here
//! (B61 to B73). What a store must do is asked of every store of this crate.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oncekey::clock::Clock;
use oncekey::engine::Wait;
use oncekey::fingerprint::{Fingerprint, Recipe};
use oncekey::http::{Policy, Scoping};
use oncekey::key::{Key, RecordId, Scope};
use oncekey::record::{
    Kind, Lease, LeaseToken, Outcome, Principal, Record, Retention, State, Version, Why,
};
use oncekey::store::{Claim, Claimed, Ending, Held, Inspect, MemoryStore, Note, OnUnknown, Store};

use crate::rig::{Rig, pay};

const MICRO: Duration = Duration::from_micros(1);
const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A store on a clock that stands still.
struct Place {
    name: &'static str,
    clock: Clock,
    store: Arc<dyn Inspect>,
    /// Deleted at the end.
    _folder: Option<tempfile::TempDir>,
}

/// One of each.
fn places() -> Vec<Place> {
    let clock = Clock::manual();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let memory = Place { name: "memory", clock, store, _folder: None };
    #[cfg(feature = "embedded")]
    let embedded = {
        let (clock, folder) = (Clock::manual(), tempfile::tempdir().unwrap());
        let store = Arc::new(crate::embedded::open(folder.path(), &clock));
        Place { name: "embedded", clock, store, _folder: Some(folder) }
    };
    vec![
        memory,
        #[cfg(feature = "embedded")]
        embedded,
    ]
}

fn claim(key: &str) -> Claim {
    let (scope, key) = (Scope::new("main", "shared", "POST /pay"), Key::from_text(key).unwrap());
    Claim {
        id: RecordId::derive(Kind::Request, &scope, &key),
        kind: Kind::Request,
        scope,
        key,
        principal: Principal::anonymous(),
        fingerprint: Fingerprint::from_parts(Recipe::from_number(1), [1; 32]),
        token: LeaseToken::random(),
        lease: Duration::from_secs(30),
        horizon: 90 * DAY,
        on_unknown: OnUnknown::Hold,
        age: Duration::ZERO,
        memo: Bytes::new(),
    }
}

impl Place {
    async fn claim(&self, key: &str) -> Claimed {
        self.store.claim(&claim(key)).await.unwrap()
    }

    async fn take(&self, claim: &Claim) -> Lease {
        match self.store.claim(claim).await.unwrap() {
            Claimed::Acquired(lease) => lease,
            other => panic!("{}: {:?} is acquired, not {other:?}", self.name, claim.id),
        }
    }

    async fn complete(&self, lease: &Lease, text: &'static str, keep: Retention) {
        let outcome = Outcome::new(text.as_bytes());
        let held = self.store.complete(lease, &outcome, keep).await.unwrap();
        assert!(matches!(held, Held::Ours { .. }), "{}: {held:?}", self.name);
    }

    async fn end(&self, lease: &Lease, how: Ending) {
        let held = self.store.end(lease, how).await.unwrap();
        assert!(matches!(held, Held::Ours { .. }), "{}: {held:?}", self.name);
    }

    async fn purge(&self) {
        while self.store.purge_expired(10_000).await.unwrap() > 0 {}
    }
}

#[tokio::test]
async fn t1_b61_every_ending_is_remembered_for_the_time_that_it_names() {
    let keep = Retention::keep(DAY);
    for place in places() {
        let retry = Ending::Retry { status: 500, keep };
        let unknown = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
        let lease = place.take(&claim("failed")).await;
        place.end(&lease, retry).await;
        let lease = place.take(&claim("unknown")).await;
        place.end(&lease, unknown).await;
        let lease = place.take(&claim("declined")).await;
        place.complete(&lease, "402", keep).await;
        // A millisecond later, and a moment before the end.
        for pass in [MILLI, DAY - MILLI - MICRO] {
            place.clock.advance(pass);
            place.purge().await;
            let name = place.name;
            let record = place.store.get(&claim("failed").id).await.unwrap().expect("kept");
            assert!(matches!(record.state, State::Retry { status: 500, .. }), "{name}");
            assert!(matches!(place.claim("unknown").await, Claimed::Unknown { .. }), "{name}");
            assert!(matches!(place.claim("declined").await, Claimed::Completed { .. }), "{name}");
        }
        assert_eq!(place.take(&claim("failed")).await.attempt, 2, "it counts as a run");
    }
}

/// Claims with a value of its own in every part, odd ones among them.
fn odd_claims() -> Vec<Claim> {
    (0..16_u8)
        .map(|n| {
            let key = format!("key-{n}-{}", "k".repeat(usize::from(n)));
            let scope = Scope::new(format!("ns{n}"), format!("tenant {n}"), format!("POST /{n}"));
            let (key, kind) = (Key::from_text(&key).unwrap(), Kind::Request);
            Claim {
                id: RecordId::derive(kind, &scope, &key),
                kind,
                scope,
                key,
                principal: Principal::named(&format!("who {n}")),
                fingerprint: Fingerprint::from_parts(Recipe::from_number(n.into()), [n; 32]),
                token: LeaseToken::from_bytes([n + 1; 16]),
                lease: Duration::from_micros(1 + u64::from(n) * 1_234_567),
                horizon: Duration::new(u64::from(n) * 77, u32::from(n) * 1_001),
                on_unknown: OnUnknown::Hold,
                age: Duration::ZERO,
                memo: Bytes::from(vec![n; usize::from(n) * 256]),
            }
        })
        .collect()
}

#[tokio::test]
async fn t1_b62_every_part_of_a_record_is_read_back_as_it_was_written() {
    for place in places() {
        let created = place.clock.now();
        let mut expected = Vec::new();
        for (n, claim) in odd_claims().into_iter().enumerate() {
            let lease = place.take(&claim).await;
            let note = Note::Reference(format!("ref {n}").into());
            let ttl = claim.lease * 2;
            let held = place.store.renew(&lease, ttl, Some(&note)).await.unwrap();
            assert!(matches!(held, Held::Ours { .. }), "{held:?}");
            let keep = Retention::keep(MILLI * (1 + n as u32)).with_tombstone(SECOND * n as u32);
            let state = match n % 4 {
                0 => State::InProgress { lease_until: created.after(ttl) },
                1 => {
                    place.complete(&lease, "answer", keep).await;
                    State::Completed {
                        outcome: Outcome::new(&b"answer"[..]),
                        at: created,
                        expires: created.after(keep.keep),
                        gone: created.after(keep.keep).after(keep.tombstone),
                    }
                }
                2 => {
                    place.end(&lease, Ending::Retry { status: 500 + n as u16, keep }).await;
                    let (status, expires) = (500 + n as u16, created.after(keep.keep));
                    State::Retry { status, at: created, expires }
                }
                _ => {
                    let (why, after) = (Why::Panicked, MILLI * n as u32);
                    place.end(&lease, Ending::Unknown { why, after }).await;
                    let horizon = created.after(claim.horizon);
                    State::Unknown {
                        why,
                        since: created,
                        not_before: created.after(after),
                        horizon,
                    }
                }
            };
            expected.push(Record {
                id: claim.id,
                kind: claim.kind,
                scope: claim.scope,
                key: claim.key,
                principal: claim.principal,
                fingerprint: claim.fingerprint,
                token: claim.token,
                attempt: 1,
                version: Version::ABSENT,
                created,
                horizon: claim.horizon,
                memo: claim.memo,
                reference: Some(format!("ref {n}").into()),
                state,
                audit: Vec::new(),
            });
        }
        for record in expected {
            let found = place.store.get(&record.id).await.unwrap().expect("it is there");
            assert_eq!(found, Record { version: found.version, ..record }, "{}", place.name);
        }
    }
}

#[tokio::test]
async fn t1_b64_a_lease_is_as_short_or_as_long_as_it_is_asked_for() {
    for place in places() {
        for (number, lease) in
            [MICRO, MILLI, 10 * SECOND, 59 * SECOND, 365 * DAY].iter().enumerate()
        {
            let key = format!("key {number}");
            let held = place.take(&Claim { lease: *lease, ..claim(&key) }).await;
            place.clock.advance(*lease - MICRO);
            if *lease > MICRO {
                let told = place.claim(&key).await;
                let left = Claimed::InProgress {
                    version: place.store.get(&held.id).await.unwrap().expect("held").version,
                    retry_after: MICRO,
                };
                assert_eq!(told, left, "{} {lease:?}", place.name);
            }
            place.clock.advance(MICRO);
            let told = place.claim(&key).await;
            assert!(matches!(told, Claimed::Unknown { .. }), "{} {told:?}", place.name);
        }
    }
}

#[tokio::test]
async fn t1_b65_expiry_is_judged_when_read_and_the_sweeper_takes_nothing_from_its_successor() {
    for place in places() {
        let keep = Retention::keep(60 * SECOND);
        for key in ["completed", "failed", "read"] {
            let lease = place.take(&claim(key)).await;
            match key {
                "failed" => place.end(&lease, Ending::Retry { status: 500, keep }).await,
                _ => place.complete(&lease, "first", keep).await,
            }
        }
        // Over, and nobody has swept: the old records are still there.
        place.clock.advance(60 * SECOND);
        assert_eq!(place.store.get(&claim("read").id).await.unwrap(), None, "{}", place.name);
        let completed = place.take(&claim("completed")).await;
        let failed = place.take(&claim("failed")).await;
        assert_eq!((completed.attempt, failed.attempt), (1, 1), "{}: new keys", place.name);
        // Now the sweeper comes, at last, and long after the old ones were over.
        place.purge().await;
        place.clock.advance(DAY);
        place.purge().await;
        place.complete(&completed, "second", keep).await;
        place.complete(&failed, "second", keep).await;
        for key in ["completed", "failed"] {
            let told = place.claim(key).await;
            assert!(
                matches!(&told, Claimed::Completed { outcome, .. } if outcome.bytes() == "second"),
                "{}: {key} {told:?}",
                place.name
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_b67_no_callers_clock_makes_a_lease_end() {
    for Place { name, clock, store, _folder } in places() {
        let policy = || Policy::default().with(|policy| policy.wait = Wait::Reject);
        let host = |ahead| {
            let own = Clock::manual();
            own.advance(ahead);
            Rig::on(Arc::clone(&store) as Arc<dyn Store>, own, policy(), Scoping::shared())
        };
        let (slow, fast) = (host(Duration::ZERO), host(DAY));
        let first = slow.spawn(pay("k", "wait", ""));
        slow.until("the first runs", || slow.app.runs() == 1).await;
        let reply = fast.send(pay("k", "", "")).await;
        assert_eq!((reply.status, reply.code()), (409, "in-progress".into()), "{name}");
        fast.clock.advance(365 * DAY);
        let reply = fast.send(pay("k", "", "")).await;
        assert_eq!((reply.status, reply.code()), (409, "in-progress".into()), "{name}");
        // By the store's clock it does end, and is unknown then: never somebody else's to run.
        clock.advance(31 * SECOND);
        let reply = fast.send(pay("k", "", "")).await;
        assert_eq!((reply.status, reply.code()), (409, "outcome-unknown".into()), "{name}");
        slow.app.gate.add_permits(1);
        assert_eq!(first.await.expect("an answer").status, 201);
        assert!(fast.send(pay("k", "", "")).await.replayed(), "{name}");
        assert_eq!(slow.app.runs() + fast.app.runs(), 1, "{name}");
    }
}

#[tokio::test]
async fn t1_b68_an_odd_retention_is_kept_to_the_microsecond() {
    let odd = [
        MICRO,
        MILLI,
        Duration::from_millis(900),
        Duration::from_millis(999),
        59 * SECOND,
        119 * SECOND,
        Duration::from_secs(1 << 31),
    ];
    for place in places() {
        for (number, keep) in odd.into_iter().enumerate() {
            let (key, name) = (format!("key {number}"), place.name);
            let lease = place.take(&claim(&key)).await;
            place.complete(&lease, "kept", Retention::keep(keep).with_tombstone(keep)).await;
            place.clock.advance(keep - MICRO);
            place.purge().await;
            let told = place.claim(&key).await;
            assert!(
                matches!(told, Claimed::Completed { expires_in: MICRO, .. }),
                "{name} {keep:?}: {told:?}"
            );
            // From the end of the retention to the last moment of the tombstone.
            for pass in [MICRO, keep - MICRO] {
                place.clock.advance(pass);
                assert_eq!(place.claim(&key).await, Claimed::Expired, "{name} {keep:?}");
            }
            place.clock.advance(MICRO);
            assert_eq!(place.take(&claim(&key)).await.attempt, 1, "{name} {keep:?}: a new key");
        }
        let lease = place.take(&claim("none")).await;
        place.complete(&lease, "not kept", Retention::keep(Duration::ZERO)).await;
        assert_eq!(place.take(&claim("none")).await.attempt, 1, "no retention at all");
    }
}

#[cfg(feature = "embedded")]
#[tokio::test]
async fn t1_b70_an_outcome_is_on_disk_with_its_end_or_not_at_all() {
    let rig = crate::embedded::Rig::new();
    let keep = Retention::keep(DAY).with_tombstone(DAY);
    crate::embedded::store_outcome(&rig.store, "key", "answer", keep).await;
    let (now, id) = (rig.clock.now(), crate::embedded::claim("key").id);
    // Whatever a crash leaves: the bytes of the one write hold outcome, end and tombstone's end.
    let image = tempfile::tempdir().unwrap();
    copy(rig.folder.path(), image.path());
    let store = crate::embedded::open(image.path(), &rig.clock);
    let record = store.get(&id).await.unwrap().expect("it was acknowledged");
    let State::Completed { expires, gone, .. } = record.state else { panic!("{record:?}") };
    assert_eq!((expires, gone), (now.after(DAY), now.after(2 * DAY)));
    rig.clock.advance(2 * DAY);
    assert_eq!(store.get(&id).await.unwrap(), None, "nothing stays for ever");
}

/// Copies what a process that was killed would leave.
#[cfg(feature = "embedded")]
fn copy(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn t2_b71_a_key_that_comes_after_its_window_was_told_and_can_be_refused() {
    for Place { name, clock, store, _folder } in places() {
        let rig = |tombstone| {
            let keep = Retention::keep(30 * 60 * SECOND).with_tombstone(tombstone);
            let policy = Policy::default().with(|policy| policy.retention = keep);
            let store = Arc::clone(&store) as Arc<dyn Store>;
            Rig::on(store, clock.clone(), policy, Scoping::shared())
        };
        let (bare, careful) = (rig(Duration::ZERO), rig(30 * DAY));
        for (rig, key) in [(&bare, "bare"), (&careful, "careful")] {
            let first = rig.send(pay(key, "", "")).await;
            let until = first.header("idempotency-expires").expect("the window is told");
            let until = httpdate(until);
            let window = until.duration_since(clock.now().wall()).expect("it lies ahead");
            assert!(window > 29 * 60 * SECOND && window <= 30 * 60 * SECOND, "{window:?}");
        }
        clock.advance(45 * 60 * SECOND);
        let late = careful.send(pay("careful", "", "")).await;
        assert_eq!((late.status, late.code()), (410, "key-expired".into()), "{name}");
        assert_eq!(careful.app.runs(), 1, "{name}: not run again");
        let late = bare.send(pay("bare", "", "")).await;
        assert_eq!((late.status, late.replayed()), (201, false), "{name}: without one it is new");
    }
}

/// The moment that an HTTP date names.
fn httpdate(text: &str) -> std::time::SystemTime {
    httpdate::parse_http_date(text).expect("an HTTP date")
}

#[tokio::test]
async fn p2_b73_a_cookie_reaches_the_client_as_the_application_set_it() {
    const COOKIE: &str = "header=set-cookie:sid=1;Max-Age=2592000";
    for Place { name, clock, store, _folder } in places() {
        let store = Arc::clone(&store) as Arc<dyn Store>;
        let rig = Rig::on(store, clock, Policy::default(), Scoping::shared());
        let first = rig.send(pay("k", COOKIE, "")).await;
        let cookies: Vec<_> = first.headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["sid=1;Max-Age=2592000"], "{name}");
        let again = rig.send(pay("k", COOKIE, "")).await;
        assert!(again.replayed(), "{name}");
        assert_eq!(again.headers.get("set-cookie"), None, "{name}: it was given once");
    }
}

use super::*;
use crate::fingerprint::{Fingerprint, Recipe};
use crate::key::{Key, Scope};
use crate::record::{Kind, Principal};
use crate::store::OnUnknown;
use bytes::Bytes;

fn claim(number: u32) -> Claim {
    let key = Key::from_text(&format!("k{number}")).expect("a key");
    let scope = Scope::new("main", "t", "POST /pay");
    Claim {
        id: RecordId::derive(Kind::Request, &scope, &key),
        kind: Kind::Request,
        scope,
        key,
        principal: Principal::anonymous(),
        fingerprint: Fingerprint::from_parts(Recipe::from_number(1), [0; 32]),
        token: LeaseToken::random(),
        lease: Duration::from_secs(30),
        horizon: Duration::from_secs(3600),
        on_unknown: OnUnknown::Hold,
        age: Duration::ZERO,
        memo: Bytes::new(),
    }
}

async fn complete(store: &MemoryStore, number: u32, keep: Duration) {
    let Ok(Claimed::Acquired(lease)) = store.claim(&claim(number)).await else {
        panic!("a new key is acquired")
    };
    let held = store.complete(&lease, &Outcome::new(&b"done"[..]), Retention::keep(keep)).await;
    assert!(matches!(held, Ok(Held::Ours { .. })));
}

#[tokio::test]
async fn b130_what_is_over_goes_by_itself_and_counts_come_back_to_zero() {
    let clock = Clock::manual();
    let store = MemoryStore::new().with_clock(clock.clone());
    for number in 0..5_000 {
        complete(&store, number, Duration::from_millis(1)).await;
        clock.advance(Duration::from_millis(1));
    }
    assert!(store.len() < 200, "{} are left", store.len());
    clock.advance(Duration::from_secs(1));
    assert!(store.purge_expired(10_000).await.expect("a number") < 200);
    assert_eq!((store.len(), store.bytes()), (0, 0));
    assert!(store.lock(0).ends.is_empty());
}

#[tokio::test]
async fn x5_b131_at_its_bound_the_store_refuses_new_keys_and_evicts_nothing() {
    let clock = Clock::manual();
    let store = MemoryStore::new().with_clock(clock.clone()).with_limits(10, 1 << 20);
    let Ok(Claimed::Acquired(held)) = store.claim(&claim(0)).await else { panic!("acquired") };
    for number in 1..10 {
        complete(&store, number, Duration::from_secs(60)).await;
    }
    let refused = store.claim(&claim(10)).await.expect_err("it is full");
    assert_eq!(refused.kind(), StoreErrorKind::Full);
    assert!(matches!(store.claim(&claim(0)).await, Ok(Claimed::InProgress { .. })));
    assert!(matches!(store.claim(&claim(1)).await, Ok(Claimed::Completed { .. })));
    let outcome = Outcome::new(&b"late"[..]);
    let done = store.complete(&held, &outcome, Retention::keep(Duration::from_secs(60))).await;
    assert!(matches!(done, Ok(Held::Ours { .. })), "running work still completes");
    clock.advance(Duration::from_secs(61));
    assert!(matches!(store.claim(&claim(10)).await, Ok(Claimed::Acquired(_))));
}

#[tokio::test]
async fn a_listing_shows_each_record_once_in_pages() {
    let store = MemoryStore::new();
    for number in 0..100 {
        complete(&store, number, Duration::from_secs(60)).await;
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list(&Filter::default(), cursor, 7).await.expect("a page");
        seen.extend(page.records.into_iter().map(|record| record.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 100);
    assert!(seen.is_sorted(), "in order of id");
    seen.dedup();
    assert_eq!(seen.len(), 100);
}

/// Collects what is logged, fields and all.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        let mut log = self.0.lock().expect("not poisoned");
        log.push_str(&format!("{field}={value:?} "));
    }
}

#[tokio::test]
async fn u3_the_end_of_an_unknown_request_is_logged_by_its_record_and_without_its_key() {
    let (clock, log) = (Clock::manual(), Log::default());
    let store = MemoryStore::new().with_clock(clock.clone());
    let claim = Claim { lease: Duration::from_secs(30), ..claim(4_711) };
    assert!(matches!(store.claim(&claim).await, Ok(Claimed::Acquired(_))));
    let since = clock.now().after(claim.lease);
    clock.advance(claim.lease + claim.horizon);
    let _logging = tracing::subscriber::set_default(log.clone());
    assert_eq!(store.purge_expired(10).await.expect("a number"), 1);
    let text = log.0.lock().expect("not poisoned").clone();
    for field in [
        format!("record={} ", claim.id),
        "attempt=1 ".to_owned(),
        format!("unknown_since={} ", since.as_micros() / 1_000_000),
        "unknown_for_seconds=3600 ".to_owned(),
    ] {
        assert!(text.contains(&field), "{field} is not in {text}");
    }
    assert!(!text.contains("k4711"), "{text}");
    assert_eq!((store.len(), store.bytes()), (0, 0));
}

#[tokio::test]
async fn u3_a_purge_looks_at_the_living_again_only_when_one_of_them_is_due() {
    let clock = Clock::manual();
    let store = MemoryStore::new().with_clock(clock.clone());
    let memo = Bytes::from_static(b"memo");
    let bulky = Claim { memo, horizon: Duration::MAX, ..claim(1) };
    assert!(matches!(store.claim(&bulky).await, Ok(Claimed::Acquired(_))));
    let shard = MemoryStore::index(&bulky.id);
    let due = clock.now().after(bulky.lease).after(decide::SHRINK_AFTER);
    assert_eq!(store.lock(shard).next_look, due);
    let before = store.bytes();
    clock.advance(due.since(clock.now()));
    assert_eq!(store.purge_expired(10).await.expect("a number"), 0);
    assert_eq!(store.bytes(), before - bulky.memo.len(), "it shrank");
    assert_eq!(store.lock(shard).next_look, NEVER, "and there is nothing else to come");
}

#[tokio::test]
async fn l4_nothing_is_purged_while_the_wall_clock_is_off_and_room_is_still_made() {
    let clock = Clock::manual();
    let store = MemoryStore::new().with_clock(clock.clone()).with_limits(10, 1 << 20);
    for number in 1..10 {
        complete(&store, number, Duration::from_secs(60)).await;
    }
    assert!(matches!(store.claim(&claim(0)).await, Ok(Claimed::Acquired(_))));
    clock.advance(Duration::from_secs(2 * 3600));
    clock.step_wall(crate::clock::Skew::Behind(Duration::from_secs(61)));
    assert_eq!(store.purge_expired(10_000).await.expect("a number"), 0);
    assert_eq!(store.len(), 10);
    // What reads as absent gives way all the same; what is unknown does not.
    assert!(matches!(store.claim(&claim(10)).await, Ok(Claimed::Acquired(_))));
    assert!(matches!(store.claim(&claim(0)).await, Ok(Claimed::Unknown { .. })));
    clock.step_wall(crate::clock::Skew::NONE);
    assert_eq!(store.purge_expired(10_000).await.expect("a number"), 1, "the unknown one");
}

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

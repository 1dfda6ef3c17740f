use bytes::Bytes;
use oncekey::events;
use oncekey::fingerprint::{Fingerprint, Recipe};
use oncekey::key::{Key, RecordId, Scope};
use oncekey::record::{Kind, LeaseToken, Outcome, Principal, Retention};
use oncekey::store::{Claim, Claimed, Held, OnUnknown};

use super::*;

fn claim() -> Claim {
    let scope = Scope::new("main", "shared", "POST /pay");
    let key = Key::from_text("k").expect("a key");
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

#[tokio::test]
async fn t3_what_expired_while_nobody_was_there_is_deleted_at_the_start() {
    let clock = Clock::manual();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let Ok(Claimed::Acquired(lease)) = store.claim(&claim()).await else { panic!("a new key") };
    let keep = Retention::keep(Duration::from_secs(60));
    let held = store.complete(&lease, &Outcome::new(&b"done"[..]), keep).await;
    assert!(matches!(held, Ok(Held::Ours { .. })));
    clock.advance(Duration::from_secs(61));
    let engine = Engine::with(Arc::clone(&store) as _, clock, events::nobody(), Limits::default());
    let stop = CancellationToken::new();
    let sweeper = tokio::spawn(sweep(engine, None, stop.clone()));
    let emptied = async {
        while !store.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), emptied).await.expect("it is deleted");
    stop.cancel();
    sweeper.await.expect("it ends when it is told to");
}

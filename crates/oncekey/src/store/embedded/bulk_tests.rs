use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::clock::{Clock, Stamp};
use crate::fingerprint::{Fingerprint, Recipe};
use crate::key::{Key, Scope};
use crate::record::{Kind, LeaseToken, Outcome, Principal, Version};
use crate::store::embedded::EmbeddedStore;
use crate::store::{Claim, Claimed, OnUnknown, Store};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn id(number: u64) -> RecordId {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    RecordId::from_bytes(bytes)
}

fn record(number: u64, at: Stamp) -> Record {
    let expires = at.after(DAY);
    Record {
        id: id(number),
        kind: Kind::Request,
        scope: Scope::new("main", "shared", "POST /pay"),
        key: Key::from_text("filled").unwrap(),
        principal: Principal::anonymous(),
        fingerprint: Fingerprint::from_parts(Recipe::from_number(1), [1; 32]),
        token: LeaseToken::random(),
        attempt: 1,
        version: Version::from_number(100 + number),
        created: at,
        horizon: 90 * DAY,
        memo: Bytes::new(),
        reference: None,
        state: State::Completed {
            outcome: Outcome::new(number.to_string()),
            at,
            expires,
            gone: expires,
        },
        audit: Vec::new(),
    }
}

fn claim(number: u64) -> Claim {
    let like = record(number, Stamp::default());
    Claim {
        id: like.id,
        kind: like.kind,
        scope: like.scope,
        key: like.key,
        principal: like.principal,
        fingerprint: like.fingerprint,
        token: LeaseToken::random(),
        lease: Duration::from_secs(30),
        horizon: like.horizon,
        on_unknown: OnUnknown::Hold,
        age: Duration::ZERO,
        memo: Bytes::new(),
    }
}

#[tokio::test]
async fn what_was_filled_in_is_replayed_and_the_writer_goes_on_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual();
    let options = Options { clock: Some(clock.clone()), ..Options::default() };
    // Twenty hours of traffic: several buckets of one class.
    let at = |number| clock.now().before(Duration::from_secs(number % 20 * 3600));
    let filled = fill(folder.path(), &options, (0..1000).map(|number| record(number, at(number))));
    assert_eq!(filled.unwrap(), 1000);

    let store = EmbeddedStore::open(folder.path(), options).unwrap();
    for number in 0..1000 {
        let answer = store.claim(&claim(number)).await.unwrap();
        let Claimed::Completed { outcome, .. } = answer else { panic!("{number}: {answer:?}") };
        assert_eq!(outcome.bytes(), number.to_string().as_bytes());
    }
    let Claimed::Acquired(_) = store.claim(&claim(1000)).await.unwrap() else {
        panic!("a key that was not filled in is new")
    };
    let new = store.get(&id(1000)).await.unwrap().unwrap();
    assert!(new.version > Version::from_number(1099), "versions go on: {:?}", new.version);
}

#[test]
fn a_folder_with_records_and_records_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::default();
    let at = Clock::real().now();
    let unordered = fill(&folder.path().join("a"), &options, [record(2, at), record(1, at)]);
    assert!(matches!(unordered, Err(FillError::Unfit(found)) if found == id(1)), "{unordered:?}");

    let mut alive = record(1, at);
    alive.state = State::InProgress { lease_until: at };
    let alive = fill(&folder.path().join("b"), &options, [alive]);
    assert!(matches!(alive, Err(FillError::Unfit(_))), "{alive:?}");

    let path = folder.path().join("c");
    fill(&path, &options, [record(1, at)]).unwrap();
    let again = fill(&path, &options, [record(2, at)]);
    assert!(matches!(again, Err(FillError::NotEmpty)), "{again:?}");
}

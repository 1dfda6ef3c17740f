//! A stored record that is damaged in any way is never taken for none (B136, X3): every bit of it
//! flipped, and every cut, written beneath the embedded store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oncekey::engine::Wait;
use oncekey::http::{Policy, Scoping};
use oncekey::record::{Lease, LeaseToken, Record, Retention, Version};
use oncekey::store::{
    By, Change, Changed, Claimed, Ending, Filter, Held, Inspect, OnUnknown, Store, StoreErrorKind,
};
use tokio::task::JoinSet;

use crate::embedded::{DAY, LEASE, Rig, acquire, claim, outcome};
use crate::embedded_open::rewrite;
use crate::rig::pay;

/// How a record is left before it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Completed,
    Retry,
    Unknown,
    InProgress,
}

/// Makes so many records at once: they share syncs.
async fn fill(rig: Rig, left: Left, count: usize) -> Rig {
    let Rig { clock, folder, store } = rig;
    let store = Arc::new(store);
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let lease = acquire(&store, &format!("k{number:05}")).await;
            let keep = Retention::keep(DAY);
            let how = match left {
                Left::InProgress => return,
                Left::Completed => {
                    let held = store.complete(&lease, &outcome("answer"), keep).await.unwrap();
                    assert!(matches!(held, Held::Ours { .. }));
                    return;
                }
                Left::Retry => Ending::Retry { status: 500, keep },
                Left::Unknown => {
                    Ending::Unknown { why: oncekey::record::Why::Abandoned, after: Duration::ZERO }
                }
            };
            assert!(matches!(store.end(&lease, how).await.unwrap(), Held::Ours { .. }));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let store = Arc::into_inner(store).expect("the tasks are over");
    Rig { clock, folder, store }
}

/// Changes every record of the folder by `damage`, which is given the record's number and value.
fn damage(path: &Path, mut damage: impl FnMut(usize, &[u8]) -> Vec<u8>) -> usize {
    let mut number = 0;
    let change = |name: &str, key: &[u8], value: &[u8]| {
        (name != "meta" && key.len() == 32).then(|| {
            number += 1;
            damage(number - 1, value)
        })
    };
    rewrite(path, change, &[]);
    number
}

/// The value with one bit flipped, or cut: bits first, then every length below its own.
fn damaged(number: usize, value: &[u8]) -> Vec<u8> {
    let bits = value.len() * 8;
    if number < bits {
        let mut flipped = value.to_vec();
        flipped[number / 8] ^= 1 << (number % 8);
        return flipped;
    }
    value[..(number - bits) % value.len()].to_vec()
}

async fn every_damage_is_told(left: Left) {
    // All records here are of one length.
    let mut length = 0;
    let rig = fill(Rig::new(), left, 1).await.reopen(|path| {
        damage(path, |_, value| {
            length = value.len();
            value.to_vec()
        });
    });
    drop(rig);
    // An orphan's record is longer than that of a run in progress: enough for either.
    let count = length * 9 + 400;
    let rig = fill(Rig::new(), left, count).await;
    let rig = rig.reopen(|path| assert_eq!(damage(path, damaged), count));
    for number in 0..count {
        let told = rig.store.claim(&claim(&format!("k{number:05}"))).await;
        let unreadable = told.as_ref().is_err_and(|e| e.kind() == StoreErrorKind::Unreadable);
        assert!(unreadable, "{left:?} {number}: {told:?}");
    }
    let (mut seen, mut unreadable, mut cursor) = (0, 0, None);
    loop {
        let page = rig.store.list(&Filter::default(), cursor, 1_000).await.unwrap();
        (seen, unreadable) = (seen + page.records.len(), unreadable + page.unreadable);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((seen, unreadable), (0, count), "lists skip and count them");
    // A key beside them is as it was.
    crate::embedded::store_outcome(&rig.store, "sound", "answer", Retention::keep(DAY)).await;
    crate::embedded::replays(&rig.store, "sound", "answer").await;
}

#[tokio::test]
async fn x3_b136_a_completed_record_damaged_in_any_bit_or_cut_is_unreadable() {
    every_damage_is_told(Left::Completed).await;
}

#[tokio::test]
async fn x3_b136_a_record_in_retry_damaged_in_any_bit_or_cut_is_unreadable() {
    every_damage_is_told(Left::Retry).await;
}

#[tokio::test]
async fn x3_b136_an_unknown_record_damaged_in_any_bit_or_cut_is_unreadable() {
    every_damage_is_told(Left::Unknown).await;
}

#[tokio::test]
async fn x3_b136_a_run_in_progress_damaged_in_any_bit_or_cut_is_unreadable() {
    every_damage_is_told(Left::InProgress).await;
}

#[tokio::test]
async fn x3_b103_b136_a_record_under_another_key_answers_for_neither() {
    let rig = fill(Rig::new(), Left::Completed, 2).await;
    let rig = rig.reopen(|path| {
        let mut values = Vec::new();
        damage(path, |_, value| {
            values.push(value.to_vec());
            value.to_vec()
        });
        values.reverse();
        damage(path, |number, _| values[number].clone());
    });
    for number in 0..2 {
        let told = rig.store.claim(&claim(&format!("k{number:05}"))).await;
        assert!(told.is_err_and(|e| e.kind() == StoreErrorKind::Unreadable));
    }
}

#[tokio::test]
async fn x3_an_unreadable_record_that_ended_goes_with_its_bucket_and_one_that_lives_stays() {
    for left in [Left::Completed, Left::Retry, Left::Unknown, Left::InProgress] {
        let Rig { clock, folder: _folder, store } =
            fill(Rig::new(), left, 1).await.reopen(|path| {
                damage(path, |_, value| value[..value.len() - 1].to_vec());
            });
        // A bucket's name says when the last of its records is over, whatever they hold.
        clock.advance(400 * DAY);
        store.purge_expired(100).await.unwrap();
        let told = store.claim(&claim("k00000")).await;
        match left {
            Left::Completed | Left::Retry => {
                assert!(matches!(told, Ok(Claimed::Acquired(_))), "{left:?}: {told:?}");
            }
            Left::Unknown | Left::InProgress => {
                let told = told.map_err(|error| error.kind());
                assert_eq!(told, Err(StoreErrorKind::Unreadable), "{left:?}");
            }
        }
    }
}

#[tokio::test]
async fn x3_b136_no_call_takes_an_unreadable_record_for_none_and_a_person_can_end_it() {
    for left in [Left::Completed, Left::Retry, Left::Unknown, Left::InProgress] {
        let rig = fill(Rig::new(), left, 1).await.reopen(|path| {
            damage(path, |_, value| value[..value.len() - 1].to_vec());
        });
        let Rig { clock, folder: _folder, store } = rig;
        let store = Arc::new(store);
        let asked = claim("k00000");
        let lease = Lease { id: asked.id, token: LeaseToken::random(), attempt: 1 };
        let unreadable = |kind| kind == StoreErrorKind::Unreadable;
        let kinds = [
            store.claim(&asked).await.map(drop).map_err(|e| e.kind()),
            store.renew(&lease, LEASE, None).await.map(|_| ()).map_err(|e| e.kind()),
            store
                .complete(&lease, &outcome("x"), Retention::keep(DAY))
                .await
                .map(|_| ())
                .map_err(|e| e.kind()),
            store.end(&lease, Ending::Release).await.map(|_| ()).map_err(|e| e.kind()),
            store
                .end(&lease, Ending::TakeBack { on_unknown: OnUnknown::Hold })
                .await
                .map(|_| ())
                .map_err(|e| e.kind()),
            store.get(&asked.id).await.map(drop).map_err(|e| e.kind()),
            store.changed(&asked.id, Version::from_number(1), DAY).await.map_err(|e| e.kind()),
        ];
        for (call, told) in kinds.into_iter().enumerate() {
            assert!(told.is_err_and(unreadable), "{left:?}, call {call}: {told:?}");
        }
        let policy = Policy::default().with(|policy| policy.wait = Wait::Reject);
        let front =
            crate::rig::Rig::on(Arc::clone(&store) as _, clock.clone(), policy, Scoping::shared());
        let reply = front.send(pay("k00000", "", "")).await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "record-unreadable"), "{left:?}");
        assert_eq!(front.app.runs(), 0);
        // Only a person ends it before its time.
        store.purge_expired(100).await.unwrap();
        let by = By { who: "ann".into(), reason: "the disk is bad".into() };
        let seen = Version::from_number(1);
        let told = store.change(&asked.id, seen, Change::Release, &by).await;
        assert!(told.is_err_and(|e| unreadable(e.kind())), "only one who knows: {left:?}");
        let made = store.change(&asked.id, Version::UNREADABLE, Change::Release, &by).await;
        assert!(matches!(made, Ok(Changed::Made(Version::ABSENT))), "{left:?}: {made:?}");
        let fresh = store.claim(&asked).await.unwrap();
        assert!(matches!(fresh, Claimed::Acquired(lease) if lease.attempt == 1), "{fresh:?}");
        let found: Option<Record> = store.get(&asked.id).await.unwrap();
        assert!(found.is_some());
    }
}

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;

const KIB: usize = 1024;

/// What is free in each share.
fn free(room: &Room) -> (usize, usize) {
    (room.small.available_permits(), room.large.available_permits())
}

async fn filled(room: &Room, declared: Option<usize>, length: usize) -> Result<Buffer, Full> {
    let mut buffer = room.buffer(room.largest(), declared, Patience::UntilThereIsRoom);
    let mut left = length;
    while left > 0 {
        buffer.expect().await?;
        let piece = left.min(4 * KIB);
        buffer.push(&vec![b'x'; piece]).await?;
        left -= piece;
    }
    Ok(buffer)
}

/// Whether this waits.
fn waits(future: impl Future) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn x6_room_is_held_until_the_last_handle_to_the_bytes_is_dropped() {
    let room = Room::new(64 * KIB);
    let bytes = filled(&room, Some(100), 100).await.unwrap().freeze();
    assert_eq!((bytes.len(), free(&room)), (100, (32 * KIB - 100, 32 * KIB)));
    let piece = bytes.slice(10..20);
    drop(bytes);
    assert_eq!(free(&room), (32 * KIB - 100, 32 * KIB));
    drop(piece);
    assert_eq!(free(&room), (32 * KIB, 32 * KIB));
    // A body that is dropped half-read, as when its client leaves.
    drop(filled(&room, None, 20 * KIB).await.unwrap());
    assert_eq!(free(&room), (32 * KIB, 32 * KIB));
}

#[tokio::test]
async fn x6_what_counts_is_what_arrived_and_not_what_was_declared() {
    let room = Room::new(4096 * KIB);
    let declared = filled(&room, Some(1024 * KIB), 1).await.unwrap();
    assert_eq!(free(&room), (2048 * KIB, 2040 * KIB));
    let bytes = filled(&room, None, 100 * KIB).await.unwrap().freeze();
    // Nothing that grew beyond what came is held on to, and nothing of the share it began in.
    assert_eq!(free(&room), (2048 * KIB, 1940 * KIB));
    drop((declared, bytes));
    assert_eq!(free(&room), (2048 * KIB, 2048 * KIB));
}

#[tokio::test]
async fn x6_small_bodies_find_room_however_many_large_ones_there_are() {
    let room = Room::new(64 * KIB);
    let large = filled(&room, Some(32 * KIB), 32 * KIB).await.unwrap().freeze();
    assert_eq!(free(&room).1, 0);
    assert!(waits(filled(&room, Some(9 * KIB), 9 * KIB)));
    for declared in [Some(8 * KIB), None] {
        assert_eq!(filled(&room, declared, 8 * KIB).await.unwrap().len(), 8 * KIB);
    }
    drop(large);
    assert!(filled(&room, Some(9 * KIB), 9 * KIB).await.is_ok());
}

#[tokio::test]
async fn x6_of_bodies_that_wait_for_each_other_one_goes_on_and_the_rest_give_way_at_once() {
    // Steps: four have half of what they need each, and together all there is.
    let room = Room::new(128 * KIB);
    let mut half = Vec::new();
    for _ in 0..4 {
        half.push(filled(&room, Some(64 * KIB), 16 * KIB).await.unwrap());
    }
    assert_eq!(free(&room).1, 0);
    let rest = half
        .into_iter()
        .map(|mut buffer| async move { buffer.push(&[b'x'; 48 * KIB]).await.map(|()| buffer) });
    let ended = futures_util::future::join_all(rest).await;
    assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), 1);
    drop(ended);
    assert_eq!((free(&room).1, room.promised.available_permits()), (64 * KIB, 64 * KIB));
}

#[tokio::test]
async fn x6_as_many_may_wait_while_they_hold_room_as_fit_at_once() {
    let room = Room::new(128 * KIB);
    let mut half = Vec::new();
    for _ in 0..4 {
        half.push(filled(&room, Some(32 * KIB), 16 * KIB).await.unwrap());
    }
    let [mut first, mut second, mut third, fourth] = half.try_into().unwrap();
    let (mut a, mut b) = (Box::pin(first.push(&[1; 9])), Box::pin(second.push(&[1; 9])));
    assert!(waits(&mut a) && waits(&mut b));
    assert_eq!(third.push(&[1; 9]).await, Err(Full));
    drop((third, fourth));
    assert_eq!((a.await, b.await), (Ok(()), Ok(())));
}

#[tokio::test(start_paused = true)]
async fn x6_who_holds_nothing_waits_as_long_as_it_likes_and_in_its_turn() {
    let room = Room::new(64 * KIB);
    let all = filled(&room, Some(32 * KIB), 32 * KIB).await.unwrap();
    let mut waiting = Box::pin(filled(&room, Some(16 * KIB), 16 * KIB));
    let late = tokio::time::timeout(Duration::from_secs(60), &mut waiting).await;
    assert!(late.is_err(), "it gave up, or found room that is not there");
    let mut given_up = Box::pin(filled(&room, Some(16 * KIB), 16 * KIB));
    assert!(waits(&mut given_up));
    // One that leaves the queue takes nothing with it.
    drop(given_up);
    drop(all);
    assert_eq!(waiting.await.unwrap().len(), 16 * KIB);
    assert_eq!(free(&room), (32 * KIB, 32 * KIB));
}

#[tokio::test]
async fn x6_a_body_that_holds_nothing_takes_nothing_that_one_with_a_promise_waits_for() {
    let room = Room::new(136 * KIB);
    let mut first = filled(&room, Some(65 * KIB), 64 * KIB).await.unwrap();
    assert_eq!(free(&room).1, 4 * KIB);
    let mut second = room.buffer(room.largest(), Some(40 * KIB), Patience::UntilThereIsRoom);
    let mut waiting = pin!(second.expect());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    assert!(!waits(first.push(&vec![b'x'; KIB])), "what is free is enough for the first");
    drop(first.freeze());
    assert!(waiting.as_mut().poll(&mut context).is_ready());
}

#[tokio::test]
async fn a8_a_body_that_is_only_observed_waits_for_nothing() {
    let room = Room::new(64 * KIB);
    let full = filled(&room, Some(32 * KIB), 32 * KIB).await.unwrap();
    let mut observed = room.buffer(room.largest(), Some(20 * KIB), Patience::None);
    assert_eq!(observed.expect().await, Err(Full));
    assert!(!observed.has_waited());
    drop(full);
    assert_eq!(observed.expect().await, Ok(()));
}

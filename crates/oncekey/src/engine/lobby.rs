//! Who waits for whose run, and what a run that ended in `retry` answered them (C4).
//!
//! A waiter keeps no body. The answer of a run that may be repeated is kept only while somebody
//! waits for that run in this process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Limits;
use crate::key::RecordId;
use crate::record::Outcome;

/// The waiters of this process, by record.
#[derive(Debug, Default)]
pub(super) struct Lobby(Mutex<Seats>);

#[derive(Debug, Default)]
struct Seats {
    taken: usize,
    by_record: HashMap<RecordId, Bench>,
}

#[derive(Debug, Default)]
struct Bench {
    waiters: usize,
    /// The attempt that ended in `retry`, and its answer.
    ended: Option<(u32, Outcome)>,
}

impl Lobby {
    /// A seat beside the others who wait for `id`; none where a bound is reached.
    pub(super) fn enter(&self, id: RecordId, limits: &Limits) -> Option<Seat<'_>> {
        let mut seats = self.seats();
        if seats.taken >= limits.waiters || limits.waiters_per_key == 0 {
            return None;
        }
        let bench = seats.by_record.entry(id).or_default();
        if bench.waiters >= limits.waiters_per_key {
            return None;
        }
        bench.waiters += 1;
        seats.taken += 1;
        Some(Seat { lobby: self, id })
    }

    /// Leaves an answer for those who wait for this attempt; called before the store is told, so
    /// that whoever learns of the ending finds it.
    pub(super) fn leave_answer(&self, id: &RecordId, attempt: u32, answer: &Outcome) {
        if let Some(bench) = self.seats().by_record.get_mut(id) {
            bench.ended = Some((attempt, answer.clone()));
        }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        // Nothing that panics runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter's place; given up when dropped.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    lobby: &'a Lobby,
    id: RecordId,
}

impl Seat<'_> {
    /// What the run with this attempt answered, where it ended in this process.
    pub(super) fn answer(&self, attempt: u32) -> Option<Outcome> {
        let seats = self.lobby.seats();
        let (ended, answer) = seats.by_record.get(&self.id)?.ended.as_ref()?;
        (*ended == attempt).then(|| answer.clone())
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut seats = self.lobby.seats();
        seats.taken -= 1;
        if let Some(bench) = seats.by_record.get_mut(&self.id) {
            bench.waiters -= 1;
            if bench.waiters == 0 {
                seats.by_record.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c4_waiters_are_bounded_by_key_and_in_all() {
        let limits = Limits { waiters_per_key: 2, waiters: 3, ..Limits::default() };
        let lobby = Lobby::default();
        let [one, other] = [RecordId::from_bytes([1; 32]), RecordId::from_bytes([2; 32])];
        let first = lobby.enter(one, &limits).expect("a seat");
        let _second = lobby.enter(one, &limits).expect("a seat");
        assert!(lobby.enter(one, &limits).is_none(), "two wait for this key");
        let _third = lobby.enter(other, &limits).expect("a seat");
        assert!(lobby.enter(other, &limits).is_none(), "three wait in all");
        drop(first);
        assert!(lobby.enter(one, &limits).is_some());
    }

    #[test]
    fn c4_an_answer_is_kept_only_for_those_who_wait_for_that_attempt() {
        let lobby = Lobby::default();
        let id = RecordId::from_bytes([1; 32]);
        let answer = Outcome::new(&b"500"[..]);
        lobby.leave_answer(&id, 1, &answer);
        let seat = lobby.enter(id, &Limits::default()).expect("a seat");
        assert_eq!(seat.answer(1), None, "nobody waited when it came");
        lobby.leave_answer(&id, 1, &answer);
        assert_eq!(seat.answer(1), Some(answer));
        assert_eq!(seat.answer(2), None);
        drop(seat);
        assert!(lobby.seats().by_record.is_empty());
    }
}

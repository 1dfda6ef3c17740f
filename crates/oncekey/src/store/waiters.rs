//! Whoever waits for a record to change, and how they are woken.
//!
//! 1. No wake-up is lost: a waiter registers first, looks at the record second and sleeps third,
//!    while a writer writes first and wakes second. Whichever comes later sees the other.
//! 2. A write that nobody waits for costs one fence and one load.
//! 3. A waiter that leaves, in whatever way, leaves nothing behind.
//!
//! A store calls [`Waiters::wake`] after every write that raised a version or released a record,
//! once the write can be read, and answers [`Store::changed`](super::Store::changed) by
//! [`Waiters::changed`].
//!
//! ```text
//! self.waiters.changed(&self.clock, id, bound, async { Ok(Look::at(record, seen, now)) }).await
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Stamp};
use crate::key::RecordId;
use crate::record::{Record, Standing, State, Version};

/// What a waiter finds when it looks at the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is no longer at the version that was seen.
    Moved,
    /// It still is; looking again makes sense after this long, if nothing is heard before.
    Same(Duration),
}

impl Look {
    /// Compares what is stored with the version that was `seen`. The end of a lease is no write,
    /// so nobody is woken by it: the waiter looks again by itself.
    pub(crate) fn at(found: Option<&Record>, seen: Version, now: Stamp) -> Self {
        let found = found.filter(|record| record.standing(now) != Standing::Gone);
        if found.map_or(Version::ABSENT, |record| record.version) != seen {
            return Self::Moved;
        }
        match found.map(|record| &record.state) {
            // It ended between the claim that saw it and this look.
            Some(State::InProgress { lease_until }) if *lease_until <= now => Self::Moved,
            Some(State::InProgress { lease_until }) => Self::Same(lease_until.since(now)),
            _ => Self::Same(Duration::MAX),
        }
    }
}

/// Enough that two keys seldom meet, few enough to walk.
const SHARDS: usize = 64;

/// The waiters of one store.
#[derive(Debug)]
pub(crate) struct Waiters {
    shards: Box<[Shard]>,
}

#[derive(Debug, Default)]
struct Shard {
    /// How many wait here, so that a writer need not lock where nobody does.
    waiting: AtomicUsize,
    entries: Mutex<HashMap<RecordId, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    notify: Arc<Notify>,
    waiting: usize,
}

impl Waiters {
    /// Nobody waits.
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    /// Returns once `look` finds that the record moved, once somebody wakes `id`, or after `bound`
    /// by `clock`. `look` is begun after the waiter is registered.
    pub(crate) async fn changed<E>(
        &self,
        clock: &Clock,
        id: &RecordId,
        bound: Duration,
        look: impl Future<Output = Result<Look, E>>,
    ) -> Result<(), E> {
        let waiting = self.enter(id);
        // Made before the record is looked at: it hears every call to `wake` from here on, also
        // before it is polled.
        let woken = waiting.notify.notified();
        if let Look::Same(at_most) = look.await? {
            // Whether it was woken or timed out, the caller looks again.
            tokio::select! {
                () = woken => {}
                () = clock.sleep(bound.min(at_most)) => {}
            }
        }
        Ok(())
    }

    /// Wakes whoever waits for `id`. Called after the write it tells of.
    pub(crate) fn wake(&self, id: &RecordId) {
        let shard = self.shard(id);
        // Pairs with the fence in `enter`: either this load sees the waiter, or the waiter's look
        // at the record sees the write.
        fence(Ordering::SeqCst);
        if shard.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let notify = shard.lock().get(id).map(|entry| Arc::clone(&entry.notify));
        if let Some(notify) = notify {
            notify.notify_waiters();
        }
    }

    /// How many wait, for all ids together.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.shards.iter().map(|shard| shard.waiting.load(Ordering::SeqCst)).sum()
    }

    fn enter(&self, id: &RecordId) -> Waiting<'_> {
        let shard = self.shard(id);
        let notify = {
            let mut entries = shard.lock();
            let entry = entries.entry(*id).or_default();
            entry.waiting += 1;
            Arc::clone(&entry.notify)
        };
        shard.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Waiting { shard, id: *id, notify }
    }

    fn shard(&self, id: &RecordId) -> &Shard {
        // The last byte, since stores take the first to choose theirs.
        &self.shards[usize::from(id.as_bytes()[31]) % SHARDS]
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, HashMap<RecordId, Entry>> {
        // Nothing that runs under this lock can leave the map half changed.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One waiter; leaves when dropped.
#[derive(Debug)]
struct Waiting<'a> {
    shard: &'a Shard,
    id: RecordId,
    notify: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shard.waiting.fetch_sub(1, Ordering::Relaxed);
        let mut entries = self.shard.lock();
        if let Some(entry) = entries.get_mut(&self.id) {
            entry.waiting -= 1;
            if entry.waiting == 0 {
                entries.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RecordId = RecordId::from_bytes([7; 32]);
    const LONG: Duration = Duration::from_secs(3600);
    const SAME: Result<Look, ()> = Ok(Look::Same(Duration::MAX));

    #[tokio::test]
    async fn c4_a_waiter_hears_a_wake_up_between_its_look_and_its_sleep() {
        let (waiters, clock) = (Waiters::new(), Clock::manual());
        let look = async {
            waiters.wake(&ID);
            SAME
        };
        waiters.changed(&clock, &ID, LONG, look).await.expect("no trouble");
        assert_eq!(waiters.waiting(), 0);
    }

    #[test]
    fn c4_a_lease_that_ended_before_the_look_is_no_reason_to_sleep() {
        let now = Stamp::from_micros(1_000_000);
        for (lease_until, look) in [
            (now.after(Duration::from_secs(1)), Look::Same(Duration::from_secs(1))),
            (now, Look::Moved),
            (now.before(Duration::from_millis(1)), Look::Moved),
        ] {
            let record = in_progress(lease_until);
            assert_eq!(Look::at(Some(&record), record.version, now), look);
        }
    }

    fn in_progress(lease_until: Stamp) -> Record {
        Record {
            id: ID,
            kind: crate::record::Kind::Request,
            scope: crate::key::Scope::new("main", "shared", "POST /pay"),
            key: crate::key::Key::from_text("key").expect("a key"),
            principal: crate::record::Principal::anonymous(),
            fingerprint: crate::fingerprint::Fingerprint::from_parts(
                crate::fingerprint::Recipe::from_number(1),
                [1; 32],
            ),
            token: crate::record::LeaseToken::random(),
            attempt: 1,
            version: Version::from_number(7),
            created: Stamp::from_micros(1),
            horizon: LONG,
            memo: bytes::Bytes::new(),
            reference: None,
            state: State::InProgress { lease_until },
            audit: Vec::new(),
        }
    }

    #[tokio::test]
    async fn c4_a_waiter_whose_record_has_moved_does_not_sleep() {
        let (waiters, clock) = (Waiters::new(), Clock::manual());
        let look = async { Ok::<_, ()>(Look::Moved) };
        waiters.changed(&clock, &ID, LONG, look).await.expect("no trouble");
    }

    #[tokio::test]
    async fn c4_a_waiter_gives_up_at_its_bound_and_hears_nothing_of_others() {
        let (waiters, clock) = (Arc::new(Waiters::new()), Clock::manual());
        let task = tokio::spawn({
            let (waiters, clock) = (Arc::clone(&waiters), clock.clone());
            async move { waiters.changed(&clock, &ID, LONG, async { SAME }).await }
        });
        while waiters.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        waiters.wake(&RecordId::from_bytes([8; 32]));
        clock.advance(LONG / 2);
        tokio::task::yield_now().await;
        assert!(!task.is_finished());
        clock.advance(LONG);
        assert_eq!(task.await.expect("it ends"), Ok(()));
    }

    #[tokio::test]
    async fn c4_a_waiter_that_is_dropped_leaves_nothing_behind() {
        let waiters = Arc::new(Waiters::new());
        let task = tokio::spawn({
            let waiters = Arc::clone(&waiters);
            async move { waiters.changed(&Clock::manual(), &ID, LONG, async { SAME }).await }
        });
        while waiters.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
        assert!(task.await.is_err());
        assert_eq!(waiters.waiting(), 0);
        assert!(waiters.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}

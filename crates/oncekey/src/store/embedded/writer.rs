//! The one thread that decides and writes.
//!
//! 1. It takes what has queued up while the last batch was synced, decides each call on what the
//!    batch already holds and on what is stored, syncs once, and answers all: a sync costs the
//!    same for one record as for two hundred.
//! 2. A batch is in the log, synced, before anything else sees it. Memory follows: maps change
//!    after that, answers come next, waiters are woken last. The tables follow by themselves.
//! 3. After a failed write or sync nothing is written any more: what the disk holds is not known
//!    until the folder is opened again (X7).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::changes::{Changes, Found, Place, Reach};
use super::desk::Desk;
use super::layout::{Bucket, Mark};
use super::log::{Appended, Log};
use super::mailbox::Mailbox;
use super::request::{Answer, Call, Request, Take};
use super::space::{self, Room};
use super::synced::Synced;
use super::view::{Alarm, LookError, View};
use crate::clock::Stamp;
use crate::decide::{self, Decision, Moment, Token, Write};
use crate::events::{self, Event, Observer};
use crate::key::RecordId;
use crate::record::{Lease, LeaseToken, Record, Standing, State, Version};
use crate::store::{
    By, Change, Changed, Claim, Claimed, DeadTokens, StoreError, StoreErrorKind, WallWatch, bounds,
    recipe,
};

/// The most calls in one batch.
const MAX_BATCH: usize = 256;

/// About the most bytes of outcomes in one batch: it is in memory twice while it is written.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// Everything the writing thread owns.
pub(super) struct Writer {
    pub(super) view: Arc<View>,
    pub(super) log: Log,
    pub(super) synced: Arc<Synced>,
    pub(super) desk: Arc<Desk>,
    /// The store's, for what is said when a write fails.
    pub(super) folder: PathBuf,
    pub(super) observer: Arc<dyn Observer>,
    /// Of the last batch in the log.
    pub(super) mark: Mark,
    pub(super) max_live: usize,
    /// How many records are live, those of the batch counted.
    pub(super) live: usize,
    pub(super) dead: DeadTokens,
    pub(super) wall: WallWatch,
    /// Nothing is deleted before.
    pub(super) delete_from: Stamp,
    pub(super) batch: Changes,
    /// Kept until the batch that they belong to is synced.
    pub(super) answers: Vec<(Option<Arc<Mailbox>>, Answer)>,
}

impl Writer {
    /// Serves the queue until every sender is gone.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Call>) {
        let _alarm = Alarm(Arc::clone(&self.view));
        let mut calls = Vec::with_capacity(MAX_BATCH);
        while queue.blocking_recv_many(&mut calls, MAX_BATCH) > 0 {
            self.view.pulse.begin();
            if !self.view.is_healthy() {
                calls
                    .drain(..)
                    .for_each(|call: Call| call.request.refuse(StoreErrorKind::Unavailable));
                continue;
            }
            let mut bytes = 0;
            for Call { request, from } in calls.drain(..) {
                bytes += request.size();
                // Looking records up on a slow disk is progress, too.
                self.view.pulse.step();
                let answer = self.decide(request);
                self.answers.push((from, answer));
                if bytes >= MAX_BATCH_BYTES {
                    bytes = 0;
                    self.finish();
                }
            }
            self.finish();
            self.view.pulse.rest();
        }
    }

    /// Whether there is no room for this outcome: its caller has a smaller one (X5).
    fn is_too_large(&self, write: &Write) -> bool {
        let Write::Put(record) = write else { return false };
        let State::Completed { outcome, .. } = &record.state else { return false };
        bounds::is_large(outcome) && self.view.space.room() == Room::Critical
    }

    /// Decides one call; nothing is written yet.
    fn decide(&mut self, call: Request) -> Answer {
        match call {
            Request::Claim { claim, arrived, reply } => {
                Answer::Claim(reply, self.claim(&claim, arrived))
            }
            Request::Renew { lease, ttl, note, reply } => {
                let decide = |found: Option<&Record>, _: Token, at: Moment| {
                    decide::renew(found, &lease, ttl, note.as_ref(), at)
                };
                Answer::Held(reply, self.held(&lease, decide))
            }
            Request::Complete { lease, outcome, keep, reply } => {
                let decide = |found: Option<&Record>, _: Token, at: Moment| {
                    decide::complete(found, &lease, &outcome, keep, at)
                };
                Answer::Held(reply, self.held(&lease, decide))
            }
            Request::End { lease, how, reply } => {
                let decide = |found: Option<&Record>, token: Token, at: Moment| {
                    decide::end(found, &lease, token, how, at)
                };
                Answer::Held(reply, self.held(&lease, decide))
            }
            Request::Get { id, reply } => Answer::Get(reply, self.get(&id)),
            Request::Change { id, seen, change, by, reply } => {
                Answer::Change(reply, self.change(id, seen, &change, &by))
            }
            Request::Take { wish, reply } => Answer::Take(reply, self.take(&wish)),
            Request::Purge { reply } => self.purge(reply),
            Request::Sweep { ids, reply } => Answer::Sweep(reply, self.sweep(&ids)),
        }
    }

    fn claim(&mut self, claim: &Claim, arrived: Stamp) -> Result<Claimed, StoreError> {
        let at = self.moment();
        let found = self.look(&claim.id, at.now)?;
        let record = found.record.as_deref();
        let decision = decide::claim(record, claim, self.token(&claim.token), arrived, at);
        if recipe::is_other(record, claim, at.now) {
            events::other_recipe(claim);
        }
        let is_new = record.is_none_or(|record| record.gone_at().is_some());
        let is_full = self.live >= self.max_live || self.view.space.room() != Room::Open;
        if matches!(decision.write, Write::Put(_)) && is_new && is_full {
            return Err(StoreError::new(StoreErrorKind::Full));
        }
        if let (Claimed::Completed { .. }, Some(record)) = (&decision.answer, &found.record)
            && matches!(found.place, Place::Bucket(_))
            // What this batch brings may yet fail to be committed.
            && self.batch.get(&claim.id).is_none()
        {
            // Whoever repeats once repeats twice.
            self.view.put_completed(Arc::clone(record));
        }
        Ok(self.note(claim.id, found, decision, at))
    }

    fn held<T>(
        &mut self,
        lease: &Lease,
        decide: impl FnOnce(Option<&Record>, Token, Moment) -> Decision<T>,
    ) -> Result<T, StoreError> {
        let at = self.moment();
        let found = self.look(&lease.id, at.now)?;
        let decision = decide(found.record.as_deref(), self.token(&lease.token), at);
        if self.is_too_large(&decision.write) {
            return Err(StoreError::new(StoreErrorKind::Full));
        }
        Ok(self.note(lease.id, found, decision, at))
    }

    fn get(&self, id: &RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        let now = self.view.clock.now();
        let found = self.look(id, now)?.record;
        Ok(found.filter(|record| record.standing(now) != Standing::Gone))
    }

    fn change(
        &mut self,
        id: RecordId,
        seen: Version,
        change: &Change,
        by: &By,
    ) -> Result<Changed, StoreError> {
        let at = self.moment();
        if seen == Version::UNREADABLE
            && matches!(change, Change::Release)
            && let Some(place) = self.unreadable(&id, at.now)
        {
            // Counted as live when the folder was opened.
            self.count(usize::from(place == Place::Live), 0);
            self.batch.put(id, Found { place, record: None }, Reach::Disk);
            return Ok(Changed::Made(Version::ABSENT));
        }
        let found = self.look(&id, at.now)?;
        let decision = decide::change(found.record.as_deref(), seen, change, by, at);
        Ok(self.note(id, found, decision, at))
    }

    fn take(&mut self, wish: &Take) -> Vec<(Record, Lease)> {
        let mut taken = Vec::with_capacity(wish.candidates.len());
        for id in &wish.candidates {
            let at = self.moment();
            // One that cannot be read is listed as such: nothing is lost by leaving it out here.
            let Ok(found) = self.look(id, at.now) else { continue };
            let recovered = found.record.as_deref().and_then(|record| {
                decide::recover(record, wish.stale_for, wish.ttl, wish.max_attempts, at)
            });
            if let Some((record, lease)) = recovered {
                let write = Write::Put(Box::new(record.clone()));
                taken.push(self.note(*id, found, Decision { answer: (record, lease), write }, at));
            }
        }
        taken
    }

    /// The record as the batch and the store have it.
    pub(super) fn look(&self, id: &RecordId, now: Stamp) -> Result<Found, StoreError> {
        if let Some(found) = self.batch.get(id) {
            return Ok(found.clone());
        }
        if let Some(record) = self.view.live(id) {
            return Ok(Found { place: Place::Live, record: Some(record) });
        }
        if self.view.is_unreadable(id) {
            return Err(StoreError::new(StoreErrorKind::Unreadable));
        }
        if let Some(found) = self.desk.find(id) {
            return Ok(found);
        }
        // After the desk: what has just left it can be seen here.
        match self.view.keyspaces().find(id, now).map_err(trouble)? {
            Some(ended) => Ok(Found {
                place: Place::Bucket(ended.bucket),
                record: Some(Arc::new(ended.record)),
            }),
            None => Ok(Found { place: Place::Absent, record: None }),
        }
    }

    /// Where a record that cannot be read lies.
    fn unreadable(&self, id: &RecordId, now: Stamp) -> Option<Place> {
        if self.batch.get(id).is_some() {
            return None;
        }
        if self.view.is_unreadable(id) {
            return Some(Place::Live);
        }
        if self.desk.find(id).is_some() {
            return None;
        }
        match self.view.keyspaces().find(id, now) {
            Err(LookError::Unreadable { bucket, .. }) => Some(Place::Bucket(bucket)),
            _ => None,
        }
    }

    /// Takes a decision into the batch.
    fn note<T>(&mut self, id: RecordId, found: Found, decision: Decision<T>, at: Moment) -> T {
        let Decision { answer, write } = decision;
        let left = live(found.record.as_deref());
        let write = match write {
            Write::Bury(token, record) => {
                self.dead.insert(token, at.now);
                record.map_or(Write::Keep, Write::Put)
            }
            other => other,
        };
        match write {
            Write::Keep | Write::Bury(..) => {}
            Write::Put(record) => {
                // A lease that was only renewed leaves the version as it was.
                let reach = match &found.record {
                    Some(old) if old.version == record.version => Reach::Memory,
                    _ => Reach::Disk,
                };
                if record.version == at.next {
                    self.mark.version = at.next.number();
                }
                self.count(left, live(Some(&record)));
                let record = Some(Arc::new(*record));
                self.batch.put(id, Found { place: found.place, record }, reach);
            }
            Write::Release(token) => {
                self.dead.insert(token, at.now);
                self.count(left, 0);
                self.batch.put(id, Found { place: found.place, record: None }, Reach::Disk);
            }
        }
        answer
    }

    /// Keeps count of the live records: so many left them, so many came.
    pub(super) fn count(&mut self, left: usize, came: usize) {
        self.live = (self.live + came).saturating_sub(left);
    }

    fn moment(&self) -> Moment {
        let next = Version::from_number(self.mark.version + 1);
        Moment { now: self.view.clock.now(), next }
    }

    fn token(&self, token: &LeaseToken) -> Token {
        if self.dead.contains(token) { Token::Dead } else { Token::Alive }
    }

    /// Commits the batch, takes it over into memory, answers, wakes.
    fn finish(&mut self) {
        self.view.pulse.step();
        if !self.view.is_healthy() {
            // An earlier batch of the same calls failed.
            self.give_up(StoreErrorKind::Unavailable);
            return;
        }
        let stamp = self.view.clock.now().max(self.mark.stamp);
        let mark = Mark { logged: self.mark.logged + 1, stamp, ..self.mark };
        let appended = self.log.append(&self.batch, mark, |slot| self.desk.exchange(slot));
        match appended.and_then(|size| self.take_note(mark, size)) {
            Ok(()) => self.settle(),
            Err(error) => self.fail(error),
        }
    }

    /// The batch is in the log: its numbers are used, and the applier gets it.
    fn take_note(&mut self, mark: Mark, size: Appended) -> io::Result<()> {
        if size.writes == 0 {
            return Ok(());
        }
        self.mark = mark;
        self.synced.logged(mark)?;
        self.desk.put(&self.batch, mark, size, || {
            // The applier is watched by itself: as long as it gets on, so does this.
            self.view.pulse.step();
            self.view.is_healthy()
        });
        // Here, so that a step is told while the store is used, not hours later (L4).
        self.wall.agrees(&self.view.clock, &*self.observer);
        self.observer.note(Event::StoreBatch(size.writes));
        Ok(())
    }

    /// The batch holds: memory follows, then callers, then waiters.
    fn settle(&mut self) {
        let mut moved = Vec::with_capacity(self.batch.len());
        for pending in self.batch.take() {
            match pending.found.record {
                Some(record) if Bucket::of(&record).is_none() => {
                    self.view.put_live(record);
                }
                Some(record) => {
                    if matches!(record.state, State::Completed { .. }) {
                        // Before it leaves the live map, so that it is always somewhere.
                        self.view.put_completed(record);
                    }
                    self.view.remove_live(&pending.id);
                }
                None => {
                    self.view.remove_live(&pending.id);
                }
            }
            if pending.reach == Reach::Disk {
                moved.push(pending.id);
            }
        }
        let mut answers = std::mem::take(&mut self.answers);
        let mut rung: Vec<Arc<Mailbox>> = Vec::new();
        for (from, answer) in answers.drain(..) {
            match (from, answer) {
                (None, answer) => answer.send(),
                (Some(mailbox), answer) => {
                    mailbox.put(answer);
                    if !rung.iter().any(|known| Arc::ptr_eq(known, &mailbox)) {
                        rung.push(mailbox);
                    }
                }
            }
        }
        rung.iter().for_each(|mailbox| mailbox.ring());
        // Its room is kept for the next round.
        self.answers = answers;
        for id in &moved {
            self.view.waiters.wake(id);
        }
    }

    /// The store has failed, for as long as it is open.
    fn fail(&mut self, error: io::Error) {
        self.view.fail(space::failure(&self.folder, error));
        // Anything between nothing and all of it was written.
        self.give_up(StoreErrorKind::Timeout);
    }

    fn give_up(&mut self, kind: StoreErrorKind) {
        self.batch.take();
        self.answers.drain(..).for_each(|(_, answer)| answer.fail(kind));
    }
}

/// How many live records this is: one or none.
fn live(record: Option<&Record>) -> usize {
    usize::from(record.is_some_and(|record| record.gone_at().is_none()))
}

fn trouble(error: LookError) -> StoreError {
    // Whatever keeps a record from being read, it may be there (X3).
    StoreError::caused(StoreErrorKind::Unreadable, error)
}

//! Room for request bodies: what those of all requests take in memory together (X6).
//!
//! 1. What counts is memory: the capacity of a body's buffer. It grows with what has arrived, never
//!    with what was declared, so an announcement takes nothing from others.
//! 2. There are two equal shares. A body of up to 8 KiB takes from one of its own, so that no flood
//!    of large uploads keeps small requests out; a larger one takes from the other.
//! 3. Room is asked for before more is read. Whoever waits for it does not read, and TCP slows its
//!    client down.
//! 4. A large body may wait only as one of so many as would all fit at once. So those that wait are
//!    waited for by nobody: what they need is in the hands of bodies that go on, or run into their
//!    time-outs. One that holds room and cannot be one of them gives way at once; one that holds
//!    none waits until it can. A small body takes its room at once, or holds none while it waits.
//! 5. Each share has one queue: first come, first served.
//! 6. Room comes back when the last handle to the bytes is dropped, whoever has it and for whatever
//!    reason it goes.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What all bodies take together unless it is said otherwise; **256 MiB** (X6).
pub(super) const DEFAULT: usize = 256 << 20;

/// The largest body that counts as small, and what a body begins with.
const SMALL: usize = 8 * 1024;

/// The room of a layer. A clone is another handle to the same.
#[derive(Clone, Debug)]
pub(super) struct Room {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// The bytes that bodies which wait while they hold some may come to.
    promised: Arc<Semaphore>,
    share: usize,
}

impl Room {
    /// So many bytes, in two equal shares; at least one small body fits in each.
    pub(super) fn new(bytes: usize) -> Self {
        // What is taken at once is counted in 32 bits.
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let share = (bytes / 2).clamp(SMALL, most);
        let semaphore = || Arc::new(Semaphore::new(share));
        Self { small: semaphore(), large: semaphore(), promised: semaphore(), share }
    }

    /// The largest body that can ever find room.
    pub(super) fn largest(&self) -> usize {
        self.share
    }

    /// A buffer for a body of at most `limit` bytes, of which the client may have declared the
    /// length.
    pub(super) fn buffer(
        &self,
        limit: usize,
        declared: Option<usize>,
        patience: Patience,
    ) -> Buffer {
        let most = declared.map_or(limit, |length| length.min(limit));
        let begins_small = declared.is_none() || most <= SMALL;
        let semaphore = if begins_small { &self.small } else { &self.large };
        Buffer {
            large: Arc::clone(&self.large),
            promised: Arc::clone(&self.promised),
            semaphore: Arc::clone(semaphore),
            bytes: Vec::new(),
            held: None,
            promise: None,
            most,
            patience,
            waited: false,
        }
    }
}

/// Whether a body waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    UntilThereIsRoom,
    None,
}

/// There is no room, and waiting for it brought none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A body that is being read.
#[derive(Debug)]
pub(super) struct Buffer {
    large: Arc<Semaphore>,
    promised: Arc<Semaphore>,
    /// The share that it takes from.
    semaphore: Arc<Semaphore>,
    bytes: Vec<u8>,
    held: Option<OwnedSemaphorePermit>,
    /// Its right to wait while it holds room, once it had to; kept until it was read.
    promise: Option<OwnedSemaphorePermit>,
    /// More than this is not expected.
    most: usize,
    patience: Patience,
    waited: bool,
}

impl Buffer {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it had to wait for room, so that its time went by for that as well.
    pub(super) fn has_waited(&self) -> bool {
        self.waited
    }

    /// Finds room for something more, before it is read.
    pub(super) async fn expect(&mut self) -> Result<(), Full> {
        let capacity = self.capacity();
        if self.len() < capacity || capacity >= self.most {
            return Ok(());
        }
        self.grow(self.len() + 1).await
    }

    /// Takes these bytes in.
    pub(super) async fn push(&mut self, data: &[u8]) -> Result<(), Full> {
        let length = self.len() + data.len();
        if length > self.capacity() {
            self.grow(length).await?;
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The bytes; the room is theirs until the last handle to them is dropped.
    pub(super) fn freeze(mut self) -> Bytes {
        self.bytes.shrink_to_fit();
        let Some(mut held) = self.held.take().filter(|_| !self.bytes.is_empty()) else {
            return Bytes::new();
        };
        drop(held.split(held.num_permits().saturating_sub(self.bytes.capacity())));
        Bytes::from_owner(Body { bytes: self.bytes, _held: held })
    }

    fn capacity(&self) -> usize {
        self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    async fn grow(&mut self, least: usize) -> Result<(), Full> {
        let capacity = self.capacity();
        let wanted = capacity.saturating_mul(2).max(SMALL).min(self.most).max(least);
        let moves = wanted > SMALL && !Arc::ptr_eq(&self.semaphore, &self.large);
        if moves {
            self.semaphore = Arc::clone(&self.large);
        }
        let more = if moves { wanted } else { wanted - capacity };
        let more = self.take(u32::try_from(more).map_err(|_| Full)?).await?;
        match &mut self.held {
            Some(held) if !moves => held.merge(more),
            // What it held of the other share goes back.
            held => *held = Some(more),
        }
        self.bytes.reserve_exact(wanted - self.bytes.len());
        Ok(())
    }

    async fn take(&mut self, count: u32) -> Result<OwnedSemaphorePermit, Full> {
        if let Ok(taken) = Arc::clone(&self.semaphore).try_acquire_many_owned(count) {
            return Ok(taken);
        }
        if self.patience == Patience::None {
            return Err(Full);
        }
        if Arc::ptr_eq(&self.semaphore, &self.large) && self.promise.is_none() {
            let most = u32::try_from(self.most).map_err(|_| Full)?;
            let promised = Arc::clone(&self.promised);
            self.promise = Some(if self.held.is_some() {
                promised.try_acquire_many_owned(most).map_err(|_| Full)?
            } else {
                self.waited = true;
                promised.acquire_many_owned(most).await.map_err(|_| Full)?
            });
        }
        self.waited = true;
        let turn = Arc::clone(&self.semaphore).acquire_many_owned(count);
        turn.await.map_err(|_| Full)
    }
}

/// A body that was read, and the room that it takes.
struct Body {
    bytes: Vec<u8>,
    _held: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;

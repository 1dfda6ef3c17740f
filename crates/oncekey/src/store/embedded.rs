//! Durable records in a folder of this machine.
//!
//! 1. What is acknowledged is synced to disk: it outlives the process and the machine's power. It
//!    is assumed that the disk keeps what a successful `fdatasync` wrote.
//! 2. One process has a folder open. Records that were in progress when it ended are unknown as
//!    soon as the folder is opened again, not when their lease ends.
//! 3. One thread decides and writes. Calls that arrive while it syncs share the next sync.
//! 4. Replays of completed records that are at hand are answered beside it, without a lock or a
//!    write (C5).
//! 5. A failed write or sync ends the store: every later call gets an error, and
//!    [`EmbeddedStore::failed`] says so, for the process to stop (X7).
//! 6. The store's time never runs backwards, not even over a restart with a clock set back.
//!
//! ```
//! use oncekey::store::embedded::{EmbeddedStore, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path().join("data");
//! let store = EmbeddedStore::open(&folder, Options::default())?;
//! assert!(store.is_healthy());
//! assert!(EmbeddedStore::open(&folder, Options::default()).is_err(), "it is in use");
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::path::Path;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::batch::Batch;
use self::folder::Folder;
use self::mailbox::Mailbox;
use self::open::Opened;
use self::request::{Call, Reply, Request, Take};
use self::view::View;
use self::writer::Writer;
use crate::clock::Clock;
use crate::decide::{self, Moment};
use crate::events::{self, Observer};
use crate::fingerprint::Secret;
use crate::key::RecordId;
use crate::record::{Kind, Lease, Outcome, Record, Retention, Version};
use crate::store::{
    By, Change, Changed, Claim, Claimed, Counts, Cursor, DeadTokens, Ending, Filter, Held, Inspect,
    Look, Note, Page, Recover, Store, StoreError, StoreErrorKind, bounds,
};

mod batch;
mod buckets;
#[doc(hidden)]
pub mod bulk;
mod error;
mod folder;
mod layout;
mod listing;
mod mailbox;
mod open;
mod request;
mod view;
mod writer;

pub use self::error::{Damage, OpenError};

/// Deleted buckets that may wait for their files to be removed.
const MAX_DELETED: usize = 64;

/// How a store is opened. The defaults serve; all sizes are bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// What judges leases and retentions. `None`: the machine's clock, started no earlier than
    /// the last moment the folder has seen.
    pub clock: Option<Clock>,
    /// Told of every batch.
    pub observer: Arc<dyn Observer>,
    /// How long a call may take before it fails as timed out (10 s).
    pub deadline: Duration,
    /// How many calls may wait for the writer (4 096); more wait for their turn to wait.
    pub queue: usize,
    /// The most records in progress and unknown together (1 000 000); they are held in memory.
    /// Above it new claims are refused as full.
    pub max_live: usize,
    /// Completed records kept at hand for replays (32 MiB).
    pub cache_bytes: u64,
    /// Blocks of files kept in memory (32 MiB).
    pub block_cache_bytes: u64,
    /// What a keyspace gathers in memory before it makes a file of it (4 MiB).
    pub memtable_bytes: u64,
    /// How large files are made when they are merged (8 MiB).
    pub table_bytes: u64,
    /// How large the journals may grow together (128 MiB); at least 64 MiB.
    pub journal_bytes: u64,
    /// How many files may be open at once beside the journals (256).
    pub max_files: usize,
    /// Threads that write and merge files in the background (2).
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: None,
            observer: events::nobody(),
            deadline: Duration::from_secs(10),
            queue: 4096,
            max_live: 1_000_000,
            cache_bytes: 32 << 20,
            block_cache_bytes: 32 << 20,
            memtable_bytes: 4 << 20,
            table_bytes: 8 << 20,
            journal_bytes: 128 << 20,
            max_files: 256,
            workers: 2,
        }
    }
}

/// Keeps records in a folder. See the [module](self) for what it promises.
///
/// Dropping it writes what is queued, ends its threads and lets go of the folder.
pub struct EmbeddedStore {
    view: Arc<View>,
    secret: Secret,
    deadline: Duration,
    /// Gone when the store is dropped, which ends the writer.
    queue: Option<mpsc::Sender<Call>>,
    threads: Vec<JoinHandle<()>>,
    /// Last, so that the next opener finds the files closed.
    _folder: Folder,
}

impl EmbeddedStore {
    /// Opens the store in the folder at `path`, which is made if it is not there.
    ///
    /// Reads the disk, and so blocks for a moment.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the folder and what to do.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let folder = Folder::take(path.as_ref())?;
        let (deleted, to_drop) = std_mpsc::sync_channel(MAX_DELETED);
        // The folder is ours and the engine has not looked: whoever must judge the journals as
        // the last process left them does it here, for the engine cuts off what it cannot read.
        let Opened { view, buckets, secret, mark, live } =
            open::open(&folder.database(), &options, deleted)?;
        let writer = Writer {
            view: Arc::clone(&view),
            buckets,
            observer: options.observer,
            mark,
            max_live: options.max_live,
            live,
            dead: DeadTokens::default(),
            batch: Batch::default(),
            scratch: Vec::new(),
        };
        let (queue, calls) = mpsc::channel(options.queue.max(1));
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.into())
                .spawn(run)
                .map_err(|error| OpenError::io(path.as_ref(), error))
        };
        let threads = vec![
            spawn("oncekey-writer", Box::new(move || writer.run(calls)))?,
            // The last handle of a deleted bucket removes its files.
            spawn("oncekey-sweeper", Box::new(move || to_drop.into_iter().for_each(drop)))?,
        ];
        let (queue, deadline) = (Some(queue), options.deadline);
        Ok(Self { view, secret, deadline, queue, threads, _folder: folder })
    }

    /// The secret of this folder's fingerprints, made when it was first opened.
    #[must_use]
    pub fn secret(&self) -> Secret {
        self.secret.clone()
    }

    /// The clock that judges leases and retentions here.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.view.clock
    }

    /// Cancelled once a write or sync has failed: nothing can be promised from then on (X7).
    #[must_use]
    pub fn failed(&self) -> CancellationToken {
        self.view.failed.clone()
    }

    /// Whether it still writes.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.view.is_healthy()
    }

    /// Asks the writer, for as long as a call may take.
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, StoreError> {
        let unavailable = || StoreError::new(StoreErrorKind::Unavailable);
        let queue = self.queue.as_ref().ok_or_else(unavailable)?;
        if !self.view.is_healthy() {
            return Err(unavailable());
        }
        let (reply, answer) = oneshot::channel();
        let asked = async {
            let call = Call { request: request(reply), from: Mailbox::here() };
            queue.send(call).await.map_err(|_| unavailable())?;
            // A writer that died on the way may have written it.
            answer.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout)))
        };
        tokio::time::timeout(self.deadline, asked)
            .await
            .unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout)))
    }

    /// The record: from memory where that is certain, else from the writer.
    async fn find(&self, id: &RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        let now = self.view.clock.now();
        if let Some(record) = self.view.live(id).or_else(|| self.view.completed(id, now)) {
            return Ok(Some(record));
        }
        self.ask(|reply| Request::Get { id: *id, reply }).await
    }

    /// Where a record stands against `seen`, for one that waits.
    async fn look(&self, id: &RecordId, seen: Version) -> Result<Look, StoreError> {
        let found = self.find(id).await?;
        Ok(Look::at(found.as_deref(), seen, self.view.clock.now()))
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // One that panicked has told so by then.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("healthy", &self.is_healthy()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        bounds::claim(claim)?;
        let arrived = self.view.clock.now().before(claim.age);
        if let Some(claimed) = self.view.replay(claim, arrived) {
            return Ok(claimed);
        }
        let claim = Box::new(claim.clone());
        self.ask(|reply| Request::Claim { claim, arrived, reply }).await
    }

    async fn renew(
        &self,
        lease: &Lease,
        ttl: Duration,
        note: Option<&Note>,
    ) -> Result<Held, StoreError> {
        bounds::note(note)?;
        let (lease, note) = (*lease, note.cloned());
        self.ask(|reply| Request::Renew { lease, ttl, note, reply }).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        outcome: &Outcome,
        keep: Retention,
    ) -> Result<Held, StoreError> {
        bounds::outcome(outcome)?;
        let (lease, outcome) = (*lease, outcome.clone());
        self.ask(|reply| Request::Complete { lease, outcome, keep, reply }).await
    }

    async fn end(&self, lease: &Lease, how: Ending) -> Result<Held, StoreError> {
        let lease = *lease;
        self.ask(|reply| Request::End { lease, how, reply }).await
    }

    async fn changed(
        &self,
        id: &RecordId,
        seen: Version,
        bound: Duration,
    ) -> Result<(), StoreError> {
        let view = &self.view;
        view.waiters.changed(&view.clock, id, bound, self.look(id, seen)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        Ok(self.find(id).await?.map(Arc::unwrap_or_clone))
    }

    async fn purge_expired(&self, limit: usize) -> Result<usize, StoreError> {
        self.ask(|reply| Request::Purge { limit, reply }).await
    }
}

#[async_trait]
impl Inspect for EmbeddedStore {
    async fn list(
        &self,
        filter: &Filter,
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let (view, filter) = (Arc::clone(&self.view), filter.clone());
        let task =
            tokio::task::spawn_blocking(move || listing::page(&view, &filter, cursor, limit));
        match tokio::time::timeout(self.deadline, task).await {
            Ok(Ok(page)) => page,
            Ok(Err(failed)) => Err(StoreError::caused(StoreErrorKind::Unreadable, failed)),
            Err(_) => Err(StoreError::new(StoreErrorKind::Timeout)),
        }
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.view.counts(self.view.clock.now()))
    }

    async fn change(
        &self,
        id: &RecordId,
        seen: Version,
        change: Change,
        by: &By,
    ) -> Result<Changed, StoreError> {
        bounds::change(&change, by)?;
        let (id, by) = (*id, by.clone());
        self.ask(|reply| Request::Change { id, seen, change, by, reply }).await
    }
}

#[async_trait]
impl Recover for EmbeddedStore {
    async fn take_unknown(
        &self,
        kind: Kind,
        stale_for: Duration,
        ttl: Duration,
        max_attempts: u32,
        limit: usize,
    ) -> Result<Vec<(Record, Lease)>, StoreError> {
        let at = Moment { now: self.view.clock.now(), next: Version::ABSENT };
        let may =
            |record: &Record| decide::recover(record, stale_for, ttl, max_attempts, at).is_some();
        let candidates = self.view.recoverable(kind, limit, may);
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let wish = Take { candidates, stale_for, ttl, max_attempts };
        self.ask(|reply| Request::Take { wish, reply }).await
    }
}

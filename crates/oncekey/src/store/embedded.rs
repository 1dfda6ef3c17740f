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
//!    [`EmbeddedStore::failed`] says so, for the process to stop (X7). So does a write that does
//!    not end, and a folder that is no longer there; [`EmbeddedStore::failure`] says why.
//! 6. The store's time never runs backwards, not even over a restart with a clock set back. While
//!    the machine runs on, it counts on through the time that the store was closed, wherever the
//!    wall clock was set meanwhile. Only after a restart of the machine is the wall clock believed:
//!    the store is later then by as much as that says, and deletes nothing in its first hour, in
//!    case it says too much (L4).
//! 7. When the disk runs low, or the folder grows beyond its bound, new claims are refused as full
//!    and everything else goes on (X5); see [`Room`].
//! 8. A folder from which something acknowledged is missing is refused, unchanged, and the refusal
//!    names what: [`scan`] tells it without opening, and [`accept_loss`] goes on without it.
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

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::applier::Applier;
use self::buckets::Leaving;
use self::changes::Changes;
use self::desk::Desk;
use self::filter::Loader;
use self::folder::Folder;
use self::guard::Guard;
use self::kept::Follower;
use self::log::{Files, Log};
use self::mailbox::Mailbox;
use self::open::Opened;
use self::request::{Call, Reply, Request, Take};
use self::space::{Bounds, Watch};
use self::threads::{Threads, Waited};
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
    Look, Note, Page, Recover, Store, StoreError, StoreErrorKind, WallWatch, bounds,
};

mod accept;
mod applier;
mod backup;
mod buckets;
#[doc(hidden)]
pub mod bulk;
mod changes;
mod check;
mod copy;
mod desk;
mod error;
mod filter;
mod folder;
mod guard;
mod journal;
mod kept;
mod layout;
mod listing;
mod log;
mod mailbox;
mod open;
mod progress;
mod report;
mod request;
mod resume;
mod space;
mod survey;
mod sweep;
mod synced;
mod tables;
mod threads;
mod view;
mod walk;
mod writer;

pub use self::accept::{Accepted, accept_loss};
pub use self::backup::{Backup, BackupError, Restored, backup, restore};
pub use self::check::{Journal, Known, Scan, scan};
pub use self::error::{Damage, Failure, Fault, Flaw, Missing, OpenError};
pub use self::progress::{Progress, Step};
pub use self::report::{Extent, Report, Standings, check};
pub use self::space::{Room, Space};

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
    /// Bytes that the folder may take, about; above them new claims are refused as full (X5).
    /// `None`: no bound but the disk. A journal counts with its whole length, 64 MiB, from the
    /// start; the log counts, too.
    pub max_bytes: Option<u64>,
    /// Free bytes of the disk to keep for running work: below them new claims are refused as full,
    /// below a quarter of them large outcomes too (X5). `None`: 256 MiB, or 5 % of a disk of which
    /// that is less.
    pub reserve_bytes: Option<u64>,
    /// How long a write may take before the store counts as failed (10 s); a process that was
    /// stopped or suspended meanwhile is not counted.
    pub stall: Duration,
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
            max_bytes: None,
            reserve_bytes: None,
            stall: Duration::from_secs(10),
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
/// Dropping it writes what is queued, ends its threads and lets go of the folder. One that failed
/// because a write does not end leaves that write behind: the folder is free when it has ended.
pub struct EmbeddedStore {
    view: Arc<View>,
    desk: Arc<Desk>,
    secret: Secret,
    deadline: Duration,
    /// Gone when the store is dropped, which ends the writer.
    queue: Option<mpsc::Sender<Call>>,
    /// Gone when the store is dropped, which ends the guard.
    guarded: Option<std_mpsc::SyncSender<Infallible>>,
    threads: Threads,
    /// Last, so that the next opener finds the files closed. The threads hold it too: whoever may
    /// still write keeps the next opener out.
    _folder: Arc<Folder>,
}

impl EmbeddedStore {
    /// Opens the store in the folder at `path`, which is made if it is not there.
    ///
    /// Reads the disk, and so blocks for a moment.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the folder and what to do.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let io = |error| OpenError::io(path.as_ref(), error);
        // Before the engine looks, for it cuts off what it cannot read.
        let (folder, synced) = check::take(path.as_ref())?;
        let folder = Arc::new(folder);
        let Opened { view, mut tables, secret, mark, live, delete_from } =
            threads::giving_way(|| open::open(folder.path(), &options, &synced))?;
        let mut follower = Follower::new(path.as_ref(), Arc::clone(&synced));
        follower.look().map_err(io)?;
        // Only now: until then the log may hold what is nowhere else.
        let (files, mut free) = Files::open(folder.path()).map_err(io)?;
        let slot = free.pop().ok_or_else(|| io(std::io::ErrorKind::NotFound.into()))?;
        let desk = Arc::new(Desk::new(free, mark));
        let bounds =
            Bounds { reserve: options.reserve_bytes, most: options.max_bytes.unwrap_or(u64::MAX) };
        let parts = [folder.lock_file(), folder.database(), folder.path().join(log::NAME)];
        let mut watch = Watch::new(path.as_ref(), parts, bounds).map_err(io)?;
        // Before the first claim: a disk that is full already takes none.
        watch
            .look(&view.space, tables.buckets.database(), files.bytes())
            .map_err(OpenError::from)?;
        let (deleted, to_drop) = std_mpsc::sync_channel(MAX_DELETED);
        let (loader, loads) = Loader::new();
        tables.buckets.set_loader(loader);
        let writer = Writer {
            view: Arc::clone(&view),
            log: Log::new(slot),
            synced: Arc::clone(&synced),
            desk: Arc::clone(&desk),
            folder: folder.path().to_path_buf(),
            observer: options.observer,
            mark,
            max_live: options.max_live,
            live,
            dead: DeadTokens::default(),
            wall: WallWatch::default(),
            delete_from,
            batch: Changes::default(),
            answers: Vec::new(),
        };
        let applier = Applier {
            view: Arc::clone(&view),
            desk: Arc::clone(&desk),
            tables,
            synced,
            files,
            watch,
            leaving: Leaving::new(deleted),
        };
        let mut threads = Threads::new(Arc::clone(&folder));
        let queue = threads.serve(writer, applier, follower, options.queue).map_err(io)?;
        // The last handle of a deleted bucket removes its files.
        let sweep = move || to_drop.into_iter().for_each(drop);
        threads.start_on_disk("oncekey-sweeper", sweep).map_err(io)?;
        let loading = Arc::clone(&desk);
        let load = move || filter::run(&loads, &loading);
        threads.start_on_disk("oncekey-filters", load).map_err(io)?;
        let guard =
            Guard { view: Arc::clone(&view), desk: Arc::clone(&desk), stall: options.stall };
        let (guarded, guarding) = std_mpsc::sync_channel(0);
        threads.start("oncekey-guard", move || guard.run(&guarding)).map_err(io)?;
        threads.complete();
        let (deadline, queue, guarded) = (options.deadline, Some(queue), Some(guarded));
        Ok(Self { view, desk, secret, deadline, queue, guarded, threads, _folder: folder })
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

    /// Cancelled once the store has failed: nothing can be promised from then on, and the process
    /// has to end (X7).
    #[must_use]
    pub fn failed(&self) -> CancellationToken {
        self.view.failed()
    }

    /// Why it failed, once [`failed`](Self::failed) is cancelled.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.view.failure().cloned()
    }

    /// How much room there is on the disk and in the folder (X5), as seen last.
    #[must_use]
    pub fn space(&self) -> Space {
        self.view.space.space()
    }

    /// Whether it still writes.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.view.is_healthy()
    }

    /// An error once the store has failed: then even what is in memory is not told any more, for
    /// the next process may see less.
    fn is_open(&self) -> Result<(), StoreError> {
        match self.view.failure() {
            None => Ok(()),
            Some(failure) => Err(StoreError::caused(StoreErrorKind::Unavailable, failure.clone())),
        }
    }

    /// Waits until all that was acknowledged before is in the tables, to be listed.
    async fn settle(&self) -> Result<(), StoreError> {
        self.is_open()?;
        let (settled, done) = oneshot::channel();
        self.desk.ask(|errands| errands.settles.push(settled));
        // An applier that died on the way has made the store fail.
        let _ = done.await;
        self.is_open()
    }

    /// Asks the writer, for as long as a call may take.
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, StoreError> {
        let unavailable = || StoreError::new(StoreErrorKind::Unavailable);
        let queue = self.queue.as_ref().ok_or_else(unavailable)?;
        self.is_open()?;
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
        self.is_open()?;
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
        if self.threads.wait(|| self.view.is_healthy()) == Waited::LeftBehind {
            tracing::error!("a write does not end and is left behind");
            return;
        }
        self.guarded = None;
        self.threads.join();
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
        self.is_open()?;
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
        self.purge(limit).await
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
        let listed = async {
            self.settle().await?;
            let task =
                tokio::task::spawn_blocking(move || listing::page(&view, &filter, cursor, limit));
            let failed = |failed| StoreError::caused(StoreErrorKind::Unreadable, failed);
            task.await.map_err(failed)?
        };
        tokio::time::timeout(self.deadline, listed)
            .await
            .unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout)))
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        self.is_open()?;
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
        let may = |record: &Record| {
            record.kind == kind
                && decide::recover(record, stale_for, ttl, max_attempts, at).is_some()
        };
        let candidates = self.view.find_live(limit, may);
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let wish = Take { candidates, stale_for, ttl, max_attempts };
        self.ask(|reply| Request::Take { wish, reply }).await
    }
}

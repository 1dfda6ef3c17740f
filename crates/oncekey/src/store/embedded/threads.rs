//! The threads of an open store, and letting go of one that hangs.
//!
//! 1. A thread that touches the disk holds the folder: whoever may still write keeps the next
//!    opener out, also when the store itself has been left behind.
//! 2. On Linux, bringing things into tables and merging those gives way to whoever waits for an
//!    answer.
//! 3. A healthy store is waited for until everything queued is written. One that failed gets two
//!    seconds more: a write that does not end must not keep its process from ending.

use std::convert::Infallible;
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc;

use super::applier::Applier;
use super::desk::Desk;
use super::folder::Folder;
use super::guard;
use super::kept::Follower;
use super::request::Call;
use super::writer::Writer;

/// How many ticks a failed store waits for threads that touch the disk.
const LAST_TICKS: u32 = 20;

/// Running threads.
pub(super) struct Threads {
    running: Vec<JoinHandle<()>>,
    /// What each thread that touches the disk holds until it ends; ours until all are started.
    held: Option<(Arc<Folder>, SyncSender<Infallible>)>,
    /// Hears when the last of those has ended.
    ended: Mutex<Receiver<Infallible>>,
}

/// By how much background work gives way: it gets a third of the processor time that others get
/// where there is too little for all, which is enough to keep up.
const NICE: i32 = 5;

/// Lets threads that somebody waits for go before this one, and before those that it starts.
fn give_way() {
    // One that cannot be made to is only in the way of others.
    let _ = rustix::process::nice(NICE);
}

/// Runs `work` in a thread that gives way, and so does every thread that it starts.
pub(super) fn giving_way<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let work = move || {
            give_way();
            work()
        };
        scope.spawn(work).join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Tells the applier that the writer is gone, however it went.
struct Ended(Arc<Desk>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// How waiting for the threads ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// None touches the disk any more.
    Ended,
    /// One still does, and will not be waited for.
    LeftBehind,
}

impl Threads {
    pub(super) fn new(folder: Arc<Folder>) -> Self {
        let (alive, ended) = sync_channel(0);
        Self { running: Vec::new(), held: Some((folder, alive)), ended: Mutex::new(ended) }
    }

    /// Starts a thread.
    pub(super) fn start(
        &mut self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        self.running.push(thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }

    /// Starts a thread that touches the disk.
    pub(super) fn start_on_disk(
        &mut self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let held = self.held.clone();
        self.start(name, move || {
            run();
            drop(held);
        })
    }

    /// Starts those that a call passes through, and says where calls go. They end one after the
    /// other once nobody holds that end: the writer, then the applier with all that is left, then
    /// the follower with a last look.
    pub(super) fn serve(
        &mut self,
        writer: Writer,
        applier: Applier,
        follower: Follower,
        queue: usize,
    ) -> io::Result<mpsc::Sender<Call>> {
        let (view, desk) = (Arc::clone(&writer.view), Arc::clone(&writer.desk));
        let (sender, calls) = mpsc::channel(queue.max(1));
        let (stop_follower, stopped) = sync_channel(0);
        self.start_on_disk("oncekey-synced", move || follower.run(&stopped, &view))?;
        self.start_on_disk("oncekey-applier", move || {
            give_way();
            applier.run();
            drop(stop_follower);
        })?;
        self.start_on_disk("oncekey-writer", move || {
            let _ended = Ended(desk);
            writer.run(calls);
        })?;
        Ok(sender)
    }

    /// To be said once all are started.
    pub(super) fn complete(&mut self) {
        self.held = None;
    }

    /// Waits until none touches the disk any more, for as long as `is_healthy` and a little more.
    pub(super) fn wait(&mut self, is_healthy: impl Fn() -> bool) -> Waited {
        self.complete();
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut last = LAST_TICKS;
        // As long as it is healthy, what is queued is written; the guard still watches that.
        while ended.recv_timeout(guard::TICK) == Err(RecvTimeoutError::Timeout) {
            if !is_healthy() {
                last -= 1;
            }
            if last == 0 {
                return Waited::LeftBehind;
            }
        }
        Waited::Ended
    }

    /// Waits for all of them.
    pub(super) fn join(&mut self) {
        for thread in self.running.drain(..) {
            // One that panicked has told so by then.
            let _ = thread.join();
        }
    }
}

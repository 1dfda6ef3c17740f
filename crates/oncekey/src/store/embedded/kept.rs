//! Journals are kept until the store knows that they are over.
//!
//! The engine deletes a journal once all it holds lies in tables. Afterwards nobody can tell one
//! that was deleted so from one that was lost. So each journal gets a second name:
//!
//! ```text
//! db/N.jnl         the engine's name of it
//! journals/N.jnl   the same file, until `synced` says that it is over
//! ```
//!
//! 1. A journal gets its second name, synced, before `synced` lists it as one that must be there.
//! 2. `synced` stops listing it, synced, before the second name goes.
//! 3. One that the engine deleted just before the process ended is given back to the engine: to
//!    replay it once more changes nothing.
//! 4. Where the file system has no second names, journals are not listed: the loss of a whole
//!    journal, the oldest, is then not told.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::error::Failure;
use super::folder::sync;
use super::journal;
use super::synced::{Start, Synced};
use super::view::View;

/// How often `synced` is synced.
const EVERY: Duration = Duration::from_secs(1);

/// The engine's name of a journal.
pub(super) fn engine(path: &Path, file: u64) -> PathBuf {
    path.join("db").join(journal::name(file))
}

fn folder(path: &Path) -> PathBuf {
    path.join("journals")
}

/// Every journal of the store at `path`, oldest first, by the engine's name where it has one.
pub(super) fn all(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = journal::list(&path.join("db"))?;
    for (file, name) in journal::list(&folder(path))? {
        if !found.iter().any(|(known, _)| *known == file) {
            found.push((file, name));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Gives back to the engine what it may still need, and deletes what is over.
pub(super) fn restore(path: &Path, oldest: u64) -> io::Result<()> {
    for (file, name) in all(path)? {
        if file < oldest {
            forget(&engine(path, file))?;
            forget(&folder(path).join(journal::name(file)))?;
        } else if name.parent() == Some(&folder(path)) {
            fs::hard_link(&name, engine(path, file))?;
        }
    }
    if path.join("db").exists() { sync(&path.join("db")) } else { Ok(()) }
}

/// Gives every journal of the engine its second name anew: after a copy of the folder there may be
/// two files. Says which have one.
pub(super) fn renew(path: &Path) -> io::Result<Vec<u64>> {
    let folder = folder(path);
    fs::create_dir_all(&folder)?;
    let present = journal::list(&path.join("db"))?;
    for (file, name) in journal::list(&folder)? {
        if present.iter().any(|(known, _)| *known == file) {
            forget(&name)?;
        }
    }
    let mut linked = Vec::new();
    for (file, name) in present {
        if link(&name, &folder.join(journal::name(file)))? == Linked::Yes {
            linked.push(file);
        }
    }
    sync(&folder)?;
    Ok(linked)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Linked {
    Yes,
    /// The engine deleted it meanwhile, or the file system has no second names.
    No,
}

fn link(name: &Path, second: &Path) -> io::Result<Linked> {
    match fs::hard_link(name, second) {
        Ok(()) => Ok(Linked::Yes),
        Err(error) => match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(Linked::Yes),
            io::ErrorKind::NotFound => Ok(Linked::No),
            io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied => {
                tracing::warn!(%error, "the file system gives no file two names: a lost journal \
                    may go unnoticed");
                Ok(Linked::No)
            }
            _ => Err(error),
        },
    }
}

fn forget(name: &Path) -> io::Result<()> {
    match fs::remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Follows what the engine does with its journals, and syncs `synced`.
pub(super) struct Follower {
    path: PathBuf,
    synced: Arc<Synced>,
    /// Journals that were seen; whether they have a second name.
    seen: Vec<(u64, Linked)>,
}

impl Follower {
    pub(super) fn new(path: &Path, synced: Arc<Synced>) -> Self {
        Self { path: path.to_path_buf(), synced, seen: Vec::new() }
    }

    /// Looks once a second until the other end of `stop` is gone, and then once more.
    pub(super) fn run(mut self, stop: &Receiver<()>, view: &View) {
        loop {
            let stopped = stop.recv_timeout(EVERY) == Err(RecvTimeoutError::Disconnected);
            if let Err(error) = self.look() {
                // What is synced from now on would not be known to be.
                view.fail(self.failure(error));
                return;
            }
            if stopped {
                return;
            }
        }
    }

    fn failure(&self, error: io::Error) -> Failure {
        let path = self.path.clone();
        if self.path.join("db").exists() {
            Failure::Write { path, free: None, source: Arc::new(error) }
        } else {
            Failure::FolderGone { path }
        }
    }

    /// Notes which journals there are, and syncs.
    pub(super) fn look(&mut self) -> io::Result<()> {
        let present = journal::list(&self.path.join("db"))?;
        let folder = folder(&self.path);
        let mut new = false;
        for (file, name) in &present {
            if !self.seen.iter().any(|(known, _)| known == file) {
                let linked = link(name, &folder.join(journal::name(*file)))?;
                self.seen.push((*file, linked));
                new = true;
            }
        }
        if new {
            sync(&folder)?;
        }
        let table = self.synced.table();
        let mut starts = table.journals.clone();
        for (file, name) in &present {
            let linked = self.seen.contains(&(*file, Linked::Yes));
            if linked && !starts.iter().any(|start| start.file == *file) {
                // What is not synced may yet be lost, and nothing with it.
                let synced = |start: &Start| start.number <= table.highest.number;
                starts.extend(start(*file, name)?.filter(synced));
            }
        }
        let mut oldest = table.oldest;
        // Only once the successor is listed: until then the older one tells how far it reaches.
        if let Some(start) = starts.iter().find(|start| Some(start.file) == first(&present)) {
            oldest = oldest.max(start.file);
        }
        starts.retain(|start| start.file >= oldest);
        let from = starts.iter().map(|start| start.number).min().unwrap_or(0);
        if (oldest, &starts) != (table.oldest, &table.journals) {
            self.synced.change(|table| {
                table.oldest = oldest;
                table.journals = starts;
                // Gaps before the oldest journal concern nobody any more.
                table.gaps.retain(|gap| gap.last >= from);
            })?;
        }
        self.synced.sync()?;
        self.drop_older(oldest)
    }

    fn drop_older(&mut self, oldest: u64) -> io::Result<()> {
        for (file, _) in self.seen.extract_if(.., |(file, _)| *file < oldest) {
            forget(&folder(&self.path).join(journal::name(file)))?;
        }
        Ok(())
    }
}

fn first(present: &[(u64, PathBuf)]) -> Option<u64> {
    present.first().map(|(file, _)| *file)
}

fn start(file: u64, name: &Path) -> io::Result<Option<Start>> {
    match journal::start(name) {
        Ok(found) => Ok(found.map(|(number, seqno)| Start { file, number, seqno })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

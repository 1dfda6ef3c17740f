//! What is missing from a folder, told before the storage engine looks at it.
//!
//! 1. Reading alone: a folder that is refused is as it was. What the log must hold is told by
//!    [its own reading](super::log); all that follows is about the storage engine's journals.
//! 2. Batch numbers run without a gap through all journals in order of their file number, and the
//!    last is at least the one that was synced. A journal that must be there is there, and begins
//!    with the batch that it began with.
//! 3. After the last intact batch of a journal only zeros follow. In the last journal anything may
//!    follow that was not known to be synced: a crash tore it, and nobody was told of it.
//! 4. Gaps that a person accepted are no damage. Others are, however old.
//! 5. Each keyspace that held something has its folder, with its list of tables intact and all of
//!    them there: the engine would make what it misses anew, and delete what it then does not know.
//!    After opening it must also hold its last synced mark; that is for [`open`](super::open).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Damage, Fault, Flaw, Missing, OpenError};
use super::folder::{self, Folder};
use super::journal::{self, Contents, Tail};
use super::kept;
use super::layout::Mark;
use super::log::{self, Slots};
use super::synced::{self, Gap, Start, Synced, Table};
use super::tables;
use super::walk::{self, Verdict};

/// What reading a folder shows; see [`scan`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Scan {
    /// The log, in the order in which its files are written. What is in the tables already is not
    /// counted.
    pub log: Vec<Journal>,
    /// The storage engine's journals, oldest first.
    pub journals: Vec<Journal>,
    /// What the store knew to be synced; `None` if the file that says so cannot be read, or
    /// nothing was ever stored.
    pub synced: Option<Known>,
    /// What is wrong. Empty: opening goes on.
    pub damages: Vec<Damage>,
    /// Files of the storage engine that are missing or changed, and that it would delete others
    /// for. Empty: opening goes on.
    pub files: Vec<Flaw>,
}

/// A file of the log, or a journal of the storage engine, as far as it is intact.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Journal {
    /// Where it is.
    pub path: PathBuf,
    /// How long the file is, room that was never written counted, in bytes.
    pub length: u64,
    /// How much of it is intact, in bytes.
    pub intact: u64,
    /// How many intact batches it holds.
    pub batches: u64,
    /// The number of its first batch.
    pub first: Option<u64>,
    /// The number of its last intact batch.
    pub last: Option<u64>,
    /// Whether something that is no batch follows on the intact ones: damage, or in the last
    /// journal what a crash left of a batch that nobody was told of.
    pub torn: bool,
}

/// What the store knew to be synced.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Known {
    /// The number of the last batch in the storage engine.
    pub number: u64,
    /// The number of the last batch in the log.
    pub logged: u64,
    /// Each keyspace and the number of its last batch.
    pub keyspaces: Vec<(String, u64)>,
    /// Missing batches that were accepted: first and last.
    pub accepted: Vec<(u64, u64)>,
}

/// Reads the store's folder at `path` and says what is missing. Changes nothing, and takes about a
/// second for 500 MB of journals.
///
/// A folder in which nothing was stored yet has no journals and no damage.
///
/// # Errors
/// [`OpenError::InUse`] while a process has the store open, [`OpenError::NewerVersion`] and
/// [`OpenError::Io`]. What is missing or damaged is no error: see [`Scan::damages`].
pub fn scan(path: impl AsRef<Path>) -> Result<Scan, OpenError> {
    let path = path.as_ref();
    let _lock = lock_if_there(path)?;
    let format = match folder::read_format(path) {
        Err(OpenError::Damaged { damage, .. }) => Some(damage),
        other => other.map(|_| None)?,
    };
    let mut judged = judge(path)?;
    judged.damages.extend(format);
    let damages = std::mem::take(&mut judged.damages);
    let files = std::mem::take(&mut judged.files);
    let Tale { log, journals, synced } = judged.told();
    Ok(Scan { log, journals, synced, damages, files })
}

impl Journal {
    fn of(contents: &Contents) -> Self {
        Self {
            path: contents.path.clone(),
            length: contents.length,
            intact: contents.end,
            batches: contents.batches,
            first: contents.runs.first().map(|run| run.first),
            last: contents.runs.last().map(|run| run.last),
            torn: contents.tail != Tail::Zeros,
        }
    }
}

/// Keeps a store from being opened meanwhile; makes no file.
fn lock_if_there(path: &Path) -> Result<Option<File>, OpenError> {
    let name = path.join("lock");
    let file = match OpenOptions::new().read(true).open(&name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io(&name, error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(OpenError::io(&name, error)),
    }
}

/// A folder, read.
pub(super) struct Judged {
    pub(super) table: Option<Table>,
    /// What is in the engine's folder, or kept beside it.
    pub(super) journals: Vec<Contents>,
    pub(super) damages: Vec<Damage>,
    /// Files that the engine would make anew, and delete what it does not know then.
    pub(super) files: Vec<Flaw>,
    /// Gaps that are there, accepted or not.
    pub(super) gaps: Vec<Gap>,
    /// How much of a journal may stay: `(number in its name, bytes)`.
    pub(super) cuts: Vec<(u64, u64)>,
    /// The highest mark of journals, log and table.
    pub(super) highest: Mark,
    pub(super) log: Slots,
    /// Whether the engine has a folder, and had finished making it.
    pub(super) engine: Engine,
}

/// What is worth telling of a folder.
pub(super) struct Tale {
    pub(super) log: Vec<Journal>,
    pub(super) journals: Vec<Journal>,
    pub(super) synced: Option<Known>,
}

/// What there is of the engine's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Absent,
    /// The process ended while it was made, before anything was stored.
    Unfinished,
    Whole,
}

/// Reads the folder at `path`.
pub(super) fn judge(path: &Path) -> Result<Judged, OpenError> {
    let failed = |error| OpenError::io(path, error);
    let database = path.join("db");
    let table = synced::read(path).map_err(failed)?;
    let oldest = table.as_ref().map_or(0, |table| table.oldest);
    let mut journals = Vec::new();
    for (file, name) in kept::all(path).map_err(failed)? {
        if file >= oldest {
            let read = journal::read(file, name.clone());
            journals.push(read.map_err(|error| OpenError::io(&name, error))?);
        }
    }
    let seen = journals.iter().fold(Mark::default(), |mark, it| mark.max(it.highest));
    let log = log::scan(path).map_err(failed)?;
    // What the engine has of the log is no proof that the log is all there.
    let seen = Mark { logged: 0, ..seen }.max(log.highest());
    let highest = table.as_ref().map_or(seen, |table| table.highest.max(seen));
    let engine = match (database.exists(), has_marker(&database)) {
        (false, _) => Engine::Absent,
        // The marker is the last that the engine makes.
        (true, false) if highest == Mark::default() => Engine::Unfinished,
        (true, _) => Engine::Whole,
    };
    let mut judged = Judged {
        table: None,
        journals,
        damages: Vec::new(),
        files: Vec::new(),
        gaps: Vec::new(),
        cuts: Vec::new(),
        highest,
        log,
        engine,
    };
    if table.is_none() && engine != Engine::Absent {
        judged.damages.push(Damage::SyncedUnreadable);
    }
    let known = table.clone().unwrap_or_default();
    if engine == Engine::Whole && judged.journals.is_empty() && known.journals.is_empty() {
        let missing = Missing { first: None, last: Some(highest.number) };
        let (file, fault) = (database.join(journal::name(oldest)), Fault::Absent);
        judged.damages.push(Damage::Journal { file, offset: 0, fault, missing });
    }
    let Verdict { damages, gaps, cuts } = walk::judge(&database, &known, &judged.journals);
    judged.damages.extend(damages);
    (judged.gaps, judged.cuts) = (gaps, cuts);
    judged.damages.extend(judged.log.lacks(&known));
    for entry in &known.keyspaces {
        let there = database.join("keyspaces").join(entry.id.to_string()).join("current");
        if !there.exists() {
            let (name, synced) = (entry.name.clone(), entry.mark.number);
            judged.damages.push(Damage::KeyspaceMissing { name, synced });
        }
    }
    if engine == Engine::Whole {
        if !has_marker(&database) {
            let path = database.join("version");
            judged.files.push(Flaw { path, damage: Damage::FileMissing });
        }
        judged.files.extend(tables::unlisted(&database, table.as_ref())?);
    }
    judged.table = table;
    Ok(judged)
}

/// Takes the folder at `path`, which is made if it is not there, and readies it for the engine;
/// refuses it unchanged if something is missing.
pub(super) fn take(path: &Path) -> Result<(Folder, Arc<Synced>), OpenError> {
    if path.is_dir() && !path.join("lock").exists() {
        // Making the lock file would be a change.
        folder::read_format(path)?;
        judge(path)?.refuse(path)?;
    }
    let folder = Folder::take(path)?;
    let judged = judge(path)?.refuse(path)?;
    let synced = ready(path, judged).map_err(|error| OpenError::io(path, error))?;
    Ok((folder, Arc::new(synced)))
}

impl Judged {
    /// What `synced` says, and what was acknowledged since it was synced last.
    pub(super) fn known(&self) -> Option<Table> {
        let table = self.table.clone()?;
        Some(Table { highest: self.highest, ..table })
    }

    /// What of it is worth telling.
    pub(super) fn told(self) -> Tale {
        let log = self.log.told(self.table.as_ref().map_or(0, |table| table.applied));
        let journals = self.journals.iter().map(Journal::of).collect();
        let synced = self.table.map(|table| Known {
            number: table.highest.number,
            logged: table.highest.logged,
            keyspaces: table.keyspaces.into_iter().map(|it| (it.name, it.mark.number)).collect(),
            accepted: table.gaps.into_iter().map(|gap| (gap.first, gap.last)).collect(),
        });
        Tale { log, journals, synced }
    }

    /// Refuses a folder that lacks a file without which nobody can go on.
    pub(super) fn whole(&mut self) -> Result<(), OpenError> {
        match self.files.drain(..).next() {
            Some(Flaw { path, damage }) => Err(OpenError::Damaged { path, damage }),
            None => Ok(()),
        }
    }

    fn refuse(mut self, path: &Path) -> Result<Self, OpenError> {
        self.whole()?;
        if self.damages.is_empty() {
            return Ok(self);
        }
        // The first to be met; a scan tells all.
        Err(OpenError::damaged(path, self.damages.swap_remove(0)))
    }
}

/// Makes a folder from which nothing is missing ready to be opened.
fn ready(path: &Path, judged: Judged) -> io::Result<Synced> {
    let mut table = match judged.table {
        Some(table) => table,
        None => {
            // Before the engine's folder is made: from then on it must be there.
            synced::replace(path, &Table::default())?;
            Table::default()
        }
    };
    if judged.engine == Engine::Unfinished {
        fs::remove_dir_all(path.join("db"))?;
        return Synced::open(path, table);
    }
    kept::restore(path, table.oldest)?;
    // What a crash tore: the engine would cut it off as well, or stumble over it.
    cut(path, &judged.cuts)?;
    let linked = kept::renew(path)?;
    table.highest = judged.highest;
    table.journals = starts(&judged.journals, &linked);
    Synced::open(path, table)
}

/// How the journals begin that are kept beside the engine.
pub(super) fn starts(journals: &[Contents], linked: &[u64]) -> Vec<Start> {
    let linked = journals.iter().filter(|journal| linked.contains(&journal.file));
    linked
        .filter_map(|journal| {
            let (number, seqno) = journal.start()?;
            Some(Start { file: journal.file, number, seqno })
        })
        .collect()
}

/// Shortens journals in the engine's folder.
pub(super) fn cut(path: &Path, cuts: &[(u64, u64)]) -> io::Result<()> {
    for (file, length) in cuts {
        let file = OpenOptions::new().write(true).open(kept::engine(path, *file))?;
        file.set_len(*length)?;
        file.sync_all()?;
    }
    Ok(())
}

fn has_marker(database: &Path) -> bool {
    fs::metadata(database.join("version")).is_ok_and(|marker| marker.len() > 0)
}

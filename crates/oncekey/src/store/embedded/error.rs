//! Why a folder cannot be opened as a store, and why an open one failed. Every answer says what to
//! do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::layout::META;

/// Why a store was not opened.
///
/// Nothing was changed on disk by [`InUse`](Self::InUse), [`NewerVersion`](Self::NewerVersion)
/// and [`NotWritable`](Self::NotWritable), nor by a [`Damage`] that was seen before the storage
/// engine was let near its files: [`Damage::seen_before_opening`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another store in this one, holds the folder.
    #[error(
        "the data folder {path} is in use by another process: stop it, or choose another folder"
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The user of this process may not write there.
    #[error("the data folder {path} is not writable ({source}): give this user the right to write")]
    NotWritable {
        /// The folder or the file in it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A newer version of this program wrote the folder.
    #[error(
        "the data folder {path} has format {found}, and this version knows {known}: use the newer \
         version that wrote it"
    )]
    NewerVersion {
        /// The folder.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// Something that must be there is missing or makes no sense.
    #[error("the data folder {path} is damaged ({damage}): {}", damage.advice())]
    Damaged {
        /// The folder or the file in it.
        path: PathBuf,
        /// What is wrong.
        damage: Damage,
    },
    /// It failed as soon as it was open.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// There is no store to be looked at.
    #[error("there is no store in {path}: name the data folder of one")]
    NoStore {
        /// The folder, which may not be there itself.
        path: PathBuf,
    },
    /// It is a backup, which is only ever read.
    #[error("{path} is a backup: restore it to a folder of its own (oncekey store restore)")]
    Backup {
        /// The folder.
        path: PathBuf,
    },
    /// The temporary folder does not serve, by way of which a folder is looked at.
    #[error(
        "{path}, by way of which the store is looked at, cannot be made ({source}): name a folder \
         with room for its journals in TMPDIR"
    )]
    StandIn {
        /// The temporary folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("the data folder {path} cannot be opened: {source}")]
    Io {
        /// The folder or the file in it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What is wrong with a damaged folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// There are records, but no file that says in which format.
    #[error("the file that names the format is missing")]
    FormatMissing,
    /// The file that names the format says something else.
    #[error("the file that names the format cannot be read")]
    FormatUnreadable,
    /// A restore into the folder was interrupted.
    #[error("a restore into it did not come to its end")]
    HalfRestored,
    /// A file of the storage engine is not there.
    #[error("the file is missing")]
    FileMissing,
    /// A file of the storage engine does not have the contents that were written.
    #[error("the file does not match its checksum")]
    FileChanged,
    /// The storage engine makes no file of this name.
    #[error("the file is not one of the storage engine's")]
    FileUnknown,
    /// A value that every folder has is missing or has the wrong length.
    #[error("the value {0:?} is missing or cut off")]
    Value(&'static str),
    /// A keyspace with a name that no version gives.
    #[error("the keyspace {0:?} is not known")]
    Keyspace(String),
    /// The storage engine could not make sense of its files.
    #[error("the storage engine says: {0}")]
    Engine(Box<dyn std::error::Error + Send + Sync>),
    /// The storage engine gave up on its files.
    #[error("the storage engine gave up while reading its files")]
    EnginePanicked,
    /// The file that says what was synced is missing, or no part of it is intact: whether
    /// something was lost cannot be told.
    #[error("the file that says what was synced is missing or cannot be read")]
    SyncedUnreadable,
    /// The file that says what was synced was made in another folder.
    #[error("the file that says what was synced belongs to another folder")]
    SyncedOfAnother,
    /// Batches are missing from a journal, or cannot be read there.
    #[error("{fault} in {file:?} at byte {offset}: {missing}")]
    Journal {
        /// The journal.
        file: PathBuf,
        /// From where on.
        offset: u64,
        /// What is wrong there.
        fault: Fault,
        /// What it held.
        missing: Missing,
    },
    /// The tables are ahead of the log, which is an older copy, or `synced` is.
    #[error("the log ends at batch {last}, and the tables hold batch {applied}")]
    LogBehind {
        /// The last batch of the log.
        last: u64,
        /// The last batch of the log that is in the tables.
        applied: u64,
    },
    /// A keyspace that held records is not there.
    #[error("the keyspace {name:?} is missing; it held records up to batch {synced}")]
    KeyspaceMissing {
        /// Its name.
        name: String,
        /// The last batch that it was known to hold.
        synced: u64,
    },
    /// A keyspace ends before what was synced.
    #[error("the keyspace {name:?} ends at batch {found}, and batch {synced} was synced")]
    KeyspaceBehind {
        /// Its name.
        name: String,
        /// The last batch that it holds.
        found: u64,
        /// The last batch that it was known to hold.
        synced: u64,
    },
}

/// What is wrong with a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file is not there.
    #[error("a journal is missing")]
    Absent,
    /// The bytes are no batch.
    #[error("the journal cannot be read")]
    Broken,
    /// It ends before what was synced.
    #[error("the journal ends too early")]
    Short,
    /// A batch that does not follow on the one before it.
    #[error("batch {found} lies in the journal where {expected} belongs,")]
    Order {
        /// Which batch belongs there.
        expected: u64,
        /// Which is there.
        found: u64,
    },
    /// A batch that this store did not write.
    #[error("something else wrote to the journal")]
    Foreign,
}

/// Which batches are missing. Each holds up to some hundred acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The first; `None` if it is not known.
    pub first: Option<u64>,
    /// The last; `None` if it is not known.
    pub last: Option<u64>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (Some(first), Some(last)) if first == last => write!(f, "batch {first} is missing"),
            (Some(first), Some(last)) => write!(f, "the batches {first} to {last} are missing"),
            (Some(first), None) => write!(f, "batches may be missing from {first} on"),
            (None, Some(last)) => write!(f, "batches may be missing up to {last}"),
            (None, None) => f.write_str("batches may be missing"),
        }
    }
}

impl Damage {
    /// Whether it is found by reading alone, so that the refusal has changed nothing on disk.
    #[must_use]
    pub fn seen_before_opening(&self) -> bool {
        matches!(
            self,
            Self::FormatMissing
                | Self::FormatUnreadable
                | Self::HalfRestored
                | Self::FileMissing
                | Self::FileChanged
                | Self::SyncedUnreadable
                | Self::Journal { .. }
                | Self::KeyspaceMissing { .. }
        )
    }

    /// Whether a person can go on without what is missing.
    #[must_use]
    pub fn can_be_accepted(&self) -> bool {
        match self {
            // Without it nobody knows the folder's secret.
            Self::KeyspaceMissing { name, .. } => name != META,
            Self::SyncedUnreadable
            | Self::SyncedOfAnother
            | Self::Journal { .. }
            | Self::LogBehind { .. }
            | Self::KeyspaceBehind { .. } => true,
            _ => false,
        }
    }

    /// What to do.
    fn advice(&self) -> &'static str {
        if matches!(self, Self::HalfRestored) {
            "delete the folder and restore again"
        } else if self.can_be_accepted() {
            "`oncekey store check` tells everything; restore it from a backup, or go on without \
             what is missing by `oncekey store accept-loss`"
        } else {
            "`oncekey store check` tells everything; restore it from a backup"
        }
    }
}

/// One thing that is wrong with a folder.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {damage}")]
#[non_exhaustive]
pub struct Flaw {
    /// The folder or the file in it.
    pub path: PathBuf,
    /// What is wrong with it.
    pub damage: Damage,
}

impl OpenError {
    /// What the system said about `path`.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path, source }
            }
            _ => Self::Io { path, source },
        }
    }

    /// What the storage engine said about `path`.
    pub(super) fn engine(path: &Path, error: fjall::Error) -> Self {
        match error {
            fjall::Error::Io(source) => Self::io(path, source),
            fjall::Error::Storage(fjall::LsmError::Io(source)) => Self::io(path, source),
            fjall::Error::Locked => Self::InUse { path: path.to_path_buf() },
            other => Self::damaged(path, Damage::Engine(other.into())),
        }
    }

    pub(super) fn damaged(path: &Path, damage: Damage) -> Self {
        Self::Damaged { path: path.to_path_buf(), damage }
    }
}

/// Why a store that was open promises nothing any more (X7). Told once; the process has to end.
///
/// What was acknowledged before is in the folder, and is there when it is opened again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A write or sync failed, of a batch or in the background.
    #[error(
        "a write to the data folder {path} failed ({source}{}): free space or repair the disk, \
         then start again; what was acknowledged is there",
        told(*.free)
    )]
    Write {
        /// The folder.
        path: PathBuf,
        /// Free bytes there, just afterwards.
        free: Option<u64>,
        /// What the storage engine said.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The writer waited for the disk for too long.
    #[error(
        "a write has not ended for {} s: look at the disk, then start again; what was acknowledged \
         is there",
        stall.as_secs_f64()
    )]
    Stuck {
        /// How long it was waited for.
        stall: Duration,
    },
    /// The folder is no longer where it was opened.
    #[error(
        "the data folder {path} was deleted or replaced while it was in use: put it back, or \
         restore it from a backup, then start again"
    )]
    FolderGone {
        /// The folder.
        path: PathBuf,
    },
    /// The writer gave up, which is a defect of this library.
    #[error("the writer of the data folder panicked: start again; what was acknowledged is there")]
    Panicked,
}

fn told(free: Option<u64>) -> String {
    free.map_or_else(String::new, |free| format!(", {free} bytes are free"))
}

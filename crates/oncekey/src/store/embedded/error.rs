//! Why a folder cannot be opened as a store, and why an open one failed. Every answer says what to
//! do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Why a store was not opened.
///
/// Nothing was changed on disk by [`InUse`](Self::InUse), [`NewerVersion`](Self::NewerVersion),
/// and [`NotWritable`](Self::NotWritable).
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
    #[error("the data folder {path} is damaged ({damage}): restore it from a backup")]
    Damaged {
        /// The folder or the file in it.
        path: PathBuf,
        /// What is wrong.
        damage: Damage,
    },
    /// It failed as soon as it was open.
    #[error(transparent)]
    Failed(#[from] Failure),
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

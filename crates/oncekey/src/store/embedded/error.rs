//! Why a folder cannot be opened as a store. Every answer names the folder and what to do.

use std::io;
use std::path::{Path, PathBuf};

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
    #[error("a restore into it did not come to its end; delete the folder and restore again")]
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
    /// A keyspace that must be there is not.
    #[error("the keyspace {0:?} is missing")]
    KeyspaceMissing(String),
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

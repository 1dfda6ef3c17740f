//! The folder: who holds it, and which format its files have.
//!
//! ```text
//! lock     held by the one process that has the store open
//! format   one line, "oncekey embedded 1": written and synced before any record
//! synced   what is known to be on disk: made and synced before `db/`
//! log/     what is acknowledged, until the storage engine has it on disk
//! db/      the storage engine's files
//! journals/, audit, lost-*/    see docs/storage-format.md
//! ```
//!
//! 1. A folder in a newer format is refused before anything is written, the lock file included.
//! 2. One process has a folder open, and one store in that process.
//! 3. The folder may hold other files: they are left alone.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::{Damage, OpenError};

/// The format that this version writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;

/// Where a restore gathers what it moves to its place at the end: while it is there, the folder is
/// not whole.
pub(super) const RESTORING: &str = "restoring";

/// What makes a folder a backup, see [`backup`](super::backup).
pub(super) const MANIFEST: &str = "manifest";

/// Where the storage engine's files are.
pub(super) const DATABASE: &str = "db";

const LOCK: &str = "lock";

const PREFIX: &str = "oncekey embedded ";

/// The longest format file that is looked at, in bytes.
const MAX_FORMAT_FILE: u64 = 64;

/// A folder that this process holds until the value is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Locked; the system lets go of it when the file is closed.
    _lock: File,
}

impl Folder {
    /// Takes the folder at `path`, which is made if it is not there.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        make(path)?;
        // Before the lock file, which may not be there yet: a refusal changes nothing on disk.
        read_format(path)?;
        let lock = lock(path)?;
        // Again: whoever held the lock until now may have written it since.
        if read_format(path)?.is_none() {
            write_format(path)?;
        }
        Ok(Self { path: path.to_path_buf(), _lock: lock })
    }

    /// The file whose lock holds the folder.
    pub(super) fn lock_file(&self) -> PathBuf {
        self.path.join("lock")
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the storage engine's files are.
    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }
}

/// A folder that is looked at and not changed, and that nobody has open meanwhile.
#[derive(Debug)]
pub(super) struct Quiet {
    path: PathBuf,
    format: u32,
    /// Locked, where there is a lock file. One is not made to look at a folder.
    lock: Option<File>,
}

impl Quiet {
    /// Takes the store's folder at `path`.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let Some(format) = read_format(path)? else {
            return Err(OpenError::NoStore { path: path.to_path_buf() });
        };
        let name = path.join(LOCK);
        let lock = match File::open(&name) {
            Ok(file) => Some(hold(path, file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(OpenError::io(&name, error)),
        };
        Ok(Self { path: path.to_path_buf(), format, lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn format(&self) -> u32 {
        self.format
    }

    /// Lets go of it; an error where somebody opened it meanwhile.
    pub(super) fn release(self) -> Result<(), OpenError> {
        // Whoever opens a folder makes the lock file that was not there to be held.
        if self.lock.is_none() && self.path.join(LOCK).exists() {
            return Err(OpenError::InUse { path: self.path });
        }
        Ok(())
    }
}

pub(super) fn make(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        // Stored answers are nobody else's business.
        builder.mode(0o700);
    }
    builder.create(path).map_err(|error| OpenError::io(path, error))
}

/// What is in the folder at `path`; nothing, where there is none.
pub(super) fn entries(path: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(path) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Makes the names in the folder at `path` outlive a loss of power.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let name = path.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&name)
        .map_err(|error| OpenError::io(&name, error))?;
    hold(path, file)
}

fn hold(path: &Path, lock: File) -> Result<File, OpenError> {
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(OpenError::io(&path.join(LOCK), error)),
    }
}

/// The folder's format; `None` where there is no store yet.
pub(super) fn read_format(path: &Path) -> Result<Option<u32>, OpenError> {
    if path.join(RESTORING).exists() {
        return Err(OpenError::damaged(path, Damage::HalfRestored));
    }
    if path.join(MANIFEST).exists() {
        return Err(OpenError::Backup { path: path.to_path_buf() });
    }
    let name = path.join("format");
    let found = match read_short(&name) {
        Ok(text) => text.as_deref().and_then(parse),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.join("db").exists() {
                return Err(OpenError::damaged(&name, Damage::FormatMissing));
            }
            return Ok(None);
        }
        Err(error) => return Err(OpenError::io(&name, error)),
    };
    match found {
        None => Err(OpenError::damaged(&name, Damage::FormatUnreadable)),
        Some(found) if found > FORMAT => {
            Err(OpenError::NewerVersion { path: path.to_path_buf(), found, known: FORMAT })
        }
        Some(found) => Ok(Some(found)),
    }
}

fn read_short(name: &Path) -> io::Result<Option<String>> {
    if fs::metadata(name)?.len() > MAX_FORMAT_FILE {
        return Ok(None);
    }
    Ok(String::from_utf8(fs::read(name)?).ok())
}

fn parse(text: &str) -> Option<u32> {
    text.strip_prefix(PREFIX)?.strip_suffix('\n')?.parse().ok().filter(|format| *format > 0)
}

fn write_format(path: &Path) -> Result<(), OpenError> {
    let (new, name) = (path.join("format.new"), path.join("format"));
    let write = || {
        let mut file = File::create(&new)?;
        writeln!(file, "{PREFIX}{FORMAT}")?;
        file.sync_all()?;
        // A crash leaves the whole line or none: the name is given to a file that is on disk.
        fs::rename(&new, &name)?;
        sync(path)
    };
    write().map_err(|error| OpenError::io(&name, error))
}

//! Backups: a plain folder with the store's files, and a manifest that vouches for each of them.
//!
//! ```text
//! manifest   BLAKE3 and length of every file, when it was taken, and by which version
//! format, synced, audit, db/    as they are in the data folder
//! journals/  those that the storage engine has deleted and the store may still need
//! ```
//!
//! 1. A backup is of a store that nobody has open and that was found intact: its journals, its
//!    tables, its keyspaces. Records are not decoded; [`check`](super::check) does.
//! 2. The manifest is written and synced last. A folder without one is no backup, whatever else is
//!    in it.
//! 3. Restoring reads and compares every file before it writes one, and compares again what it
//!    copies.
//! 4. A restore that was interrupted leaves a folder that is refused, never one that looks new: the
//!    store's files are moved to their places last, and [`RESTORING`] goes after them.
//! 5. Nothing is ever written over: both refuse a folder that has anything in it.
//!
//! What happened after the backup is not in it. In a restored store, keys that were used since are
//! new, and their operations can run again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use self::manifest::{Entry, Manifest};
use super::accept;
use super::copy;
use super::error::{Damage, OpenError};
use super::folder::{self, MANIFEST, Quiet, RESTORING};
use super::progress::{Meter, Progress, Step, Told};
use super::survey::Survey;
use crate::clock::{Clock, Stamp};

mod manifest;

/// What of a data folder is the store's, in the order in which a restore moves it to its place:
/// with `db` and without `format`, a folder is refused.
const PARTS: [&str; 6] = ["log", "db", "journals", "synced", "audit", "format"];

/// A backup that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// When, by this machine's clock.
    pub taken: Stamp,
    /// How many files it holds.
    pub files: usize,
    /// Their bytes together.
    pub bytes: u64,
}

/// A backup that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// When the backup was taken, by the clock of the machine that took it.
    pub taken: Stamp,
    /// The version that took it.
    pub by: String,
    /// How many files it holds.
    pub files: usize,
    /// Their bytes together.
    pub bytes: u64,
}

/// Why there is no backup, or nothing was restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store is in use, damaged, of a newer version, or not there.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Something is there already, and nothing is written over.
    #[error("{path} is not empty: name a folder that is empty or not there yet")]
    NotEmpty {
        /// Where it should have been written.
        path: PathBuf,
    },
    /// One folder would lie in the other.
    #[error("{path} lies in {of}: a backup belongs somewhere else, best on another disk")]
    Inside {
        /// Where it should have been written.
        path: PathBuf,
        /// The folder that it is read from.
        of: PathBuf,
    },
    /// There is no manifest.
    #[error("{path} is no backup, or one that did not come to its end: it has no manifest")]
    NoBackup {
        /// The folder.
        path: PathBuf,
    },
    /// The manifest was changed or cut off.
    #[error("{path} was changed or cut off: the backup cannot be trusted, use another one")]
    Manifest {
        /// The manifest.
        path: PathBuf,
    },
    /// A newer version took the backup.
    #[error(
        "the backup {path} has format {found}, and this version knows {known}: use the newer \
         version that took it"
    )]
    NewerVersion {
        /// The folder.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// A file of the backup is not as the manifest says.
    #[error("the backup is damaged, use another one: {path}: {damage}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        damage: Damage,
    },
    /// The system refused something.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Takes a backup of the store in `from`, which nobody may have open, to `to`.
///
/// Everything is on disk when it returns. If it fails it leaves nothing behind, and if the process
/// dies, a folder that [`restore`] refuses.
///
/// # Errors
/// [`BackupError`]. The store's files are never changed.
pub fn backup(
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Backup, BackupError> {
    let quiet = Quiet::take(from)?;
    vacant(from, to)?;
    Survey::take(&quiet, progress)?.intact()?;
    let files = files(from)?;
    // Again: looking took a while, and what is made from here on is removed if the backup fails.
    vacant(from, to)?;
    let made = Made::folder(to)?;
    let manifest = fill(from, to, quiet.format(), files, progress)?;
    sync_tree(to)?;
    // Whoever opened the store since may have changed what was copied.
    quiet.release()?;
    manifest.write(to).map_err(io_at(&to.join(MANIFEST)))?;
    made.keep()?;
    Ok(Backup { taken: manifest.taken, files: manifest.files.len(), bytes: manifest.bytes() })
}

/// Copies `files` and says what was copied.
fn fill(
    from: &Path,
    to: &Path,
    format: u32,
    files: Vec<PathBuf>,
    told: Told<'_>,
) -> Result<Manifest, BackupError> {
    let mut manifest = Manifest {
        taken: Clock::real().now(),
        by: env!("CARGO_PKG_VERSION").into(),
        format,
        files: Vec::new(),
    };
    let length = |path| fs::metadata(from.join(path)).map_or(0, |meta| meta.len());
    let mut meter = Meter::new(told, Step::Copy, files.iter().map(length).sum());
    for path in files {
        let target = to.join(&path);
        parents(&target)?;
        let content = copy::copy(&from.join(&path), &target, &mut meter).map_err(io_at(&target))?;
        manifest.files.push(Entry { path, content });
    }
    meter.end();
    Ok(manifest)
}

/// Makes the data folder `to` from the backup in `from`.
///
/// A line in the folder's audit file says when and from what. See the module for what a restored
/// store does not know.
///
/// # Errors
/// [`BackupError`]. Nothing is written before every file of the backup was found to be as it was
/// taken, and a restore that fails leaves nothing behind.
pub fn restore(
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Restored, BackupError> {
    let manifest = Manifest::read(from)?;
    if manifest.format > folder::FORMAT {
        let (found, known) = (manifest.format, folder::FORMAT);
        return Err(OpenError::NewerVersion { path: from.into(), found, known }.into());
    }
    vacant(from, to)?;
    verify(from, &manifest, progress)?;
    // Again: it took a while, and a gateway may have been started there meanwhile. What is made
    // from here on is removed if the restore fails, so it must not be somebody else's.
    vacant(from, to)?;

    let made = Made::folder(to)?;
    let aside = to.join(RESTORING);
    fs::create_dir(&aside).map_err(io_at(&aside))?;
    // From here on the folder is refused by whoever opens it, also after a power cut.
    sync(to)?;
    let mut meter = Meter::new(progress, Step::Copy, manifest.bytes());
    for Entry { path, content } in &manifest.files {
        let (source, target) = (from.join(path), aside.join(path));
        parents(&target)?;
        let copied = copy::copy(&source, &target, &mut meter).map_err(io_at(&target))?;
        if copied != *content {
            return Err(BackupError::Damaged { path: source, damage: Damage::FileChanged });
        }
    }
    meter.end();
    note(&aside, from, &manifest).map_err(io_at(&aside))?;
    sync_tree(&aside)?;
    for part in PARTS {
        let (source, target) = (aside.join(part), to.join(part));
        if source.exists() {
            fs::rename(&source, &target).map_err(io_at(&target))?;
        }
    }
    sync(to)?;
    fs::remove_dir(&aside).map_err(io_at(&aside))?;
    made.keep()?;
    let (files, bytes) = (manifest.files.len(), manifest.bytes());
    Ok(Restored { taken: manifest.taken, by: manifest.by, files, bytes })
}

/// Adds to the restored folder's audit file where it comes from.
fn note(folder: &Path, from: &Path, manifest: &Manifest) -> io::Result<()> {
    let seconds = |stamp: Stamp| stamp.as_micros() / 1_000_000;
    let entry = serde_json::json!({
        "at": seconds(Clock::real().now()),
        "did": "restore",
        "from": from.display().to_string(),
        "taken": seconds(manifest.taken),
        "by": manifest.by,
    });
    accept::append(folder, &entry)
}

/// Reads every file of the backup and compares it.
fn verify(from: &Path, manifest: &Manifest, told: Told<'_>) -> Result<(), BackupError> {
    let mut meter = Meter::new(told, Step::Files, manifest.bytes());
    for Entry { path, content } in &manifest.files {
        let path = from.join(path);
        let damage = match copy::digest(&path, &mut meter) {
            Ok(found) if found == *content => continue,
            Ok(_) => Damage::FileChanged,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Damage::FileMissing,
            Err(source) => return Err(BackupError::Io { path, source }),
        };
        return Err(BackupError::Damaged { path, damage });
    }
    meter.end();
    Ok(())
}

/// Whether something may be written to `to` that is read from `from`.
fn vacant(from: &Path, to: &Path) -> Result<(), BackupError> {
    match fs::read_dir(to) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(BackupError::NotEmpty { path: to.into() });
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(BackupError::Io { path: to.into(), source }),
    }
    let of = fs::canonicalize(from).map_err(io_at(from))?;
    // What is not there yet will lie in the nearest folder that is.
    let nearest = to.ancestors().find_map(|path| {
        let path = if path == Path::new("") { Path::new(".") } else { path };
        fs::canonicalize(path).ok()
    });
    match nearest {
        Some(nearest) if nearest.starts_with(&of) => {
            Err(BackupError::Inside { path: to.into(), of: from.into() })
        }
        _ => Ok(()),
    }
}

/// The store's files in `folder`, relative to it, in order of their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let mut found = Vec::new();
    for part in PARTS {
        let path = folder.join(part);
        if path.is_dir() {
            below(&path, &mut found)?;
            // Most of these are second names of what the engine has.
            found.retain(|file| {
                let engine = file.file_name().map(|name| folder.join("db").join(name));
                part != "journals"
                    || !file.starts_with(&path)
                    || !engine.is_some_and(|at| at.exists())
            });
        } else if path.exists() {
            found.push(path);
        }
    }
    let relative = |path: PathBuf| {
        let relative = path
            .strip_prefix(folder)
            .ok()
            .filter(|path| path.to_str().is_some_and(|text| !text.contains(['\n', '\r'])));
        relative
            .map(Path::to_path_buf)
            .ok_or_else(|| OpenError::damaged(&path, Damage::FileUnknown).into())
    };
    let mut files = found.into_iter().map(relative).collect::<Result<Vec<_>, BackupError>>()?;
    files.sort();
    Ok(files)
}

/// All files below `folder`.
fn below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), BackupError> {
    for entry in fs::read_dir(folder).map_err(io_at(folder))? {
        let entry = entry.map_err(io_at(folder))?;
        let kind = entry.file_type().map_err(io_at(folder))?;
        match (kind.is_dir(), kind.is_file()) {
            (true, _) => below(&entry.path(), found)?,
            (_, true) => found.push(entry.path()),
            // A link leads to what is not the store's.
            _ => return Err(OpenError::damaged(&entry.path(), Damage::FileUnknown).into()),
        }
    }
    Ok(())
}

/// A folder that is emptied again unless it is kept.
struct Made {
    folder: PathBuf,
    /// Those that were made for it, the outermost first.
    made: Vec<PathBuf>,
    kept: Kept,
}

#[derive(PartialEq)]
enum Kept {
    Yes,
    No,
}

impl Made {
    /// Makes the folder and whatever leads to it, where it is not there.
    fn folder(path: &Path) -> Result<Self, BackupError> {
        let missing = |path: &&Path| !path.exists() && *path != Path::new("");
        let mut made: Vec<_> = path.ancestors().take_while(missing).map(PathBuf::from).collect();
        made.reverse();
        let this = Self { folder: path.into(), made, kept: Kept::No };
        folder::make(path)?;
        Ok(this)
    }

    /// Syncs it and what leads to it, and leaves it there.
    fn keep(mut self) -> Result<(), BackupError> {
        sync(&self.folder)?;
        for made in &self.made {
            let parent = made.parent().filter(|parent| *parent != Path::new(""));
            sync(parent.unwrap_or(Path::new(".")))?;
        }
        self.kept = Kept::Yes;
        Ok(())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.kept == Kept::Yes {
            return;
        }
        // The error that led here is told; a folder that cannot be emptied is refused as it is.
        // `format` is taken away first, so that nothing in between is taken for a store.
        for part in PARTS.iter().rev().chain(&[MANIFEST]) {
            let path = self.folder.join(part);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        let _ = fs::remove_dir_all(self.folder.join(RESTORING));
        for made in self.made.iter().rev() {
            let _ = fs::remove_dir(made);
        }
    }
}

fn parents(path: &Path) -> Result<(), BackupError> {
    path.parent().map_or(Ok(()), |parent| Ok(folder::make(parent)?))
}

/// Syncs every folder below `folder`, and itself.
fn sync_tree(folder: &Path) -> Result<(), BackupError> {
    for entry in fs::read_dir(folder).map_err(io_at(folder))? {
        let entry = entry.map_err(io_at(folder))?;
        if entry.file_type().map_err(io_at(folder))?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    sync(folder)
}

fn sync(folder: &Path) -> Result<(), BackupError> {
    folder::sync(folder).map_err(io_at(folder))
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_path_buf();
    move |source| BackupError::Io { path, source }
}

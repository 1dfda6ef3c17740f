//! Everything that opening a folder would find, found without changing it.
//!
//! The storage engine cannot open a folder without writing to it: it cuts off journals, deletes what
//! it does not know, and flushes what it replayed. So it is shown a stand-in, a temporary folder
//! with links to the tables, which are never written, and copies of the few files that are.
//!
//! 1. Journals and tables are compared with their checksums first. Only what is intact is opened.
//! 2. No background work runs on the stand-in, and it is gone when the survey is dropped.
//! 3. A keyspace that is flawed and that nobody needs is no damage: the engine was deleting it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fjall::Database;

use super::copy;
use super::error::{Damage, Flaw, OpenError};
use super::folder::Quiet;
use super::progress::{Meter, Step, Told};
use super::tables::{self, Tables};

/// The engine's own keyspace, which names the others.
const NAMES: u64 = 0;

/// Blocks of files kept in memory while records are read.
const CACHE: u64 = 32 << 20;

/// Files that are open at once.
const MAX_FILES: usize = 128;

/// What a folder holds, as far as it can be told.
pub(super) struct Survey {
    /// What is wrong.
    pub(super) flaws: Vec<Flaw>,
    /// How many tables were compared.
    pub(super) tables: usize,
    /// Their bytes.
    pub(super) bytes: u64,
    /// The stand-in's content; `None` where it could not be opened, or was not worth it.
    pub(super) opened: Option<Database>,
    /// After the database, which still has files in it open.
    _stand_in: Option<StandIn>,
}

impl Survey {
    /// Looks at the folder.
    pub(super) fn take(quiet: &Quiet, told: Told<'_>) -> Result<Self, OpenError> {
        let path = quiet.database();
        let mut survey =
            Self { flaws: Vec::new(), tables: 0, bytes: 0, opened: None, _stand_in: None };
        let marker = path.join("version");
        if !marker.exists() {
            survey.flaws.push(Flaw { path: marker, damage: Damage::FileMissing });
            return Ok(survey);
        }
        let Tables { count, bytes, flaws } = tables::verify(&path, told)?;
        (survey.tables, survey.bytes) = (count, bytes);
        let left_out: BTreeSet<u64> = flaws.keys().copied().collect();
        let told = flaws.into_values().flatten();
        if left_out.contains(&NAMES) {
            survey.flaws.extend(told);
            return Ok(survey);
        }
        let stand_in = StandIn::of(&path, &left_out)?;
        match open(&stand_in.database()) {
            Ok(database) => survey.opened = Some(database),
            Err(OpenError::Damaged { damage, .. }) => survey.flaws.push(Flaw { path, damage }),
            Err(other) => return Err(other),
        }
        survey._stand_in = Some(stand_in);
        survey.flaws.extend(told);
        Ok(survey)
    }

    /// The first flaw, as the reason to go no further.
    pub(super) fn intact(&mut self) -> Result<(), OpenError> {
        match self.flaws.drain(..).next() {
            Some(Flaw { path, damage }) => Err(OpenError::Damaged { path, damage }),
            None => Ok(()),
        }
    }
}

/// Opens the stand-in, with nobody to work in the background.
fn open(path: &Path) -> Result<Database, OpenError> {
    let builder = Database::builder(path)
        .cache_size(CACHE)
        .max_cached_files(Some(MAX_FILES))
        .worker_threads_unchecked(0);
    match catch_unwind(AssertUnwindSafe(|| builder.open())) {
        Ok(opened) => opened.map_err(|error| OpenError::engine(path, error)),
        Err(_) => Err(OpenError::damaged(path, Damage::EnginePanicked)),
    }
}

/// A temporary folder that the engine may write to instead of the real one.
struct StandIn {
    path: PathBuf,
}

impl StandIn {
    /// Stands in for the files at `path`, but for the keyspaces `left_out`.
    fn of(path: &Path, left_out: &BTreeSet<u64>) -> Result<Self, OpenError> {
        let number = getrandom::u64().map_err(|error| OpenError::io(path, error.into()))?;
        let stand_in =
            Self { path: std::env::temp_dir().join(format!("oncekey-check-{number:016x}")) };
        let failed = |source| OpenError::StandIn { path: stand_in.path.clone(), source };
        // Answers lie in the journals: they are nobody else's business here either.
        DirBuilder::new().mode(0o700).create(&stand_in.path).map_err(failed)?;
        // Links must hold from anywhere.
        let path = fs::canonicalize(path).map_err(|error| OpenError::io(path, error))?;
        stand_in.fill(&path, left_out).map_err(failed)?;
        Ok(stand_in)
    }

    fn database(&self) -> PathBuf {
        self.path.join("db")
    }

    fn fill(&self, path: &Path, left_out: &BTreeSet<u64>) -> io::Result<()> {
        let database = self.database();
        copy_files(path, &database)?;
        let (source, target) = (path.join("keyspaces"), database.join("keyspaces"));
        fs::create_dir(&target)?;
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if !number.is_some_and(|number| !left_out.contains(&number)) {
                continue;
            }
            let target = target.join(entry.file_name());
            copy_files(&entry.path(), &target)?;
            fs::create_dir(target.join("tables"))?;
            for table in folder(&entry.path().join("tables"))? {
                symlink(table.path(), target.join("tables").join(table.file_name()))?;
            }
        }
        Ok(())
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // It lies in the system's temporary folder, which somebody else empties too.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Copies the files of one folder, those below it left out.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    let mut nobody = |_| {};
    let mut meter = Meter::new(&mut nobody, Step::Copy, 1);
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            copy::copy(&entry.path(), &to.join(entry.file_name()), &mut meter)?;
        }
    }
    Ok(())
}

/// What is in a folder; nothing, where there is none.
fn folder(path: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(path) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

//! Everything that opening a folder would find, found without changing it.
//!
//! The storage engine cannot open a folder without writing to it: it cuts off journals, deletes
//! what it does not know, and flushes what it replayed. So it is shown a stand-in, a temporary
//! folder with links to the tables, which are never written, and copies of the few files that are.
//!
//! 1. Journals and tables are compared with their checksums first. Only what is intact is opened.
//! 2. No background work runs on the stand-in, and it is gone when the survey is dropped.
//! 3. A flawed keyspace that `synced` does not name is no damage: the engine was deleting it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fjall::Database;

use super::Options;
use super::check::{self, Engine, Judged};
use super::copy;
use super::error::{Damage, Flaw, OpenError};
use super::folder::{self, Quiet};
use super::journal;
use super::open::{self, Found};
use super::progress::{Meter, Step, Told};
use super::tables::{self, NAMES, Tables};

/// Blocks of files kept in memory while records are read.
const CACHE: u64 = 32 << 20;

/// Files that are open at once.
const MAX_FILES: usize = 128;

/// What a folder holds, as far as it can be told.
pub(super) struct Survey {
    /// What is wrong.
    pub(super) flaws: Vec<Flaw>,
    /// What its journals and `synced` say.
    pub(super) judged: Judged,
    /// How many tables were compared.
    pub(super) tables: usize,
    /// Their bytes.
    pub(super) bytes: u64,
    /// The stand-in; `None` where it was not worth opening.
    pub(super) opened: Option<Opened>,
}

/// The stand-in's content.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) found: Found,
    /// After the database, which has files in it open.
    _stand_in: StandIn,
}

impl Survey {
    /// Looks at the folder.
    pub(super) fn take(quiet: &Quiet, told: Told<'_>) -> Result<Self, OpenError> {
        let path = quiet.path();
        let mut judged = check::judge(path)?;
        let damages = std::mem::take(&mut judged.damages);
        let mut survey = Self { flaws: Vec::new(), judged, tables: 0, bytes: 0, opened: None };
        survey.add(path, damages);
        survey.flaws.append(&mut survey.judged.files);
        let database = path.join("db");
        if survey.judged.engine != Engine::Whole {
            return Ok(survey);
        }
        let Tables { count, bytes, flaws } = tables::verify(&database, told)?;
        (survey.tables, survey.bytes) = (count, bytes);
        let left_out: BTreeSet<u64> = flaws.keys().copied().collect();
        let needed = survey.judged.table.as_ref().map(|table| &table.keyspaces);
        let is_needed = |id: &u64| {
            *id == NAMES || needed.is_none_or(|all| all.iter().any(|entry| entry.id == *id))
        };
        let damaged = flaws.into_iter().filter(|(id, _)| is_needed(id));
        for flaw in damaged.flat_map(|(_, flaws)| flaws) {
            if survey.flaws.iter().all(|known| known.path != flaw.path) {
                survey.flaws.push(flaw);
            }
        }
        // With something missing, what the engine would make of the rest is no finding.
        if survey.flaws.is_empty() {
            survey.open(path, &left_out)?;
        }
        Ok(survey)
    }

    fn open(&mut self, path: &Path, left_out: &BTreeSet<u64>) -> Result<(), OpenError> {
        let stand_in = StandIn::of(path, &self.judged, left_out)?;
        let at = stand_in.database();
        let applied = self.judged.table.as_ref().map_or(0, |table| table.applied);
        let found = open(&at).and_then(|database| {
            let found = Found::of(&at, &database)?;
            let mut tables =
                open::tables(&at, &database, &Options::default(), self.judged.highest)?;
            open::replay(&at, &mut tables, &self.judged.log, applied)?;
            Ok((found, database))
        });
        let (found, database) = match found {
            Ok(opened) => opened,
            Err(OpenError::Damaged { damage, .. }) => {
                self.add(&path.join("db"), vec![damage]);
                return Ok(());
            }
            Err(other) => return Err(other),
        };
        let lacks = self.judged.known().map(|known| found.lacks(&known));
        self.add(path, lacks.unwrap_or_default());
        self.opened = Some(Opened { database, found, _stand_in: stand_in });
        Ok(())
    }

    fn add(&mut self, path: &Path, damages: Vec<Damage>) {
        let path = path.to_path_buf();
        self.flaws.extend(damages.into_iter().map(|damage| Flaw { path: path.clone(), damage }));
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
    /// Stands in for the store at `path`, but for the keyspaces `left_out`.
    fn of(path: &Path, judged: &Judged, left_out: &BTreeSet<u64>) -> Result<Self, OpenError> {
        let number = getrandom::u64().map_err(|error| OpenError::io(path, error.into()))?;
        let stand_in =
            Self { path: std::env::temp_dir().join(format!("oncekey-check-{number:016x}")) };
        let failed = |source| OpenError::StandIn { path: stand_in.path.clone(), source };
        // Answers lie in the journals: they are nobody else's business here either.
        DirBuilder::new().mode(0o700).create(&stand_in.path).map_err(failed)?;
        // Links must hold from anywhere.
        let path = fs::canonicalize(path).map_err(|error| OpenError::io(path, error))?;
        stand_in.fill(&path.join("db"), left_out).map_err(failed)?;
        stand_in.journals(judged).map_err(failed)?;
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
            if number.is_none_or(|number| left_out.contains(&number)) {
                continue;
            }
            let target = target.join(entry.file_name());
            copy_files(&entry.path(), &target)?;
            fs::create_dir(target.join("tables"))?;
            for table in folder::entries(&entry.path().join("tables"))? {
                symlink(table.path(), target.join("tables").join(table.file_name()))?;
            }
        }
        Ok(())
    }

    /// The journals that matter, as opening leaves them: those that the engine deleted just before
    /// the process ended are back, and what a crash tore is cut off.
    fn journals(&self, judged: &Judged) -> io::Result<()> {
        for journal in &judged.journals {
            let target = self.database().join(journal::name(journal.file));
            copy_file(&journal.path, &target)?;
        }
        check::cut(&self.path, &judged.cuts)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // It lies in the system's temporary folder, which somebody else empties too.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Copies the files of one folder, but for journals and what is below it.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let is_journal = entry.path().extension().is_some_and(|kind| kind == "jnl");
        if entry.file_type()?.is_file() && !is_journal {
            copy_file(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut nobody = |_| {};
    copy::copy(from, to, &mut Meter::new(&mut nobody, Step::Copy, 1)).map(drop)
}

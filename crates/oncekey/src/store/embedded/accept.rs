//! Going on without what is missing, because a person says so.
//!
//! 1. What is damaged is copied aside first, and who accepted what is written down: both stay.
//! 2. A process that ends in the middle leaves a folder that is refused again, or opens: the new
//!    `synced` is the last to be put in place, at once.
//! 3. What was accepted is no damage from then on; anything else that goes missing is, later or
//!    older.
//! 4. Versions and batch numbers go on above all that was seen. Batches behind an unreadable one
//!    in the same journal are not searched for: what looks like one there may be a stored answer
//!    that was made to look so.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::check::{self, Engine, Judged};
use super::error::{Damage, OpenError};
use super::folder::{self, Folder};
use super::journal::Contents;
use super::kept;
use super::layout::Mark;
use super::log;
use super::open::{self, Found};
use super::synced::{self, Table};
use super::walk;
use super::{Options, journal};
use crate::clock::Clock;

/// Where it is written down who accepted what: one JSON object a line, oldest first.
pub(super) const AUDIT: &str = "audit";

/// The most characters of a name or reason that are kept.
const MAX_TEXT: usize = 1024;

/// Rounds of shortening journals: each reveals at most one more place, and two are the rule.
const MAX_ROUNDS: usize = 64;

/// By how much versions go on when nothing says how far they had come.
const UNSEEN_VERSIONS: u64 = 1 << 32;

/// What was accepted.
#[derive(Debug)]
#[non_exhaustive]
pub struct Accepted {
    /// What was missing; empty if nothing was, and then nothing was changed.
    pub damages: Vec<Damage>,
    /// Where what was damaged was copied to.
    pub copies: Option<PathBuf>,
}

/// Makes the store's folder at `path` open again without what is missing from it.
///
/// `who` and `reason` (1 024 characters of each) are kept in the folder's file `audit` for ever,
/// with the time and what was missing; damaged files stay in a folder `lost-*` beside it.
/// Where nothing is missing, nothing that the store holds is changed.
///
/// # Errors
/// [`OpenError::InUse`] while a process has the store open. [`OpenError::Damaged`] where a person's
/// word does not help, as [`Damage::can_be_accepted`] tells. [`OpenError::Io`] and
/// [`OpenError::NotWritable`]; it can be called again.
pub fn accept_loss(path: impl AsRef<Path>, who: &str, reason: &str) -> Result<Accepted, OpenError> {
    let path = path.as_ref();
    let failed = |error| OpenError::io(path, error);
    fs::metadata(path).map_err(failed)?;
    let nothing = Accepted { damages: Vec::new(), copies: None };
    if folder::read_format(path)?.is_none() {
        return Ok(nothing);
    }
    let _folder = Folder::take(path)?;
    let mut judged = check::judge(path)?;
    judged.whole()?;
    if judged.damages.is_empty() {
        judged.damages = behind(path, &judged)?;
    }
    if judged.damages.is_empty() {
        return Ok(nothing);
    }
    if let Some(at) = judged.damages.iter().position(|damage| !damage.can_be_accepted()) {
        return Err(OpenError::damaged(path, judged.damages.swap_remove(at)));
    }
    let copies = put_aside(path, &judged).map_err(failed)?;
    write_down(path, who, reason, &judged.damages, &copies).map_err(failed)?;
    repair(path, &judged)?;
    Ok(Accepted { damages: judged.damages, copies: Some(copies) })
}

/// What the engine lacks, where nothing else is wrong.
fn behind(path: &Path, judged: &Judged) -> Result<Vec<Damage>, OpenError> {
    match (judged.known(), judged.engine) {
        (Some(known), Engine::Whole) => Ok(found(path)?.lacks(&known)),
        _ => Ok(Vec::new()),
    }
}

/// Copies what will be changed, synced.
fn put_aside(path: &Path, judged: &Judged) -> io::Result<PathBuf> {
    let seconds = Clock::real().now().as_micros() / 1_000_000;
    let mut copies = path.join(format!("lost-{seconds}"));
    let mut more = 1;
    while let Err(error) = make(&copies) {
        if error.kind() != io::ErrorKind::AlreadyExists || more == 1000 {
            return Err(error);
        }
        more += 1;
        copies = path.join(format!("lost-{seconds}-{more}"));
    }
    let cut =
        judged.journals.iter().filter(|it| judged.cuts.iter().any(|(file, _)| *file == it.file));
    for Contents { path: from, file, .. } in cut {
        copy(from, &copies.join(journal::name(*file)))?;
    }
    let folder = copies.join(log::NAME);
    fs::create_dir(&folder)?;
    for (slot, _) in judged.log.files() {
        if let Some(name) = slot.file_name() {
            copy(slot, &folder.join(name))?;
        }
    }
    folder::sync(&folder)?;
    let synced = path.join(synced::NAME);
    if synced.exists() {
        copy(&synced, &copies.join(synced::NAME))?;
    }
    folder::sync(&copies)?;
    folder::sync(path)?;
    Ok(copies)
}

fn make(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    File::open(to)?.sync_all()
}

/// Adds to the file of what was accepted, synced.
fn write_down(
    path: &Path,
    who: &str,
    reason: &str,
    damages: &[Damage],
    copies: &Path,
) -> io::Result<()> {
    let short = |text: &str| text.chars().take(MAX_TEXT).collect::<String>();
    let missing: Vec<_> = damages.iter().map(ToString::to_string).collect();
    let entry = serde_json::json!({
        "at": Clock::real().now().as_micros() / 1_000_000,
        "did": "accept-loss",
        "who": short(who),
        "reason": short(reason),
        "missing": missing,
        "copies": copies.file_name().map(|name| name.to_string_lossy()),
    });
    append(path, &entry)
}

/// Adds a line to the file of what was decided about the folder at `path`, synced.
pub(super) fn append(path: &Path, entry: &serde_json::Value) -> io::Result<()> {
    let mut file =
        OpenOptions::new().create(true).read(true).append(true).open(path.join(AUDIT))?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    // What a crash left of a line must not spoil this one.
    let before = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{before}{entry}\n").as_bytes())?;
    file.sync_all()?;
    folder::sync(path)
}

/// Shortens the journals to what is intact, and makes `synced` say what is there.
fn repair(path: &Path, judged: &Judged) -> Result<(), OpenError> {
    let failed = |error| OpenError::io(path, error);
    if judged.engine == Engine::Unfinished {
        // Nothing was ever stored.
        fs::remove_dir_all(path.join("db")).map_err(failed)?;
        return synced::replace(path, &Table::default()).map_err(failed);
    }
    let before = judged.table.clone().unwrap_or_default();
    // What lies before a gap that nobody knows the place of may be older than the tables.
    let applied = judged.table.as_ref().map_or_else(|| judged.log.unbroken(), |it| it.applied);
    kept::restore(path, before.oldest).map_err(failed)?;
    check::cut(path, &judged.cuts).map_err(failed)?;
    let skips = judged.log.gaps(applied);
    let logged = judged.log.highest().logged.max(applied);
    let highest = Mark { logged, ..judged.highest };
    let mut table = Table { highest, applied, skips, ..Table::default() };
    let journals = settle(path, &mut table)?;
    let linked = kept::renew(path).map_err(failed)?;
    let found = found(path)?;
    table.highest = found.goes_on(table.highest);
    if table.highest.logged > logged {
        // The tables are ahead: what the log holds would put older records over newer ones.
        table.applied = table.highest.logged;
        table.skips.clear();
    }
    if judged.table.is_none() {
        table.highest.version = table.highest.version.saturating_add(UNSEEN_VERSIONS);
    }
    // What the engine deleted since is over: it has seen all there is.
    let present = journal::list(&path.join("db")).map_err(failed)?;
    let is_present = |file: u64| present.iter().any(|(known, _)| *known == file);
    table.journals = check::starts(&journals, &linked);
    table.journals.retain(|start| is_present(start.file));
    table.oldest = present.first().map_or(before.oldest, |(file, _)| *file);
    table.identity = found.identity.unwrap_or_default();
    table.keyspaces = found.keyspaces;
    // From here on the folder opens.
    synced::replace(path, &table).map_err(failed)
}

/// Shortens journals until they are in order, and notes which batches are missing between them.
fn settle(path: &Path, table: &mut Table) -> Result<Vec<Contents>, OpenError> {
    let database = path.join("db");
    for _ in 0..MAX_ROUNDS {
        let mut journals = Vec::new();
        for (file, name) in journal::list(&database).map_err(|error| OpenError::io(path, error))? {
            let read = journal::read(file, name.clone());
            journals.push(read.map_err(|error| OpenError::io(&name, error))?);
        }
        let verdict = walk::judge(&database, table, &journals);
        table.gaps = verdict.gaps;
        if verdict.cuts.is_empty() {
            return Ok(journals);
        }
        check::cut(path, &verdict.cuts).map_err(|error| OpenError::io(path, error))?;
    }
    Err(OpenError::damaged(path, Damage::EnginePanicked))
}

/// Lets the engine read its files, and looks what it has.
fn found(path: &Path) -> Result<Found, OpenError> {
    let database = path.join("db");
    Found::of(&database, &open::database(&database, &Options::default())?)
}

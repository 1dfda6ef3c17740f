//! Looking at a whole folder, offline: is everything there, and can every record be read?
//!
//! 1. Nothing in the folder is changed, not even a lock file made. Journals are copied to the
//!    system's temporary folder (`TMPDIR`), tables are read where they lie.
//! 2. A folder that is in use is refused: what changes cannot be judged.
//! 3. Every table is compared with its checksum, every journal with its batches' checksums and
//!    numbers, and every record is decoded.
//!
//! ```
//! use oncekey::store::embedded::{EmbeddedStore, Options, check};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path().join("data");
//! drop(EmbeddedStore::open(&folder, Options::default())?);
//! let report = check(&folder, &mut |progress| drop(progress))?;
//! assert!(report.is_intact());
//! assert_eq!(report.standings.completed, 0);
//! # Ok(())
//! # }
//! ```

use std::path::Path;

use fjall::{Keyspace, KeyspaceCreateOptions};

use super::check::{Journal, Known, Tale};
use super::error::{Damage, Flaw, OpenError};
use super::folder::Quiet;
use super::layout::{Bucket, LIVE, MARK, META, Mark};
use super::open;
use super::progress::{Meter, Progress, Step, Told};
use super::survey::{Opened, Survey};
use super::synced::Table;
use crate::clock::{Clock, Stamp};
use crate::key::RecordId;
use crate::record::codec;
use crate::record::{Record, Standing};

/// The most unreadable records that are listed by id.
const MAX_LISTED: usize = 1000;

/// What [`check`] found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The format of the folder.
    pub format: u32,
    /// What is wrong, but for single records.
    pub flaws: Vec<Flaw>,
    /// The log, in the order in which its files are written: what the tables may lack.
    pub log: Vec<Journal>,
    /// The storage engine's journals, oldest first.
    pub journals: Vec<Journal>,
    /// What the store knew to be synced, where that can be read.
    pub synced: Option<Known>,
    /// How many tables were compared with their checksums.
    pub tables: usize,
    /// Their bytes.
    pub table_bytes: u64,
    /// Whether the records were looked at: not where journals or tables are damaged so that what
    /// they hold cannot be told.
    pub records_read: bool,
    /// The keyspaces in which records lie, in order of their names.
    pub keyspaces: Vec<Extent>,
    /// How many records stand where.
    pub standings: Standings,
    /// How many records cannot be read (X3).
    pub unreadable: u64,
    /// The first thousand of them.
    pub unreadable_ids: Vec<RecordId>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.records_read && self.flaws.is_empty() && self.unreadable == 0
    }
}

/// A keyspace that holds records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Its name: `live`, or one of the buckets.
    pub name: String,
    /// How many records lie in it, those that are over and wait for the sweeper included.
    pub records: u64,
    /// How many of them cannot be read.
    pub unreadable: u64,
    /// The number of the last batch that touched it.
    pub last_batch: u64,
}

/// How many records stand where, by the clock that the store would be opened with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standings {
    /// In progress: unknown as soon as the store is opened.
    pub in_progress: u64,
    /// Completed.
    pub completed: u64,
    /// The last run may be repeated.
    pub retry: u64,
    /// Nobody knows how the last run ended.
    pub unknown: u64,
    /// Over, and still refused.
    pub tombstone: u64,
    /// Over, and waiting for the sweeper.
    pub gone: u64,
}

impl Standings {
    fn count(&mut self, standing: Standing) {
        *match standing {
            Standing::InProgress => &mut self.in_progress,
            Standing::Completed => &mut self.completed,
            Standing::Retry => &mut self.retry,
            Standing::Unknown => &mut self.unknown,
            Standing::Tombstone => &mut self.tombstone,
            Standing::Gone => &mut self.gone,
        } += 1;
    }
}

/// Looks at the folder at `path`. See the module for what is looked at.
///
/// # Errors
/// [`OpenError`] where there is nothing to be looked at: no store, one that is in use, one of a
/// newer format, one without a format. What is damaged beyond that is in the report.
pub fn check(path: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Report, OpenError> {
    let quiet = Quiet::take(path)?;
    let mut survey = Survey::take(&quiet, progress)?;
    let mut report = Report {
        format: quiet.format(),
        tables: survey.tables,
        table_bytes: survey.bytes,
        flaws: std::mem::take(&mut survey.flaws),
        ..Report::default()
    };
    if let Some(opened) = &survey.opened {
        report.records_read = true;
        let table = survey.judged.table.clone().unwrap_or_default();
        report.read(&path.join("db"), opened, &table, progress)?;
    } else {
        // A store in which nothing was ever written has no records to be read.
        report.records_read = report.flaws.is_empty();
    }
    Tale { log: report.log, journals: report.journals, synced: report.synced } =
        survey.judged.told();
    drop(survey.opened);
    quiet.release()?;
    Ok(report)
}

impl Report {
    fn read(
        &mut self,
        path: &Path,
        opened: &Opened,
        table: &Table,
        progress: Told<'_>,
    ) -> Result<(), OpenError> {
        let Opened { database, found, .. } = opened;
        let latest = found.keyspaces.iter().fold(table.highest, |mark, it| mark.max(it.mark));
        let mut names = database.list_keyspace_names();
        names.sort();
        let mut spaces = Vec::new();
        for name in names {
            let keyspace = database
                .keyspace(&name, KeyspaceCreateOptions::default)
                .map_err(|error| OpenError::engine(path, error))?;
            if *name == *META {
                if let Err(error) = open::identity(path, &keyspace, table) {
                    self.add(error)?;
                }
            } else if *name == *LIVE || Bucket::parse(&name).is_some() {
                spaces.push(keyspace);
            } else {
                self.flaw(path, Damage::Keyspace(name.to_string()));
            }
        }
        let now = Clock::not_before(latest.stamp).now();
        let about = spaces.iter().map(|keyspace| keyspace.approximate_len() as u64).sum();
        let mut meter = Meter::new(progress, Step::Records, about);
        for keyspace in spaces {
            let entry = found.keyspaces.iter().find(|entry| entry.id == keyspace.id());
            let Mark { number: last_batch, .. } = entry.map(|entry| entry.mark).unwrap_or_default();
            let name = keyspace.name().to_string();
            let mut space = Extent { name, records: 0, unreadable: 0, last_batch };
            self.records(path, &keyspace, now, &mut space, &mut meter)?;
            self.keyspaces.push(space);
        }
        meter.end();
        Ok(())
    }

    /// Decodes every record of one keyspace.
    fn records(
        &mut self,
        path: &Path,
        keyspace: &Keyspace,
        now: Stamp,
        space: &mut Extent,
        meter: &mut Meter<'_>,
    ) -> Result<(), OpenError> {
        for entry in keyspace.iter() {
            let (key, value) = match entry.into_inner() {
                Ok(pair) => pair,
                // What comes after it in the same keyspace cannot be reached.
                Err(error) => return self.add(OpenError::engine(path, error)),
            };
            meter.add(1);
            if *key == *MARK {
                continue;
            }
            space.records += 1;
            let id = <[u8; 32]>::try_from(&*key).map(RecordId::from_bytes).ok();
            match (codec::decode(&value), id) {
                (Ok(Record { id: own, .. }), Some(id)) if own != id => self.unreadable(id, space),
                (Ok(record), Some(_)) => self.standings.count(record.standing(now)),
                (Err(_), Some(id)) => self.unreadable(id, space),
                // Whoever wrote this was no store.
                (_, None) => self.flaw(path, Damage::Value("id")),
            }
        }
        Ok(())
    }

    fn unreadable(&mut self, id: RecordId, space: &mut Extent) {
        space.unreadable += 1;
        self.unreadable += 1;
        if self.unreadable_ids.len() < MAX_LISTED {
            self.unreadable_ids.push(id);
        }
    }

    /// Damage is a finding; anything else ends the check.
    fn add(&mut self, error: OpenError) -> Result<(), OpenError> {
        match error {
            OpenError::Damaged { path, damage } => {
                self.flaws.push(Flaw { path, damage });
                Ok(())
            }
            other => Err(other),
        }
    }

    fn flaw(&mut self, path: &Path, damage: Damage) {
        self.flaws.push(Flaw { path: path.into(), damage });
    }
}

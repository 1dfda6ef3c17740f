//! Opening: what the folder holds becomes what the writer knows.
//!
//! 1. A folder is taken first, then its files are read; one that is refused is left as it was.
//! 2. The epoch is raised. One process has a folder open, so every record in progress was held by
//!    a process that ended: it is unknown at once (U1), in the same batch that raises the epoch.
//! 3. What the log holds and the tables may lack is applied and synced, each record as the last
//!    batch left it. The tables may have got further than is known: so it goes from every place
//!    where it was on the way.
//! 4. Versions, batch numbers and the store's time go on above everything that was seen.
//! 5. Every keyspace that held something is there, with its last synced mark at least.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use fjall::{Database, Keyspace, OwnedWriteBatch, PersistMode};

use super::Options;
use super::applier::Tables;
use super::buckets::Buckets;
use super::changes::{self, Pending, Place, Reach};
use super::error::{Damage, OpenError};
use super::folder::DATABASE;
use super::layout::{self, ANCHOR, Bucket, EPOCH, LIVE, MARK, META, Mark, SECRET};
use super::log::{self, Changed, Slots};
use super::resume::Resumed;
use super::synced::{Entry, Synced, Table};
use super::view::View;
use crate::clock::{Anchor, Clock, Stamp};
use crate::decide::{self, Moment};
use crate::fingerprint::Secret;
use crate::key::RecordId;
use crate::record::codec;
use crate::record::{Record, Version};

/// A folder's content, ready to be served.
pub(super) struct Opened {
    pub(super) view: Arc<View>,
    pub(super) tables: Tables,
    pub(super) secret: Secret,
    /// Of the last batch in the log, which holds nothing that is needed.
    pub(super) mark: Mark,
    /// How many records are live.
    pub(super) live: usize,
    /// Nothing is deleted before.
    pub(super) delete_from: Stamp,
}

/// Opens what the store's folder at `path` holds.
pub(super) fn open(
    path: &Path,
    options: &Options,
    synced: &Arc<Synced>,
) -> Result<Opened, OpenError> {
    let table = synced.table();
    let slots = log::scan(path).map_err(|error| OpenError::io(path, error))?;
    let path = &path.join(DATABASE);
    let engine = |error| OpenError::engine(path, error);
    let database = database(path, options)?;
    let meta = database.keyspace(META, || layout::keyspace_options(options)).map_err(engine)?;
    let found = Found::of(path, &database)?;
    if let Some(damage) = found.lacks(&table).into_iter().next() {
        return Err(OpenError::damaged(path, damage));
    }
    let Identity { secret, epoch } = identity(path, &meta, &table)?;
    let mut tables = tables(path, &database, options, found.goes_on(table.highest))?;
    if replay(path, &mut tables, &slots, table.applied)? == Replayed::Something {
        tables.sync(slots.highest().logged, synced).map_err(engine)?;
    }
    let live = tables.buckets.live().clone();
    let loaded = Loaded::read(path, &live)?;
    let mut mark = tables.mark;
    mark.version = loaded.records.iter().map(|r| r.version.number()).fold(mark.version, u64::max);

    let resumed = Resumed::of(options.clock.as_ref(), mark.stamp, read_anchor(path, &meta)?);
    let (clock, delete_from) = (resumed.clock, resumed.delete_from);
    let anchor = resumed.anchor;
    let mut start = Start { database: &database, meta: &meta, live: &live, mark, anchor };
    let records = start.write(&clock, &secret, epoch, loaded.records).map_err(engine)?;
    tables.mark = start.mark;
    let keyspaces = Found::of(path, &database)?.keyspaces;
    let written = synced.change(|table| {
        table.identity = Table::identity(&secret);
        table.keyspaces = keyspaces;
        table.highest = table.highest.max(tables.mark);
        table.applied = table.highest.logged;
        table.skips.clear();
    });
    written.and_then(|()| synced.sync()).map_err(|error| OpenError::io(path, error))?;

    let view = View::new(clock, database, tables.buckets.keyspaces(), options.cache_bytes);
    let count = records.len() + loaded.unreadable.len();
    loaded.unreadable.into_iter().for_each(|id| view.set_unreadable(id));
    for record in records {
        view.put_live(Arc::new(record));
    }
    let mark = Mark { number: 0, ..tables.mark };
    Ok(Opened { view: Arc::new(view), tables, secret, mark, live: count, delete_from })
}

/// The keyspaces of `database`, whose files are at `path`, to be written after `mark`.
pub(super) fn tables(
    path: &Path,
    database: &Database,
    options: &Options,
    mark: Mark,
) -> Result<Tables, OpenError> {
    let each = layout::keyspace_options(options);
    let live = database.keyspace(LIVE, || each.clone());
    let live = live.map_err(|error| OpenError::engine(path, error))?;
    let ended = ended(path, database)?;
    Ok(Tables::new(Buckets::new(database.clone(), live, each, ended), mark))
}

/// Applies what the log holds after batch `applied`; says whether that was anything.
pub(super) fn replay(
    path: &Path,
    tables: &mut Tables,
    slots: &Slots,
    applied: u64,
) -> Result<Replayed, OpenError> {
    let mut last = LastChanges::default();
    log::replay(slots, applied, |mark, changes| last.add(mark, changes)).map_err(|error| {
        let folder = slots.folder();
        match error.kind() {
            io::ErrorKind::InvalidData => OpenError::damaged(folder, Damage::FileChanged),
            _ => OpenError::io(folder, error),
        }
    })?;
    if last.list.is_empty() {
        return Ok(Replayed::Nothing);
    }
    let engine = |error| OpenError::engine(path, error);
    let changes = last.changes(tables.buckets.live()).map_err(engine)?;
    tables.write(&changes, last.mark, |_, _| ()).map_err(engine)?;
    Ok(Replayed::Something)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replayed {
    Nothing,
    Something,
}

/// What the log leaves of each record, and everywhere it was on the way: the tables may have it at
/// any of those places.
#[derive(Default)]
struct LastChanges {
    list: Vec<(RecordId, Vec<Place>, Option<Record>)>,
    index: HashMap<RecordId, usize>,
    mark: Mark,
}

impl LastChanges {
    fn add(&mut self, mark: Mark, changes: Vec<Changed>) {
        self.mark = self.mark.max(mark);
        for Changed { id, before, record } in changes {
            let at = *self.index.entry(id).or_insert(self.list.len());
            if at == self.list.len() {
                self.list.push((id, Vec::new(), None));
            }
            let (_, places, last) = &mut self.list[at];
            if !places.contains(&before) {
                places.push(before);
            }
            *last = record;
        }
    }

    fn changes(&mut self, live: &Keyspace) -> fjall::Result<Vec<Pending>> {
        self.index.clear();
        let mut changes = Vec::new();
        for (id, places, record) in self.list.drain(..) {
            let pending = |place, record| Pending {
                id,
                found: changes::Found { place, record },
                reach: Reach::Disk,
            };
            let last = Place::of(record.as_ref());
            for place in places.into_iter().filter(|place| *place != last) {
                // Most requests were done before the tables heard of them.
                if place != Place::Live || live.contains_key(id.as_bytes())? {
                    changes.push(pending(place, None));
                }
            }
            if let Some(record) = record {
                changes.push(pending(last, Some(Arc::new(record))));
            }
        }
        Ok(changes)
    }
}

/// The storage engine over the files at `path`.
pub(super) fn database(path: &Path, options: &Options) -> Result<Database, OpenError> {
    let builder = Database::builder(path)
        .cache_size(options.block_cache_bytes)
        .max_cached_files(Some(options.max_files))
        .max_journaling_size(options.journal_bytes)
        .worker_threads(options.workers);
    // Damaged files can make the engine panic; nothing of it is left to be used after that.
    match catch_unwind(AssertUnwindSafe(|| builder.open())) {
        Ok(opened) => opened.map_err(|error| OpenError::engine(path, error)),
        Err(_) => Err(OpenError::damaged(path, Damage::EnginePanicked)),
    }
}

/// The buckets that are there.
fn ended(path: &Path, database: &Database) -> Result<Vec<(Bucket, Keyspace)>, OpenError> {
    let mut ended = Vec::new();
    for name in database.list_keyspace_names() {
        if [META, LIVE].contains(&&*name) {
            continue;
        }
        let Some(bucket) = Bucket::parse(&name) else {
            return Err(OpenError::damaged(path, Damage::Keyspace(name.to_string())));
        };
        // It is there, so its own options count and these are not used.
        let keyspace = database
            .keyspace(&name, fjall::KeyspaceCreateOptions::default)
            .map_err(|error| OpenError::engine(path, error))?;
        ended.push((bucket, keyspace));
    }
    Ok(ended)
}

fn read_mark(path: &Path, keyspace: &Keyspace) -> Result<Mark, OpenError> {
    let stored = keyspace.get(MARK).map_err(|error| OpenError::engine(path, error))?;
    match stored {
        // A keyspace that was made and never written.
        None => Ok(Mark::default()),
        Some(bytes) => {
            Mark::decode(&bytes).ok_or_else(|| OpenError::damaged(path, Damage::Value("mark")))
        }
    }
}

/// How time stood when the folder was last opened by the machine's clock.
fn read_anchor(path: &Path, meta: &Keyspace) -> Result<Option<Anchor>, OpenError> {
    let stored = meta.get(ANCHOR).map_err(|error| OpenError::engine(path, error))?;
    // One that cannot be read is worth nothing, and nothing depends on it: the wall clock is asked.
    Ok(stored.and_then(|bytes| Anchor::decode(&bytes)))
}

/// What the engine holds.
pub(super) struct Found {
    pub(super) keyspaces: Vec<Entry>,
    /// Whose folder it is, if that was ever written.
    pub(super) identity: Option<[u8; 16]>,
}

impl Found {
    /// Reads it from `database`, whose files are at `path`.
    pub(super) fn of(path: &Path, database: &Database) -> Result<Self, OpenError> {
        let engine = |error| OpenError::engine(path, error);
        let mut found = Self { keyspaces: Vec::new(), identity: None };
        for name in database.list_keyspace_names() {
            // It is there, so its own options count and these are not used.
            let keyspace =
                database.keyspace(&name, fjall::KeyspaceCreateOptions::default).map_err(engine)?;
            let mark = read_mark(path, &keyspace)?;
            // One that was made and never written is nothing to be missed.
            if mark != Mark::default() {
                found.keyspaces.push(Entry { name: name.to_string(), id: keyspace.id(), mark });
            }
            if &*name == META {
                let secret = keyspace.get(SECRET).map_err(engine)?;
                let secret = secret.and_then(|bytes| <[u8; 32]>::try_from(&*bytes).ok());
                let identity = |secret| Table::identity(&Secret::from_bytes(secret));
                found.identity = secret.map(identity);
            }
        }
        Ok(found)
    }

    /// Where numbers, versions and time go on after `noted`, to which journals and `synced` agree.
    /// A table may be ahead of the engine's journal, if that was not synced: its numbers go on from
    /// the journal's.
    pub(super) fn goes_on(&self, noted: Mark) -> Mark {
        let marks = self.keyspaces.iter().map(|keyspace| Mark { number: 0, ..keyspace.mark });
        marks.fold(noted, Mark::max)
    }

    /// What a table names and the engine does not have; its highest mark is that of log and
    /// journals as well.
    pub(super) fn lacks(&self, table: &Table) -> Vec<Damage> {
        let mut damages = Vec::new();
        let applied = self.keyspaces.iter().map(|keyspace| keyspace.mark.logged).max();
        if let Some(applied) = applied.filter(|applied| *applied > table.highest.logged) {
            damages.push(Damage::LogBehind { last: table.highest.logged, applied });
        }
        let known = table.identity != Table::UNKNOWN;
        if known && self.identity.is_some_and(|identity| identity != table.identity) {
            damages.push(Damage::SyncedOfAnother);
        }
        for Entry { name, mark, .. } in &table.keyspaces {
            let (name, synced) = (name.clone(), mark.number);
            match self.keyspaces.iter().find(|entry| entry.name == name) {
                None => damages.push(Damage::KeyspaceMissing { name, synced }),
                Some(Entry { mark, .. }) if mark.number < synced => {
                    damages.push(Damage::KeyspaceBehind { name, found: mark.number, synced });
                }
                Some(_) => {}
            }
        }
        damages
    }
}

pub(super) struct Identity {
    secret: Secret,
    /// Of the last opening; zero for a new folder.
    epoch: u64,
}

pub(super) fn identity(path: &Path, meta: &Keyspace, table: &Table) -> Result<Identity, OpenError> {
    let read = |key| meta.get(key).map_err(|error| OpenError::engine(path, error));
    let (secret, epoch) = (read(SECRET)?, read(EPOCH)?);
    // The first batch of all brings both, and is in the table before anything else is written.
    if secret.is_none() && epoch.is_none() && table.identity == Table::UNKNOWN {
        return Ok(Identity { secret: Secret::random(), epoch: 0 });
    }
    let secret = secret.and_then(|bytes| <[u8; 32]>::try_from(&*bytes).ok());
    let epoch = epoch.and_then(|bytes| <[u8; 8]>::try_from(&*bytes).ok());
    let damaged = |name| OpenError::damaged(path, Damage::Value(name));
    Ok(Identity {
        secret: Secret::from_bytes(secret.ok_or_else(|| damaged("secret"))?),
        epoch: u64::from_le_bytes(epoch.ok_or_else(|| damaged("epoch"))?),
    })
}

/// The live records on disk.
#[derive(Default)]
struct Loaded {
    records: Vec<Record>,
    unreadable: Vec<RecordId>,
}

impl Loaded {
    fn read(path: &Path, live: &Keyspace) -> Result<Self, OpenError> {
        let mut loaded = Self::default();
        for entry in live.iter() {
            let (key, value) =
                entry.into_inner().map_err(|error| OpenError::engine(path, error))?;
            let Ok(id) = <[u8; 32]>::try_from(&*key).map(RecordId::from_bytes) else { continue };
            match codec::decode(&value) {
                Ok(record) if record.id == id => loaded.records.push(record),
                // It refuses its own key and no other (X3).
                _ => {
                    tracing::error!(record = %id, "a record cannot be read");
                    loaded.unreadable.push(id);
                }
            }
        }
        Ok(loaded)
    }
}

/// The first batch of this opening.
struct Start<'a> {
    database: &'a Database,
    meta: &'a Keyspace,
    live: &'a Keyspace,
    mark: Mark,
    anchor: Option<Anchor>,
}

impl Start<'_> {
    /// Raises the epoch and orphans what was in progress; gives back the live records.
    fn write(
        &mut self,
        clock: &Clock,
        secret: &Secret,
        epoch: u64,
        records: Vec<Record>,
    ) -> fjall::Result<Vec<Record>> {
        let now: Stamp = clock.now();
        let mut batch = OwnedWriteBatch::with_capacity(self.database.clone(), 8);
        let (mut scratch, mut orphans) = (Vec::new(), 0_usize);
        let mut kept = Vec::with_capacity(records.len());
        for record in records {
            let next = Version::from_number(self.mark.version + 1);
            let Some(orphan) = decide::orphan(&record, Moment { now, next }) else {
                kept.push(record);
                continue;
            };
            self.mark.version += 1;
            scratch.clear();
            codec::encode(&orphan, &mut scratch);
            batch.insert(self.live, orphan.id.as_bytes(), scratch.as_slice());
            kept.push(orphan);
            orphans += 1;
        }
        self.mark.number += 1;
        self.mark.stamp = self.mark.stamp.max(now);
        batch.insert(self.meta, EPOCH, (epoch + 1).to_le_bytes());
        batch.insert(self.meta, SECRET, secret.as_bytes());
        if let Some(anchor) = &self.anchor {
            batch.insert(self.meta, ANCHOR, anchor.encode());
        }
        batch.insert(self.meta, MARK, self.mark.encode());
        if orphans > 0 {
            batch.insert(self.live, MARK, self.mark.encode());
            tracing::warn!(records = orphans, "records were in progress when their process ended");
        }
        batch.durability(Some(PersistMode::SyncData)).commit()?;
        Ok(kept)
    }
}

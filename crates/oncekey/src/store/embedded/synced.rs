//! The file `synced`: what the store knows to be on disk, kept beside the storage engine.
//!
//! ```text
//! file       three slots of 65 536 bytes, the first at 0; numbers are little-endian
//! slot       checksum:u64    xxh3_64 of what follows, up to length
//!            length:u32      of the slot's used bytes, the checksum counted
//!            format:u32      2
//!            turn:u64        grows with every write; the intact slot with the highest is valid
//!            identity:[16]   of the folder; zeros until its first batch is committed
//!            mark            number:u64 logged:u64 version:u64 stamp:u64, each the highest
//!            applied:u64     the log's last batch that the engine has on disk
//!            oldest:u64      number of the oldest journal that matters
//!            counts          journals:u16 gaps:u16 skips:u16 keyspaces:u16
//!            journal*        file:u64 number:u64 seqno:u64     (of its first batch)
//!            gap*            first:u64 last:u64                (accepted losses, of journals)
//!            skip*           first:u64 last:u64                (accepted losses, of the log)
//!            keyspace*       length:u8 name id:u64 mark
//! ```
//!
//! 1. It is made and synced before the engine's first file is, so a folder without it has lost it.
//! 2. It is written after each sync of the log and of the engine, and synced once a second: it may
//!    lag behind what is on disk and is never ahead of it, so that it raises no false alarm.
//! 3. One slot is always synced and left alone: while one is being synced, the third is written.
//!    So at least one slot is whole after any crash.
//! 4. A bucket leaves it, synced, before it is deleted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fjall::Keyspace;
use xxhash_rust::xxh3::xxh3_64;

use super::folder;
use super::layout::Mark;
use crate::fingerprint::Secret;

/// Its name in the folder.
pub(super) const NAME: &str = "synced";

const SLOT: usize = 64 << 10;
const SLOTS: usize = 3;
const FORMAT: u32 = 2;
/// Journals, and gaps in them: a handful each.
const MAX_LISTED: usize = 64;

/// What one slot says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) identity: [u8; 16],
    /// The highest of every part, over all that was ever seen.
    pub(super) highest: Mark,
    /// The log's last batch that the engine has on disk.
    pub(super) applied: u64,
    /// Batches of the log that are missing, and that a person has accepted.
    pub(super) skips: Vec<Gap>,
    /// Older journals are over: the engine has evicted them.
    pub(super) oldest: u64,
    /// Journals that must be there.
    pub(super) journals: Vec<Start>,
    /// Missing batches that a person has accepted.
    pub(super) gaps: Vec<Gap>,
    pub(super) keyspaces: Vec<Entry>,
}

/// How a journal begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The number in its name.
    pub(super) file: u64,
    /// The number of its first batch.
    pub(super) number: u64,
    /// The engine's sequence number of that batch.
    pub(super) seqno: u64,
}

/// Missing batches, the first and the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// A keyspace and its last mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The engine's: the name of its folder.
    pub(super) id: u64,
    pub(super) mark: Mark,
}

impl Table {
    /// The identity of a folder that has no batch yet.
    pub(super) const UNKNOWN: [u8; 16] = [0; 16];

    /// Whose folder it is; no secret can be told from it.
    pub(super) fn identity(secret: &Secret) -> [u8; 16] {
        let mut identity = [0; 16];
        let derived = blake3::derive_key("oncekey embedded folder 1", secret.as_bytes());
        identity.copy_from_slice(&derived[..16]);
        identity
    }

    /// Takes note of a keyspace's mark.
    pub(super) fn note(&mut self, keyspace: &Keyspace, mark: Mark) {
        self.highest = self.highest.max(mark);
        let id = keyspace.id();
        if let Some(entry) = self.keyspaces.iter_mut().find(|entry| entry.id == id) {
            entry.mark = mark;
            return;
        }
        let name = keyspace.name().to_string();
        self.keyspaces.retain(|entry| entry.name != name);
        self.keyspaces.push(Entry { name, id, mark });
    }

    fn encode(&self, turn: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&turn.to_le_bytes());
        out.extend_from_slice(&self.identity);
        out.extend_from_slice(&self.highest.encode());
        out.extend_from_slice(&self.applied.to_le_bytes());
        out.extend_from_slice(&self.oldest.to_le_bytes());
        let counts = out.len();
        out.extend_from_slice(&[0; 8]);
        let journals = &self.journals[..self.journals.len().min(MAX_LISTED)];
        for start in journals {
            for number in [start.file, start.number, start.seqno] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        let gaps = &self.gaps[..self.gaps.len().min(MAX_LISTED)];
        let skips = &self.skips[..self.skips.len().min(MAX_LISTED)];
        for gap in gaps.iter().chain(skips) {
            out.extend_from_slice(&gap.first.to_le_bytes());
            out.extend_from_slice(&gap.last.to_le_bytes());
        }
        let mut keyspaces = 0_u16;
        for entry in &self.keyspaces {
            let Ok(length) = u8::try_from(entry.name.len()) else { continue };
            if out.len() + entry.name.len() + 1 + 8 + Mark::LENGTH > SLOT {
                // A thousand buckets are noted; those beyond are watched by the journals alone.
                break;
            }
            out.push(length);
            out.extend_from_slice(entry.name.as_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
            out.extend_from_slice(&entry.mark.encode());
            keyspaces += 1;
        }
        // Each is at most 64.
        let [journals, gaps, skips] = [journals.len(), gaps.len(), skips.len()].map(|n| n as u16);
        for (at, count) in [journals, gaps, skips, keyspaces].into_iter().enumerate() {
            out[counts + 2 * at..][..2].copy_from_slice(&count.to_le_bytes());
        }
        // At most a slot.
        let length = out.len() as u32;
        out[8..12].copy_from_slice(&length.to_le_bytes());
        let sum = xxh3_64(&out[8..]);
        out[..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// The table in `slot` and its turn, if it is intact.
    fn decode(slot: &[u8]) -> Option<(u64, Self)> {
        let mut rest = Rest(slot);
        let (sum, length) = (rest.number()?, u32::from_le_bytes(rest.take()?));
        let used = slot.get(8..length as usize)?;
        if sum != xxh3_64(used) {
            return None;
        }
        let mut rest = Rest(&used[4..]);
        if u32::from_le_bytes(rest.take()?) != FORMAT {
            return None;
        }
        let turn = rest.number()?;
        let mut table = Self {
            identity: rest.take()?,
            highest: rest.mark()?,
            applied: rest.number()?,
            oldest: rest.number()?,
            ..Self::default()
        };
        let [journals, gaps, skips, keyspaces] =
            [rest.take()?, rest.take()?, rest.take()?, rest.take()?].map(u16::from_le_bytes);
        for _ in 0..journals {
            let (file, number, seqno) = (rest.number()?, rest.number()?, rest.number()?);
            table.journals.push(Start { file, number, seqno });
        }
        for _ in 0..gaps {
            table.gaps.push(Gap { first: rest.number()?, last: rest.number()? });
        }
        for _ in 0..skips {
            table.skips.push(Gap { first: rest.number()?, last: rest.number()? });
        }
        for _ in 0..keyspaces {
            let [length] = rest.take()?;
            let name = std::str::from_utf8(rest.bytes(usize::from(length))?).ok()?.into();
            table.keyspaces.push(Entry { name, id: rest.number()?, mark: rest.mark()? });
        }
        rest.0.is_empty().then_some((turn, table))
    }
}

/// What is left to decode.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (now, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(now)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn mark(&mut self) -> Option<Mark> {
        Mark::decode(self.bytes(Mark::LENGTH)?)
    }
}

/// What the file in `folder` says: `None` where it is missing or no slot is intact.
pub(super) fn read(folder: &Path) -> io::Result<Option<Table>> {
    Ok(latest(folder)?.map(|(_, _, table)| table))
}

/// The valid slot, its turn and its table.
fn latest(folder: &Path) -> io::Result<Option<(usize, u64, Table)>> {
    let file = match File::open(folder.join(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take((SLOTS * SLOT) as u64).read_to_end(&mut bytes)?;
    let slots = bytes.chunks(SLOT).enumerate();
    let intact =
        slots.filter_map(|(at, slot)| Table::decode(slot).map(|(turn, table)| (at, turn, table)));
    Ok(intact.max_by_key(|(_, turn, _)| *turn))
}

/// Makes the file say `table`, at once and synced; a crash leaves the old one or the new one.
pub(super) fn replace(folder: &Path, table: &Table) -> io::Result<()> {
    let turn = latest(folder)?.map_or(0, |(_, turn, _)| turn) + 1;
    let mut bytes = Vec::new();
    table.encode(turn, &mut bytes);
    // Written in full: a disk that fills up later does not keep it from being written.
    bytes.resize(SLOTS * SLOT, 0);
    let new = folder.join("synced.new");
    let mut file = File::create(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(NAME))?;
    folder::sync(folder)
}

/// The file of a store that is open.
pub(super) struct Synced {
    file: File,
    state: Mutex<State>,
    /// Held for a whole sync: two at a time would leave no slot alone.
    syncing: Mutex<()>,
}

struct State {
    table: Table,
    turn: u64,
    /// The slot that is written.
    slot: usize,
    /// Whether that slot holds something that is not synced.
    dirty: bool,
    bytes: Vec<u8>,
}

impl State {
    fn write(&mut self, mut file: &File) -> io::Result<()> {
        self.turn += 1;
        self.table.encode(self.turn, &mut self.bytes);
        file.seek(SeekFrom::Start((self.slot * SLOT) as u64))?;
        self.dirty = true;
        file.write_all(&self.bytes)
    }
}

impl Synced {
    /// Opens the file in `folder`, which says something already; `table` is what it is to say.
    pub(super) fn open(folder: &Path, table: Table) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(folder.join(NAME))?;
        // What is there may never have been synced, and is about to be the slot left alone.
        file.sync_all()?;
        let (slot, turn) = latest(folder)?.map_or((0, 0), |(slot, turn, _)| (slot, turn));
        let state =
            State { table, turn, slot: (slot + 1) % SLOTS, dirty: false, bytes: Vec::new() };
        Ok(Self { file, state: Mutex::new(state), syncing: Mutex::new(()) })
    }

    /// After a sync of the log: it ends with the batch of this mark.
    pub(super) fn logged(&self, mark: Mark) -> io::Result<()> {
        self.change(|table| table.highest = table.highest.max(mark))
    }

    /// Changes the table; it is not synced yet.
    pub(super) fn change(&self, change: impl FnOnce(&mut Table)) -> io::Result<()> {
        let mut state = lock(&self.state);
        change(&mut state.table);
        state.write(&self.file)
    }

    /// What is to be on disk.
    pub(super) fn table(&self) -> Table {
        lock(&self.state).table.clone()
    }

    /// Syncs what was written until now.
    pub(super) fn sync(&self) -> io::Result<()> {
        let _one_at_a_time = lock(&self.syncing);
        {
            let mut state = lock(&self.state);
            if !state.dirty {
                return Ok(());
            }
            // Commits go on with the next slot, so that this one reaches the disk whole.
            state.slot = (state.slot + 1) % SLOTS;
            state.dirty = false;
        }
        self.file.sync_data()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked while holding it left numbers that were each true.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "synced_tests.rs"]
mod tests;

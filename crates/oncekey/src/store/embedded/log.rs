//! The log: what is acknowledged is here first, synced.
//!
//! ```text
//! log/0, log/1 ...    slots; each is written from its start to its end, then again
//! ```
//!
//! 1. A slot's room is written before it is used. To sync what overwrites it costs the disk one
//!    write, whatever else the file system is at; a file that grows would wait for all of that.
//! 2. Batches lie in the order of their numbers, without a gap. A slot is written again only once
//!    all it holds is in the tables, synced, and `synced` says so, synced.
//! 3. After a crash every batch that the tables may lack is here; to apply it again changes
//!    nothing. A last frame that is torn was told to nobody.
//! 4. Where no slot is free, the one in use grows beyond its room: slower, and as safe.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::changes::Changes;
use super::folder;
use super::layout::Mark;

mod frame;
mod read;

pub(super) use self::frame::Changed;
pub(super) use self::read::{Slots, replay, scan};

/// The log's folder in that of the store.
pub(super) const NAME: &str = "log";

/// How many slots there are at most, together 56 MiB: some seconds of the heaviest load, for as
/// long as the storage engine may stand still before the log has to grow.
const SLOTS: usize = 16;

/// How large a slot is made: a small store has a small log.
fn size(slot: usize) -> u64 {
    1 << (slot + 19).clamp(20, 22)
}

/// Zeros are written in pieces of so many bytes.
const PIECE: usize = 1 << 18;

static ZEROS: [u8; PIECE] = [0; PIECE];

/// One file of the log.
#[derive(Debug)]
pub(super) struct Slot {
    file: File,
    seed: u64,
    /// How large it was made.
    size: u64,
    /// Bytes that were written before, so that overwriting them is cheap.
    room: u64,
    /// Where the next frame goes.
    end: u64,
}

impl Slot {
    /// The slot at `path`, to be written from its start; made anew if it is none.
    fn open(path: &Path, size: u64) -> io::Result<Self> {
        let mut head = [0; frame::FIRST];
        if let Ok(file) = OpenOptions::new().read(true).write(true).open(path)
            && file.read_exact_at(&mut head, 0).is_ok()
            && let Some(seed) = frame::seed(&head)
        {
            let room = file.metadata()?.len();
            let mut slot = Self { file, seed, size, room, end: START };
            slot.clear()?;
            return Ok(slot);
        }
        Self::make(path, size)
    }

    /// Makes the slot at `path`.
    fn make(path: &Path, size: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path)?;
        let mut at = 0;
        while at < size {
            file.write_all_at(&ZEROS, at)?;
            at += PIECE as u64;
        }
        let seed = getrandom::u64()?;
        file.write_all_at(&frame::slot_head(seed), 0)?;
        file.sync_all()?;
        Ok(Self { file, seed, size, room: at, end: START })
    }

    /// Makes it ready to be written from its start: nothing in it is needed.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.end = START;
        if self.room > 2 * self.size {
            // It had to grow; the disk is better used. Synced here, or the next batch would be.
            self.file.set_len(self.size)?;
            self.file.sync_all()?;
            self.room = self.size;
        }
        Ok(())
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.file.write_all_at(frame, self.end)?;
        self.file.sync_data()?;
        self.end += frame.len() as u64;
        self.room = self.room.max(self.end);
        Ok(())
    }

    /// Whether a frame of so many bytes goes beyond its room.
    fn overflows(&self, bytes: usize) -> bool {
        self.end > START && self.end + bytes as u64 > self.room
    }
}

const START: u64 = frame::FIRST as u64;

/// The files of a log that holds nothing any more.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// Of all slots, in bytes.
    bytes: u64,
    count: usize,
}

impl Files {
    /// Opens the log of the store at `path`, of which nothing is needed any more, for writing.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<Slot>)> {
        let folder = path.join(NAME);
        folder_at(&folder)?;
        let mut files = Self { folder, bytes: 0, count: 0 };
        let mut slots = Vec::new();
        for name in 0..SLOTS {
            if !files.folder.join(name.to_string()).exists() && name >= 2 {
                break;
            }
            slots.push(files.add(Slot::open)?);
        }
        folder::sync(&files.folder)?;
        // The smallest is written first, and the largest last.
        slots.reverse();
        Ok((files, slots))
    }

    /// Another slot; `None` where there are as many as there may be.
    pub(super) fn grow(&mut self) -> io::Result<Option<Slot>> {
        if self.count == SLOTS {
            return Ok(None);
        }
        let slot = self.add(Slot::make)?;
        folder::sync(&self.folder)?;
        Ok(Some(slot))
    }

    fn add(&mut self, make: impl FnOnce(&Path, u64) -> io::Result<Slot>) -> io::Result<Slot> {
        let slot = make(&self.folder.join(self.count.to_string()), size(self.count))?;
        self.count += 1;
        self.bytes += slot.room;
        Ok(slot)
    }

    /// About how many bytes the log takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn folder_at(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Ok(()) => folder.parent().map_or(Ok(()), folder::sync),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The end of the log that is written.
pub(super) struct Log {
    slot: Slot,
    frame: Vec<u8>,
}

/// What was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    /// How many records it changes.
    pub(super) writes: usize,
    pub(super) bytes: usize,
}

impl Log {
    pub(super) fn new(slot: Slot) -> Self {
        Self { slot, frame: Vec::new() }
    }

    /// Appends a batch and syncs it; nothing, if nothing in it is for the disk. `exchange` gives a
    /// free slot for one that is full, if there is one.
    pub(super) fn append(
        &mut self,
        changes: &Changes,
        mark: Mark,
        exchange: impl FnOnce(&mut Slot),
    ) -> io::Result<Appended> {
        let mut writes = frame::encode(changes, mark, self.slot.seed, &mut self.frame);
        if writes == 0 {
            return Ok(Appended { writes, bytes: 0 });
        }
        if self.slot.overflows(self.frame.len()) {
            let before = self.slot.seed;
            exchange(&mut self.slot);
            if self.slot.seed != before {
                // Each slot has a seed of its own.
                writes = frame::encode(changes, mark, self.slot.seed, &mut self.frame);
            }
        }
        self.slot.write(&self.frame)?;
        Ok(Appended { writes, bytes: self.frame.len() })
    }
}

//! Reading the storage engine's journals, and nothing else: no byte is changed.
//!
//! The engine cuts a journal off at the first byte that it cannot read, says nothing, and goes on
//! with the next file. So whoever wants to know what is missing must look before it does.
//!
//! ```text
//! batch   01  count:u32  seqno:u64  item*count  03  xxh3_64(items):u64  "FJL" 03
//! item    02  type:u8  compression:u8  keyspace:u64  klen:u16  vlen:u32  disklen:u32  key  value
//! clear   04  keyspace:u64                              (never written by this store)
//! ```
//!
//! 1. All numbers are little-endian. A file is preallocated: zeros follow the last batch.
//! 2. Memory is bounded by the buffer, whatever a damaged length says.
//! 3. The checksum does not cover the engine's sequence number, which decides what it replays: it
//!    must grow from batch to batch.
//! 4. Each batch of the store carries one [`Mark`] in every keyspace it touches; a batch that does
//!    not was written by somebody else.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::folder;
use super::layout::{MARK, Mark};

/// What is read at once.
const BUFFER: usize = 256 << 10;
/// Stretches of consecutive numbers in one file: one, and one more for each accepted loss.
const MAX_RUNS: usize = 64;
/// Keyspaces in one batch: one for live records and a bucket of each class, with a wide margin.
const MAX_KEYSPACES: usize = 1024;
/// No engine comes that far: a hundred years of a million batches a second are fewer.
const MAX_SEQNO: u64 = 1 << 52;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
/// What the engine's version 3 ends a batch with.
pub(super) const TRAILER: [u8; 4] = *b"FJL\x03";

/// What one journal holds.
#[derive(Debug)]
pub(super) struct Contents {
    /// The number in its name: journals are in its order.
    pub(super) file: u64,
    pub(super) path: PathBuf,
    /// How long the file is.
    pub(super) length: u64,
    pub(super) batches: u64,
    /// Stretches of batches whose numbers follow on each other.
    pub(super) runs: Vec<Run>,
    /// The highest mark in every part.
    pub(super) highest: Mark,
    /// Where the last intact batch ends.
    pub(super) end: u64,
    pub(super) tail: Tail,
}

/// Batches whose numbers follow on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where the first of them begins.
    pub(super) at: u64,
    /// The number of the first.
    pub(super) first: u64,
    /// The number of the last.
    pub(super) last: u64,
    /// The engine's sequence number of the first.
    pub(super) first_seqno: u64,
    /// The engine's sequence number of the last.
    pub(super) last_seqno: u64,
    /// Where the last of them begins.
    pub(super) last_at: u64,
}

/// What follows the last intact batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing, or room that was never written.
    Zeros,
    /// Bytes that are no batch.
    Torn,
    /// A batch without marks.
    Unmarked,
}

impl Contents {
    /// The number of its first batch, and the engine's sequence number.
    pub(super) fn start(&self) -> Option<(u64, u64)> {
        self.runs.first().map(|run| (run.first, run.first_seqno))
    }
}

/// The journals in `folder`, oldest first; none if there is no such folder.
pub(super) fn list(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in folder::entries(folder)? {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".jnl")?.parse().ok());
        if let Some(number) = number {
            found.push((number, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The name that the engine gives to a journal.
pub(super) fn name(file: u64) -> String {
    format!("{file}.jnl")
}

/// Reads a journal from its beginning to the last intact batch.
pub(super) fn read(file: u64, path: PathBuf) -> io::Result<Contents> {
    let mut reader = Reader::open(&path)?;
    let mut runs: Vec<Run> = Vec::new();
    let (mut batches, mut highest) = (0, Mark::default());
    let tail = loop {
        let at = reader.at;
        let batch = match reader.batch() {
            Ok(batch) => batch,
            Err(Stop::Io(error)) => return Err(error),
            Err(Stop::NoBatch) => break reader.tail(at)?,
        };
        let Some(mark) = batch.mark else {
            reader.at = at;
            break Tail::Unmarked;
        };
        let new = Run {
            at,
            first: mark.number,
            last: mark.number,
            first_seqno: batch.seqno,
            last_seqno: batch.seqno,
            last_at: at,
        };
        if let Some(last) = runs.last_mut() {
            if batch.seqno <= last.last_seqno {
                // Either of the two may be the damaged one; this one is where it shows.
                reader.at = at;
                break Tail::Torn;
            }
            if mark.number == last.last + 1 {
                (last.last, last.last_seqno, last.last_at) = (mark.number, batch.seqno, at);
            } else if runs.len() < MAX_RUNS {
                runs.push(new);
            } else {
                reader.at = at;
                break Tail::Torn;
            }
        } else {
            runs.push(new);
        }
        batches += 1;
        highest = highest.max(mark);
    };
    let (length, end) = (reader.length, reader.at);
    Ok(Contents { file, path, length, batches, runs, highest, end, tail })
}

/// The number of a journal's first batch and the engine's sequence number; `None` while there is
/// none.
pub(super) fn start(path: &Path) -> io::Result<Option<(u64, u64)>> {
    match Reader::open(path)?.batch() {
        Ok(batch) => Ok(batch.mark.map(|mark| (mark.number, batch.seqno))),
        Err(Stop::NoBatch) => Ok(None),
        Err(Stop::Io(error)) => Err(error),
    }
}

/// Why no batch was read.
enum Stop {
    /// The bytes are none, or end in the middle of one.
    NoBatch,
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::NoBatch,
            _ => Self::Io(error),
        }
    }
}

struct Batch {
    seqno: u64,
    /// `None`: a keyspace lacks it, or they differ.
    mark: Option<Mark>,
}

struct Reader {
    file: BufReader<File>,
    at: u64,
    length: u64,
    hash: Xxh3,
}

impl Reader {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file: BufReader::with_capacity(BUFFER, file), at: 0, length, hash: Xxh3::new() })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// Hashes what follows without keeping it.
    fn pass(&mut self, mut length: u64) -> Result<(), Stop> {
        while length > 0 {
            let buffer = self.file.fill_buf()?;
            if buffer.is_empty() {
                return Err(Stop::NoBatch);
            }
            let now = buffer.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            self.hash.update(&buffer[..now]);
            self.file.consume(now);
            self.at += now as u64;
            length -= now as u64;
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<Batch, Stop> {
        let head: [u8; 13] = self.take()?;
        let count = u32::from_le_bytes(part(&head, 1));
        let seqno = u64::from_le_bytes(part(&head, 5));
        if head[0] != START || seqno >= MAX_SEQNO {
            return Err(Stop::NoBatch);
        }
        self.hash.reset();
        let mut marks = Marks::default();
        for _ in 0..count {
            self.item(&mut marks)?;
        }
        let end: [u8; 13] = self.take()?;
        let sum = u64::from_le_bytes(part(&end, 1));
        if end[0] != END || end[9..] != TRAILER || sum != self.hash.digest() {
            return Err(Stop::NoBatch);
        }
        Ok(Batch { seqno, mark: marks.agreed() })
    }

    fn item(&mut self, marks: &mut Marks) -> Result<(), Stop> {
        let [tag] = self.take()?;
        self.hash.update(&[tag]);
        if tag == CLEAR {
            let keyspace: [u8; 8] = self.take()?;
            self.hash.update(&keyspace);
            marks.touch(u64::from_le_bytes(keyspace));
            return Ok(());
        }
        let head: [u8; 20] = self.take()?;
        self.hash.update(&head);
        let (kind, compression) = (head[0], head[1]);
        let keyspace = u64::from_le_bytes(part(&head, 2));
        let key = u16::from_le_bytes(part(&head, 10));
        let value = u32::from_le_bytes(part(&head, 12));
        let on_disk = u32::from_le_bytes(part(&head, 16));
        // Values, tombstones and weak ones; plain and compressed.
        let known = tag == ITEM && kind <= 2 && compression <= 1;
        let plain = compression == 0;
        let left = self.length.saturating_sub(self.at);
        if !known || plain && value != on_disk || u64::from(key) + u64::from(on_disk) > left {
            return Err(Stop::NoBatch);
        }
        if usize::from(key) == MARK.len() {
            let name: [u8; MARK.len()] = self.take()?;
            self.hash.update(&name);
            if name == MARK && kind == 0 && plain && on_disk as usize == Mark::LENGTH {
                let bytes: [u8; Mark::LENGTH] = self.take()?;
                self.hash.update(&bytes);
                marks.put(keyspace, Mark::decode(&bytes));
                return Ok(());
            }
        } else {
            self.pass(u64::from(key))?;
        }
        marks.touch(keyspace);
        self.pass(u64::from(on_disk))
    }

    /// What lies behind the last intact batch, which ends at `at`.
    fn tail(&mut self, at: u64) -> io::Result<Tail> {
        self.at = at;
        self.file.seek(SeekFrom::Start(at))?;
        loop {
            let buffer = self.file.fill_buf()?;
            if buffer.is_empty() {
                return Ok(Tail::Zeros);
            }
            // Without a way out of the loop it is many bytes at a time.
            if buffer.iter().fold(0, |all, byte| all | byte) != 0 {
                return Ok(Tail::Torn);
            }
            let length = buffer.len();
            self.file.consume(length);
        }
    }
}

/// The `N` bytes from `at` on of a head that has them.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Which keyspaces a batch touches, and which of them it marked.
#[derive(Default)]
struct Marks {
    keyspaces: Vec<(u64, Option<Mark>)>,
    /// The keyspace of the item before: most batches touch one or two.
    last: usize,
    too_many: bool,
}

impl Marks {
    fn touch(&mut self, keyspace: u64) {
        if self.keyspaces.get(self.last).is_some_and(|(known, _)| *known == keyspace) {
            return;
        }
        match self.keyspaces.iter().position(|(known, _)| *known == keyspace) {
            Some(at) => self.last = at,
            None if self.keyspaces.len() < MAX_KEYSPACES => {
                self.last = self.keyspaces.len();
                self.keyspaces.push((keyspace, None));
            }
            None => self.too_many = true,
        }
    }

    fn put(&mut self, keyspace: u64, mark: Option<Mark>) {
        self.touch(keyspace);
        if !self.too_many {
            self.keyspaces[self.last].1 = mark;
        }
    }

    /// The mark that every keyspace has.
    fn agreed(&self) -> Option<Mark> {
        let (_, first) = self.keyspaces.first()?;
        let same = self.keyspaces.iter().all(|(_, mark)| mark == first);
        first.filter(|_| same && !self.too_many)
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;

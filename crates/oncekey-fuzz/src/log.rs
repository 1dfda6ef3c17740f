//! The embedded store's log, read before it is brought into the engine (X3).
//!
//! An input is what lies in a slot behind its head: frames, with `|next|` between them, that get
//! their magic, length, number and checksum here, for chance would never find those. A part that
//! begins with `|raw|` is left as it is, as a crash or an earlier round may leave bytes.
//!
//! 1. Reading answers whatever the bytes are, twice the same, and changes none of them.
//! 2. Every whole frame is found, and nothing that is none; what lies between is passed over.
//! 3. A changed byte inside of a frame is noticed.

use std::fs;
use std::path::{Path, PathBuf};

use oncekey::store::embedded::{Journal, scan};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What the parser knows.
pub const WORDS: &[&str] = &["|next|", "|raw|", "OKLF", "\0\0\0\0", "\u{1}", "\u{2}"];

const RAW: &[u8] = b"|raw|";
/// More than the parts of an input.
const MOST: usize = 16;
/// Of the slot's checksums.
const SEED: u64 = 0x6f6e_6365_6b65_7921;

/// See the [module](self).
///
/// # Panics
/// Where a promise is broken, and where there is no temporary folder.
pub fn check(input: &[u8]) {
    let mut slot = head();
    let mut frames = Vec::new();
    for part in crate::parts(input, MOST) {
        match part.strip_prefix(RAW) {
            Some(raw) => slot.extend_from_slice(raw),
            None => {
                slot.resize(slot.len().next_multiple_of(8), 0);
                let frame = sealed(part, frames.len() as u64 + 1);
                frames.push((slot.len(), frame.len()));
                slot.extend_from_slice(&frame);
            }
        }
    }
    let seen = read(&slot);
    assert_eq!(seen.length, slot.len() as u64);
    assert_eq!(seen.batches, frames.len() as u64, "a frame is missed, or made of nothing");
    let end = frames.last().map_or(0, |(at, length)| at + length);
    assert_eq!(seen.intact, end as u64);
    assert_eq!(seen.first, frames.first().map(|_| 1));
    assert_eq!(seen.last, frames.last().map(|_| frames.len() as u64));
    if frames.is_empty() {
        return;
    }
    // Another byte each time, but the same for the same input.
    let random = usize::try_from(xxh3_64(&slot) >> 16).unwrap_or(0);
    let (at, length) = frames[random % frames.len()];
    slot[at + (random >> 8) % length] ^= 0x10;
    assert_eq!(read(&slot).batches, frames.len() as u64 - 1, "a changed byte is not seen");
}

fn head() -> Vec<u8> {
    let mut head = b"oncekey log 1\n\0\0".to_vec();
    head.extend(SEED.to_le_bytes());
    head.extend(xxh3_64(&head).to_le_bytes());
    head.resize(64, 0);
    head
}

/// A whole frame around these bytes.
fn sealed(body: &[u8], number: u64) -> Vec<u8> {
    let length = (56 + body.len()).next_multiple_of(8);
    let mut frame = vec![0; 8];
    frame.extend(b"OKLF");
    frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    // The engine's number, the log's, the version, the time; then a count, which may be anything.
    for part in [0, number, number, number, u64::from(body.first().copied().unwrap_or(0))] {
        frame.extend(part.to_le_bytes());
    }
    frame.extend(body);
    frame.resize(length, 0);
    let sum = xxh3_64_with_seed(&frame[8..], SEED);
    frame[..8].copy_from_slice(&sum.to_le_bytes());
    frame
}

/// What is seen of a log with this slot alone.
fn read(slot: &[u8]) -> Journal {
    // In memory, where there is such a folder: there are thousands a second.
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(root).expect("a temporary folder");
    let path: PathBuf = folder.path().join("log/0");
    fs::create_dir(folder.path().join("log")).expect("it is empty");
    fs::write(&path, slot).expect("there is room");
    let seen = scan(folder.path()).expect("it can be read");
    let again = scan(folder.path()).expect("it can be read");
    assert_eq!(format!("{seen:?}"), format!("{again:?}"), "read twice, it is another");
    assert_eq!(fs::read(&path).ok().as_deref(), Some(slot), "changed");
    seen.log.into_iter().next().expect("one slot was written")
}

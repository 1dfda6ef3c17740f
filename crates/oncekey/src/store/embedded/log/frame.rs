//! One batch in the log, and the file that it lies in, as bytes.
//!
//! ```text
//! slot    magic:[16]      "oncekey log 1\n" and zeros
//!         seed:u64        of the checksums, so that no stored answer can look like a frame
//!         checksum:u64    xxh3_64 of what precedes it
//!         zeros           up to 64 bytes; frames follow, each at a multiple of 8
//!
//! frame   checksum:u64    xxh3_64, seeded, of the rest of the frame
//!         magic:[4]       "OKLF"
//!         length:u32      of the frame in bytes, a multiple of 8
//!         mark            0:u64 logged:u64 version:u64 stamp:u64
//!         count:u32 0:u32
//!         change*         id:[32] place:u8 exponent:u8 0:u16 length:u32 index:u64 record:[length]
//!         zeros           up to the length
//! ```
//!
//! 1. A change says where the record lay before, and what it is now: no bytes, if it is gone. So
//!    to apply a frame again, and all after it, changes nothing.
//! 2. Numbers are little-endian, and of the log's own count: each frame's is the one before it and
//!    one.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::super::changes::{Changes, Place};
use super::super::layout::{Bucket, Mark};
use crate::key::RecordId;
use crate::record::Record;
use crate::record::codec;

/// Where a slot's first frame lies.
pub(in super::super) const FIRST: usize = 64;

const SLOT_MAGIC: [u8; 16] = *b"oncekey log 1\n\0\0";
const MAGIC: [u8; 4] = *b"OKLF";
/// Of a frame without changes.
const HEAD: usize = 56;
/// Of a change without its record.
const CHANGE: usize = 48;

const ABSENT: u8 = 0;
const LIVE: u8 = 1;
const EVER: u8 = 2;
const WINDOW: u8 = 3;

/// The first bytes of a slot whose checksums have this seed.
pub(super) fn slot_head(seed: u64) -> [u8; FIRST] {
    let mut head = [0; FIRST];
    head[..16].copy_from_slice(&SLOT_MAGIC);
    head[16..24].copy_from_slice(&seed.to_le_bytes());
    let sum = xxh3_64(&head[..24]);
    head[24..32].copy_from_slice(&sum.to_le_bytes());
    head
}

/// The seed of a slot that begins with these bytes.
pub(super) fn seed(slot: &[u8]) -> Option<u64> {
    let head = slot.first_chunk::<FIRST>()?;
    let seed = u64::from_le_bytes(*head[16..].first_chunk()?);
    (*head == slot_head(seed)).then_some(seed)
}

/// Puts the frame of a batch into `out`, and says how many records it changes.
pub(super) fn encode(changes: &Changes, mark: Mark, seed: u64, out: &mut Vec<u8>) -> usize {
    out.clear();
    out.resize(8, 0);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&mark.encode());
    out.extend_from_slice(&[0; 8]);
    let mut count = 0_u32;
    for pending in changes.written() {
        out.extend_from_slice(pending.id.as_bytes());
        let (place, exponent, index) = match pending.found.place {
            Place::Absent => (ABSENT, 0, 0),
            Place::Live => (LIVE, 0, 0),
            Place::Bucket(Bucket::Ever) => (EVER, 0, 0),
            Place::Bucket(Bucket::Window { exponent, index }) => (WINDOW, exponent, index),
        };
        out.extend_from_slice(&[place, exponent, 0, 0]);
        let length = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&index.to_le_bytes());
        let start = out.len();
        if let Some(record) = &pending.found.record {
            codec::encode(record, out);
        }
        let bytes = (out.len() - start) as u32;
        out[length..][..4].copy_from_slice(&bytes.to_le_bytes());
        count += 1;
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let length = out.len() as u32;
    out[12..16].copy_from_slice(&length.to_le_bytes());
    out[48..52].copy_from_slice(&count.to_le_bytes());
    let sum = xxh3_64_with_seed(&out[8..], seed);
    out[..8].copy_from_slice(&sum.to_le_bytes());
    count as usize
}

/// An intact frame.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Frame<'a> {
    pub(in super::super) mark: Mark,
    /// How many bytes it takes.
    pub(in super::super) length: usize,
    count: u32,
    changes: &'a [u8],
}

/// What one change says.
pub(in super::super) struct Changed {
    pub(in super::super) id: RecordId,
    pub(in super::super) before: Place,
    pub(in super::super) record: Option<Record>,
}

/// The frame that `bytes` begin with, if it is intact.
pub(super) fn decode(bytes: &[u8], seed: u64) -> Option<Frame<'_>> {
    let head = bytes.first_chunk::<HEAD>()?;
    if head[8..12] != MAGIC {
        return None;
    }
    let number = |at: usize| Some(u32::from_le_bytes(*head[at..].first_chunk()?));
    let (length, count) = (number(12)? as usize, number(48)?);
    let frame = bytes.get(..length).filter(|frame| frame.len() >= HEAD)?;
    let sum = u64::from_le_bytes(*frame.first_chunk()?);
    if sum != xxh3_64_with_seed(&frame[8..], seed) {
        return None;
    }
    let mark = Mark::decode(&head[16..48])?;
    Some(Frame { mark, length, count, changes: &frame[HEAD..] })
}

impl Frame<'_> {
    /// What it says, in order; `None` where an intact frame makes no sense.
    pub(in super::super) fn changes(&self) -> Option<Vec<Changed>> {
        let mut rest = self.changes;
        let mut changes = Vec::new();
        for _ in 0..self.count {
            let (head, after) = rest.split_first_chunk::<CHANGE>()?;
            let id = RecordId::from_bytes(*head.first_chunk()?);
            let length = u32::from_le_bytes(*head[36..].first_chunk()?) as usize;
            let index = u64::from_le_bytes(*head[40..].first_chunk()?);
            let before = match head[32] {
                ABSENT => Place::Absent,
                LIVE => Place::Live,
                EVER => Place::Bucket(Bucket::Ever),
                WINDOW => Place::Bucket(Bucket::Window { exponent: head[33], index }),
                _ => return None,
            };
            let (bytes, after) = after.split_at_checked(length)?;
            let record = match bytes {
                [] => None,
                bytes => Some(codec::decode(bytes).ok().filter(|record| record.id == id)?),
            };
            changes.push(Changed { id, before, record });
            rest = after;
        }
        Some(changes)
    }
}

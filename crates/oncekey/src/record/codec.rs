//! The stored form of a record: versioned and checksummed.
//!
//! 1. The first byte is the version of the layout, the last four are a CRC-32C of everything
//!    before them. A version that is not known is refused before anything else is looked at.
//! 2. Numbers are little-endian; texts and byte strings follow their length in 32 bits. A length
//!    is compared with what is left before anything is allocated.
//! 3. [`decode`] takes exactly what [`encode`] wrote: a cut, a flipped bit or a byte left over is
//!    an error, whatever the bytes are.
//! 4. The layout is an on-disk format: golden files of every released version pin it.
//!
//! ```text
//! version 1: u8, id [32], kind u8, namespace, tenant, operation, key, principal,
//!            recipe u64, digest [32], token [16], attempt u32, version u64, created u64,
//!            horizon (seconds u64, nanoseconds u32), memo, reference (u8, text if 1),
//!            state (u8 and its fields), audits (u32, then who, reason, at u64 each), crc u32
//! ```
//!
//! ```
//! use oncekey::record::codec::{DecodeError, decode};
//!
//! assert_eq!(decode(b""), Err(DecodeError::Length));
//! assert_eq!(decode(&[9; 64]), Err(DecodeError::Unknown));
//! ```

use std::time::Duration;

use bytes::Bytes;

use super::{Audit, Kind, LeaseToken, Outcome, Principal, Record, State, Version, Why};
use crate::clock::Stamp;
use crate::fingerprint::{Fingerprint, Recipe};
use crate::key::{Key, RecordId, Scope};

/// The layout that this version writes.
const LAYOUT: u8 = 1;

/// The checksum's length.
const CRC: usize = 4;

/// The numbers of the states in stored records.
const IN_PROGRESS: u8 = 1;
const COMPLETED: u8 = 2;
const RETRY: u8 = 3;
const UNKNOWN: u8 = 4;

/// Why stored bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Too short, too long, or a length that points outside.
    #[error("the record is cut off or has bytes left over")]
    Length,
    /// The checksum does not match.
    #[error("the record's checksum does not match")]
    Checksum,
    /// A version or a value that this version does not know.
    #[error("the record was written by a newer version, or is damaged")]
    Unknown,
}

/// The stored form of `record`, appended to `buffer`.
pub fn encode(record: &Record, buffer: &mut Vec<u8>) {
    let start = buffer.len();
    buffer.reserve(256 + payload(record));
    buffer.push(LAYOUT);
    buffer.extend_from_slice(record.id.as_bytes());
    buffer.push(record.kind.code());
    let scope = &record.scope;
    for text in [&*scope.namespace, &*scope.tenant, &*scope.operation] {
        put(buffer, text.as_bytes());
    }
    put(buffer, record.key.as_str().as_bytes());
    put(buffer, record.principal.as_str().as_bytes());
    buffer.extend_from_slice(&record.fingerprint.recipe().number().to_le_bytes());
    buffer.extend_from_slice(record.fingerprint.digest());
    buffer.extend_from_slice(record.token.as_bytes());
    buffer.extend_from_slice(&record.attempt.to_le_bytes());
    buffer.extend_from_slice(&record.version.number().to_le_bytes());
    put_stamp(buffer, record.created);
    buffer.extend_from_slice(&record.horizon.as_secs().to_le_bytes());
    buffer.extend_from_slice(&record.horizon.subsec_nanos().to_le_bytes());
    put(buffer, &record.memo);
    match &record.reference {
        None => buffer.push(0),
        Some(reference) => {
            buffer.push(1);
            put(buffer, reference.as_bytes());
        }
    }
    put_state(buffer, &record.state);
    put_len(buffer, record.audit.len());
    for audit in &record.audit {
        put(buffer, audit.who.as_bytes());
        put(buffer, audit.reason.as_bytes());
        put_stamp(buffer, audit.at);
    }
    let crc = crc32c::crc32c(&buffer[start..]);
    buffer.extend_from_slice(&crc.to_le_bytes());
}

/// About how many bytes the parts without a fixed size take.
fn payload(record: &Record) -> usize {
    let scope = &record.scope;
    let outcome = match &record.state {
        State::Completed { outcome, .. } => outcome.bytes().len(),
        _ => 0,
    };
    scope.namespace.len()
        + scope.tenant.len()
        + scope.operation.len()
        + record.key.as_str().len()
        + record.principal.as_str().len()
        + record.memo.len()
        + record.reference.as_deref().map_or(0, str::len)
        + outcome
}

fn put_state(buffer: &mut Vec<u8>, state: &State) {
    match state {
        State::InProgress { lease_until } => {
            buffer.push(IN_PROGRESS);
            put_stamp(buffer, *lease_until);
        }
        State::Completed { outcome, at, expires, gone } => {
            buffer.push(COMPLETED);
            put(buffer, outcome.bytes());
            for stamp in [at, expires, gone] {
                put_stamp(buffer, *stamp);
            }
        }
        State::Retry { status, at, expires } => {
            buffer.push(RETRY);
            buffer.extend_from_slice(&status.to_le_bytes());
            put_stamp(buffer, *at);
            put_stamp(buffer, *expires);
        }
        State::Unknown { why, since, not_before, horizon } => {
            buffer.push(UNKNOWN);
            buffer.push(why.code());
            for stamp in [since, not_before, horizon] {
                put_stamp(buffer, *stamp);
            }
        }
    }
}

fn put_len(buffer: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len).expect("stores bound every part of a record far below 4 GiB");
    buffer.extend_from_slice(&len.to_le_bytes());
}

fn put(buffer: &mut Vec<u8>, bytes: &[u8]) {
    put_len(buffer, bytes.len());
    buffer.extend_from_slice(bytes);
}

fn put_stamp(buffer: &mut Vec<u8>, stamp: Stamp) {
    buffer.extend_from_slice(&stamp.as_micros().to_le_bytes());
}

/// The record that `bytes` hold.
///
/// # Errors
/// [`DecodeError`]; never a panic, whatever the bytes are.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    read(bytes, None)
}

/// The record that `bytes` hold; its outcome and memo share them instead of being copied.
///
/// # Errors
/// [`DecodeError`]; never a panic, whatever the bytes are.
pub fn decode_shared(bytes: &Bytes) -> Result<Record, DecodeError> {
    read(bytes, Some(bytes))
}

fn read(bytes: &[u8], shared: Option<&Bytes>) -> Result<Record, DecodeError> {
    if *bytes.first().ok_or(DecodeError::Length)? != LAYOUT {
        return Err(DecodeError::Unknown);
    }
    let (body, crc) = bytes.split_last_chunk::<CRC>().ok_or(DecodeError::Length)?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(DecodeError::Checksum);
    }
    let mut reader = Reader { left: body.get(1..).ok_or(DecodeError::Length)?, shared };
    let record = reader.record()?;
    if reader.left.is_empty() { Ok(record) } else { Err(DecodeError::Length) }
}

/// Takes a record's parts from the front of what is left.
struct Reader<'a> {
    left: &'a [u8],
    /// The bytes that `left` is a part of, where they may be shared.
    shared: Option<&'a Bytes>,
}

impl<'a> Reader<'a> {
    fn record(&mut self) -> Result<Record, DecodeError> {
        Ok(Record {
            id: RecordId::from_bytes(self.array()?),
            kind: Kind::from_code(self.u8()?).ok_or(DecodeError::Unknown)?,
            scope: Scope::new(self.text()?, self.text()?, self.text()?),
            key: Key::from_text(self.text()?).map_err(|_| DecodeError::Unknown)?,
            principal: Principal::from_stored(self.text()?).ok_or(DecodeError::Unknown)?,
            fingerprint: Fingerprint::from_parts(Recipe::from_number(self.u64()?), self.array()?),
            token: LeaseToken::from_bytes(self.array()?),
            attempt: self.u32()?,
            version: Version::from_number(self.u64()?),
            created: self.stamp()?,
            horizon: self.duration()?,
            memo: self.bytes()?,
            reference: match self.u8()? {
                0 => None,
                1 => Some(self.text()?.into()),
                _ => return Err(DecodeError::Unknown),
            },
            state: self.state()?,
            audit: self.audits()?,
        })
    }

    fn state(&mut self) -> Result<State, DecodeError> {
        Ok(match self.u8()? {
            IN_PROGRESS => State::InProgress { lease_until: self.stamp()? },
            COMPLETED => State::Completed {
                outcome: Outcome::new(self.bytes()?),
                at: self.stamp()?,
                expires: self.stamp()?,
                gone: self.stamp()?,
            },
            RETRY => State::Retry {
                status: u16::from_le_bytes(self.array()?),
                at: self.stamp()?,
                expires: self.stamp()?,
            },
            UNKNOWN => State::Unknown {
                why: Why::from_code(self.u8()?).ok_or(DecodeError::Unknown)?,
                since: self.stamp()?,
                not_before: self.stamp()?,
                horizon: self.stamp()?,
            },
            _ => return Err(DecodeError::Unknown),
        })
    }

    fn audits(&mut self) -> Result<Vec<Audit>, DecodeError> {
        /// Two empty texts and a stamp.
        const SHORTEST: usize = 16;
        let count = self.len()?;
        if count > self.left.len() / SHORTEST {
            return Err(DecodeError::Length);
        }
        let mut audits = Vec::with_capacity(count);
        for _ in 0..count {
            audits.push(Audit {
                who: self.text()?.to_owned(),
                reason: self.text()?.to_owned(),
                at: self.stamp()?,
            });
        }
        Ok(audits)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, left) = self.left.split_at_checked(len).ok_or(DecodeError::Length)?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, left) = self.left.split_first_chunk().ok_or(DecodeError::Length)?;
        self.left = left;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn stamp(&mut self) -> Result<Stamp, DecodeError> {
        Ok(Stamp::from_micros(self.u64()?))
    }

    fn duration(&mut self) -> Result<Duration, DecodeError> {
        let (seconds, nanos) = (self.u64()?, self.u32()?);
        // More than a second's worth has another spelling, and may overflow.
        if nanos < 1_000_000_000 {
            Ok(Duration::new(seconds, nanos))
        } else {
            Err(DecodeError::Unknown)
        }
    }

    fn len(&mut self) -> Result<usize, DecodeError> {
        usize::try_from(self.u32()?).map_err(|_| DecodeError::Length)
    }

    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let len = self.len()?;
        std::str::from_utf8(self.take(len)?).map_err(|_| DecodeError::Unknown)
    }

    fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let len = self.len()?;
        let taken = self.take(len)?;
        Ok(match self.shared {
            Some(shared) => shared.slice_ref(taken),
            None => Bytes::copy_from_slice(taken),
        })
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;

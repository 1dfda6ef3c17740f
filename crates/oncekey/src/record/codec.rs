//! The stored form of a record: versioned and checksummed.
use super::Record;

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
pub fn encode(_record: &Record, _buffer: &mut Vec<u8>) {}

/// The record that `bytes` hold.
///
/// # Errors
/// [`DecodeError`]; never a panic, whatever the bytes are.
pub fn decode(_bytes: &[u8]) -> Result<Record, DecodeError> {
    Err(DecodeError::Length)
}

//! Forms of several parts, digested part by part (F2).

use bytes::Bytes;

/// The boundary of a `multipart/form-data` content type.
#[must_use]
pub fn boundary(_content_type: &[u8]) -> Option<Bytes> {
    None
}

/// The digest over the parts of `body`; `None` where it is malformed.
#[must_use]
pub fn digest(_body: &[u8], _boundary: &[u8]) -> Option<[u8; 32]> {
    None
}

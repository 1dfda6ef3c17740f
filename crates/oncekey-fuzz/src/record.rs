//! Stored records (X3).
//!
//! 1. What is decoded encodes to the same bytes: a record has one spelling.
//! 2. Decoding with shared bytes reads the same.
//! 3. A cut and a byte left over are noticed, also where the checksum is right.
//!
//! Each input is tried as it is, and again under a checksum that is right, so that what the
//! checksum guards is met too.

use bytes::Bytes;
use oncekey::clock::Stamp;
use oncekey::record::codec::{DecodeError, decode, decode_shared, encode};

/// See the [module](self).
///
/// # Panics
/// Where a promise is broken.
pub fn check(bytes: &[u8]) {
    judge(bytes);
    let body = bytes.split_last_chunk::<4>().map_or(bytes, |(body, _)| body);
    judge(&sealed(body));
}

fn judge(bytes: &[u8]) {
    let found = decode(bytes);
    assert_eq!(decode_shared(&Bytes::copy_from_slice(bytes)), found, "shared bytes read otherwise");
    let record = match found {
        Ok(record) => record,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut again = Vec::new();
    encode(&record, &mut again);
    assert_eq!(again, bytes, "one record, two spellings");
    let body = &bytes[..bytes.len() - 4];
    assert_eq!(decode(&sealed(&[body, b"\0"].concat())), Err(DecodeError::Length));
    assert!(decode(&sealed(&body[..body.len() - 1])).is_err(), "a cut");
    // What is asked of a record on the way of a claim takes any stamps.
    for now in [0, 1, u64::MAX] {
        let _ = record.standing(Stamp::from_micros(now));
    }
    let _ = record.gone_at();
    let shown = format!("{record:?}");
    let key = record.key.as_str();
    assert!(key.len() < 24 || !shown.contains(key) || spelt_elsewhere(&record), "shows the key");
}

/// Whether another part, which is shown, happens to contain the key.
fn spelt_elsewhere(record: &oncekey::record::Record) -> bool {
    let key = record.key.as_str();
    let scope = &record.scope;
    let id = record.id.to_string();
    [&*scope.namespace, &*scope.tenant, &*scope.operation, &id]
        .iter()
        .any(|part| part.contains(key) || format!("{part:?}").contains(key))
}

fn sealed(body: &[u8]) -> Vec<u8> {
    [body, &crc32c::crc32c(body).to_le_bytes()].concat()
}

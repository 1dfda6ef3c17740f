//! The client's key, the scope it lives in, and the record id made of both.
//!
//! 1. A [`Key`] is 1 to 255 bytes of printable ASCII (K3) and compares byte for byte (K4).
//! 2. A header value is read leniently by default (K2): the structured-field string `"k"`
//!    (RFC 9651, draft-ietf-httpapi-idempotency-key-header-07 section 2.1) and the bare form `k`
//!    that most clients send are the same key.
//! 3. A malformed key is an error, never an absent key: treating it as absent would run the
//!    request unprotected.
//! 4. A [`RecordId`] is derived from kind, scope and key, each length-prefixed, so that no two
//!    different tuples collide (S1). The derivation is an on-disk format: golden files pin it.
//!
//! ```
//! use oncekey::key::{Key, KeySyntax};
//!
//! let quoted = Key::from_header(br#""8e03978e-40d5""#, KeySyntax::Lenient)?;
//! let bare = Key::from_header(b"8e03978e-40d5", KeySyntax::Lenient)?;
//! assert_eq!(quoted, bare);
//! assert!(Key::from_header(b"8e03978e-40d5", KeySyntax::Strict).is_err());
//! # Ok::<(), oncekey::key::InvalidKey>(())
//! ```

use std::fmt;
use std::sync::Arc;

use crate::record::Kind;

/// The longest key that is accepted, in bytes after unquoting (K3).
pub const MAX_KEY_LEN: usize = 255;

/// An idempotency key: 1 to 255 bytes of printable ASCII, compared byte for byte.
///
/// `Debug` shows only its length: keys are not written to logs.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Box<str>);

/// Which forms of the header value are accepted (K2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySyntax {
    /// The structured-field string and the bare form.
    #[default]
    Lenient,
    /// The structured-field string alone.
    Strict,
}

/// Why a key was refused. Its text never repeats the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// Nothing, or nothing but blanks.
    #[error("the key is empty or blank")]
    Empty,
    /// More than [`MAX_KEY_LEN`] bytes after unquoting.
    #[error("the key is longer than 255 bytes")]
    TooLong,
    /// A byte that the form does not allow.
    #[error("the key contains a byte that is not allowed; use printable ASCII")]
    ForbiddenByte,
    /// It begins with a quote and is not a structured-field string.
    #[error("the quoted key is not a valid string (RFC 9651 section 3.3.3)")]
    BadString,
    /// The bare form where only the string form is taken.
    #[error("the key must be a quoted string (RFC 9651 section 3.3.3)")]
    NotQuoted,
}

impl Key {
    /// Reads one header value.
    ///
    /// Blanks and tabs around the value are the header's, not the key's. Parameters after a
    /// string are ignored; in the bare form `;` is part of the key.
    ///
    /// # Errors
    /// [`InvalidKey`] for whatever K3 refuses.
    pub fn from_header(value: &[u8], syntax: KeySyntax) -> Result<Self, InvalidKey> {
        let value = value.trim_ascii();
        match value.first() {
            None => Err(InvalidKey::Empty),
            Some(b'"') => Self::from_string_form(value),
            Some(_) if syntax == KeySyntax::Strict => Err(InvalidKey::NotQuoted),
            Some(_) => Self::from_bare_form(value),
        }
    }

    /// Takes text that carries no header syntax: a member of a JSON body, or a library's own key.
    ///
    /// # Errors
    /// [`InvalidKey`] unless it is 1 to 255 bytes of printable ASCII and not blank.
    pub fn from_text(text: &str) -> Result<Self, InvalidKey> {
        if text.bytes().all(|byte| byte == b' ') {
            return Err(InvalidKey::Empty);
        }
        if text.len() > MAX_KEY_LEN {
            return Err(InvalidKey::TooLong);
        }
        if !text.bytes().all(|byte| matches!(byte, 0x20..=0x7E)) {
            return Err(InvalidKey::ForbiddenByte);
        }
        Ok(Self(text.into()))
    }

    fn from_string_form(value: &[u8]) -> Result<Self, InvalidKey> {
        let item: sfv::Item = sfv::Parser::new(value).parse().map_err(|_| InvalidKey::BadString)?;
        match item.bare_item {
            sfv::BareItem::String(text) => Self::from_text(text.as_str()),
            _ => Err(InvalidKey::BadString),
        }
    }

    fn from_bare_form(value: &[u8]) -> Result<Self, InvalidKey> {
        if value.len() > MAX_KEY_LEN {
            return Err(InvalidKey::TooLong);
        }
        let allowed =
            |byte: &u8| matches!(byte, 0x21..=0x7E) && !matches!(byte, b'"' | b'\\' | b',');
        if !value.iter().all(allowed) {
            return Err(InvalidKey::ForbiddenByte);
        }
        let text = std::str::from_utf8(value).map_err(|_| InvalidKey::ForbiddenByte)?;
        Ok(Self(text.into()))
    }

    /// The key's characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// Where a key is unique: the same key in two scopes is two operations (M1.3).
///
/// Each part is readable text for people; the record id is made of all of them and the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Separates services that share one store.
    pub namespace: Arc<str>,
    /// Separates the customers of one service.
    pub tenant: Arc<str>,
    /// Separates endpoints: method and path, or a name.
    pub operation: Arc<str>,
}

impl Scope {
    /// The scope with these three parts.
    pub fn new(
        namespace: impl Into<Arc<str>>,
        tenant: impl Into<Arc<str>>,
        operation: impl Into<Arc<str>>,
    ) -> Self {
        Self { namespace: namespace.into(), tenant: tenant.into(), operation: operation.into() }
    }
}

/// The 32 bytes that name a record (S1). Printed as hex; good as a provider's idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId([u8; 32]);

impl RecordId {
    /// Derives the id of the record for `key` in `scope`.
    ///
    /// BLAKE3 in key derivation mode over a version tag, the kind and the four texts, each
    /// preceded by its length, so `("a", "b:c")` and `("a:b", "c")` never meet.
    #[must_use]
    pub fn derive(kind: Kind, scope: &Scope, key: &Key) -> Self {
        const TAG: &[u8] = b"oncekey record id 1";
        let parts = [&*scope.namespace, &*scope.tenant, &*scope.operation, key.as_str()];
        let length: usize = parts.iter().map(|part| 8 + part.len()).sum();
        let mut input = Vec::with_capacity(TAG.len() + 1 + length);
        input.extend_from_slice(TAG);
        input.push(kind.code());
        for part in parts {
            // Lengths fit: every part is bounded long before it gets here.
            input.extend_from_slice(&(part.len() as u64).to_le_bytes());
            input.extend_from_slice(part.as_bytes());
        }
        Self(*blake3::hash(&input).as_bytes())
    }

    /// The id with these bytes, as read back from a store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The id's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the 64 hex digits that [`Display`](fmt::Display) prints.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(|hash| Self(*hash.as_bytes()))
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({self})")
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;

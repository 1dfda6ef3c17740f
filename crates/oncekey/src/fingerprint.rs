//! The fingerprint: a digest of what a key was first used for.
//!
//! 1. Fields are length-framed, so that no two different requests have the same input (F1).
//! 2. The digest is keyed by the store's [`Secret`], so that a stored one reveals nothing.
//! 3. A fingerprint bears its [`Recipe`]: scheme, policy and secret. Against another recipe it
//!    counts as equal, since a configuration that changed must not turn retries into mismatches.
//! 4. A body is digested raw as it arrives, or, where the policy says so, by the value of its JSON
//!    ([`json`]); a form of several parts is digested part by part in every mode ([`multipart`]).
//!
//! ```
//! use oncekey::fingerprint::{BodyMode, Recipe, Relation, Secret};
//!
//! let secret = Secret::from_bytes([7; 32]);
//! let recipe = Recipe::new(&secret, b"my policy");
//! let of = |body: &[u8]| {
//!     let mut digest = recipe.digester(&secret);
//!     digest.field(b"POST").field(b"/pay");
//!     let mut reader = BodyMode::Raw.reader(None);
//!     reader.chunk(body);
//!     digest.body(reader, &BodyMode::Raw).finish()
//! };
//! assert_eq!(of(b"{}").relation(&of(b"{}")), Relation::Same);
//! assert_eq!(of(b"{}").relation(&of(b"[]")), Relation::Differs);
//! ```

use std::fmt;

use bytes::{Bytes, BytesMut};

pub mod json;
pub mod multipart;

pub use json::Selection;

/// The scheme of this version; part of every recipe.
const SCHEME: u8 = 1;

/// The key of all digests of one store: 32 random bytes. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A fresh random secret.
    ///
    /// # Panics
    /// When the operating system has no randomness to give.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
        Self(bytes)
    }

    /// The secret with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret derived from what people chose, such as an environment variable.
    #[must_use]
    pub fn derived(from: &[u8]) -> Self {
        Self(blake3::derive_key("oncekey secret from text 1", from))
    }

    /// The secret's bytes, for the store that keeps it.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A hasher keyed by this secret for one purpose.
    #[must_use]
    pub fn hasher(&self, purpose: &str) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        frame(&mut hasher, purpose.as_bytes());
        hasher
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// How a fingerprint was made: a short digest of scheme, policy and secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recipe(u64);

impl Recipe {
    /// The recipe of this version's scheme with `policy`, any bytes that tell policies apart.
    #[must_use]
    pub fn new(secret: &Secret, policy: &[u8]) -> Self {
        let mut hasher = secret.hasher("oncekey recipe");
        hasher.update(&[SCHEME]);
        frame(&mut hasher, policy);
        let digest = hasher.finalize();
        let mut number = [0; 8];
        number.copy_from_slice(&digest.as_bytes()[..8]);
        Self(u64::from_le_bytes(number))
    }

    /// The recipe with this number, as read back from a store.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The recipe's number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Begins a fingerprint by this recipe.
    #[must_use]
    pub fn digester(self, secret: &Secret) -> Digester {
        Digester { hasher: secret.hasher("oncekey fingerprint"), recipe: self }
    }
}

/// A digest of what a key was first used for, with the recipe it was made by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    recipe: Recipe,
    digest: [u8; 32],
}

/// How two fingerprints stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same request.
    Same,
    /// Another request.
    Differs,
    /// Made by different recipes: counts as the same, and is worth a line in the log (F1).
    OtherRecipe,
}

impl Fingerprint {
    /// The fingerprint with these parts, as read back from a store.
    #[must_use]
    pub const fn from_parts(recipe: Recipe, digest: [u8; 32]) -> Self {
        Self { recipe, digest }
    }

    /// The recipe it was made by.
    #[must_use]
    pub const fn recipe(&self) -> Recipe {
        self.recipe
    }

    /// The digest's bytes.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Compares two fingerprints.
    #[must_use]
    pub fn relation(&self, other: &Self) -> Relation {
        if self.recipe != other.recipe {
            Relation::OtherRecipe
        } else if self.digest == other.digest {
            Relation::Same
        } else {
            Relation::Differs
        }
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint(recipe {:016x})", self.recipe.0)
    }
}

/// A fingerprint in the making. Fields are framed, so their order and boundaries count.
#[derive(Debug)]
pub struct Digester {
    hasher: blake3::Hasher,
    recipe: Recipe,
}

impl Digester {
    /// Adds one field.
    pub fn field(&mut self, bytes: &[u8]) -> &mut Self {
        frame(&mut self.hasher, bytes);
        self
    }

    /// Adds the body that `reader` took in, by `mode`.
    pub fn body(&mut self, reader: BodyReader, mode: &BodyMode) -> &mut Self {
        let (tag, digest) = reader.digest(mode);
        self.hasher.update(&[tag]);
        self.field(&digest)
    }

    /// The finished fingerprint.
    #[must_use]
    pub fn finish(&self) -> Fingerprint {
        Fingerprint { recipe: self.recipe, digest: *self.hasher.finalize().as_bytes() }
    }
}

/// How bodies are compared (F1, F2, F3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BodyMode {
    /// Byte for byte.
    #[default]
    Raw,
    /// By the value of the JSON, some of its members left out or alone counted.
    Json(Selection),
}

impl BodyMode {
    /// A reader for one body of the given content type.
    #[must_use]
    pub fn reader(&self, content_type: Option<&[u8]>) -> BodyReader {
        let boundary = content_type.and_then(multipart::boundary);
        let keep = boundary.is_some() || matches!(self, Self::Json(_));
        BodyReader { raw: blake3::Hasher::new(), kept: keep.then(BytesMut::new), boundary }
    }
}

/// Takes in a body chunk by chunk; hashes it on the way.
///
/// It keeps the bytes only where their structure counts; the caller bounds their number (F4).
#[derive(Debug)]
pub struct BodyReader {
    raw: blake3::Hasher,
    kept: Option<BytesMut>,
    boundary: Option<Bytes>,
}

impl BodyReader {
    /// Takes in the next bytes.
    pub fn chunk(&mut self, bytes: &[u8]) {
        self.raw.update(bytes);
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
    }

    /// The tag of the form that was digested, so that forms never collide, and the digest.
    fn digest(self, mode: &BodyMode) -> (u8, [u8; 32]) {
        if let (Some(kept), Some(boundary)) = (&self.kept, &self.boundary)
            && let Some(digest) = multipart::digest(kept, boundary)
        {
            return (b'm', digest);
        }
        if let (Some(kept), BodyMode::Json(selection)) = (&self.kept, mode)
            && let Some(canonical) = json::canonical(kept, selection)
        {
            return (b'j', *blake3::hash(&canonical).as_bytes());
        }
        (b'r', *self.raw.finalize().as_bytes())
    }
}

/// Adds `bytes` preceded by their length.
pub(crate) fn frame(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

#[cfg(test)]
#[path = "fingerprint/tests.rs"]
mod tests;

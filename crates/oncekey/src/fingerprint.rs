//! The fingerprint: a digest of what a key was first used for.
//!
//! 1. Fields are length-framed, so that no two different requests have the same input (F1).
//! 2. The digest is keyed by the store's [`Secret`], so that a stored one reveals nothing.
//! 3. A fingerprint bears its [`Recipe`]: scheme, policy and secret. Against another recipe it
//!    counts as equal, since a configuration that changed must not turn retries into mismatches.
//! 4. A body is digested raw as it arrives, or, where the policy says so, by the value of its JSON
//!    ([`json`]); a form of several parts is digested part by part in every mode ([`multipart`]).
//!    What cannot be read by its structure is compared byte for byte, and never fails.
//! 5. The digest is a stored format: golden files pin it.
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

    /// The digest of what `input` holds, keyed by this secret.
    pub(crate) fn digest(&self, input: &Frames) -> [u8; 32] {
        *blake3::keyed_hash(&self.0, &input.0).as_bytes()
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
        let mut input = Frames::of("oncekey recipe");
        input.0.push(SCHEME);
        input.add(policy);
        let mut number = [0; 8];
        number.copy_from_slice(&secret.digest(&input)[..8]);
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
    pub fn digester(self, secret: &Secret) -> Digester<'_> {
        Digester { input: Frames::of("oncekey fingerprint"), secret, recipe: self }
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
pub struct Digester<'a> {
    input: Frames,
    secret: &'a Secret,
    recipe: Recipe,
}

impl Digester<'_> {
    /// Adds one field.
    pub fn field(&mut self, bytes: &[u8]) -> &mut Self {
        self.input.add(bytes);
        self
    }

    /// Adds the body that `reader` took in, by `mode`.
    pub fn body(&mut self, reader: BodyReader, mode: &BodyMode) -> &mut Self {
        let (tag, digest) = reader.digest(mode);
        // The tag is a field like any other, so that the whole input splits in one way only.
        self.field(&[tag]).field(&digest)
    }

    /// The finished fingerprint.
    #[must_use]
    pub fn finish(&self) -> Fingerprint {
        Fingerprint { recipe: self.recipe, digest: self.secret.digest(&self.input) }
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
        BodyReader { raw: Raw::default(), kept: keep.then(BytesMut::new), boundary }
    }
}

/// Takes in a body chunk by chunk; hashes it on the way.
///
/// It keeps the bytes only where their structure counts; the caller bounds their number (F4).
/// `Debug` shows how many it keeps, and none of them.
pub struct BodyReader {
    raw: Raw,
    kept: Option<BytesMut>,
    boundary: Option<Bytes>,
}

impl BodyReader {
    /// Whether it keeps what it takes in: then the body is better given to it in one piece, at the
    /// end, than held twice while it arrives.
    #[cfg(feature = "http")]
    pub(crate) fn keeps(&self) -> bool {
        self.kept.is_some()
    }

    /// Takes in the next bytes.
    pub fn chunk(&mut self, bytes: &[u8]) {
        self.raw.update(bytes);
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
    }

    /// The tag of the form that was digested, so that forms never collide, and the digest.
    fn digest(self, mode: &BodyMode) -> (u8, [u8; 32]) {
        let raw = self.raw.digest();
        let Some(kept) = self.kept else {
            return (b'r', raw);
        };
        if let Some(boundary) = self.boundary {
            return multipart::digest(&kept, &boundary)
                .map_or_else(|| (b'b', with_boundary(&boundary, &raw)), |digest| (b'm', digest));
        }
        if let BodyMode::Json(selection) = mode
            && let Some(canonical) = json::canonical(&kept, selection)
        {
            return (b'j', *blake3::hash(&canonical).as_bytes());
        }
        (b'r', raw)
    }
}

impl fmt::Debug for BodyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept.as_ref().map_or(0, BytesMut::len);
        write!(f, "BodyReader({} bytes read, {kept} kept)", self.raw.count())
    }
}

/// The digest of bytes as they come. The state of a hasher is larger than most bodies, so short
/// ones are gathered and hashed at once.
enum Raw {
    Short(Vec<u8>),
    Long(Box<blake3::Hasher>),
}

/// One block of the hash's tree.
const SHORT: usize = 1024;

impl Default for Raw {
    fn default() -> Self {
        Self::Short(Vec::new())
    }
}

impl Raw {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Short(gathered) if gathered.len() + bytes.len() <= SHORT => {
                gathered.extend_from_slice(bytes);
            }
            Self::Short(gathered) => {
                let mut hasher = Box::new(blake3::Hasher::new());
                hasher.update(gathered).update(bytes);
                *self = Self::Long(hasher);
            }
            Self::Long(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    fn count(&self) -> u64 {
        match self {
            Self::Short(gathered) => gathered.len() as u64,
            Self::Long(hasher) => hasher.count(),
        }
    }

    fn digest(&self) -> [u8; 32] {
        match self {
            Self::Short(gathered) => *blake3::hash(gathered).as_bytes(),
            Self::Long(hasher) => *hasher.finalize().as_bytes(),
        }
    }
}

/// The digest of a form that is malformed: its raw bytes, and the boundary they were sent with.
///
/// The content type counts without its boundary (F1), and the same bytes may be other parts to a
/// lenient parser that is told to split them elsewhere.
fn with_boundary(boundary: &[u8], raw: &[u8; 32]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    frame(&mut hasher, boundary);
    frame(&mut hasher, raw);
    *hasher.finalize().as_bytes()
}

/// The input of a short digest: fields, each preceded by its length. Never printed.
#[derive(Clone)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    /// The input that begins with the digest's purpose, so that two purposes never meet.
    pub(crate) fn of(purpose: &str) -> Self {
        let mut frames = Self(Vec::with_capacity(256));
        frames.add(purpose.as_bytes());
        frames
    }

    /// Adds one field.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frames({} bytes)", self.0.len())
    }
}

/// Adds `bytes` preceded by their length.
pub(crate) fn frame(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

#[cfg(test)]
#[path = "fingerprint_tests.rs"]
mod tests;

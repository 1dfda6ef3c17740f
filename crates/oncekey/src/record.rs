//! The record: what a store keeps for one key.
//!
//! ```text
//!            claim                      complete
//! (absent) ---------> in progress -----------------> completed -- retention --> absent, tombstone
//!     ^                 |    |  ^                        ^
//!     +--- release -----+    |  +-- takeover             | late complete by the same token,
//!                            +-- retry --> claim again   | or a resolution
//!                            +-- abandon, or the lease ends --> unknown --+
//! ```
//!
//! 1. A record names one operation for ever: id, kind, scope, key, principal and fingerprint never
//!    change after the claim that made it.
//! 2. The outcome is written once.
//! 3. A record in progress never expires (T1). One whose lease ended is unknown, whether or not
//!    anybody has written that down yet.
//! 4. Identity and states are stored by a versioned, checksummed codec: [`codec`].

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Stamp;
use crate::fingerprint::Fingerprint;
use crate::key::{Key, RecordId, Scope};

pub mod codec;

/// Which face a record belongs to. Part of the record id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A request under the client's key.
    Request,
    /// An inbound webhook.
    Event,
    /// An outbound side effect.
    Effect,
}

impl Kind {
    /// The number that stands for the kind in ids and in stored records.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Event => 2,
            Self::Effect => 3,
        }
    }

    /// The kind that `code` stands for.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Request),
            2 => Some(Self::Event),
            3 => Some(Self::Effect),
            _ => None,
        }
    }
}

/// Who made the first request, as far as it can be verified (S4).
///
/// A short text: `anonymous`, a digest of credentials, or what a verified source said. Another
/// principal is refused a replay, so a guessed key leaks nothing.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal(Cow<'static, str>);

impl Principal {
    /// The longest principal, in bytes.
    pub const MAX_LEN: usize = 255;

    /// Nobody in particular: no credentials were presented.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(Cow::Borrowed("anonymous"))
    }

    /// A principal by name, from a source that verified it. Longer names are digested.
    #[must_use]
    pub fn named(name: &str) -> Self {
        if name.len() <= Self::MAX_LEN - 2 {
            return Self(Cow::Owned(format!("n:{name}")));
        }
        Self(Cow::Owned(format!("d:{}", blake3::hash(name.as_bytes()).to_hex())))
    }

    /// A principal by the keyed digest of its credentials.
    #[must_use]
    pub fn hashed(digest: &[u8; 32]) -> Self {
        // 128 bits: a second credential with the same half digest cannot be searched for, since
        // the digest is keyed.
        let hex = blake3::Hash::from_bytes(*digest).to_hex();
        Self(Cow::Owned(format!("h:{}", &hex[..32])))
    }

    /// The principal as it was stored. Anything beyond [`MAX_LEN`](Self::MAX_LEN) is no principal.
    #[must_use]
    pub fn from_stored(text: &str) -> Option<Self> {
        if text == "anonymous" {
            return Some(Self::anonymous());
        }
        (text.len() <= Self::MAX_LEN).then(|| Self(Cow::Owned(text.to_owned())))
    }

    /// The stored text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({})", self.0)
    }
}

/// Random bytes of the operating system, fetched for many tokens at a time: a system call for each
/// would cost as much as all other work on a claim.
struct RandomPool {
    bytes: [u8; 1024],
    used: usize,
}

thread_local! {
    static RANDOM: RefCell<RandomPool> =
        const { RefCell::new(RandomPool { bytes: [0; 1024], used: 1024 }) };
}

impl RandomPool {
    fn next(&mut self) -> [u8; 16] {
        if self.used == self.bytes.len() {
            getrandom::fill(&mut self.bytes).expect("the operating system provides random bytes");
            self.used = 0;
        }
        let mut token = [0; 16];
        token.copy_from_slice(&self.bytes[self.used..self.used + 16]);
        self.used += 16;
        token
    }
}

/// The random fence that proves the right to a record. Made by the caller before the first try.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseToken([u8; 16]);

impl LeaseToken {
    /// A token that nobody holds: what a record bears after a person changed it, or after a claim
    /// was taken back.
    pub const NOBODY: Self = Self([0; 16]);

    /// A fresh random token.
    ///
    /// # Panics
    /// When the operating system has no randomness to give: no claim can be fenced without it.
    #[must_use]
    pub fn random() -> Self {
        RANDOM.with_borrow_mut(|pool| Self(pool.next()))
    }

    /// The token with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The token's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token proves a right, so only its first bytes are shown.
        write!(f, "LeaseToken({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// A held record: proof of the right to run, and to write the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a lease that is dropped leaves its record unknown"]
pub struct Lease {
    /// The record that is held.
    pub id: RecordId,
    /// The fence.
    pub token: LeaseToken,
    /// How often the work was started: 1 for the first run.
    pub attempt: u32,
}

/// A number that grows with every write to a record, across its whole life in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// The version of a record that is not there.
    pub const ABSENT: Self = Self(0);
    /// Stands for a record that cannot be read, where a change needs the version seen (X3).
    pub const UNREADABLE: Self = Self(u64::MAX);

    /// The version with this number.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The version's number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// A final value, opaque to everything but the face that wrote it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Outcome(Bytes);

impl Outcome {
    /// The outcome with these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, shared with the outcome.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outcome({} bytes)", self.0.len())
    }
}

/// How long an ending is kept (T1, T2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long it answers repeats.
    pub keep: Duration,
    /// How much longer id and fingerprint stay, to refuse the key as expired. Zero: not at all.
    pub tombstone: Duration,
}

impl Retention {
    /// Keeps for `keep`, without a tombstone.
    #[must_use]
    pub const fn keep(keep: Duration) -> Self {
        Self { keep, tombstone: Duration::ZERO }
    }

    /// Lets a tombstone follow for `tombstone`.
    #[must_use]
    pub const fn with_tombstone(self, tombstone: Duration) -> Self {
        Self { tombstone, ..self }
    }
}

/// Why nobody knows how a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// The holder said so: a time-out, a broken connection, an answer that says nobody knows.
    Abandoned,
    /// The work panicked.
    Panicked,
    /// The lease ended without a word from its holder.
    LeaseEnded,
    /// The process that held it ended.
    ProcessEnded,
    /// A graceful stop cut it off.
    Stopped,
}

impl Why {
    /// The number that stands for the reason in stored records.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Abandoned => 1,
            Self::Panicked => 2,
            Self::LeaseEnded => 3,
            Self::ProcessEnded => 4,
            Self::Stopped => 5,
        }
    }

    /// The reason that `code` stands for.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Abandoned),
            2 => Some(Self::Panicked),
            3 => Some(Self::LeaseEnded),
            4 => Some(Self::ProcessEnded),
            5 => Some(Self::Stopped),
            _ => None,
        }
    }
}

/// Where a record stands in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Somebody holds it until `lease_until`; beyond that it is unknown.
    InProgress {
        /// The lease's end.
        lease_until: Stamp,
    },
    /// The outcome is final.
    Completed {
        /// What every repeat is answered with.
        outcome: Outcome,
        /// When the outcome was written.
        at: Stamp,
        /// The end of the retention.
        expires: Stamp,
        /// The end of the tombstone; equal to `expires` where there is none.
        gone: Stamp,
    },
    /// The run ended without an outcome and may be started again.
    Retry {
        /// What the run answered.
        status: u16,
        /// When it ended.
        at: Stamp,
        /// When the record is forgotten.
        expires: Stamp,
    },
    /// Nobody knows how the run ended.
    Unknown {
        /// Why.
        why: Why,
        /// Since when.
        since: Stamp,
        /// Nobody may take it over before.
        not_before: Stamp,
        /// It is kept until then at least (U3).
        horizon: Stamp,
    },
}

/// A change made by a person, kept in the record (U3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Who made it.
    pub who: String,
    /// Why they made it.
    pub reason: String,
    /// When, by the store's clock. Set by the store.
    pub at: Stamp,
}

/// What a store keeps for one key.
///
/// `Debug` shows neither key nor memo nor outcome.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub id: RecordId,
    /// The face it belongs to.
    pub kind: Kind,
    /// Where the key is unique, readable for people.
    pub scope: Scope,
    /// The client's key.
    pub key: Key,
    /// Who first used it.
    pub principal: Principal,
    /// What it was first used for.
    pub fingerprint: Fingerprint,
    /// The fence of the last holder.
    pub token: LeaseToken,
    /// How often the work was started.
    pub attempt: u32,
    /// Grows with every write.
    pub version: Version,
    /// When it was first claimed.
    pub created: Stamp,
    /// How long it is kept at least once it is unknown (U3).
    pub horizon: Duration,
    /// What recovery needs to know about the work, at most [`Record::MAX_MEMO`] bytes.
    pub memo: Bytes,
    /// The other side's name for the work, once it told one.
    pub reference: Option<Box<str>>,
    /// Where it stands.
    pub state: State,
    /// Who changed it by hand, newest last.
    pub audit: Vec<Audit>,
}

impl Record {
    /// The longest memo, in bytes.
    pub const MAX_MEMO: usize = 4096;
    /// The longest reference, in bytes.
    pub const MAX_REFERENCE: usize = 512;
    /// The most audit entries; the oldest give way.
    pub const MAX_AUDIT: usize = 16;

    /// Where the record stands at `now`, the lease's end counted (rule 3 above).
    #[must_use]
    pub fn standing(&self, now: Stamp) -> Standing {
        match &self.state {
            State::InProgress { lease_until } if *lease_until > now => Standing::InProgress,
            State::InProgress { .. } | State::Unknown { .. } => Standing::Unknown,
            State::Completed { gone, .. } if *gone <= now => Standing::Gone,
            State::Completed { expires, .. } if *expires <= now => Standing::Tombstone,
            State::Completed { .. } => Standing::Completed,
            State::Retry { expires, .. } if *expires <= now => Standing::Gone,
            State::Retry { .. } => Standing::Retry,
        }
    }

    /// When the record may be deleted; `None` while it is alive: in progress or unknown.
    #[must_use]
    pub fn gone_at(&self) -> Option<Stamp> {
        match &self.state {
            State::Completed { gone, .. } => Some(*gone),
            State::Retry { expires, .. } => Some(*expires),
            State::InProgress { .. } | State::Unknown { .. } => None,
        }
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("scope", &self.scope)
            .field("attempt", &self.attempt)
            .field("version", &self.version)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Where a record stands at a moment: its state, with lease and retention judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Held, and the lease lasts.
    InProgress,
    /// The outcome answers repeats.
    Completed,
    /// The last run may be repeated.
    Retry,
    /// Nobody knows how the last run ended.
    Unknown,
    /// Only the identity is left, to refuse the key.
    Tombstone,
    /// Nothing is left: as good as absent.
    Gone,
}

impl Standing {
    /// The word for people and for problem details.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in-progress",
            Self::Completed => "completed",
            Self::Retry => "retry",
            Self::Unknown => "unknown",
            Self::Tombstone => "expired",
            Self::Gone => "absent",
        }
    }
}

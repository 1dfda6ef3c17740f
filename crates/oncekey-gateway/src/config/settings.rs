//! What one route does: every setting, with no default left open.
//!
//! Settings are laid over each other, the later winning field by field:
//!
//! 1. what is built in;
//! 2. the profile of `[defaults]`, unless the route names one of its own;
//! 3. what `[defaults]` writes out;
//! 4. the route's own profile;
//! 5. what the route writes out.
//!
//! A list is replaced as a whole; `status` and the fields of `fingerprint` and `replay` one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::HeaderName;
use schemars::{Schema, json_schema};
use toml::Value;

use super::diagnostic::{Fault, quoted};
use super::field::{Setting, Written, choice};
use super::names::{KeySource, Operation, Pointer};
use super::quantity::{Size, duration_text};

choice! {
    /// A set of settings for a convention.
    Profile {
        /// The IETF draft: 422 on reuse.
        Ietf = "ietf",
        /// Stripe's convention: 400 on reuse, 5xx kept except those that are unknown.
        Stripe = "stripe",
        /// Money moves: key required, every 5xx unknown, tombstones for 30 days (O2).
        Payment = "payment",
    }
}

choice! {
    /// Whether a route is protected.
    Mode {
        /// Keys are honoured.
        Protect = "protect",
        /// Recorded and reported; never blocked or replayed (A8).
        Observe = "observe",
        /// Forwarded as if there were no keys.
        Off = "off",
    }
}

choice! {
    /// How the key header is read (K2).
    KeySyntax {
        /// A structured-field string, or the bare form.
        Lenient = "lenient",
        /// A structured-field string only.
        Strict = "strict",
    }
}

choice! {
    /// A method that a key can protect (K7).
    KeyedMethod {
        /// POST.
        Post = "POST",
        /// PATCH.
        Patch = "PATCH",
        /// PUT.
        Put = "PUT",
        /// DELETE.
        Delete = "DELETE",
    }
}

choice! {
    /// What of the body the fingerprint covers (F1, F2).
    FingerprintMode {
        /// Its bytes.
        Raw = "raw",
        /// Its JSON value: member order and white space do not matter.
        Json = "json",
    }
}

choice! {
    /// How query parameters are compared (F5).
    QueryOrder {
        /// As they came.
        Raw = "raw",
        /// Sorted.
        Sorted = "sorted",
    }
}

choice! {
    /// What a claim on an unknown record gets (U1).
    OnUnknown {
        /// 409 `outcome-unknown`; never run again by itself.
        Hold = "hold",
        /// Taken over and run again: for handlers known to be idempotent.
        Retry = "retry",
    }
}

choice! {
    /// What becomes of a run that ended with some status (O1, O2).
    Keep {
        /// The answer is the outcome.
        Keep = "keep",
        /// No outcome; a later request with the same key runs again.
        Retry = "retry",
        /// Nothing happened; the key is new again.
        Release = "release",
        /// Nobody can know.
        Unknown = "unknown",
    }
}

choice! {
    /// Whether the body of an answer is recorded (P2).
    RecordedBody {
        /// It is, up to `max_response_body`.
        Keep = "keep",
        /// Status and headers only.
        Omit = "omit",
    }
}

/// How old a UUIDv7 key may be (K5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaxKeyAge {
    /// Any age.
    Off,
    /// As old as the route's retention: an older one would be taken for new.
    Retention,
    /// A bound of its own, no longer than the retention.
    Within(Duration),
}

impl Setting for MaxKeyAge {
    fn read(written: &Written) -> Result<Self, Fault> {
        match written {
            Written::Text(text) if text == "off" => Ok(Self::Off),
            Written::Text(text) if text == "retention" => Ok(Self::Retention),
            other => Duration::read(other)
                .map(Self::Within)
                .map_err(|fault| fault.hint("\"off\", \"retention\" or a duration")),
        }
    }
    fn write(&self) -> Value {
        match self {
            Self::Off => "off".into(),
            Self::Retention => "retention".into(),
            Self::Within(age) => age.write(),
        }
    }
    fn schema() -> Schema {
        json_schema!({ "anyOf": [{ "enum": ["off", "retention"] }, Duration::schema()] })
    }
}

/// How long id and fingerprint outlive the answer (T2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tombstone(pub(crate) Option<Duration>);

impl Setting for Tombstone {
    fn read(written: &Written) -> Result<Self, Fault> {
        match written {
            Written::Text(text) if text == "off" => Ok(Self(None)),
            other => Duration::read(other).map(|kept| Self(Some(kept))),
        }
    }
    fn write(&self) -> Value {
        self.0.map_or_else(|| "off".into(), |kept| kept.write())
    }
    fn schema() -> Schema {
        json_schema!({ "anyOf": [{ "const": "off" }, Duration::schema()] })
    }
}

/// What a request meets whose key is in progress elsewhere (C4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InProgress {
    /// Waits for the answer, at most so long.
    Wait(Duration),
    /// 409 `in-progress` at once.
    Reject,
}

impl Setting for InProgress {
    fn read(written: &Written) -> Result<Self, Fault> {
        const HINT: &str = "{ wait = \"5s\" } or \"reject\"";
        match written {
            Written::Text(text) if text == "reject" => Ok(Self::Reject),
            Written::Text(text) => {
                Err(Fault::new(format!("{} is not a way to wait", quoted(text))).hint(HINT))
            }
            Written::Table(table) if table.keys().eq(["wait"]) => {
                Duration::read(&table["wait"]).map(Self::Wait)
            }
            Written::Table(_) => {
                Err(Fault::new("this table does not hold `wait` alone").hint(HINT))
            }
            other => Err(other.instead_of("a way to wait").hint(HINT)),
        }
    }
    fn write(&self) -> Value {
        match self {
            Self::Reject => "reject".into(),
            Self::Wait(bound) => {
                Value::Table([("wait".into(), bound.write())].into_iter().collect())
            }
        }
    }
    fn schema() -> Schema {
        json_schema!({
            "anyOf": [
                { "const": "reject" },
                {
                    "type": "object",
                    "properties": { "wait": Duration::schema() },
                    "required": ["wait"],
                    "additionalProperties": false,
                },
            ],
        })
    }
}

/// A status, or all of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StatusKey {
    Class(u16),
    Code(u16),
}

impl StatusKey {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let bad = || {
            Fault::new(format!("{} is not a final status or a class of them", quoted(text)))
                .hint("\"409\" or \"5xx\", for example; from 200 to 599")
        };
        if let Some(class) = text.strip_suffix("xx") {
            let class = class.parse().map_err(|_| bad())?;
            return if (2..=5).contains(&class) { Ok(Self::Class(class)) } else { Err(bad()) };
        }
        if text.len() != 3 {
            return Err(bad());
        }
        let code = text.parse().map_err(|_| bad())?;
        if (200..600).contains(&code) { Ok(Self::Code(code)) } else { Err(bad()) }
    }
}

impl fmt::Display for StatusKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => write!(f, "{class}xx"),
            Self::Code(code) => write!(f, "{code}"),
        }
    }
}

/// The statuses that say themselves that nobody knows (O1).
pub(crate) const SAYS_UNKNOWN: [u16; 4] = [502, 504, 520, 524];

/// What becomes of a run, by the status it ended with.
///
/// A single status is asked first, then its class; so `"5xx" = "keep"` leaves 504 unknown, because
/// 504 stands in the table by itself from the beginning (O1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusTable(pub(crate) BTreeMap<StatusKey, Keep>);

impl StatusTable {
    /// What becomes of a run that ended with `status`; a status out of any class is unknown.
    pub fn keep(&self, status: u16) -> Keep {
        let found = self.0.get(&StatusKey::Code(status));
        let found = found.or_else(|| self.0.get(&StatusKey::Class(status / 100)));
        found.copied().unwrap_or(Keep::Unknown)
    }

    pub(crate) fn set(&mut self, key: StatusKey, keep: Keep) {
        self.0.insert(key, keep);
    }
}

impl Default for StatusTable {
    fn default() -> Self {
        let mut table = BTreeMap::new();
        for class in 2..=4 {
            table.insert(StatusKey::Class(class), Keep::Keep);
        }
        table.insert(StatusKey::Class(5), Keep::Retry);
        for code in [401, 403, 408, 425, 429] {
            table.insert(StatusKey::Code(code), Keep::Release);
        }
        for code in SAYS_UNKNOWN {
            table.insert(StatusKey::Code(code), Keep::Unknown);
        }
        Self(table)
    }
}

/// What counts as the same request (F).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// Bytes or JSON.
    pub mode: FingerprintMode,
    /// Members that do not count.
    pub exclude: Vec<Pointer>,
    /// If there are any, only these members count.
    pub include: Vec<Pointer>,
    /// Headers that count too.
    pub headers: Vec<HeaderName>,
    /// How the query is compared.
    pub query: QueryOrder,
}

/// Which headers a replay bears (P2), beside what is replayed by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replay {
    /// Replayed although off by default.
    pub allow: Vec<HeaderName>,
    /// Never replayed.
    pub deny: Vec<HeaderName>,
}

/// Everything that one route, or `[defaults]`, settles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The profile its presets come from.
    pub profile: Profile,
    /// Whether it is protected.
    pub mode: Mode,
    /// Where the key is looked for, in order (K1).
    pub key: Vec<KeySource>,
    /// How the key header is read (K2).
    pub key_syntax: KeySyntax,
    /// Whether a request without a key is refused (K6).
    pub require_key: bool,
    /// The shortest key accepted, 1 to 255 (K5).
    pub min_key_length: u16,
    /// Whether only UUIDs are accepted (K5).
    pub uuid_only: bool,
    /// How old a UUIDv7 key may be (K5).
    pub max_key_age: MaxKeyAge,
    /// Methods whose keys count (K7).
    pub methods: Vec<KeyedMethod>,
    /// Which requests share one key space (S2).
    pub operation: Operation,
    /// Whether the authority is part of the operation (S2).
    pub authority: bool,
    /// What counts as the same request (F).
    pub fingerprint: Fingerprint,
    /// How long an answer is kept (T1).
    pub retention: Duration,
    /// How long id and fingerprint are kept after that (T2).
    pub tombstone: Option<Duration>,
    /// How long a claim holds without renewal (L1).
    pub lease: Duration,
    /// How long a lease is renewed at most (L1).
    pub max_run: Duration,
    /// What a request meets whose key is in progress (C4).
    pub in_progress: InProgress,
    /// What a claim on an unknown record gets (U1).
    pub on_unknown: OnUnknown,
    /// What becomes of a run, by status (O1, O2).
    pub status: StatusTable,
    /// Which headers are replayed (P2).
    pub replay: Replay,
    /// Whether bodies are recorded (P2).
    pub body: RecordedBody,
    /// The longest request body, in bytes (F4).
    pub max_request_body: u64,
    /// The longest answer body that is recorded, in bytes (P3).
    pub max_response_body: u64,
    /// Whether a request runs unprotected while the store cannot be reached (X1).
    pub insecure_pass_through: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: Profile::Ietf,
            mode: Mode::Protect,
            key: vec![KeySource::Header(HeaderName::from_static("idempotency-key"))],
            key_syntax: KeySyntax::Lenient,
            require_key: false,
            min_key_length: 1,
            uuid_only: false,
            max_key_age: MaxKeyAge::Off,
            methods: vec![KeyedMethod::Post, KeyedMethod::Patch],
            operation: Operation::Path,
            authority: false,
            fingerprint: Fingerprint {
                mode: FingerprintMode::Raw,
                exclude: Vec::new(),
                include: Vec::new(),
                headers: Vec::new(),
                query: QueryOrder::Raw,
            },
            retention: Duration::from_secs(24 * 3600),
            tombstone: None,
            lease: Duration::from_secs(30),
            max_run: Duration::from_secs(5 * 60),
            in_progress: InProgress::Wait(Duration::from_secs(5)),
            on_unknown: OnUnknown::Hold,
            status: StatusTable::default(),
            replay: Replay::default(),
            body: RecordedBody::Keep,
            max_request_body: Size::MIB,
            max_response_body: Size::MIB,
            insecure_pass_through: false,
        }
    }
}

impl Settings {
    /// Lays a profile's presets over what is there.
    pub(crate) fn preset(&mut self, profile: Profile) {
        const MONTH: Duration = Duration::from_secs(30 * 86_400);
        self.profile = profile;
        match profile {
            Profile::Ietf => {}
            Profile::Stripe => self.status.set(StatusKey::Class(5), Keep::Keep),
            Profile::Payment => {
                self.require_key = true;
                self.tombstone = Some(MONTH);
                // Single 5xx statuses that were set before would still win over the class.
                self.status.0.retain(|key, _| !matches!(key, StatusKey::Code(500..)));
                self.status.set(StatusKey::Class(5), Keep::Unknown);
                for code in SAYS_UNKNOWN {
                    self.status.set(StatusKey::Code(code), Keep::Unknown);
                }
            }
        }
    }

    /// The age above which a UUIDv7 key is refused, where one is set.
    pub fn oldest_key(&self) -> Option<Duration> {
        match self.max_key_age {
            MaxKeyAge::Off => None,
            MaxKeyAge::Retention => Some(self.retention),
            MaxKeyAge::Within(age) => Some(age),
        }
    }

    /// The retention as the file would write it.
    pub(crate) fn retention_text(&self) -> String {
        duration_text(self.retention)
    }
}

impl Profile {
    /// The status of `key-reused` (H).
    pub fn reuse_status(self) -> http::StatusCode {
        match self {
            Self::Stripe => http::StatusCode::BAD_REQUEST,
            Self::Ietf | Self::Payment => http::StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

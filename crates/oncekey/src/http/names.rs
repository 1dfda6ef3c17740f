//! The headers that oncekey reads and sets.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The client's key.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The record's id, for the handler and for a provider's own idempotency keys.
pub const IDEMPOTENCY_RECORD: HeaderName = HeaderName::from_static("idempotency-record");
/// How often the work was started.
pub const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
/// What the handler says about its run (O3).
pub const IDEMPOTENCY_OUTCOME: HeaderName = HeaderName::from_static("idempotency-outcome");
/// What became of the request (P1).
pub const IDEMPOTENCY_STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// Until when the answer is kept.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// Says that a replay comes without its body (P3).
pub const IDEMPOTENCY_BODY: HeaderName = HeaderName::from_static("idempotency-body");
/// Says that an answer is a replay.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What oncekey sets, and therefore removes from whatever comes in from either side (H). The key
/// itself is not among them.
const OURS: [HeaderName; 7] = [
    IDEMPOTENCY_RECORD,
    IDEMPOTENCY_ATTEMPT,
    IDEMPOTENCY_OUTCOME,
    IDEMPOTENCY_STATUS,
    IDEMPOTENCY_EXPIRES,
    IDEMPOTENCY_BODY,
    IDEMPOTENT_REPLAYED,
];
const ALSO_OURS: [HeaderName; 2] = [
    HeaderName::from_static("idempotency-tenant"),
    HeaderName::from_static("idempotency-operation"),
];

/// Whether oncekey sets the header of this name.
pub(super) fn is_ours(name: &str) -> bool {
    OURS.iter().chain(&ALSO_OURS).any(|ours| ours.as_str() == name)
}

/// Removes every header that oncekey sets.
pub(super) fn strip(headers: &mut HeaderMap) {
    // Most messages have none: one look at the names is cheaper than nine look-ups.
    if headers.keys().any(|name| name.as_str().starts_with("idempoten")) {
        for name in OURS.iter().chain(&ALSO_OURS) {
            headers.remove(name);
        }
    }
}

/// The same for an answer that goes to a layer of ours in front: what the handler says about its
/// run is for the layer that keeps the record (S7).
pub(super) fn strip_for_the_keeper(headers: &mut HeaderMap) {
    let said: Vec<_> = headers.get_all(&IDEMPOTENCY_OUTCOME).into_iter().cloned().collect();
    strip(headers);
    for value in said {
        headers.append(IDEMPOTENCY_OUTCOME, value);
    }
}

/// What became of a request (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Stored,
    Replayed,
    Retry,
    Released,
    Unknown,
    Unstored,
    Lost,
    Ignored,
    Degraded,
}

impl Status {
    pub(super) fn set(self, headers: &mut HeaderMap) {
        let text = match self {
            Self::Stored => "stored",
            Self::Replayed => "replayed",
            Self::Retry => "retry",
            Self::Released => "released",
            Self::Unknown => "unknown",
            Self::Unstored => "unstored",
            Self::Lost => "lost",
            Self::Ignored => "ignored",
            Self::Degraded => "degraded",
        };
        headers.insert(IDEMPOTENCY_STATUS, HeaderValue::from_static(text));
    }
}

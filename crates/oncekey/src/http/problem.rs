//! What a client is told when its request does not run: problem details (RFC 9457).
//!
//! Every problem has a stable `code`; `type` is the code under `urn:oncekey:problem:` or under a
//! configured base. Statuses may be renamed by a profile; codes never are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::key::RecordId;
use crate::record::Standing;

/// The media type of problem details.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";
/// What `type` begins with unless a base is configured.
const URN: &str = "urn:oncekey:problem:";

/// The stable name of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The route needs a key and the request has none (K6).
    MissingKey,
    /// The key, or a source of it, is malformed (K1, K3, K5).
    InvalidKey,
    /// The request does not say whose it is (S3).
    MissingTenant,
    /// The key was first used by somebody else (S4).
    OtherPrincipal,
    /// The first request with this key is still running (C4).
    InProgress,
    /// Nobody knows how the first request ended (U1, O4).
    OutcomeUnknown,
    /// The key's answer is no longer kept (T2).
    KeyExpired,
    /// The body is larger than what is compared (F4).
    RequestTooLarge,
    /// The body did not arrive in time (408) or broke off (400). Nothing ran.
    RequestIncomplete,
    /// The bodies of other requests take all the room there is (X6). Nothing ran.
    Overloaded,
    /// The key was first used for another request (C3).
    KeyReused,
    /// Nothing was sent to the application (O4).
    UpstreamUnreachable,
    /// The store was not reached; nothing ran (X1).
    StoreUnavailable,
    /// The store takes no new keys (X5).
    StoreFull,
    /// The key's record cannot be read (X3).
    RecordUnreadable,
    /// The process is stopping (U5).
    Draining,
}

impl Code {
    const ALL: [Self; 16] = [
        Self::MissingKey,
        Self::InvalidKey,
        Self::MissingTenant,
        Self::OtherPrincipal,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::KeyExpired,
        Self::RequestTooLarge,
        Self::RequestIncomplete,
        Self::Overloaded,
        Self::KeyReused,
        Self::UpstreamUnreachable,
        Self::StoreUnavailable,
        Self::StoreFull,
        Self::RecordUnreadable,
        Self::Draining,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingKey => "missing-key",
            Self::InvalidKey => "invalid-key",
            Self::MissingTenant => "missing-tenant",
            Self::OtherPrincipal => "other-principal",
            Self::InProgress => "in-progress",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::KeyExpired => "key-expired",
            Self::RequestTooLarge => "request-too-large",
            Self::RequestIncomplete => "request-incomplete",
            Self::Overloaded => "overloaded",
            Self::KeyReused => "key-reused",
            Self::UpstreamUnreachable => "upstream-unreachable",
            Self::StoreUnavailable => "store-unavailable",
            Self::StoreFull => "store-full",
            Self::RecordUnreadable => "record-unreadable",
            Self::Draining => "draining",
        }
    }

    /// The code with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == name)
    }

    /// The status that the `ietf` profile uses.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::MissingKey | Self::InvalidKey | Self::MissingTenant => StatusCode::BAD_REQUEST,
            Self::OtherPrincipal => StatusCode::FORBIDDEN,
            Self::InProgress | Self::OutcomeUnknown => StatusCode::CONFLICT,
            Self::KeyExpired => StatusCode::GONE,
            Self::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestIncomplete => StatusCode::REQUEST_TIMEOUT,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::UpstreamUnreachable => StatusCode::BAD_GATEWAY,
            Self::Overloaded
            | Self::StoreUnavailable
            | Self::StoreFull
            | Self::RecordUnreadable
            | Self::Draining => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::MissingKey => "This request needs an idempotency key",
            Self::InvalidKey => "The idempotency key is not valid",
            Self::MissingTenant => "The request does not say whose it is",
            Self::OtherPrincipal => "The key belongs to somebody else",
            Self::InProgress => "The first request with this key is still running",
            Self::OutcomeUnknown => "Nobody knows how the first request ended",
            Self::KeyExpired => "The answer for this key is no longer kept",
            Self::RequestTooLarge => "The request body is too large",
            Self::RequestIncomplete => "The request body did not arrive",
            Self::Overloaded => "The server holds too many request bodies",
            Self::KeyReused => "The key was used for another request",
            Self::UpstreamUnreachable => "The application cannot be reached",
            Self::StoreUnavailable => "Keys cannot be looked up at the moment",
            Self::StoreFull => "No new keys are taken at the moment",
            Self::RecordUnreadable => "The record of this key cannot be read",
            Self::Draining => "The server is stopping",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::MissingKey => "Send a fresh random key in the Idempotency-Key header.",
            Self::InvalidKey => "Correct the key and send the request again.",
            Self::MissingTenant => "Send the request with exactly one tenant.",
            Self::OtherPrincipal => "Sign in as at first, or use a key of your own.",
            Self::InProgress => "Send the same request with the same key again a little later.",
            Self::OutcomeUnknown => {
                "Do not repeat the operation with a new key: it may have happened. Ask again with \
                 the same key, or wait until it is resolved."
            }
            Self::KeyExpired => "Check the first operation before you start a new one.",
            Self::RequestTooLarge => "Nothing ran. Send a smaller body.",
            Self::RequestIncomplete => "Nothing ran. Send the request again with the same key.",
            Self::KeyReused => {
                "Use a new key only if this is a new operation and the first one's end is known."
            }
            Self::UpstreamUnreachable => "Nothing was sent. Send the request again.",
            Self::RecordUnreadable => {
                "Do not repeat the operation with a new key: it may have happened. Nothing runs \
                 with this key until its record was looked at."
            }
            Self::Overloaded | Self::StoreUnavailable | Self::StoreFull | Self::Draining => {
                "Nothing ran. Send the request again with the same key."
            }
        }
    }
}

/// A problem on its way to the client. Also found among a response's extensions, so that a layer
/// around this one knows it without reading the body (S7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    status: StatusCode,
    detail: Option<String>,
    retry_after: Option<Duration>,
    record: Option<RecordId>,
    first: Option<Standing>,
    base: Option<Arc<str>>,
}

impl Problem {
    /// The problem with this code and its own status.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self {
            code,
            status: code.status(),
            detail: None,
            retry_after: None,
            record: None,
            first: None,
            base: None,
        }
    }

    /// The problem's code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Answers with another status.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Says what exactly is wrong. Never repeats a key or a body.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// Says when to come again: rounded up to whole seconds, between 1 and 30 (C4).
    #[must_use]
    pub fn with_retry_after(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }

    /// Names the record.
    #[must_use]
    pub fn with_record(self, record: RecordId) -> Self {
        Self { record: Some(record), ..self }
    }

    /// Says where the first request with the key stands.
    #[must_use]
    pub fn with_first(self, first: Standing) -> Self {
        Self { first: Some(first), ..self }
    }

    /// Puts the type under a base URL of the operator's.
    #[must_use]
    pub fn with_base(self, base: Option<Arc<str>>) -> Self {
        Self { base, ..self }
    }

    /// The seconds of `Retry-After`.
    fn retry_seconds(&self) -> Option<u64> {
        self.retry_after.map(|after| {
            let whole = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            whole.clamp(1, 30)
        })
    }

    /// The problem as a response. Never cacheable; itself among the extensions.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        let mut body = serde_json::Map::new();
        let base = self.base.as_deref().unwrap_or(URN);
        body.insert("type".into(), format!("{base}{}", self.code.as_str()).into());
        body.insert("title".into(), self.code.title().into());
        body.insert("status".into(), self.status.as_u16().into());
        let advice = self.code.advice();
        let detail = match &self.detail {
            Some(detail) => format!("{detail}. {advice}"),
            None => advice.to_owned(),
        };
        body.insert("detail".into(), detail.into());
        body.insert("code".into(), self.code.as_str().into());
        let retry = self.retry_seconds();
        if let Some(seconds) = retry {
            body.insert("retry_after".into(), seconds.into());
        }
        if let Some(record) = self.record {
            body.insert("record".into(), record.to_string().into());
        }
        if let Some(first) = self.first {
            body.insert("first".into(), first.as_str().into());
        }
        let text = serde_json::Value::Object(body).to_string();
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = retry {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }

    /// The code of a problem that another oncekey in the chain answered with (S7): told by its
    /// type, under the URN or under `base`.
    pub(super) fn code_in(body: &[u8], base: Option<&str>) -> Option<Code> {
        let value: serde_json::Value = serde_json::from_slice(body).ok()?;
        let kind = value.get("type")?.as_str()?;
        let name =
            kind.strip_prefix(URN).or_else(|| base.and_then(|base| kind.strip_prefix(base)))?;
        Code::from_name(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h_a_problem_says_what_happened_and_what_to_do() {
        let problem = Problem::new(Code::KeyReused)
            .with_first(Standing::Unknown)
            .with_record(RecordId::from_bytes([1; 32]))
            .with_retry_after(Duration::from_millis(1_200));
        let response = problem.into_response();
        assert_eq!(response.status(), 422);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["retry-after"], "2");
        let body: serde_json::Value = serde_json::from_slice(response.body()).expect("JSON");
        assert_eq!(body["type"], "urn:oncekey:problem:key-reused");
        assert_eq!(body["code"], "key-reused");
        assert_eq!(body["status"], 422);
        assert_eq!(body["first"], "unknown");
        assert_eq!(body["retry_after"], 2);
        assert_eq!(body["record"], "01".repeat(32));
        assert!(body["title"].is_string() && body["detail"].is_string());
    }

    #[test]
    fn c4_retry_after_lies_between_1_and_30_seconds() {
        let seconds =
            |after| Problem::new(Code::InProgress).with_retry_after(after).retry_seconds();
        assert_eq!(seconds(Duration::ZERO), Some(1));
        assert_eq!(seconds(Duration::from_secs(300)), Some(30));
    }

    #[test]
    fn s7_our_own_problems_are_known_by_their_type() {
        let body = Problem::new(Code::OutcomeUnknown).into_response().into_body();
        assert_eq!(Problem::code_in(&body, None), Some(Code::OutcomeUnknown));
        let base: Arc<str> = "https://errors.example/".into();
        let body =
            Problem::new(Code::Draining).with_base(Some(base.clone())).into_response().into_body();
        assert_eq!(Problem::code_in(&body, Some(&base)), Some(Code::Draining));
        assert_eq!(Problem::code_in(&body, None), None);
        assert_eq!(Problem::code_in(br#"{"type":"about:blank"}"#, None), None);
    }
}

//! Header names, cookies, JSON pointers, key sources, and other names that a file gives.

use std::fmt;

use http::HeaderName;
use schemars::{Schema, json_schema};
use toml::Value;

use super::diagnostic::{Fault, quoted};
use super::field::{Setting, Written};

/// Headers that bear a new value for each attempt, or the same one for many operations: neither
/// can be the client's key (B95 of the case list: a correlation id is not an idempotency key).
const TRACING: &[&str] = &[
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "correlation-id",
    "x-trace-id",
    "trace-id",
    "traceparent",
    "tracestate",
    "baggage",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-amzn-trace-id",
    "x-amzn-requestid",
    "x-cloud-trace-context",
    "x-ms-request-id",
    "x-ms-client-request-id",
    "x-datadog-trace-id",
    "x-datadog-parent-id",
    "uber-trace-id",
    "sentry-trace",
    "cf-ray",
    "x-vercel-id",
    "fly-request-id",
];

/// Headers that are the same for many operations of a client.
const SHARED: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "host",
    "content-type",
    "content-length",
    "content-encoding",
    "accept",
    "accept-encoding",
    "accept-language",
    "user-agent",
    "origin",
    "referer",
    "date",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "connection",
    "transfer-encoding",
    "te",
    "upgrade",
];

/// What tracing calls one attempt.
pub(crate) fn is_tracing(name: &HeaderName) -> bool {
    TRACING.contains(&name.as_str())
}

/// Set by the gateway itself, and removed from what clients send (H).
pub(crate) fn is_own(name: &HeaderName) -> bool {
    name.as_str().starts_with("idempoten") && name.as_str() != "idempotency-key"
}

impl Setting for HeaderName {
    fn read(written: &Written) -> Result<Self, Fault> {
        header(written.text("a header name")?)
    }
    fn write(&self) -> Value {
        self.as_str().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" })
    }
}

pub(crate) fn header(name: &str) -> Result<HeaderName, Fault> {
    const LONGEST: usize = 256;
    let parsed = HeaderName::from_bytes(name.as_bytes()).ok().filter(|_| name.len() <= LONGEST);
    parsed.ok_or_else(|| {
        Fault::new(format!("{} is not a header name", quoted(name)))
            .hint("letters, digits and hyphens, such as \"X-Tenant-Id\"")
    })
}

/// A JSON pointer (RFC 6901) to a member, never to the whole document.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pointer(String);

impl Pointer {
    /// The text of the pointer, which begins with `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        const LONGEST: usize = 512;
        const DEEPEST: usize = 32;
        let bad = |why: &str| Fault::new(format!("{} is not a JSON pointer: {why}", quoted(text)));
        if !text.starts_with('/') {
            return Err(bad("it does not begin with `/`").hint(format!(
                "write \"/{}\"",
                text.trim_start_matches(['.', '$']).replace('.', "/")
            )));
        }
        if text.len() > LONGEST || text.matches('/').count() > DEEPEST {
            return Err(
                bad("it is too long").hint(format!("at most {LONGEST} bytes and {DEEPEST} levels"))
            );
        }
        let mut parts = text.split('~');
        parts.next();
        if parts.any(|after| !after.starts_with(['0', '1'])) {
            return Err(bad("a `~` is not followed by 0 or 1").hint("`~0` is `~`, `~1` is `/`"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Setting for Pointer {
    fn read(written: &Written) -> Result<Self, Fault> {
        Self::parse(written.text("a JSON pointer")?)
    }
    fn write(&self) -> Value {
        self.0.clone().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^/", "maxLength": 512 })
    }
}

/// Where the client's key is looked for (K1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeySource {
    /// A request header.
    Header(HeaderName),
    /// A string in the JSON body.
    Body(Pointer),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
        }
    }
}

impl Setting for KeySource {
    fn read(written: &Written) -> Result<Self, Fault> {
        const HINT: &str = "\"header:Idempotency-Key\" or \"body:/pointer\"";
        let text = written.text("a key source").map_err(|fault| fault.hint(HINT))?;
        if let Some(pointer) = text.strip_prefix("body:") {
            return Pointer::parse(pointer).map(Self::Body);
        }
        let Some(name) = text.strip_prefix("header:") else {
            let fault = Fault::new(format!("{} is not a key source", quoted(text)));
            return Err(fault.hint(HINT));
        };
        let name = header(name)?;
        let refused = |why: &str| {
            Fault::new(format!("the header {} cannot be the key: {why}", quoted(name.as_str())))
                .hint("let the client send \"Idempotency-Key\", made once for each operation")
        };
        if is_tracing(&name) {
            return Err(refused("tracing gives each attempt a value of its own"));
        }
        if SHARED.contains(&name.as_str()) {
            return Err(refused("it is the same for many operations"));
        }
        if is_own(&name) {
            return Err(refused("it is removed from what clients send"));
        }
        Ok(Self::Header(name))
    }
    fn write(&self) -> Value {
        self.to_string().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^(header:.+|body:/.*)$" })
    }
}

/// The name of a cookie (RFC 6265).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CookieName(String);

impl CookieName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for CookieName {
    fn read(written: &Written) -> Result<Self, Fault> {
        let text = written.text("the name of a cookie")?;
        // A cookie's name has the grammar of a header's, but its case counts.
        if HeaderName::from_bytes(text.as_bytes()).is_err() || text.len() > 256 {
            let fault = Fault::new(format!("{} is not the name of a cookie", quoted(text)));
            return Err(fault.hint("the part before `=`, such as \"session\""));
        }
        Ok(Self(text.to_owned()))
    }
    fn write(&self) -> Value {
        self.0.clone().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": 256 })
    }
}

/// The name of a namespace or of an operation: 1 to 64 of letters, digits, `.`, `_`, `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(pub(crate) String);

impl Name {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
            return Err(Fault::new(format!("{} is not a name", quoted(text)))
                .hint("1 to 64 letters, digits, `.`, `_` and `-`"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl Setting for Name {
    fn read(written: &Written) -> Result<Self, Fault> {
        Self::parse(written.text("a name")?)
    }
    fn write(&self) -> Value {
        self.0.clone().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" })
    }
}

/// Which requests share one key space (S2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Method and normalised path.
    Path,
    /// The whole tenant: a key used on another endpoint is a mismatch.
    Tenant,
    /// A name; routes of the same name share it.
    Named(String),
}

impl Setting for Operation {
    fn read(written: &Written) -> Result<Self, Fault> {
        match written.text("\"path\", \"tenant\" or a name")? {
            "path" => Ok(Self::Path),
            "tenant" => Ok(Self::Tenant),
            name => Name::parse(name).map(|name| Self::Named(name.0)),
        }
    }
    fn write(&self) -> Value {
        match self {
            Self::Path => "path".into(),
            Self::Tenant => "tenant".into(),
            Self::Named(name) => name.clone().into(),
        }
    }
    fn schema() -> Schema {
        Name::schema()
    }
}

//! Which requests a route is for.
//!
//! - `POST /api/pay`: a method, or `*` for any, and a path.
//! - `/api/*` matches every path below `/api`, not `/api` itself; `/*` matches every path.
//! - Otherwise the path is compared as a whole. Matching is done on the normalised path (S2), so
//!   one slash at the end makes no difference.

use std::fmt;

use http::Method;
use schemars::{Schema, json_schema};
use toml::Value;

use super::diagnostic::{Fault, quoted};
use super::field::{Setting, Written};

/// A path, or everything below one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPattern {
    /// Without the final `/*`, and without a slash at the end.
    base: String,
    below: bool,
}

impl PathPattern {
    /// Whether a normalised path (no query, no dot segments) matches.
    ///
    /// ```
    /// # use oncekey_gateway::config::PathPattern;
    /// let below: PathPattern = "/api/*".parse().expect("a pattern");
    /// assert!(below.matches("/api/pay"));
    /// assert!(below.matches("/api/pay/7"));
    /// assert!(!below.matches("/api"));
    /// assert!(!below.matches("/apis"));
    /// ```
    pub fn matches(&self, path: &str) -> bool {
        let path = path.strip_suffix('/').unwrap_or(path);
        match path.strip_prefix(self.base.as_str()) {
            Some(rest) if self.below => rest.starts_with('/') || self.base.is_empty(),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }

    /// Whether every path that `other` matches is matched by this one too.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self.below && other.below {
            return self.base == other.base || self.matches(&other.base);
        }
        !other.below && self.matches(&other.base)
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        const LONGEST: usize = 1024;
        let bad = |why: &str| Fault::new(format!("{} is not a path: {why}", quoted(text)));
        if !text.starts_with('/') {
            return Err(bad("it does not begin with `/`").hint("such as \"POST /api/pay\""));
        }
        if text.len() > LONGEST {
            return Err(bad("it is too long").hint(format!("at most {LONGEST} bytes")));
        }
        let (base, below) = match text.strip_suffix("/*") {
            Some(base) => (base, true),
            None => (text.strip_suffix('/').unwrap_or(text), false),
        };
        if base.contains(['*', '{', '}']) || base.split('/').any(|part| part.starts_with(':')) {
            return Err(bad("it has a placeholder").hint("only a final `/*` matches many paths"));
        }
        if base.contains(['?', '#']) {
            return Err(bad("it has a query").hint("a route is chosen by the path alone"));
        }
        if base.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
            return Err(bad("it has an empty or a dot segment").hint("write it as servers see it"));
        }
        check_bytes(base).map_err(|why| bad(why).hint("write it as it stands in a request"))?;
        Ok(Self { base: base.to_owned(), below })
    }
}

/// Bytes that a normalised path can hold; escapes only where they cannot be left out.
fn check_bytes(path: &str) -> Result<(), &'static str> {
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next(), bytes.next()]
                .map(|digit| digit.and_then(|digit| char::from(digit).to_digit(16)));
            let [Some(high), Some(low)] = digits else {
                return Err("a `%` is not followed by two hex digits");
            };
            let decoded = char::from_u32(high * 16 + low).unwrap_or('\0');
            if decoded.is_ascii_alphanumeric() || "-._~".contains(decoded) {
                return Err("it escapes a character that needs no escape");
            }
        } else if !byte.is_ascii_graphic() || b"\"<>\\^`|".contains(&byte) {
            return Err("it has a character that must be escaped");
        }
    }
    Ok(())
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match (self.below, self.base.is_empty()) {
            (true, _) => "/*",
            (false, true) => "/",
            (false, false) => "",
        };
        write!(f, "{}{end}", self.base)
    }
}

/// A pattern that is not one, with what is wrong about it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotAPath(String);

impl std::str::FromStr for PathPattern {
    type Err = NotAPath;

    fn from_str(text: &str) -> Result<Self, NotAPath> {
        Self::parse(text).map_err(|fault| NotAPath(fault.message))
    }
}

/// The `match` of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Match {
    /// None for any method.
    pub(crate) method: Option<Method>,
    pub(crate) path: PathPattern,
}

impl Match {
    pub(crate) fn covers(&self, other: &Self) -> bool {
        (self.method.is_none() || self.method == other.method) && self.path.covers(&other.path)
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.method {
            Some(method) => write!(f, "{method} {}", self.path),
            None => write!(f, "* {}", self.path),
        }
    }
}

const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

impl Setting for Match {
    fn read(written: &Written) -> Result<Self, Fault> {
        const HINT: &str = "a method (or *) and a path, such as \"POST /api/pay\" or \"* /api/*\"";
        let text = written.text("a method and a path").map_err(|fault| fault.hint(HINT))?;
        let mut words = text.split_ascii_whitespace();
        let (Some(method), Some(path), None) = (words.next(), words.next(), words.next()) else {
            let fault = Fault::new(format!("{} is not a method and a path", quoted(text)));
            return Err(fault.hint(HINT));
        };
        let path = PathPattern::parse(path)?;
        if method == "*" {
            return Ok(Self { method: None, path });
        }
        let unknown = || Fault::new(format!("{} is not a method", quoted(method)));
        if !METHODS.contains(&method) {
            return Err(match super::diagnostic::nearest(method, METHODS) {
                Some(known) => unknown().hint(format!("did you mean \"{known}\"?")),
                None => unknown().hint(format!("one of {}, or *", METHODS.join(", "))),
            });
        }
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| unknown())?;
        Ok(Self { method: Some(method), path })
    }
    fn write(&self) -> Value {
        self.to_string().into()
    }
    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^(\*|[A-Z]+) +/",
            "examples": ["POST /api/pay", "* /api/*"],
        })
    }
}

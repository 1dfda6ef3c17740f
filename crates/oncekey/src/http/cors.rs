//! Answers of our own for browsers of other origins (P2).
//!
//! The application's own answers carry the application's own permission; what it cannot know is
//! that our headers should be readable, and that a problem of ours must be.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    HeaderMap, HeaderValue, VARY,
};

const EXPOSED: &str =
    "Idempotency-Status, Idempotent-Replayed, Idempotency-Expires, Idempotency-Body, Retry-After";
const ALLOWED: &str = "Idempotency-Key";

/// The origins whose pages may read our answers; `*` stands for every origin.
#[derive(Clone, Debug, Default)]
pub struct Cors {
    origins: Vec<HeaderValue>,
}

/// Who wrote an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    Us,
    Inner,
}

impl Cors {
    /// Answers pages of these origins.
    #[must_use]
    pub fn new(origins: Vec<HeaderValue>) -> Self {
        Self { origins }
    }

    pub(super) fn answers(&self, origin: Option<&HeaderValue>) -> bool {
        let listed = |known: &HeaderValue, origin| known == origin || known == "*";
        origin.is_some_and(|origin| self.origins.iter().any(|known| listed(known, origin)))
    }

    /// Completes the answer to a request from `origin`.
    pub(super) fn complete(&self, origin: &HeaderValue, author: Author, headers: &mut HeaderMap) {
        if author == Author::Us && !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.append(VARY, HeaderValue::from_static("Origin"));
        }
        headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        // A preflight that allows some headers allows the key too.
        let allows: Vec<_> = headers.get_all(ACCESS_CONTROL_ALLOW_HEADERS).into_iter().collect();
        let lists_key = allows.iter().any(|value| {
            let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            text.split(',').any(|name| matches!(name.trim(), "*" | "idempotency-key"))
        });
        if !allows.is_empty() && !lists_key {
            headers.append(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p2_b118_our_headers_are_readable_and_the_key_is_allowed() {
        let origin = HeaderValue::from_static("https://shop.example");
        let cors = Cors::new(vec![origin.clone()]);
        assert!(cors.answers(Some(&origin)));
        assert!(!cors.answers(Some(&HeaderValue::from_static("https://evil.example"))));
        assert!(!cors.answers(None));
        let any = Cors::new(vec![HeaderValue::from_static("*")]);
        assert!(any.answers(Some(&origin)) && !any.answers(None));

        let mut own = HeaderMap::new();
        cors.complete(&origin, Author::Us, &mut own);
        assert_eq!(own[ACCESS_CONTROL_ALLOW_ORIGIN], origin);
        assert_eq!(own[ACCESS_CONTROL_EXPOSE_HEADERS], EXPOSED);

        let mut preflight = HeaderMap::new();
        preflight.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("content-type"));
        cors.complete(&origin, Author::Inner, &mut preflight);
        let allowed: Vec<_> = preflight.get_all(ACCESS_CONTROL_ALLOW_HEADERS).iter().collect();
        assert_eq!(allowed, ["content-type", "Idempotency-Key"]);
        assert!(!preflight.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN), "that is the application's");
    }
}

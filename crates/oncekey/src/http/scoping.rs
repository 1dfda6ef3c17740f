//! Whose request it is: namespace, tenant and principal (S2, S3, S4).
//!
//! 1. Nothing is shared by accident: a [`Scoping`] is made either from a function that names the
//!    tenant or from an explicit [`Scoping::shared`] (S6).
//! 2. A tenant that is absent or empty is an error, never the shared one (S3).
//! 3. The principal is what a function verified, else a keyed digest of the credentials (S4).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::Uri;
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName};
use http::request::Parts;

use super::policy::{Authority, Operation, Policy};
use crate::fingerprint::{Frames, Secret};
use crate::key::Scope;
use crate::record::Principal;

type TenantOf = dyn Fn(&Parts) -> Option<String> + Send + Sync;
type PrincipalOf = dyn Fn(&Parts) -> Option<Principal> + Send + Sync;
type TrustedPeer = dyn Fn(&Parts) -> Trust + Send + Sync;

/// Whether a request comes from a peer that may speak for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It may: its `Idempotency-Record` is believed (S7).
    Trusted,
    /// It may not.
    Untrusted,
}

/// Where keys are unique, and how callers are told apart.
#[derive(Clone)]
pub struct Scoping {
    namespace: Arc<str>,
    tenant: Tenant,
    principal: Option<Arc<PrincipalOf>>,
    credentials: Vec<HeaderName>,
    cookies: Vec<String>,
    trusted: Option<Arc<TrustedPeer>>,
}

#[derive(Clone)]
enum Tenant {
    Shared(Arc<str>),
    Of(Arc<TenantOf>),
}

/// The longest tenant, in bytes.
const MAX_TENANT: usize = 255;

/// The request does not say whose it is (S3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tenant is absent, empty or not unique")]
pub struct MissingTenant;

impl Scoping {
    /// One tenant for all callers. Principals still tell them apart where they have credentials.
    #[must_use]
    pub fn shared() -> Self {
        Self::with(Tenant::Shared("shared".into()))
    }

    /// The tenant that `of` finds; `None` is an error for the client (S3).
    pub fn by_tenant(of: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::with(Tenant::Of(Arc::new(of)))
    }

    fn with(tenant: Tenant) -> Self {
        Self {
            namespace: "main".into(),
            tenant,
            principal: None,
            credentials: vec![AUTHORIZATION],
            cookies: Vec::new(),
            trusted: None,
        }
    }

    /// Separates services that share one store; `main` by default.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The principal that `of` verified; where it finds none, the credentials count.
    #[must_use]
    pub fn with_principal(
        mut self,
        of: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static,
    ) -> Self {
        self.principal = Some(Arc::new(of));
        self
    }

    /// Headers and cookies that tell callers apart, beside `Authorization`.
    #[must_use]
    pub fn with_credentials(mut self, headers: Vec<HeaderName>, cookies: Vec<String>) -> Self {
        self.credentials.extend(headers);
        self.cookies.extend(cookies);
        self
    }

    /// Which peers' `Idempotency-Record` is believed (S7); nobody's by default.
    #[must_use]
    pub fn with_trusted(
        mut self,
        trusted: impl Fn(&Parts) -> Trust + Send + Sync + 'static,
    ) -> Self {
        self.trusted = Some(Arc::new(trusted));
        self
    }

    pub(super) fn trust(&self, parts: &Parts) -> Trust {
        self.trusted.as_ref().map_or(Trust::Untrusted, |trusted| trusted(parts))
    }

    /// The scope of a request.
    pub(super) fn scope(&self, parts: &Parts, policy: &Policy) -> Result<Scope, MissingTenant> {
        let tenant = match &self.tenant {
            Tenant::Shared(name) => Arc::clone(name),
            Tenant::Of(of) => {
                let tenant = of(parts).ok_or(MissingTenant)?;
                if tenant.trim().is_empty() || tenant.len() > MAX_TENANT {
                    return Err(MissingTenant);
                }
                tenant.into()
            }
        };
        let operation = operation(parts, policy);
        Ok(Scope { namespace: Arc::clone(&self.namespace), tenant, operation })
    }

    /// Who sent the request (S4).
    pub(super) fn principal(&self, parts: &Parts, secret: &Secret) -> Principal {
        if let Some(principal) = self.principal.as_ref().and_then(|of| of(parts)) {
            return principal;
        }
        let mut input = None;
        let mut count = |name: &str, value: &[u8]| {
            let input = input.get_or_insert_with(|| Frames::of("oncekey principal"));
            input.add(name.as_bytes());
            input.add(value);
        };
        for name in &self.credentials {
            for value in parts.headers.get_all(name) {
                count(name.as_str(), value.as_bytes());
            }
        }
        for name in &self.cookies {
            for value in cookies(&parts.headers, name) {
                count(name, value);
            }
        }
        match input {
            Some(input) => Principal::hashed(&secret.digest(&input)),
            None => Principal::anonymous(),
        }
    }
}

impl fmt::Debug for Scoping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoping").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// The values of the cookie `name`, in order.
fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(COOKIE)
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .filter_map(move |pair| {
            let pair = pair.trim_ascii();
            let at = pair.iter().position(|byte| *byte == b'=')?;
            (&pair[..at] == name.as_bytes()).then(|| &pair[at + 1..])
        })
}

fn operation(parts: &Parts, policy: &Policy) -> Arc<str> {
    let what = match &policy.operation {
        Operation::Path => {
            let path = normalised(parts.uri.path());
            let mut text = String::with_capacity(parts.method.as_str().len() + 1 + path.len());
            text.push_str(parts.method.as_str());
            text.push(' ');
            text.push_str(&path);
            text
        }
        Operation::Named(name) => return with_authority(name, parts, policy),
        Operation::Tenant => String::from("*"),
    };
    with_authority(&what, parts, policy)
}

fn with_authority(what: &str, parts: &Parts, policy: &Policy) -> Arc<str> {
    match policy.authority {
        Authority::Ignored => what.into(),
        Authority::Counted => format!("{} {what}", authority(&parts.uri, &parts.headers)).into(),
    }
}

/// The host that a request is for, in lower case and without its port: a tenant, where each has a
/// host of its own. None where the request names no host, or more than one.
#[must_use]
pub fn host_of(parts: &Parts) -> Option<String> {
    if parts.headers.get_all(http::header::HOST).iter().count() > 1 {
        return None;
    }
    let text = authority(&parts.uri, &parts.headers);
    let authority: http::uri::Authority = text.parse().ok()?;
    Some(authority.host().to_owned())
}

/// The host and port that the request is for, in one spelling: in lower case, without the root's
/// dot, and without a port that its scheme implies (RFC 9110, 4.2.3).
fn authority(uri: &Uri, headers: &HeaderMap) -> String {
    let authority = uri
        .authority()
        .map(|authority| authority.as_str())
        .or_else(|| headers.get(http::header::HOST).and_then(|value| value.to_str().ok()));
    let text = authority.unwrap_or_default().to_ascii_lowercase();
    let (host, port) = match text.rsplit_once(':') {
        // Not a colon inside of an address in brackets.
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => (host, port),
        _ => (&*text, ""),
    };
    let host = host.trim_end_matches('.');
    match port {
        "" | "80" | "443" => host.to_owned(),
        port => format!("{host}:{port}"),
    }
}

/// The path in one spelling (S2): unreserved bytes percent-decoded and the hex digits of the rest
/// in upper case (RFC 3986 section 6.2.2), dot segments removed, one trailing slash ignored.
#[must_use]
pub fn normalised(path: &str) -> Cow<'_, str> {
    let simple = path.len() > 1 && path.starts_with('/') && !path.ends_with('/');
    if simple && !path.contains('%') && !path.contains("/.") {
        // The usual case: it has that spelling already.
        return Cow::Borrowed(path);
    }
    let decoded = decode_unreserved(path);
    let mut kept: Vec<&str> = Vec::new();
    for segment in decoded.strip_prefix('/').unwrap_or(&decoded).split('/') {
        match segment {
            "." => {}
            ".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    if kept.len() > 1 && kept.last().is_some_and(|last| last.is_empty()) {
        kept.pop();
    }
    let mut text = String::with_capacity(decoded.len() + 1);
    for segment in &kept {
        text.push('/');
        text.push_str(segment);
    }
    if text.is_empty() {
        text.push('/');
    }
    Cow::Owned(text)
}

fn decode_unreserved(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut text = String::with_capacity(path.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|byte| char::from(*byte).to_digit(16));
        if bytes[at] == b'%'
            && let (Some(high), Some(low)) = (hex(at + 1), hex(at + 2))
        {
            let byte = u8::try_from(high * 16 + low).unwrap_or(b'%');
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
            at += 3;
        } else {
            // A URI's path is ASCII; anything else keeps its own character.
            let rest = path.get(at..).and_then(|rest| rest.chars().next()).unwrap_or('\u{fffd}');
            text.push(rest);
            at += rest.len_utf8();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(request: http::request::Builder) -> Parts {
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn s2_paths_are_compared_in_one_spelling() {
        for (path, spelling) in [
            ("/pay", "/pay"),
            ("/pay/", "/pay"),
            ("/pay//", "/pay/"),
            ("/%70ay", "/pay"),
            ("/a/./b/../pay", "/a/pay"),
            ("/../../pay", "/pay"),
            ("/%2e%2e/pay", "/pay"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%zz", "/a%zz"),
            ("/a%2", "/a%2"),
            ("/", "/"),
            ("", "/"),
        ] {
            assert_eq!(normalised(path), spelling, "{path}");
        }
        assert_ne!(normalised("/tickets/1"), normalised("/tickets/2"));
        assert_ne!(normalised("/a//b"), normalised("/a/b"));
    }

    #[test]
    fn s2_the_host_counts_only_where_the_policy_says_so() {
        let request = |host: &str| parts(http::Request::post("/pay").header("host", host));
        let mut policy = Policy::default();
        let scoping = Scoping::shared();
        let operation = |policy: &Policy, host| {
            scoping.scope(&request(host), policy).expect("a scope").operation
        };
        assert_eq!(operation(&policy, "a.example"), operation(&policy, "b.example"));
        policy.authority = Authority::Counted;
        assert_ne!(operation(&policy, "a.example"), operation(&policy, "b.example"));
        for spelling in ["A.EXAMPLE", "a.example.", "a.example:80", "a.example.:443"] {
            assert_eq!(operation(&policy, "a.example"), operation(&policy, spelling), "{spelling}");
        }
        for other in ["a.example:8080", "b.a.example", "a.example.org"] {
            assert_ne!(operation(&policy, "a.example"), operation(&policy, other), "{other}");
        }
        assert_eq!(operation(&policy, "[::1]"), operation(&policy, "[::1]:80"));
        assert_ne!(operation(&policy, "[::1]"), operation(&policy, "[::2]"));
    }

    #[test]
    fn s3_a_tenant_is_never_assumed() {
        let scoping = Scoping::by_tenant(|parts| {
            parts
                .headers
                .get("tenant")
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into())
        });
        let of = |request| scoping.scope(&parts(request), &Policy::default());
        assert_eq!(of(http::Request::post("/")), Err(MissingTenant));
        assert_eq!(of(http::Request::post("/").header("tenant", "")), Err(MissingTenant));
        assert_eq!(of(http::Request::post("/").header("tenant", " ")), Err(MissingTenant));
        let acme = of(http::Request::post("/").header("tenant", "acme")).expect("a scope");
        assert_eq!(&*acme.tenant, "acme");
    }

    #[test]
    fn s4_credentials_tell_callers_apart_and_their_absence_is_anonymous() {
        let secret = Secret::from_bytes([1; 32]);
        let scoping = Scoping::shared().with_credentials(Vec::new(), vec!["sid".into()]);
        let who = |request| scoping.principal(&parts(request), &secret);
        let anonymous = who(http::Request::post("/"));
        assert_eq!(anonymous, Principal::anonymous());
        let one = who(http::Request::post("/").header("authorization", "Bearer 1"));
        let two = who(http::Request::post("/").header("authorization", "Bearer 2"));
        assert_ne!(one, two);
        let cookie = |text: &str| who(http::Request::post("/").header("cookie", text));
        assert_eq!(cookie("a=1; sid=7; b=2"), cookie("sid=7"));
        assert_ne!(cookie("sid=7"), cookie("sid=8"));
        assert_eq!(cookie("xsid=7"), Principal::anonymous());
        // More credentials leave those that were named before.
        let scoping = scoping.with_credentials(Vec::new(), vec!["other".into()]);
        let cookie = |text: &str| {
            let request = http::Request::post("/").header("cookie", text);
            scoping.principal(&parts(request), &secret)
        };
        assert_ne!(cookie("sid=7"), cookie("sid=8"));
        assert_ne!(cookie("other=7"), cookie("other=8"));
        assert!(!format!("{one:?}").contains("Bearer"));
    }
}

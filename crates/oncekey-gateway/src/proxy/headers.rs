//! Which header fields cross the gateway, and which it adds.
//!
//! 1. What belongs to one connection stays on it, in both directions: `Connection` and what it
//!    names, `Keep-Alive`, `Proxy-*`, `TE` but for `trailers`, `Transfer-Encoding`, `Upgrade`
//!    (RFC 9110, 7.6.1).
//! 2. `Connection` cannot name away what the exchange needs: `Host`, `Content-Length`, and the
//!    `Idempotency-*` fields that the gateway itself has set.
//! 3. `Forwarded` (RFC 7239), `X-Forwarded-For` and `Via` are lists: the gateway adds its entry
//!    behind those that came. `X-Forwarded-Proto` and `-Host` hold one value that only the first
//!    proxy knows, so they are set only where they are absent.
//! 4. A body is framed once: beside `Transfer-Encoding` a `Content-Length` is dropped, 204 and 304
//!    carry none (rule P4).

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, TE, TRANSFER_ENCODING, UPGRADE,
    VIA,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version, request, response};
use hyper::ext::ReasonPhrase;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// How much earlier than the application a kept connection is given up (rule O4).
const EARLIER: Duration = Duration::from_secs(1);

/// No promise of an application makes a connection be kept longer.
const LONGEST_KEPT: u64 = 600;

/// The members of a list field, over all its lines, without the white space around them.
pub(super) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// Makes the head of a client's request fit for the application.
///
/// # Errors
/// The status of the refusal where RFC 9112 (3.2) demands one: no `Host`, several, or one that is
/// no host.
pub(super) fn request(
    parts: &mut request::Parts,
    peer: Option<SocketAddr>,
    authority: &HeaderValue,
) -> Result<(), StatusCode> {
    settle_host(parts, authority)?;
    let headers = &mut parts.headers;
    let trailers = headers.contains_key(TE)
        && tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case(b"trailers"));
    strip(headers);
    if trailers {
        // The field names itself as one of this connection (RFC 9110, 10.1.4).
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if headers.get(EXPECT).is_some_and(|e| e.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        // Answered by the gateway's own connection as soon as the body is asked for.
        headers.remove(EXPECT);
    }
    if parts.version == Version::HTTP_2 {
        join_cookies(headers);
    }
    forwarded(headers, peer);
    let via = match parts.version {
        Version::HTTP_2 => "2.0 oncekey",
        Version::HTTP_10 => "1.0 oncekey",
        _ => "1.1 oncekey",
    };
    append(headers, VIA, HeaderValue::from_static(via));
    Ok(())
}

/// Whether a request says for which host it is, and says one thing: `Host` on one line, or on none
/// where the target names the host or the client is too old to know the field (RFC 9112, 3.2), and
/// no user's name beside it (RFC 9110, 4.2.4).
pub(crate) fn names_one_host(uri: &Uri, headers: &HeaderMap, version: Version) -> bool {
    let target = uri.authority();
    if target.is_some_and(|target| target.as_str().contains('@')) {
        return false;
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => is_host(host),
        (Some(_), Some(_)) => false,
        (None, _) => target.is_some() || version != Version::HTTP_11,
    }
}

/// Origin form, and one `Host`: that of the request target where it names one.
fn settle_host(parts: &mut request::Parts, authority: &HeaderValue) -> Result<(), StatusCode> {
    if !names_one_host(&parts.uri, &parts.headers, parts.version) {
        return Err(StatusCode::BAD_REQUEST);
    }
    if let Some(target) = parts.uri.authority() {
        let host = HeaderValue::from_str(target.as_str()).map_err(|_| StatusCode::BAD_REQUEST)?;
        parts.headers.insert(HOST, host);
        // An absolute form without a path has an empty one, which would be no target at all.
        let path = parts.uri.path_and_query().filter(|path| path.as_str() != "/").cloned();
        parts.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    } else if !parts.headers.contains_key(HOST) {
        parts.headers.insert(HOST, authority.clone());
    }
    Ok(())
}

/// Makes the head of the application's answer fit for the client. Returns how long the connection
/// may be kept, where the application said so.
pub(super) fn answer(parts: &mut response::Parts) -> Option<Duration> {
    let keep = keep_alive(&parts.headers);
    strip(&mut parts.headers);
    if matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        parts.headers.remove(CONTENT_LENGTH);
    }
    clean(parts);
    keep
}

/// Whether it is what `Host` may hold: nothing, or host and port without a user. A comma comes from
/// two fields that somebody joined, so it is refused although a name may have one.
fn is_host(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    let of_one_field = !bytes.iter().any(|byte| matches!(byte, b'@' | b','));
    bytes.is_empty() || of_one_field && Authority::try_from(bytes).is_ok()
}

/// The same for a 101, whose `Upgrade` is meant for the client.
pub(super) fn switched(parts: &mut response::Parts) {
    let protocol = parts.headers.get(UPGRADE).cloned();
    strip(&mut parts.headers);
    if let Some(protocol) = protocol {
        parts.headers.insert(UPGRADE, protocol);
    }
    parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    clean(parts);
}

/// The first answer and its replay must be equal bytes, so the application's own wording of the
/// status goes, which no record keeps.
fn clean(parts: &mut response::Parts) {
    parts.extensions.remove::<ReasonPhrase>();
    parts.version = Version::HTTP_11;
}

/// Says that a body of unknown length follows.
pub(super) fn announce_chunks(headers: &mut HeaderMap) {
    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
}

/// Which fields of one connection a head has: one pass over the names, as most have hardly any.
#[derive(Default)]
struct Found {
    connection: bool,
    keep_alive: bool,
    te: bool,
    transfer_encoding: bool,
    upgrade: bool,
    http2_settings: bool,
    proxy: bool,
}

fn strip(headers: &mut HeaderMap) {
    let mut found = Found::default();
    for name in headers.keys() {
        match name.as_str() {
            "connection" => found.connection = true,
            "keep-alive" => found.keep_alive = true,
            "te" => found.te = true,
            "transfer-encoding" => found.transfer_encoding = true,
            "upgrade" => found.upgrade = true,
            "http2-settings" => found.http2_settings = true,
            other => found.proxy |= other.starts_with("proxy-"),
        }
    }
    if found.connection {
        for name in named(headers) {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    if found.transfer_encoding {
        headers.remove(TRANSFER_ENCODING);
        headers.remove(CONTENT_LENGTH);
    }
    for (present, name) in [
        (found.keep_alive, KEEP_ALIVE),
        (found.te, TE),
        (found.upgrade, UPGRADE),
        (found.http2_settings, HTTP2_SETTINGS),
    ] {
        if present {
            headers.remove(name);
        }
    }
    if found.proxy {
        let names: Vec<_> =
            headers.keys().filter(|name| name.as_str().starts_with("proxy-")).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

/// The fields that `Connection` names, without the options that are no fields and without those
/// that it may not name.
fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    let may = |name: &HeaderName| {
        *name != HOST && *name != CONTENT_LENGTH && !name.as_str().starts_with("idempotency-")
    };
    tokens(headers, &CONNECTION)
        .filter(|token| {
            !token.eq_ignore_ascii_case(b"keep-alive") && !token.eq_ignore_ascii_case(b"close")
        })
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(may)
        .collect()
}

/// `Keep-Alive: timeout=N` less the second that we are earlier.
fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    if !headers.contains_key(KEEP_ALIVE) {
        return None;
    }
    tokens(headers, &KEEP_ALIVE).find_map(|parameter| {
        let (name, value) = std::str::from_utf8(parameter).ok()?.split_once('=')?;
        if !name.trim_end().eq_ignore_ascii_case("timeout") {
            return None;
        }
        let seconds: u64 = value.trim().trim_matches('"').parse().ok()?;
        Some(Duration::from_secs(seconds.min(LONGEST_KEPT)).saturating_sub(EARLIER))
    })
}

/// HTTP/2 may send a cookie field in crumbs, HTTP/1.1 may not (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) {
        let crumbs = [first, second].into_iter().chain(crumbs);
        if let Some(whole) = joined(crumbs, b"; ") {
            headers.insert(COOKIE, whole);
        }
    }
}

fn joined<'a>(
    values: impl Iterator<Item = &'a HeaderValue>,
    between: &[u8],
) -> Option<HeaderValue> {
    let mut whole = BytesMut::new();
    for (index, value) in values.enumerate() {
        if index > 0 {
            whole.put_slice(between);
        }
        whole.put_slice(value.as_bytes());
    }
    HeaderValue::from_maybe_shared(whole.freeze()).ok()
}

/// Adds an entry to a list, in the same line: many applications read only one.
fn append(headers: &mut HeaderMap, name: HeaderName, entry: HeaderValue) {
    let whole = match headers.contains_key(&name) {
        true => joined(headers.get_all(&name).iter().chain([&entry]), b", "),
        false => None,
    };
    headers.insert(name, whole.unwrap_or(entry));
}

/// Tells the application who asked, by which name and how.
fn forwarded(headers: &mut HeaderMap, peer: Option<SocketAddr>) {
    let host = headers.get(HOST).cloned();
    let mut entry = Line::new();
    if let Some(peer) = peer {
        let ip = peer.ip().to_canonical();
        let mut address = Line::new();
        address.add(format_args!("{ip}"));
        if let Some(address) = address.value() {
            append(headers, X_FORWARDED_FOR, address);
        }
        match ip {
            IpAddr::V4(ip) => entry.add(format_args!("for={ip};")),
            IpAddr::V6(ip) => entry.add(format_args!("for=\"[{ip}]\";")),
        }
    }
    if let Some(host) = host {
        match host.to_str().ok().filter(|host| !host.contains(['"', '\\', ','])) {
            Some(name) if name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '.') => {
                entry.add(format_args!("host=\"{name}\";"));
            }
            Some(name) => entry.add(format_args!("host={name};")),
            None => {}
        }
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
    entry.add(format_args!("proto=http"));
    if let Some(entry) = entry.value() {
        append(headers, FORWARDED, entry);
    }
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
}

/// A header value under construction.
struct Line(BytesMut);

impl Line {
    fn new() -> Self {
        Self(BytesMut::with_capacity(96))
    }

    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to memory that grows does not fail.
        let _ = self.0.write_fmt(text);
    }

    fn value(self) -> Option<HeaderValue> {
        HeaderValue::from_maybe_shared(Bytes::from(self.0)).ok()
    }
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;

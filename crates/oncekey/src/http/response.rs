//! The answer as it is kept, and as it is replayed (P1, P2, P3).
//!
//! The stored form is one piece of bytes, read back without copying:
//!
//! ```text
//! version:u8 flags:u8 status:u16 origin:len16+bytes
//! count:u16 (name:len16+bytes value:len32+bytes)* body
//! ```
//!
//! Header values are bytes: what is not UTF-8 is kept as it came. The record's codec around it has
//! the checksum.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::names::{self, Status};
use super::policy::ReplayHeaders;
use crate::record::Outcome;

const VERSION: u8 = 1;
const BODY_OMITTED: u8 = 1;
/// The most bytes of headers that are kept (X6).
pub(super) const MAX_HEADERS: usize = 64 << 10;

/// A stored outcome that is no answer of this face.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored answer cannot be read")]
pub(super) struct Unreadable;

/// What is known of the answer's body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept<'a> {
    Body(&'a Bytes),
    Omitted,
}

/// The answer to keep: status, those headers that are kept, body.
pub(super) fn store(
    status: StatusCode,
    headers: &HeaderMap,
    body: Kept<'_>,
    origin: Option<&HeaderValue>,
    lists: &ReplayHeaders,
) -> Outcome {
    let named = connection_names(headers);
    let omitted = matches!(body, Kept::Omitted);
    let length = match body {
        Kept::Body(bytes) => bytes.len(),
        Kept::Omitted => 0,
    };
    let mut out = BytesMut::with_capacity(256 + length);
    out.put_u8(VERSION);
    out.put_u8(if omitted { BODY_OMITTED } else { 0 });
    out.put_u16_le(status.as_u16());
    put_short(&mut out, origin.map_or(&[], |origin| origin.as_bytes()));
    let count_at = out.len();
    out.put_u16_le(0);
    let mut count: u16 = 0;
    for (name, value) in headers {
        let kept = is_kept(name, lists)
            && !named.iter().any(|named| named.eq_ignore_ascii_case(name.as_str().as_bytes()))
            && !(omitted && describes_body(name));
        // A server's header block is bounded well below; this is the last line.
        if !kept {
            continue;
        }
        if out.len() + value.len() > MAX_HEADERS || count == u16::MAX {
            tracing::warn!(header = %name, "a header is beyond what is kept, and not replayed");
            continue;
        }
        put_short(&mut out, name.as_str().as_bytes());
        // Bounded by MAX_HEADERS just above.
        out.put_u32_le(u32::try_from(value.len()).unwrap_or(0));
        out.put_slice(value.as_bytes());
        count += 1;
    }
    out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
    if let Kept::Body(bytes) = body {
        out.put_slice(bytes);
    }
    Outcome::new(out.freeze())
}

/// The same answer as if its body had been too large to keep (P3, X5).
pub(super) fn without_body(outcome: &Outcome) -> Outcome {
    // A store gives back what it was given, and this never left the process.
    omit_body(outcome).unwrap_or_else(|Unreadable| outcome.clone())
}

fn omit_body(outcome: &Outcome) -> Result<Outcome, Unreadable> {
    let mut rest = Reader(outcome.bytes().clone());
    let (version, flags) = (rest.u8()?, rest.u8()?);
    let (status, origin, count) = (rest.u16()?, rest.short()?, rest.u16()?);
    let mut out = BytesMut::with_capacity(256);
    out.put_u8(version);
    out.put_u8(flags | BODY_OMITTED);
    out.put_u16_le(status);
    put_short(&mut out, &origin);
    let count_at = out.len();
    out.put_u16_le(0);
    let mut kept: u16 = 0;
    for _ in 0..count {
        let (name, value) = (rest.short()?, rest.long()?);
        if HeaderName::from_bytes(&name).is_ok_and(|name| describes_body(&name)) {
            continue;
        }
        put_short(&mut out, &name);
        out.put_u32_le(u32::try_from(value.len()).unwrap_or(0));
        out.put_slice(&value);
        kept += 1;
    }
    out[count_at..count_at + 2].copy_from_slice(&kept.to_le_bytes());
    Ok(Outcome::new(out.freeze()))
}

/// The answer that `outcome` keeps, marked as a replay by the caller.
pub(super) fn restore(
    outcome: &Outcome,
    origin: Option<&HeaderValue>,
) -> Result<Response<Bytes>, Unreadable> {
    let mut rest = Reader(outcome.bytes().clone());
    if rest.u8()? != VERSION {
        return Err(Unreadable);
    }
    let flags = rest.u8()?;
    let status = StatusCode::from_u16(rest.u16()?).map_err(|_| Unreadable)?;
    let first_origin = rest.short()?;
    let same_origin = origin.map_or(&[][..], |origin| origin.as_bytes()) == first_origin;
    let count = rest.u16()?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(usize::from(count) + 4);
    for _ in 0..count {
        let name = HeaderName::from_bytes(&rest.short()?).map_err(|_| Unreadable)?;
        let value = HeaderValue::from_maybe_shared(rest.long()?).map_err(|_| Unreadable)?;
        if same_origin || !name.as_str().starts_with("access-control-") {
            headers.append(name, value);
        }
    }
    if flags & BODY_OMITTED != 0 {
        headers.insert(names::IDEMPOTENCY_BODY, HeaderValue::from_static("omitted"));
    }
    *response.body_mut() = rest.0;
    Ok(response)
}

/// Marks a restored answer as a replay (P1).
pub(super) fn mark_replayed(headers: &mut HeaderMap) {
    headers.insert(names::IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    Status::Replayed.set(headers);
}

/// The names that `Connection` lists: they are this hop's.
fn connection_names(headers: &HeaderMap) -> Vec<Vec<u8>> {
    headers
        .get_all(header::CONNECTION)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_vec())
        .collect()
}

fn is_kept(name: &HeaderName, lists: &ReplayHeaders) -> bool {
    if is_never_kept(name.as_str()) || lists.deny.contains(name) {
        return false;
    }
    !is_off_by_default(name.as_str()) || lists.allow.contains(name)
}

/// Of this connection, of this moment, or of this server (P2).
fn is_never_kept(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "date"
            | "age"
            | "via"
            | "server"
            | "server-timing"
            | "content-length"
            | "retry-after"
            | "nel"
            | "report-to"
    ) || name.starts_with("proxy-")
        || names::is_ours(name)
}

/// Credentials, and what belongs to one exchange: kept only where a route allows it (P2).
fn is_off_by_default(name: &str) -> bool {
    matches!(
        name,
        "set-cookie"
            | "www-authenticate"
            | "authentication-info"
            | "alt-svc"
            | "strict-transport-security"
            | "request-id"
            | "x-request-id"
            | "x-correlation-id"
            | "correlation-id"
            | "traceparent"
            | "tracestate"
            | "traceresponse"
            | "x-trace-id"
            | "x-amzn-trace-id"
            | "x-amzn-requestid"
            | "x-cloud-trace-context"
            | "cf-ray"
            | "b3"
    ) || name.starts_with("ratelimit")
        || name.starts_with("x-ratelimit")
        || name.starts_with("x-rate-limit")
        || name.starts_with("x-b3-")
}

/// Says something about the body's bytes, and is wrong without them (P3).
fn describes_body(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "content-encoding"
            | "etag"
            | "digest"
            | "content-digest"
            | "repr-digest"
            | "content-md5"
            | "content-range"
            | "signature"
            | "signature-input"
    )
}

fn put_short(out: &mut BytesMut, bytes: &[u8]) {
    // Names and origins are far shorter. A longer origin is stored as none.
    let length = u16::try_from(bytes.len()).unwrap_or(0);
    out.put_u16_le(length);
    out.put_slice(&bytes[..usize::from(length)]);
}

/// Reads the stored form; every read is bounded by what is there.
struct Reader(Bytes);

impl Reader {
    fn take(&mut self, length: usize) -> Result<Bytes, Unreadable> {
        if self.0.len() < length { Err(Unreadable) } else { Ok(self.0.split_to(length)) }
    }

    fn u8(&mut self) -> Result<u8, Unreadable> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, Unreadable> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn short(&mut self) -> Result<Bytes, Unreadable> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    fn long(&mut self) -> Result<Bytes, Unreadable> {
        let bytes = self.take(4)?;
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.take(usize::try_from(length).map_err(|_| Unreadable)?)
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;

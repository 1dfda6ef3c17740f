//! What a request wishes: its key, whose it is, and its fingerprint (K, S, F).
//!
//! The order matters. Headers are judged before the body is read, so that a malformed key costs
//! nothing; the body is read and hashed before the claim, so that a client that leaves during its
//! upload leaves no record (F4).

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, UPGRADE};
use http::request::Parts;
use http_body::Body;
use http_body_util::BodyExt;

use super::body::{BoxError, RequestBody};
use super::policy::{KeyForm, KeyNeed, KeyRules, KeySource, Mode, Policy, Query};
use super::problem::{Code, Problem};
use super::room::{Buffer, Patience};
use super::scoping::normalised;
use super::service::Front;
use crate::clock::Stamp;
use crate::events::Event;
use crate::fingerprint::{BodyReader, Fingerprint, json, multipart};
use crate::key::{InvalidKey, Key, RecordId};
use crate::record::{Kind, LeaseToken};
use crate::store::{Claim, OnUnknown};

/// When a client whose body found no room should come again.
const AGAIN: Duration = Duration::from_secs(2);

/// What the layer does with a request.
pub(super) enum Wish<B> {
    /// No key: it passes as it is.
    Pass(RequestBody<B>),
    /// It runs once.
    Once(Box<Claim>, Bytes),
    /// It does not run. The body is given back, for a mode that only observes.
    Refused(Problem, RequestBody<B>),
}

/// Reads the wish of a request that keys apply to.
pub(super) async fn wish<B>(front: &Front, policy: &Policy, parts: &mut Parts, body: B) -> Wish<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let in_headers = match header_key(policy, &parts.headers) {
        Ok(key) => key,
        Err(problem) => return Wish::Refused(problem, RequestBody::stream(body)),
    };
    let pointers = policy.keys.iter().any(|source| matches!(source, KeySource::Body(_)));
    if in_headers.is_none() && !pointers {
        return match policy.need {
            KeyNeed::Optional => Wish::Pass(RequestBody::stream(body)),
            KeyNeed::Required => {
                Wish::Refused(Problem::new(Code::MissingKey), RequestBody::stream(body))
            }
        };
    }
    // The key counts, so the protocol is not changed under it (K7).
    parts.headers.remove(UPGRADE);
    let scope = match front.scoping.scope(parts, policy) {
        Ok(scope) => scope,
        Err(_) => {
            let problem = Problem::new(Code::MissingTenant);
            return Wish::Refused(problem, RequestBody::stream(body));
        }
    };
    let (bytes, reader) = match read(front, policy, &parts.headers, body).await {
        Ok(read) => read,
        Err((problem, body)) => return Wish::Refused(*problem, body),
    };
    let key = match key(policy, in_headers, parts, &bytes, front.engine.clock().now()) {
        Ok(Some(key)) => key,
        Ok(None) if policy.need == KeyNeed::Optional => {
            return Wish::Pass(RequestBody::whole(bytes));
        }
        Ok(None) => {
            return Wish::Refused(Problem::new(Code::MissingKey), RequestBody::whole(bytes));
        }
        Err(problem) => return Wish::Refused(problem, RequestBody::whole(bytes)),
    };
    let fingerprint = fingerprint(front, policy, parts, reader);
    let claim = Claim {
        id: RecordId::derive(Kind::Request, &scope, &key),
        kind: Kind::Request,
        scope,
        key,
        principal: front.scoping.principal(parts, &front.secret),
        fingerprint,
        token: LeaseToken::random(),
        lease: policy.lease,
        horizon: policy.horizon,
        // Nobody could be asked here: only an effect's provider knows how its run ended.
        on_unknown: match policy.on_unknown {
            OnUnknown::Ask => OnUnknown::Hold,
            other => other,
        },
        age: Duration::ZERO,
        memo: Bytes::new(),
    };
    Wish::Once(Box::new(claim), bytes)
}

fn invalid(why: InvalidKey) -> Problem {
    Problem::new(Code::InvalidKey).with_detail(sentence(&why.to_string()))
}

fn refused(detail: &str) -> Problem {
    Problem::new(Code::InvalidKey).with_detail(detail)
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The key in the headers. Two sources with different values are an error (K1), and so are two
/// lines of one header, equal or not (K3).
fn header_key(policy: &Policy, headers: &HeaderMap) -> Result<Option<Key>, Problem> {
    let mut found: Option<Key> = None;
    for source in &policy.keys {
        let KeySource::Header(name) = source else { continue };
        let mut lines = headers.get_all(name).into_iter();
        let Some(value) = lines.next() else { continue };
        if lines.next().is_some() {
            return Err(refused("The key header is sent more than once"));
        }
        let key = Key::from_header(value.as_bytes(), policy.syntax).map_err(invalid)?;
        if found.as_ref().is_some_and(|known| *known != key) {
            return Err(refused("Two sources of the key have different values"));
        }
        found = Some(key);
    }
    Ok(found)
}

/// The key, from headers and body together.
fn key(
    policy: &Policy,
    in_headers: Option<Key>,
    parts: &Parts,
    body: &[u8],
    now: Stamp,
) -> Result<Option<Key>, Problem> {
    let mut found = in_headers;
    for source in &policy.keys {
        let KeySource::Body(pointer) = source else { continue };
        let Some(text) = body_key(&parts.headers, body, pointer)? else { continue };
        let key = Key::from_text(&text).map_err(invalid)?;
        if found.as_ref().is_some_and(|known| *known != key) {
            return Err(refused("Two sources of the key have different values"));
        }
        found = Some(key);
    }
    if let Some(key) = &found {
        obeys(&policy.key_rules, key, now)?;
    }
    Ok(found)
}

fn body_key(headers: &HeaderMap, body: &[u8], pointer: &str) -> Result<Option<String>, Problem> {
    if body.is_empty() {
        return Ok(None);
    }
    let media_type = headers.get(CONTENT_TYPE).map(|value| essence(value.as_bytes()));
    let says_json = media_type.as_deref().is_some_and(|essence| {
        essence == b"application/json" || essence.ends_with(b"+json") || essence == b"text/json"
    });
    match json::string_at(body, pointer) {
        Ok(text) => Ok(text),
        // A form or a picture has no members to look for. What claims to be JSON, or claims
        // nothing, must not slip by unprotected because of a stray byte.
        Err(json::NoString::NotJson | json::NoString::TooDeep)
            if media_type.is_some() && !says_json =>
        {
            Ok(None)
        }
        Err(why) => Err(Problem::new(Code::InvalidKey).with_detail(sentence(&why.to_string()))),
    }
}

/// The rules of K5.
fn obeys(rules: &KeyRules, key: &Key, now: Stamp) -> Result<(), Problem> {
    let text = key.as_str();
    if text.len() < rules.min_length {
        return Err(refused("The key is shorter than this route allows"));
    }
    if rules.refused.iter().any(|word| word.eq_ignore_ascii_case(text)) {
        return Err(refused("The key is a word that clients send by mistake"));
    }
    let uuid = uuid_version(text);
    if rules.form == KeyForm::Uuid && uuid.is_none() {
        return Err(refused("The key must be a UUID"));
    }
    if let (Some(max_age), Some((7, millis))) = (rules.max_age, uuid) {
        let made = Stamp::from_micros(millis.saturating_mul(1_000));
        if now.since(made) > max_age {
            return Err(refused("The key was made longer ago than answers are kept"));
        }
    }
    Ok(())
}

/// The version of a UUID in its usual text form, and the 48 bits that are a time in version 7.
fn uuid_version(text: &str) -> Option<(u8, u64)> {
    let bytes = text.as_bytes();
    let dashes = [8, 13, 18, 23];
    let well_formed = bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| {
            if dashes.contains(&at) { *byte == b'-' } else { byte.is_ascii_hexdigit() }
        });
    if !well_formed {
        return None;
    }
    let version = char::from(bytes[14]).to_digit(16)?;
    let millis = u64::from_str_radix(&format!("{}{}", &text[..8], &text[9..13]), 16).ok()?;
    Some((u8::try_from(version).ok()?, millis))
}

/// How long the body says it is.
fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads and hashes the body up to the limit (F4).
async fn read<B>(
    front: &Front,
    policy: &Policy,
    headers: &HeaderMap,
    body: B,
) -> Result<(Bytes, BodyReader), (Box<Problem>, RequestBody<B>)>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    // What can never find room is too large, whatever the policy allows.
    let limit = policy.max_request_body.min(front.room.largest());
    let declared = declared(headers);
    if declared.is_some_and(|length| length > limit as u64) {
        return Err((Problem::new(Code::RequestTooLarge).into(), RequestBody::stream(body)));
    }
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    let mut reader = policy.body.reader(content_type);
    let hashed_at_the_end = reader.keeps();
    let declared = declared.and_then(|length| usize::try_from(length).ok());
    let mut buffer = front.room.buffer(limit, declared, patience(policy));
    // What was read and is not in the buffer.
    let mut unfit = None;
    let mut body = Box::pin(body);
    let collected = {
        let collect = async {
            while !body.is_end_stream() {
                if buffer.expect().await.is_err() {
                    return Some(Code::Overloaded);
                }
                // An error of the body's says nothing that is told, and need not be sent on.
                let frame = body.as_mut().frame().await.map(|frame| frame.map_err(drop));
                let Some(frame) = frame else { break };
                let Ok(frame) = frame else { return Some(Code::RequestIncomplete) };
                let Ok(data) = frame.into_data() else { continue };
                // Kept where it outlives this future: its wait for room may be given up.
                let data = unfit.insert(data);
                if buffer.len() + data.len() > limit {
                    return Some(Code::RequestTooLarge);
                }
                if buffer.push(data).await.is_err() {
                    return Some(Code::Overloaded);
                }
                if !hashed_at_the_end {
                    reader.chunk(data);
                }
                unfit = None;
            }
            // A client that gives up can look like one that came to its end.
            let is_whole = declared.is_none_or(|declared| declared == buffer.len());
            (!is_whole).then_some(Code::RequestIncomplete)
        };
        tokio::time::timeout(policy.body_timeout, pin!(collect)).await
    };
    let (code, status) = match collected {
        Ok(None) => {
            let bytes = buffer.freeze();
            if hashed_at_the_end {
                reader.chunk(&bytes);
            }
            return Ok((bytes, reader));
        }
        Ok(Some(Code::RequestIncomplete)) => (Code::RequestIncomplete, StatusCode::BAD_REQUEST),
        Ok(Some(code)) => (code, code.status()),
        Err(_) if buffer.has_waited() => (Code::Overloaded, Code::Overloaded.status()),
        Err(_) => (Code::RequestIncomplete, Code::RequestIncomplete.status()),
    };
    let problem = unread(front, code).with_status(status);
    Err((Box::new(problem), RequestBody::resumed(read_so_far(buffer, unfit), body)))
}

/// Whoever only looks on makes nobody wait (A8).
fn patience(policy: &Policy) -> Patience {
    match policy.mode {
        Mode::Observe => Patience::None,
        _ => Patience::UntilThereIsRoom,
    }
}

/// What is said about a body that was not read to its end.
fn unread(front: &Front, code: Code) -> Problem {
    if code != Code::Overloaded {
        return Problem::new(code);
    }
    front.engine.note(Event::Overloaded);
    Problem::new(code).with_retry_after(AGAIN)
}

/// What was read of a body that did not come to its end, for a mode that only observes.
fn read_so_far(buffer: Buffer, unfit: Option<Bytes>) -> Bytes {
    let read = buffer.freeze();
    match unfit {
        None => read,
        Some(unfit) if read.is_empty() => unfit,
        Some(unfit) => [read, unfit].concat().into(),
    }
}

/// The fingerprint (F1, F3, F5).
fn fingerprint(front: &Front, policy: &Policy, parts: &Parts, body: BodyReader) -> Fingerprint {
    let mut digest = policy.recipe(&front.secret).digester(&front.secret);
    digest.field(parts.method.as_str().as_bytes());
    digest.field(normalised(parts.uri.path()).as_bytes());
    match (policy.query, parts.uri.query()) {
        (Query::Raw, query) => digest.field(query.unwrap_or_default().as_bytes()),
        (Query::Sorted, query) => {
            let mut pairs: Vec<_> = query.unwrap_or_default().split('&').collect();
            // Stable, so that repeated names keep their order.
            pairs.sort_by_key(|pair| pair.split('=').next().unwrap_or_default().to_owned());
            digest.field(pairs.join("&").as_bytes())
        }
    };
    let content_type = parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    digest.field(&content_type.map(comparable).unwrap_or_default());
    // Which of several lines an application goes by is its own affair.
    for again in parts.headers.get_all(CONTENT_TYPE).iter().skip(1) {
        digest.field(b"content-type again");
        digest.field(&comparable(again.as_bytes()));
    }
    for name in policy.headers.iter().filter(|name| !varies(name)) {
        digest.field(name.as_str().as_bytes());
        let values = parts.headers.get_all(name);
        digest.field(&(values.iter().count() as u64).to_le_bytes());
        for value in values {
            digest.field(value.as_bytes());
        }
    }
    digest.body(body, &policy.body);
    digest.finish()
}

/// The media type alone, in lower case.
fn essence(content_type: &[u8]) -> Vec<u8> {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    content_type[..end].trim_ascii().to_ascii_lowercase()
}

/// The content type without what clients vary: the charset, and the boundary of a form that is
/// digested part by part (F1). Any other boundary is part of how the bytes are read, and counts.
fn comparable(content_type: &[u8]) -> Vec<u8> {
    let varying: &[&[u8]] = match multipart::boundary(content_type) {
        Some(_) => &[b"charset", b"", b"boundary"],
        None => &[b"charset", b""],
    };
    let mut text = essence(content_type);
    for parameter in content_type.split(|byte| *byte == b';').skip(1) {
        let parameter = parameter.trim_ascii();
        let name = parameter.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        if !varying.iter().any(|varies| name.eq_ignore_ascii_case(varies)) {
            text.push(b';');
            text.extend_from_slice(parameter);
        }
    }
    text
}

/// Whether any header that could carry the key is there.
pub(super) fn has_key_header(policy: &Policy, headers: &HeaderMap) -> bool {
    policy.keys.iter().any(|source| match source {
        KeySource::Header(name) => headers.contains_key(name),
        KeySource::Body(_) => false,
    })
}

/// Headers that must never make two tries of one request differ (F3).
fn varies(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "authorization" | "traceparent" | "tracestate" | "date" | "user-agent" | "cookie"
    )
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;

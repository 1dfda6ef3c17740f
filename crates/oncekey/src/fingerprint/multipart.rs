//! Forms of several parts, digested part by part (F2).
//!
//! A client that sends a form again makes up another boundary, so the raw bytes never match.
//!
//! 1. The digest counts the parts in their order: of each the three headers that RFC 7578
//!    (section 4.8) knows in a part, and the content, byte for byte. The boundary does not count.
//! 2. Whatever another parser could read in another way is malformed, and the caller compares raw
//!    bytes: text before or after the parts, bare line feeds, folded headers, a header twice, and
//!    the boundary's text anywhere but in a delimiter. So no content hides from the digest.
//! 3. At most 1000 parts and 32 headers a part; more is malformed too.
//! 4. What a part contains is bytes, even if it is a multipart body itself.
//!
//! ```
//! use oncekey::fingerprint::multipart::{boundary, digest};
//!
//! let form = |name: &str| {
//!     let body = format!(
//!         "--{name}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--{name}--\r\n"
//!     );
//!     let boundary = boundary(format!("multipart/form-data; boundary={name}").as_bytes());
//!     digest(body.as_bytes(), &boundary.expect("a boundary"))
//! };
//! assert!(form("one").is_some());
//! assert_eq!(form("one"), form("other"));
//! ```

use bytes::Bytes;

use super::frame;

/// The longest boundary (RFC 2046 section 5.1.1).
const MAX_BOUNDARY: usize = 70;
/// The most parts of one form.
const MAX_PARTS: usize = 1000;
/// The most headers of one part.
const MAX_HEADERS: usize = 32;
/// The headers of a part that count (RFC 7578 section 4.8); receivers must ignore all others.
const COUNTED: [&str; 3] = ["content-disposition", "content-type", "content-transfer-encoding"];

/// The boundary of a `multipart/form-data` content type.
///
/// `None` for every other type, and where the boundary is missing, given twice, or not 1 to 70
/// of the characters that RFC 2046 allows.
#[must_use]
pub fn boundary(content_type: &[u8]) -> Option<Bytes> {
    let end = content_type.iter().position(|byte| *byte == b';')?;
    if !content_type[..end].trim_ascii().eq_ignore_ascii_case(b"multipart/form-data") {
        return None;
    }
    let mut rest = &content_type[end..];
    let mut found = None;
    while !rest.is_empty() {
        rest = rest.strip_prefix(b";")?.trim_ascii_start();
        // RFC 9110 section 5.6.6 allows an empty place between semicolons.
        if rest.is_empty() || rest[0] == b';' {
            continue;
        }
        let (name, value, after) = parameter(rest)?;
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
            return None;
        }
        rest = after.trim_ascii_start();
    }
    found.filter(|value| is_boundary(value)).map(Bytes::from)
}

/// Splits `name=value` or `name="value"` off; answers name, value and what follows.
fn parameter(text: &[u8]) -> Option<(&[u8], Vec<u8>, &[u8])> {
    let (name, rest) = token(text)?;
    let rest = rest.strip_prefix(b"=")?;
    let Some(quoted) = rest.strip_prefix(b"\"") else {
        let (value, rest) = token(rest)?;
        return Some((name, value.to_vec(), rest));
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => return Some((name, value, &quoted[at + 1..])),
            b'\\' => value.push(*bytes.next()?.1),
            plain => value.push(plain),
        }
    }
    None
}

/// Splits a token (RFC 9110 section 5.6.2) off the front.
fn token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_boundary(value: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    matches!(value.len(), 1..=MAX_BOUNDARY) && value.iter().all(allowed) && !value.ends_with(b" ")
}

/// The digest over the parts of `body`; `None` where it is malformed.
#[must_use]
pub fn digest(body: &[u8], boundary: &[u8]) -> Option<[u8; 32]> {
    if !is_boundary(boundary) {
        return None;
    }
    let parts = split(body, &[b"--", boundary].concat())?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(parts.len() as u64).to_le_bytes());
    for part in parts {
        let part = Part::read(part)?;
        for value in part.headers {
            // An empty value is not a header that is absent.
            hasher.update(&[u8::from(value.is_some())]);
            frame(&mut hasher, value.unwrap_or_default());
        }
        frame(&mut hasher, part.content);
    }
    Some(*hasher.finalize().as_bytes())
}

/// The parts between the delimiters, each without the line ends that belong to these.
fn split<'a>(body: &'a [u8], dashed: &[u8]) -> Option<Vec<&'a [u8]>> {
    let mut parts = Vec::new();
    let mut rest = body.strip_prefix(dashed)?;
    loop {
        if let Some(after) = rest.strip_prefix(b"--") {
            return matches!(after, b"" | b"\r\n").then_some(parts);
        }
        if parts.len() == MAX_PARTS {
            return None;
        }
        rest = rest.strip_prefix(b"\r\n")?;
        // Every occurrence must be a delimiter: lenient parsers take one after a bare line feed,
        // or only look at its beginning, and would see parts where this one sees content.
        let next = rest.windows(dashed.len()).position(|window| window == dashed)?;
        parts.push(rest[..next].strip_suffix(b"\r\n")?);
        rest = &rest[next + dashed.len()..];
    }
}

/// What counts of one part.
struct Part<'a> {
    /// The values of its headers, in the order of [`COUNTED`].
    headers: [Option<&'a [u8]>; COUNTED.len()],
    content: &'a [u8],
}

impl<'a> Part<'a> {
    fn read(part: &'a [u8]) -> Option<Self> {
        let mut headers = [None; COUNTED.len()];
        let mut rest = part;
        // One line more than there may be headers: the empty one that ends them.
        for _ in 0..=MAX_HEADERS {
            let end = rest.iter().position(|byte| *byte == b'\n')? + 1;
            let line = rest[..end].strip_suffix(b"\r\n")?;
            rest = &rest[end..];
            if line.is_empty() {
                return Some(Self { headers, content: rest });
            }
            let (name, value) = header(line)?;
            let place =
                COUNTED.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()));
            if let Some(place) = place
                && headers[place].replace(value).is_some()
            {
                return None;
            }
        }
        None
    }
}

/// Splits a header line. A folded one has no name before its colon, so it is malformed.
fn header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = token(line)?;
    let value = value.strip_prefix(b":")?;
    let plain = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
    value.iter().all(plain).then(|| (name, value.trim_ascii()))
}

#[cfg(test)]
#[path = "multipart_tests.rs"]
mod tests;

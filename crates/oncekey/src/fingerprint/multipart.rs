//! Forms of several parts, digested part by part (F2).
//!
//! A client makes a new random boundary for each try, so the bytes of two tries differ although the
//! form is the same. The digest covers each part's headers and bytes, framed, and not the
//! boundary. What is not well-formed (RFC 2046 section 5.1) has no such digest; its bytes count.
//! Text before the first or after the last boundary would be seen by some readers and not by
//! others, so a body that has any is not well-formed here.

use bytes::Bytes;

use super::frame;

/// The longest boundary (RFC 2046 section 5.1.1).
const MAX_BOUNDARY: usize = 70;
/// The most parts that are digested.
const MAX_PARTS: usize = 1_000;

/// The boundary of a `multipart/form-data` content type; `None` for any other type, and where the
/// boundary is missing, empty, too long or given twice.
#[must_use]
pub fn boundary(content_type: &[u8]) -> Option<Bytes> {
    let mut rest = content_type;
    let essence = until(&mut rest, b';').trim_ascii();
    if !essence.eq_ignore_ascii_case(b"multipart/form-data") {
        return None;
    }
    let mut found = None;
    while !rest.is_empty() {
        let (name, value) = parameter(&mut rest)?;
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
            return None;
        }
    }
    found.filter(|boundary| (1..=MAX_BOUNDARY).contains(&boundary.len())).map(Bytes::from)
}

/// Takes what comes before `byte` off the front, and the byte itself.
fn until<'a>(rest: &mut &'a [u8], byte: u8) -> &'a [u8] {
    let at = rest.iter().position(|known| *known == byte).unwrap_or(rest.len());
    let (before, after) = rest.split_at(at);
    *rest = after.get(1..).unwrap_or_default();
    before
}

/// Takes one `name=value` off the front; the value may be quoted (RFC 9110 section 5.6.6).
fn parameter<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Vec<u8>)> {
    let trimmed = rest.trim_ascii_start();
    let equals = trimmed.iter().position(|byte| matches!(byte, b'=' | b';'));
    let Some(equals) = equals.filter(|at| trimmed[*at] == b'=') else {
        let name = until(rest, b';');
        return Some((name.trim_ascii(), Vec::new()));
    };
    let name = trimmed[..equals].trim_ascii();
    let mut value = &trimmed[equals + 1..];
    if value.first() != Some(&b'"') {
        let plain = until(&mut value, b';');
        *rest = value;
        return Some((name, plain.trim_ascii().to_vec()));
    }
    let mut text = Vec::new();
    let mut bytes = value[1..].iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => {
                *rest = &value[at + 2..];
                // Nothing but the next parameter may follow.
                return until(rest, b';').trim_ascii().is_empty().then_some((name, text));
            }
            b'\\' => text.push(*bytes.next()?.1),
            _ => text.push(*byte),
        }
    }
    None
}

/// The digest over the parts of `body`; `None` where it is malformed.
#[must_use]
pub fn digest(body: &[u8], boundary: &[u8]) -> Option<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let delimiter = [b"\r\n--", boundary].concat();
    // The first delimiter may do without the line break before it.
    let mut rest = body.strip_prefix(&delimiter[2..])?;
    let mut parts: u64 = 0;
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            if !matches!(end.trim_ascii(), b"") {
                return None;
            }
            hasher.update(&parts.to_le_bytes());
            return Some(*hasher.finalize().as_bytes());
        }
        rest = skip_padding(rest).strip_prefix(b"\r\n")?;
        parts += 1;
        if parts > MAX_PARTS as u64 {
            return None;
        }
        // A part may have no headers, and then begins with the empty line.
        let (headers, content) = match rest.strip_prefix(b"\r\n") {
            Some(content) => (&b""[..], content),
            None => {
                let at = find(rest, b"\r\n\r\n")?;
                (&rest[..at], &rest[at + 4..])
            }
        };
        let end = find(content, &delimiter)?;
        if find(headers, &delimiter).is_some() {
            return None;
        }
        part(&mut hasher, headers, &content[..end])?;
        rest = &content[end + delimiter.len()..];
    }
}

/// White space that some senders put after a delimiter (RFC 2046 section 5.1.1).
fn skip_padding(rest: &[u8]) -> &[u8] {
    let at = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(rest.len());
    &rest[at..]
}

/// Digests one part: its headers, names in lower case, and its bytes.
fn part(hasher: &mut blake3::Hasher, headers: &[u8], content: &[u8]) -> Option<()> {
    let mut lines: u64 = 0;
    let mut rest = headers;
    while !rest.is_empty() {
        let at = find(rest, b"\r\n").unwrap_or(rest.len());
        let line = &rest[..at];
        rest = rest.get(at + 2..).unwrap_or_default();
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = line[..colon].trim_ascii_end();
        if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) {
            return None;
        }
        frame(hasher, &name.to_ascii_lowercase());
        frame(hasher, line[colon + 1..].trim_ascii());
        lines += 1;
    }
    hasher.update(&lines.to_le_bytes());
    frame(hasher, content);
    Some(())
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    // The first byte is looked for alone: it is rare, and the standard search for it is fast.
    let first = *needle.first()?;
    let mut from = 0;
    loop {
        let at = from + haystack.get(from..)?.iter().position(|byte| *byte == first)?;
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
#[path = "multipart_tests.rs"]
mod tests;

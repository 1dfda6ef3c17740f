//! Fingerprints of forms of several parts (F2).
//!
//! The first line of an input is the content type, the rest is the body.
//!
//! 1. A boundary is 1 to 70 of the characters that RFC 2046 allows, and the other spellings of
//!    its content type give the same one.
//! 2. The digest does not change with the boundary.
//! 3. It changes with the content of a part, and where a part comes twice.
//! 4. In which pieces a body arrives does not count.

use oncekey::fingerprint::multipart::{boundary, digest};
use oncekey::fingerprint::{BodyMode, Fingerprint, Recipe, Secret};

/// What the parser knows.
pub const WORDS: &[&str] = &[
    "multipart/form-data; boundary=",
    "\n--x\r\n",
    "--x--\r\n",
    "\r\n--x",
    "\r\n\r\n",
    "\r\n",
    "\n",
    "Content-Disposition: form-data; name=\"a\"\r\n",
    "Content-Type: text/plain\r\n",
    "--",
    "\"",
    "\\",
    ";",
    "Content-Transfer-Encoding: binary\r\n",
    ": ",
    "boundary=\"x y\"",
];

/// Another boundary, which hardly any body contains.
const OTHER: &[u8] = b"another-boundary.0123456789";

/// See the [module](self).
///
/// # Panics
/// Where a promise is broken.
pub fn check(input: &[u8]) {
    let (content_type, body) = match input.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, &b""[..]),
    };
    let Some(found) = boundary(content_type) else { return };
    assert!((1..=70).contains(&found.len()) && found.is_ascii());
    let quoted = [&b"Multipart/Form-Data ;;boundary=\""[..], &found[..], b"\" ; a=b"].concat();
    assert_eq!(boundary(&quoted).as_ref(), Some(&found), "another spelling");
    let whole = fingerprint(content_type, &[body]);
    let middle = body.len() / 2;
    let pieces = fingerprint(content_type, &[&body[..middle], &body[middle..]]);
    assert_eq!(whole, pieces, "pieces count");
    let Some(known) = digest(body, &found) else { return };
    assert_eq!(digest(body, &found), Some(known));
    let delimiter = [&b"--"[..], &found[..]].concat();
    let dashed = [&b"--"[..], OTHER].concat();
    if find(body, OTHER).is_some() {
        return;
    }
    let moved = replaced(body, &delimiter, &dashed);
    assert_eq!(digest(&moved, OTHER), Some(known), "the boundary counts");
    let renamed = [&b"multipart/form-data; boundary="[..], OTHER].concat();
    assert_eq!(whole, fingerprint(&renamed, &[&moved]), "the boundary counts in the fingerprint");
    changed(&moved, &dashed, known);
}

/// Whatever the parts hold counts.
fn changed(body: &[u8], dashed: &[u8], known: [u8; 32]) {
    let Some(start) = find(body, b"\r\n\r\n") else { return };
    let longer = [&body[..start + 4], b"z", &body[start + 4..]].concat();
    assert_ne!(digest(&longer, OTHER), Some(known), "a byte of content does not count");
    let next = start + find(&body[start..], dashed).expect("a part ends with a delimiter");
    let twice = [&body[..next], body].concat();
    assert_ne!(digest(&twice, OTHER), Some(known), "a part does not count");
}

fn fingerprint(content_type: &[u8], pieces: &[&[u8]]) -> Fingerprint {
    let secret = Secret::from_bytes([7; 32]);
    let mut reader = BodyMode::Raw.reader(Some(content_type));
    for piece in pieces {
        reader.chunk(piece);
    }
    Recipe::new(&secret, b"").digester(&secret).body(reader, &BodyMode::Raw).finish()
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn replaced(text: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(at) = find(rest, what) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with);
        rest = &rest[at + what.len()..];
    }
    out.extend_from_slice(rest);
    out
}

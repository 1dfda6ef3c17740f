//! Fingerprints of JSON bodies (F2, F3), and keys inside of them (K1).
//!
//! 1. A canonical form is its own canonical form, and that of every other spelling: members in
//!    another order, white space, escapes.
//! 2. What has a form is JSON to another parser; what has none is refused there too, or has a
//!    member twice, or nests deep.
//! 3. A member that is left out may be absent; a member that counts may not.
//! 4. The string at a pointer is the one that the other parser finds.
//! 5. In which pieces a body arrives does not count.

mod doubles;
mod tree;

use oncekey::fingerprint::json::{NoString, Selection, canonical, string_at};
use oncekey::fingerprint::{BodyMode, Fingerprint, Recipe, Secret};

use doubles::Single;
use tree::Tree;

/// What the parser knows.
pub const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0041",
    "\\ud83d\\ude00",
    "\\ud800",
    "\\/",
    "true",
    "false",
    "null",
    "-0",
    "1e9",
    "0.10",
    "9007199254740993",
    "\"a\":",
    "\"key\":",
    "\"0\":",
    "{}",
    "[]",
    " ",
    "\n",
    "\u{e9}",
];

/// Deeper bodies are read by one parser and not by the other.
const DEEP: usize = 100;

/// See the [module](self).
///
/// # Panics
/// Where a promise is broken.
pub fn check(body: &[u8]) {
    let form = canonical(body, &Selection::default());
    let other: Result<Single, _> = serde_json::from_slice(body);
    match (&form, &other) {
        (Some(form), Ok(other)) => {
            spellings(form);
            pointers(body, &other.0);
        }
        // It reads numbers as doubles, and refuses those that are none.
        (Some(form), Err(error)) => {
            let shown = error.to_string();
            assert!(shown.starts_with("number out of range") || deep(body), "no JSON: {shown}");
            spellings(form);
        }
        (None, Ok(_)) => assert!(deep(body), "JSON without a member twice has no form"),
        (None, Err(_)) => {
            // Never a key from what is not JSON to both.
            let _ = string_at(body, "/key");
        }
    }
    let mode = BodyMode::Json(Selection::default());
    let whole = fingerprint(&[body], &mode);
    for cut in [body.len() / 3, body.len() / 2] {
        assert_eq!(whole, fingerprint(&[&body[..cut], &body[cut..]], &mode), "pieces count");
    }
    if let Some(form) = &form {
        assert_eq!(whole, fingerprint(&[form], &mode), "the form is another request");
    }
}

fn deep(body: &[u8]) -> bool {
    body.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() > DEEP
}

fn fingerprint(pieces: &[&[u8]], mode: &BodyMode) -> Fingerprint {
    let secret = Secret::from_bytes([7; 32]);
    let mut reader = mode.reader(Some(b"application/json"));
    for piece in pieces {
        reader.chunk(piece);
    }
    Recipe::new(&secret, b"").digester(&secret).body(reader, mode).finish()
}

fn spellings(form: &[u8]) {
    let all = Selection::default();
    assert_eq!(canonical(form, &all).as_deref(), Some(form), "not its own form");
    let text = std::str::from_utf8(form).expect("a canonical form is text");
    let tree = Tree::of(text);
    for noise in 0..3 {
        let spelt = tree.spelt(noise);
        assert_eq!(canonical(spelt.as_bytes(), &all).as_deref(), Some(form), "{spelt}");
    }
    let Tree::Object(members) = &tree else { return };
    if let Some(at) = members.iter().position(|(name, _)| *name == "\"a\"") {
        let mut rest = members.clone();
        rest.remove(at);
        let without = Tree::Object(rest).spelt(1);
        let hidden = Selection { exclude: vec!["/a".into()], include: Vec::new() };
        let form_without = canonical(without.as_bytes(), &all);
        assert_eq!(canonical(form, &hidden), form_without, "an excluded member counts");
        assert_ne!(Some(form), form_without.as_deref(), "a member does not count");
    }
}

fn pointers(body: &[u8], other: &serde_json::Value) {
    for pointer in ["", "/a", "/key", "/0", "/key/a", "/a/0", "/~0", "/~1"] {
        let expected = match other.pointer(pointer) {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(NoString::NotAString),
        };
        assert_eq!(string_at(body, pointer), expected, "at {pointer:?}");
    }
}

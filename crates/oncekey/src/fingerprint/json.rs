//! JSON bodies: their canonical form for comparing them by value (F2, F3), and the key that one
//! may carry (K1).
//!
//! 1. Two bodies have the same canonical form exactly where they hold the same value: the order
//!    of members, white space and the spelling of strings do not count, the order of arrays does.
//! 2. A number counts as it is written. `1.0` is not `1`, and integers above 2^53, which turn
//!    into each other where numbers are read as doubles, stay apart. (In this the form is not
//!    that of RFC 8785.)
//! 3. What is not strictly JSON (RFC 8259), nests deeper than 128 levels, or has a member twice
//!    has no canonical form: its raw bytes are compared.
//! 4. A [`Selection`] leaves values out or lets some alone count. Exclusion wins: of an included
//!    value, the excluded part does not count.
//! 5. Time and memory are bounded by a small multiple of the body's length, whatever it holds.
//!
//! ```
//! use oncekey::fingerprint::json::{Selection, canonical, string_at};
//!
//! let all = Selection::default();
//! let body = br#"{ "b": 1.0, "a": "\u0041" }"#;
//! assert_eq!(canonical(body, &all).as_deref(), Some(br#"{"a":"A","b":1.0}"#.as_slice()));
//! assert_eq!(canonical(br#"{"a":1,"a":2}"#, &all), None);
//! assert_eq!(string_at(body, "/a"), Ok(Some("A".to_owned())));
//! ```

mod pointer;
mod scan;
mod write;

use pointer::Token;
use scan::{Ahead, Scanner};

/// Which values of a JSON body count: JSON pointers (RFC 6901) to leave out, or alone to count.
///
/// A pointer that leads nowhere does nothing; one that is none ([`is_pointer`]) leads nowhere.
/// Indices are those of the array as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Left out of the digest: present or absent, it is the same.
    pub exclude: Vec<String>,
    /// All that is digested, each value with its pointer. Where it is empty, or none of these
    /// leads anywhere, the whole value counts: a misspelt pointer must not make all bodies equal.
    pub include: Vec<String>,
}

/// Why there is no string at a pointer. Its text never repeats the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoString {
    /// The body is not JSON; one without bytes is none either.
    #[error("the body is not valid JSON (RFC 8259)")]
    NotJson,
    /// The body has too many arrays and objects inside each other.
    #[error("the JSON body nests deeper than 128 levels")]
    TooDeep,
    /// There is something else at the pointer.
    #[error("the member that holds the key is not a string")]
    NotAString,
    /// A member stands there twice, and parsers disagree on which one counts.
    #[error("a member that leads to the key stands there twice")]
    Duplicate,
    /// The pointer itself is malformed.
    #[error("the pointer to the key is not a JSON pointer (RFC 6901)")]
    BadPointer,
}

/// The canonical form of `body`; `None` where it is not JSON, nests too deep or has duplicate
/// members.
#[must_use]
pub fn canonical(body: &[u8], selection: &Selection) -> Option<Vec<u8>> {
    let mut scanner = Scanner::new(body).ok()?;
    write::Writer::new(selection).document(&mut scanner).ok()
}

/// The string at `pointer` in `body`; `None` where it is null or absent (K1).
///
/// The whole body is checked, so that a key is never read from what another parser refuses or
/// reads in another way. A member that occurs twice is an error where the pointer passes;
/// elsewhere it cannot make two keys of one body.
///
/// # Errors
/// [`NoString`] for anything but a string, null or nothing in a valid body.
pub fn string_at(body: &[u8], pointer: &str) -> Result<Option<String>, NoString> {
    let tokens = pointer::tokens(pointer).ok_or(NoString::BadPointer)?;
    let mut scanner = Scanner::new(body)?;
    let found = find(&mut scanner, &tokens, &mut Vec::new())?;
    scanner.end()?;
    found.map(String::from_utf8).transpose().map_err(|_| NoString::NotJson)
}

/// Whether `text` is a JSON pointer, for the check of a configuration.
#[must_use]
pub fn is_pointer(text: &str) -> bool {
    pointer::tokens(text).is_some()
}

/// Reads one value and finds the string that `path` leads to from it.
fn find(
    scanner: &mut Scanner<'_>,
    path: &[Token],
    scratch: &mut Vec<u8>,
) -> Result<Option<Vec<u8>>, NoString> {
    let ahead = scanner.ahead()?;
    let mut found = None;
    match (path.split_first(), ahead) {
        (None, Ahead::String) => {
            let mut string = Vec::new();
            scanner.string(&mut string)?;
            found = Some(string);
        }
        (None, Ahead::Null) => drop(scanner.lexeme()?),
        (None, _) => return Err(NoString::NotAString),
        (Some((token, rest)), Ahead::Object) => {
            let mut met = false;
            scanner.members(|scanner| {
                scratch.clear();
                scanner.name(scratch)?;
                if !token.is_name(scratch) {
                    return scanner.skip(scratch);
                }
                if std::mem::replace(&mut met, true) {
                    return Err(NoString::Duplicate);
                }
                found = find(scanner, rest, scratch)?;
                Ok(())
            })?;
        }
        (Some((token, rest)), Ahead::Array) => {
            let mut index = 0;
            scanner.elements(|scanner| {
                if token.is_index(index) {
                    found = find(scanner, rest, scratch)?;
                } else {
                    scanner.skip(scratch)?;
                }
                index += 1;
                Ok(())
            })?;
        }
        (Some(_), _) => scanner.skip(scratch)?,
    }
    Ok(found)
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "json_property_tests.rs"]
mod property_tests;

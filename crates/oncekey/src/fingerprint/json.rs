//! Canonical JSON for comparing bodies by value, and strings found in JSON bodies (F2, F3, K1).
//!
//! 1. The order of members and white space do not matter; the order of arrays does.
//! 2. Numbers are kept as they are written: 2^53 + 1 is not 2^53, and `1.0` is not `1`. (RFC 8785
//!    reads them as doubles, under which two payment ids could become one.)
//! 3. Strings are compared unescaped: `"\u0041"` is `"A"`.
//! 4. What is not JSON by RFC 8259, names a member twice, or is deeper than 128 levels has no
//!    canonical form; the caller compares its bytes.
//!
//! ```
//! use oncekey::fingerprint::json::{Selection, canonical};
//!
//! let all = Selection::default();
//! let one = canonical(br#"{"b": 1, "a": [2, 3]}"#, &all);
//! assert_eq!(one.as_deref(), Some(&br#"{"a":[2,3],"b":1}"#[..]));
//! assert_eq!(canonical(br#"{"a": 1, "a": 2}"#, &all), None);
//! ```

use std::borrow::Cow;

/// The deepest nesting that is read.
const MAX_DEPTH: usize = 128;

/// Which members of a JSON body count: JSON pointers (RFC 6901) to leave out, or alone to count.
///
/// A pointer that leads nowhere changes nothing, so that a member that is absent and one that is
/// left out are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Left out of the digest.
    pub exclude: Vec<String>,
    /// Where not empty, all that is digested.
    pub include: Vec<String>,
}

/// Why there is no string at a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoString {
    /// The body is not JSON.
    #[error("the body is not valid JSON")]
    NotJson,
    /// There is something else at the pointer.
    #[error("the member that holds the key is not a string")]
    NotAString,
    /// A member stands there twice: another reader might find another key.
    #[error("a member of the body stands there twice")]
    Duplicate,
}

/// The canonical form of `body`; `None` where it is not JSON or has duplicate members.
#[must_use]
pub fn canonical(body: &[u8], selection: &Selection) -> Option<Vec<u8>> {
    let mut value = parse(body).ok()?;
    let mut out = Vec::with_capacity(body.len());
    if selection.include.is_empty() {
        for pointer in &selection.exclude {
            value.remove(pointer);
        }
        value.write(&mut out);
        return Some(out);
    }
    // Each with its pointer, so that a value that moved to another member differs. An exclusion
    // counts within what is included.
    let included: Vec<_> =
        selection.include.iter().map(|pointer| (pointer, value.at(pointer).is_some())).collect();
    for pointer in &selection.exclude {
        value.remove(pointer);
    }
    for (pointer, was_there) in included {
        if let (Some(found), true) = (value.at(pointer), was_there) {
            write_string(pointer, &mut out);
            out.push(b':');
            found.write(&mut out);
            out.push(b',');
        }
    }
    Some(out)
}

/// The string at `pointer`; none where the member is absent or null.
///
/// # Errors
/// [`NoString`]: two readers must never see two keys, so a body that names any member twice is
/// refused as a whole.
pub fn string_at(body: &[u8], pointer: &str) -> Result<Option<String>, NoString> {
    let value = parse(body)?;
    match value.at(pointer) {
        None | Some(Value::Literal(b"null")) => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text.clone().into_owned())),
        Some(_) => Err(NoString::NotAString),
    }
}

/// A JSON value; members are sorted by name.
#[derive(Debug)]
enum Value<'a> {
    /// `true`, `false`, `null` or a number, as written.
    Literal(&'a [u8]),
    Text(Cow<'a, str>),
    List(Vec<Value<'a>>),
    Members(Vec<(Cow<'a, str>, Value<'a>)>),
}

fn parse(body: &[u8]) -> Result<Value<'_>, NoString> {
    // Invalid UTF-8 is not JSON (RFC 8259 section 8.1).
    std::str::from_utf8(body).map_err(|_| NoString::NotJson)?;
    let mut parser = Parser { body, at: 0 };
    let value = parser.value(0)?;
    parser.space();
    if parser.at == body.len() { Ok(value) } else { Err(NoString::NotJson) }
}

impl<'a> Value<'a> {
    fn at(&self, pointer: &str) -> Option<&Value<'a>> {
        let mut value = self;
        for name in names(pointer) {
            value = match value {
                Value::Members(members) => {
                    let at = members.binary_search_by(|(known, _)| (**known).cmp(&*name)).ok()?;
                    &members[at].1
                }
                Value::List(items) => items.get(index(&name)?)?,
                Value::Literal(_) | Value::Text(_) => return None,
            };
        }
        Some(value)
    }

    /// Removes what `pointer` leads to. In an array a null stays in its place, so that the others
    /// keep theirs.
    fn remove(&mut self, pointer: &str) {
        let mut path: Vec<_> = names(pointer).collect();
        let Some(last) = path.pop() else { return };
        let mut value = self;
        for name in path {
            let next = match value {
                Value::Members(members) => {
                    members.iter_mut().find(|(known, _)| *known == name).map(|(_, value)| value)
                }
                Value::List(items) => index(&name).and_then(|at| items.get_mut(at)),
                Value::Literal(_) | Value::Text(_) => None,
            };
            let Some(next) = next else { return };
            value = next;
        }
        match value {
            Value::Members(members) => members.retain(|(known, _)| *known != last),
            Value::List(items) => {
                if let Some(item) = index(&last).and_then(|at| items.get_mut(at)) {
                    *item = Value::Literal(b"null");
                }
            }
            Value::Literal(_) | Value::Text(_) => {}
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Literal(text) => out.extend_from_slice(text),
            Value::Text(text) => write_string(text, out),
            Value::List(items) => {
                out.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Value::Members(members) => {
                out.push(b'{');
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    write_string(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// The unescaped names of a pointer (RFC 6901 section 4). The empty pointer is the whole value.
fn names(pointer: &str) -> impl Iterator<Item = String> {
    let rest = pointer.strip_prefix('/');
    rest.into_iter()
        .flat_map(|rest| rest.split('/'))
        .map(|name| name.replace("~1", "/").replace("~0", "~"))
}

/// An array index (RFC 6901 section 4): no leading zeros.
fn index(name: &str) -> Option<usize> {
    let plain = name == "0" || !name.starts_with('0');
    (plain && name.bytes().all(|byte| byte.is_ascii_digit())).then(|| name.parse().ok())?
}

/// One way to write each string: what must be escaped is, as `\u00XX` but for quote and backslash.
fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Reads one value; what was read is always a prefix of valid UTF-8.
struct Parser<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), NoString> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(NoString::NotJson)
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>, NoString> {
        if depth > MAX_DEPTH {
            return Err(NoString::NotJson);
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.members(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Value::Text),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(NoString::NotJson),
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<Value<'a>, NoString> {
        if !self.body[self.at..].starts_with(word) {
            return Err(NoString::NotJson);
        }
        self.at += word.len();
        Ok(Value::Literal(word))
    }

    fn number(&mut self) -> Result<Value<'a>, NoString> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(Value::Literal(&self.body[start..self.at]))
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), NoString> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(NoString::NotJson) }
    }

    fn list(&mut self, depth: usize) -> Result<Value<'a>, NoString> {
        self.expect(b'[')?;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.peek() == Some(b',') {
                self.at += 1;
            } else {
                self.expect(b']')?;
                return Ok(Value::List(items));
            }
        }
    }

    fn members(&mut self, depth: usize) -> Result<Value<'a>, NoString> {
        self.expect(b'{')?;
        let mut members = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Members(members));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            self.expect(b':')?;
            members.push((name, self.value(depth + 1)?));
            self.space();
            if self.peek() == Some(b',') {
                self.at += 1;
            } else {
                self.expect(b'}')?;
                break;
            }
        }
        members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(NoString::Duplicate);
        }
        Ok(Value::Members(members))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, NoString> {
        self.expect(b'"')?;
        let start = self.at;
        let mut unescaped: Option<String> = None;
        let mut from = start;
        loop {
            match self.peek() {
                None | Some(0..=0x1f) => return Err(NoString::NotJson),
                Some(b'"') => {
                    let rest = self.text(from, self.at)?;
                    self.at += 1;
                    return Ok(match unescaped {
                        None => Cow::Borrowed(rest),
                        Some(text) => Cow::Owned(text + rest),
                    });
                }
                Some(b'\\') => {
                    let plain = self.text(from, self.at)?;
                    self.at += 1;
                    let character = self.escape()?;
                    let text = unescaped.get_or_insert_default();
                    text.push_str(plain);
                    text.push(character);
                    from = self.at;
                }
                Some(_) => self.at += 1,
            }
        }
    }

    fn text(&self, from: usize, to: usize) -> Result<&'a str, NoString> {
        std::str::from_utf8(&self.body[from..to]).map_err(|_| NoString::NotJson)
    }

    fn escape(&mut self) -> Result<char, NoString> {
        let byte = self.peek().ok_or(NoString::NotJson)?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(NoString::NotJson),
        })
    }

    /// A code point, of two surrogates where it needs them. A lone surrogate is no text.
    fn unicode(&mut self) -> Result<char, NoString> {
        let first = self.hex4()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or(NoString::NotJson);
        }
        self.expect(b'\\')?;
        self.expect(b'u')?;
        let second = self.hex4()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(NoString::NotJson);
        }
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        char::from_u32(code).ok_or(NoString::NotJson)
    }

    fn hex4(&mut self) -> Result<u32, NoString> {
        let digits = self.body.get(self.at..self.at + 4).ok_or(NoString::NotJson)?;
        self.at += 4;
        digits.iter().try_fold(0, |number, digit| {
            let digit = char::from(*digit).to_digit(16).ok_or(NoString::NotJson)?;
            Ok(number * 16 + digit)
        })
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;

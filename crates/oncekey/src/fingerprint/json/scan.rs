//! A strict JSON scanner over bytes (RFC 8259).
//!
//! 1. It takes exactly the grammar: no byte order mark, comment, trailing comma, leading zero,
//!    lone surrogate or bare control character passes. What another parser might read in another
//!    way is a flaw, not a guess.
//! 2. Containers nest at most [`MAX_DEPTH`] deep. The callers recurse once a level, so this bound
//!    is what keeps a hostile body from using up the stack.
//! 3. A string is handed out unescaped, a number as it was written.

use super::NoString;

/// How deep arrays and objects may nest.
pub(super) const MAX_DEPTH: usize = 128;

/// What a value begins with, its content still ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    Object,
    Array,
    String,
    Null,
    /// A number, `true` or `false`.
    Other,
}

/// The place up to which a body has been read.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Scanner<'a> {
    /// A scanner at the first value of `body`.
    ///
    /// All of UTF-8 is checked here, once: beyond it only ASCII bytes need to be told apart.
    pub(super) fn new(body: &'a [u8]) -> Result<Self, NoString> {
        let text = std::str::from_utf8(body).map_err(|_| NoString::NotJson)?.as_bytes();
        let mut scanner = Self { text, at: 0, depth: 0 };
        scanner.space();
        Ok(scanner)
    }

    /// How many containers are open.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Demands that nothing but white space is left.
    pub(super) fn end(&mut self) -> Result<(), NoString> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(NoString::NotJson) }
    }

    /// What comes next; consumes nothing.
    pub(super) fn ahead(&self) -> Result<Ahead, NoString> {
        match self.peek() {
            Some(b'{') => Ok(Ahead::Object),
            Some(b'[') => Ok(Ahead::Array),
            Some(b'"') => Ok(Ahead::String),
            Some(b'n') => Ok(Ahead::Null),
            Some(b't' | b'f' | b'-' | b'0'..=b'9') => Ok(Ahead::Other),
            _ => Err(NoString::NotJson),
        }
    }

    /// Reads an array, calling `each` at every element.
    pub(super) fn elements(
        &mut self,
        each: impl FnMut(&mut Self) -> Result<(), NoString>,
    ) -> Result<(), NoString> {
        self.items(b'[', b']', each)
    }

    /// Reads an object, calling `each` at every name; it reads [`name`](Self::name) and value.
    pub(super) fn members(
        &mut self,
        each: impl FnMut(&mut Self) -> Result<(), NoString>,
    ) -> Result<(), NoString> {
        self.items(b'{', b'}', each)
    }

    fn items(
        &mut self,
        open: u8,
        close: u8,
        mut each: impl FnMut(&mut Self) -> Result<(), NoString>,
    ) -> Result<(), NoString> {
        self.expect(open)?;
        if self.depth == MAX_DEPTH {
            return Err(NoString::TooDeep);
        }
        self.depth += 1;
        self.space();
        if self.peek() != Some(close) {
            loop {
                each(self)?;
                self.space();
                if self.peek() != Some(b',') {
                    break;
                }
                self.at += 1;
                self.space();
            }
        }
        self.expect(close)?;
        self.depth -= 1;
        Ok(())
    }

    /// Reads a member's name and its colon; appends the unescaped name to `into`.
    pub(super) fn name(&mut self, into: &mut Vec<u8>) -> Result<(), NoString> {
        self.string(into)?;
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(())
    }

    /// Reads a string; appends it unescaped to `into`, as UTF-8.
    pub(super) fn string(&mut self, into: &mut Vec<u8>) -> Result<(), NoString> {
        self.expect(b'"')?;
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F))
                .ok_or(NoString::NotJson)?;
            into.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            match rest[plain] {
                b'"' => return Ok(()),
                b'\\' => self.escape(into)?,
                _ => return Err(NoString::NotJson),
            }
        }
    }

    fn escape(&mut self, into: &mut Vec<u8>) -> Result<(), NoString> {
        let letter = self.peek().ok_or(NoString::NotJson)?;
        self.at += 1;
        let byte = match letter {
            b'"' | b'\\' | b'/' => letter,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 0x0C,
            b'r' => b'\r',
            b'u' => {
                let character = self.escaped_character()?;
                into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(NoString::NotJson),
        };
        into.push(byte);
        Ok(())
    }

    /// The character after `\u`: one code unit, or a pair of surrogates.
    fn escaped_character(&mut self) -> Result<char, NoString> {
        let first = self.code_unit()?;
        let mut units = [first, 0];
        let mut used = 1;
        if matches!(first, 0xD800..=0xDBFF) {
            self.expect(b'\\')?;
            self.expect(b'u')?;
            units[1] = self.code_unit()?;
            used = 2;
        }
        // A lone or swapped surrogate is no character, and parsers disagree on what to make of it.
        char::decode_utf16(units[..used].iter().copied())
            .next()
            .and_then(Result::ok)
            .ok_or(NoString::NotJson)
    }

    fn code_unit(&mut self) -> Result<u16, NoString> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(NoString::NotJson)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit: u16, &digit| {
            let value = char::from(digit).to_digit(16).ok_or(NoString::NotJson)?;
            Ok(unit << 4 | u16::try_from(value).map_err(|_| NoString::NotJson)?)
        })
    }

    /// Reads a number or one of the three words; hands it out as written.
    pub(super) fn lexeme(&mut self) -> Result<&'a [u8], NoString> {
        for word in [b"true".as_slice(), b"false", b"null"] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(word);
            }
        }
        let start = self.at;
        self.take(b"-");
        // A zero ends the integer part: what follows it must not be another digit.
        if !self.take(b"0") {
            self.digits()?;
        }
        if self.take(b".") {
            self.digits()?;
        }
        if self.take(b"eE") {
            self.take(b"+-");
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Result<(), NoString> {
        let count = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count > 0 { Ok(()) } else { Err(NoString::NotJson) }
    }

    /// Reads any value for its grammar alone; `scratch` is overwritten.
    pub(super) fn skip(&mut self, scratch: &mut Vec<u8>) -> Result<(), NoString> {
        scratch.clear();
        match self.ahead()? {
            Ahead::Object => self.members(|scanner| {
                scanner.name(scratch)?;
                scanner.skip(scratch)
            }),
            Ahead::Array => self.elements(|scanner| scanner.skip(scratch)),
            Ahead::String => self.string(scratch),
            Ahead::Null | Ahead::Other => self.lexeme().map(drop),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), NoString> {
        if self.take(&[byte]) { Ok(()) } else { Err(NoString::NotJson) }
    }

    /// Consumes the next byte if it is one of `any`.
    fn take(&mut self, any: &[u8]) -> bool {
        let taken = self.peek().is_some_and(|next| any.contains(&next));
        self.at += usize::from(taken);
        taken
    }

    fn space(&mut self) {
        while self.take(b" \t\n\r") {}
    }
}

//! HTTP/1.1 messages as bytes: heads, fields in order, bodies by their framing.

use std::fmt;

use super::wire::{Broken, Wire};

/// Header fields as they stood: order, case, repetition and bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<(Vec<u8>, Vec<u8>)>);

impl Fields {
    /// The first field of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(found, _)| is(found, name)).map(|(_, value)| value.as_slice())
    }

    /// Every field of this name, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&[u8]> {
        let found = self.0.iter().filter(|(found, _)| is(found, name));
        found.map(|(_, value)| value.as_slice()).collect()
    }

    /// The first field of this name as text; other bytes become replacement characters.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The names in order, in lower case.
    pub(crate) fn names(&self) -> Vec<String> {
        let lower = |name: &[u8]| String::from_utf8_lossy(name).to_ascii_lowercase();
        self.0.iter().map(|(name, _)| lower(name)).collect()
    }

    /// Without the fields of these names.
    pub(crate) fn without(&self, names: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(found, _)| !names.iter().any(|name| is(found, name)));
        Self(kept.cloned().collect())
    }

    fn parse(lines: &str) -> Option<Self> {
        let mut fields = Vec::new();
        for line in lines.split("\r\n").filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':')?;
            fields.push((latin1(name), latin1(value.trim_matches([' ', '\t']))));
        }
        Some(Self(fields))
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        f.debug_map().entries(self.0.iter().map(|(name, value)| (text(name), text(value)))).finish()
    }
}

fn is(found: &[u8], name: &str) -> bool {
    found.eq_ignore_ascii_case(name.as_bytes())
}

/// A head's bytes as text in which each byte is one character, so that nothing is lost.
fn text_of(head: &[u8]) -> String {
    head.iter().copied().map(char::from).collect()
}

fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|character| character as u8).collect()
}

/// Where a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There was none and could be none.
    NoBody,
    /// By `Content-Length`.
    Length,
    /// By the last chunk.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// A start line and fields.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) raw: Vec<u8>,
    pub(crate) start: [String; 3],
    pub(crate) fields: Fields,
}

impl Head {
    /// Reads one; none if its bytes are no head.
    pub(crate) fn read(wire: &mut Wire) -> Result<Option<Self>, Broken> {
        let raw = wire.read_to(b"\r\n\r\n")?;
        Ok(Self::parse(raw))
    }

    fn parse(raw: Vec<u8>) -> Option<Self> {
        let text = text_of(&raw);
        let (start, fields) = text.split_once("\r\n")?;
        let mut words = start.splitn(3, ' ');
        let start = [words.next()?, words.next()?, words.next().unwrap_or("")];
        let (start, fields) = (start.map(str::to_owned), Fields::parse(fields)?);
        Some(Self { raw, start, fields })
    }

    /// How the body is framed, for a message that may have one.
    pub(crate) fn framing(&self, otherwise: Framing) -> Framing {
        let coding = self.fields.text("transfer-encoding").unwrap_or_default();
        if coding.to_ascii_lowercase().ends_with("chunked") {
            Framing::Chunked
        } else if self.fields.has("content-length") {
            Framing::Length
        } else {
            otherwise
        }
    }

    pub(crate) fn length(&self) -> usize {
        let text = self.fields.text("content-length");
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

/// A body as it came, and how its reading ended if that was too early.
#[derive(Debug, Default)]
pub(crate) struct ReadBody {
    pub(crate) bytes: Vec<u8>,
    /// The lengths of the chunks.
    pub(crate) chunks: Vec<usize>,
    pub(crate) trailers: Fields,
    pub(crate) broken: Option<Broken>,
    /// The chunks made no sense.
    pub(crate) malformed: bool,
}

impl ReadBody {
    pub(crate) fn read(wire: &mut Wire, framing: Framing, length: usize) -> Self {
        let mut body = Self::default();
        match framing {
            Framing::NoBody => {}
            Framing::Length => match wire.read_exactly(length) {
                Ok(bytes) => body.bytes = bytes,
                Err(broken) => (body.bytes, body.broken) = (wire.unread(), Some(broken)),
            },
            Framing::UntilClose => {
                let (bytes, end) = wire.read_to_end();
                body.bytes = bytes;
                body.broken = (end != Broken::Closed).then_some(end);
            }
            Framing::Chunked => {
                if let Err(broken) = body.read_chunks(wire) {
                    body.bytes.extend(wire.unread());
                    body.broken = Some(broken);
                }
            }
        }
        body
    }

    fn read_chunks(&mut self, wire: &mut Wire) -> Result<(), Broken> {
        loop {
            let line = text_of(&wire.read_to(b"\r\n")?);
            let size = line.split([';', '\r']).next().unwrap_or("").trim();
            let Ok(size) = usize::from_str_radix(size, 16) else {
                self.malformed = true;
                return Ok(());
            };
            if size == 0 {
                return self.read_trailers(wire);
            }
            let mut chunk = wire.read_exactly(size + 2)?;
            self.malformed |= !chunk.ends_with(b"\r\n");
            chunk.truncate(size);
            self.bytes.extend(chunk);
            self.chunks.push(size);
        }
    }

    fn read_trailers(&mut self, wire: &mut Wire) -> Result<(), Broken> {
        let mut lines = String::new();
        loop {
            let line = text_of(&wire.read_to(b"\r\n")?);
            if line == "\r\n" {
                break;
            }
            lines.push_str(&line);
        }
        self.trailers = Fields::parse(&lines).unwrap_or_default();
        Ok(())
    }
}

/// A whole answer.
#[derive(Clone)]
pub(crate) struct Reply {
    /// The 1xx that came before.
    pub(crate) interim: Vec<u16>,
    /// The head's bytes.
    pub(crate) raw_head: Vec<u8>,
    /// `HTTP/1.1`.
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) headers: Fields,
    /// The body's bytes, without chunk marks.
    pub(crate) body: Vec<u8>,
    pub(crate) framing: Framing,
    /// The lengths of the chunks, in order.
    pub(crate) chunks: Vec<usize>,
    pub(crate) trailers: Fields,
}

impl Reply {
    pub(crate) fn new(head: Head, framing: Framing, interim: Vec<u16>) -> Option<Self> {
        let [version, status, reason] = head.start;
        Some(Self {
            interim,
            raw_head: head.raw,
            version,
            status: status.parse().ok()?,
            reason,
            headers: head.fields,
            body: Vec::new(),
            framing,
            chunks: Vec::new(),
            trailers: Fields::default(),
        })
    }

    /// The first header of this name as text; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.text(name).unwrap_or_default()
    }

    /// The body as text.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("no JSON ({why}): {self:?}"))
    }

    /// The code of a problem; empty for any other answer.
    pub(crate) fn code(&self) -> String {
        let json = serde_json::from_slice::<serde_json::Value>(&self.body).unwrap_or_default();
        let problem = self.header("content-type").starts_with("application/problem+json");
        let code = problem.then(|| json["code"].as_str().map(str::to_owned)).flatten();
        code.unwrap_or_default()
    }

    /// Whether it says that it is a replay.
    pub(crate) fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == "true"
    }

    /// `Idempotency-Status`; empty if there is none.
    pub(crate) fn idempotency(&self) -> String {
        self.header("idempotency-status")
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 400;
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN)]);
        let rest = self.body.len().saturating_sub(SHOWN);
        write!(f, "{} {} {:?} {body:?}", self.status, self.reason, self.headers)?;
        if rest > 0 { write!(f, " and {rest} bytes more") } else { Ok(()) }
    }
}

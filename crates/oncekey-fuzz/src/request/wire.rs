//! A strict reader of HTTP/1.1 messages, for both ends of the gateway.
//!
//! It takes what RFC 9112 lets a sender write and nothing that it lets a recipient forgive.

use std::io::{ErrorKind, Read};

/// The longest head, body or line; the gateway's own bounds are below.
const LONGEST: usize = 1 << 20;

/// Why there is no message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The bytes end.
    Ended,
    /// Nothing comes within the socket's time-out.
    Late,
    /// The message is fine so far, and longer than anybody here wants to read.
    TooLong,
    /// The bytes are no message.
    Malformed(&'static str),
}

/// What a message begins with.
#[derive(Debug)]
pub(super) enum Start {
    Request { method: String },
    Answer(u16),
}

/// A whole message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) start: Start,
    /// Names in lower case.
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// The method of a request; empty for an answer.
    pub(super) fn method(&self) -> &str {
        match &self.start {
            Start::Request { method } => method,
            Start::Answer(_) => "",
        }
    }

    /// The first field of this name.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// How many fields have this name.
    pub(super) fn count(&self, name: &str) -> usize {
        self.fields.iter().filter(|(found, _)| found == name).count()
    }
}

/// Reads messages one after another.
pub(super) struct Reader<R> {
    from: R,
    buffer: Vec<u8>,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: Vec::new() }
    }

    /// Whether nothing is left.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.buffer.is_empty() && self.more() == Err(Flaw::Ended)
    }

    /// Everything until the end.
    pub(super) fn rest(&mut self) -> Result<(), Flaw> {
        loop {
            match self.more() {
                Ok(()) => self.buffer.clear(),
                Err(Flaw::Ended) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
    }

    /// The next request, whole.
    pub(super) fn request(&mut self) -> Result<Message, Flaw> {
        let (line, fields) = self.head()?;
        let words: Vec<&str> = line.split(' ').collect();
        let [method, target, "HTTP/1.1"] = words[..] else {
            return Err(Flaw::Malformed("not a request line"));
        };
        if !is_token(method) || target.is_empty() {
            return Err(Flaw::Malformed("not a method and a target"));
        }
        let start = Start::Request { method: method.to_owned() };
        let mut message = Message { start, fields, body: Vec::new() };
        if message.count("host") != 1 {
            return Err(Flaw::Malformed("not one host"));
        }
        message.body = self.body(&message, Framing::None)?;
        Ok(message)
    }

    /// The next final answer, whole.
    pub(super) fn answer_to(&mut self, method: &str) -> Result<Message, Flaw> {
        loop {
            let (line, fields) = self.head()?;
            let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
            let status: u16 = status
                .and_then(|digits| digits.parse().ok())
                .ok_or(Flaw::Malformed("not a status line"))?;
            let mut message = Message { start: Start::Answer(status), fields, body: Vec::new() };
            if status < 200 {
                continue;
            }
            if method != "HEAD" && !matches!(status, 204 | 304) {
                message.body = self.body(&message, Framing::ToTheEnd)?;
            }
            return Ok(message);
        }
    }

    fn head(&mut self) -> Result<(String, Vec<(String, String)>), Flaw> {
        let line = self.line()?;
        let mut fields = Vec::new();
        loop {
            let field = self.line()?;
            if field.is_empty() {
                return Ok((line, fields));
            }
            let (name, value) = field.split_once(':').ok_or(Flaw::Malformed("no colon"))?;
            if !is_token(name) {
                return Err(Flaw::Malformed("not a field's name"));
            }
            fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
        }
    }

    fn body(&mut self, message: &Message, otherwise: Framing) -> Result<Vec<u8>, Flaw> {
        match (message.count("transfer-encoding"), message.count("content-length")) {
            (0, 0) => match otherwise {
                Framing::None => Ok(Vec::new()),
                Framing::ToTheEnd => self.rest().map(|()| Vec::new()),
            },
            (0, 1) => {
                let length = message.field("content-length").unwrap_or_default();
                if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(Flaw::Malformed("not a length"));
                }
                let length = length.parse().map_err(|_| Flaw::TooLong)?;
                self.exactly(length)
            }
            (1, 0) if message.field("transfer-encoding") == Some("chunked") => self.chunks(),
            _ => Err(Flaw::Malformed("framed in two ways")),
        }
    }

    fn chunks(&mut self) -> Result<Vec<u8>, Flaw> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(Flaw::Malformed("not a chunk's length"));
            }
            let length = usize::from_str_radix(&line, 16);
            let length = length.map_err(|_| Flaw::TooLong)?;
            if length == 0 {
                // Trailers, of which none counts.
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.exactly(length)?);
            if self.exactly(2)? != b"\r\n" {
                return Err(Flaw::Malformed("a chunk without an end"));
            }
        }
    }

    /// A line without its end; each byte is one character.
    fn line(&mut self) -> Result<String, Flaw> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                if line.pop() != Some(b'\r') {
                    return Err(Flaw::Malformed("a bare line feed"));
                }
                if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
                    return Err(Flaw::Malformed("a control byte"));
                }
                return Ok(line.into_iter().map(char::from).collect());
            }
            self.more()?;
        }
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>, Flaw> {
        if length > LONGEST {
            return Err(Flaw::TooLong);
        }
        while self.buffer.len() < length {
            self.more()?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    fn more(&mut self) -> Result<(), Flaw> {
        if self.buffer.len() > LONGEST {
            return Err(Flaw::TooLong);
        }
        let mut piece = [0; 4096];
        match self.from.read(&mut piece) {
            Ok(0) => Err(Flaw::Ended),
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Err(error) => Err(match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Flaw::Late,
                // A reset is an end as well.
                _ => Flaw::Ended,
            }),
        }
    }
}

/// How a message without framing ends.
#[derive(Clone, Copy)]
enum Framing {
    None,
    ToTheEnd,
}

fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

//! The secret that fingerprints and principals are hashed with, where the environment gives one.

use std::fmt;

use super::diagnostic::Fault;

/// The only place a secret comes from; a file is read by too many eyes.
pub(crate) const VARIABLE: &str = "ONCEKEY_SECRET";

const SHORTEST: usize = 32;
const LONGEST: usize = 1024;

/// At least 32 bytes that never reach a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Text of 64 or more hex digits is decoded; other text counts as it is.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        let text = text.trim();
        let is_hex = text.len() >= 2 * SHORTEST
            && text.len().is_multiple_of(2)
            && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes: Vec<u8> = if is_hex {
            text.as_bytes()
                .chunks_exact(2)
                .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
                .collect()
        } else {
            text.as_bytes().to_vec()
        };
        if bytes.len() < SHORTEST || bytes.len() > LONGEST {
            return Err(Fault::new(format!("the secret has {} bytes", bytes.len())).hint(format!(
                "{SHORTEST} to {LONGEST} bytes; `openssl rand -hex 32` makes a good one"
            )));
        }
        if bytes.iter().all(|byte| *byte == bytes[0]) {
            return Err(Fault::new("the secret is one byte repeated")
                .hint("`openssl rand -hex 32` makes a good one"));
        }
        Ok(Self(bytes))
    }
}

fn digit(hex: u8) -> u8 {
    match hex {
        b'0'..=b'9' => hex - b'0',
        _ => hex.to_ascii_lowercase() - b'a' + 10,
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

//! Keys from headers (K2, K3, K4).
//!
//! 1. What is accepted is 1 to 255 bytes of printable ASCII, and is read again as itself from a
//!    text, from the string form and, where it has one, from the bare form.
//! 2. A reader written from the rule alone reads the same from every value without parameters.
//! 3. Strict takes nothing that lenient refuses, and nothing without quotes.
//! 4. Blanks around a value change nothing.

use oncekey::key::{InvalidKey, Key, KeySyntax, MAX_KEY_LEN, RecordId, Scope};
use oncekey::record::Kind;

/// What the parser knows.
pub const WORDS: &[&str] = &["\"", "\\", "\\\"", ";", ";a=1", ",", " ", "\t", "\u{e9}", "\0", "\r"];

/// See the [module](self).
///
/// # Panics
/// Where a promise is broken.
pub fn check(value: &[u8]) {
    let lenient = Key::from_header(value, KeySyntax::Lenient);
    let strict = Key::from_header(value, KeySyntax::Strict);
    let trimmed = value.trim_ascii();
    if trimmed.first() == Some(&b'"') || trimmed.is_empty() {
        assert_eq!(strict, lenient, "the string form is the same in both syntaxes");
    } else {
        assert_eq!(strict, Err(InvalidKey::NotQuoted));
    }
    let padded = [&b" \t"[..], value, b"\t "].concat();
    assert_eq!(Key::from_header(&padded, KeySyntax::Lenient), lenient, "blanks count");
    if let Some(expected) = by_the_rule(trimmed) {
        let found = lenient.as_ref().map(Key::as_str).ok();
        assert_eq!(found, expected.as_deref(), "the rule says otherwise");
    }
    match lenient {
        Ok(key) => accepted(&key),
        // Refusals never show the key.
        Err(error) => assert!(error.to_string().is_ascii()),
    }
    if let Ok(text) = std::str::from_utf8(value)
        && let Ok(key) = Key::from_text(text)
    {
        assert_eq!(key.as_str(), text);
        accepted(&key);
    }
}

fn accepted(key: &Key) {
    let text = key.as_str();
    assert!((1..=MAX_KEY_LEN).contains(&text.len()));
    assert!(text.bytes().all(|byte| matches!(byte, 0x20..=0x7E)));
    assert_eq!(Key::from_text(text).as_ref(), Ok(key));
    let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    for syntax in [KeySyntax::Lenient, KeySyntax::Strict] {
        for form in [quoted.clone(), format!("{quoted};a=1")] {
            assert_eq!(Key::from_header(form.as_bytes(), syntax).as_ref(), Ok(key), "{syntax:?}");
        }
    }
    if text.bytes().all(bare) {
        assert_eq!(Key::from_header(text.as_bytes(), KeySyntax::Lenient).as_ref(), Ok(key));
    }
    let id = RecordId::derive(Kind::Request, &Scope::new("main", "shared", "POST /"), key);
    assert_eq!(RecordId::from_hex(&id.to_string()), Some(id));
    assert_eq!(format!("{key:?}"), format!("Key({} bytes)", text.len()), "shows the key");
}

fn bare(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E) && !matches!(byte, b'"' | b'\\' | b',')
}

/// What K2 and K3 say of a value without blanks around it; `None` where something follows the
/// string form, which RFC 9651 has a long rule for.
fn by_the_rule(value: &[u8]) -> Option<Option<String>> {
    let Some(quoted) = value.strip_prefix(b"\"") else {
        let fine = (1..=MAX_KEY_LEN).contains(&value.len()) && value.iter().copied().all(bare);
        return Some(fine.then(|| String::from_utf8_lossy(value).into_owned()));
    };
    let mut text = String::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' if at + 1 < quoted.len() => return None,
            b'"' => {
                let fine = text.len() <= MAX_KEY_LEN && text.bytes().any(|byte| byte != b' ');
                return Some(fine.then_some(text));
            }
            b'\\' => match bytes.next() {
                Some((_, escaped @ (b'"' | b'\\'))) => text.push(char::from(*escaped)),
                _ => return Some(None),
            },
            0x20..=0x7E => text.push(char::from(*byte)),
            _ => return Some(None),
        }
    }
    Some(None)
}

//! Durations and sizes.
//!
//! - A duration is whole numbers with units: `500ms`, `30s`, `15m`, `24h`, `30d`, `1h30m`.
//! - Zero, negative and absurd ones (above ten years) are refused (T4), wherever they stand; only a
//!   [`Delay`] may be zero.
//! - A size is a number of bytes, or a whole number with a unit: `1MiB`, `64KiB`, `10MB`.

use std::time::Duration;

use schemars::{Schema, json_schema};
use toml::Value;

use super::diagnostic::{Fault, quoted};
use super::field::{Setting, Written};

/// Above this a duration is a mistake of units.
pub(crate) const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

/// Longest unit first, so that writing uses as few as possible.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration of any length, zero included.
fn parse(text: &str) -> Result<Duration, Fault> {
    let bad = |why: &str| {
        Fault::new(format!("{} is not a duration: {why}", quoted(text)))
            .hint("whole numbers with ms, s, m, h or d, such as \"30s\", \"24h\" or \"1h30m\"")
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad("it is empty"));
    }
    if rest.starts_with('-') {
        return Err(Fault::new(format!("{} is negative", quoted(text)))
            .hint("a duration goes forward in time"));
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(bad("a number is missing"));
        }
        let number: u64 = rest[..digits].parse().map_err(|_| absurd(text))?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = &rest[..letters];
        rest = rest[letters..].trim_start();
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| {
            bad(if unit.is_empty() { "a unit is missing" } else { "the unit is unknown" })
        })?;
        total = number
            .checked_mul(*length)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| absurd(text))?;
    }
    let total = Duration::from_millis(total);
    if total > LONGEST { Err(absurd(text)) } else { Ok(total) }
}

fn absurd(text: &str) -> Fault {
    Fault::new(format!("{} is longer than ten years", quoted(text))).hint("at most \"3650d\"")
}

/// The shortest text that reads as this duration.
pub(crate) fn duration_text(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, length) in UNITS {
        // "1d" reads worse than "24h" for what people call 24 hours.
        if unit == "d" && left < 2 * length {
            continue;
        }
        if left >= length {
            text.push_str(&format!("{}{unit}", left / length));
            left %= length;
        }
    }
    text
}

fn written_duration(written: &Written) -> Result<Duration, Fault> {
    match written {
        Written::Text(text) => parse(text),
        Written::Integer(number) if *number < 0 => {
            Err(Fault::new(format!("{number} is negative")).hint("write \"30s\", for example"))
        }
        Written::Integer(number) => Err(Fault::new(format!("the duration {number} has no unit"))
            .hint(format!("write \"{number}s\" or \"{number}ms\""))),
        other => Err(other.instead_of("a duration such as \"30s\"")),
    }
}

fn duration_schema() -> Schema {
    json_schema!({
        "type": "string",
        "pattern": r"^([0-9]+(ms|s|m|h|d)\s*)+$",
        "examples": ["500ms", "30s", "15m", "24h", "30d"],
    })
}

impl Setting for Duration {
    fn read(written: &Written) -> Result<Self, Fault> {
        let duration = written_duration(written)?;
        if duration.is_zero() {
            return Err(Fault::new("the duration is zero").hint("at least \"1ms\""));
        }
        Ok(duration)
    }
    fn write(&self) -> Value {
        duration_text(*self).into()
    }
    fn schema() -> Schema {
        duration_schema()
    }
}

/// A duration that may be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) struct Delay(pub(crate) Duration);

impl Setting for Delay {
    fn read(written: &Written) -> Result<Self, Fault> {
        written_duration(written).map(Self)
    }
    fn write(&self) -> Value {
        duration_text(self.0).into()
    }
    fn schema() -> Schema {
        duration_schema()
    }
}

/// A number of bytes, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    pub(crate) const KIB: u64 = 1 << 10;
    pub(crate) const MIB: u64 = 1 << 20;
    pub(crate) const GIB: u64 = 1 << 30;
    pub(crate) const TIB: u64 = 1 << 40;
}

/// Longest first among those that divide evenly: what is written reads as what was meant.
const SIZES: [(&str, u64); 9] = [
    ("TiB", Size::TIB),
    ("TB", 1_000_000_000_000),
    ("GiB", Size::GIB),
    ("GB", 1_000_000_000),
    ("MiB", Size::MIB),
    ("MB", 1_000_000),
    ("KiB", Size::KIB),
    ("KB", 1_000),
    ("B", 1),
];

/// The shortest text that reads as this number of bytes.
pub(crate) fn size_text(bytes: u64) -> String {
    let (unit, length) = SIZES
        .into_iter()
        .filter(|(unit, length)| {
            (unit.contains('i') || *unit == "B") && bytes.is_multiple_of(*length)
        })
        .max_by_key(|(_, length)| *length)
        .unwrap_or(("B", 1));
    format!("{}{unit}", bytes / length)
}

impl Setting for Size {
    fn read(written: &Written) -> Result<Self, Fault> {
        const HINT: &str = "a number of bytes, or a string such as \"64KiB\" or \"1MiB\"";
        let bytes = match written {
            Written::Integer(number) => u64::try_from(*number)
                .map_err(|_| Fault::new(format!("{number} is not a size")).hint(HINT))?,
            Written::Text(text) => {
                let bad = || Fault::new(format!("{} is not a size", quoted(text))).hint(HINT);
                let digits = text.bytes().take_while(u8::is_ascii_digit).count();
                let number: u64 = text[..digits].parse().map_err(|_| bad())?;
                let unit = text[digits..].trim();
                let (_, length) = SIZES
                    .iter()
                    .find(|(name, _)| {
                        name.eq_ignore_ascii_case(unit) || unit.is_empty() && *name == "B"
                    })
                    .ok_or_else(bad)?;
                number.checked_mul(*length).ok_or_else(bad)?
            }
            other => return Err(other.instead_of("a size").hint(HINT)),
        };
        if bytes == 0 {
            return Err(Fault::new("the size is zero").hint(HINT));
        }
        Ok(Self(bytes))
    }
    fn write(&self) -> Value {
        size_text(self.0).into()
    }
    fn schema() -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 1 },
                { "type": "string", "pattern": "^[0-9]+ ?([kKmMgGtT]i?)?[bB]?$" },
            ],
            "examples": ["64KiB", "1MiB", 1_048_576],
        })
    }
}

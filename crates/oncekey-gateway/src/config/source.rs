//! Where a setting was written.
//!
//! The file, each environment variable and each flag are laid end to end in one line of bytes, as a
//! compiler does with its source files. A span of that line is then enough to name the origin, line
//! and column of any setting, however it came in.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;

/// What a setting was read from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The configuration file.
    File(PathBuf),
    /// An environment variable, by name.
    Environment(String),
    /// A flag of the command line.
    Flag(&'static str),
}

/// The origin of a setting, and the position inside it. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Place {
    /// What it was read from.
    pub origin: Origin,
    /// Line inside the origin.
    pub line: usize,
    /// Column inside the line, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File(path) => {
                write!(f, "{}:{}:{}", path.display(), self.line, self.column)
            }
            Origin::Environment(name) => f.write_str(name),
            Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// A range of bytes in the line of all sources.
pub(crate) type Span = Range<usize>;

struct Part {
    origin: Origin,
    start: usize,
    text: String,
}

/// All sources, end to end.
#[derive(Default)]
pub(crate) struct Sources {
    parts: Vec<Part>,
    end: usize,
}

impl Sources {
    /// Appends a source and returns its index.
    pub(crate) fn add(&mut self, origin: Origin, text: String) -> usize {
        let start = self.end;
        // One byte apart, so that a span at the very end of a source is not taken for the next one.
        self.end = start + text.len() + 1;
        self.parts.push(Part { origin, start, text });
        self.parts.len() - 1
    }

    pub(crate) fn text(&self, index: usize) -> &str {
        &self.parts[index].text
    }

    /// The span of a whole source.
    pub(crate) fn whole(&self, index: usize) -> Span {
        let part = &self.parts[index];
        part.start..part.start + part.text.len()
    }

    pub(crate) fn place(&self, offset: usize) -> Option<Place> {
        let part = self
            .parts
            .iter()
            .find(|part| (part.start..=part.start + part.text.len()).contains(&offset))?;
        // A parser may point into the middle of a character: go back to its beginning.
        let mut inside = offset - part.start;
        while !part.text.is_char_boundary(inside) {
            inside -= 1;
        }
        let before = &part.text[..inside];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Some(Place {
            origin: part.origin.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        })
    }
}

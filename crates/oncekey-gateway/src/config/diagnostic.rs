//! What is wrong with a configuration, or worth saying about it.
//!
//! Every finding is collected, so that one run of `check` shows them all. Only errors refuse a
//! configuration; warnings and notes are printed and go on.

use std::fmt;

use serde::Serialize;

use super::source::{Place, Sources, Span};

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It works, and may hurt.
    Warning,
    /// It works as written; a reader should know it.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// What kind of finding it is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// Not TOML.
    Syntax,
    /// A field that nobody reads.
    UnknownField,
    /// Understood, and not in this version.
    NotInVersion,
    /// A table where a list belongs, and the like.
    WrongType,
    /// A value outside what the field takes.
    BadValue,
    /// A field that cannot be left out.
    Missing,
    /// Two settings that exclude each other.
    Contradiction,
    /// The same route twice.
    Duplicate,
    /// A route that an earlier one always wins over.
    Unreachable,
    /// Works, with a danger that the message names.
    Risk,
    /// Something to know.
    Notice,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How much it weighs.
    pub severity: Severity,
    /// Its kind.
    pub code: Code,
    /// Where it was written; absent for a default.
    pub place: Option<Place>,
    /// What is the matter.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "{}: {}", self.severity, self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// Why a value is not one that a field takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Fault {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Fault {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The findings so far, each with its span.
#[derive(Default)]
pub(crate) struct Report {
    findings: Vec<(Option<Span>, Severity, Code, Fault)>,
}

/// More findings of a severity than this help nobody, and a hostile file must not make millions.
/// Each severity has its own count, so that warnings never crowd out an error.
const MOST_FINDINGS: usize = 200;

impl Report {
    pub(crate) fn error(&mut self, span: Option<Span>, code: Code, fault: Fault) {
        self.push(span, Severity::Error, code, fault);
    }

    pub(crate) fn warning(&mut self, span: Option<Span>, fault: Fault) {
        self.push(span, Severity::Warning, Code::Risk, fault);
    }

    pub(crate) fn note(&mut self, span: Option<Span>, fault: Fault) {
        self.push(span, Severity::Note, Code::Notice, fault);
    }

    fn push(&mut self, span: Option<Span>, severity: Severity, code: Code, fault: Fault) {
        let finding = (span, severity, code, fault);
        let alike = self.findings.iter().filter(|(_, other, ..)| *other == severity).count();
        // The defaults are read again for every route that has a profile of its own.
        if alike < MOST_FINDINGS && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.findings.iter().any(|(_, severity, ..)| *severity == Severity::Error)
    }

    pub(crate) fn has_syntax_error(&self) -> bool {
        self.findings.iter().any(|(_, _, code, _)| *code == Code::Syntax)
    }

    /// Turns spans into places; in the order of the sources, those without a place last.
    pub(crate) fn finish(mut self, sources: &Sources) -> Vec<Diagnostic> {
        self.findings.sort_by_key(|(span, severity, ..)| {
            (span.as_ref().map_or(usize::MAX, |span| span.start), *severity)
        });
        self.findings
            .into_iter()
            .map(|(span, severity, code, fault)| Diagnostic {
                severity,
                code,
                place: span.and_then(|span| sources.place(span.start)),
                message: fault.message,
                hint: fault.hint,
            })
            .collect()
    }
}

/// A value for a message: short, and without control bytes.
pub(crate) fn quoted(value: &str) -> String {
    const SHOWN: usize = 60;
    let mut shown: String = value.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if value.chars().count() > SHOWN {
        shown.push_str("...");
    }
    format!("`{shown}`")
}

/// The one of `known` that `word` was probably meant to be.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Distance is quadratic: nothing so long is a slip of the keyboard.
    const LONGEST: usize = 64;
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_ascii_lowercase().replace('-', "_");
    let allowed = (word.len() / 3).clamp(1, 3);
    let judged = known.into_iter().map(|candidate| {
        let plain = candidate.to_ascii_lowercase().replace('-', "_");
        let begins = word.len() > 2 && plain.len() > 2;
        let shortened = begins && (word.starts_with(&plain) || plain.starts_with(&word));
        (if shortened { 1 } else { distance(&word, &plain) }, candidate)
    });
    let close = judged.filter(|(distance, _)| *distance <= allowed);
    close.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements, and swaps of neighbours, that make one word the other.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut rows = vec![(0..=right.len()).collect::<Vec<_>>()];
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let changed = usize::from(left[i - 1] != right[j - 1]);
            let mut best =
                (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            let swapped =
                i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
            if swapped {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

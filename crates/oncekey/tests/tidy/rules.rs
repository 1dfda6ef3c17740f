//! The rules: each takes a file and returns the lines that break it, with the reason.

use super::source::{Source, has_word, numbered};

/// A line, counted from 1, and what is wrong with it.
pub(crate) type Finding = (usize, String);

const MAX_LINES: usize = 600;
const MAX_TEST_LINES: usize = 1200;
const MAX_FUNCTION: usize = 70;
const MAX_COLUMNS: usize = 100;

/// The files that may read the machine's time: the library's clock, and the stopwatch of the
/// project's commands, which do without the library.
const CLOCKS: [&str; 2] = ["crates/oncekey/src/clock.rs", "xtask/src/stopwatch.rs"];

/// Names that say nothing about what they hold.
const EMPTY_NAMES: [&str; 9] =
    ["utils", "util", "common", "helpers", "helper", "manager", "managers", "misc", "stuff"];

/// Words that say that something is unfinished; halved, so that this file may name them.
const UNFINISHED: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("#[ig", "nore"),
];

/// Channels that take whatever is sent.
const UNBOUNDED: [&str; 5] = [
    "unbounded_channel",
    "mpsc::unbounded",
    "std::sync::mpsc::channel",
    "mpsc::channel()",
    "channel::unbounded",
];

/// Parts of the library, and the words that would break what ARCHITECTURE.md says of them.
const BORDERS: &[Border] = &[
    Border {
        of: "crates/oncekey/src/decide",
        bars: &["std::fs", "std::io", "std::net", "tokio", "async", "await", "Clock", "now()"],
        why: "deciding does no I/O, waits for nothing and reads no clock",
    },
    Border {
        of: "crates/oncekey/src/store",
        bars: &["http::", "hyper", "axum", "StatusCode", "HeaderMap", "HeaderName", "HeaderValue"],
        why: "a store knows no HTTP",
    },
    Border {
        of: "crates/oncekey/src/http/",
        bars: &["fjall", "embedded", "memory::", "MemoryStore", "EmbeddedStore"],
        why: "a face knows no backend",
    },
    Border {
        of: "crates/oncekey/src/engine",
        bars: &["crate::http", "fjall", "embedded", "memory::", "MemoryStore", "EmbeddedStore"],
        why: "the engine knows the store's trait, and neither backend nor face",
    },
    Border {
        of: "crates/oncekey/src/record",
        bars: &["crate::engine", "crate::http", "crate::store"],
        why: "dependencies point one way: a record knows nobody that uses it",
    },
    Border {
        of: "crates/oncekey/src/key",
        bars: &["crate::engine", "crate::http", "crate::store", "crate::decide"],
        why: "dependencies point one way: a key knows nobody that uses it",
    },
    Border {
        of: "crates/oncekey/src/fingerprint",
        bars: &["crate::engine", "crate::http", "crate::store", "crate::decide"],
        why: "dependencies point one way: a fingerprint knows nobody that uses it",
    },
    Border {
        of: "crates/oncekey/src/",
        bars: &["oncekey_gateway"],
        why: "the library knows no gateway",
    },
];

struct Border {
    of: &'static str,
    bars: &'static [&'static str],
    why: &'static str,
}

pub(crate) fn file_length(source: &Source) -> Vec<Finding> {
    let limit = if source.is_test_file() { MAX_TEST_LINES } else { MAX_LINES };
    let lines = source.text.lines().count();
    if source.is_rust() && lines > limit {
        return vec![(lines, format!("{lines} lines, the limit is {limit}: give a duty away"))];
    }
    Vec::new()
}

pub(crate) fn function_length(source: &Source) -> Vec<Finding> {
    let long = |lines| format!("{lines} lines, the limit is {MAX_FUNCTION}");
    source
        .functions()
        .into_iter()
        .filter(|function| function.lines > MAX_FUNCTION && !source.is_test(function.line))
        .map(|function| {
            (function.line, format!("fn {} has {}", function.name, long(function.lines)))
        })
        .collect()
}

pub(crate) fn columns(source: &Source) -> Vec<Finding> {
    rust_lines(source)
        .filter(|(_, line)| line.chars().count() > MAX_COLUMNS)
        .map(|(at, line)| (at, format!("{} columns, the limit is {MAX_COLUMNS}", line.len())))
        .collect()
}

pub(crate) fn ascii(source: &Source) -> Vec<Finding> {
    let strange = |line: &str| line.chars().find(|c| !matches!(c, ' '..='~'));
    rust_lines(source)
        .filter_map(|(at, line)| Some((at, strange(line)?)))
        .map(|(at, c)| (at, format!("{c:?} is not printable ASCII; write it as an escape")))
        .collect()
}

pub(crate) fn telling_names(source: &Source) -> Vec<Finding> {
    let empty = |name: &str| name.split(['_', '-']).any(|part| EMPTY_NAMES.contains(&part));
    let mut found = Vec::new();
    if source.path.split(['/', '.']).any(empty) {
        found.push((1, "the file's name says nothing about its duty".to_owned()));
    }
    for (at, line) in numbered(&source.code) {
        let mut words = line.split_whitespace().skip_while(|word| *word != "mod").skip(1);
        if words.next().is_some_and(|name| empty(name.trim_end_matches([';', '{']))) {
            found.push((at, "the module's name says nothing about its duty".to_owned()));
        }
    }
    found
}

/// The tests that a document names: words in backticks that begin with a rule's id or a case's
/// number and read as a sentence.
pub(crate) fn tests_named(source: &Source) -> Vec<Finding> {
    if !source.path.ends_with(".md") {
        return Vec::new();
    }
    let is_test = |word: &str| {
        let id = word.split('_').next().unwrap_or_default();
        let letters = id.trim_end_matches(|c: char| c.is_ascii_digit());
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        letters.len() == 1
            && letters.len() < id.len()
            && word.matches('_').count() > 2
            && word.chars().all(plain)
    };
    numbered(&source.text)
        .flat_map(|(at, line)| line.split('`').skip(1).step_by(2).map(move |word| (at, word)))
        .filter(|(_, word)| is_test(word))
        .map(|(at, word)| (at, word.to_owned()))
        .collect()
}

pub(crate) fn module_docs(source: &Source) -> Vec<Finding> {
    // Tests beside a module are that module's.
    let beside = source.path.contains("/src/") && source.is_test_file();
    if source.is_rust() && !beside && !source.text.starts_with("//!") {
        return vec![(1, "begins without saying what it is for (`//!`)".to_owned())];
    }
    Vec::new()
}

pub(crate) fn finished(source: &Source) -> Vec<Finding> {
    let text = if is_ours(source) { &source.text } else { "" };
    numbered(text)
        .flat_map(|(at, line)| UNFINISHED.iter().map(move |word| (at, line, *word)))
        .filter(|(_, line, word)| has_word(line, word))
        .map(|(at, _, word)| (at, format!("`{word}`: finish it, or leave it out")))
        .collect()
}

pub(crate) fn time(source: &Source) -> Vec<Finding> {
    if CLOCKS.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let reads = ["SystemTime::now", "Instant::now", "Stamp::now", ".elapsed()"];
    of_product(source, &reads, "only the clock reads the time")
}

pub(crate) fn borders(source: &Source) -> Vec<Finding> {
    BORDERS
        .iter()
        .filter(|border| source.path.starts_with(border.of))
        .flat_map(|border| of_product(source, border.bars, border.why))
        .collect()
}

pub(crate) fn bounded(source: &Source) -> Vec<Finding> {
    of_product(source, &UNBOUNDED, "everything has a bound")
}

/// What the engine of the embedded store is called stays inside. `unreachable_pub` makes sure that
/// whatever says `pub` is public.
pub(crate) fn private_engine(source: &Source) -> Vec<Finding> {
    exposed(source, "fjall")
}

/// Whatever bears the name of the web framework stands in one file.
pub(crate) fn private_framework(source: &Source) -> Vec<Finding> {
    match source.path.as_str() {
        "crates/oncekey/src/http/axum.rs" => Vec::new(),
        _ => exposed(source, "axum"),
    }
}

fn exposed(source: &Source, krate: &str) -> Vec<Finding> {
    if !source.path.starts_with("crates/oncekey/src/") {
        return Vec::new();
    }
    let mut names = imported(&source.code, krate);
    names.push(krate.to_owned());
    source
        .promises()
        .into_iter()
        .filter(|(_, head)| names.iter().any(|name| has_word(head, name)))
        .map(|(at, _)| (at, format!("a public item exposes {krate}")))
        .collect()
}

pub(crate) fn no_flags(source: &Source) -> Vec<Finding> {
    let told = |signature: &str| {
        let parameters = signature.split("->").next().unwrap_or(signature);
        parameters
            .split([',', '('])
            .any(|one| one.trim_end_matches([')', ' ', '\n']).ends_with(": bool"))
    };
    source
        .functions()
        .into_iter()
        .filter(|function| told(&function.signature))
        .filter(|function| !source.is_test(function.line) && !source.is_owed(function.line))
        .map(|function| (function.line, format!("fn {} takes a bool: name the two", function.name)))
        .collect()
}

pub(crate) fn manifests(source: &Source) -> Vec<Finding> {
    let of_a_crate = source.path.ends_with("Cargo.toml") && source.text.contains("[package]");
    if !of_a_crate {
        return Vec::new();
    }
    let mut found = Vec::new();
    if !source.text.contains("[lints]\nworkspace = true") {
        found.push((1, "inherits no lints: add `[lints]` with `workspace = true`".to_owned()));
    }
    if !source.text.contains("license.workspace = true") {
        found.push((1, "inherits no licence".to_owned()));
    }
    found
}

/// Relative links of a document, each of which must lead to a file or folder.
pub(crate) fn links(source: &Source) -> Vec<(usize, String)> {
    if !source.path.ends_with(".md") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, line) in numbered(&source.text) {
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((at, target.to_owned()));
            }
        }
    }
    found
}

/// Text that we wrote: not the lock file, not the licences.
fn is_ours(source: &Source) -> bool {
    !source.path.ends_with(".lock")
        && !source.path.ends_with("package-lock.json")
        && !source.path.starts_with("LICENSE")
}

fn rust_lines(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    numbered(if source.is_rust() { &source.text } else { "" })
}

fn of_product(source: &Source, words: &[&str], why: &str) -> Vec<Finding> {
    source
        .product()
        .flat_map(|(at, line)| words.iter().map(move |word| (at, line, *word)))
        .filter(|(_, line, word)| has_word(line, word))
        .map(|(at, _, word)| (at, format!("`{word}`: {why}")))
        .collect()
}

/// What `use` brings in from `krate`, under the names used here.
fn imported(code: &str, krate: &str) -> Vec<String> {
    let mut names = Vec::new();
    let start = format!("use {krate}::");
    for item in code.split(';') {
        let Some((_, list)) = item.split_once(&start) else { continue };
        for one in list.split([',', '{', '}']) {
            let name = one.rsplit(" as ").next().unwrap_or(one).rsplit("::").next().unwrap_or(one);
            let name = name.trim();
            if !name.is_empty() && name != "_" && name != "self" {
                names.push(name.to_owned());
            }
        }
    }
    names
}

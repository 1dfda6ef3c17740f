//! The files of the repository, and as much of Rust's grammar as the house rules need.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const FOREIGN: [&str; 4] = [".git", "target", "node_modules", "oncekey-data"];

/// One file of the repository.
pub(crate) struct Source {
    /// From the root of the repository, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Rust: the text with strings, characters and comments blanked out, line for line. Else empty.
    pub(crate) code: String,
    /// Rust: for each line, whether it is only compiled for tests.
    in_tests: Vec<bool>,
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: String,
    /// Where `fn` stands, counted from 1.
    pub(crate) line: usize,
    /// From `fn` to the closing brace.
    pub(crate) lines: usize,
    /// From `fn` to the body.
    pub(crate) signature: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { blanked(text) } else { String::new() };
        let whole = is_test_file(path);
        let mut in_tests = vec![whole; text.lines().count() + 1];
        if !whole {
            for (from, to) in test_regions(&code) {
                in_tests[from - 1..to].fill(true);
            }
        }
        Self { path: path.to_owned(), text: text.to_owned(), code, in_tests }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Is the line, counted from 1, only compiled for tests?
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.in_tests.get(line - 1).copied().unwrap_or(false)
    }

    /// Is the whole file only compiled for tests?
    pub(crate) fn is_test_file(&self) -> bool {
        is_test_file(&self.path)
    }

    /// Lines of code with their numbers: no comments, no strings, no tests.
    pub(crate) fn product(&self) -> impl Iterator<Item = (usize, &str)> {
        numbered(&self.code).filter(|(line, _)| !self.is_test(*line))
    }

    /// All functions with a body, nested ones too.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let code: Vec<char> = self.code.chars().collect();
        words(&code, "fn").filter_map(|at| function(&code, at)).collect()
    }

    /// Is the line, counted from 1, in an implementation of a trait, whose signatures are given?
    pub(crate) fn is_owed(&self, line: usize) -> bool {
        let code: Vec<char> = self.code.chars().collect();
        words(&code, "impl").any(|at| {
            let Some(open) = body_after(&code, at) else { return false };
            let head: String = code[at..open].iter().collect();
            let Some(close) = closing(&code, open) else { return false };
            head.contains(" for ") && (line_at(&code, at)..=line_at(&code, close)).contains(&line)
        })
    }

    /// What is public beyond the crate, or implements a trait: each with its line, up to its body.
    pub(crate) fn promises(&self) -> Vec<(usize, String)> {
        let code: Vec<char> = self.code.chars().collect();
        let mut found = Vec::new();
        for at in words(&code, "pub").chain(words(&code, "impl")) {
            if code.get(at + 3) == Some(&'(') {
                continue;
            }
            let end =
                (at..code.len()).find(|i| matches!(code[*i], '{' | ';')).unwrap_or(code.len());
            let head: String = code[at..end].iter().collect();
            // A field ends at its comma; a function's parameters do not end it.
            let field = head.starts_with("pub ") && !head.contains('(') && head.contains(": ");
            let head = if field { head.split(",\n").next().unwrap_or(&head) } else { &head };
            found.push((line_at(&code, at), head.to_owned()));
        }
        found.retain(|(line, _)| !self.is_test(*line));
        found
    }
}

/// Lines with their numbers, counted from 1.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// Does `line` hold `word`, neither end of it inside of a longer word?
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(inside);
        let after = line[at + word.len()..].chars().next().is_some_and(inside);
        let longer = before && word.starts_with(inside) || after && word.ends_with(inside);
        !longer
    })
}

/// Every text file of ours in the repository that this crate lies in.
pub(crate) fn repository() -> Vec<Source> {
    let root = root();
    let mut sources = Vec::new();
    walk(&root, &root, &mut sources);
    assert!(sources.iter().any(|source| source.path == "crates/oncekey/src/clock.rs"));
    sources
}

pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the crate lies two folders below the root")
}

fn walk(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .expect("a folder of the repository can be read")
        .map(|entry| entry.expect("an entry of the folder can be read"))
        .collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().expect("the file system tells what an entry is");
        if kind.is_dir() {
            let name = entry.file_name();
            let foreign = FOREIGN.iter().any(|foreign| name == *foreign);
            if !foreign && !path.join("CACHEDIR.TAG").exists() {
                walk(root, &path, sources);
            }
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root).expect("the walk stays below the root");
            sources.push(Source::new(&path.to_string_lossy().replace('\\', "/"), &text));
        }
    }
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("_tests.rs") || path.ends_with("/tests.rs")
}

/// First and last line of every braced item behind `#[cfg(test)]`.
fn test_regions(code: &str) -> Vec<(usize, usize)> {
    let chars: Vec<char> = code.chars().collect();
    let attribute: Vec<char> = "#[cfg(test)]".chars().collect();
    (0..chars.len())
        .filter(|at| chars[*at..].starts_with(&attribute))
        .filter_map(|at| {
            let body = body_after(&chars, at + attribute.len())?;
            Some((line_at(&chars, at), line_at(&chars, closing(&chars, body)?)))
        })
        .collect()
}

fn function(code: &[char], at: usize) -> Option<Function> {
    let mut i = at + 2;
    while code.get(i).is_some_and(|c| c.is_whitespace()) {
        i += 1;
    }
    let name: String = code[i..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
    if name.is_empty() {
        return None; // A pointer's type, or a macro's variable.
    }
    let body = body_after(code, i)?;
    let line = line_at(code, at);
    let lines = line_at(code, closing(code, body)?) - line + 1;
    Some(Function { name, line, lines, signature: code[at..body].iter().collect() })
}

/// The brace that opens the item's body; nothing if a semicolon ends the item first.
fn body_after(code: &[char], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (i, c) in code.iter().enumerate().skip(from) {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '{' if depth == 0 => return Some(i),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn closing(code: &[char], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (i, c) in code.iter().enumerate().skip(open) {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(i),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn line_at(code: &[char], at: usize) -> usize {
    code[..at].iter().filter(|c| **c == '\n').count() + 1
}

/// Where `word` stands by itself.
fn words<'a>(code: &'a [char], word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let word: Vec<char> = word.chars().collect();
    let inside = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || *c == '_');
    (0..code.len()).filter(move |at| {
        code[*at..].starts_with(&word)
            && !inside(at.checked_sub(1).and_then(|before| code.get(before)))
            && !inside(code.get(at + word.len()))
    })
}

/// The text with comments, strings and characters replaced by blanks; line breaks stay.
pub(crate) fn blanked(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = token_end(&chars, i);
        if end == i {
            out.push(chars[i]);
            i += 1;
        } else {
            out.extend(chars[i..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

/// The end of the comment, string or character that begins at `i`; `i` itself if none does.
fn token_end(chars: &[char], i: usize) -> usize {
    let after_word = i > 0 && (chars[i - 1].is_alphanumeric() || chars[i - 1] == '_');
    match (chars[i], chars.get(i + 1)) {
        ('/', Some('/')) => until(chars, i, |rest| rest.starts_with(&['\n'])),
        ('/', Some('*')) => block_comment_end(chars, i),
        ('"', _) => string_end(chars, i),
        ('r' | 'b' | 'c', _) if !after_word => raw_string_end(chars, i),
        ('\'', Some('\\')) => until(chars, i + 3, |rest| rest.starts_with(&['\''])) + 1,
        // A lifetime has no second quote.
        ('\'', Some(_)) if chars.get(i + 2) == Some(&'\'') => i + 3,
        _ => i,
    }
}

fn until(chars: &[char], from: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len()).find(|i| stop(&chars[*i..])).unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let mut depth = 0_usize;
    let mut i = from;
    while i < chars.len() {
        if chars[i..].starts_with(&['/', '*']) {
            depth += 1;
            i += 2;
        } else if chars[i..].starts_with(&['*', '/']) {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    i
}

fn string_end(chars: &[char], open: usize) -> usize {
    let mut i = open + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

/// `r"..."`, `br#"..."#` and their like; `i` itself if it is but a word that begins so.
fn raw_string_end(chars: &[char], i: usize) -> usize {
    let letters = chars[i..].iter().take(2).take_while(|c| matches!(c, 'r' | 'b' | 'c')).count();
    let hashes = chars[i + letters..].iter().take_while(|c| **c == '#').count();
    let open = i + letters + hashes;
    if chars.get(open) != Some(&'"') || !chars[i..i + letters].contains(&'r') {
        return i; // The quotes of `b"..."` are met next.
    }
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', hashes));
    (until(chars, open + 1, |rest| rest.starts_with(&close)) + close.len()).min(chars.len())
}

//! Writes the canonical form while the body is scanned.
//!
//! There is no tree: a body of brackets and commas would cost many times its size. Instead each
//! member is written where it comes, and when its object ends, the members are put in order. A
//! level is copied at most once, and only if it was out of order.

use std::ops::Range;

use super::pointer::{Token, tokens};
use super::scan::{Ahead, Scanner};
use super::{NoString, Selection};

/// What a pointer does to the value it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    LeaveOut,
    /// Takes a copy into the slot of this number.
    Take(usize),
}

#[derive(Debug)]
struct Rule {
    tokens: Vec<Token>,
    action: Action,
}

/// Whether a value is in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Written,
    LeftOut,
}

/// A member of an object that is still open: where its name and its text are.
struct Member {
    name: Range<usize>,
    text: Range<usize>,
}

/// The canonical form in the making.
pub(super) struct Writer<'s> {
    rules: Vec<Rule>,
    /// The included pointers in order, each with a copy of the value that it led to.
    taken: Vec<(&'s str, Option<Vec<u8>>)>,
    out: Vec<u8>,
    /// The unescaped names of all open objects.
    names: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'s> Writer<'s> {
    pub(super) fn new(selection: &'s Selection) -> Self {
        let mut include: Vec<&str> = selection.include.iter().map(String::as_str).collect();
        include.sort_unstable();
        include.dedup();
        let takes = include.iter().enumerate().map(|(slot, text)| (*text, Action::Take(slot)));
        let leaves = selection.exclude.iter().map(|text| (text.as_str(), Action::LeaveOut));
        let rules = takes
            .chain(leaves)
            .filter_map(|(text, action)| Some(Rule { tokens: tokens(text)?, action }))
            .collect();
        Self {
            rules,
            taken: include.into_iter().map(|text| (text, None)).collect(),
            out: Vec::new(),
            names: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// The canonical form of the whole body.
    pub(super) fn document(mut self, scanner: &mut Scanner<'_>) -> Result<Vec<u8>, NoString> {
        let all: Vec<usize> = (0..self.rules.len()).collect();
        self.value(scanner, &all)?;
        scanner.end()?;
        if self.taken.iter().all(|(_, copy)| copy.is_none()) {
            return Ok(self.out);
        }
        // Members without their braces: no JSON text, so it equals no whole body's form.
        let mut selected = Vec::new();
        for (pointer, copy) in &self.taken {
            if let Some(copy) = copy {
                write_string(pointer.as_bytes(), &mut selected);
                selected.push(b':');
                selected.extend_from_slice(copy);
                selected.push(b',');
            }
        }
        Ok(selected)
    }

    /// Reads and writes one value. `live` are the rules whose tokens led here so far.
    fn value(&mut self, scanner: &mut Scanner<'_>, live: &[usize]) -> Result<Fate, NoString> {
        let start = self.out.len();
        let depth = scanner.depth();
        let here = |rule: &usize| self.rules[*rule].tokens.len() == depth;
        let actions: Vec<Action> =
            live.iter().copied().filter(here).map(|rule| self.rules[rule].action).collect();
        let left_out = actions.contains(&Action::LeaveOut);
        // Nothing is taken out of what is left out, so no rule lives on below it.
        let live = if left_out { &[] } else { live };
        match scanner.ahead()? {
            Ahead::Object => self.object(scanner, live)?,
            Ahead::Array => self.array(scanner, live)?,
            Ahead::String => {
                self.scratch.clear();
                scanner.string(&mut self.scratch)?;
                write_string(&self.scratch, &mut self.out);
            }
            Ahead::Null | Ahead::Other => self.out.extend_from_slice(scanner.lexeme()?),
        }
        if left_out {
            self.out.truncate(start);
            return Ok(Fate::LeftOut);
        }
        for action in actions {
            if let Action::Take(slot) = action {
                self.taken[slot].1 = Some(self.out[start..].to_vec());
            }
        }
        Ok(Fate::Written)
    }

    fn array(&mut self, scanner: &mut Scanner<'_>, live: &[usize]) -> Result<(), NoString> {
        self.out.push(b'[');
        let start = self.out.len();
        let depth = scanner.depth();
        let mut index = 0;
        scanner.elements(|scanner| {
            let next = self.follow(live, depth, |token| token.is_index(index));
            if self.value(scanner, &next)? == Fate::Written {
                self.out.push(b',');
            }
            index += 1;
            Ok(())
        })?;
        self.close(start, b']');
        Ok(())
    }

    fn object(&mut self, scanner: &mut Scanner<'_>, live: &[usize]) -> Result<(), NoString> {
        self.out.push(b'{');
        let start = self.out.len();
        let first_name = self.names.len();
        let depth = scanner.depth();
        let mut members = Vec::new();
        scanner.members(|scanner| {
            let name = self.names.len();
            scanner.name(&mut self.names)?;
            let name = name..self.names.len();
            let next = self.follow(live, depth, |token| token.is_name(&self.names[name.clone()]));
            let text = self.out.len();
            write_string(&self.names[name.clone()], &mut self.out);
            self.out.push(b':');
            match self.value(scanner, &next)? {
                Fate::Written => self.out.push(b','),
                Fate::LeftOut => self.out.truncate(text),
            }
            // One that is left out is listed too: its name may still occur twice.
            members.push(Member { name, text: text..self.out.len() });
            Ok(())
        })?;
        self.sort(start, members)?;
        self.names.truncate(first_name);
        self.close(start, b'}');
        Ok(())
    }

    /// Puts the members of the object whose content begins at `start` in order.
    fn sort(&mut self, start: usize, mut members: Vec<Member>) -> Result<(), NoString> {
        let name = |member: &Member| &self.names[member.name.clone()];
        if members.is_sorted_by(|a, b| name(a) < name(b)) {
            return Ok(());
        }
        members.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        if members.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
            return Err(NoString::Duplicate);
        }
        let mut sorted = Vec::with_capacity(self.out.len() - start);
        for member in members {
            sorted.extend_from_slice(&self.out[member.text]);
        }
        self.out[start..].copy_from_slice(&sorted);
        Ok(())
    }

    /// Ends a container: its last comma, if there is one, gives way to the bracket.
    fn close(&mut self, start: usize, bracket: u8) {
        if self.out.len() > start {
            self.out.pop();
        }
        self.out.push(bracket);
    }

    /// The rules of `live` whose token at `depth` is the step that is now taken.
    fn follow(&self, live: &[usize], depth: usize, step: impl Fn(&Token) -> bool) -> Vec<usize> {
        let leads = |rule: &usize| self.rules[*rule].tokens.get(depth).is_some_and(&step);
        live.iter().copied().filter(leads).collect()
    }
}

/// Writes a string with the one spelling that each character has.
fn write_string(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0C => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..=0x1F => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xF)]]);
            }
            plain => out.push(plain),
        }
    }
    out.push(b'"');
}

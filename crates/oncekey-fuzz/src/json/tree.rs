//! A canonical form taken apart, so that it can be spelt in other ways.

use std::iter::Peekable;
use std::str::CharIndices;

/// A value; words, numbers and strings as they are written.
#[derive(Clone, Debug)]
pub(super) enum Tree<'a> {
    Lexeme(&'a str),
    Array(Vec<Tree<'a>>),
    Object(Vec<(&'a str, Tree<'a>)>),
}

impl<'a> Tree<'a> {
    /// Takes a canonical form apart: JSON without white space.
    ///
    /// # Panics
    /// Where it is none.
    pub(super) fn of(text: &'a str) -> Self {
        let mut characters = text.char_indices().peekable();
        let tree = value(text, &mut characters);
        assert_eq!(characters.next(), None, "something follows the value");
        tree
    }

    /// Writes it with members the other way round, white space and escapes, as `noise` says.
    pub(super) fn spelt(&self, noise: usize) -> String {
        let mut out = String::new();
        self.spell(noise, &mut out);
        out
    }

    fn spell(&self, noise: usize, out: &mut String) {
        let space = ["", " ", "\r\n\t "][noise % 3];
        out.push_str(space);
        match self {
            Self::Lexeme(lexeme) => spell_lexeme(lexeme, noise, out),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    item.spell(noise, out);
                }
                out.push_str(space);
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, item)) in members.iter().rev().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    out.push_str(space);
                    spell_lexeme(name, noise, out);
                    out.push_str(space);
                    out.push(':');
                    item.spell(noise, out);
                }
                out.push_str(space);
                out.push('}');
            }
        }
        out.push_str(space);
    }
}

/// A string with its letters as escapes; anything else as it is.
fn spell_lexeme(lexeme: &str, noise: usize, out: &mut String) {
    if noise == 0 || !lexeme.starts_with('"') {
        return out.push_str(lexeme);
    }
    let mut characters = lexeme.chars();
    while let Some(character) = characters.next() {
        if character == '\\' {
            // An escape stays one, with the letter that belongs to it.
            out.push(character);
            out.extend(characters.next());
        } else if character.is_ascii_uppercase() || !character.is_ascii() {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
}

fn value<'a>(text: &'a str, left: &mut Peekable<CharIndices<'a>>) -> Tree<'a> {
    let (start, first) = *left.peek().expect("a value");
    match first {
        '[' | '{' => {
            left.next();
            let (mut items, mut members) = (Vec::new(), Vec::new());
            while left.next_if(|(_, c)| matches!(c, ']' | '}')).is_none() {
                left.next_if(|(_, c)| *c == ',');
                if first == '[' {
                    items.push(value(text, left));
                } else {
                    let name = lexeme(text, left);
                    assert_eq!(left.next().map(|(_, c)| c), Some(':'));
                    members.push((name, value(text, left)));
                }
            }
            if first == '[' { Tree::Array(items) } else { Tree::Object(members) }
        }
        _ => {
            let lexeme = lexeme(text, left);
            assert!(!lexeme.is_empty(), "no value at {start}");
            Tree::Lexeme(lexeme)
        }
    }
}

fn lexeme<'a>(text: &'a str, left: &mut Peekable<CharIndices<'a>>) -> &'a str {
    let start = left.peek().expect("a lexeme").0;
    if left.next_if(|(_, c)| *c == '"').is_some() {
        while let Some((at, character)) = left.next() {
            match character {
                '\\' => drop(left.next()),
                '"' => return &text[start..=at],
                _ => {}
            }
        }
        panic!("a string without an end");
    }
    while left.next_if(|(_, c)| !matches!(c, ',' | ']' | '}' | ':')).is_some() {}
    &text[start..left.peek().map_or(text.len(), |(at, _)| *at)]
}

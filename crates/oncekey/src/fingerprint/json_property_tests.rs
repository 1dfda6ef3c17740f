use proptest::prelude::*;

use super::tests::{selected, whole};
use super::*;

/// A JSON value that knows its members' order.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Word(&'static str),
    Integer(i64),
    Text(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "false"]).prop_map(Value::Word),
        (-(1_i64 << 53) + 1..1 << 53).prop_map(Value::Integer),
        "[a-z \"\\\\/\n\t\u{1}\u{7f}\u{e9}\u{20ac}\u{1f600}]{0,6}".prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::btree_map("[a-c\"\n]{0,3}", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

impl Value {
    /// Writes it in one of its many spellings, which `noise` chooses.
    fn spell(&self, noise: &mut impl FnMut() -> usize, out: &mut String) {
        let space = |noise: &mut dyn FnMut() -> usize| ["", "", " ", "\n\t"][noise() % 4];
        out.push_str(space(noise));
        match self {
            Self::Word(word) => out.push_str(word),
            Self::Integer(number) => out.push_str(&number.to_string()),
            Self::Text(text) => spell_text(text, noise, out),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    item.spell(noise, out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                for last in (1..members.len()).rev() {
                    members.swap(last, noise() % (last + 1));
                }
                out.push('{');
                for (index, (name, item)) in members.into_iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    out.push_str(space(noise));
                    spell_text(name, noise, out);
                    out.push_str(space(noise));
                    out.push(':');
                    item.spell(noise, out);
                }
                out.push('}');
            }
        }
        out.push_str(space(noise));
    }

    fn spelt(&self, seed: u64) -> String {
        let mut state = seed | 1;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 40).expect("24 bits fit")
        };
        let mut out = String::new();
        self.spell(&mut noise, &mut out);
        out
    }
}

fn spell_text(text: &str, noise: &mut impl FnMut() -> usize, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        if noise().is_multiple_of(3) || character < ' ' || matches!(character, '"' | '\\') {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
        } else {
            out.push(character);
        }
    }
    out.push('"');
}

proptest! {
    #[test]
    fn f2_b74_all_spellings_of_a_value_have_one_form(value in value(), a: u64, b: u64) {
        let form = whole(value.spelt(a));
        prop_assert!(form.is_some());
        let other = whole(value.spelt(b));
        prop_assert_eq!(&form, &other);
        prop_assert_eq!(whole(form.as_ref().expect("checked above")), form);
    }

    #[test]
    fn f2_different_values_have_different_forms(a in value(), b in value(), seed: u64) {
        prop_assert_eq!(a == b, whole(a.spelt(seed)) == whole(b.spelt(seed)));
    }

    #[test]
    fn f2_the_form_is_that_of_rfc_8785_where_both_mean_the_same(value in value(), seed: u64) {
        // Names here are ASCII, where the order by bytes and by UTF-16 units is one.
        let body = value.spelt(seed);
        let parsed: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let oracle = serde_json_canonicalizer::to_string(&parsed).expect("canonical");
        prop_assert_eq!(whole(&body), Some(oracle));
    }

    #[test]
    fn f3_an_excluded_member_may_be_absent(value in value(), hidden in value(), seed: u64) {
        let Value::Object(mut members) = value else { return Ok(()) };
        let without = Value::Object(members.clone()).spelt(seed);
        members.push(("zz".into(), hidden));
        let with = Value::Object(members).spelt(seed);
        prop_assert_ne!(whole(&with), whole(&without));
        prop_assert_eq!(selected(&with, &[], &["/zz"]), whole(&without));
    }

    #[test]
    fn f2_what_is_accepted_is_what_another_parser_accepts(
        body in r#"[\[\]{}:," 019.eE+\-tnul\\/]{0,12}"#,
    ) {
        let other = serde_json::from_str::<serde_json::Value>(&body);
        // A number beyond doubles is refused there, and a duplicate here.
        if whole(&body).is_some() {
            prop_assert!(other.is_ok() || body.contains(['e', 'E']), "{}", body);
        } else if other.is_ok() {
            prop_assert!(body.contains(','), "{}", body);
        }
    }

    #[test]
    fn b82_arbitrary_bytes_never_panic(body: Vec<u8>, pointer in "[/~01a-]{0,6}") {
        let _ = selected(&body, &[], &[]);
        let _ = selected(&body, &[&pointer], &[&pointer]);
        let _ = string_at(&body, &pointer);
    }

    #[test]
    fn b82_damaged_json_never_panics(
        value in value(), seed: u64, at: prop::sample::Index, byte: u8,
    ) {
        let mut body = value.spelt(seed).into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        let _ = selected(&body, &["/a"], &["/a/b"]);
        let _ = string_at(&body, "/a");
        let _ = whole(&body[..at]);
    }

    #[test]
    fn k1_the_key_is_that_of_another_parser(value in value(), key in "[ -~]{1,9}", seed: u64) {
        let Value::Object(mut members) = value else { return Ok(()) };
        members.push(("key".into(), Value::Text(key.clone())));
        let body = Value::Object(members).spelt(seed);
        let parsed: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        prop_assert_eq!(parsed["key"].as_str(), Some(key.as_str()));
        prop_assert_eq!(string_at(body.as_bytes(), "/key"), Ok(Some(key)));
    }
}

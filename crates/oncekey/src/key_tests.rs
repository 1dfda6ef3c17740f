use proptest::prelude::*;

use super::*;

fn lenient(value: &[u8]) -> Result<String, InvalidKey> {
    Key::from_header(value, KeySyntax::Lenient).map(|key| key.as_str().to_owned())
}

#[test]
fn k2_the_string_form_and_the_bare_form_are_one_key() {
    assert_eq!(lenient(b"\"abc\""), lenient(b"abc"));
    assert_eq!(lenient(b"\"abc\";v=1;w"), Ok("abc".into()));
    assert_eq!(lenient(b"abc;v=1"), Ok("abc;v=1".into()));
    assert_eq!(Key::from_header(b"abc", KeySyntax::Strict), Err(InvalidKey::NotQuoted));
    assert_eq!(lenient(br#""a\"b\\""#), Ok("a\"b\\".into()));
}

#[test]
fn k3_every_malformed_key_is_refused_with_its_reason() {
    let long = [b'k'; 256];
    let quoted_long = [b"\"".as_slice(), &long, b"\""].concat();
    let table: &[(&[u8], InvalidKey)] = &[
        (b"", InvalidKey::Empty),
        (b"   ", InvalidKey::Empty),
        (b"\t", InvalidKey::Empty),
        (b"\"\"", InvalidKey::Empty),
        (b"\"   \"", InvalidKey::Empty),
        (&long, InvalidKey::TooLong),
        (&quoted_long, InvalidKey::TooLong),
        (b"a b", InvalidKey::ForbiddenByte),
        (b"a\tb", InvalidKey::ForbiddenByte),
        (b"a,b", InvalidKey::ForbiddenByte),
        (b"a\\b", InvalidKey::ForbiddenByte),
        (b"a\"b", InvalidKey::ForbiddenByte),
        (b"a\x7f", InvalidKey::ForbiddenByte),
        (b"a\x00", InvalidKey::ForbiddenByte),
        ("k\u{fc}".as_bytes(), InvalidKey::ForbiddenByte),
        (b"\xff\xfe", InvalidKey::ForbiddenByte),
        (b"\"abc", InvalidKey::BadString),
        (b"\"abc\\\"", InvalidKey::BadString),
        (b"\"a\\n\"", InvalidKey::BadString),
        (b"\"a\tb\"", InvalidKey::BadString),
        ("\"f\u{fc}\"".as_bytes(), InvalidKey::BadString),
        (b"\"a\", \"b\"", InvalidKey::BadString),
        (b"\"a\" b", InvalidKey::BadString),
        (b"\"a\";=", InvalidKey::BadString),
    ];
    for (value, why) in table {
        assert_eq!(lenient(value), Err(*why), "{}", String::from_utf8_lossy(value));
    }
}

#[test]
fn k3_a_key_of_255_bytes_is_accepted() {
    assert!(lenient(&[b'k'; 255]).is_ok());
    assert!(lenient(&[b"\"".as_slice(), &[b'k'; 255], b"\""].concat()).is_ok());
}

#[test]
fn k4_keys_differ_by_case() {
    assert_ne!(lenient(b"K1"), lenient(b"k1"));
}

#[test]
fn k1_a_text_key_takes_what_a_quoted_one_takes() {
    assert_eq!(Key::from_text("a b").map(|key| key.as_str().to_owned()), Ok("a b".into()));
    assert_eq!(Key::from_text("a\nb"), Err(InvalidKey::ForbiddenByte));
    assert_eq!(Key::from_text("  "), Err(InvalidKey::Empty));
    assert_eq!(Key::from_text(&"k".repeat(256)), Err(InvalidKey::TooLong));
}

#[test]
fn s1_the_derivation_is_pinned_by_golden_values() {
    let golden = include_str!("../tests/golden/record-id-1.txt");
    let rows: Vec<_> = golden.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let fields: Vec<_> = row.split('|').collect();
        let [kind, namespace, tenant, operation, key, id] = fields[..] else {
            panic!("six fields in {row}")
        };
        let kind = Kind::from_code(kind.parse().expect("a number")).expect("a kind");
        let scope = Scope::new(namespace, tenant, operation);
        let key = Key::from_text(key).expect("a key");
        assert_eq!(RecordId::derive(kind, &scope, &key).to_string(), id, "{row}");
    }
}

#[test]
fn keys_never_reach_debug() {
    let key = Key::from_text("secret-key").expect("a key");
    assert!(!format!("{key:?}").contains("secret"));
}

fn part() -> impl Strategy<Value = String> {
    "[a-c:/|]{0,4}"
}

proptest! {
    #[test]
    fn s1_b80_different_tuples_have_different_ids(
        a in (part(), part(), part(), "[a-c:/]{1,4}"),
        b in (part(), part(), part(), "[a-c:/]{1,4}"),
    ) {
        let id = |(n, t, o, k): &(String, String, String, String)| {
            let scope = Scope::new(n.as_str(), t.as_str(), o.as_str());
            RecordId::derive(Kind::Request, &scope, &Key::from_text(k).expect("a key"))
        };
        prop_assert_eq!(a == b, id(&a) == id(&b));
    }

    #[test]
    fn k3_bytes_give_a_key_or_a_reason(value in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(key) = Key::from_header(&value, KeySyntax::Lenient) {
            prop_assert!((1..=MAX_KEY_LEN).contains(&key.as_str().len()));
            prop_assert!(key.as_str().bytes().all(|byte| matches!(byte, 0x20..=0x7E)));
        }
    }

    #[test]
    fn k2_whatever_is_a_key_is_the_same_key_when_quoted(bare in "[!#-+\\--\\[\\]-~]{1,40}") {
        let key = Key::from_header(bare.as_bytes(), KeySyntax::Lenient).expect("a bare key");
        let quoted = format!("\"{bare}\"");
        let strict = Key::from_header(quoted.as_bytes(), KeySyntax::Strict).expect("a string");
        prop_assert_eq!(key, strict);
    }
}

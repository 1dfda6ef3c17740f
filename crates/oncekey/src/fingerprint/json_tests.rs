use proptest::prelude::*;

use super::*;

fn all(body: &str) -> Option<String> {
    let canonical = canonical(body.as_bytes(), &Selection::default())?;
    Some(String::from_utf8(canonical).expect("text"))
}

fn select(body: &str, exclude: &[&str], include: &[&str]) -> Option<Vec<u8>> {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    canonical(body.as_bytes(), &Selection { exclude: own(exclude), include: own(include) })
}

#[test]
fn f2_b74_member_order_and_white_space_do_not_matter_and_array_order_does() {
    assert_eq!(
        all(r#"{"a":1,"b":{"d":[1,2],"c":null}}"#),
        all("{ \"b\" :\t{\"c\":null,\r\n\"d\":[1, 2]}, \"a\":1 }")
    );
    assert_ne!(all("[1,2]"), all("[2,1]"));
    assert_ne!(all("{}"), all("[]"));
    assert_ne!(all(r#"{"a":null}"#), all("{}"));
}

#[test]
fn f2_b88_numbers_are_kept_as_written() {
    assert_ne!(all("9007199254740993"), all("9007199254740992"));
    for different in ["1.0", "1e0", "1E0", "10e-1", "-1"] {
        assert_ne!(all("1"), all(different), "{different}");
    }
    assert_ne!(all("0"), all("-0"));
}

#[test]
fn f2_strings_are_compared_unescaped() {
    assert_eq!(all(r#""\u0041\/\u00e9""#), all("\"A/\u{e9}\""));
    assert_eq!(all(r#""\ud83d\ude00""#), all("\"\u{1f600}\""));
    assert_eq!(all(r#"{"\u0061":1}"#), all(r#"{"a":1}"#));
    assert_eq!(all(r#""\n\u000a""#).as_deref(), Some(r#""\u000a\u000a""#));
    assert_ne!(all(r#""a\"b""#), all(r#""a\\b""#));
}

#[test]
fn f2_b92_what_is_not_json_or_ambiguous_has_no_canonical_form() {
    for body in [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "01",
        "1.",
        ".5",
        "+1",
        "-",
        "1e",
        "NaN",
        "Infinity",
        "nul",
        "truee",
        "\u{feff}{}",
        "{} {}",
        "\"a",
        "\"\t\"",
        r#""\x""#,
        r#""\u12""#,
        r#""\u12g4""#,
        r#""\ud800""#,
        r#""\ud800\u0041""#,
        r#""\udc00""#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":1}"#,
        r#"{"x":[{"b":1,"b":1}]}"#,
    ] {
        assert_eq!(all(body), None, "{body}");
    }
    assert_eq!(canonical(b"\"\xff\"", &Selection::default()), None);
}

#[test]
fn f2_depth_is_bounded() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(all(&nested(MAX_DEPTH)).is_some());
    assert_eq!(all(&nested(MAX_DEPTH + 2)), None);
    assert_eq!(all(&"[".repeat(1 << 20)), None);
}

#[test]
fn f3_b77_excluded_members_do_not_count_and_the_others_do() {
    let one = r#"{"amount":5,"meta":{"ts":1,"id":"a"},"list":[1,2]}"#;
    let two = r#"{"amount":5,"meta":{"ts":2,"id":"a"},"list":[1,2]}"#;
    let without = r#"{"amount":5,"meta":{"id":"a"},"list":[1,2]}"#;
    let other = r#"{"amount":6,"meta":{"ts":1,"id":"a"},"list":[1,2]}"#;
    let of = |body| select(body, &["/meta/ts", "/nowhere/x", "/list/9"], &[]);
    assert_eq!(of(one), of(two));
    assert_eq!(of(one), of(without), "absent and left out are the same");
    assert_ne!(of(one), of(other));
    assert_eq!(select("[1,2]", &["/0"], &[]), select("[9,2]", &["/0"], &[]));
    assert_ne!(select("[1,2]", &["/0"], &[]), select("[1,3]", &["/0"], &[]));
}

#[test]
fn f3_where_members_are_included_only_they_count() {
    let of = |body| select(body, &["/a/x"], &["/a", "/b"]);
    assert_eq!(of(r#"{"a":{"x":1,"y":2},"b":3,"c":4}"#), of(r#"{"c":9,"b":3,"a":{"y":2,"x":8}}"#));
    assert_ne!(of(r#"{"a":1,"b":2}"#), of(r#"{"a":2,"b":1}"#));
    assert_ne!(of(r#"{"a":1}"#), of(r#"{"b":1}"#), "a value that moved differs");
    assert_eq!(of("{}"), of(r#"{"c":1}"#));
}

#[test]
fn f3_pointers_are_unescaped() {
    assert_eq!(select(r#"{"a/b":1,"c":2}"#, &["/a~1b"], &[]), select(r#"{"c":2}"#, &[], &[]));
    assert_eq!(select(r#"{"m~n":1,"c":2}"#, &["/m~0n"], &[]), select(r#"{"c":2}"#, &[], &[]));
    assert_eq!(string_at(br#"{"":"k"}"#, "/"), Ok(Some("k".into())));
    assert_eq!(string_at(br#"["a","b"]"#, "/1"), Ok(Some("b".into())));
    assert_eq!(string_at(br#"["a","b"]"#, "/01"), Ok(None));
}

#[test]
fn k1_a_key_is_a_string_absent_or_an_error() {
    let body = br#"{"a":{"k":"key"},"n":null,"i":1}"#;
    assert_eq!(string_at(body, "/a/k"), Ok(Some("key".into())));
    assert_eq!(string_at(body, "/n"), Ok(None));
    assert_eq!(string_at(body, "/a/b/c"), Ok(None));
    assert_eq!(string_at(body, "/i"), Err(NoString::NotAString));
    assert_eq!(string_at(body, "/a"), Err(NoString::NotAString));
    assert_eq!(string_at(br#"{"k":"a","k":"b"}"#, "/k"), Err(NoString::Duplicate));
    assert_eq!(string_at(b"{", "/k"), Err(NoString::NotJson));
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (-(1i64 << 53)..(1i64 << 53)).prop_map(Into::into),
        "[ -~]{0,6}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            proptest::collection::btree_map("[ -~]{0,4}", inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn f2_it_agrees_with_rfc_8785_where_that_is_exact(value in json()) {
        let ours = all(&value.to_string()).expect("JSON");
        let theirs = serde_json_canonicalizer::to_string(&value).expect("JSON");
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn f2_pretty_printing_changes_nothing(value in json()) {
        let pretty = serde_json::to_string_pretty(&value).expect("JSON");
        prop_assert_eq!(all(&pretty), all(&value.to_string()));
    }

    #[test]
    fn f2_different_values_differ(a in json(), b in json()) {
        prop_assert_eq!(a == b, all(&a.to_string()) == all(&b.to_string()));
    }

    #[test]
    fn f2_any_bytes_are_read_without_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = canonical(&body, &Selection::default());
        let _ = string_at(&body, "/a/0");
    }

    #[test]
    fn f2_what_is_accepted_is_json_for_others_too(body in "[\\[\\]{}:,\"a0-9.eE+\\- \\\\u]{0,24}") {
        if all(&body).is_some() {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok(), "{}", body);
        }
    }
}

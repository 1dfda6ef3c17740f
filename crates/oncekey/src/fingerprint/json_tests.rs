use super::*;

pub(super) fn whole(body: impl AsRef<[u8]>) -> Option<String> {
    selected(body, &[], &[])
}

pub(super) fn selected(
    body: impl AsRef<[u8]>,
    include: &[&str],
    exclude: &[&str],
) -> Option<String> {
    let own = |pointers: &[&str]| pointers.iter().map(|text| (*text).to_owned()).collect();
    let selection = Selection { exclude: own(exclude), include: own(include) };
    canonical(body.as_ref(), &selection)
        .map(|bytes| String::from_utf8(bytes).expect("canonical JSON is UTF-8"))
}

#[test]
fn f2_b74_member_order_and_white_space_do_not_matter() {
    let one = r#"{"a":1,"b":{"x":[1,2],"y":null}}"#;
    let other = "\r\n{ \"b\" : {\t\"y\":null, \"x\" :[ 1 , 2 ] } ,\n\"a\":1 } ";
    assert_eq!(whole(one).as_deref(), Some(one));
    assert_eq!(whole(other).as_deref(), Some(one));
}

#[test]
fn f2_members_are_ordered_by_the_bytes_of_their_names() {
    let body = "{\"\u{fc}\":1,\"b\":2,\"\":3,\"aa\":4,\"a\":5,\"A\":6,\"\\u0000\":7,\"\\\"\":8}";
    let want = "{\"\":3,\"\\u0000\":7,\"\\\"\":8,\"A\":6,\"a\":5,\"aa\":4,\"b\":2,\"\u{fc}\":1}";
    assert_eq!(whole(body).as_deref(), Some(want));
}

#[test]
fn f2_array_order_matters() {
    assert_ne!(whole("[1,2]"), whole("[2,1]"));
    assert_ne!(whole(r#"{"a":[{"x":1},{}]}"#), whole(r#"{"a":[{},{"x":1}]}"#));
}

#[test]
fn f2_b88_numbers_count_as_they_are_written() {
    let apart = [
        "1",
        "1.0",
        "1e0",
        "1E0",
        "10e-1",
        "0",
        "-0",
        "0.0",
        "9007199254740992",
        "9007199254740993",
        "170141183460469231731687303715884105728",
        "1e400",
        "0.1",
        "0.10",
        "true",
        "false",
        "null",
        "\"1\"",
        "[1]",
        "[]",
        "{}",
        "[[]]",
        "[null]",
        "\"\"",
        "\"null\"",
    ];
    let forms: std::collections::HashSet<_> =
        apart.iter().map(|body| whole(body).unwrap_or_else(|| panic!("{body} is JSON"))).collect();
    assert_eq!(forms.len(), apart.len());
}

#[test]
fn f2_the_spelling_of_a_string_does_not_matter() {
    let same = [
        (r#""\u0041\/\u00e9""#, "\"A/\u{e9}\""),
        (r#""\ud83d\uDE00""#, "\"\u{1f600}\""),
        (r#""\u0008\u0009\u000A\u000c\u000D""#, r#""\b\t\n\f\r""#),
        (r#""\u001F\u0000\u007f""#, "\"\\u001f\\u0000\u{7f}\""),
        (r#""\u0022\u005c""#, r#""\"\\""#),
        (r#"{"\u0061":1}"#, r#"{"a":1}"#),
        ("\"\u{2028}\u{feff}\"", "\"\u{2028}\u{feff}\""),
    ];
    for (body, form) in same {
        assert_eq!(whole(body).as_deref(), Some(form), "{body}");
        assert_eq!(whole(form).as_deref(), Some(form), "{form}");
    }
}

#[test]
fn f2_b92_what_is_not_strictly_json_has_no_form() {
    let refused: &[&[u8]] = &[
        b"",
        b" ",
        b"\xef\xbb\xbf{}",
        b"{}\xef\xbb\xbf",
        b"{} {}",
        b"1 2",
        b"{},",
        b"]",
        b"}",
        b"[1,]",
        b"{\"a\":1,}",
        b"[,1]",
        b"[1 2]",
        b"[1,,2]",
        b"[",
        b"{",
        b"[1",
        b"{\"a\"",
        b"{\"a\":",
        b"{\"a\" 1}",
        b"{a:1}",
        b"{1:1}",
        b"{'a':1}",
        b"{\"a\":1 \"b\":2}",
        b"{]",
        b"[}",
        b"[1}",
        b"01",
        b"-",
        b"-a",
        b"+1",
        b".5",
        b"1.",
        b"1.e1",
        b"1e",
        b"1e+",
        b"00",
        b"-01",
        b"0x1",
        b"1_0",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"tru",
        b"truer",
        b"True",
        b"nul",
        b"nullnull",
        b"// c\n1",
        b"/**/1",
        b"\"",
        b"\"a",
        b"\"\\\"",
        b"\"\\x41\"",
        b"\"\\'\"",
        b"\"\\u004\"",
        b"\"\\u+041\"",
        b"\"\\u00g0\"",
        b"\"\\U0041\"",
        b"\"a\nb\"",
        b"\"a\tb\"",
        b"\"\x00\"",
        b"\"\x1f\"",
        b"\"\\ud83d\"",
        b"\"\\ude00\"",
        b"\"\\ude00\\ud83d\"",
        b"\"\\ud83dx\"",
        b"\"\\ud83d\\n\"",
        b"\"\\ud83d\\u0041\"",
        b"\"\xff\"",
        b"\"\xc0\x80\"",
        b"\"\xed\xa0\x80\"",
        b"\xff",
        b"\x00",
        b"1\x00",
        b"\x0c1",
        b"\xc2\xa01",
        b"{\"a\":}",
        b"{\"a\":1:2}",
        b"\"\\",
        b"\"\\u",
        b"\"\\ud83d\\u",
        b"undefined",
    ];
    for body in refused {
        assert_eq!(whole(body), None, "{}", body.escape_ascii());
    }
}

#[test]
fn f2_b92_a_member_that_occurs_twice_leaves_no_form() {
    let refused = [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"":1,"":2}"#,
        r#"[{"x":{"a":1,"b":0,"a":2}}]"#,
    ];
    for body in refused {
        assert_eq!(whole(body), None, "{body}");
    }
    // Not even where it is left out: which one did the sender mean to leave out?
    assert_eq!(selected(r#"{"t":1,"t":2}"#, &[], &["/t"]), None);
    assert_eq!(selected(r#"{"t":{"a":1,"a":2}}"#, &[], &["/t"]), None);
    assert_eq!(selected(r#"{"t":{"a":1,"a":2},"b":1}"#, &["/b"], &[]), None);
    // The same name in two objects is no duplicate.
    assert!(whole(r#"{"a":{"a":1},"b":{"a":1}}"#).is_some());
}

#[test]
fn f2_nesting_is_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(whole(nested(128)).is_some());
    assert_eq!(whole(nested(129)), None);
    assert_eq!(string_at(nested(129).as_bytes(), "/a"), Err(NoString::TooDeep));
    for piece in ["[", "{\"\":", "[{\"a\":", "[[],"] {
        let body = piece.repeat((1 << 20) / piece.len());
        assert_eq!(whole(&body), None);
        assert_eq!(string_at(body.as_bytes(), "/a"), Err(NoString::TooDeep));
    }
    let excluded = format!("{{\"a\":{}}}", nested(128));
    assert_eq!(selected(excluded, &[], &["/a"]), None);
}

#[test]
fn f2_the_form_is_never_longer_than_the_body() {
    let members: Vec<_> = (0..50_000).rev().map(|number| format!("\"{number:06}\":0")).collect();
    let body = format!("{{{}}}", members.join(","));
    let form = whole(&body).expect("JSON");
    assert_eq!(form.len(), body.len());
    assert!(form.starts_with("{\"000000\":0,\"000001\":0,"));
}

#[test]
fn f3_b77_excluded_values_do_not_matter_and_all_others_do() {
    let of = |body: &str| selected(body, &[], &["/at", "/card/nonce", "/items/1/t", "/a~1b/m~0n"]);
    let base = r#"{"at":1,"card":{"nonce":"x","id":7},"items":[1,{"t":1,"u":2}],"a/b":{"m~n":1}}"#;
    let form = r#"{"a/b":{},"card":{"id":7},"items":[1,{"u":2}]}"#;
    let same = [
        base,
        r#"{"at":[{"z":2}],"card":{"id":7,"nonce":null},"items":[1,{"u":2}],"a/b":{"m~n":{}}}"#,
        r#"{"card":{"id":7},"items":[1,{"u":2,"t":9}],"a/b":{}}"#,
    ];
    for body in same {
        assert_eq!(of(body).as_deref(), Some(form), "{body}");
    }
    let others = [
        r#"{"card":{"id":8},"items":[1,{"u":2}],"a/b":{}}"#,
        r#"{"card":{"id":7,"at":1},"items":[1,{"u":2}],"a/b":{}}"#,
        r#"{"card":{"id":7},"items":[1,{"u":3}],"a/b":{}}"#,
        r#"{"card":{"id":7},"items":[{"t":1},{"u":2}],"a/b":{}}"#,
        r#"{"card":{"id":7},"items":[1,{"u":2},{"t":1}],"a/b":{}}"#,
        r#"{"card":{"id":7},"items":[1,{"u":2}],"a/b":{},"m~n":1}"#,
        r#"{"items":[1,{"u":2}],"a/b":{}}"#,
    ];
    for body in others {
        assert_ne!(of(body).as_deref(), Some(form), "{body}");
        assert!(of(body).is_some(), "{body}");
    }
}

#[test]
fn f3_a_pointer_that_leads_nowhere_does_nothing() {
    let nowhere = [
        "/x",
        "/a/x",
        "/a/b/c/d",
        "/l/3",
        "/l/-",
        "/l/01",
        "/l/+1",
        "/l/00",
        "/l/",
        "/",
        "/A",
        "a",
        "#/a",
        "/a~",
        "/a~2",
        "/l/18446744073709551616",
    ];
    let body = r#"{"a":{"b":1},"l":[1,2,3]}"#;
    for pointer in nowhere {
        assert_eq!(selected(body, &[], &[pointer]), whole(body), "{pointer}");
        assert_eq!(selected(body, &[pointer], &[]), whole(body), "{pointer}");
        assert_eq!(
            selected(body, &[pointer, "/l"], &[]).as_deref(),
            Some(r#""/l":[1,2,3],"#),
            "{pointer}"
        );
    }
}

#[test]
fn f3_an_index_is_that_of_the_array_as_sent_and_a_name_may_be_a_number() {
    assert_eq!(selected("[1,2,3]", &[], &["/0", "/2"]).as_deref(), Some("[2]"));
    assert_eq!(selected("[1,2,3]", &[], &["/0", "/1", "/2"]).as_deref(), Some("[]"));
    assert_eq!(selected(r#"{"0":1,"1":2}"#, &[], &["/0"]).as_deref(), Some(r#"{"1":2}"#));
    assert_eq!(selected("[1]", &[], &[""]).as_deref(), Some(""));
}

#[test]
fn f3_b77_included_values_alone_count() {
    let of = |body: &str| selected(body, &["/amount", "/to/iban"], &[]);
    let form = of(r#"{"amount":5,"to":{"iban":"X"},"at":1}"#);
    assert_eq!(form.as_deref(), Some(r#""/amount":5,"/to/iban":"X","#));
    assert_eq!(of(r#"{"to":{"iban":"X","n":1},"amount":5}"#), form);
    assert_ne!(of(r#"{"amount":6,"to":{"iban":"X"}}"#), form);
    assert_ne!(of(r#"{"amount":5,"to":{}}"#), form);
    assert_ne!(of(r#"{"amount":5,"iban":"X"}"#), form);
}

#[test]
fn f3_a_value_that_moves_to_another_member_differs() {
    let of = |body: &str| selected(body, &["/a", "/b"], &[]);
    assert_ne!(of(r#"{"a":1}"#), of(r#"{"b":1}"#));
    assert_ne!(of(r#"{"a":1,"b":2}"#), of(r#"{"a":2,"b":1}"#));
    assert_ne!(of(r#"{"a":"1,\"/b\":2"}"#), of(r#"{"a":1,"b":2}"#));
}

#[test]
fn f3_include_comes_first_and_exclude_wins() {
    let body = r#"{"a":{"t":1,"v":2},"b":3}"#;
    assert_eq!(selected(body, &["/a"], &["/a/t"]).as_deref(), Some(r#""/a":{"v":2},"#));
    assert_eq!(selected(body, &["/a/t", "/b"], &["/a"]).as_deref(), Some(r#""/b":3,"#));
    assert_eq!(
        selected(body, &["/b", "/a/v", "/a", "/b"], &[]).as_deref(),
        Some(r#""/a":{"t":1,"v":2},"/a/v":2,"/b":3,"#)
    );
}

#[test]
fn f3_a_selection_never_equals_a_whole_body() {
    // The second body has no member `a`, so the whole of it counts.
    let of = |body: &str| selected(body, &["/a"], &[]);
    assert_ne!(of(r#"{"a":1}"#), of(r#"{"/a":1}"#));
    assert_ne!(of(r#"{"b":1}"#), of(r#"{"b":2}"#));
}

#[test]
fn k1_a_string_is_the_key_and_null_or_nothing_is_none() {
    let found: &[(&str, &str, Option<&str>)] = &[
        (r#"{"k":"v"}"#, "/k", Some("v")),
        (r#" { "x" : [ ] , "k" : "" } "#, "/k", Some("")),
        (r#"{"\u006b":"\u0076"}"#, "/k", Some("v")),
        (r#"{"a":{"k":"v"}}"#, "/a/k", Some("v")),
        (r#"{"a/b":[0,{"~":"v"}]}"#, "/a~1b/1/~0", Some("v")),
        (r#""v""#, "", Some("v")),
        ("null", "", None),
        (r#"{"k":null}"#, "/k", None),
        ("{}", "/k", None),
        ("5", "/k", None),
        (r#"{"a":{"k":"v"}}"#, "/k", None),
        (r#"{"a":null}"#, "/a/k", None),
        (r#"{"a":"k"}"#, "/a/k", None),
        (r#"{"a":["v"]}"#, "/a/1", None),
        (r#"{"K":"v"}"#, "/k", None),
        (r#"{"x":1,"x":2,"k":"v"}"#, "/k", Some("v")),
        (r#"{"k":"v","a":{"k":"w"}}"#, "/k", Some("v")),
    ];
    for (body, pointer, key) in found {
        assert_eq!(string_at(body.as_bytes(), pointer), Ok(key.map(str::to_owned)), "{body}");
    }
}

#[test]
fn k1_anything_else_is_an_error() {
    let refused: &[(&[u8], &str, NoString)] = &[
        (br#"{"k":1}"#, "/k", NoString::NotAString),
        (br#"{"k":true}"#, "/k", NoString::NotAString),
        (br#"{"k":{}}"#, "/k", NoString::NotAString),
        (br#"{"k":["v"]}"#, "/k", NoString::NotAString),
        (b"{}", "", NoString::NotAString),
        (b"", "/k", NoString::NotJson),
        (br#"{"k":"v""#, "/k", NoString::NotJson),
        (br#"{"k":"v"} x"#, "/k", NoString::NotJson),
        (br#"{"k":"v","x":01}"#, "/k", NoString::NotJson),
        (b"{\"k\":\"v\xff\"}", "/k", NoString::NotJson),
        (b"{\"k\":\"v\",\"x\":\"\xff\"}", "/k", NoString::NotJson),
        (br#"{"k":"\ud800"}"#, "/k", NoString::NotJson),
        (b"\xef\xbb\xbf{\"k\":\"v\"}", "/k", NoString::NotJson),
        (br#"{"k":"v","k":"v"}"#, "/k", NoString::Duplicate),
        (br#"{"k":"v","x":1,"\u006b":"w"}"#, "/k", NoString::Duplicate),
        (br#"{"k":null,"k":"v"}"#, "/k", NoString::Duplicate),
        (br#"{"a":{"k":"v"},"a":{}}"#, "/a/k", NoString::Duplicate),
        (br#"{"a":1,"a":{"k":"v"}}"#, "/a/k", NoString::Duplicate),
        (br#"{"k":"v"}"#, "k", NoString::BadPointer),
        (br#"{"k":"v"}"#, "/~", NoString::BadPointer),
    ];
    for (body, pointer, why) in refused {
        assert_eq!(string_at(body, pointer), Err(*why), "{}", body.escape_ascii());
    }
}

#[test]
fn a_pointer_is_checked_by_its_grammar() {
    assert!(["", "/", "/a", "/a/0", "/~0~1", "//"].iter().all(|text| is_pointer(text)));
    assert!(!["a", "#/a", "/~", "/~2", "/a~", " /a"].iter().any(|text| is_pointer(text)));
}

//! Malformed keys (K1, K2, K3, K5, K6) and tenants (S3).

use super::{Row, key_line, post, refuses, row};

const INVALID: (u16, &str) = (400, "invalid-key");
const MISSING: (u16, &str) = (400, "missing-key");
const TENANT: (u16, &str) = (400, "missing-tenant");

fn keyed(value: impl AsRef<[u8]>) -> Vec<u8> {
    post("/pay", key_line(value), "{}")
}

#[test]
fn k3_a_malformed_key_is_refused_and_never_taken_for_absent() {
    let long = "k".repeat(256);
    let rows: Vec<Row> = [
        ("empty", Vec::new()),
        ("blank", b"   \t ".to_vec()),
        ("an empty string", br#""""#.to_vec()),
        ("a blank string", br#""   ""#.to_vec()),
        ("256 bytes bare", long.clone().into_bytes()),
        ("256 bytes quoted", format!("\"{long}\"").into_bytes()),
        ("UTF-8", "cl\u{e9}".into()),
        ("UTF-8 in a string", "\"cl\u{e9}\"".into()),
        ("Latin-1", b"cl\xe9".to_vec()),
        ("bytes that are no text", b"\xff\xfe".to_vec()),
        ("a blank inside", b"a b".to_vec()),
        ("a tab inside", b"a\tb".to_vec()),
        ("a tab in a string", b"\"a\tb\"".to_vec()),
        ("a comma", b"a,b".to_vec()),
        ("a quote inside", b"a\"b".to_vec()),
        ("a quote at the end", b"a\"".to_vec()),
        ("a backslash", b"a\\b".to_vec()),
        ("a string without its end", b"\"abc".to_vec()),
        ("only a quote", b"\"".to_vec()),
        ("an escape of a letter", br#""a\x""#.to_vec()),
        ("an escape of nothing", br#""a\"#.to_vec()),
        ("an escaped end", br#""a\""#.to_vec()),
        ("text behind the string", br#""a"b"#.to_vec()),
        ("a list of strings", br#""a", "b""#.to_vec()),
        ("a parameter without a name", br#""a";=1"#.to_vec()),
        ("a parameter in capitals", br#""a";A=1"#.to_vec()),
        ("a parameter without its value", br#""a";a="#.to_vec()),
    ]
    .into_iter()
    .map(|(what, value)| row(what, keyed(value), INVALID))
    .collect();
    refuses(|gateway| gateway, &keyed("good"), &rows);
}

#[test]
fn k3_the_header_on_two_lines_is_refused_equal_or_not() {
    let lines = |values: &[&str]| {
        let lines: Vec<u8> = values.iter().flat_map(key_line).collect();
        post("/pay", lines, "{}")
    };
    let rows = [
        row("equal", lines(&["a", "a"]), INVALID),
        row("different", lines(&["a", "b"]), INVALID),
        row("the same in two forms", lines(&["a", "\"a\""]), INVALID),
        row("one of them empty", lines(&["a", ""]), INVALID),
        row("three", lines(&["a", "a", "a"]), INVALID),
    ];
    refuses(|gateway| gateway, &keyed("a"), &rows);
}

const ROUTES: &str = r#"
[[route]]
match = "POST /strict"
key_syntax = "strict"
[[route]]
match = "POST /required"
require_key = true
[[route]]
match = "POST /payment"
profile = "payment"
[[route]]
match = "POST /uuid"
uuid_only = true
[[route]]
match = "POST /long"
min_key_length = 16
[[route]]
match = "POST /young"
max_key_age = "retention"
[[route]]
match = "POST /two"
require_key = true
key = ["header:Idempotency-Key", "header:X-Key", "body:/id"]
"#;

#[test]
fn k2_k5_k6_a_route_refuses_what_its_rules_refuse() {
    let keyed = |path, value: &str| post(path, key_line(value), "{}");
    let mut rows = vec![
        row("no key", post("/required", "", "{}"), MISSING),
        row("no key for a payment", post("/payment", "", "{}"), MISSING),
        row("an empty key where one is needed", keyed("/required", ""), INVALID),
        row("15 of 16 bytes", keyed("/long", "123456789012345"), INVALID),
        row("15 bytes and their quotes", keyed("/long", "\"123456789012345\""), INVALID),
        row("a UUIDv7 of 2020", keyed("/young", "01700000-0000-7000-8000-000000000000"), INVALID),
    ];
    for value in ["k", "1", "?1", ":YQ==:", "@1700000000", "(\"a\")", "a/b"] {
        rows.push(row("no string where only one is taken", keyed("/strict", value), INVALID));
    }
    for value in [
        "k",
        "8e03978e40d543dd930a1dd1b1ab0bbb",
        "{8e03978e-40d5-43dd-930a-1dd1b1ab0bbb}",
        "urn:uuid:8e03978e-40d5-43dd-930a-1dd1b1ab0bbb",
        "8e03978e-40d5-43dd-930a-1dd1b1ab0bb",
        "8e03978e-40d5-43dd-930a-1dd1b1ab0bbg",
        "8e03978e_40d5_43dd_930a_1dd1b1ab0bbb",
    ] {
        rows.push(row("no UUID where one is needed", keyed("/uuid", value), INVALID));
    }
    refuses(|gateway| gateway.config(ROUTES), &keyed("/strict", "\"k\""), &rows);
}

#[test]
fn k1_a_key_in_the_body_is_a_string_and_two_sources_agree() {
    let json = "Content-Type: application/json\r\n";
    let body = |body: &str| post("/two", json, body);
    let long = format!(r#"{{"id":"{}"}}"#, "k".repeat(256));
    let deep = format!("{}{}", "[".repeat(4_000), "]".repeat(4_000));
    let mut rows = vec![
        row("absent", body("{}"), MISSING),
        row("null", body(r#"{"id":null}"#), MISSING),
        row("no body", body(""), MISSING),
        row("256 bytes", body(&long), INVALID),
        row("too deep", body(&deep), INVALID),
        row("broken JSON without a type", post("/two", "", r#"{"id":"a""#), INVALID),
        row("two headers", post("/two", "Idempotency-Key: a\r\nX-Key: b\r\n", "{}"), INVALID),
        row(
            "header and body",
            post("/two", format!("X-Key: a\r\n{json}"), r#"{"id":"b"}"#),
            INVALID,
        ),
        row(
            "a good header and a malformed one",
            post("/two", "Idempotency-Key: a\r\nX-Key: \"\r\n", "{}"),
            INVALID,
        ),
        row(
            "a good header and no string",
            post("/two", format!("X-Key: a\r\n{json}"), r#"{"id":7}"#),
            INVALID,
        ),
    ];
    for text in [
        r#"{"id":1}"#,
        r#"{"id":true}"#,
        r#"{"id":{}}"#,
        r#"{"id":["a"]}"#,
        r#"{"id":""}"#,
        r#"{"id":"  "}"#,
        "{\"id\":\"cl\u{e9}\"}",
        r#"{"id":"a\u0000b"}"#,
        r#"{"id":"a\nb"}"#,
        r#"{"id":"a""#,
        "id=a",
    ] {
        rows.push(row("no key in the body", body(text), INVALID));
    }
    refuses(|gateway| gateway.config(ROUTES), &body(r#"{"id":"a"}"#), &rows);
}

#[test]
fn s3_a_tenant_that_is_absent_empty_or_sent_twice_is_refused() {
    let config = "[tenant]\nfrom = \"header:X-Tenant\"\ntrusted_peers = [\"127.0.0.0/8\"]\n";
    let of = |lines: &str| post("/pay", format!("Idempotency-Key: k\r\n{lines}"), "{}");
    let long = format!("X-Tenant: {}\r\n", "t".repeat(256));
    let rows = [
        row("absent", of(""), TENANT),
        row("empty", of("X-Tenant:\r\n"), TENANT),
        row("blank", of("X-Tenant: \t\r\n"), TENANT),
        row("twice", of("X-Tenant: a\r\nX-Tenant: a\r\n"), TENANT),
        row("too long", of(&long), TENANT),
    ];
    refuses(|gateway| gateway.config(config), &of("X-Tenant: a\r\n"), &rows);
}

#[test]
fn s3_a_tenant_from_an_untrusted_peer_is_refused() {
    let config = "[tenant]\nfrom = \"header:X-Tenant\"\ntrusted_peers = [\"10.0.0.0/8\"]\n";
    let of = |lines: &str| post("/pay", format!("Idempotency-Key: k\r\n{lines}"), "{}");
    let rows = [row("untrusted", of("X-Tenant: a\r\n"), TENANT), row("absent", of(""), TENANT)];
    let unkeyed = post("/pay", "X-Tenant: a\r\n", "{}");
    refuses(|gateway| gateway.config(config), &unkeyed, &rows);
}

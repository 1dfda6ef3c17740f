use proptest::prelude::*;

use super::*;

type Part = (Vec<(&'static str, String)>, Vec<u8>);

fn form(boundary: &str, parts: &[Part]) -> Vec<u8> {
    let mut body = Vec::new();
    for (headers, content) in parts {
        body.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
        for (name, value) in headers {
            body.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        body.extend_from_slice(b"\r\n");
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

fn field(name: &str, content: &[u8]) -> Part {
    (vec![("Content-Disposition", format!("form-data; name=\"{name}\""))], content.to_vec())
}

fn of(boundary: &str, parts: &[Part]) -> [u8; 32] {
    digest(&form(boundary, parts), boundary.as_bytes()).expect("a well-formed form")
}

#[test]
fn f2_the_boundary_is_read_from_the_content_type() {
    let longest = "b".repeat(70);
    let accepted = [
        ("multipart/form-data; boundary=abc", "abc"),
        ("Multipart/Form-Data;BOUNDARY=aBc", "aBc"),
        ("multipart/form-data ; charset=utf-8 ;\tboundary=\"a b\" ; x=\";boundary=z\"", "a b"),
        ("multipart/form-data; boundary=\"a\\b'()+_,-./:=?\"", "ab'()+_,-./:=?"),
        ("multipart/form-data;; boundary=----WebKitFormBoundaryX;", "----WebKitFormBoundaryX"),
        (&format!("multipart/form-data; boundary={longest}"), &longest),
    ];
    for (text, want) in accepted {
        assert_eq!(boundary(text.as_bytes()).as_deref(), Some(want.as_bytes()), "{text}");
    }
}

#[test]
fn f2_any_other_content_type_has_no_boundary() {
    let too_long = format!("multipart/form-data; boundary={}", "b".repeat(71));
    let refused: &[&[u8]] = &[
        b"",
        b"multipart/form-data",
        b"multipart/form-data;",
        b"multipart/form-data; boundary=",
        b"multipart/form-data; boundary=\"\"",
        b"multipart/form-data; boundary=\"a",
        b"multipart/form-data; boundary=\"a\\",
        b"multipart/form-data; boundary=\"a \"",
        b"multipart/form-data; boundary =a",
        b"multipart/form-data; boundary=a b",
        b"multipart/form-data; boundary=a; boundary=b",
        b"multipart/form-data; boundary=a; Boundary=a",
        b"multipart/form-data, boundary=a",
        b"multipart/mixed; boundary=a",
        b"application/json",
        b"multipart/form-data-x; boundary=a",
        b"multipart/form-data; boundary=\xc3\xa9",
        b"multipart/form-data; boundary=\"\xff\"",
        b"multipart/form-data; boundary=a#",
        b"multipart/form-data; x; boundary=a",
        b"application/x; multipart/form-data; boundary=a",
        too_long.as_bytes(),
    ];
    for text in refused {
        assert_eq!(boundary(text), None, "{}", text.escape_ascii());
    }
}

#[test]
fn f2_another_boundary_is_the_same_form() {
    let parts = [field("a", b"1"), field("b", b"\x00\xff\r\n\r\n--x\r\n"), field("c", b"")];
    assert_eq!(of("one", &parts), of("----another one", &parts));
}

#[test]
fn f2_the_final_line_end_may_be_missing() {
    let whole = form("b", &[field("a", b"1")]);
    let cut = &whole[..whole.len() - 2];
    assert_eq!(digest(&whole, b"b"), digest(cut, b"b"));
    assert!(digest(cut, b"b").is_some());
}

#[test]
fn f2_every_part_of_a_part_counts() {
    let base = [field("a", b"1"), field("b", b"2")];
    let typed = |kind: &str| {
        let (mut headers, content) = field("b", b"2");
        headers.push(("Content-Type", kind.to_owned()));
        [field("a", b"1"), (headers, content)]
    };
    let others: Vec<Vec<Part>> = vec![
        vec![field("a", b"1"), field("b", b"3")],
        vec![field("a", b"1"), field("c", b"2")],
        vec![field("b", b"2"), field("a", b"1")],
        vec![field("a", b"1")],
        vec![field("a", b"1"), field("b", b"2"), field("b", b"2")],
        vec![field("a", b"1"), field("b", b"2"), field("", b"")],
        vec![field("a", b"1"), field("b", b"2\r\n")],
        vec![field("a", b""), field("b", b"12")],
        vec![field("a", b"1"), (Vec::new(), b"2".to_vec())],
        typed("text/plain").to_vec(),
        typed("text/html").to_vec(),
        typed("").to_vec(),
        Vec::new(),
    ];
    let mut digests: std::collections::HashSet<_> =
        others.iter().map(|parts| of("b-b", parts)).collect();
    digests.insert(of("b-b", &base));
    assert_eq!(digests.len(), others.len() + 1);
}

#[test]
fn f2_names_of_headers_have_no_case_and_unknown_headers_do_not_count() {
    let disposition = || "form-data; name=\"a\"".to_owned();
    let with = |headers: Vec<(&'static str, String)>| of("xx", &[(headers, b"1".to_vec())]);
    let base =
        with(vec![("Content-Disposition", disposition()), ("Content-Type", "text/plain".into())]);
    let same = with(vec![
        ("X-Trace", "7".into()),
        ("CONTENT-TYPE", "  text/plain\t".into()),
        ("content-disposition", disposition()),
        ("Content-Length", "1".into()),
    ]);
    assert_eq!(base, same);
    let other =
        with(vec![("Content-Disposition", disposition()), ("Content-Type", "TEXT/plain".into())]);
    assert_ne!(base, other);
}

#[test]
fn f2_a_value_does_not_move_from_one_header_to_another() {
    let one = vec![("Content-Type", "x".to_owned())];
    let other = vec![("Content-Transfer-Encoding", "x".to_owned())];
    assert_ne!(of("b", &[(one, Vec::new())]), of("b", &[(other, Vec::new())]));
}

#[test]
fn b80_content_that_imitates_what_stands_between_two_parts_stays_apart() {
    // Three absent headers are 27 zero bytes: unframed content could take them over.
    let bare = |content: &[u8]| -> Part { (Vec::new(), content.to_vec()) };
    let zeros = [0; 27];
    let one = [bare(b""), bare(&[&zeros[..], b"x"].concat())];
    let other = [bare(&zeros), bare(b"x")];
    assert_ne!(of("b-b", &one), of("b-b", &other));
}

#[test]
fn f2_content_that_looks_like_another_boundary_is_content() {
    let nested = form("inner", &[field("x", b"1"), field("y", b"2")]);
    let parts = [field("a", &nested), field("b", b"2")];
    assert_eq!(of("outer", &parts), of("other", &parts));
    let moved = form("inner", &[field("x", b"1"), field("y", b"3")]);
    assert_ne!(of("outer", &parts), of("outer", &[field("a", &moved), field("b", b"2")]));
}

#[test]
fn f2_what_is_malformed_has_no_digest() {
    let good = "--b\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b--\r\n";
    assert!(digest(good.as_bytes(), b"b").is_some());
    let refused = [
        "",
        "--b",
        "--b\r\n",
        "--b-",
        "-b--\r\n",
        // Before and after the parts.
        "preamble\r\n--b\r\nA: b\r\n\r\n1\r\n--b--\r\n",
        "\r\n--b\r\nA: b\r\n\r\n1\r\n--b--\r\n",
        "--b\r\nA: b\r\n\r\n1\r\n--b--\r\nepilogue",
        "--b\r\nA: b\r\n\r\n1\r\n--b--epilogue",
        "--b\r\nA: b\r\n\r\n1\r\n--b--\r\n\r\n",
        "--b\r\nA: b\r\n\r\n1\r\n--b--\n",
        // Not closed, or closed early.
        "--b\r\nA: b\r\n\r\n1\r\n",
        "--b\r\nA: b\r\n\r\n1\r\n--b",
        "--b\r\nA: b\r\n\r\n1\r\n--b-",
        "--b\r\nA: b\r\n\r\n1\r\n--b\r\n",
        "--b--\r\n--b\r\nA: b\r\n\r\n1\r\n--b--\r\n",
        // Line ends.
        "--b\nA: b\n\n1\n--b--\n",
        "--b\r\nA: b\n\r\n1\r\n--b--\r\n",
        "--b\r\nA: b\r\n\r\n1\n--b--\r\n",
        "--b\r\nA: b\r\n\r\n1--b--\r\n",
        "--b \r\nA: b\r\n\r\n1\r\n--b--\r\n",
        "--b\r\nA: b\rC: d\r\n\r\n1\r\n--b--\r\n",
        // Headers.
        "--b\r\nA: b\r\n--b--\r\n",
        "--b\r\nA: b\r\n\r\n--b--\r\n",
        "--b\r\n--b--\r\n",
        "--b\r\nno colon\r\n\r\n1\r\n--b--\r\n",
        "--b\r\n: b\r\n\r\n1\r\n--b--\r\n",
        "--b\r\nA : b\r\n\r\n1\r\n--b--\r\n",
        "--b\r\nA: b\r\n folded: c\r\n\r\n1\r\n--b--\r\n",
        "--b\r\nA: b\x00\r\n\r\n1\r\n--b--\r\n",
        "--b\r\nContent-Type: x\r\ncontent-type: x\r\n\r\n1\r\n--b--\r\n",
        // The boundary's text where lenient parsers might take it for a delimiter.
        "--b\r\nA: b\r\n\r\n1\n--b\r\nC: d\r\n\r\n2\r\n--b--\r\n",
        "--b\r\nA: b\r\n\r\n1\r\n--bc\r\n\r\n2\r\n--b--\r\n",
        "--b\r\nA: --b\r\n\r\n1\r\n--b--\r\n",
        "--b\r\nA: b\r\n\r\n1 --b 2\r\n--b--\r\n",
    ];
    for body in refused {
        assert_eq!(digest(body.as_bytes(), b"b"), None, "{}", body.escape_debug());
    }
    assert_eq!(digest(b"----\r\n", b""), None);
    assert_eq!(digest("--\u{e9}--\r\n".as_bytes(), "\u{e9}".as_bytes()), None);
}

#[test]
fn f2_parts_and_headers_are_bounded() {
    let parts = |count: usize| form("b-b", &vec![field("a", b"1"); count]);
    assert!(digest(&parts(1000), b"b-b").is_some());
    assert_eq!(digest(&parts(1001), b"b-b"), None);
    let headers = |count: usize| form("b-b", &[(vec![("X", "y".to_owned()); count], vec![])]);
    assert!(digest(&headers(32), b"b-b").is_some());
    assert_eq!(digest(&headers(33), b"b-b"), None);
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let content = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        "[a\r\n-]{0,12}".prop_map(String::into_bytes),
    ];
    let part = ("[a-c]{1,3}", content).prop_map(|(name, content)| field(&name, &content));
    prop::collection::vec(part, 0..5)
}

proptest! {
    #[test]
    fn f2_any_boundary_gives_the_same_digest(
        parts in parts(), tail in "[0-9A-Z'()+_,./:=? -]{0,50}[0-9A-Z]",
    ) {
        prop_assert_eq!(of("first--boundary", &parts), of(&format!("second{tail}"), &parts));
    }

    #[test]
    fn f2_b80_different_parts_have_different_digests(a in parts(), b in parts()) {
        prop_assert_eq!(a == b, of("the-boundary", &a) == of("the-boundary", &b));
    }

    #[test]
    fn f2_a_changed_byte_differs(
        parts in parts(), part: prop::sample::Index, at: prop::sample::Index,
    ) {
        prop_assume!(parts.iter().any(|(_, content)| !content.is_empty()));
        let full: Vec<_> = (0..parts.len()).filter(|at| !parts[*at].1.is_empty()).collect();
        let part = full[part.index(full.len())];
        let mut changed = parts.clone();
        let at = at.index(changed[part].1.len());
        changed[part].1[at] ^= 1;
        prop_assert_ne!(of("the-boundary", &parts), of("the-boundary", &changed));
    }

    #[test]
    fn b80_bytes_that_move_to_the_next_part_differ(
        a in "[a-c]{1,9}", b in "[a-c]{0,9}", cut: prop::sample::Index,
    ) {
        let cut = cut.index(a.len());
        let one = [field("x", a.as_bytes()), field("y", b.as_bytes())];
        let moved = format!("{}{b}", &a[cut..]);
        let other = [field("x", &a.as_bytes()[..cut]), field("y", moved.as_bytes())];
        prop_assert_ne!(of("the-boundary", &one), of("the-boundary", &other));
    }

    #[test]
    fn b82_arbitrary_bytes_never_panic(
        body: Vec<u8>,
        lines in "(--b|--b--|\r\n|\r|\n|a:|: |x){0,20}",
        name: Vec<u8>,
        kind in "multipart/form-data(;| |boundary|=|\"|\\\\|a){0,12}",
    ) {
        let _ = digest(&body, &name);
        let _ = digest(lines.as_bytes(), b"b");
        let _ = boundary(&body);
        let _ = boundary(kind.as_bytes());
    }
}

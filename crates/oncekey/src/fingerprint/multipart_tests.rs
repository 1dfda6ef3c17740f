use proptest::prelude::*;

use super::*;

fn form(boundary: &str, parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (headers, content) in parts {
        body.extend_from_slice(format!("--{boundary}\r\n{headers}\r\n\r\n").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

const NAMED_A: &str = "Content-Disposition: form-data; name=\"a\"";
const NAMED_B: &str = "Content-Disposition: form-data; name=\"b\"";

#[test]
fn f2_the_boundary_is_read_from_the_content_type() {
    let read =
        |text: &str| boundary(text.as_bytes()).map(|b| String::from_utf8_lossy(&b).into_owned());
    for (text, expected) in [
        ("multipart/form-data; boundary=abc", Some("abc")),
        ("Multipart/Form-Data;BOUNDARY=abc", Some("abc")),
        ("multipart/form-data; charset=utf-8; boundary=\"a b;c\"", Some("a b;c")),
        ("multipart/form-data; boundary=\"a\\\"b\" ; x=1", Some("a\"b")),
        ("multipart/form-data; x; boundary=abc", Some("abc")),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary=\"abc", None),
        ("multipart/form-data; boundary=\"a\"b", None),
        ("multipart/form-data; boundary=a; boundary=b", None),
        ("multipart/mixed; boundary=abc", None),
        ("application/json", None),
    ] {
        assert_eq!(read(text).as_deref(), expected, "{text}");
    }
    let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
    assert_eq!(boundary(long.as_bytes()), None);
}

#[test]
fn f2_another_random_boundary_is_the_same_form() {
    let parts: &[(&str, &[u8])] = &[(NAMED_A, b"1"), (NAMED_B, b"--xyz\r\n")];
    let one = digest(&form("----one", parts), b"----one");
    let two = digest(&form("----two", parts), b"----two");
    assert!(one.is_some());
    assert_eq!(one, two);
}

#[test]
fn f2_b82_every_byte_and_every_header_of_a_part_counts() {
    let of = |parts: &[(&str, &[u8])]| digest(&form("b", parts), b"b").expect("well-formed");
    let first = of(&[(NAMED_A, b"\xff\x01"), (NAMED_B, b"x")]);
    assert_ne!(first, of(&[(NAMED_A, b"\xff\x02"), (NAMED_B, b"x")]));
    assert_ne!(first, of(&[(NAMED_B, b"\xff\x01"), (NAMED_A, b"x")]), "order counts");
    assert_ne!(first, of(&[(NAMED_A, b"\xff"), (NAMED_B, b"\x01x")]), "boundaries count");
    assert_ne!(first, of(&[(NAMED_A, b"\xff\x01")]));
    let typed = format!("{NAMED_A}\r\nContent-Type: text/plain");
    assert_ne!(first, of(&[(&typed, b"\xff\x01"), (NAMED_B, b"x")]));
    let spelt = "content-disposition:   form-data; name=\"a\"  ";
    assert_eq!(first, of(&[(spelt, b"\xff\x01"), (NAMED_B, b"x")]));
}

#[test]
fn f2_what_is_malformed_has_no_digest_by_parts() {
    let good = form("b", &[(NAMED_A, b"1")]);
    assert!(digest(&good, b"b").is_some());
    let text = String::from_utf8(good).expect("text");
    for bad in [
        String::new(),
        "--b".into(),
        "preamble\r\n".to_owned() + &text,
        text.clone() + "epilogue",
        text.replace("--b--", "--b"),
        text.replace("\r\n", "\n"),
        text.replace("Content-Disposition:", "Content-Disposition"),
        text.replace("Content-Disposition:", "Content Disposition:"),
        text.replace("--b\r\n", "--bx\r\n"),
    ] {
        assert_eq!(digest(bad.as_bytes(), b"b"), None, "{bad:?}");
    }
    let many: Vec<(&str, &[u8])> = vec![(NAMED_A, b""); MAX_PARTS + 1];
    assert_eq!(digest(&form("b", &many), b"b"), None);
}

proptest! {
    #[test]
    fn f2_any_bytes_are_read_without_panic(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        content_type in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let _ = digest(&body, b"b");
        let _ = boundary(&content_type);
    }

    #[test]
    fn f2_pieces_of_forms_are_read_without_panic(body in "(--b|\r\n|--|a: b|x|:){0,20}") {
        let _ = digest(body.as_bytes(), b"b");
    }
}

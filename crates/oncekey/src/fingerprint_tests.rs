use proptest::prelude::*;

use super::*;

const FORM: &[u8] = b"multipart/form-data; boundary=b-b";
const SECRET: Secret = Secret::from_bytes([7; 32]);

fn json(exclude: &[&str], include: &[&str]) -> BodyMode {
    let own = |pointers: &[&str]| pointers.iter().map(|text| (*text).to_owned()).collect();
    BodyMode::Json(Selection { exclude: own(exclude), include: own(include) })
}

/// The tag and the digest of a body that comes in these chunks.
fn read(mode: &BodyMode, content_type: Option<&[u8]>, chunks: &[&[u8]]) -> (u8, [u8; 32]) {
    let mut reader = mode.reader(content_type);
    chunks.iter().for_each(|chunk| reader.chunk(chunk));
    reader.digest(mode)
}

fn fingerprint(mode: &BodyMode, content_type: Option<&[u8]>, body: &[u8]) -> Fingerprint {
    let mut reader = mode.reader(content_type);
    reader.chunk(body);
    let mut digest = Recipe::new(&SECRET, b"golden").digester(&SECRET);
    digest.field(b"POST").field(b"/pay").field(b"").body(reader, mode).finish()
}

#[test]
fn f1_b76_raw_bodies_are_compared_byte_for_byte() {
    let of = |body: &[u8]| fingerprint(&BodyMode::Raw, None, body);
    assert_eq!(of(b"{\"a\":1}").relation(&of(b"{\"a\":1}")), Relation::Same);
    // Standard row 34, case B74: the default is strict.
    for other in [b"{\"a\": 1}".as_slice(), b"{\"a\":1}\n", b"", b"{\"a\":2}"] {
        assert_eq!(of(b"{\"a\":1}").relation(&of(other)), Relation::Differs);
    }
}

#[test]
fn f2_b74_json_bodies_are_compared_by_value() {
    let of = |body: &[u8]| fingerprint(&json(&[], &[]), None, body);
    let first = of(br#"{"a":1,"b":[1,2]}"#);
    assert_eq!(first.relation(&of(br#"{ "b": [1, 2], "\u0061": 1 }"#)), Relation::Same);
    for other in [r#"{"a":1,"b":[2,1]}"#, r#"{"a":1.0,"b":[1,2]}"#, r#"{"a":1}"#, "{}", ""] {
        assert_eq!(first.relation(&of(other.as_bytes())), Relation::Differs, "{other}");
    }
}

#[test]
fn f1_an_empty_body_is_not_an_empty_object() {
    for mode in [BodyMode::Raw, json(&[], &[]), json(&["/a"], &[]), json(&[], &["/a"])] {
        let of = |body: &[u8]| fingerprint(&mode, None, body);
        assert_eq!(of(b"").relation(&of(b"{}")), Relation::Differs, "{mode:?}");
        assert_eq!(of(b"null").relation(&of(b"{}")), Relation::Differs, "{mode:?}");
    }
    // A body of which nothing counts is still not a body that is missing.
    let nothing = |body: &[u8]| fingerprint(&json(&[""], &[]), None, body);
    assert_eq!(nothing(b"1").relation(&nothing(b"[2]")), Relation::Same);
    assert_eq!(nothing(b"1").relation(&nothing(b"")), Relation::Differs);
}

#[test]
fn f2_b92_json_mode_falls_back_to_the_raw_bytes() {
    let mode = json(&["/t"], &[]);
    let too_deep = [b'['; 200];
    let bodies: [&[u8]; 6] =
        [b"", b"{\"a\":1,\"a\":2}", b"\xef\xbb\xbf{}", b"{\"t\":1", b"\xff\x01", &too_deep];
    for body in bodies {
        assert_eq!(read(&mode, None, &[body]), read(&BodyMode::Raw, None, &[body]));
        assert_eq!(read(&mode, None, &[body]).0, b'r');
    }
}

#[test]
fn b82_bodies_that_are_not_text_stay_apart() {
    for mode in [BodyMode::Raw, json(&[], &[])] {
        let of = |body: &[u8]| fingerprint(&mode, None, body);
        assert_eq!(of(b"\xff\x01").relation(&of(b"\xff\x02")), Relation::Differs);
    }
}

#[test]
fn f2_forms_never_collide() {
    // The canonical form of a body that is canonical is its bytes: only the tag tells the two.
    let body: &[u8] = b"{\"a\":1}";
    let (raw, by_value) =
        (read(&BodyMode::Raw, None, &[body]), read(&json(&[], &[]), None, &[body]));
    assert_eq!(raw.1, by_value.1);
    assert_ne!(
        fingerprint(&BodyMode::Raw, None, body).digest(),
        fingerprint(&json(&[], &[]), None, body).digest()
    );
    let form: &[u8] = b"--b-b\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b-b--\r\n";
    assert_eq!(read(&BodyMode::Raw, Some(FORM), &[form]).0, b'm');
    assert_eq!(
        read(&json(&[], &[]), Some(FORM), &[form]),
        read(&BodyMode::Raw, Some(FORM), &[form])
    );
    assert_eq!(read(&BodyMode::Raw, None, &[form]).0, b'r');
}

#[test]
fn f2_a_form_with_another_boundary_is_the_same_request() {
    let of = |name: &str| {
        let body = format!("--{name}\r\nContent-Disposition: form-data\r\n\r\n1\r\n--{name}--\r\n");
        let content_type = format!("multipart/form-data; boundary={name}");
        fingerprint(&BodyMode::Raw, Some(content_type.as_bytes()), body.as_bytes())
    };
    assert_eq!(of("one").relation(&of("two")), Relation::Same);
}

#[test]
fn f2_a_malformed_form_counts_with_the_boundary_it_was_sent_with() {
    // Both are malformed here; a lenient parser sees one part named x, or one named y.
    let body: &[u8] = b"\n--b-b\nA: x\n\n1\n--b-b--\n--c-c\nA: y\n\n2\n--c-c--\n";
    let other: &[u8] = b"multipart/form-data; boundary=c-c";
    let of = |content_type| fingerprint(&BodyMode::Raw, Some(content_type), body);
    assert_eq!(read(&BodyMode::Raw, Some(FORM), &[body]).0, b'b');
    assert_eq!(of(FORM).relation(&of(FORM)), Relation::Same);
    assert_eq!(of(FORM).relation(&of(other)), Relation::Differs);
    // Its bytes are what is compared, even if they are JSON.
    let mode = json(&["/t"], &[]);
    let of = |body: &[u8]| fingerprint(&mode, Some(FORM), body);
    assert_eq!(of(b"{\"t\":1}").relation(&of(b"{\"t\":2}")), Relation::Differs);
}

#[test]
fn f1_another_recipe_or_secret_is_told_apart() {
    let of = |secret: &Secret, policy: &[u8]| Recipe::new(secret, policy).digester(secret).finish();
    let first = of(&SECRET, b"p");
    let other = Secret::from_bytes([8; 32]);
    assert_eq!(first.relation(&of(&SECRET, b"p")), Relation::Same);
    assert_eq!(first.relation(&of(&SECRET, b"q")), Relation::OtherRecipe);
    assert_eq!(first.relation(&of(&other, b"p")), Relation::OtherRecipe);
    assert_ne!(first.digest(), of(&other, b"p").digest());
}

#[test]
fn f1_the_body_is_made_of_fields_like_the_rest() {
    // Were the tag bare, the input would split in more than one way.
    let digester = || Recipe::new(&SECRET, b"p").digester(&SECRET);
    let body = digester().body(BodyMode::Raw.reader(None), &BodyMode::Raw).finish();
    let fields = digester().field(b"r").field(blake3::hash(b"").as_bytes()).finish();
    assert_eq!(body, fields);
}

#[test]
fn bodies_and_secrets_never_reach_debug() {
    let mode = json(&[], &[]);
    let mut reader = mode.reader(Some(b"application/json"));
    reader.chunk(b"private words");
    assert_eq!(format!("{reader:?}"), "BodyReader(13 bytes read, 13 kept)");
    let digest = Recipe::new(&SECRET, b"p").digester(&SECRET);
    let shown = format!("{SECRET:?} {digest:?} {:?}", digest.finish());
    assert!(!shown.contains("7, 7") && !shown.contains("0707"), "{shown}");
}

#[test]
fn f1_f2_f3_the_digests_are_pinned_by_golden_values() {
    let golden = include_str!("../tests/golden/fingerprint-1.txt");
    let rows: Vec<_> = golden.lines().filter(|line| !line.starts_with('#')).collect();
    let actual: Vec<_> = rows
        .iter()
        .map(|row| {
            let fields: Vec<_> = row.split('|').collect();
            let [form, exclude, include, content_type, body, _] = fields[..] else {
                panic!("six fields in {row}")
            };
            let pointers = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
            let mode = match form {
                "raw" => BodyMode::Raw,
                "json" => json(&pointers(exclude), &pointers(include)),
                other => panic!("no form {other}"),
            };
            let content_type = Some(content_type.as_bytes()).filter(|text| !text.is_empty());
            let digest = fingerprint(&mode, content_type, &decoded(body));
            let hex: String = digest.digest().iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{form}|{exclude}|{include}|{}|{body}|{hex}", fields[3])
        })
        .collect();
    assert_eq!(rows, actual, "\n{}\n", actual.join("\n"));
    assert_eq!(rows.len(), 20);
    let recipe = Recipe::new(&SECRET, b"golden").number();
    assert_eq!(format!("{recipe:016x}"), "cbcd2f243051401b");
}

/// The bytes of a text with percent escapes.
fn decoded(text: &str) -> Vec<u8> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(&piece[..2], 16).expect("two hex digits"));
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    bytes
}

proptest! {
    #[test]
    fn f1_b80_different_fields_have_different_digests(
        a in prop::collection::vec("[ab\u{0}]{0,3}", 0..4),
        b in prop::collection::vec("[ab\u{0}]{0,3}", 0..4),
    ) {
        let of = |fields: &[String]| {
            let mut digest = Recipe::new(&SECRET, b"p").digester(&SECRET);
            for field in fields {
                digest.field(field.as_bytes());
            }
            digest.finish()
        };
        prop_assert_eq!(a == b, of(&a) == of(&b));
    }

    #[test]
    fn f4_chunks_do_not_matter(
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            Just(b"{\"b\": 1, \"a\": [\"\\u0041\"]}".to_vec()),
            Just(b"--b-b\r\nContent-Type: a\r\n\r\n1\r\n--b-b--\r\n".to_vec()),
        ],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &body[cut[0]..cut[1]]).collect();
        for mode in [BodyMode::Raw, json(&[], &[])] {
            for content_type in [None, Some(FORM)] {
                let whole = read(&mode, content_type, &[&body]);
                prop_assert_eq!(whole, read(&mode, content_type, &chunks));
            }
        }
    }
}

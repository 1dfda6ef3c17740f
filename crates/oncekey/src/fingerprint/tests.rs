use super::*;

const SECRET: Secret = Secret::from_bytes([7; 32]);

fn of(mode: &BodyMode, content_type: Option<&[u8]>, chunks: &[&[u8]]) -> Fingerprint {
    let recipe = Recipe::new(&SECRET, b"policy");
    let mut digester = recipe.digester(&SECRET);
    let mut reader = mode.reader(content_type);
    for chunk in chunks {
        reader.chunk(chunk);
    }
    digester.field(b"POST").body(reader, mode).finish()
}

fn json_mode() -> BodyMode {
    BodyMode::Json(Selection::default())
}

#[test]
fn f1_fields_are_framed() {
    let recipe = Recipe::new(&SECRET, b"");
    let two = |a: &[u8], b: &[u8]| recipe.digester(&SECRET).field(a).field(b).finish();
    assert_eq!(two(b"x-a: b", b"c").relation(&two(b"x-a: b", b"c")), Relation::Same);
    assert_eq!(two(b"x-a: b", b"c").relation(&two(b"x-ab", b": c")), Relation::Differs);
}

#[test]
fn f1_the_secret_and_the_policy_make_another_recipe() {
    let other = Secret::from_bytes([8; 32]);
    assert_ne!(Recipe::new(&SECRET, b"p"), Recipe::new(&other, b"p"));
    assert_ne!(Recipe::new(&SECRET, b"p"), Recipe::new(&SECRET, b"q"));
}

#[test]
fn f4_a_body_in_pieces_is_the_same_body() {
    for (mode, content_type, body) in [
        (BodyMode::Raw, None, &b"{\"a\": 1}"[..]),
        (json_mode(), None, b"{\"a\": 1}"),
        (BodyMode::Raw, Some(&b"multipart/form-data; boundary=b"[..]), b"--b\r\n\r\nx\r\n--b--"),
    ] {
        let whole = of(&mode, content_type, &[body]);
        let pieces: Vec<_> = body.chunks(3).collect();
        assert_eq!(whole.relation(&of(&mode, content_type, &pieces)), Relation::Same);
    }
}

#[test]
fn f2_b76_json_by_value_falls_back_to_bytes_and_never_meets_them() {
    let json = |body: &[u8]| of(&json_mode(), None, &[body]);
    assert_eq!(json(b"{\"a\": 1}").relation(&json(b"{\"a\":1}")), Relation::Same);
    assert_eq!(json(b"{bad").relation(&json(b"{bad")), Relation::Same);
    assert_eq!(json(b"{bad").relation(&json(b"{ bad")), Relation::Differs);
    assert_eq!(json(b"").relation(&json(b"{}")), Relation::Differs);
    let raw = of(&BodyMode::Raw, None, &[b"{\"a\":1}"]);
    assert_eq!(raw.relation(&json(b"{\"a\":1}")), Relation::Differs, "forms are tagged");
}

#[test]
fn f1_digests_are_pinned_by_golden_values() {
    let form = &b"multipart/form-data; boundary=b"[..];
    let table = [
        ("raw", of(&BodyMode::Raw, None, &[b"{\"b\": 1, \"a\": 2}"])),
        ("json", of(&json_mode(), None, &[b"{\"b\": 1, \"a\": 2}"])),
        ("multipart", of(&BodyMode::Raw, Some(form), &[b"--b\r\nA: 1\r\n\r\nx\r\n--b--"])),
    ];
    let golden = include_str!("../../tests/golden/fingerprint-1.txt");
    for (name, fingerprint) in table {
        let digest = blake3::Hash::from_bytes(*fingerprint.digest());
        let recipe = fingerprint.recipe().number();
        let line = format!("{name}|{recipe:016x}|{}", digest.to_hex());
        assert!(golden.lines().any(|known| known == line), "not in the golden file: {line}");
    }
}

#[test]
fn secrets_never_reach_debug() {
    assert_eq!(format!("{SECRET:?}"), "Secret(..)");
}

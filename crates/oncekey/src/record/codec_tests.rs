use std::path::Path;

use proptest::prelude::*;

use super::*;

/// A record that has every part, in `state`.
fn record(state: State) -> Record {
    let scope = Scope::new("main", "tenant-7", "POST /orders");
    let key = Key::from_text("8e03978e-40d5").expect("a key");
    Record {
        id: RecordId::derive(Kind::Request, &scope, &key),
        kind: Kind::Request,
        scope,
        key,
        principal: Principal::named("alice"),
        fingerprint: Fingerprint::from_parts(Recipe::from_number(0x0102_0304), [0xAB; 32]),
        token: LeaseToken::from_bytes([0xCD; 16]),
        attempt: 2,
        version: Version::from_number(77),
        created: Stamp::from_micros(1_780_000_000_000_000),
        horizon: Duration::new(7_776_000, 5),
        memo: Bytes::from_static(b"memo \x00\xff"),
        reference: Some("ch_123".into()),
        state,
        audit: vec![Audit {
            who: "bob".into(),
            reason: "the bank says paid".into(),
            at: Stamp::from_micros(1_780_000_000_000_009),
        }],
    }
}

fn stamp(by: u64) -> Stamp {
    Stamp::from_micros(1_780_000_000_000_000 + by)
}

/// One record for each state, under the name of its golden file.
fn released() -> [(&'static str, Record); 4] {
    let bare =
        Record { reference: None, audit: Vec::new(), memo: Bytes::new(), ..record(unknown()) };
    [
        ("in-progress", Record { state: State::InProgress { lease_until: stamp(30) }, ..bare }),
        ("completed", record(completed())),
        ("retry", record(State::Retry { status: 503, at: stamp(1), expires: stamp(2) })),
        ("unknown", record(unknown())),
    ]
}

fn completed() -> State {
    let outcome = Outcome::new(&b"201 {\"id\":1}"[..]);
    State::Completed { outcome, at: stamp(1), expires: stamp(2), gone: stamp(3) }
}

fn unknown() -> State {
    let why = Why::LeaseEnded;
    State::Unknown { why, since: stamp(1), not_before: stamp(2), horizon: stamp(3) }
}

fn encoded(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(record, &mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a golden file: hex digits, broken into lines; lines that begin with # are remarks.
fn golden(name: &str) -> Vec<u8> {
    let file = format!("tests/golden/record-1-{name}.hex");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(&path).expect("the golden file is there");
    let digits: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two hex digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Seals `body` with the checksum it ought to have.
fn sealed(body: &[u8]) -> Vec<u8> {
    [body, &crc32c::crc32c(body).to_le_bytes()].concat()
}

#[test]
fn x3_every_released_record_is_read_and_written_the_same() {
    for (name, record) in released() {
        let bytes = golden(name);
        assert_eq!(decode(&bytes).as_ref(), Ok(&record), "{name}");
        assert_eq!(hex(&encoded(&record)), hex(&bytes), "{name}");
    }
}

#[test]
fn x3_b136_every_flipped_bit_is_noticed() {
    for (name, record) in released() {
        let mut bytes = encoded(&record);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "{name}: bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn x3_b136_every_cut_and_every_byte_left_over_is_noticed() {
    for (name, record) in released() {
        let bytes = encoded(&record);
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{name}: cut at {len}");
        }
        assert!(decode(&[&bytes[..], b"\0"].concat()).is_err(), "{name}");
    }
}

/// The checksum is right here, so that the bounds themselves are met.
#[test]
fn x3_a_cut_or_longer_record_with_a_matching_checksum_is_refused() {
    for (name, record) in released() {
        let bytes = encoded(&record);
        let body = &bytes[..bytes.len() - CRC];
        for len in 1..body.len() {
            assert_eq!(decode(&sealed(&body[..len])), Err(DecodeError::Length), "{name}: {len}");
        }
        let longer = sealed(&[body, b"\0"].concat());
        assert_eq!(decode(&longer), Err(DecodeError::Length), "{name}");
    }
}

#[test]
fn x3_a_length_beyond_the_end_is_refused_before_anything_is_allocated() {
    let bytes = encoded(&record(completed()));
    let body = &bytes[..bytes.len() - CRC];
    for at in 0..body.len() - 4 {
        let mut wrong = body.to_vec();
        wrong[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        // Some of these are numbers and not lengths: those decode to another record, rightly.
        let _ = decode(&sealed(&wrong));
    }
    let namespace = 1 + 32 + 1;
    let mut wrong = body.to_vec();
    wrong[namespace..namespace + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode(&sealed(&wrong)), Err(DecodeError::Length));
}

#[test]
fn x3_a_newer_version_is_told_apart_from_damage() {
    let mut bytes = encoded(&record(completed()));
    bytes[0] = LAYOUT + 1;
    assert_eq!(decode(&bytes), Err(DecodeError::Unknown));
    let len = bytes.len();
    assert_eq!(decode(&sealed(&bytes[..len - CRC])), Err(DecodeError::Unknown));
}

#[test]
fn x3_a_shared_record_copies_no_outcome() {
    let record = record(completed());
    let bytes = Bytes::from(encoded(&record));
    let shared = decode_shared(&bytes).expect("a record");
    assert_eq!(shared, record);
    let State::Completed { outcome, .. } = &shared.state else { panic!("completed") };
    assert!(bytes.as_ptr_range().contains(&outcome.bytes().as_ptr()));
}

#[test]
fn x3_a_record_is_appended_to_what_is_in_the_buffer() {
    let record = record(unknown());
    let mut buffer = b"before".to_vec();
    encode(&record, &mut buffer);
    assert_eq!(decode(&buffer[6..]), Ok(record));
}

fn stamps() -> impl Strategy<Value = Stamp> {
    any::<u64>().prop_map(Stamp::from_micros)
}

fn states() -> impl Strategy<Value = State> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        stamps().prop_map(|lease_until| State::InProgress { lease_until }),
        (bytes, stamps(), stamps(), stamps()).prop_map(|(outcome, at, expires, gone)| {
            State::Completed { outcome: Outcome::new(outcome), at, expires, gone }
        }),
        (any::<u16>(), stamps(), stamps()).prop_map(|(status, at, expires)| State::Retry {
            status,
            at,
            expires
        }),
        (1..=5_u8, stamps(), stamps(), stamps()).prop_map(|(why, since, not_before, horizon)| {
            let why = Why::from_code(why).expect("a reason");
            State::Unknown { why, since, not_before, horizon }
        }),
    ]
}

fn records() -> impl Strategy<Value = Record> {
    let names = (any::<[u8; 32]>(), 1..=3_u8, ".{0,40}", ".{0,40}", ".{0,40}", "[!-~]{1,255}");
    let owner = (".{0,60}", any::<u64>(), any::<[u8; 32]>(), any::<[u8; 16]>());
    let counts = (any::<u32>(), any::<u64>(), stamps(), any::<u64>(), 0..1_000_000_000_u32);
    let memo = proptest::collection::vec(any::<u8>(), 0..100);
    let audits = proptest::collection::vec((".{0,20}", ".{0,40}", stamps()), 0..Record::MAX_AUDIT);
    let rest = (memo, proptest::option::of(".{0,100}"), states(), audits);
    (names, owner, counts, rest).prop_map(|(names, owner, counts, rest)| Record {
        id: RecordId::from_bytes(names.0),
        kind: Kind::from_code(names.1).expect("a kind"),
        scope: Scope::new(names.2, names.3, names.4),
        key: Key::from_text(&names.5).expect("a key"),
        principal: Principal::from_stored(&owner.0).expect("a principal"),
        fingerprint: Fingerprint::from_parts(Recipe::from_number(owner.1), owner.2),
        token: LeaseToken::from_bytes(owner.3),
        attempt: counts.0,
        version: Version::from_number(counts.1),
        created: counts.2,
        horizon: Duration::new(counts.3, counts.4),
        memo: rest.0.into(),
        reference: rest.1.map(Into::into),
        state: rest.2,
        audit: rest.3.into_iter().map(|(who, reason, at)| Audit { who, reason, at }).collect(),
    })
}

proptest! {
    #[test]
    fn x3_any_record_is_read_as_it_was_written(record in records()) {
        let bytes = encoded(&record);
        prop_assert_eq!(decode(&bytes), Ok(record.clone()));
        prop_assert_eq!(decode_shared(&Bytes::from(bytes)), Ok(record));
    }

    #[test]
    fn x3_no_bytes_make_the_decoder_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        record in records(),
        at in any::<prop::sample::Index>(),
    ) {
        let _ = decode(&bytes);
        let _ = decode(&sealed(&[&[LAYOUT], &bytes[..]].concat()));
        // A sealed record with one byte changed gets deep into the decoder.
        let whole = encoded(&record);
        let mut body = whole[..whole.len() - CRC].to_vec();
        let at = at.index(body.len());
        body[at] ^= 0x5A;
        if let Ok(other) = decode(&sealed(&body)) {
            prop_assert_eq!(encoded(&other), sealed(&body));
        }
    }
}

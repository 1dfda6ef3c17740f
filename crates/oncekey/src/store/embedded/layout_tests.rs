//! The layout's arithmetic.

use super::*;

fn window(exponent: u8, index: u64) -> Bucket {
    Bucket::Window { exponent, index }
}

#[test]
fn t1_a_class_has_at_most_nine_buckets_with_records_that_are_kept() {
    for exponent in [0, 7, 12] {
        let now = Stamp::from_micros(1_780_000_123_456_789);
        let newest = now.as_micros() / width(exponent);
        let kept = (0..=newest).rev().take_while(|index| window(exponent, *index).over() > now);
        assert!(kept.count() <= 9, "class {exponent}");
    }
}

#[test]
fn t1_no_record_outlives_its_bucket() {
    let day = Duration::from_secs(24 * 3600);
    for (kept, exponent) in [(Duration::ZERO, 0), (UNIT, 0), (UNIT * 2, 1), (day, 7)] {
        assert!(class(exponent) >= kept);
        assert!(exponent == 0 || class(exponent - 1) < kept);
        let bucket = window(exponent, 41);
        // The last moment that belongs to the window.
        let at = bucket.end().before(Duration::from_micros(1));
        assert_eq!(at.as_micros() / width(exponent), 41);
        assert!(at.after(kept) <= bucket.over());
    }
}

#[test]
fn a_buckets_name_is_read_back_and_no_other_name_is_a_bucket() {
    for bucket in [Bucket::Ever, window(0, 0), window(7, 123_456), window(32, u64::MAX)] {
        assert_eq!(Bucket::parse(&bucket.name()), Some(bucket));
    }
    let wrong =
        ["live", "ended-", "ended-7-1", "ended-07-01", "ended-33-1", "ended-07", "ended-+7-1"];
    for name in wrong {
        assert_eq!(Bucket::parse(name), None, "{name}");
    }
}

#[test]
fn a_mark_is_read_back_and_only_whole() {
    let mark = Mark { number: 7, logged: 8, version: 9, stamp: Stamp::from_micros(11) };
    assert_eq!(Mark::decode(&mark.encode()), Some(mark));
    assert_eq!(Mark::decode(&mark.encode()[..31]), None);
    assert_eq!(Mark::decode(&[0; 33]), None);
    let last = u64::MAX;
    for last in [
        Mark { number: last, ..mark },
        Mark { logged: last, ..mark },
        Mark { version: last, ..mark },
    ] {
        assert_eq!(Mark::decode(&last.encode()), None, "nothing could follow on it");
    }
    assert_ne!(MARK.len(), 32, "no record's key");
}

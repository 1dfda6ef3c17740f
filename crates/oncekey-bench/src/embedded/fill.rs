//! The records that a store is filled with.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use oncekey::clock::{Clock, Stamp};
use oncekey::fingerprint::{Fingerprint, Recipe};
use oncekey::key::{Key, RecordId, Scope};
use oncekey::record::{Kind, LeaseToken, Outcome, Principal, Record, Retention, State, Version};
use oncekey::store::embedded::{Options, bulk};

/// How long every record is kept: as long as the class of retentions around a day goes, so that
/// all of its buckets hold records which are still kept.
pub(crate) const KEPT: Retention = Retention::keep(Duration::from_secs(32 * 3600));

const HORIZON: Duration = Duration::from_secs(90 * 24 * 3600);

/// Makes a store with so many records at `path`.
pub(crate) fn fill(path: &Path, records: u64) -> Result<()> {
    let now = Clock::real().now();
    bulk::fill(path, &Options::default(), (0..records).map(|number| record(number, records, now)))?;
    Ok(())
}

/// The record with that number, of so many: its id is random, but greater than the one before.
fn record(number: u64, of: u64, now: Stamp) -> Record {
    let step = u64::MAX / of;
    let mut id = [0; 32];
    id[..8].copy_from_slice(&(number * step + random(number, 0) % step).to_be_bytes());
    for lane in 1..4_u8 {
        let at = usize::from(lane) * 8;
        id[at..at + 8].copy_from_slice(&random(number, lane).to_be_bytes());
    }
    let micros = u64::try_from(KEPT.keep.as_micros()).unwrap_or(u64::MAX);
    let at = now.before(Duration::from_micros(random(number, 4) % micros));
    let expires = at.after(KEPT.keep);
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&random(number, 5).to_be_bytes());
    digest[8..16].copy_from_slice(&random(number, 6).to_be_bytes());
    digest[16..24].copy_from_slice(&random(number, 7).to_be_bytes());
    digest[24..].copy_from_slice(&random(number, 8).to_be_bytes());
    Record {
        id: RecordId::from_bytes(id),
        kind: Kind::Request,
        scope: scope(),
        key: key(&format!("{:016x}{:016x}", random(number, 9), random(number, 10))),
        principal: Principal::anonymous(),
        fingerprint: Fingerprint::from_parts(Recipe::from_number(1), digest),
        token: LeaseToken::random(),
        attempt: 1,
        version: Version::from_number(2 * number + 2),
        created: at,
        horizon: HORIZON,
        memo: Bytes::new(),
        reference: None,
        state: State::Completed {
            outcome: outcome(random(number, 11)),
            at,
            expires,
            gone: expires,
        },
        audit: Vec::new(),
    }
}

/// Where every key of the bench is unique.
pub(crate) fn scope() -> Scope {
    Scope::new("main", "shared", "POST /charges")
}

pub(crate) fn key(text: &str) -> Key {
    Key::from_text(text).expect("hex digits are a key")
}

/// 120 bytes, a part of them different every time.
pub(crate) fn outcome(random: u64) -> Outcome {
    let text = format!(r#"{{"id":"ch_{random:016x}","amount":{random:020},"currency":"eur""#);
    Outcome::new(format!(r#"{text:<118}"}}"#))
}

/// A number that looks random, the same every time.
fn random(number: u64, lane: u8) -> u64 {
    // The finish of SplitMix64, over numbers that no two calls share.
    let mut mixed = (number << 4 | u64::from(lane)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_order_and_are_kept_with_outcomes_of_120_bytes() {
        let now = Clock::real().now();
        let records: Vec<Record> = (0..1000).map(|number| record(number, 1000, now)).collect();
        assert!(records.is_sorted_by(|a, b| a.id < b.id));
        for record in records {
            let State::Completed { outcome, expires, .. } = record.state else {
                panic!("a record that has not ended")
            };
            assert!(expires > now);
            assert_eq!(outcome.bytes().len(), 120);
        }
    }
}

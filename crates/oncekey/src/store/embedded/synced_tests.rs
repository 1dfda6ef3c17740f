//! The file of what was synced: its bytes, and what is left of it after a crash.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::fs;

use super::{Entry, Gap, NAME, SLOT, SLOTS, Start, Synced, Table, read, replace};
use crate::clock::Stamp;
use crate::store::embedded::layout::Mark;

fn mark(number: u64) -> Mark {
    Mark { number, logged: 5, version: 2, stamp: Stamp::from_micros(3) }
}

fn table(number: u64) -> Table {
    Table {
        identity: [9; 16],
        highest: mark(number),
        applied: 20,
        oldest: 4,
        journals: vec![Start { file: 4, number: 5, seqno: 6 }],
        gaps: vec![Gap { first: 7, last: 8 }],
        skips: vec![Gap { first: 9, last: 10 }],
        keyspaces: vec![Entry { name: "live".into(), id: 1, mark: mark(number) }],
    }
}

#[test]
fn x3_the_bytes_of_a_slot_are_a_format() {
    let mut bytes = Vec::new();
    table(1).encode(11, &mut bytes);
    let number = |number: u64| number.to_le_bytes().to_vec();
    let mark = [number(1), number(5), number(2), number(3)].concat();
    let expected = [
        bytes[..8].to_vec(),
        197_u32.to_le_bytes().to_vec(),
        2_u32.to_le_bytes().to_vec(),
        number(11),
        vec![9; 16],
        mark.clone(),
        number(20),
        number(4),
        [1_u16, 1, 1, 1].map(u16::to_le_bytes).concat(),
        [number(4), number(5), number(6)].concat(),
        [number(7), number(8)].concat(),
        [number(9), number(10)].concat(),
        b"\x04live".to_vec(),
        number(1),
        mark,
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(bytes[..8], xxhash_rust::xxh3::xxh3_64(&bytes[8..]).to_le_bytes());
    assert_eq!(Table::decode(&bytes), Some((11, table(1))));
}

#[test]
fn x3_a_slot_with_any_byte_changed_or_cut_off_says_nothing() {
    let mut bytes = Vec::new();
    table(1).encode(11, &mut bytes);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert_eq!(Table::decode(&changed), None, "{at}");
        assert_eq!(Table::decode(&bytes[..at]), None, "{at}");
    }
}

#[test]
fn a_table_beyond_its_slot_leaves_keyspaces_out_and_stays_readable() {
    let mut large = table(1);
    for id in 0..3000 {
        large.keyspaces.push(Entry { name: format!("ended-00-{id}"), id, mark: mark(1) });
    }
    let mut bytes = Vec::new();
    large.encode(1, &mut bytes);
    assert!(bytes.len() <= SLOT);
    let (_, found) = Table::decode(&bytes).unwrap();
    assert!(found.keyspaces.len() > 1000);
    assert_eq!(found.keyspaces[..], large.keyspaces[..found.keyspaces.len()]);
}

#[test]
fn the_slot_that_was_synced_last_outlives_whatever_happens_to_the_one_being_written() {
    let folder = tempfile::tempdir().unwrap();
    replace(folder.path(), &table(1)).unwrap();
    let synced = Synced::open(folder.path(), table(1)).unwrap();
    let name = folder.path().join(NAME);
    let mut stable = 1;
    for number in 2..40 {
        synced.change(|table| table.highest = mark(number)).unwrap();
        assert_eq!(read(folder.path()).unwrap().unwrap().highest.number, number);
        // A crash that loses all that was not synced, slot by slot: any one may be torn.
        let whole = fs::read(&name).unwrap();
        let newest = (0..SLOTS)
            .filter_map(|at| Table::decode(&whole[at * SLOT..][..SLOT]).map(|(turn, _)| (turn, at)))
            .max()
            .unwrap()
            .1;
        let mut torn = whole.clone();
        torn[newest * SLOT + 30] ^= 1;
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join(NAME), torn).unwrap();
        assert_eq!(read(other.path()).unwrap().unwrap().highest.number, stable, "{number}");
        if number % 3 == 0 {
            synced.sync().unwrap();
            synced.sync().unwrap();
            stable = number;
        }
    }
}

//! Journals made by hand, byte by byte.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::fs;

use xxhash_rust::xxh3::xxh3_64;

use super::{Contents, Run, Tail, read, start};
use crate::clock::Stamp;
use crate::store::embedded::layout::Mark;

fn item(keyspace: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0];
    bytes.extend(keyspace.to_le_bytes());
    bytes.extend((key.len() as u16).to_le_bytes());
    bytes.extend((value.len() as u32).to_le_bytes());
    bytes.extend((value.len() as u32).to_le_bytes());
    bytes.extend([key, value].concat());
    bytes
}

fn batch(seqno: u64, items: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend((items.len() as u32).to_le_bytes());
    bytes.extend(seqno.to_le_bytes());
    bytes.extend(items.concat());
    bytes.push(3);
    bytes.extend(xxh3_64(&items.concat()).to_le_bytes());
    bytes.extend(b"FJL\x03");
    bytes
}

fn mark(number: u64) -> [u8; Mark::LENGTH] {
    Mark { number, logged: number, version: number, stamp: Stamp::default() }.encode()
}

/// A batch of the store, over one keyspace.
fn ours(number: u64, seqno: u64) -> Vec<u8> {
    batch(seqno, &[item(7, &[1; 32], b"record"), item(7, b"mark", &mark(number))])
}

fn read_all(bytes: &[&[u8]]) -> Contents {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.jnl");
    fs::write(&path, bytes.concat()).unwrap();
    read(0, path).unwrap()
}

#[test]
fn batches_are_read_and_the_zeros_behind_them_are_room() {
    let (one, two) = (ours(5, 50), ours(6, 51));
    let found = read_all(&[&one, &two, &[0; 1000]]);
    let at = one.len() as u64;
    let run = Run { at: 0, first: 5, last: 6, first_seqno: 50, last_seqno: 51, last_at: at };
    assert_eq!((found.runs, found.batches, found.tail), (vec![run], 2, Tail::Zeros));
    assert_eq!((found.end, found.length), (2 * at, 2 * at + 1000));
    assert_eq!(found.highest.number, 6);
}

#[test]
fn a_gap_begins_a_new_run_and_is_not_hidden() {
    let found = read_all(&[&ours(5, 50), &ours(9, 51), &ours(10, 60)]);
    let runs: Vec<_> = found.runs.iter().map(|run| (run.first, run.last)).collect();
    assert_eq!(runs, [(5, 5), (9, 10)]);
}

#[test]
fn every_keyspace_of_a_batch_must_bear_the_same_mark() {
    let record = item(7, &[1; 32], b"record");
    let other = item(8, &[1; 32], b"record");
    let ours = item(7, b"mark", &mark(1));
    for items in [
        vec![record.clone()],
        vec![record.clone(), other.clone(), ours.clone()],
        vec![ours.clone(), item(8, b"mark", &mark(2))],
        vec![record.clone(), item(7, b"mark", b"short")],
        vec![[&[4][..], &7_u64.to_le_bytes()].concat()],
    ] {
        let found = read_all(&[&batch(1, &items)]);
        assert_eq!((found.tail, found.batches, found.end), (Tail::Unmarked, 0, 0));
    }
    let both = vec![record, other, ours, item(8, b"mark", &mark(1))];
    assert_eq!(read_all(&[&batch(1, &both)]).batches, 1);
}

#[test]
fn a_sequence_number_that_does_not_grow_is_damage() {
    for seqno in [51, 50, 0, 1 << 60] {
        let found = read_all(&[&ours(1, 50), &ours(2, 51), &ours(3, seqno)]);
        assert_eq!((found.tail, found.batches), (Tail::Torn, 2), "{seqno}");
    }
}

#[test]
fn a_damaged_length_is_no_reason_to_allocate_or_to_go_on() {
    let whole = ours(1, 50);
    // The lengths of the first item: key, value, value on disk; and the number of items.
    for (at, bytes) in [(24, 2), (26, 4), (30, 4), (1, 4)] {
        let mut damaged = whole.clone();
        damaged[at..at + bytes].fill(0xff);
        let found = read_all(&[&damaged, &ours(2, 51)]);
        assert_eq!((found.tail, found.batches), (Tail::Torn, 0), "{at}");
    }
}

#[test]
fn a_journal_says_how_it_begins_once_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.jnl");
    let whole = ours(5, 50);
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(start(&path).unwrap(), None, "{length}");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(start(&path).unwrap(), Some((5, 50)));
}

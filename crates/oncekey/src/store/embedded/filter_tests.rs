//! What a filter says, and when it says nothing.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use fjall::{Database, KeyspaceCreateOptions};

use super::*;

fn id(number: u64) -> RecordId {
    RecordId::from_bytes(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

#[test]
fn c1_a_filter_never_calls_a_record_absent_that_is_there() {
    let filter = Filter::whole();
    // Over the end of the first block.
    let records = 400_000;
    (0..records).for_each(|number| filter.insert(&id(number)));
    assert!((0..records).all(|number| !filter.says_absent(&id(number))));
    let absent = (records..2 * records).filter(|number| filter.says_absent(&id(*number))).count();
    assert!(absent > 399_900, "the engine is asked in vain for {} of them", 400_000 - absent);
}

#[test]
fn c1_a_filter_that_has_not_seen_all_records_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::builder(folder.path()).open().unwrap();
    let bucket = database.keyspace("bucket", KeyspaceCreateOptions::default).unwrap();
    (0..10).for_each(|number| bucket.insert(id(number).as_bytes(), "record").unwrap());

    let filter = Filter::idle();
    filter.insert(&id(10));
    assert!(!filter.says_absent(&id(99)), "nobody has read the bucket");
    assert!(filter.begins() && !filter.begins(), "one reads it");
    filter.insert(&id(11));
    assert!(!filter.says_absent(&id(99)), "it is being read");

    let (loader, loads) = Loader::new();
    loader.load(bucket.clone(), Arc::clone(&filter));
    drop(loader);
    let (open, closed) = (Desk::default(), Desk::default());
    closed.end();
    assert_eq!(read(&bucket, &filter, &closed), None, "who closes the store does not wait for it");
    assert!(!filter.says_absent(&id(99)));
    run(&loads, &open);
    assert!(filter.says_absent(&id(99)));
    assert!((0..10).chain([11]).all(|number| !filter.says_absent(&id(number))));
}

#[test]
fn c1_a_filter_whose_bucket_could_not_be_read_says_nothing_and_tries_again() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::builder(folder.path()).open().unwrap();
    let bucket = database.keyspace("bucket", KeyspaceCreateOptions::default).unwrap();
    let filter = Filter::idle();
    assert!(filter.begins());
    let (loader, loads) = Loader::new();
    drop(loads);
    loader.load(bucket, Arc::clone(&filter));
    assert!(!filter.says_absent(&id(1)));
    assert!(filter.begins(), "the next write asks again");
}

#[test]
fn c1_a_filter_that_is_full_says_nothing() {
    let filter = Filter::whole();
    let room = FIRST * ((1 << BLOCKS) - 1);
    filter.count.store(room - 1, Ordering::Relaxed);
    filter.insert(&id(1));
    assert!(filter.says_absent(&id(2)) && !filter.says_absent(&id(1)));
    filter.insert(&id(2));
    assert!(filter.is_at(Stage::Off) && !filter.says_absent(&id(3)));
}

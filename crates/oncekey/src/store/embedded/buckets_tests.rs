//! Deleting buckets: who drops the last handle.

use std::sync::mpsc::sync_channel;

use fjall::KeyspaceCreateOptions;

use super::*;
use crate::store::embedded::synced::{self, Table};

#[test]
fn t3_the_files_of_a_deleted_bucket_wait_for_another_thread_and_hold_up_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::builder(folder.path()).open().expect("a database");
    let live = database.keyspace("live", KeyspaceCreateOptions::default).expect("a keyspace");
    // Room for one: the thread that removes files is busy with it.
    let (deleted, to_drop) = sync_channel(1);
    let options = KeyspaceCreateOptions::default();
    synced::replace(folder.path(), &Table::default()).expect("a side file");
    let synced = Synced::open(folder.path(), Table::default()).expect("it is there");
    let mut buckets = Buckets::new(database.clone(), live, options, Vec::new());
    let mut leaving = Leaving::new(deleted);
    for index in 0..3 {
        let made = buckets
            .for_record(Bucket::Window { exponent: 0, index }, &RecordId::from_bytes([1; 32]));
        assert_eq!(made.expect("a bucket").1, Made::Now);
    }
    let now = Bucket::Window { exponent: 0, index: 1 }.over();
    for _ in 0..2 {
        assert!(leaving.is_clear(), "there is room");
        let deleted =
            buckets.delete_over(now, &synced).expect("nothing fails").expect("it is over");
        assert_eq!(deleted.records, 1);
        leaving.put(deleted.keyspace);
    }
    for _ in 0..3 {
        assert!(!leaving.is_clear(), "there is none, and the applier does not drop it either");
    }
    let keyspaces = || std::fs::read_dir(folder.path().join("keyspaces")).expect("it is there");
    let before = keyspaces().count();
    drop(to_drop.recv().expect("the first"));
    assert_eq!(keyspaces().count(), before - 1, "whoever drops the last handle removes the files");
    assert!(leaving.is_clear());
    assert!(
        buckets.delete_over(now, &synced).expect("nothing fails").is_none(),
        "the third is not over"
    );
}

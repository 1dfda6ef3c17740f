//! The embedded store's format: names, keys and values, pinned by a golden file.
//!
//! The engine's own files are large and not the same in every run, so the golden file holds what
//! lies in them, line by line: keyspace, key, value, in hex.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use oncekey::clock::Clock;
use oncekey::fingerprint::Secret;
use oncekey::record::{LeaseToken, Retention, Why};
use oncekey::store::embedded::accept_loss;
use oncekey::store::{Claim, Claimed, Ending, Held, Inspect, Store};

use crate::embedded::{DAY, claim, complete, open, replays};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/embedded-1.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Everything in a folder that nobody has open; the secret, which differs, as 32 sevens.
fn dump(path: &Path) -> String {
    let database = fjall::Database::builder(path.join("db")).open().unwrap();
    let mut names = database.list_keyspace_names();
    names.sort();
    let mut text = String::new();
    for name in names {
        let keyspace = database.keyspace(&name, Default::default).unwrap();
        for entry in keyspace.iter() {
            let (key, value) = entry.into_inner().unwrap();
            let value = if &*key == b"secret" { vec![7; 32] } else { value.to_vec() };
            writeln!(text, "{name} {} {}", hex(&key), hex(&value)).unwrap();
        }
    }
    text
}

async fn take(store: &impl Store, key: &str, number: u8) -> oncekey::record::Lease {
    let claim = Claim {
        token: LeaseToken::from_bytes([number; 16]),
        memo: Bytes::from_static(b"memo"),
        ..claim(key)
    };
    match store.claim(&claim).await.unwrap() {
        Claimed::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// One record of every kind of place, written call by call so that every number is the same.
async fn fill(path: &Path, clock: &Clock) {
    let store = open(path, clock);
    let lease = take(&store, "completed", 1).await;
    complete(&store, &lease, "answer", Retention::keep(DAY)).await;
    let lease = take(&store, "tombstone", 2).await;
    let keep = Retention::keep(DAY).with_tombstone(30 * DAY);
    complete(&store, &lease, "answer", keep).await;
    let lease = take(&store, "for ever", 3).await;
    complete(&store, &lease, "answer", Retention::keep(Duration::MAX)).await;
    let lease = take(&store, "retry", 4).await;
    let how = Ending::Retry { status: 500, keep: Retention::keep(DAY) };
    assert!(matches!(store.end(&lease, how).await.unwrap(), Held::Ours { .. }));
    let lease = take(&store, "unknown", 5).await;
    let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
    assert!(matches!(store.end(&lease, how).await.unwrap(), Held::Ours { .. }));
    let _ = take(&store, "in progress", 6).await;
}

#[tokio::test]
async fn x3_the_format_is_as_it_was_released() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), &Clock::manual()).await;
    let found = dump(folder.path());
    if std::env::var_os("ONCEKEY_BLESS").is_some() {
        fs::write(GOLDEN, &found).unwrap();
    }
    let golden = fs::read_to_string(GOLDEN).unwrap();
    assert!(found == golden, "the format changed: it needs a new number, and the old one is read");
    let format = fs::read_to_string(folder.path().join("format")).unwrap();
    assert_eq!(format, "oncekey embedded 1\n");
}

#[tokio::test]
async fn x3_a_folder_of_the_first_format_is_read() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
    fs::write(folder.path().join("format"), "oncekey embedded 1\n").unwrap();
    let database = fjall::Database::builder(folder.path().join("db")).open().unwrap();
    for line in fs::read_to_string(GOLDEN).unwrap().lines() {
        let parts: Vec<_> = line.split(' ').collect();
        let keyspace = database.keyspace(parts[0], Default::default).unwrap();
        keyspace.insert(unhex(parts[1]), unhex(parts[2])).unwrap();
    }
    for name in database.list_keyspace_names() {
        let keyspace = database.keyspace(&name, Default::default).unwrap();
        keyspace.rotate_memtable_and_wait().unwrap();
    }
    drop(database);
    // All of it lies in tables, as in a folder that was written long ago. What a test wrote into
    // the journal the store would refuse, and that nothing says what was synced is accepted.
    fs::write(folder.path().join("db/0.jnl"), "").unwrap();
    accept_loss(folder.path(), "a test", "made by hand").unwrap();

    let store = open(folder.path(), &clock);
    assert_eq!(store.secret(), Secret::from_bytes([7; 32]));
    for key in ["completed", "tombstone", "for ever"] {
        replays(&store, key, "answer").await;
    }
    let again = store.claim(&claim("retry")).await.unwrap();
    assert!(matches!(again, Claimed::Ended { status: Some(500), .. } | Claimed::Acquired(_)));
    for (key, why) in [("unknown", Why::Abandoned), ("in progress", Why::ProcessEnded)] {
        match store.claim(&claim(key)).await.unwrap() {
            Claimed::Unknown { why: found, .. } => assert_eq!(found, why, "{key}"),
            other => panic!("{key}: {other:?}"),
        }
    }
    assert_eq!(store.counts().await.unwrap().unknown, 2);
}

#[test]
fn x3_the_engines_format_is_the_one_whose_journals_are_read() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), &Clock::manual()));
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("db/version"), b"FJL\x03", "another format of journals needs another reader");
    let journal = read("db/0.jnl");
    assert!(journal.windows(4).any(|bytes| bytes == b"FJL\x03"));
    // Three values and their mark, over one keyspace.
    assert_eq!(journal[..5], [1, 3, 0, 0, 0], "a batch begins with its count");
    let found = oncekey::store::embedded::scan(folder.path()).unwrap();
    assert_eq!((found.journals[0].batches, found.journals[0].torn), (1, false));
    // A newer engine is let in by a person who has read how it writes journals.
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    assert!(manifest.contains("fjall = { version = \"~3.1.13\""), "read its journal/ again");
}

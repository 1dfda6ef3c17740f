//! Journals of the embedded store's engine, read before the engine looks (X3).
//!
//! An input is the bytes of up to three journals, with `|next|` between them.
//!
//! 1. Reading answers whatever the bytes are, twice the same, and changes none of them.
//! 2. What is intact ends where a batch ends to a second reader, which knows nothing but the form.
//! 3. Cut off behind what is intact, and with zeros behind that, a journal holds the same.
//! 4. A changed byte inside of a batch is noticed there. (The engine's sequence number alone is
//!    under no checksum.)

use std::fs;
use std::path::{Path, PathBuf};

use oncekey::store::embedded::{Journal, Scan, scan};
use xxhash_rust::xxh3::xxh3_64;

/// What the parser knows.
pub const WORDS: &[&str] =
    &["|next|", "FJL\u{3}", "\u{1}", "\u{2}", "\u{3}", "\u{4}", "mark", "\0\0\0"];

/// More than the journals of an input.
const MOST: usize = 3;

/// See the [module](self).
///
/// # Panics
/// Where a promise is broken, and where there is no temporary folder.
pub fn check(input: &[u8]) {
    let journals = crate::parts(input, MOST);
    let folder = Folder::holding(&journals);
    let seen = folder.scan();
    assert_eq!(seen.journals.len(), journals.len());
    assert_eq!(format!("{seen:?}"), format!("{:?}", folder.scan()), "read twice, it is another");
    for (number, bytes) in journals.iter().enumerate() {
        assert_eq!(fs::read(folder.journal(number)).ok().as_deref(), Some(*bytes), "changed");
        one(bytes, &seen.journals[number]);
    }
}

fn one(bytes: &[u8], seen: &Journal) {
    assert_eq!(seen.length, bytes.len() as u64);
    let intact = usize::try_from(seen.intact).expect("it is not longer than the bytes");
    assert!(intact <= bytes.len());
    assert_eq!(seen.batches == 0, seen.first.is_none());
    assert!(seen.first <= seen.last);
    let count = usize::try_from(seen.batches).expect("a batch takes bytes");
    let batches = batches(bytes);
    let last = count.checked_sub(1).map_or(Some(0), |last| batches.get(last).map(|it| it.1));
    assert_eq!(last, Some(intact), "it ends in the middle of a batch");
    let torn = bytes[intact..].iter().any(|byte| *byte != 0);
    assert_eq!(seen.torn, torn, "what follows is told otherwise");
    if count == 0 {
        return;
    }
    let whole = [&bytes[..intact], &[0; 100]].concat();
    same(&whole, seen);
    same(&bytes[..intact], seen);
    // Another byte each time, but the same for the same input.
    let at = usize::try_from(xxh3_64(bytes) % seen.intact).expect("it is below the length");
    let (start, _) = batches[batches.iter().position(|batch| at < batch.1).expect("inside of one")];
    if !(5..13).contains(&(at - start)) {
        let mut changed = bytes[..intact].to_vec();
        changed[at] ^= 0x10;
        let found = alone(&changed);
        assert!(found.intact <= start as u64 && found.torn, "a changed byte at {at} is not seen");
    }
}

fn same(bytes: &[u8], seen: &Journal) {
    let found = alone(bytes);
    let facts = |it: &Journal| (it.intact, it.batches, it.first, it.last);
    assert_eq!((facts(&found), found.torn), (facts(seen), false));
}

/// What is seen of one journal.
fn alone(bytes: &[u8]) -> Journal {
    let folder = Folder::holding(&[bytes]);
    folder.scan().journals.into_iter().next().expect("one journal was written")
}

/// Where batches begin and end, up to the first that is none.
fn batches(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(end) = batch(bytes, at) {
        found.push((at, end));
        at = end;
    }
    found
}

fn batch(bytes: &[u8], start: usize) -> Option<usize> {
    let number = |at: usize, width: usize| -> Option<usize> {
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(bytes.get(at..at.checked_add(width)?)?);
        usize::try_from(u64::from_le_bytes(wide)).ok()
    };
    if bytes.get(start) != Some(&1) {
        return None;
    }
    let count = number(start + 1, 4)?;
    let items = start + 13;
    let mut at = items;
    for _ in 0..count {
        at = match bytes.get(at)? {
            2 => {
                let (key, value) = (number(at + 11, 2)?, number(at + 17, 4)?);
                at + 21 + key + value
            }
            4 => at + 9,
            _ => return None,
        };
    }
    let sum = xxh3_64(bytes.get(items..at)?);
    let end = at + 13;
    let trailer = [&[3][..], &sum.to_le_bytes(), b"FJL\x03"].concat();
    (bytes.get(at..end)? == trailer).then_some(end)
}

/// A store's folder with nothing but journals; gone with the value.
struct Folder(tempfile::TempDir);

impl Folder {
    fn holding(journals: &[&[u8]]) -> Self {
        // In memory, where there is such a folder: there are thousands a second.
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = Self(tempfile::tempdir_in(root).expect("a temporary folder"));
        fs::create_dir(folder.0.path().join("db")).expect("it is empty");
        for (number, bytes) in journals.iter().enumerate() {
            fs::write(folder.journal(number), bytes).expect("there is room");
        }
        folder
    }

    fn journal(&self, number: usize) -> PathBuf {
        self.0.path().join("db").join(format!("{number}.jnl"))
    }

    fn scan(&self) -> Scan {
        scan(self.0.path()).expect("it can be read")
    }
}

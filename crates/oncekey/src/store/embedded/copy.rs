//! Copying files so that a copy can be vouched for.
//!
//! 1. The digest is of the bytes as they were read, so it judges the copy and not itself.
//! 2. A copy is on disk when this returns; its name is once its folder is synced too.
//! 3. Zeros become holes: a journal is preallocated, and most of it was never written.
//! 4. Blocks are not shared with the original, even where the file system could: one bad block
//!    must not take both.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::progress::Meter;

/// How much is read at once.
const PIECE: usize = 1 << 18;

/// A piece that was never written.
static ZEROS: [u8; PIECE] = [0; PIECE];

/// What a file was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) digest: blake3::Hash,
    pub(super) length: u64,
}

/// Reads the file to its end.
pub(super) fn digest(path: &Path, meter: &mut Meter<'_>) -> io::Result<Content> {
    read(&mut File::open(path)?, meter, |_, _| Ok(()))
}

/// Copies the file, to where there must be none, and syncs it. Only its owner may read it: it
/// holds answers.
pub(super) fn copy(from: &Path, to: &Path, meter: &mut Meter<'_>) -> io::Result<Content> {
    let mut source = File::open(from)?;
    let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let content = read(&mut source, meter, |piece, at| {
        if *piece == ZEROS[..piece.len()] { Ok(()) } else { target.write_all_at(piece, at) }
    })?;
    target.set_len(content.length)?;
    target.sync_all()?;
    Ok(content)
}

fn read(
    source: &mut File,
    meter: &mut Meter<'_>,
    mut each: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<Content> {
    let (mut hasher, mut length) = (blake3::Hasher::new(), 0);
    let mut piece = vec![0; PIECE];
    loop {
        let read = match source.read(&mut piece) {
            Ok(0) => return Ok(Content { digest: hasher.finalize(), length }),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&piece[..read]);
        each(&piece[..read], length)?;
        length += read as u64;
        meter.add(read as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::progress::Step;
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_copy_has_every_byte_and_no_room_for_what_was_never_written() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let file = File::create(&from).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"middle", 3 * PIECE as u64 + 7).unwrap();
        file.set_len(64 << 20).unwrap();
        let mut nobody = |_| {};
        let mut meter = Meter::new(&mut nobody, Step::Copy, 1);
        let content = copy(&from, &to, &mut meter).unwrap();
        assert_eq!(content, digest(&to, &mut meter).unwrap());
        assert_eq!(content.length, 64 << 20);
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        assert!(std::fs::metadata(&to).unwrap().blocks() * 512 < 2 << 20);
        assert_eq!(copy(&from, &to, &mut meter).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}

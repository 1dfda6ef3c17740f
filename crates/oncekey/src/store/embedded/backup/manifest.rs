//! The manifest of a backup: what it holds, written last, so that a backup without one is none.
//!
//! ```text
//! oncekey backup 1
//! taken 1764565200000000           microseconds since 1970, by the clock of the machine
//! by 0.1.0                         the version that took it
//! format 1                         the format of the store in it
//! file 9f86d0...0a08 24 format     BLAKE3, length, path
//! file ...
//! end 2c26b4...6e7a                BLAKE3 of everything before this line
//! ```
//!
//! 1. The last line proves the rest whole: a manifest that was cut off or changed is refused.
//! 2. Paths stay below the folder. One that would leave it is refused.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Component, Path, PathBuf};

use super::super::copy::Content;
use super::super::folder::MANIFEST;
use super::BackupError;
use crate::clock::Stamp;

/// The format that this version writes, and the newest that it reads.
const FORMAT: u32 = 1;

const FIRST: &str = "oncekey backup ";

/// A longer manifest is none: a line is some hundred bytes, and a file holds megabytes.
const LONGEST: u64 = 256 << 20;

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) taken: Stamp,
    pub(super) by: String,
    pub(super) format: u32,
    pub(super) files: Vec<Entry>,
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Relative to the folder.
    pub(super) path: PathBuf,
    pub(super) content: Content,
}

impl Manifest {
    /// The bytes of all files together.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.content.length))
    }

    /// Writes it, synced; its folder is not.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut file = File::create_new(folder.join(MANIFEST))?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{FIRST}{FORMAT}\ntaken {}\nby {}\nformat {}\n",
            self.taken.as_micros(),
            self.by,
            self.format
        );
        for Entry { path, content } in &self.files {
            let Content { digest, length } = content;
            let _ = writeln!(text, "file {digest} {length} {}", path.display());
        }
        let end = blake3::hash(text.as_bytes());
        let _ = writeln!(text, "end {end}");
        text
    }

    /// Reads the manifest of the backup in `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self, BackupError> {
        let name = folder.join(MANIFEST);
        let failed = |source| BackupError::Io { path: name.clone(), source };
        let length = match fs::metadata(&name) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BackupError::NoBackup { path: folder.into() });
            }
            Err(error) => return Err(failed(error)),
        };
        let broken = || BackupError::Manifest { path: name.clone() };
        if length > LONGEST {
            return Err(broken());
        }
        let mut text = Vec::new();
        File::open(&name)
            .and_then(|file| file.take(LONGEST).read_to_end(&mut text))
            .map_err(failed)?;
        let text = String::from_utf8(text).map_err(|_| broken())?;
        let first = text.lines().next().and_then(|line| line.strip_prefix(FIRST)?.parse().ok());
        match first {
            Some(found) if found > FORMAT => {
                Err(BackupError::NewerVersion { path: folder.into(), found, known: FORMAT })
            }
            Some(FORMAT) => Self::parse(&text).ok_or_else(broken),
            _ => Err(broken()),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (before, end) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let covered = &text[..=before.len()];
        if blake3::hash(covered.as_bytes()).to_string() != end.strip_prefix("end ")? {
            return None;
        }
        let mut lines = before.lines().skip(1);
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let taken = Stamp::from_micros(field("taken")?.parse().ok()?);
        let by = field("by")?.to_owned();
        let format = field("format")?.parse().ok()?;
        let files = lines.map(Entry::parse).collect::<Option<_>>()?;
        Some(Self { taken, by, format, files })
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.strip_prefix("file ")?.splitn(3, ' ');
        let digest = blake3::Hash::from_hex(parts.next()?).ok()?;
        let length = parts.next()?.parse().ok()?;
        let path = PathBuf::from(parts.next()?);
        let below = path.components().all(|part| matches!(part, Component::Normal(_)));
        (below && path != Path::new(""))
            .then_some(Self { path, content: Content { digest, length } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let content = Content { digest: blake3::hash(b"x"), length: 1 };
        let files = ["format", "db/keyspaces/1/tables/0"]
            .map(|path| Entry { path: path.into(), content })
            .to_vec();
        Manifest {
            taken: Stamp::from_micros(1_700_000_000_000_000),
            by: "1".into(),
            format: 1,
            files,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        manifest().write(folder.path()).unwrap();
        assert_eq!(Manifest::read(folder.path()).unwrap(), manifest());
    }

    #[test]
    fn one_that_was_cut_off_or_changed_anywhere_is_refused() {
        let text = manifest().text();
        assert!(Manifest::parse(&text).is_some());
        for at in 0..text.len() {
            assert_eq!(Manifest::parse(&text[..at]), None, "cut at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let read = String::from_utf8(bytes).ok().and_then(|text| Manifest::parse(&text));
            assert_eq!(read, None, "changed at {at}");
        }
    }

    #[test]
    fn a_path_never_leaves_the_folder() {
        for path in ["../a", "/etc/passwd", "db/../../a", "", "."] {
            let line = format!("file {} 1 {path}", blake3::hash(b"x"));
            assert_eq!(Entry::parse(&line), None, "{path}");
        }
    }
}

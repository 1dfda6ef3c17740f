//! Room on the disk, and whether the folder is still there (X5).
//!
//! 1. Below the reserve of free disk, or above the bound of what the folder may take, the store is
//!    [`Full`](Room::Full): new claims are refused, everything else goes on. The reserve is what
//!    running work and the storage engine's own files are still written to.
//! 2. Below a quarter of the reserve it is [`Critical`](Room::Critical): large outcomes are refused
//!    too, so that their caller stores them without body.
//! 3. It takes an eighth more than the line to come back over it, so that it does not flap.
//! 4. The applier looks when the [guard](super::guard) asks: ten times a second. A disk that does
//!    not answer then is an applier that stands still, which is noticed.
//!
//! A full disk ends the storage engine for as long as it is open, and so the reserve is the only
//! thing that keeps a store alive on a disk that fills up.

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use fjall::{Database, PersistMode};

use super::error::Failure;

/// The reserve where none is asked for: this, or a twentieth of a smaller disk.
const RESERVE: u64 = 256 << 20;

/// Looks at the disk after which the folder is looked at: twice a second.
const FOLDER: u32 = 5;

/// Looks at the disk after which the storage engine is asked: once a second.
const ENGINE: u32 = 10;

/// How much room the store has (X5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Room {
    /// Everything is taken.
    #[default]
    Open,
    /// New claims are refused.
    Full,
    /// New claims and large outcomes are refused.
    Critical,
}

impl Room {
    /// All of them, so that a metric's label is known from the start.
    pub const ALL: [Self; 3] = [Self::Open, Self::Full, Self::Critical];

    /// The label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Full => "full",
            Self::Critical => "critical",
        }
    }
}

/// The disk as it was seen last, at most a second ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// How much room that is.
    pub room: Room,
    /// Free bytes of the file system; `None` where it does not say.
    pub free_bytes: Option<u64>,
    /// Bytes that the folder takes, about: journals by their length, tables by theirs.
    pub used_bytes: u64,
    /// Free bytes below which new claims are refused.
    pub reserve_bytes: u64,
}

/// What was seen last, for everybody.
#[derive(Debug)]
pub(super) struct Seen {
    room: AtomicU8,
    free: AtomicU64,
    used: AtomicU64,
    reserve: AtomicU64,
}

impl Default for Seen {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            room: AtomicU8::new(0),
            free: AtomicU64::new(NO_FIGURE),
            used: zero(),
            reserve: zero(),
        }
    }
}

/// Stands for a file system that does not say how much is free.
const NO_FIGURE: u64 = u64::MAX;

impl Seen {
    pub(super) fn room(&self) -> Room {
        match self.room.load(Ordering::Relaxed) {
            0 => Room::Open,
            1 => Room::Full,
            _ => Room::Critical,
        }
    }

    pub(super) fn space(&self) -> Space {
        let free = self.free.load(Ordering::Relaxed);
        Space {
            room: self.room(),
            free_bytes: (free != NO_FIGURE).then_some(free),
            used_bytes: self.used.load(Ordering::Relaxed),
            reserve_bytes: self.reserve.load(Ordering::Relaxed),
        }
    }
}

/// A file or folder, whatever its name leads to later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(found: &fs::Metadata) -> Self {
        Self(found.dev(), found.ino())
    }
}

/// The bounds, and what they are bounds of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Free bytes to keep; `None` for the default.
    pub(super) reserve: Option<u64>,
    /// Bytes that the folder may take.
    pub(super) most: u64,
}

/// The applier's eye on the disk.
pub(super) struct Watch {
    folder: PathBuf,
    /// What must stay where it is.
    parts: Vec<(PathBuf, Identity)>,
    bounds: Bounds,
    looks: u32,
}

impl Watch {
    /// Watches the folder, of which these parts were just opened.
    pub(super) fn new(folder: &Path, parts: [PathBuf; 3], bounds: Bounds) -> io::Result<Self> {
        let identify = |part: PathBuf| {
            let identity = Identity::of(&fs::metadata(&part)?);
            io::Result::Ok((part, identity))
        };
        let parts = parts.into_iter().map(identify).collect::<Result<_, _>>()?;
        Ok(Self { folder: folder.to_path_buf(), parts, bounds, looks: 0 })
    }

    /// Looks at everything that is due, beside the engine a log of so many bytes; says what ends
    /// the store.
    pub(super) fn look(
        &mut self,
        seen: &Seen,
        database: &Database,
        log: u64,
    ) -> Result<(), Failure> {
        let looks = self.looks;
        self.looks = looks.wrapping_add(1);
        if looks.is_multiple_of(FOLDER) && !self.is_there() {
            return Err(Failure::FolderGone { path: self.folder.clone() });
        }
        if looks.is_multiple_of(ENGINE) {
            // Writes nothing, but tells of an engine that failed in the background: an idle store
            // would learn of it from the next claim alone.
            database.persist(PersistMode::Buffer).map_err(|error| self.failure(error))?;
            // A figure that cannot be had is left as it was.
            if let Ok(used) = database.disk_space() {
                seen.used.store(used + log, Ordering::Relaxed);
            }
        }
        self.weigh(seen);
        Ok(())
    }

    /// What a failed write means here.
    pub(super) fn failure(&self, error: impl Error + Send + Sync + 'static) -> Failure {
        if !self.is_there() {
            return Failure::FolderGone { path: self.folder.clone() };
        }
        failure(&self.folder, error)
    }

    /// Whether the folder's name still leads to the files that are open.
    fn is_there(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound};
        self.parts.iter().all(|(path, opened)| match fs::metadata(path) {
            Ok(found) => Identity::of(&found) == *opened,
            // Whatever else keeps it from being looked at, it may be there.
            Err(error) => !matches!(error.kind(), NotFound | NotADirectory),
        })
    }

    fn weigh(&self, seen: &Seen) {
        let Some((free, total)) = free(&self.folder) else { return };
        let reserve = self.bounds.reserve.unwrap_or(RESERVE.min(total / 20));
        let used = seen.used.load(Ordering::Relaxed);
        let before = seen.room();
        let room = judge(before, (free, reserve), (used, self.bounds.most));
        seen.free.store(free, Ordering::Relaxed);
        seen.reserve.store(reserve, Ordering::Relaxed);
        seen.room.store(room as u8, Ordering::Relaxed);
        if room == before {
            return;
        }
        match room {
            Room::Open => tracing::info!(free, used, "there is room again: new keys are taken"),
            Room::Full => tracing::warn!(free, reserve, used, "the store is full: no new keys"),
            Room::Critical => {
                tracing::error!(free, reserve, "the disk is nearly full: answers lose their body");
            }
        }
    }
}

/// What a failed write to the folder means.
pub(super) fn failure(folder: &Path, error: impl Error + Send + Sync + 'static) -> Failure {
    let free = free(folder).map(|(free, _)| free);
    Failure::Write { path: folder.to_path_buf(), free, source: Arc::new(error) }
}

/// How much room there is: free bytes and how many are kept in reserve, used bytes and how many
/// may be.
fn judge(before: Room, (free, reserve): (u64, u64), (used, most): (u64, u64)) -> Room {
    let below =
        |line: u64, was: bool| free < if was { line.saturating_add(line / 8) } else { line };
    let was_full = before != Room::Open;
    let bound = if was_full { most - most / 8 } else { most };
    if below(reserve / 4, before == Room::Critical) {
        Room::Critical
    } else if below(reserve, was_full) || used >= bound {
        Room::Full
    } else {
        Room::Open
    }
}

/// Free bytes for this user and all bytes of the file system; none where it does not say.
fn free(path: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    // Some file systems have no size: an unbounded one in memory says zero.
    (found.f_blocks > 0).then(|| (bytes(found.f_bavail), bytes(found.f_blocks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_BOUND: (u64, u64) = (0, u64::MAX);

    #[test]
    fn x5_the_reserve_is_a_line_that_does_not_flap() {
        let rows = [
            (Room::Open, 800, Room::Open),
            (Room::Open, 799, Room::Full),
            (Room::Full, 800, Room::Full),
            (Room::Full, 899, Room::Full),
            (Room::Full, 900, Room::Open),
            (Room::Full, 200, Room::Full),
            (Room::Full, 199, Room::Critical),
            (Room::Open, 0, Room::Critical),
            (Room::Critical, 224, Room::Critical),
            (Room::Critical, 225, Room::Full),
            (Room::Critical, 900, Room::Open),
        ];
        for (before, free, after) in rows {
            assert_eq!(judge(before, (free, 800), NO_BOUND), after, "{before:?} {free}");
        }
    }

    #[test]
    fn x5_the_bound_of_the_folder_refuses_claims_and_never_an_outcome() {
        let much = (u64::MAX, 800);
        assert_eq!(judge(Room::Open, much, (999, 1000)), Room::Open);
        assert_eq!(judge(Room::Open, much, (5000, 1000)), Room::Full);
        assert_eq!(judge(Room::Full, much, (875, 1000)), Room::Full);
        assert_eq!(judge(Room::Full, much, (874, 1000)), Room::Open);
    }

    #[test]
    fn x5_no_reserve_and_no_bound_refuse_nothing() {
        assert_eq!(judge(Room::Open, (0, 0), NO_BOUND), Room::Open);
        assert_eq!(judge(Room::Critical, (0, 0), NO_BOUND), Room::Open);
    }

    #[test]
    fn x5_this_machine_s_disk_says_what_is_free() {
        let (free, total) = free(Path::new("/")).expect("a root file system has a size");
        assert!(free <= total && total > 0);
    }
}

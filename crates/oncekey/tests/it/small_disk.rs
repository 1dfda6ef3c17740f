//! A small file system in memory, mounted for one test, and what fills it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mounted until it is dropped.
pub(crate) struct SmallDisk {
    at: tempfile::TempDir,
}

impl SmallDisk {
    /// So many MiB. `None` where this user may not mount.
    #[allow(clippy::print_stdout)] // The output must say that it was not tried.
    pub(crate) fn mount(mib: u64) -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "oncekey-test"]).arg(at.path());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self { at });
        }
        // Only root may mount; every automatic run is root's.
        println!("not tried: this user may not mount a file system");
        None
    }

    /// A folder on it.
    pub(crate) fn folder(&self) -> PathBuf {
        self.at.path().join("data")
    }

    /// Takes what is free but for so many MiB.
    pub(crate) fn leave(&self, mib: usize) {
        let free = self.free();
        let take = free.checked_sub(mib << 20).expect("so much is not free any more");
        let ballast = self.at.path().join(format!("ballast-{free}"));
        fs::write(ballast, vec![1; take]).unwrap();
    }

    /// Takes everything, to the last byte.
    pub(crate) fn fill(&self) {
        let ballast = self.at.path().join("ballast-all");
        let mut file = OpenOptions::new().create(true).append(true).open(ballast).unwrap();
        for piece in [1 << 20, 4096, 1] {
            while file.write_all(&vec![1; piece]).is_ok() {}
        }
    }

    /// Gives back what was taken.
    pub(crate) fn relieve(&self) {
        for entry in fs::read_dir(self.at.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::remove_file(path).unwrap();
            }
        }
    }

    fn free(&self) -> usize {
        available(self.at.path())
    }
}

/// Free bytes, as the system tells them.
fn available(path: &Path) -> usize {
    let told = Command::new("df").args(["--output=avail", "-B1"]).arg(path).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    told.lines().nth(1).unwrap().trim().parse().unwrap()
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: what is still open goes when it is closed.
        let _ = Command::new("umount").arg("-l").arg(self.at.path()).status();
    }
}

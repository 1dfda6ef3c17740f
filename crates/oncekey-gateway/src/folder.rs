//! What the data folder lies on (A2): some file systems do not keep what was acknowledged.

use std::path::Path;

/// Why records in `folder` may not survive, if there is a reason.
#[must_use]
pub fn doubt(folder: &Path) -> Option<&'static str> {
    let existing = folder.ancestors().find(|path| path.exists() || path.as_os_str().is_empty())?;
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    let found = rustix::fs::statfs(existing).ok()?;
    // The kernel's magic numbers are 32 bits wide, whatever the type of the field.
    doubt_about(found.f_type as u64 & 0xffff_ffff)
}

fn doubt_about(magic: u64) -> Option<&'static str> {
    match magic {
        0x0102_1994 | 0x8584_58f6 => {
            Some("it lies in memory: every record is lost when the machine or container restarts")
        }
        0x794c_7630 => Some(
            "it lies on an overlay, as a container's own files do: every record is lost when the \
             container is replaced; mount a volume",
        ),
        0x6969 | 0x517b | 0xff53_4d42 | 0xfe53_4d42 | 0x6573_5546 | 0x0102_1997 => Some(
            "it lies on a network or user-space file system: whether a synced write survives, and \
             whether the lock holds, is up to the other side",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_memory_overlays_and_networks_are_doubted() {
        for magic in [0x0102_1994, 0x794c_7630, 0x6969] {
            assert!(doubt_about(magic).is_some());
        }
        assert!(doubt_about(0xef53).is_none(), "ext4");
        assert!(doubt(Path::new("/dev/shm/oncekey-data")).is_some());
    }
}

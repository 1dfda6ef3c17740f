//! How long the machine has been running, as a witness against a wall clock that was set.
//!
//! A process that starts cannot tell a wall clock that was set forward from time that passed while
//! it was not running. The machine can, as long as it was not restarted: its uptime counts on
//! whoever sets the clock. Where the system does not tell it, the wall clock is all there is.

use super::Stamp;

/// Which run of the machine this is, and how long it has lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    id: [u8; 16],
    uptime_micros: u64,
}

impl Boot {
    /// As the system tells it now; `None` where it does not.
    pub(crate) fn read() -> Option<Self> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
        Self::parse(&id, &uptime)
    }

    fn parse(id: &str, uptime: &str) -> Option<Self> {
        let (seconds, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
        let seconds: u64 = seconds.parse().ok()?;
        let hundredths: u64 = hundredths.parse().ok().filter(|part| *part < 100)?;
        let uptime_micros = seconds.checked_mul(1_000_000)?.checked_add(hundredths * 10_000)?;
        let mut short = [0; 16];
        short.copy_from_slice(&blake3::hash(id.trim().as_bytes()).as_bytes()[..16]);
        (!id.trim().is_empty()).then_some(Self { id: short, uptime_micros })
    }
}

/// A moment of a store's time, and the machine's uptime at that moment. Kept with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    boot: Boot,
    at: Stamp,
    delete_from: Stamp,
}

impl Anchor {
    /// At `at`, while `boot`; nothing is to be deleted before `delete_from`.
    pub(crate) fn new(boot: Boot, at: Stamp, delete_from: Stamp) -> Self {
        Self { boot, at, delete_from }
    }

    /// Before when nothing is to be deleted.
    pub(crate) fn delete_from(&self) -> Stamp {
        self.delete_from
    }

    /// The store's time at `boot`, if the machine runs on since the anchor was made.
    pub(crate) fn count_on(&self, boot: Boot) -> Option<Stamp> {
        let since = boot.uptime_micros.checked_sub(self.boot.uptime_micros)?;
        let at = Stamp(self.at.as_micros().saturating_add(since));
        (boot.id == self.boot.id).then_some(at)
    }

    /// The stored form: the machine's run, its uptime, the store's time, and when deleting may
    /// begin, little-endian.
    pub(crate) fn encode(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.boot.id);
        bytes[16..24].copy_from_slice(&self.boot.uptime_micros.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.at.as_micros().to_le_bytes());
        bytes[32..].copy_from_slice(&self.delete_from.as_micros().to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 40] = bytes.try_into().ok()?;
        let (id, numbers) = bytes.split_first_chunk::<16>()?;
        let (numbers, _) = numbers.as_chunks::<8>();
        let [uptime, at, delete_from] = numbers else { return None };
        let boot = Boot { id: *id, uptime_micros: u64::from_le_bytes(*uptime) };
        let stamp = |bytes: &[u8; 8]| Stamp(u64::from_le_bytes(*bytes));
        Some(Self { boot, at: stamp(at), delete_from: stamp(delete_from) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(id: &str, uptime: &str) -> Boot {
        Boot::parse(id, uptime).expect("it is well formed")
    }

    #[test]
    fn l4_time_counts_on_while_the_machine_runs_and_not_over_its_restart() {
        let anchor = Anchor::new(boot("a", "100.50 9.00\n"), Stamp(7_000_000), Stamp(0));
        assert_eq!(anchor.count_on(boot("a\n", "160.75 9.00")), Some(Stamp(67_250_000)));
        assert_eq!(anchor.count_on(boot("b", "160.75 9.00")), None, "another run");
        assert_eq!(anchor.count_on(boot("a", "99.00 9.00")), None, "it cannot have run backwards");
    }

    #[test]
    fn l4_an_anchor_is_read_back_and_only_whole() {
        let anchor = Anchor::new(boot("a", "1.00 0.00"), Stamp(3), Stamp(4));
        assert_eq!(Anchor::decode(&anchor.encode()), Some(anchor));
        assert_eq!(Anchor::decode(&anchor.encode()[..39]), None);
        assert_eq!(Anchor::decode(&[0; 41]), None);
    }

    #[test]
    fn l4_what_the_system_does_not_tell_is_not_guessed() {
        for (id, uptime) in
            [("", "1.00 1.00"), ("a", ""), ("a", "1"), ("a", "x.00"), ("a", "1.999")]
        {
            assert_eq!(Boot::parse(id, uptime), None, "{id:?} {uptime:?}");
        }
    }
}

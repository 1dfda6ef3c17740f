//! The only reader of time.
//!
//! 1. A [`Stamp`] counts microseconds since the Unix epoch, but runs on the monotonic clock: it is
//!    anchored to the wall clock once, when the [`Clock`] is made, and never runs backwards after.
//! 2. Stores judge leases and retentions by their own clock. Only durations cross the store trait.
//! 3. A manual clock stands still until it is told to advance, so that tests wait for conditions
//!    and never for time.
//!
//! ```
//! use oncekey::clock::Clock;
//! use std::time::Duration;
//!
//! let clock = Clock::manual();
//! let before = clock.now();
//! clock.advance(Duration::from_secs(30));
//! assert_eq!(clock.now().since(before), Duration::from_secs(30));
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

/// A point in a store's time: microseconds since the Unix epoch, never running backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// The stamp that lies `micros` microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The stamp `by` later; saturates at the end of time, so that "for ever" is representable.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }

    /// The stamp `by` earlier, at the earliest the Unix epoch.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The wall time for people and for HTTP dates.
    #[must_use]
    pub fn wall(self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_micros(self.0)).unwrap_or(UNIX_EPOCH)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A source of [`Stamp`]s: the machine's clock, or one that a test moves by hand.
#[derive(Clone)]
pub struct Clock(Arc<Source>);

enum Source {
    Real { anchor: Instant, at: Stamp },
    Manual { now: AtomicU64, moved: Notify },
}

impl Clock {
    /// The machine's clock, anchored to the wall clock now.
    #[must_use]
    pub fn real() -> Self {
        Self::not_before(Stamp::default())
    }

    /// The machine's clock, started no earlier than `floor`.
    ///
    /// A store that keeps the highest stamp it has seen passes it here, so that a wall clock that
    /// was set back while the process was down does not make expired records live again.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // The one place that may.
    pub fn not_before(floor: Stamp) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = Stamp(micros(wall)).max(floor);
        Self(Arc::new(Source::Real { anchor: Instant::now(), at }))
    }

    /// A clock that stands at a fixed date until [`advance`](Self::advance) moves it.
    #[must_use]
    pub fn manual() -> Self {
        const A_DAY_IN_2026: u64 = 1_780_000_000_000_000;
        let now = AtomicU64::new(A_DAY_IN_2026);
        Self(Arc::new(Source::Manual { now, moved: Notify::new() }))
    }

    /// The present moment.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // The one place that may.
    pub fn now(&self) -> Stamp {
        match &*self.0 {
            Source::Real { anchor, at } => at.after(Instant::now().duration_since(*anchor)),
            Source::Manual { now, .. } => Stamp(now.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock forward and wakes whoever sleeps on it.
    ///
    /// # Panics
    /// On a real clock: time cannot be told.
    pub fn advance(&self, by: Duration) {
        match &*self.0 {
            Source::Real { .. } => panic!("only a manual clock can be advanced"),
            Source::Manual { now, moved } => {
                now.fetch_add(micros(by), Ordering::SeqCst);
                moved.notify_waiters();
            }
        }
    }

    /// Returns once `duration` has passed on this clock.
    pub async fn sleep(&self, duration: Duration) {
        let until = self.now().after(duration);
        match &*self.0 {
            Source::Real { .. } => tokio::time::sleep(duration).await,
            Source::Manual { now, moved } => loop {
                let changed = moved.notified();
                if now.load(Ordering::SeqCst) >= until.0 {
                    return;
                }
                changed.await;
            },
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::real()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &*self.0 {
            Source::Real { .. } => "real",
            Source::Manual { .. } => "manual",
        };
        f.debug_struct("Clock").field("kind", &kind).field("now", &self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_never_wraps() {
        let late = Stamp::from_micros(u64::MAX - 1);
        assert_eq!(late.after(Duration::MAX), Stamp::from_micros(u64::MAX));
        assert_eq!(Stamp::from_micros(1).since(late), Duration::ZERO);
        assert_eq!(Stamp::from_micros(1).before(Duration::MAX), Stamp::default());
    }

    #[test]
    fn a_real_clock_starts_at_its_floor() {
        let floor = Clock::real().now().after(Duration::from_secs(3600));
        assert!(Clock::not_before(floor).now() >= floor);
    }

    #[tokio::test]
    async fn a_sleeper_on_a_manual_clock_wakes_when_it_is_moved() {
        let clock = Clock::manual();
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(5)).await }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(4));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(1));
        sleeper.await.expect("the sleeper ends");
    }
}

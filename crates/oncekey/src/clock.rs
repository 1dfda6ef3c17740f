//! The only reader of time.
//!
//! 1. A [`Stamp`] counts microseconds since the Unix epoch, but runs on the monotonic clock: it is
//!    anchored to the wall clock once, when the [`Clock`] is made, and never runs backwards after.
//! 2. Stores judge leases and retentions by their own clock. Only durations cross the store trait.
//! 3. A manual clock stands still until it is told to advance, so that tests wait for conditions
//!    and never for time.
//! 4. A clock can be asked how far the wall clock has moved against it since it was made: its
//!    [`Skew`]. Somebody set one of them, or the machine slept; which of both is right cannot be
//!    told from here, so a store deletes nothing until they agree again (L4).
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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

#[cfg(feature = "embedded")]
mod boot;

#[cfg(feature = "embedded")]
pub(crate) use self::boot::{Anchor, Boot};

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

/// How far the wall clock is from where a [`Clock`] expects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// The wall clock was set forward by this much, or the machine slept.
    Ahead(Duration),
    /// It was set back by this much.
    Behind(Duration),
}

impl Skew {
    /// No difference at all.
    pub const NONE: Self = Self::Ahead(Duration::ZERO);

    /// The largest difference at which clocks count as agreeing (L4): a minute.
    pub const TOLERANCE: Duration = Duration::from_secs(60);

    /// Whether the difference is too large to be anything but a step.
    #[must_use]
    pub fn is_off(self) -> bool {
        self.size() > Self::TOLERANCE
    }

    /// How large the difference is, whichever way.
    #[must_use]
    pub const fn size(self) -> Duration {
        match self {
            Self::Ahead(by) | Self::Behind(by) => by,
        }
    }

    /// The difference in seconds: negative where the wall clock is behind.
    #[must_use]
    pub fn seconds(self) -> f64 {
        match self {
            Self::Ahead(by) => by.as_secs_f64(),
            Self::Behind(by) => -by.as_secs_f64(),
        }
    }

    /// How far this skew is from `other`.
    #[must_use]
    pub fn distance(self, other: Self) -> Duration {
        match (self, other) {
            (Self::Ahead(a), Self::Ahead(b)) | (Self::Behind(a), Self::Behind(b)) => a.abs_diff(b),
            (Self::Ahead(a), Self::Behind(b)) | (Self::Behind(a), Self::Ahead(b)) => {
                a.saturating_add(b)
            }
        }
    }

    /// How far `is` lies from `expected`.
    fn between(expected: Stamp, is: Stamp) -> Self {
        if is >= expected {
            Self::Ahead(is.since(expected))
        } else {
            Self::Behind(expected.since(is))
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A source of [`Stamp`]s: the machine's clock, or one that a test moves by hand.
#[derive(Clone)]
pub struct Clock(Arc<Source>);

enum Source {
    Real {
        anchor: Instant,
        /// This clock's time at the anchor.
        at: Stamp,
        /// The wall clock's.
        wall: Stamp,
    },
    Manual {
        now: AtomicU64,
        moved: Notify,
        /// What [`Clock::step_wall`] said last.
        skew: Mutex<Skew>,
    },
}

#[allow(clippy::disallowed_methods)] // The one place that may.
fn wall() -> Stamp {
    Stamp(micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
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
        let wall = wall();
        Self(Arc::new(Source::Real { anchor: Instant::now(), at: wall.max(floor), wall }))
    }

    /// The machine's clock, started at `at` wherever the wall clock stands.
    #[cfg(feature = "embedded")]
    #[allow(clippy::disallowed_methods)] // The one place that may.
    pub(crate) fn starting_at(at: Stamp) -> Self {
        Self(Arc::new(Source::Real { anchor: Instant::now(), at, wall: wall() }))
    }

    /// How far the wall clock is from this clock itself; nothing on a manual clock.
    #[cfg(feature = "embedded")]
    pub(crate) fn skew_to_wall(&self) -> Skew {
        match &*self.0 {
            Source::Real { .. } => Skew::between(self.now(), wall()),
            Source::Manual { .. } => Skew::NONE,
        }
    }

    /// A clock that stands at a fixed date until [`advance`](Self::advance) moves it.
    #[must_use]
    pub fn manual() -> Self {
        const A_DAY_IN_2026: u64 = 1_780_000_000_000_000;
        let (now, skew) = (AtomicU64::new(A_DAY_IN_2026), Mutex::new(Skew::NONE));
        Self(Arc::new(Source::Manual { now, moved: Notify::new(), skew }))
    }

    /// The present moment.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // The one place that may.
    pub fn now(&self) -> Stamp {
        match &*self.0 {
            Source::Real { anchor, at, .. } => at.after(Instant::now().duration_since(*anchor)),
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
            Source::Manual { now, moved, .. } => {
                now.fetch_add(micros(by), Ordering::SeqCst);
                moved.notify_waiters();
            }
        }
    }

    /// How far the wall clock has moved against this clock since this clock was made.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // The one place that may.
    pub fn skew(&self) -> Skew {
        match &*self.0 {
            Source::Real { anchor, wall: first, .. } => {
                Skew::between(first.after(Instant::now().duration_since(*anchor)), wall())
            }
            Source::Manual { skew, .. } => *skew.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Sets the wall clock beside a manual clock, which itself goes on as before.
    ///
    /// # Panics
    /// On a real clock: the machine's wall clock is not ours.
    pub fn step_wall(&self, to: Skew) {
        match &*self.0 {
            Source::Real { .. } => panic!("only a manual clock has a wall clock to set"),
            Source::Manual { skew, .. } => {
                *skew.lock().unwrap_or_else(PoisonError::into_inner) = to;
            }
        }
    }

    /// Returns once `duration` has passed on this clock.
    pub async fn sleep(&self, duration: Duration) {
        let until = self.now().after(duration);
        match &*self.0 {
            Source::Real { .. } => tokio::time::sleep(duration).await,
            Source::Manual { now, moved, .. } => loop {
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

    #[test]
    fn l4_a_real_clock_and_the_wall_clock_run_together_also_above_a_floor() {
        let floor = Clock::real().now().after(Duration::from_secs(3600));
        for clock in [Clock::real(), Clock::not_before(floor)] {
            assert!(clock.skew().size() < Duration::from_secs(60), "{:?}", clock.skew());
        }
    }

    #[test]
    fn l4_a_skew_tells_which_clock_is_ahead_and_how_far_two_skews_are_apart() {
        let second = Duration::from_secs(1);
        let (early, late) = (Stamp::from_micros(5_000_000), Stamp::from_micros(8_000_000));
        assert_eq!(Skew::between(early, late), Skew::Ahead(3 * second));
        assert_eq!(Skew::between(late, early), Skew::Behind(3 * second));
        assert_eq!(Skew::Ahead(3 * second).distance(Skew::Behind(2 * second)), 5 * second);
        assert_eq!(Skew::Behind(3 * second).distance(Skew::Behind(2 * second)), second);
        assert!(Skew::Behind(second).seconds() < 0.0);
    }

    #[test]
    fn l4_setting_the_wall_clock_moves_no_store_time() {
        let clock = Clock::manual();
        let before = clock.now();
        clock.step_wall(Skew::Behind(Duration::from_secs(3600)));
        assert_eq!(clock.now(), before);
        assert_eq!(clock.skew(), Skew::Behind(Duration::from_secs(3600)));
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

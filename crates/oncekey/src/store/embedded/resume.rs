//! Where a store's time goes on when its folder is opened (L4).
//!
//! | since the last opening | the store's time | deleting |
//! |---|---|---|
//! | the machine ran on | counts on by its uptime; the wall clock does not matter | at once |
//! | it restarted, the wall clock is ahead | the wall clock: nothing else knows | after an hour |
//! | it restarted, the wall clock is behind | the last moment that was seen | at once |
//!
//! The hour counts over further openings. A minute ahead is no reason for it.
//!
//! A clock that the caller brought is the caller's to keep right: it is used as it is.

use std::time::Duration;

use crate::clock::{Anchor, Boot, Clock, Skew, Stamp};

/// How long nothing is deleted once the wall clock had to be believed: time to see the log.
const DOUBT: Duration = Duration::from_secs(3600);

/// A store's clock at its opening.
pub(super) struct Resumed {
    pub(super) clock: Clock,
    /// To be kept for the next opening.
    pub(super) anchor: Option<Anchor>,
    /// Nothing is deleted before.
    pub(super) delete_from: Stamp,
}

impl Resumed {
    /// Goes on no earlier than `seen`, the last moment that the folder has seen, by what `last`
    /// says of the opening before.
    pub(super) fn of(given: Option<&Clock>, seen: Stamp, last: Option<Anchor>) -> Self {
        if let Some(clock) = given {
            return Self { clock: clock.clone(), anchor: None, delete_from: Stamp::default() };
        }
        let boot = Boot::read();
        let counted = last.and_then(|last| Some((last.count_on(boot?)?, last.delete_from())));
        let clock = match counted {
            Some((at, _)) => Clock::starting_at(at.max(seen)),
            None => Clock::not_before(seen),
        };
        let (now, off) = (clock.now(), clock.skew_to_wall());
        let delete_from = match counted {
            Some((_, delete_from)) => delete_from,
            None if seen > Stamp::default() && now.since(seen) > Skew::TOLERANCE => {
                now.after(DOUBT)
            }
            None => now,
        };
        if off.is_off() {
            tracing::warn!(
                wall_clock_ahead_seconds = off.seconds(),
                "the wall clock is not where this store's time is: the store goes on by its own"
            );
        }
        if delete_from > now {
            tracing::warn!(
                later_by_seconds = now.since(seen).as_secs(),
                "how much time has passed since this store was open is known from the wall clock \
                 alone: nothing is deleted in the first hour, in case it is wrong"
            );
        }
        let anchor = boot.map(|boot| Anchor::new(boot, now, delete_from));
        Self { clock, anchor, delete_from }
    }
}

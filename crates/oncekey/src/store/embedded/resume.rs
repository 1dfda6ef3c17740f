//! Where a store's time goes on when its folder is opened (L4).
//!
//! | since the last opening | the store's time | deleting |
//! |---|---|---|
//! | the machine ran on | counts on by its uptime; the wall clock does not matter | at once |
//! | it restarted, the wall clock is ahead | the wall clock, which cannot be told from time that passed | after an hour, unless it is a minute at most |
//! | it restarted, the wall clock is behind | the last moment that was seen | at once |
//!
//! A clock that the caller brought is the caller's to keep right: it is used as it is.

use std::time::Duration;

use crate::clock::{Anchor, Boot, Clock, Skew, Stamp};

/// How long nothing is deleted once the wall clock had to be believed: time to see the log.
const DOUBT: Duration = Duration::from_secs(3600);
/// A difference of clocks that is worth a word.
const WORTH_TELLING: Duration = Duration::from_secs(60);

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
        let counted = last.and_then(|last| last.count_on(boot?));
        let clock = match counted {
            Some(at) => Clock::starting_at(at.max(seen)),
            None => Clock::not_before(seen),
        };
        let now = clock.now();
        let delete_from = match (counted, clock.skew_to_wall()) {
            (Some(_), skew) if skew.size() > WORTH_TELLING => {
                tracing::warn!(
                    seconds = skew.seconds(),
                    "the wall clock was set while the machine ran: the store's time goes on \
                     without it"
                );
                now
            }
            (None, Skew::Behind(by)) if by > WORTH_TELLING => {
                tracing::warn!(
                    seconds = by.as_secs(),
                    "the wall clock is behind what this store has seen: the store's time goes on \
                     from there"
                );
                now
            }
            (None, _) if seen > Stamp::default() && now.since(seen) > WORTH_TELLING => {
                tracing::warn!(
                    seconds = now.since(seen).as_secs(),
                    "the machine was restarted, and the store believes its wall clock that this \
                     much time has passed: nothing is deleted for an hour, in case it is wrong"
                );
                now.after(DOUBT)
            }
            _ => now,
        };
        let anchor = boot.map(|boot| Anchor::new(boot, now));
        Self { clock, anchor, delete_from }
    }
}

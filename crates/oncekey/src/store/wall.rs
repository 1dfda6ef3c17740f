//! Whether the wall clock still agrees with a store's clock, and so whether to delete (L4).
//!
//! 1. A store's time is monotonic, so a wall clock that is set moves no lease and no retention.
//! 2. A step tells that one of both clocks is, or was, wrong. While they are more than
//!    [`Skew::TOLERANCE`] apart no purge deletes anything: not what is over, and no unknown
//!    request. What is over still reads as over, and a store that makes room to keep to its bound
//!    still does.
//! 3. Each step is logged once, whichever way it goes, and so is their agreement afterwards.
//!    Opening a store takes the clocks as it finds them: from then on they agree.

use std::sync::{Mutex, PoisonError};

use crate::clock::{Clock, Skew};
use crate::events::{Event, Observer};

/// Watches one store's clock against the wall clock.
#[derive(Debug, Default)]
pub(crate) struct WallWatch {
    /// The step that was logged last; `None` while the clocks agree.
    told: Mutex<Option<Skew>>,
}

impl WallWatch {
    /// Whether the clocks agree; logs what changed since the last look.
    pub(crate) fn agrees(&self, clock: &Clock, observer: &dyn Observer) -> bool {
        let skew = clock.skew();
        let agrees = !skew.is_off();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match (*told, agrees) {
            (None, true) => return true,
            (Some(last), false) if skew.distance(last) <= Skew::TOLERANCE => return false,
            _ => {}
        }
        *told = (!agrees).then_some(skew);
        drop(told);
        let seconds = skew.seconds();
        if agrees {
            tracing::info!(
                seconds,
                "the wall clock agrees with the store's again: purging goes on"
            );
        } else {
            tracing::warn!(
                seconds,
                "the wall clock stepped away from the store's: leases and retentions go on by the \
                 store's, and nothing is deleted until both agree or the store is opened again"
            );
        }
        observer.note(Event::WallClock(skew));
        agrees
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<Skew>>);

    impl Observer for Told {
        fn note(&self, event: Event) {
            if let Event::WallClock(skew) = event {
                self.0.lock().expect("not poisoned").push(skew);
            }
        }
    }

    #[test]
    fn l4_each_step_is_told_once_whichever_way_and_so_is_agreement() {
        let (clock, watch, told) = (Clock::manual(), WallWatch::default(), Told::default());
        let second = Duration::from_secs(1);
        let steps = [
            (Skew::NONE, true),
            (Skew::Ahead(60 * second), true),
            (Skew::Ahead(61 * second), false),
            // Still the same step.
            (Skew::Ahead(62 * second), false),
            (Skew::Ahead(3_600 * second), false),
            (Skew::Behind(3_600 * second), false),
            (Skew::Behind(60 * second), true),
            (Skew::Behind(61 * second), false),
        ];
        for (skew, agrees) in steps {
            clock.step_wall(skew);
            for _ in 0..3 {
                assert_eq!(watch.agrees(&clock, &told), agrees, "{skew:?}");
            }
        }
        let told = told.0.into_inner().expect("not poisoned");
        let expected = [2, 4, 5, 6, 7].map(|at| steps[at].0);
        assert_eq!(told, expected);
    }
}

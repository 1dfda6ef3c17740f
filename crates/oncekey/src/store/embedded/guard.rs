//! The guard: a thread that notices when the writer or the applier stands still.
//!
//! 1. It never touches the disk itself, so nothing that a disk does can stop it. Each tick it asks
//!    the applier to [look](super::space::Watch) at the disk.
//! 2. A thread that is busy and gets no further for [`Options::stall`](super::Options::stall) has
//!    failed: what it waits for may never come, and a restart is better than that (X7). Anything
//!    faster only slows the store down, and is warned about after a second.
//! 3. Time is counted in the guard's own ticks. A process that was stopped or a machine that was
//!    suspended stops both, so neither is taken for a failure when it goes on.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::desk::Desk;
use super::error::Failure;
use super::view::View;

/// How often the writer and the disk are looked at.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Ticks without progress after which the disk is called slow.
const SLOW: u32 = 10;

/// What a thread is at, as far as the guard can tell.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    busy: AtomicBool,
    steps: AtomicU64,
}

impl Pulse {
    /// It has something to do.
    pub(super) fn begin(&self) {
        self.busy.store(true, Ordering::Relaxed);
        self.step();
    }

    /// It got on.
    pub(super) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// It waits for something to do.
    pub(super) fn rest(&self) {
        self.busy.store(false, Ordering::Relaxed);
    }

    /// The step that it is at; none while it rests.
    fn at(&self) -> Option<u64> {
        // A step that begins between the two reads is seen at the next tick.
        self.busy.load(Ordering::Relaxed).then(|| self.steps.load(Ordering::Relaxed))
    }
}

/// The guard's thread.
pub(super) struct Guard {
    pub(super) view: Arc<View>,
    pub(super) desk: Arc<Desk>,
    /// How long one of the threads may stand still.
    pub(super) stall: Duration,
}

impl Guard {
    /// Watches until the store has failed or `stop` is dropped.
    pub(super) fn run(self, stop: &Receiver<Infallible>) {
        let mut counters = [Counter::new(self.stall), Counter::new(self.stall)];
        while stop.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            let at = [self.view.pulse.at(), self.view.applying.at()];
            for (counter, at) in counters.iter_mut().zip(at) {
                match counter.tick(at) {
                    Verdict::Moves => {}
                    Verdict::Slow => {
                        tracing::warn!("the disk is slow: a write takes over a second");
                    }
                    Verdict::Stuck => self.view.fail(Failure::Stuck { stall: self.stall }),
                }
            }
            if !self.view.is_healthy() {
                return;
            }
            self.desk.ask(|errands| errands.look = true);
        }
    }
}

/// What a tick says about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Moves,
    /// Told once for each stop.
    Slow,
    Stuck,
}

/// Counts the ticks during which a thread was at the same step.
struct Counter {
    most: u32,
    ticks: u32,
    before: Option<u64>,
}

impl Counter {
    fn new(stall: Duration) -> Self {
        let most = stall.as_millis().div_ceil(TICK.as_millis()).max(1);
        Self { most: u32::try_from(most).unwrap_or(u32::MAX), ticks: 0, before: None }
    }

    fn tick(&mut self, at: Option<u64>) -> Verdict {
        let still = at.is_some() && at == self.before;
        self.before = at;
        self.ticks = if still { self.ticks.saturating_add(1) } else { 0 };
        match self.ticks {
            ticks if ticks >= self.most => Verdict::Stuck,
            SLOW => Verdict::Slow,
            _ => Verdict::Moves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(counter: &mut Counter, ticks: u32, at: Option<u64>) -> Verdict {
        for _ in 1..ticks {
            let _ = counter.tick(at);
        }
        counter.tick(at)
    }

    #[test]
    fn x7_a_writer_is_stuck_after_so_many_ticks_at_one_step() {
        let mut counter = Counter::new(Duration::from_secs(10));
        assert_eq!(after(&mut counter, 11, Some(7)), Verdict::Slow, "the first tick sees it begin");
        assert_eq!(counter.tick(Some(7)), Verdict::Moves, "slow is told once");
        assert_eq!(after(&mut counter, 88, Some(7)), Verdict::Moves);
        assert_eq!(counter.tick(Some(7)), Verdict::Stuck);
    }

    #[test]
    fn x7_a_writer_that_gets_on_or_rests_is_never_stuck() {
        let mut counter = Counter::new(Duration::from_secs(1));
        for step in 0..1_000 {
            assert_eq!(after(&mut counter, 9, Some(step)), Verdict::Moves);
        }
        assert_eq!(after(&mut counter, 1_000, None), Verdict::Moves);
    }
}

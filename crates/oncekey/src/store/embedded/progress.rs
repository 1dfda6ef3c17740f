//! How far long work on a folder has come, for whoever waits for it.

/// What is being done, and how much of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The part of the work.
    pub step: Step,
    /// How much of this step is done: bytes, or records where [`Step::Records`] is.
    pub done: u64,
    /// How much there is, about; never zero, and never less than what is done.
    pub total: u64,
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Files are read and compared with their checksums.
    Files,
    /// Records are read and decoded.
    Records,
    /// Files are copied.
    Copy,
}

/// Whoever is told of progress, at least once a step and about once a mebibyte.
pub(super) type Told<'a> = &'a mut dyn FnMut(Progress);

/// Counts one step.
pub(super) struct Meter<'a> {
    told: Told<'a>,
    at: Progress,
    last: u64,
}

/// Less than this is not worth telling.
const NOTABLE: u64 = 1 << 20;

impl<'a> Meter<'a> {
    pub(super) fn new(told: Told<'a>, step: Step, total: u64) -> Self {
        let at = Progress { step, done: 0, total: total.max(1) };
        told(at);
        Self { told, at, last: 0 }
    }

    /// So much more is done.
    pub(super) fn add(&mut self, more: u64) {
        self.at.done += more;
        let notable = match self.at.step {
            Step::Records => 10_000,
            Step::Files | Step::Copy => NOTABLE,
        };
        if self.at.done - self.last >= notable {
            self.tell();
        }
    }

    /// The step is over, however much there turned out to be.
    pub(super) fn end(mut self) {
        self.at.done = self.at.done.max(1);
        self.at.total = self.at.done;
        self.tell();
    }

    fn tell(&mut self) {
        self.last = self.at.done;
        self.at.total = self.at.total.max(self.at.done);
        (self.told)(self.at);
    }
}

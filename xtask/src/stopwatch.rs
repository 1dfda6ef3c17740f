//! How long a step took. The one place here that reads the time.

use std::time::{Duration, Instant};

/// Runs since it was made.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods)] // The one place that may.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn read(&self) -> Duration {
        self.0.elapsed()
    }
}

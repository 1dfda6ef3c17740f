//! Files that may be open at once, and who gets them.
//!
//! 1. At start the soft limit is raised to the hard one: most systems begin with 1 024.
//! 2. What the store needs is set aside, for a store that gets no file fails (X7). The rest is
//!    shared between clients and the connections to the application; whoever finds none left waits.
//! 3. A client that has to wait has lost nothing: it waits in the kernel, before its key counts. A
//!    request that gets no connection to the application in time is released (O4).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Tables and journals of the store, and what is open while they are written and merged.
const STORE: usize = 256 + 128;

/// Listeners, runtimes, health and metrics.
const OTHERS: usize = 128;

/// Clients at once where there is no lack of files.
const CLIENTS: usize = 16_384;

/// What little there is at least, however low the limit.
const LEAST: usize = 16;

/// Raises the limit of open files as far as this process may.
pub fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        // What it was before is in force.
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// From clients, of all workers together.
    pub clients: usize,
    /// To the application, of all workers together.
    pub upstream: usize,
    /// The limit of open files that the share was made of; none where there is none.
    pub limit: Option<u64>,
}

impl Share {
    /// The share of what this process may open now.
    #[must_use]
    pub fn now() -> Self {
        Self::of(getrlimit(Resource::Nofile).current)
    }

    fn of(limit: Option<u64>) -> Self {
        let all = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let rest = all.saturating_sub(STORE + OTHERS);
        let clients = CLIENTS.min(rest / 2).max(LEAST);
        Self { clients, upstream: rest.saturating_sub(clients).max(LEAST), limit }
    }

    /// The limit that would be enough, where this one is not.
    #[must_use]
    pub fn wanted(&self) -> Option<usize> {
        (self.clients < CLIENTS).then_some(2 * CLIENTS + STORE + OTHERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x5_clients_and_upstream_never_take_the_files_of_the_store() {
        for limit in [1_024, 4_096, 33_280, 1 << 20] {
            let share = Share::of(Some(limit));
            let taken = share.clients + share.upstream + STORE + OTHERS;
            assert!(taken as u64 <= limit, "{share:?} of {limit}");
            assert_eq!(share.wanted().is_some(), limit < 33_280, "{share:?}");
        }
        assert_eq!(Share::of(None).clients, CLIENTS);
        assert_eq!(Share::of(None).wanted(), None);
        assert_eq!(Share::of(Some(0)).clients, LEAST, "too little for anything");
    }
}

//! Tokens whose record was released (C2).
//!
//! A released record leaves nothing behind, so a late copy of its claim would find it absent and
//! take it again with nobody to run the work. These tokens are therefore remembered for a minute.
//! A store that serves one process keeps them in memory: a process that ended sends no copies.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::clock::Stamp;
use crate::record::LeaseToken;

/// How long a released token cannot claim (C2).
const DEAD_FOR: Duration = Duration::from_secs(60);
/// The most tokens that are remembered. Beyond it the oldest are forgotten before their minute is
/// over, which takes thousands of releases a second.
const MOST: usize = 250_000;

/// The released tokens of the last minute.
#[derive(Debug)]
pub(crate) struct DeadTokens {
    set: HashSet<LeaseToken>,
    /// In order of release, to forget the oldest first.
    queue: VecDeque<(Stamp, LeaseToken)>,
    most: usize,
}

impl Default for DeadTokens {
    fn default() -> Self {
        Self::one_of(1)
    }
}

impl DeadTokens {
    /// One of so many that share the bound.
    pub(crate) fn one_of(shards: usize) -> Self {
        let most = MOST / shards.max(1);
        Self { set: HashSet::new(), queue: VecDeque::new(), most }
    }

    /// Remembers `token` from `now` on, and forgets those whose minute is over.
    pub(crate) fn insert(&mut self, token: LeaseToken, now: Stamp) {
        while let Some((until, old)) = self.queue.front()
            && (*until <= now || self.queue.len() >= self.most)
        {
            self.set.remove(old);
            self.queue.pop_front();
        }
        if self.set.insert(token) {
            self.queue.push_back((now.after(DEAD_FOR), token));
        }
    }

    /// Whether `token` was released within the last minute or so.
    pub(crate) fn contains(&self, token: &LeaseToken) -> bool {
        self.set.contains(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_shards_share_the_bound() {
        let mut dead = DeadTokens::one_of(MOST / 2);
        let tokens = [LeaseToken::random(), LeaseToken::random(), LeaseToken::random()];
        tokens.iter().for_each(|token| dead.insert(*token, Stamp::from_micros(1)));
        assert_eq!(tokens.map(|token| dead.contains(&token)), [false, true, true]);
    }

    #[test]
    fn c2_a_token_stays_dead_for_a_minute_and_is_then_forgotten() {
        let mut dead = DeadTokens::default();
        let first = LeaseToken::random();
        let start = Stamp::from_micros(1_000);
        dead.insert(first, start);
        dead.insert(LeaseToken::random(), start.after(Duration::from_secs(59)));
        assert!(dead.contains(&first));
        dead.insert(LeaseToken::random(), start.after(Duration::from_secs(60)));
        assert!(!dead.contains(&first));
    }
}

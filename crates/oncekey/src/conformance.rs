//! The suite that every store passes: ours and other people's.
//!
//! 1. Each rule is a test of its own over a fresh store, and says in one sentence what was broken.
//! 2. Claims, completions, changes and waits are raced on many tasks of a runtime with several
//!    threads: a store that is right only in sequence fails.
//! 3. The suite sees a store only through its trait, behind `Arc<dyn Store>`, and passes time by
//!    the store's clock or by sleeping. It never waits for time where a condition will do.
//! 4. Rules come in groups, by what a store can do: [`Group::Store`], [`Group::Inspect`],
//!    [`Group::Recover`], and [`Group::Durable`] for what must survive reopening.
//!
//! [`conformance_tests!`](crate::conformance_tests) makes one test of each rule. It takes an
//! expression that makes fresh [`Hands`], evaluated anew in every test, and the groups; the crate
//! that uses it needs tokio with `macros` and `rt-multi-thread`.
//!
//! ```
//! # extern crate tokio;
//! use std::sync::Arc;
//! use oncekey::clock::Clock;
//! use oncekey::conformance::Hands;
//! use oncekey::store::MemoryStore;
//!
//! fn hands() -> Hands {
//!     let clock = Clock::manual();
//!     let store = MemoryStore::new().with_clock(clock.clone());
//!     Hands::inspecting(Arc::new(store)).with_clock(clock)
//! }
//!
//! oncekey::conformance_tests!(hands(); store, inspect);
//!
//! // The same by hand: what is broken, by the rules' names.
//! # #[tokio::main]
//! # async fn main() {
//! use oncekey::conformance::{Group, failures};
//! assert!(failures(Group::Inspect, hands).await.is_empty());
//! # }
//! ```
//!
//! A durable store says how it is opened again; [`Hands::reopened_by`] shows it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::store::StoreError;

mod claims;
mod durable;
mod endings;
mod hands;
mod people;
mod recovery;
mod retention;
mod waiting;

pub use hands::Hands;

/// The rules, one function each, by name.
pub mod rule {
    pub use super::claims::{
        attempt_counts_runs, claim_again_with_same_token, failure_is_not_permission, one_winner,
        principal_then_fingerprint, released_token_stays_dead, taken_back_leaves_what_was,
        works_behind_arc_dyn,
    };
    pub use super::durable::acknowledged_is_kept;
    pub use super::endings::{
        bounds, late_complete_decides_unknown, outcome_once, release_forgets,
        retry_keeps_fingerprint, stale_token_is_lost, unknown_is_told,
    };
    pub use super::people::{
        change_fences_the_holder, change_needs_the_version_seen, counts_tell_the_living,
        list_shows_each_once,
    };
    pub use super::recovery::{taken_by_one, taken_only_when_due};
    pub use super::retention::{
        completed_holds_for_retention, expired_is_absent_or_tombstone, purge_spares_the_living,
        shrunk_unknown_is_told, store_clock, unknown_ends_after_its_horizon,
        unknown_outlives_retention,
    };
    pub use super::waiting::{hot_key_slows_no_other, no_wakeup_is_lost, waiter_is_woken};
}

/// How a store broke a rule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A promise does not hold.
    #[error("{promise}; got {got}")]
    Broken {
        /// What should hold.
        promise: &'static str,
        /// What was met instead.
        got: String,
    },
    /// The store met trouble where there is no reason for any.
    #[error("the store failed: {0}")]
    Trouble(#[from] StoreError),
    /// A call did not come back.
    #[error("{0}; nothing came back")]
    Hangs(&'static str),
    /// A call panicked.
    #[error("a call to the store panicked")]
    Panicked,
    /// The hands lack what the rule's group needs.
    #[error("these hands cannot {0}")]
    Unable(&'static str),
}

impl Failure {
    fn broken(promise: &'static str, got: &dyn fmt::Debug) -> Self {
        Self::Broken { promise, got: format!("{got:?}") }
    }
}

/// What a rule comes to.
pub type Verdict = Result<(), Failure>;

/// Which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Group {
    /// What every [`Store`](crate::store::Store) promises.
    Store,
    /// What [`Inspect`](crate::store::Inspect) adds.
    Inspect,
    /// What [`Recover`](crate::store::Recover) adds.
    Recover,
    /// What a store that can be opened again keeps.
    Durable,
}

/// A rule of the suite.
#[derive(Clone, Copy)]
pub struct Rule {
    name: &'static str,
    run: fn(Hands) -> Pin<Box<dyn Future<Output = Verdict> + Send>>,
}

impl Rule {
    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Tries the rule on a fresh store.
    ///
    /// # Errors
    /// The [`Failure`] that shows how it is broken; a rule that takes minutes counts as one that
    /// hangs.
    pub async fn check(&self, hands: Hands) -> Verdict {
        const AT_MOST: Duration = Duration::from_secs(180);
        match tokio::time::timeout(AT_MOST, (self.run)(hands)).await {
            Ok(verdict) => verdict,
            Err(_) => Err(Failure::Hangs("a rule ends within minutes")),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.name).finish()
    }
}

/// The rules of `group`.
#[must_use]
pub fn rules(group: Group) -> &'static [Rule] {
    match group {
        Group::Store => crate::conformance_tests!(@group store list),
        Group::Inspect => crate::conformance_tests!(@group inspect list),
        Group::Recover => crate::conformance_tests!(@group recover list),
        Group::Durable => crate::conformance_tests!(@group durable list),
    }
}

/// Tries all rules of `group`, each on a store that `fresh` makes, and tells which are broken.
pub async fn failures(group: Group, fresh: impl Fn() -> Hands) -> Vec<(&'static str, Failure)> {
    let mut failures = Vec::new();
    for rule in rules(group) {
        if let Err(failure) = rule.check(fresh()).await {
            failures.push((rule.name(), failure));
        }
    }
    failures
}

/// Makes one test of each rule of the groups that are named: `store`, `inspect`, `recover`,
/// `durable`. See the [module](crate::conformance).
#[macro_export]
macro_rules! conformance_tests {
    ($hands:expr; $($group:ident),+ $(,)?) => {
        $($crate::conformance_tests!(@group $group tests $hands);)+
    };
    (@group store $then:ident $($hands:expr)?) => {
        $crate::conformance_tests! { @$then $($hands;)?
            one_winner claim_again_with_same_token released_token_stays_dead
            taken_back_leaves_what_was
            principal_then_fingerprint outcome_once late_complete_decides_unknown
            stale_token_is_lost attempt_counts_runs retry_keeps_fingerprint unknown_is_told
            unknown_outlives_retention unknown_ends_after_its_horizon shrunk_unknown_is_told
            completed_holds_for_retention
            expired_is_absent_or_tombstone release_forgets store_clock failure_is_not_permission
            bounds waiter_is_woken no_wakeup_is_lost hot_key_slows_no_other
            purge_spares_the_living works_behind_arc_dyn
        }
    };
    (@group inspect $then:ident $($hands:expr)?) => {
        $crate::conformance_tests! { @$then $($hands;)?
            change_needs_the_version_seen change_fences_the_holder list_shows_each_once
            counts_tell_the_living
        }
    };
    (@group recover $then:ident $($hands:expr)?) => {
        $crate::conformance_tests! { @$then $($hands;)? taken_by_one taken_only_when_due }
    };
    (@group durable $then:ident $($hands:expr)?) => {
        $crate::conformance_tests! { @$then $($hands;)? acknowledged_is_kept }
    };
    (@list $($rule:ident)+) => {
        const {
            &[$(Rule {
                name: stringify!($rule),
                run: |hands| Box::pin(rule::$rule(hands)),
            }),+]
        }
    };
    (@tests $hands:expr; $($rule:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $rule() {
                if let Err(failure) = $crate::conformance::rule::$rule($hands).await {
                    panic!("{}: {failure}", stringify!($rule));
                }
            }
        )+
    };
}

/// Goes on where `got` is what was promised, else breaks the rule.
macro_rules! ensure {
    ($got:expr, $pattern:pat $(if $guard:expr)?, $promise:literal) => {
        match $got {
            $pattern $(if $guard)? => {}
            other => return Err($crate::conformance::Failure::broken($promise, &other)),
        }
    };
}
use ensure;

//! A suite that cannot fail proves nothing: it finds every broken store, by the right rule.

use oncekey::clock::Clock;
use oncekey::conformance::{Group, Hands, failures, rules};
use std::time::Duration;

use super::broken::{Broken, Fault};

fn hands(fault: Fault) -> Hands {
    let clock = Clock::manual();
    // What hangs should hang for a moment only.
    Hands::recovering(Broken::new(fault, clock.clone()))
        .with_clock(clock)
        .with_patience(Duration::from_secs(2))
}

async fn broken_rules(group: Group, fault: Fault) -> Vec<&'static str> {
    let failures = failures(group, || hands(fault)).await;
    failures.into_iter().map(|(name, _)| name).collect()
}

/// Makes one test of each fault: the rule that is named is among those that fail.
macro_rules! found {
    ($($test:ident: $group:ident, $fault:ident, $rule:literal;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                let broken = broken_rules(Group::$group, Fault::$fault).await;
                assert!(broken.contains(&$rule), "{:?} breaks {broken:?}", Fault::$fault);
            }
        )+
    };
}

found! {
    a_claim_in_two_steps_is_found: Store, ClaimIsTwoSteps, "one_winner";
    a_refused_repetition_is_found: Store, RepeatedClaimIsRefused, "claim_again_with_same_token";
    a_released_token_that_claims_is_found: Store, ReleasedTokenClaims, "released_token_stays_dead";
    a_claim_taken_back_that_forgets_is_found: Store, TakeBackForgets, "taken_back_leaves_what_was";
    a_key_that_stays_after_a_release_is_found: Store, ReleaseLeavesTheKey, "release_forgets";
    a_late_mismatch_is_found: Store, MismatchOnlyWhenCompleted, "principal_then_fingerprint";
    a_wrong_order_is_found: Store, FingerprintBeforePrincipal, "principal_then_fingerprint";
    a_completion_without_a_fence_is_found: Store, CompleteIgnoresToken, "stale_token_is_lost";
    a_stale_token_told_ours_is_found: Store, StaleTokenIsToldOurs, "stale_token_is_lost";
    a_second_outcome_is_found: Store, OutcomeIsRewritten, "outcome_once";
    a_late_completion_refused_is_found: Store, LateCompleteIsRefused,
        "late_complete_decides_unknown";
    an_attempt_that_stands_still_is_found: Store, AttemptStandsStill, "attempt_counts_runs";
    a_retry_that_forgets_is_found: Store, RetryForgets, "retry_keeps_fingerprint";
    a_waiter_that_runs_is_found: Store, WaiterRunsAfterRetry, "retry_keeps_fingerprint";
    an_unknown_that_runs_again_is_found: Store, UnknownRunsAgain, "unknown_is_told";
    an_early_takeover_is_found: Store, TakeoverComesEarly, "unknown_is_told";
    an_unknown_that_expires_is_found: Store, UnknownExpires, "unknown_outlives_retention";
    a_claim_that_ends_an_unknown_is_found: Store, ClaimEndsTheOld, "unknown_ends_after_its_horizon";
    an_unknown_that_never_ends_is_found: Store, HorizonIsIgnored, "unknown_ends_after_its_horizon";
    an_unknown_that_shrinks_to_nothing_is_found: Store, ShrinkingForgets,
        "shrunk_unknown_is_told";
    a_short_retention_is_found: Store, RetentionIsIgnored, "completed_holds_for_retention";
    an_endless_retention_is_found: Store, RetentionNeverEnds, "expired_is_absent_or_tombstone";
    a_missing_tombstone_is_found: Store, TombstoneIsIgnored, "expired_is_absent_or_tombstone";
    a_renewal_that_does_nothing_is_found: Store, RenewalDoesNothing, "store_clock";
    an_error_that_grants_is_found: Store, ErrorGrants, "failure_is_not_permission";
    a_claim_that_lingers_is_found: Store, DroppedClaimLingers, "failure_is_not_permission";
    a_memo_cut_short_is_found: Store, MemoIsCut, "bounds";
    an_outcome_cut_short_is_found: Store, OutcomeIsCut, "bounds";
    waiters_that_sleep_on_are_found: Store, WaitersSleepOn, "waiter_is_woken";
    a_bound_that_is_ignored_is_found: Store, BoundIsIgnored, "waiter_is_woken";
    a_lost_wake_up_is_found: Store, WaitersLookFirst, "no_wakeup_is_lost";
    a_hot_key_that_slows_others_is_found: Store, WaitersHoldALock, "hot_key_slows_no_other";
    a_purge_of_the_living_is_found: Store, PurgeTakesTheLiving, "purge_spares_the_living";
    an_eviction_of_the_living_is_found: Store, ManyKeysEvict, "purge_spares_the_living";
    a_store_that_prints_keys_is_found: Store, DebugShowsKeys, "works_behind_arc_dyn";
    a_change_of_any_version_is_found: Inspect, ChangeIgnoresVersion,
        "change_needs_the_version_seen";
    a_change_of_a_held_record_is_found: Inspect, ChangeTakesTheHeld,
        "change_needs_the_version_seen";
    a_holder_that_is_not_fenced_is_found: Inspect, ChangeSparesTheHolder,
        "change_fences_the_holder";
    a_lost_audit_is_found: Inspect, AuditIsLost, "change_fences_the_holder";
    a_listing_that_repeats_is_found: Inspect, ListRepeats, "list_shows_each_once";
    a_listing_that_skips_is_found: Inspect, ListSkips, "list_shows_each_once";
    a_wrong_count_is_found: Inspect, LapsedCountsAsHeld, "counts_tell_the_living";
    takers_that_share_are_found: Recover, TakersShare, "taken_by_one";
    a_taker_that_does_not_wait_is_found: Recover, FreshIsTaken, "taken_only_when_due";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_without_a_fault_passes() {
    for group in [Group::Store, Group::Inspect, Group::Recover] {
        assert_eq!(broken_rules(group, Fault::None).await, Vec::<&str>::new(), "{group:?}");
    }
}

#[tokio::test]
async fn hands_that_cannot_do_what_a_rule_needs_fail_it() {
    let broken = broken_rules(Group::Durable, Fault::None).await;
    assert_eq!(broken, ["acknowledged_is_kept"]);
    assert_eq!(rules(Group::Store).len(), 25);
}

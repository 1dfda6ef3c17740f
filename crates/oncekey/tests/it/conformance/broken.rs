//! Stores that break one promise each, made of one that keeps them all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use oncekey::clock::Clock;
use oncekey::decide;
use oncekey::key::RecordId;
use oncekey::record::{
    Kind, Lease, LeaseToken, Outcome, Record, Retention, Standing, State, Version,
};
use oncekey::store::{
    By, Change, Changed, Claim, Claimed, Counts, Cursor, Ending, Filter, Held, Inspect,
    MemoryStore, Note, OnUnknown, Page, Recover, Store, StoreError,
};

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    ClaimIsTwoSteps,
    RepeatedClaimIsRefused,
    ReleasedTokenClaims,
    ReleaseLeavesTheKey,
    TakeBackForgets,
    MismatchOnlyWhenCompleted,
    FingerprintBeforePrincipal,
    CompleteIgnoresToken,
    OutcomeIsRewritten,
    LateCompleteIsRefused,
    StaleTokenIsToldOurs,
    AttemptStandsStill,
    RetryForgets,
    WaiterRunsAfterRetry,
    UnknownRunsAgain,
    TakeoverComesEarly,
    UnknownExpires,
    ClaimEndsTheOld,
    HorizonIsIgnored,
    ShrinkingForgets,
    RetentionIsIgnored,
    RetentionNeverEnds,
    TombstoneIsIgnored,
    RenewalDoesNothing,
    ErrorGrants,
    DroppedClaimLingers,
    MemoIsCut,
    OutcomeIsCut,
    WaitersSleepOn,
    WaitersLookFirst,
    WaitersHoldALock,
    BoundIsIgnored,
    PurgeTakesTheLiving,
    ManyKeysEvict,
    ChangeIgnoresVersion,
    ChangeTakesTheHeld,
    ChangeSparesTheHolder,
    AuditIsLost,
    ListRepeats,
    ListSkips,
    LapsedCountsAsHeld,
    TakersShare,
    FreshIsTaken,
    DebugShowsKeys,
}

/// A store with one fault.
pub(super) struct Broken {
    fault: Fault,
    inner: MemoryStore,
    clock: Clock,
    hot: tokio::sync::Mutex<()>,
    claims: AtomicUsize,
    seen: Mutex<Seen>,
}

/// What passed through.
#[derive(Default)]
struct Seen {
    leases: Vec<Lease>,
    outcomes: HashMap<RecordId, Outcome>,
    keys: Vec<String>,
}

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = match self.fault {
            Fault::DebugShowsKeys => self.seen().keys.clone(),
            _ => Vec::new(),
        };
        f.debug_struct("Broken").field("fault", &self.fault).field("keys", &keys).finish()
    }
}

impl Broken {
    pub(super) fn new(fault: Fault, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            fault,
            inner: MemoryStore::new().with_clock(clock.clone()),
            clock,
            hot: tokio::sync::Mutex::new(()),
            claims: AtomicUsize::new(0),
            seen: Mutex::default(),
        })
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("no test panics under it")
    }

    async fn lapsed(&self, id: &RecordId) -> bool {
        let found = self.inner.get(id).await.expect("memory reads");
        found.is_some_and(|record| {
            matches!(record.state, State::InProgress { .. })
                && record.standing(self.clock.now()) == Standing::Unknown
        })
    }

    /// The lease that the record's token makes, whoever holds it.
    async fn whoever(&self, id: &RecordId) -> Option<Lease> {
        let found = self.inner.get(id).await.expect("memory reads");
        found.map(|record| Lease { id: *id, token: record.token, attempt: record.attempt })
    }

    async fn evict(&self, lease: &Lease) {
        let _ = self.inner.end(lease, Ending::Release).await.expect("memory releases");
    }

    /// What the fault makes of a claim before it is made.
    async fn bent(&self, claim: &Claim) -> Claim {
        let mut claim = claim.clone();
        match self.fault {
            Fault::MemoIsCut => {
                claim.memo = claim.memo.slice(..claim.memo.len().min(Record::MAX_MEMO));
            }
            Fault::WaiterRunsAfterRetry => claim.age = Duration::ZERO,
            Fault::TakeoverComesEarly if claim.on_unknown == OnUnknown::TakeOver => {
                if let Some(lease) = self.whoever(&claim.id).await {
                    let how = Ending::Retry { status: 500, keep: Retention::keep(Duration::MAX) };
                    let _ = self.inner.end(&lease, how).await;
                }
            }
            Fault::UnknownExpires => {
                let found = self.inner.get(&claim.id).await.expect("memory reads");
                if let Some(Record { state: State::Unknown { since, .. }, .. }) = found
                    && self.clock.now().since(since) > Duration::from_secs(20)
                    && let Some(lease) = self.whoever(&claim.id).await
                {
                    self.evict(&lease).await;
                }
            }
            Fault::ClaimEndsTheOld => {
                let found = self.inner.get(&claim.id).await.expect("memory reads");
                if let Some(Record { state: State::Unknown { horizon, .. }, .. }) = found
                    && horizon <= self.clock.now()
                    && let Some(lease) = self.whoever(&claim.id).await
                {
                    self.evict(&lease).await;
                }
            }
            Fault::HorizonIsIgnored => claim.horizon = Duration::MAX,
            Fault::FingerprintBeforePrincipal => {
                let found = self.inner.get(&claim.id).await.expect("memory reads");
                if let Some(record) = found
                    && record.fingerprint != claim.fingerprint
                {
                    claim.principal = record.principal;
                }
            }
            _ => {}
        }
        claim
    }

    /// What the fault makes of a claim's answer.
    async fn answer(&self, claim: &Claim, claimed: Claimed) -> Result<Claimed, StoreError> {
        let lease = |attempt| Lease { id: claim.id, token: claim.token, attempt };
        Ok(match (self.fault, claimed) {
            (Fault::RepeatedClaimIsRefused, Claimed::Acquired(lease)) => {
                let again = self.seen().leases.contains(&lease);
                self.seen().leases.push(lease);
                if again {
                    let version = Version::from_number(1);
                    Claimed::InProgress { version, retry_after: Duration::ZERO }
                } else {
                    Claimed::Acquired(lease)
                }
            }
            (Fault::ReleasedTokenClaims, Claimed::Lost) => Claimed::Acquired(lease(1)),
            (Fault::MismatchOnlyWhenCompleted, Claimed::Mismatch { first })
                if first != Standing::Completed =>
            {
                let version = Version::from_number(1);
                Claimed::InProgress { version, retry_after: Duration::ZERO }
            }
            (Fault::OutcomeIsRewritten, Claimed::Completed { outcome, expires_in }) => {
                let newest = self.seen().outcomes.get(&claim.id).cloned();
                Claimed::Completed { outcome: newest.unwrap_or(outcome), expires_in }
            }
            (Fault::AttemptStandsStill, Claimed::Acquired(_)) => Claimed::Acquired(lease(1)),
            (Fault::UnknownRunsAgain, Claimed::Unknown { .. }) => {
                let claim = Claim { on_unknown: OnUnknown::TakeOver, ..claim.clone() };
                self.inner.claim(&claim).await?
            }
            (Fault::TombstoneIsIgnored, Claimed::Expired) => Claimed::Acquired(lease(1)),
            (Fault::ManyKeysEvict, Claimed::Acquired(lease)) => {
                let evicted = {
                    let mut seen = self.seen();
                    seen.leases.push(lease);
                    (seen.leases.len() > 300).then(|| seen.leases.remove(0))
                };
                if let Some(evicted) = evicted {
                    self.evict(&evicted).await;
                }
                Claimed::Acquired(lease)
            }
            (Fault::PurgeTakesTheLiving | Fault::ShrinkingForgets, Claimed::Acquired(lease)) => {
                self.seen().leases.push(lease);
                Claimed::Acquired(lease)
            }
            (_, claimed) => claimed,
        })
    }
}

#[async_trait]
impl Store for Broken {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        self.seen().keys.push(claim.key.as_str().to_owned());
        let claim = self.bent(claim).await;
        match self.fault {
            Fault::ClaimIsTwoSteps => {
                let found = self.inner.get(&claim.id).await?;
                tokio::task::yield_now().await;
                let claimed = self.inner.claim(&claim).await?;
                if found.is_none() && matches!(claimed, Claimed::InProgress { .. }) {
                    let lease = Lease { id: claim.id, token: claim.token, attempt: 1 };
                    return Ok(Claimed::Acquired(lease));
                }
                return Ok(claimed);
            }
            Fault::WaitersHoldALock => {
                let _turn = self.hot.lock().await;
                return self.inner.claim(&claim).await;
            }
            // The claim comes to something only after its caller has gone.
            Fault::DroppedClaimLingers => {
                let other = Claim { token: LeaseToken::random(), ..claim.clone() };
                if self.inner.get(&claim.id).await?.is_none() {
                    let lingering = self.inner.claim(&other).await?;
                    tokio::task::yield_now().await;
                    if let Claimed::Acquired(lease) = lingering {
                        self.evict(&lease).await;
                    }
                }
            }
            _ => {}
        }
        match self.inner.claim(&claim).await {
            Err(_) if self.fault == Fault::ErrorGrants => {
                Ok(Claimed::Acquired(Lease { id: claim.id, token: claim.token, attempt: 1 }))
            }
            claimed => self.answer(&claim, claimed?).await,
        }
    }

    async fn renew(
        &self,
        lease: &Lease,
        ttl: Duration,
        note: Option<&Note>,
    ) -> Result<Held, StoreError> {
        match self.fault {
            Fault::RenewalDoesNothing => Ok(Held::Ours { attempt: lease.attempt, expires_in: ttl }),
            _ => self.inner.renew(lease, ttl, note).await,
        }
    }

    async fn complete(
        &self,
        lease: &Lease,
        outcome: &Outcome,
        keep: Retention,
    ) -> Result<Held, StoreError> {
        self.seen().outcomes.insert(lease.id, outcome.clone());
        let keep = match self.fault {
            Fault::RetentionIsIgnored => Retention { keep: keep.keep / 4, ..keep },
            Fault::RetentionNeverEnds => Retention { keep: Duration::MAX, ..keep },
            _ => keep,
        };
        match self.fault {
            Fault::CompleteIgnoresToken => {
                let lease = self.whoever(&lease.id).await.unwrap_or(*lease);
                self.inner.complete(&lease, outcome, keep).await
            }
            Fault::ChangeSparesTheHolder if self.seen().leases.contains(lease) => {
                Ok(Held::Ours { attempt: lease.attempt, expires_in: keep.keep })
            }
            Fault::LateCompleteIsRefused if self.lapsed(&lease.id).await => {
                Ok(Held::Lost { attempt: Some(lease.attempt) })
            }
            Fault::OutcomeIsCut => {
                let cut = outcome.bytes().slice(..outcome.bytes().len().min(65_535));
                self.inner.complete(lease, &Outcome::new(Bytes::clone(&cut)), keep).await
            }
            Fault::StaleTokenIsToldOurs => {
                let held = self.inner.complete(lease, outcome, keep).await?;
                Ok(match held {
                    Held::Lost { attempt: Some(attempt) } => {
                        Held::Ours { attempt, expires_in: keep.keep }
                    }
                    held => held,
                })
            }
            _ => self.inner.complete(lease, outcome, keep).await,
        }
    }

    async fn end(&self, lease: &Lease, how: Ending) -> Result<Held, StoreError> {
        match (self.fault, how) {
            (Fault::RetryForgets, Ending::Retry { .. }) => {
                self.inner.end(lease, Ending::Release).await
            }
            (Fault::TakeBackForgets, Ending::TakeBack { .. }) => {
                self.inner.end(lease, Ending::Release).await
            }
            (Fault::ReleaseLeavesTheKey, Ending::Release) => {
                let how = Ending::Retry { status: 0, keep: Retention::keep(Duration::MAX) };
                self.inner.end(lease, how).await
            }
            _ => self.inner.end(lease, how).await,
        }
    }

    async fn changed(
        &self,
        id: &RecordId,
        seen: Version,
        bound: Duration,
    ) -> Result<(), StoreError> {
        match self.fault {
            Fault::WaitersSleepOn => self.clock.sleep(bound).await,
            // Registers for whatever comes after its look, and so misses what came between.
            Fault::WaitersLookFirst => {
                let now = self.inner.get(id).await?.map_or(Version::ABSENT, |found| found.version);
                if now == seen {
                    tokio::task::yield_now().await;
                    let later = self.inner.get(id).await?;
                    let later = later.map_or(Version::ABSENT, |found| found.version);
                    self.inner.changed(id, later, bound).await?;
                }
            }
            Fault::WaitersHoldALock => {
                let _turn = self.hot.lock().await;
                self.inner.changed(id, seen, bound).await?;
            }
            Fault::BoundIsIgnored => self.inner.changed(id, seen, Duration::MAX).await?,
            _ => self.inner.changed(id, seen, bound).await?,
        }
        Ok(())
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.get(id).await
    }

    async fn purge_expired(&self, limit: usize) -> Result<usize, StoreError> {
        if self.fault == Fault::PurgeTakesTheLiving {
            let leases = std::mem::take(&mut self.seen().leases);
            for lease in leases {
                if self.lapsed(&lease.id).await {
                    self.evict(&lease).await;
                }
            }
        }
        if self.fault == Fault::ShrinkingForgets {
            let leases = self.seen().leases.clone();
            for lease in leases {
                let found = self.inner.get(&lease.id).await?;
                let since = found.as_ref().and_then(decide::unknown_since);
                if since.is_some_and(|at| self.clock.now() >= at.after(decide::SHRINK_AFTER)) {
                    self.evict(&lease).await;
                }
            }
        }
        self.inner.purge_expired(limit).await
    }
}

#[async_trait]
impl Inspect for Broken {
    async fn list(
        &self,
        filter: &Filter,
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let mut page = self.inner.list(filter, cursor, limit).await?;
        match self.fault {
            Fault::ListRepeats => {
                // As by a cursor that names the first record of the next page.
                if let (Some(next), [.., before, _]) = (&mut page.next, &page.records[..]) {
                    *next = Cursor(before.id);
                }
            }
            Fault::ListSkips if page.next.is_some() => {
                page.records.pop();
            }
            _ => {}
        }
        Ok(page)
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        let mut counts = self.inner.counts().await?;
        if self.fault == Fault::LapsedCountsAsHeld {
            counts.in_progress += counts.unknown;
            counts.unknown = 0;
        }
        Ok(counts)
    }

    async fn change(
        &self,
        id: &RecordId,
        seen: Version,
        change: Change,
        by: &By,
    ) -> Result<Changed, StoreError> {
        match self.fault {
            Fault::ChangeIgnoresVersion => {
                let seen = self.inner.get(id).await?.map_or(seen, |record| record.version);
                self.inner.change(id, seen, change, by).await
            }
            Fault::ChangeTakesTheHeld => {
                let holder = self.whoever(id).await;
                let made = self.inner.change(id, seen, change.clone(), by).await?;
                if let (Changed::Held, Change::Complete(outcome, keep), Some(holder)) =
                    (&made, change, holder)
                {
                    let _ = self.inner.complete(&holder, &outcome, keep).await?;
                    return Ok(Changed::Made(Version::from_number(u64::MAX - 1)));
                }
                Ok(made)
            }
            Fault::ChangeSparesTheHolder => {
                // Whoever held it is told that its own outcome stands.
                let holder = self.whoever(id).await;
                let made = self.inner.change(id, seen, change, by).await?;
                self.seen().leases.extend(holder);
                Ok(made)
            }
            Fault::AuditIsLost => {
                let by = By { who: String::new(), reason: String::new() };
                self.inner.change(id, seen, change, &by).await
            }
            _ => self.inner.change(id, seen, change, by).await,
        }
    }
}

#[async_trait]
impl Recover for Broken {
    /// Takes one record after the other by the calls there are; enough for one process.
    async fn take_unknown(
        &self,
        kind: Kind,
        stale_for: Duration,
        ttl: Duration,
        max_attempts: u32,
        limit: usize,
    ) -> Result<Vec<(Record, Lease)>, StoreError> {
        let standing = Some(Standing::Unknown);
        let filter = Filter { kind: Some(kind), standing, ..Filter::default() };
        let page = self.inner.list(&filter, None, 10_000).await?;
        if self.fault == Fault::TakersShare {
            // A slow store, whose other takers list meanwhile and find the same.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut taken = Vec::new();
        for record in page.records {
            tokio::task::yield_now().await;
            let now = self.clock.now();
            let touched = match &record.state {
                State::InProgress { lease_until } => *lease_until,
                State::Unknown { since, not_before, .. } => (*since).max(*not_before),
                _ => continue,
            };
            let fresh = now.since(touched) < stale_for && self.fault != Fault::FreshIsTaken;
            if taken.len() == limit || fresh || record.attempt > max_attempts {
                continue;
            }
            let claim = Claim {
                id: record.id,
                kind: record.kind,
                scope: record.scope.clone(),
                key: record.key.clone(),
                principal: record.principal.clone(),
                fingerprint: record.fingerprint,
                token: LeaseToken::random(),
                lease: ttl,
                horizon: record.horizon,
                on_unknown: OnUnknown::Ask,
                age: Duration::ZERO,
                memo: record.memo.clone(),
            };
            match self.inner.claim(&claim).await? {
                Claimed::Acquired(lease) => {
                    taken.push((Record { token: lease.token, ..record }, lease));
                }
                _ if self.fault == Fault::TakersShare => {
                    let lease = Lease { id: record.id, token: claim.token, attempt: 1 };
                    taken.push((record, lease));
                }
                _ => {}
            }
        }
        Ok(taken)
    }
}

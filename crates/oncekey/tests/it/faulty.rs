//! A store that fails as it is told: before or after the effect, or not at all in time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use oncekey::key::RecordId;
use oncekey::record::{Lease, Outcome, Record, Retention, Version};
use oncekey::store::{Claim, Claimed, Ending, Held, Note, Store, StoreError, StoreErrorKind};

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is done.
    Before(StoreErrorKind),
    /// It is done, and the answer is lost.
    After(StoreErrorKind),
    /// It is not answered.
    Hangs,
}

/// Which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Claim,
    Renew,
    Complete,
    End,
    Changed,
}

/// A store whose next calls fail as they are told.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    faults: Mutex<Vec<(Call, Fault)>>,
    calls: Mutex<Vec<Call>>,
    /// How often a call yields before it does anything, and again before it answers.
    steps: usize,
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self::stepping(inner, 0)
    }

    /// A store whose every call can be dropped before its effect and after it.
    pub(crate) fn stepping(inner: Arc<dyn Store>, steps: usize) -> Self {
        Self { inner, faults: Mutex::default(), calls: Mutex::default(), steps }
    }

    async fn step(&self) {
        for _ in 0..self.steps {
            tokio::task::yield_now().await;
        }
    }

    /// The next call of this kind fails so. Several queue up.
    pub(crate) fn fail(&self, call: Call, fault: Fault) {
        self.faults.lock().expect("not poisoned").push((call, fault));
    }

    /// Whether every fault was met.
    pub(crate) fn is_spent(&self) -> bool {
        self.faults.lock().expect("not poisoned").is_empty()
    }

    /// From here on nothing fails.
    pub(crate) fn heal(&self) {
        self.faults.lock().expect("not poisoned").clear();
    }

    /// How many calls of this kind there were.
    pub(crate) fn calls(&self, call: Call) -> usize {
        let calls = self.calls.lock().expect("not poisoned");
        calls.iter().filter(|known| **known == call).count()
    }

    fn next(&self, call: Call) -> Option<Fault> {
        self.calls.lock().expect("not poisoned").push(call);
        let mut faults = self.faults.lock().expect("not poisoned");
        let at = faults.iter().position(|(known, _)| *known == call)?;
        Some(faults.remove(at).1)
    }

    async fn through<T>(
        &self,
        call: Call,
        real: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.step().await;
        match self.next(call) {
            None => {
                let answer = real.await;
                self.step().await;
                answer
            }
            Some(Fault::Before(kind)) => Err(StoreError::new(kind)),
            Some(Fault::After(kind)) => {
                real.await?;
                Err(StoreError::new(kind))
            }
            Some(Fault::Hangs) => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Store for Faulty {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.through(Call::Claim, self.inner.claim(claim)).await
    }

    async fn renew(
        &self,
        lease: &Lease,
        ttl: Duration,
        note: Option<&Note>,
    ) -> Result<Held, StoreError> {
        self.through(Call::Renew, self.inner.renew(lease, ttl, note)).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        outcome: &Outcome,
        keep: Retention,
    ) -> Result<Held, StoreError> {
        self.through(Call::Complete, self.inner.complete(lease, outcome, keep)).await
    }

    async fn end(&self, lease: &Lease, how: Ending) -> Result<Held, StoreError> {
        self.through(Call::End, self.inner.end(lease, how)).await
    }

    async fn changed(
        &self,
        id: &RecordId,
        seen: Version,
        bound: Duration,
    ) -> Result<(), StoreError> {
        self.through(Call::Changed, self.inner.changed(id, seen, bound)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.get(id).await
    }

    async fn purge_expired(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge_expired(limit).await
    }
}

//! What a rule may do to a store beside calling it: make claims, pass time, race, reopen.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Failure;
use crate::clock::Clock;
use crate::fingerprint::{Fingerprint, Recipe};
use crate::key::{Key, RecordId, Scope};
use crate::record::{Kind, Lease, LeaseToken, Outcome, Principal, Retention, Why};
use crate::store::{Claim, Claimed, Ending, Inspect, OnUnknown, Recover, Store};

type Reopen = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Hands> + Send>> + Send + Sync>;

/// A fresh store, and how to handle it.
///
/// Each rule takes hands of its own. Records of different hands never meet, so several may share
/// one server.
pub struct Hands {
    pub(super) store: Arc<dyn Store>,
    inspect: Option<Arc<dyn Inspect>>,
    recover: Option<Arc<dyn Recover>>,
    time: Time,
    patience: Duration,
    tenant: Arc<str>,
    reopen: Option<Reopen>,
}

enum Time {
    /// A unit is a second on this clock.
    Told(Clock),
    /// A unit is this long.
    Slept(Duration),
}

impl Hands {
    /// Hands on a store that is nothing but a store. Time is slept, 200 ms a unit.
    pub fn storing(store: Arc<dyn Store>) -> Self {
        let mut tenant = String::from("t-");
        for byte in &LeaseToken::random().as_bytes()[..6] {
            tenant.push_str(&format!("{byte:02x}"));
        }
        Self {
            store,
            inspect: None,
            recover: None,
            time: Time::Slept(Duration::from_millis(200)),
            patience: Duration::from_secs(20),
            tenant: tenant.into(),
            reopen: None,
        }
    }

    /// Hands on a store that people can look into.
    pub fn inspecting(store: Arc<dyn Inspect>) -> Self {
        Self { inspect: Some(Arc::clone(&store)), ..Self::storing(store) }
    }

    /// Hands on a store that recovery can use.
    pub fn recovering(store: Arc<dyn Recover>) -> Self {
        Self { recover: Some(Arc::clone(&store)), ..Self::inspecting(store) }
    }

    /// The store judges time by this manual clock: it is told, not slept.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { time: Time::Told(clock), ..self }
    }

    /// A store on the machine's clock: `unit` is the grain of time that the rules use. They need
    /// calls to take much less, and sleep for about 60 of them at most.
    #[must_use]
    pub fn with_unit(self, unit: Duration) -> Self {
        Self { time: Time::Slept(unit), ..self }
    }

    /// How long something that should happen at once may take before it counts as never.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// How the store is opened again, once this one is dropped or, better, killed.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::path::Path;
    /// use std::sync::Arc;
    /// use oncekey::clock::Clock;
    /// use oncekey::conformance::Hands;
    /// use oncekey::store::embedded::{EmbeddedStore, Options};
    ///
    /// fn open(folder: Arc<Path>, clock: Clock) -> Hands {
    ///     let options = Options { clock: Some(clock.clone()), ..Options::default() };
    ///     let store = EmbeddedStore::open(&folder, options).expect("the folder opens");
    ///     Hands::recovering(Arc::new(store))
    ///         .with_clock(clock.clone())
    ///         .reopened_by(|| async move { open(folder, clock) })
    /// }
    ///
    /// let folder = tempfile::tempdir()?;
    /// open(folder.path().into(), Clock::manual());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub fn reopened_by<F>(self, reopen: impl FnOnce() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Self> + Send + 'static,
    {
        Self { reopen: Some(Box::new(move || Box::pin(reopen()))), ..self }
    }

    pub(super) fn inspect(&self) -> Result<Arc<dyn Inspect>, Failure> {
        self.inspect.clone().ok_or(Failure::Unable("look into the store"))
    }

    pub(super) fn recover(&self) -> Result<Arc<dyn Recover>, Failure> {
        self.recover.clone().ok_or(Failure::Unable("recover"))
    }

    /// Closes the store and opens it again.
    pub(super) async fn reopen(self) -> Result<Self, Failure> {
        let Self { reopen: Some(reopen), tenant, .. } = self else {
            return Err(Failure::Unable("open the store again"));
        };
        let patience = self.patience;
        // The rest of the hands, the store with them, went with the pattern's end.
        drop((self.store, self.inspect, self.recover));
        Ok(Self { tenant, patience, ..reopen().await })
    }

    /// `count` units of the store's time.
    pub(super) fn units(&self, count: u32) -> Duration {
        match &self.time {
            Time::Told(_) => Duration::from_secs(1) * count,
            Time::Slept(unit) => *unit * count,
        }
    }

    /// Lets `count` units pass.
    pub(super) async fn pass(&self, count: u32) {
        match &self.time {
            Time::Told(clock) => clock.advance(self.units(count)),
            Time::Slept(unit) => tokio::time::sleep(*unit * count).await,
        }
    }

    /// Lets a time pass that is too long to sleep, where the clock can be told.
    pub(super) async fn pass_if_told(&self, duration: Duration) {
        if let Time::Told(clock) = &self.time {
            clock.advance(duration);
        }
    }

    /// The tenant of all records of these hands.
    pub(super) fn tenant(&self) -> &str {
        &self.tenant
    }

    /// A claim on the record `name`: under a token of its own, for ten units, holding.
    pub(super) fn claim(&self, name: &str) -> Claim {
        let scope = Scope::new("conformance", Arc::clone(&self.tenant), "POST /orders");
        // Names are literals of this suite.
        let key = Key::from_text(name).expect("a rule's record has a printable name");
        Claim {
            id: RecordId::derive(Kind::Request, &scope, &key),
            kind: Kind::Request,
            scope,
            key,
            principal: Principal::named("alice"),
            fingerprint: Fingerprint::from_parts(Recipe::from_number(1), [1; 32]),
            token: LeaseToken::random(),
            lease: self.units(10),
            horizon: self.units(1_000_000),
            on_unknown: OnUnknown::Hold,
            age: Duration::ZERO,
            memo: Bytes::from_static(b"memo"),
        }
    }

    /// A retention of `count` units, without a tombstone.
    pub(super) fn keep(&self, count: u32) -> Retention {
        Retention::keep(self.units(count))
    }

    /// Claims the record `name`, which nobody holds.
    pub(super) async fn take(&self, name: &str) -> Result<Lease, Failure> {
        acquired(self.store.claim(&self.claim(name)).await?)
    }

    /// Leaves the record `name` in each place of its life and gives the claim that would meet it.
    pub(super) async fn leave(&self, name: &str, place: Place) -> Result<Lease, Failure> {
        let lease = self.take(name).await?;
        let _ = match place {
            Place::Held => return Ok(lease),
            Place::Completed => {
                self.store.complete(&lease, &Outcome::new(&b"done"[..]), self.keep(500)).await?
            }
            Place::Retry => {
                let how = Ending::Retry { status: 503, keep: self.keep(500) };
                self.store.end(&lease, how).await?
            }
            Place::Unknown => {
                let how = Ending::Unknown { why: Why::Abandoned, after: Duration::ZERO };
                self.store.end(&lease, how).await?
            }
        };
        Ok(lease)
    }

    /// Waits for what should come at once.
    pub(super) async fn soon<T>(
        &self,
        promise: &'static str,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let waited = tokio::time::timeout(self.patience, work).await;
        waited.map_err(|_| Failure::Hangs(promise))
    }
}

impl fmt::Debug for Hands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hands").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Where a record can be left.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Held,
    Completed,
    Retry,
    Unknown,
}

/// The lease of a claim that should have been acquired.
pub(super) fn acquired(claimed: Claimed) -> Result<Lease, Failure> {
    match claimed {
        Claimed::Acquired(lease) => Ok(lease),
        other => Err(Failure::broken("a record that is free is acquired", &other)),
    }
}

/// Runs `count` pieces of work at once, each in a task of its own, and collects what they give.
pub(super) async fn race<T, F>(count: usize, work: impl Fn(usize) -> F) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let start = Arc::new(Barrier::new(count));
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let (start, work) = (Arc::clone(&start), work(number));
        tasks.spawn(async move {
            start.wait().await;
            work.await
        });
    }
    let mut results = Vec::with_capacity(count);
    while let Some(ended) = tasks.join_next().await {
        results.push(ended.map_err(|_| Failure::Panicked)??);
    }
    Ok(results)
}

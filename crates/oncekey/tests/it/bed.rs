//! Stores to try a case on: each that this crate has, on a clock that is moved by hand.

use std::sync::Arc;
use std::time::Duration;

use oncekey::clock::Clock;
use oncekey::engine::{Begun, Engine, Limits, Run, Terms, Wait};
use oncekey::events;
use oncekey::http::{Policy, Scoping};
use oncekey::record::{Lease, Record, Standing};
use oncekey::store::{Claim, Claimed, Inspect, MemoryStore, Store, StoreError};

use crate::faulty::Faulty;
use crate::rig::Rig;

/// A store, and what is needed to handle it.
pub(crate) struct Bed {
    pub(crate) clock: Clock,
    pub(crate) store: Arc<dyn Inspect>,
    /// Goes last.
    _folder: Option<tempfile::TempDir>,
}

impl Bed {
    pub(crate) fn memory() -> Self {
        let clock = Clock::manual();
        let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
        Self { clock, store, _folder: None }
    }

    #[cfg(feature = "embedded")]
    pub(crate) fn embedded() -> Self {
        let rig = crate::embedded::Rig::new();
        Self { clock: rig.clock, store: Arc::new(rig.store), _folder: Some(rig.folder) }
    }

    /// The store, failing as it is told.
    pub(crate) fn faulty(&self) -> Arc<Faulty> {
        Arc::new(Faulty::new(Arc::clone(&self.store) as _))
    }

    /// An application behind the layer, on this store.
    pub(crate) fn rig(&self, policy: Policy) -> Rig {
        self.rig_on(Arc::clone(&self.store) as _, policy)
    }

    /// An application behind the layer, on `store`.
    pub(crate) fn rig_on(&self, store: Arc<dyn Store>, policy: Policy) -> Rig {
        Rig::on(store, self.clock.clone(), policy, Scoping::shared())
    }

    /// An engine by itself, on `store`.
    pub(crate) fn engine_on(&self, store: Arc<dyn Store>) -> Engine {
        Engine::with(store, self.clock.clone(), events::nobody(), Limits::default())
    }

    pub(crate) async fn record(&self, key: &str) -> Option<Record> {
        self.store.get(&crate::engine::claim(key).id).await.expect("it can be read")
    }

    pub(crate) async fn standing(&self, key: &str) -> Option<Standing> {
        self.record(key).await.map(|record| record.standing(self.clock.now()))
    }

    /// The lease of a claim that must be acquired.
    pub(crate) async fn acquire(&self, claim: &Claim) -> Lease {
        match self.store.claim(claim).await {
            Ok(Claimed::Acquired(lease)) => lease,
            other => panic!("it is acquired: {other:?}"),
        }
    }
}

/// Claims without waiting.
pub(crate) async fn begin(engine: &Engine, claim: Claim) -> Result<Begun, StoreError> {
    let terms = Terms { wait: Wait::Reject, max_run: Duration::from_secs(900) };
    engine.begin(claim, engine.clock().now(), terms, std::future::pending()).await
}

/// The run of a claim that must get one.
pub(crate) async fn run(engine: &Engine, claim: Claim) -> Run {
    match begin(engine, claim).await {
        Ok(Begun::Run(run)) => run,
        other => panic!("no run: {other:?}"),
    }
}

/// Returns once the condition holds, which another thread may bring about.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..30_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it did not come to this: {what}");
}

/// Makes one test of each case for each store.
macro_rules! on_each_store {
    ($($case:ident)+) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(crate::bed::Bed::memory()).await;
                }
            )+
        }

        #[cfg(feature = "embedded")]
        mod embedded {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(crate::bed::Bed::embedded()).await;
                }
            )+
        }
    };
}
pub(crate) use on_each_store;

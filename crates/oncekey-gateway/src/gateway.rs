//! The gateway: the library's layer around the proxy, on a store, with an admin listener.
//!
//! [`Gateway::start`] builds it from a configuration; `serve` and `demo` run the same one.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oncekey::clock::Clock;
use oncekey::engine::{Engine, Limits};
use oncekey::events::Observer;
use oncekey::fingerprint::Secret;
use oncekey::http::Layer;
use oncekey::store::embedded::{self, EmbeddedStore, Failure, Room};
use oncekey::store::{Inspect, MemoryStore, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer as _;

use crate::admin::{Admin, Readiness};
use crate::answer::Application;
use crate::config::{Config, Loaded, NoUpstream, StoreKind};
use crate::entrance::Entrance;
use crate::files::Share;
use crate::listener::{self, BindError, Listener, Serving, Stopped};
use crate::metrics::Metrics;
use crate::proxy::{Proxy, Upgrades};
use crate::routes::{self, Routes};
use crate::upstream::{Address, AddressError, Bounds};

/// How often expired records are deleted (T3).
const SWEEP: Duration = Duration::from_secs(3600);
/// How often they are deleted while the store is full: what is over may make room.
const SWEEP_WHEN_FULL: Duration = Duration::from_secs(10);
/// How many at a time (T3).
const SWEEP_BATCH: usize = 10_000;

/// What the memory store takes at most, in bytes.
const MEMORY_BYTES: usize = 1 << 30;

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    config: Config,
    engine: Engine,
    routes: Routes,
    readiness: Readiness,
    serving: Serving,
    upgrades: Upgrades,
    admin: SocketAddr,
    stop_admin: CancellationToken,
    store_failed: CancellationToken,
    embedded: Option<Arc<EmbeddedStore>>,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No application is named.
    #[error(transparent)]
    NoUpstream(#[from] NoUpstream),
    /// The application's address is of no use.
    #[error(transparent)]
    Upstream(#[from] AddressError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] embedded::OpenError),
    /// The address for clients cannot be taken.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The address for the admin listener cannot be taken.
    #[error("the admin address {address} cannot be taken: {source}; choose another with --admin")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Threads or runtimes cannot be made.
    #[error("the workers cannot be started: {0}")]
    Workers(#[source] std::io::Error),
}

/// The store, by what is needed of it.
struct Opened {
    store: Arc<dyn Store>,
    inspect: Arc<dyn Inspect>,
    secret: Secret,
    failed: CancellationToken,
    embedded: Option<Arc<EmbeddedStore>>,
}

fn open(config: &Config, metrics: &Arc<Metrics>) -> Result<Opened, embedded::OpenError> {
    let observer: Arc<dyn Observer> = Arc::clone(metrics) as _;
    let entries = usize::try_from(config.store.max_entries).unwrap_or(usize::MAX);
    match config.store.kind {
        StoreKind::Memory => {
            let store = MemoryStore::new().with_observer(observer);
            let bytes = config
                .store
                .max_bytes
                .map_or(MEMORY_BYTES, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
            let store = Arc::new(store.with_limits(entries, bytes));
            let failed = CancellationToken::new();
            Ok(Opened {
                store: Arc::clone(&store) as _,
                inspect: store,
                secret: Secret::random(),
                failed,
                embedded: None,
            })
        }
        StoreKind::Embedded => {
            let options = embedded::Options {
                observer,
                max_live: entries,
                max_bytes: config.store.max_bytes,
                reserve_bytes: config.store.reserve,
                ..embedded::Options::default()
            };
            let store = Arc::new(EmbeddedStore::open(&config.store.path, options)?);
            let (secret, failed) = (store.secret(), store.failed());
            Ok(Opened {
                store: Arc::clone(&store) as _,
                inspect: Arc::clone(&store) as _,
                secret,
                failed,
                embedded: Some(store),
            })
        }
    }
}

impl Gateway {
    /// Starts it. Both addresses are taken and the store is open when this returns.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(loaded: Loaded) -> Result<Self, StartError> {
        let Loaded { config, secret, .. } = loaded;
        let url = config.upstream_url()?;
        let address: Address = format!("http://{}", url.authority()).parse()?;
        let share = Share::now();
        let listener = Listener::bind(settings(&config, share))?;
        let upstreams = share.upstream.div_ceil(listener.workers().get());
        let admin = bind_admin(config.admin.listen).await?;
        let metrics = Arc::new(Metrics::new());
        let Opened { store, inspect, secret: kept, failed, embedded } = open(&config, &metrics)?;
        let secret = secret.map_or(kept, |text| Secret::derived(text.as_bytes()));
        let engine =
            Engine::with(store, Clock::real(), Arc::clone(&metrics) as _, Limits::default());
        // Here, not in a worker: this runtime lives longest.
        engine.start();
        let routes = Routes::new(&config);
        let layer = layer(&config, &engine, &routes, secret);
        let upgrades = Upgrades::default();
        let application = {
            let (config, upgrades) = (config.clone(), upgrades.clone());
            move || application(&address, &config, upstreams, &upgrades)
        };
        let serving = listener
            .serve(move |_| Entrance::new(layer.layer(application())))
            .map_err(StartError::Workers)?;
        let readiness = Readiness::default();
        let stop_admin = CancellationToken::new();
        let admin_address = admin.local_addr().unwrap_or(config.admin.listen);
        let told = Admin {
            readiness: readiness.clone(),
            metrics,
            store: inspect,
            engine: engine.clone(),
            embedded: embedded.clone(),
        };
        tokio::spawn(told.serve(admin, stop_admin.clone()));
        tokio::spawn(sweep(engine.clone(), embedded.clone(), stop_admin.clone()));
        Ok(Self {
            config,
            engine,
            routes,
            readiness,
            serving,
            upgrades,
            admin: admin_address,
            stop_admin,
            store_failed: failed,
            embedded,
        })
    }

    /// Where clients reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Where its health and metrics are told.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The configuration it runs by.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Cancelled when the store has failed: nothing can be promised from then on (X7).
    #[must_use]
    pub fn store_failed(&self) -> CancellationToken {
        self.store_failed.clone()
    }

    /// Why the store failed, once [`store_failed`](Self::store_failed) is cancelled.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.embedded.as_ref().and_then(|store| store.failure())
    }

    /// Fails readiness for good.
    pub fn fail(&self) {
        self.readiness.fail();
    }

    /// Puts another configuration's routes in force (A5). The caller has asked
    /// [`Config::reload_refusal`] before.
    pub fn reload(&mut self, config: Config) {
        self.routes.replace(&config);
        self.config = config;
    }

    /// Stops gracefully (U5): readiness fails, the delay passes, new keyed work is refused,
    /// waiters are answered, running work is finished within the bound, and what is cut off
    /// becomes unknown. Says how many runs were cut off.
    pub async fn stop(self) -> usize {
        self.readiness.drain();
        tokio::time::sleep(self.config.server.drain_delay).await;
        let bound = self.config.server.drain_timeout;
        // First of all: no open connection may begin new work while the rest is ended.
        self.engine.drain();
        let mut cut = 0;
        let drained = async {
            self.upgrades.end().await;
            cut = self.engine.stop(bound).await;
        };
        if self.serving.stop(bound, drained).await == Stopped::CutOff {
            tracing::warn!("connections were cut off");
        }
        self.stop_admin.cancel();
        cut
    }
}

fn settings(config: &Config, share: Share) -> listener::Settings {
    let mut settings = listener::Settings::new(config.server.listen);
    settings.connections = share.clients;
    settings.head_timeout = config.server.header_timeout;
    settings.head_bytes = usize::try_from(config.server.max_header_bytes).unwrap_or(64 << 10);
    settings
}

async fn bind_admin(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Admin { address, source })
}

fn layer(config: &Config, engine: &Engine, routes: &Routes, secret: Secret) -> Layer {
    let routes = routes.clone();
    Layer::new(engine.clone(), routes::scoping(config), secret)
        .with_policies(move |parts| routes.find(parts))
        .with_cors(routes::cors(config))
        .with_problem_base(config.problem.type_base.as_str())
        .with_request_buffers(
            usize::try_from(config.server.max_request_buffers).unwrap_or(usize::MAX),
        )
}

fn application(
    address: &Address,
    config: &Config,
    upstreams: usize,
    upgrades: &Upgrades,
) -> Application {
    Application::new(proxy(address, config, upstreams, upgrades))
        .with_problem_base(config.problem.type_base.as_str())
}

fn proxy(address: &Address, config: &Config, upstreams: usize, upgrades: &Upgrades) -> Proxy {
    let mut bounds = Bounds::default();
    bounds.connect = config.upstream.connect_timeout;
    bounds.open = upstreams;
    bounds.idle = config.upstream.idle_timeout;
    bounds.kept = usize::try_from(config.upstream.max_idle).unwrap_or(bounds.kept);
    Proxy::with_bounds(address.clone(), bounds, Clock::real())
        .with_timeout(config.upstream.timeout)
        .with_upgrades(upgrades.clone())
}

/// Deletes what expired, in batches, until none is left (T3): at once, for the process may have
/// been down for long, and then every hour; more often while the store is full.
async fn sweep(engine: Engine, embedded: Option<Arc<EmbeddedStore>>, stop: CancellationToken) {
    let is_full = || embedded.as_ref().is_some_and(|store| store.space().room != Room::Open);
    loop {
        while !stop.is_cancelled() {
            match engine.store().purge_expired(SWEEP_BATCH).await {
                Ok(0) => break,
                Ok(count) => tracing::debug!(count, "expired records were deleted"),
                Err(error) => {
                    tracing::warn!(%error, "expired records could not be deleted");
                    break;
                }
            }
        }
        let pause = async {
            let mut waited = Duration::ZERO;
            while waited < SWEEP {
                tokio::time::sleep(SWEEP_WHEN_FULL).await;
                waited += SWEEP_WHEN_FULL;
                if is_full() {
                    return;
                }
            }
        };
        if stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Where the store's files are, if it has any.
#[must_use]
pub fn data_folder(config: &Config) -> Option<PathBuf> {
    (config.store.kind == StoreKind::Embedded).then(|| config.store.path.clone())
}

#[cfg(test)]
#[path = "gateway_tests.rs"]
mod tests;

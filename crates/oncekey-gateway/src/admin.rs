//! The admin listener: health, readiness and metrics (A6).
//!
//! 1. These three are open, and nothing else is here. It listens on loopback by default.
//! 2. On a loopback address `Host` must be an address or `localhost`, so that a page in somebody's
//!    browser cannot read it by pointing a name of its own at this machine. Where it was bound to
//!    another address, it is meant to be reached by whatever name that has.
//! 3. A request that a page of another origin sends is refused, however it names this machine.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use oncekey::engine::Engine;
use oncekey::store::{EmbeddedStore, Inspect};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Whether the gateway takes requests. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// It is stopping (U5).
    pub fn drain(&self) {
        self.0.fetch_max(1, Ordering::Relaxed);
    }

    /// Its store failed.
    pub fn fail(&self) {
        self.0.fetch_max(2, Ordering::Relaxed);
    }

    fn told(&self) -> (StatusCode, &'static str) {
        match self.0.load(Ordering::Relaxed) {
            0 => (StatusCode::OK, "ready\n"),
            1 => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "the store failed\n"),
        }
    }
}

/// What the admin listener tells about.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Whether requests are taken.
    pub readiness: Readiness,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The store, for how many records stand where.
    pub store: Arc<dyn Inspect>,
    /// The engine, for what waits for the store.
    pub engine: Engine,
    /// The embedded store, for how much room it has.
    pub embedded: Option<Arc<EmbeddedStore>>,
}

impl Admin {
    /// Serves until `stop`.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        let loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let router = self.router();
        let router = if loopback { router.layer(middleware::from_fn(local_names)) } else { router };
        let router = router.layer(middleware::from_fn(own_origin));
        axum::serve(listener, router)
            .with_graceful_shutdown(async move { stop.cancelled().await })
            .await
    }

    fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "alive\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self)
    }
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    // By itself, too: whoever asks may be faster than whoever is told.
    if admin.embedded.as_ref().is_some_and(|store| !store.is_healthy()) {
        admin.readiness.fail();
    }
    admin.readiness.told()
}

async fn metrics(State(admin): State<Admin>) -> Response {
    match admin.store.counts().await {
        Ok(counts) => {
            let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            admin.metrics.unknown_records.set(gauge(counts.unknown));
            admin.metrics.held_records.set(gauge(counts.in_progress));
        }
        // The other figures are still worth having.
        Err(error) => tracing::warn!(%error, "records could not be counted"),
    }
    admin.metrics.set_unstored(admin.engine.unstored_bytes());
    if let Some(store) = &admin.embedded {
        admin.metrics.set_space(&store.space());
    }
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match admin.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, media_type)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Refuses requests that came by a name of somebody else's.
async fn local_names(request: Request, next: Next) -> Response {
    if is_local(host(&request)) { next.run(request).await } else { misdirected() }
}

/// Refuses requests of pages that come from elsewhere. Whoever is no page sends no `Origin`.
async fn own_origin(request: Request, next: Next) -> Response {
    let host = host(&request);
    let mut origins = request.headers().get_all(header::ORIGIN).into_iter();
    if origins.all(|origin| is_own(origin.as_bytes(), host)) {
        next.run(request).await
    } else {
        misdirected()
    }
}

fn host(request: &Request) -> &str {
    let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    host.or_else(|| request.uri().host()).unwrap_or_default()
}

fn misdirected() -> Response {
    let text = "use the listener's address: names and other origins are not answered here\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

/// Whether this is the origin of a page that the listener itself sent. What terminates TLS before
/// it changes the scheme and nothing else.
fn is_own(origin: &[u8], host: &str) -> bool {
    let address = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    address
        .is_some_and(|address| !address.is_empty() && address.eq_ignore_ascii_case(host.as_bytes()))
}

fn is_local(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_only_addresses_and_localhost_are_answered() {
        for host in ["127.0.0.1:9090", "127.0.0.1", "[::1]:9090", "localhost:1", "LOCALHOST"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["evil.example:9090", "evil.example", "", "127.0.0.1.evil.example"] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn a6_only_the_listener_s_own_origin_is_answered() {
        let host = "127.0.0.1:9090";
        assert!(is_own(b"http://127.0.0.1:9090", host));
        assert!(is_own(b"http://LOCALHOST:9090", "localhost:9090"));
        for origin in [
            "null",
            "",
            "http://",
            "127.0.0.1:9090",
            "http://evil.example",
            "http://127.0.0.1",
            "http://127.0.0.1:3000",
            "http://127.0.0.1:9090.evil.example",
            "file://127.0.0.1:9090",
        ] {
            assert!(!is_own(origin.as_bytes(), host), "{origin}");
        }
        assert!(!is_own(b"http://", ""), "no host is nobody's origin");
    }

    #[tokio::test]
    async fn x7_readiness_fails_with_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let store = Arc::new(EmbeddedStore::open(&path, Default::default()).unwrap());
        let admin = Admin {
            readiness: Readiness::default(),
            metrics: Arc::new(Metrics::new()),
            store: Arc::clone(&store) as _,
            engine: Engine::new(Arc::clone(&store) as _),
            embedded: Some(Arc::clone(&store)),
        };
        assert_eq!(readyz(State(admin.clone())).await.0, StatusCode::OK);
        std::fs::remove_dir_all(&path).unwrap();
        store.failed().cancelled().await;
        assert_eq!(readyz(State(admin)).await.0, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn u5_readiness_never_comes_back() {
        let readiness = Readiness::default();
        assert_eq!(readiness.told().0, 200);
        readiness.fail();
        readiness.drain();
        assert_eq!(readiness.told(), (StatusCode::SERVICE_UNAVAILABLE, "the store failed\n"));
    }
}

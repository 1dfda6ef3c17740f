//! The reverse proxy: one request in, one exchange with the application, one answer out.
//!
//! 1. Nothing is sent twice. There are no retries; a request changes its connection only while not
//!    a byte of it has left (rule O4).
//! 2. Every failure says whether the application can have seen a byte of the request
//!    ([`ProxyError::sent`]). "Nothing" is said only where it is certain.
//! 3. Bodies and trailers are streamed in both directions and never gathered.
//! 4. Header fields that belong to one connection stay on it (RFC 9110, 7.6.1), in both directions.
//! 5. The proxy knows nothing of keys. A request that carries [`Keyed`] has no time limit here,
//!    because its owner decides when to stop, by [`Cancel`]; any other one must see the head of its
//!    answer within the [timeout](Proxy::with_timeout).
//! 6. It is always ready, a clone is cheap, and each worker thread has one of its own, so that no
//!    lock is shared between threads.

pub(crate) mod body;
mod error;
mod forward;
pub(crate) mod headers;
mod upgrade;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use oncekey::clock::Clock;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

pub use self::body::ProxyBody;
pub use self::error::{ErrorKind, ProxyError, Sent};
pub use self::upgrade::Upgrades;

use self::body::{BoxError, Outgoing};
use crate::upstream::connect::Connector;
use crate::upstream::pool::Pool;
use crate::upstream::{Address, Bounds};

/// Marks a request as the run of a keyed operation: the proxy sets it no time limit.
#[derive(Clone, Copy, Debug)]
pub struct Keyed;

/// Ends the exchange when the token is cancelled, also while the answer's body is streamed.
///
/// The connection to the application is closed and the error says [`Sent::Perhaps`], unless the
/// request was still waiting for a connection.
#[derive(Clone, Debug)]
pub struct Cancel(pub CancellationToken);

/// Forwards requests to one application. See the [module](self) for what it promises.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Shared>);

#[derive(Clone, Debug)]
struct Shared {
    connector: Arc<Connector>,
    pool: Pool,
    idle: Duration,
    timeout: Duration,
    upgrades: Upgrades,
}

impl Proxy {
    /// A proxy to the application at `address`, with the default bounds and a pool of its own.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self::with_bounds(address, Bounds::default(), Clock::real())
    }

    /// The same with other bounds for its connections, aged by `clock`.
    #[must_use]
    pub fn with_bounds(address: Address, bounds: Bounds, clock: Clock) -> Self {
        Self(Arc::new(Shared {
            pool: Pool::new(clock, bounds.kept),
            idle: bounds.idle,
            connector: Arc::new(Connector::new(address, bounds)),
            timeout: Duration::from_secs(30),
            upgrades: Upgrades::default(),
        }))
    }

    /// How long a request without [`Keyed`] waits for the head of its answer; **30 s**.
    ///
    /// Counted from the last byte that the application took, so a long upload is not cut off while
    /// it moves.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        self.altered(|shared| shared.timeout = timeout)
    }

    /// Where upgraded connections are counted, and ended when the gateway stops.
    #[must_use]
    pub fn with_upgrades(self, upgrades: Upgrades) -> Self {
        self.altered(|shared| shared.upgrades = upgrades)
    }

    fn altered(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl<B> Service<Request<B>> for Proxy
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ProxyBody>;
    type Error = ProxyError;
    /// Boxed: the future of the HTTP codec has no name, and one allocation is little beside the
    /// system calls of a request.
    type Future = Pin<Box<dyn Future<Output = Result<Response<ProxyBody>, ProxyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        let request = request.map(Outgoing::new);
        Box::pin(forward::forward(shared, request))
    }
}

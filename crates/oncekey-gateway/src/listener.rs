//! Accepting clients: one thread a core, each with a runtime and a listening socket of its own.
//!
//! 1. The threads share nothing on the way of a request: the kernel spreads the connections
//!    (`SO_REUSEPORT`), and each worker has its own service, so its own pool.
//! 2. HTTP/1.1, and HTTP/2 by prior knowledge: there is no TLS here that could negotiate it.
//! 3. Everything a client may take has a bound: connections, time to the first byte, time for a
//!    head, bytes of a head (431) and of all large ones together, HTTP/2 connections (one too many
//!    is closed), streams of one and what they send ahead. A head that is not HTTP gets the
//!    parser's own bare 400.
//! 4. A client that closes its connection has left, as a browser does whose tab is closed: what
//!    passes without a key is dropped with it, and keyed work goes on without it.
//! 5. A stop is in two steps (rule U5). First no connection is accepted any more and each open one
//!    ends after the answer it is at; work that outlived its client runs on. Then, when the work
//!    has ended or the time is over, the runtimes are dropped and with them whatever is left.
//! 6. Trouble with accepting (no file descriptors, say) slows the loop down and never ends it.

mod connection;
mod heads;
mod socket;
mod upload;
mod worker;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

pub use self::socket::BindError;
pub use self::upload::Upload;

use self::connection::Codecs;
use self::worker::Worker;

/// A thread ends as soon as the poll it is in returns. One that takes longer is left behind.
const LAST_POLL: Duration = Duration::from_secs(2);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The address that a request came from; every request carries it as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// What is listened on, and the bounds of what clients may take.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Port 0 takes a free one.
    pub address: SocketAddr,
    /// Threads; **one a core**.
    pub workers: NonZeroUsize,
    /// From the accept to the first byte, and from there (or from the last answer) to the end of
    /// the next head; **30 s** (rule X6).
    pub head_timeout: Duration,
    /// The longest head in bytes; **64 KiB**, at least 8 KiB.
    pub head_bytes: usize,
    /// Open connections of all workers together; **16 384**. The next one waits in the kernel.
    pub connections: usize,
}

impl Settings {
    /// The defaults, on this address.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            workers: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            head_timeout: Duration::from_secs(30),
            head_bytes: 64 * 1024,
            connections: 16_384,
        }
    }
}

/// Sockets that listen already; what arrives waits until [`serve`](Self::serve).
#[derive(Debug)]
pub struct Listener {
    settings: Settings,
    address: SocketAddr,
    sockets: Vec<std::net::TcpListener>,
}

impl Listener {
    /// Takes the address, once for each worker.
    ///
    /// # Errors
    /// See [`BindError`]. An address on which any other process listens is refused, although the
    /// kernel would share it between the two.
    pub fn bind(settings: Settings) -> Result<Self, BindError> {
        let sockets = socket::listen(settings.address, settings.workers)?;
        let address =
            sockets.first().and_then(|first| first.local_addr().ok()).unwrap_or(settings.address);
        Ok(Self { settings, address, sockets })
    }

    /// The address with the port that was really taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many workers there will be.
    #[must_use]
    pub fn workers(&self) -> NonZeroUsize {
        self.settings.workers
    }

    /// Starts the workers. `make` is called once in each, inside its runtime, with its number.
    ///
    /// The service is called without being asked whether it is ready: it must always be.
    ///
    /// # Errors
    /// When a runtime or a thread cannot be made; none is left behind then.
    pub fn serve<F, S, B>(self, make: F) -> io::Result<Serving>
    where
        F: Fn(usize) -> S + Send + Sync + 'static,
        S: Service<Request<Upload>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let make = Arc::new(make);
        let codecs = Arc::new(Codecs::new(&self.settings));
        let room = self.settings.connections.div_ceil(self.settings.workers.get()).max(1);
        let mut serving = Serving {
            address: self.address,
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
            connections: TaskTracker::new(),
            threads: Vec::with_capacity(self.sockets.len()),
        };
        for (index, socket) in self.sockets.into_iter().enumerate() {
            let worker = Worker {
                index,
                codecs: Arc::clone(&codecs),
                room: Arc::new(Semaphore::new(room.min(Semaphore::MAX_PERMITS))),
                connections: serving.connections.clone(),
                // Children, so that a worker's connections touch no lock of another worker.
                stop: serving.stop.child_token(),
                cut: serving.cut.child_token(),
            };
            serving.threads.push(worker.start(socket, Arc::clone(&make))?);
        }
        Ok(serving)
    }
}

/// Running workers. Dropping it stops them at once and does not wait.
#[derive(Debug)]
#[must_use = "dropping it stops the workers"]
pub struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
    cut: CancellationToken,
    connections: TaskTracker,
    threads: Vec<JoinHandle<()>>,
}

/// How a stop went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Everything that ran has ended.
    Finished,
    /// The time was over before; what still ran was cut off.
    CutOff,
}

impl Serving {
    /// Where clients reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many client connections are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Stops: no new connections, the running answers are finished for at most `grace`, `drained`
    /// is waited for (work that runs in the workers without a client, which bounds itself); then
    /// the threads end.
    pub async fn stop(mut self, grace: Duration, drained: impl Future<Output = ()>) -> Stopped {
        self.stop.cancel();
        self.connections.close();
        let closed = tokio::time::timeout(grace, self.connections.wait());
        let how = match tokio::join!(closed, drained).0 {
            Ok(()) => Stopped::Finished,
            Err(_) => Stopped::CutOff,
        };
        self.cut.cancel();
        let threads = std::mem::take(&mut self.threads);
        let (joined, all_joined) = oneshot::channel();
        thread::spawn(move || {
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a worker thread panicked");
                }
            }
            // Nobody may be waiting any more.
            let _ = joined.send(());
        });
        match tokio::time::timeout(LAST_POLL, all_joined).await {
            Ok(_) => how,
            Err(_) => Stopped::CutOff,
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
        self.cut.cancel();
    }
}

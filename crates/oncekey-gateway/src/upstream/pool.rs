//! The unused connections of one worker.
//!
//! 1. Last in, first out: the warm ones are used, the rest grow old and go.
//! 2. At most [`Bounds::kept`](super::Bounds::kept) are kept; one more is closed.
//! 3. Each has a moment after which it is not used any more; a sweep closes it then. The sweep runs
//!    only while something lies in the pool.
//! 4. A connection comes back by [`Held::release`] when its answer was read to the end. Dropping a
//!    [`Held`] closes it, so no error path can put a half-read connection back.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use oncekey::clock::{Clock, Stamp};
use tokio::runtime::Handle;

use super::socket::Line;
use crate::proxy::body::Outgoing;

/// How often old connections are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// How long a finished exchange may take to become ready for the next one: an application that
/// answers without reading the rest of an upload leaves its connection busy.
const SETTLE: Duration = Duration::from_secs(1);

/// The unused connections. A clone is another handle to the same ones.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    clock: Clock,
    kept: usize,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    idle: Vec<Idle>,
    sweeping: bool,
}

struct Idle {
    sender: SendRequest<Outgoing>,
    line: Arc<Line>,
    until: Stamp,
}

/// A connection in use.
pub(crate) struct Held {
    sender: SendRequest<Outgoing>,
    line: Arc<Line>,
    pool: Pool,
    idle: Duration,
}

impl Pool {
    pub(crate) fn new(clock: Clock, kept: usize) -> Self {
        Self(Arc::new(Shared { clock, kept, inside: Mutex::default() }))
    }

    /// The connection used last that is still young and open.
    pub(crate) fn take(&self, idle: Duration) -> Option<Held> {
        let now = self.0.clock.now();
        let mut inside = self.0.lock();
        while let Some(Idle { sender, line, until }) = inside.idle.pop() {
            if now < until && sender.is_ready() {
                return Some(Held { sender, line, pool: self.clone(), idle });
            }
        }
        None
    }

    fn put(&self, held: Held) {
        let Held { sender, line, idle, .. } = held;
        let until = self.0.clock.now().after(idle);
        let mut inside = self.0.lock();
        if inside.idle.len() >= self.0.kept {
            return;
        }
        inside.idle.push(Idle { sender, line, until });
        if !inside.sweeping
            && let Ok(runtime) = Handle::try_current()
        {
            inside.sweeping = true;
            runtime.spawn(sweep(Arc::downgrade(&self.0), self.0.clock.clone()));
        }
    }
}

impl Shared {
    /// No code that can panic runs under the lock, so a poisoned one still holds a whole list.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what has grown too old, until nothing is left to watch.
async fn sweep(pool: Weak<Shared>, clock: Clock) {
    loop {
        clock.sleep(SWEEP).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = clock.now();
        let mut inside = pool.lock();
        inside.idle.retain(|idle| now < idle.until && !idle.sender.is_closed());
        if inside.idle.is_empty() {
            inside.sweeping = false;
            return;
        }
    }
}

impl Held {
    pub(crate) fn new(
        sender: SendRequest<Outgoing>,
        line: Arc<Line>,
        pool: Pool,
        idle: Duration,
    ) -> Self {
        Self { sender, line, pool, idle }
    }

    pub(crate) fn sender(&mut self) -> &mut SendRequest<Outgoing> {
        &mut self.sender
    }

    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Takes over what the application said about how long it keeps unused connections.
    pub(crate) fn keep_for(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// Gives the connection back after an answer that was read to its end.
    pub(crate) fn release(mut self) {
        if self.idle.is_zero() || self.sender.is_closed() {
            return;
        }
        if self.sender.is_ready() {
            let pool = self.pool.clone();
            pool.put(self);
            return;
        }
        // The codec has yet to finish the exchange: an upload still runs, or its task has not been
        // polled since. Outside a runtime nobody could wait for that, so the connection closes.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                if let Ok(Ok(())) = tokio::time::timeout(SETTLE, self.sender.ready()).await {
                    let pool = self.pool.clone();
                    pool.put(self);
                }
            });
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = self.0.lock().idle.len();
        f.debug_struct("Pool").field("idle", &idle).field("kept", &self.0.kept).finish()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("line", &self.line).finish_non_exhaustive()
    }
}

//! One thread: its runtime, its listening socket, its accept loop.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::connection::{self, Codecs};
use super::{BoxError, Peer, Upload};

/// How long the loop rests after an error that the next accept would meet again.
const REST: Duration = Duration::from_millis(100);

pub(super) struct Worker {
    pub(super) index: usize,
    pub(super) codecs: Arc<Codecs>,
    pub(super) room: Arc<Semaphore>,
    pub(super) connections: TaskTracker,
    pub(super) stop: CancellationToken,
    pub(super) cut: CancellationToken,
}

impl Worker {
    /// Starts the thread. The runtime is made before, so that its failure has someone to tell.
    pub(super) fn start<F, S, B>(
        self,
        socket: std::net::TcpListener,
        make: Arc<F>,
    ) -> io::Result<JoinHandle<()>>
    where
        F: Fn(usize) -> S + Send + Sync + 'static,
        S: Service<Request<Upload>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(socket)?
        };
        thread::Builder::new()
            .name(format!("worker-{}", self.index))
            .spawn(move || self.run(runtime, listener, &*make))
    }

    fn run<F, S, B>(self, runtime: Runtime, listener: TcpListener, make: &F)
    where
        F: Fn(usize) -> S,
        S: Service<Request<Upload>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        runtime.block_on(async {
            let service = make(self.index);
            self.accept(listener, service).await;
            // Work that outlived its client lives in this runtime until it is told to end.
            self.cut.cancelled().await;
        });
        // Not dropped: that would wait for a name look-up that is under way.
        runtime.shutdown_background();
    }

    async fn accept<S, B>(&self, listener: TcpListener, service: S)
    where
        S: Service<Request<Upload>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        loop {
            let next = async {
                let room = Arc::clone(&self.room).acquire_owned().await;
                (room, next(&listener).await)
            };
            let (room, (stream, peer)) = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                next = next => next,
            };
            let codecs = Arc::clone(&self.codecs);
            let stop = self.stop.clone();
            let service = service.clone();
            self.connections.spawn(async move {
                connection::serve(stream, peer, service, &codecs, stop).await;
                drop(room);
            });
        }
    }
}

async fn next(listener: &TcpListener) -> (TcpStream, Peer) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, Peer(peer)),
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// The connection was gone before it was accepted; the next one has nothing to do with it.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

//! Making a connection to the application.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pool::{Held, Pool};
use super::socket::Socket;
use super::{Address, Bounds, Host};

/// Fields in an answer's head at most. Their names and values have a bound of their own.
const HEADERS: usize = 256;

/// Why no connection could be made. Whatever it is, nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("no connection within the time allowed")]
    Timeout,
    #[error("no connection")]
    Io(#[from] io::Error),
    #[error("the connection could not be prepared")]
    Handshake(#[from] hyper::Error),
}

/// Opens connections to one application.
#[derive(Debug)]
pub(crate) struct Connector {
    address: Address,
    bounds: Bounds,
    codec: http1::Builder,
    open: Arc<Semaphore>,
}

impl Connector {
    pub(crate) fn new(address: Address, bounds: Bounds) -> Self {
        let mut codec = http1::Builder::new();
        codec.max_buf_size(bounds.head.max(8 * 1024)).max_headers(HEADERS);
        let open = Arc::new(Semaphore::new(bounds.open.min(Semaphore::MAX_PERMITS)));
        Self { address, bounds, codec, open }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// A fresh connection, driven by a task of its own until either side closes it.
    pub(crate) async fn connect(&self, pool: &Pool) -> Result<Held, ConnectError> {
        let (room, stream) = tokio::time::timeout(self.bounds.connect, self.find_room())
            .await
            .map_err(|_| ConnectError::Timeout)??;
        stream.set_nodelay(true)?;
        let (socket, line) = Socket::new(stream);
        let (sender, connection) = self.codec.handshake(TokioIo::new(socket)).await?;
        tokio::spawn(async move {
            // Whoever waits for the answer gets the error; here it would be told twice.
            let _ = connection.with_upgrades().await;
            drop(room);
        });
        Ok(Held::new(sender, line, pool.clone(), self.bounds.idle))
    }

    /// A connection, once there is room for one more.
    async fn find_room(&self) -> io::Result<(OwnedSemaphorePermit, TcpStream)> {
        let room = Arc::clone(&self.open).acquire_owned().await.map_err(io::Error::other)?;
        Ok((room, self.dial().await?))
    }

    async fn dial(&self) -> io::Result<TcpStream> {
        match &self.address.host {
            Host::Ip(ip) => TcpStream::connect(SocketAddr::new(*ip, self.address.port)).await,
            Host::Name(name) => TcpStream::connect((name.as_str(), self.address.port)).await,
        }
    }
}

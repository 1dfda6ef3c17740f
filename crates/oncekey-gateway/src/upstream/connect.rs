//! Making a connection to the application.

use std::io;
use std::net::SocketAddr;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

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
}

impl Connector {
    pub(crate) fn new(address: Address, bounds: Bounds) -> Self {
        let mut codec = http1::Builder::new();
        codec.max_buf_size(bounds.head.max(8 * 1024)).max_headers(HEADERS);
        Self { address, bounds, codec }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// A fresh connection, driven by a task of its own until either side closes it.
    pub(crate) async fn connect(&self, pool: &Pool) -> Result<Held, ConnectError> {
        let stream = tokio::time::timeout(self.bounds.connect, self.dial())
            .await
            .map_err(|_| ConnectError::Timeout)??;
        stream.set_nodelay(true)?;
        let (socket, line) = Socket::new(stream);
        let (sender, connection) = self.codec.handshake(TokioIo::new(socket)).await?;
        tokio::spawn(async move {
            // Whoever waits for the answer gets the error; here it would be told twice.
            let _ = connection.with_upgrades().await;
        });
        Ok(Held::new(sender, line, pool.clone(), self.bounds.idle))
    }

    async fn dial(&self) -> io::Result<TcpStream> {
        match &self.address.host {
            Host::Ip(ip) => TcpStream::connect(SocketAddr::new(*ip, self.address.port)).await,
            Host::Name(name) => TcpStream::connect((name.as_str(), self.address.port)).await,
        }
    }
}

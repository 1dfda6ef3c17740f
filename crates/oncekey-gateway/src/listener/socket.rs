//! Listening sockets that share one address.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;

use socket2::{Domain, Protocol, Socket, Type};

/// How many connections may wait to be accepted, per socket; the kernel lowers it to its own limit.
const BACKLOG: i32 = 1024;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process, or another listener of this one, has it.
    #[error("{0} is in use by another listener")]
    InUse(SocketAddr),
    /// The address belongs to no interface of this machine.
    #[error("{0} is no address of this machine")]
    NotHere(SocketAddr),
    /// The port is reserved for the administrator.
    #[error("not allowed to listen on {0}")]
    Denied(SocketAddr),
    /// Anything else.
    #[error("cannot listen on {address}")]
    Other {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl BindError {
    fn new(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::AddrNotAvailable => Self::NotHere(address),
            io::ErrorKind::PermissionDenied => Self::Denied(address),
            _ => Self::Other { address, source },
        }
    }
}

/// One listening socket for each worker, all on the same port.
pub(super) fn listen(
    mut address: SocketAddr,
    workers: NonZeroUsize,
) -> Result<Vec<TcpListener>, BindError> {
    let failed = |address| move |source| BindError::new(address, source);
    if address.port() != 0 {
        // A shared port would be shared with a stranger as well, who would then get a part of the
        // clients. A socket that does not share finds out whether anybody listens.
        bound(address, Sharing::Refused).map_err(failed(address))?;
    }
    let mut sockets = Vec::with_capacity(workers.get());
    for _ in 0..workers.get() {
        let socket = bound(address, Sharing::Allowed).map_err(failed(address))?;
        socket.listen(BACKLOG).map_err(failed(address))?;
        let listener = TcpListener::from(socket);
        address = listener.local_addr().map_err(failed(address))?;
        sockets.push(listener);
    }
    Ok(sockets)
}

enum Sharing {
    Allowed,
    Refused,
}

fn bound(address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Connections of an earlier run that are still winding down do not keep the port.
    socket.set_reuse_address(true)?;
    if matches!(sharing, Sharing::Allowed) {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

    #[test]
    fn all_workers_listen_on_the_port_that_the_first_one_got() {
        let sockets = listen("127.0.0.1:0".parse().unwrap(), TWO).unwrap();
        let ports: Vec<_> = sockets.iter().map(|s| s.local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), 2);
        assert_eq!(ports[0], ports[1]);
        assert_ne!(ports[0], 0);
    }

    #[test]
    fn an_address_in_use_is_refused_although_it_could_be_shared() {
        let sockets = listen("127.0.0.1:0".parse().unwrap(), TWO).unwrap();
        let address = sockets[0].local_addr().unwrap();
        let error = listen(address, TWO).unwrap_err();
        assert!(matches!(error, BindError::InUse(at) if at == address), "{error}");
        drop(sockets);
        listen(address, TWO).unwrap();
    }

    #[test]
    fn a_foreign_address_is_told_as_such() {
        let error = listen("192.0.2.1:1".parse().unwrap(), TWO).unwrap_err();
        assert!(matches!(error, BindError::NotHere(_)), "{error}");
    }
}

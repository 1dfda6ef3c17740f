//! Ports that stay a test's own, also while nobody listens on them.
//!
//! A process that is restarted needs its port back. One that the system gave out could go to
//! another test in between, so these lie below the range that systems give out, and a locked file
//! keeps them from the other tests of this machine, which run in processes of their own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use socket2::{Domain, Socket, Type};

const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A port of the loopback address, the test's own until this is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    _lock: File,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ports");
        fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        // Processes begin at different places, so that they rarely meet.
        let begin = (std::process::id() % u32::from(COUNT / 16)) as u16 * 16;
        let candidates = (0..COUNT).map(|step| FIRST + (begin + step) % COUNT);
        for port in candidates {
            let Ok(lock) = File::create(folder.join(port.to_string())) else { continue };
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if lock.try_lock().is_ok() && TcpListener::bind(address).is_ok() {
                return Self { address, _lock: lock };
            }
        }
        panic!("no port from {FIRST} on is free");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// An address that refuses connections for as long as the returned socket lives.
pub(crate) fn nowhere() -> (SocketAddr, Socket) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).expect("a port");
    let address = socket.local_addr().ok().and_then(|address| address.as_socket());
    (address.expect("it is bound"), socket)
}

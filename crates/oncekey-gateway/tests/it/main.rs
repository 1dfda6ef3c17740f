//! The gateway's tests through real sockets.

mod proxy;

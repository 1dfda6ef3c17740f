//! The gateway's tests through real sockets.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod cases;
mod demo;
mod proxy;
mod rig;

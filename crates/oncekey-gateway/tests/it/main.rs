//! The gateway's tests through real sockets.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod bad_input;
mod contract;
mod demo;
mod keys;
mod operate;
mod proxy;
mod rig;
mod scope;

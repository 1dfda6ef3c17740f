//! The gateway's tests through real sockets.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod attack;
mod cases;
mod crash;
mod demo;
mod express;
mod outcome;
mod proxy;
mod race;
mod replay;
mod rig;

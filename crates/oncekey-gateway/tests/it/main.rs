//! The gateway's tests through real sockets.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod attack;
mod bad_input;
mod cases;
mod contract;
mod crash;
mod crash_moments;
mod demo;
mod disk;
mod express;
mod flood;
mod freeze;
mod keys;
mod operate;
mod outcome;
mod proxy;
mod race;
mod replay;
mod rig;
mod scope;
#[path = "../../../oncekey/tests/it/small_disk.rs"]
mod small_disk;
mod smuggling;
mod store;
mod store_commands;
mod upstreams;

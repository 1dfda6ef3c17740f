//! The gateway.

pub mod listener;
pub mod proxy;
pub mod upstream;

//! The gateway.

pub mod demo;

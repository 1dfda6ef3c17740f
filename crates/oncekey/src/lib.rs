//! Makes an operation happen once when its request arrives twice.

pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod decide;
pub mod engine;
pub mod events;
pub mod fingerprint;
#[cfg(feature = "http")]
pub mod http;
pub mod key;
pub mod record;
pub mod store;

//! Idempotency keys.

pub mod clock;

//! Idempotency keys.

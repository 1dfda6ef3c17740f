//! Makes an operation happen once when its request arrives twice, and gives every repeat the first
//! answer.
//!
//! One primitive serves: **a keyed record, guarded by a fenced lease, with one write-once
//! outcome.**
//!
//! # What is promised
//!
//! 1. Of any number of requests with one key, one runs at a time, and once it has an outcome none
//!    runs again while that is kept.
//! 2. No error grants a run: a store that cannot answer means that nothing runs.
//! 3. Work outlives its client, and always ends: completed, released, retry, or unknown.
//! 4. Unknown is never treated as failed. A process that dies midway leaves an unknown record, and
//!    it stays so until its route, a person or a late answer decides.
//! 5. The same key for another request, or by another caller, is told so and changes nothing.
//!
//! # What is not
//!
//! 1. A handler that was cut off half way is not undone: that takes a transaction of its own.
//! 2. The memory store forgets with its process.
//! 3. A replay is the first answer as it was, not the present state of what it speaks of.
//!
//! # Quick start
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::{Router, routing::post};
//! use oncekey::engine::Engine;
//! use oncekey::fingerprint::Secret;
//! use oncekey::http::{Attempt, Layer, Scoping};
//! use oncekey::store::MemoryStore;
//!
//! async fn pay(attempt: Attempt) -> String {
//!     // Pass `provider_key` on to the payment provider: it is the same in every attempt.
//!     format!("charged under {}", attempt.provider_key())
//! }
//!
//! let engine = Engine::new(Arc::new(MemoryStore::new()));
//! let layer = Layer::new(engine, Scoping::shared(), Secret::random());
//! let app: Router = Router::new().route("/pay", post(pay)).layer(layer);
//! # drop(app);
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `http` (default) | the tower [`Layer`](http::Layer) and its policies |
//! | `axum` | extractors for axum handlers |
//! | `embedded` | [`EmbeddedStore`](store::EmbeddedStore): durable records in a folder |
//! | `conformance` | the suite that every store passes |

pub mod clock;
#[cfg(feature = "conformance")]
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

pub use engine::Engine;
pub use key::{Key, RecordId, Scope};
pub use record::{Lease, LeaseToken, Outcome, Record};
pub use store::{Inspect, Recover, Store, StoreError};

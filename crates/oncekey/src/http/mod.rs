//! Idempotency keys for HTTP: a tower [`Layer`] around any service.
//!
//! 1. It runs before the handler (M1.4). No key: the request passes, or is refused where the route
//!    needs one. A key seen before: the first answer again, byte for byte. A new key: register,
//!    run, keep.
//! 2. The handler runs in a task of its own: a client that leaves changes nothing (L6).
//! 3. What is kept is decided by the final status, by the handler's word, or by the route (O1-O3).
//! 4. The client sees the end of the answer after the outcome is durable (O5).
//! 5. Whatever keeps a request from running is told as problem details with a stable code (H).
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::{Router, routing::post};
//! use oncekey::engine::Engine;
//! use oncekey::fingerprint::Secret;
//! use oncekey::http::{Layer, Scoping};
//! use oncekey::store::MemoryStore;
//! use tower::ServiceExt;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new(Arc::new(MemoryStore::new()));
//! let layer = Layer::new(engine, Scoping::shared(), Secret::random());
//! let app: Router = Router::new().route("/pay", post(|| async { "paid" })).layer(layer);
//!
//! let pay = |body: &'static str| {
//!     let request = http::Request::post("/pay").header("idempotency-key", "k1");
//!     app.clone().oneshot(request.body(axum::body::Body::from(body)).expect("a request"))
//! };
//! assert_eq!(pay("5 EUR").await?.headers()["idempotency-status"], "stored");
//! assert_eq!(pay("5 EUR").await?.headers()["idempotent-replayed"], "true");
//! assert_eq!(pay("7 EUR").await?.status(), 422);
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new()?.block_on(run())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "axum")]
mod axum;
mod body;
mod cors;
mod drive;
mod layer;
mod names;
mod policy;
mod problem;
mod record;
mod request;
mod response;
mod room;
mod scoping;
mod service;

pub use body::{BoxError, RequestBody, ResponseBody};
pub use cors::Cors;
pub use drive::Attempt;
pub use layer::Layer;
pub use names::{
    IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_BODY, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_KEY,
    IDEMPOTENCY_OUTCOME, IDEMPOTENCY_RECORD, IDEMPOTENCY_STATUS, IDEMPOTENT_REPLAYED,
};
pub use policy::{
    Authority, Endings, KeyForm, KeyNeed, KeyRules, KeySource, Mode, Operation, Policy, Query,
    ReplayHeaders, StatusEnding, StoreBody, StoreDown,
};
pub use problem::{Code, Problem};
pub use scoping::{MissingTenant, Scoping, Trust, host_of, normalised};
pub use service::Once;

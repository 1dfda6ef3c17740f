//! The run as an argument of axum handlers.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::StatusCode;
use http::request::Parts;

use super::drive::Attempt;

/// The handler runs under a key. Without one the request is answered 500: the route was built to
/// be protected, and the layer or `require_key` is missing. So is one that only observes, or that
/// passes while the store is down: take `Option<Attempt>` on such routes.
impl<S: Sync> FromRequestParts<S> for Attempt {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Self>().cloned().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "this handler runs only under an idempotency key",
        ))
    }
}

/// The handler runs with or without a key.
impl<S: Sync> OptionalFromRequestParts<S> for Attempt {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

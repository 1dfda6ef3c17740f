//! What is refused before anything of a request counts.
//!
//! A request that names no host, or several, has no meaning that all would agree on (RFC 9112,
//! 3.2): tenant, operation and application could each read another. The same is true of a target
//! that is a host alone, or a star, where the method is not the one that such a target is for, and
//! of a method in small letters: by the standard it is another method, with no meaning for a key,
//! and many an application takes it for the one in capitals (RFC 9110, 9.1). Such a request is
//! refused here, before its key is claimed, so that the refusal is no outcome of the key.
//!
//! So is one whose body is coded for the transfer in another way than by chunks: nobody here could
//! undo that, and the application would not be told of it (RFC 9112, 6.1).

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::TryFutureExt;
use futures_util::future::{Either as Which, MapOk};
use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{Either, Empty};
use tower_service::Service;

use crate::proxy::headers::names_one_host;

/// Lets through to `S` what means one thing.
#[derive(Clone, Debug)]
pub struct Entrance<S>(S);

impl<S> Entrance<S> {
    /// The entrance to `inner`.
    #[must_use]
    pub fn new(inner: S) -> Self {
        Self(inner)
    }
}

/// An answer's body: that of the service behind, or none.
pub type EntranceBody<R> = Either<R, Empty<Bytes>>;

type Passed<R> = fn(Response<R>) -> Response<EntranceBody<R>>;

impl<S, B, R> Service<Request<B>> for Entrance<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<EntranceBody<R>>;
    type Error = S::Error;
    type Future = Which<MapOk<S::Future, Passed<R>>, Ready<Result<Self::Response, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some(refusal) = refusal(&request) else {
            let passed: Passed<R> = |response| response.map(Either::Left);
            return Which::Left(self.0.call(request).map_ok(passed));
        };
        let mut response = Response::new(Either::Right(Empty::new()));
        *response.status_mut() = refusal;
        // What else the client means is anybody's guess, so it ends there.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        Which::Right(ready(Ok(response)))
    }
}

fn refusal<B>(request: &Request<B>) -> Option<StatusCode> {
    if !means_one_thing(request) {
        return Some(StatusCode::BAD_REQUEST);
    }
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let is_chunks = codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    (!is_chunks).then_some(StatusCode::NOT_IMPLEMENTED)
}

fn means_one_thing<B>(request: &Request<B>) -> bool {
    let uri = request.uri();
    let host_alone = uri.scheme().is_none() && uri.authority().is_some();
    let target = match *request.method() {
        Method::CONNECT => true,
        Method::OPTIONS => !host_alone,
        _ => !host_alone && uri.path() != "*",
    };
    let capitals = !request.method().as_str().bytes().any(|letter| letter.is_ascii_lowercase());
    target && capitals && names_one_host(uri, request.headers(), request.version())
}

//! From the proxy's errors to answers (O4).
//!
//! 1. Nothing was sent: 502 `upstream-unreachable`; the layer releases the key.
//! 2. Something of a keyed request was sent: 504 `outcome-unknown`; the layer abandons the run.
//! 3. Something of a request without a key was sent: the bare status. There is no key to ask with
//!    again, so the problem's advice would be wrong.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{Either, Full};
use oncekey::http::{Attempt, BoxError, Code, Problem};
use tower_service::Service;

use crate::proxy::{Cancel, Keyed, Proxy, ProxyBody, ProxyError, Sent};

/// The application behind the gateway: a proxy whose errors are answers.
#[derive(Clone, Debug)]
pub struct Application {
    proxy: Proxy,
    problem_base: Option<Arc<str>>,
}

/// An answer's body: the application's, or a problem.
pub type AnswerBody = Either<ProxyBody, Full<Bytes>>;

impl Application {
    /// The application that `proxy` reaches.
    #[must_use]
    pub fn new(proxy: Proxy) -> Self {
        Self { proxy, problem_base: None }
    }

    /// Puts the types of problems under this URL (H), as the layer in front does with its own.
    #[must_use]
    pub fn with_problem_base(self, base: impl Into<Arc<str>>) -> Self {
        Self { problem_base: Some(base.into()), ..self }
    }
}

impl<B> Service<Request<B>> for Application
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let attempt = request.extensions().get::<Attempt>().cloned();
        if let Some(attempt) = &attempt {
            // The layer sets the time limits of a keyed run: its client's, and its own (L1).
            request.extensions_mut().insert(Keyed);
            request.extensions_mut().insert(Cancel(attempt.told().clone()));
        }
        let exchange = self.proxy.call(request);
        let base = self.problem_base.clone();
        Box::pin(async move {
            Ok(match exchange.await {
                Ok(response) => response.map(Either::Left),
                Err(error) => answer(&error, attempt.as_ref(), base),
            })
        })
    }
}

fn answer(
    error: &ProxyError,
    attempt: Option<&Attempt>,
    base: Option<Arc<str>>,
) -> Response<AnswerBody> {
    tracing::warn!(
        record = attempt.map(|attempt| tracing::field::display(attempt.record())),
        %error,
        cause = error_source(error),
        "an exchange failed"
    );
    let problem = match (error.sent(), attempt) {
        (Sent::Nothing, _) => Problem::new(Code::UpstreamUnreachable),
        (Sent::Perhaps, Some(attempt)) => Problem::new(Code::OutcomeUnknown)
            .with_status(StatusCode::GATEWAY_TIMEOUT)
            .with_record(attempt.record()),
        (Sent::Perhaps, None) => {
            let mut response = Response::new(Either::Right(Full::from(format!("{error}\n"))));
            *response.status_mut() = error.status();
            return response;
        }
    };
    problem.with_base(base).into_response().map(|body| Either::Right(Full::new(body)))
}

fn error_source(error: &ProxyError) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}

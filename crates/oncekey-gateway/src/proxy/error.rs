//! Why an exchange failed, and whether the application can have seen the request.

use std::error::Error;
use std::fmt;

use http::StatusCode;

use super::body::BoxError;

/// Whether the application can have seen a byte of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Certainly not: the request may be made again.
    Nothing,
    /// Perhaps: nobody knows whether it ran.
    Perhaps,
}

/// What ended an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No connection to the application could be made, or it died before it took a byte.
    Unreachable,
    /// The head of the answer did not come within the time allowed.
    Timeout,
    /// The owner of the request ended it.
    Cancelled,
    /// The client's body could not be read to its end.
    RequestBody,
    /// The connection broke, or what came over it is not an HTTP answer to this request.
    Broken,
}

/// A failed exchange.
#[derive(Debug)]
pub struct ProxyError {
    kind: ErrorKind,
    sent: Sent,
    source: Option<BoxError>,
}

impl ProxyError {
    pub(super) fn new(kind: ErrorKind, sent: Sent) -> Self {
        Self { kind, sent, source: None }
    }

    pub(super) fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What ended the exchange.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the application can have seen a byte of the request. A failure while an answer is
    /// streamed is always [`Sent::Perhaps`].
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// The status that a client of an unkeyed request should get.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.kind {
            ErrorKind::Unreachable | ErrorKind::Broken => StatusCode::BAD_GATEWAY,
            ErrorKind::Timeout | ErrorKind::Cancelled => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::RequestBody => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ErrorKind::Unreachable => "the upstream cannot be reached",
            ErrorKind::Timeout => "the upstream did not answer in time",
            ErrorKind::Cancelled => "the exchange was ended",
            ErrorKind::RequestBody => "the request's body could not be read",
            ErrorKind::Broken => "the exchange with the upstream broke",
        })?;
        f.write_str(match self.sent {
            Sent::Nothing => "; nothing was sent",
            Sent::Perhaps => "; the request may have been seen",
        })
    }
}

impl Error for ProxyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

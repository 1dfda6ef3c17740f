//! The two bodies of an exchange.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::error::{ErrorKind, ProxyError, Sent};
use crate::upstream::pool::Held;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// A request's body on its way to the application.
///
/// Its type is erased, so that one pool serves whatever wraps the proxy. The many requests without
/// a body are spared the allocation.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Empty,
    Streamed(UnsyncBoxBody<Bytes, BoxError>),
}

impl Outgoing {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            Self::Empty
        } else {
            Self::Streamed(body.map_err(Into::into).boxed_unsync())
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Streamed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed(body) => body.size_hint(),
        }
    }
}

/// An answer's body, streamed from the application.
///
/// Read to its end it gives its connection back; dropped before, it closes it. An error means that
/// the answer is not whole.
pub struct ProxyBody(Option<Stream>);

struct Stream {
    incoming: Incoming,
    held: Option<Held>,
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl ProxyBody {
    /// A body without a byte.
    #[must_use]
    pub fn empty() -> Self {
        Self(None)
    }

    pub(super) fn new(incoming: Incoming, held: Held, cancel: Option<CancellationToken>) -> Self {
        if incoming.is_end_stream() {
            held.release();
            return Self::empty();
        }
        let cancelled = cancel.map(|token| Box::pin(token.cancelled_owned()));
        Self(Some(Stream { incoming, held: Some(held), cancelled }))
    }
}

impl Stream {
    /// A connection is free once its answer ended, whoever notices first.
    fn settle(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(held) = self.held.take()
        {
            held.release();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A body of known length is often dropped with its last byte, without asking for more.
        self.settle();
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let this = self.get_mut();
        let Some(stream) = &mut this.0 else { return Poll::Ready(None) };
        if let Some(cancelled) = &mut stream.cancelled
            && cancelled.as_mut().poll(cx).is_ready()
        {
            // Without its owner the codec closes the connection.
            this.0 = None;
            let error = ProxyError::new(ErrorKind::Cancelled, Sent::Perhaps);
            return Poll::Ready(Some(Err(error)));
        }
        match ready!(Pin::new(&mut stream.incoming).poll_frame(cx)) {
            Some(Ok(frame)) => {
                stream.settle();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                this.0 = None;
                let broken = ProxyError::new(ErrorKind::Broken, Sent::Perhaps).because(error);
                Poll::Ready(Some(Err(broken)))
            }
            None => {
                if let Some(held) = stream.held.take() {
                    held.release();
                }
                this.0 = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|stream| stream.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            None => SizeHint::with_exact(0),
            Some(stream) => stream.incoming.size_hint(),
        }
    }
}

impl fmt::Debug for ProxyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.0.is_some();
        f.debug_struct("ProxyBody").field("open", &open).finish_non_exhaustive()
    }
}

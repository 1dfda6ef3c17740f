//! A request's body as it arrives, with an end that can be believed.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::BoxError;

/// A request's body.
///
/// A client on HTTP/2 that gives up with `RST_STREAM` may name no error (RFC 9113, 8.1), and hyper
/// tells that like the end of the body. It is none: what came until then must not run as if it
/// were the whole request (F4). Here it is an error.
#[derive(Debug)]
pub struct Upload {
    incoming: Incoming,
    /// Whether the stream tells its end by itself, as HTTP/2's does.
    tells_end: bool,
}

impl Upload {
    pub(super) fn new(incoming: Incoming, version: http::Version) -> Self {
        Self { incoming, tells_end: version == http::Version::HTTP_2 }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match ready!(Pin::new(&mut this.incoming).poll_frame(cx)) {
            None if this.tells_end && !this.incoming.is_end_stream() => {
                Poll::Ready(Some(Err("the client gave up before the end of the body".into())))
            }
            frame => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

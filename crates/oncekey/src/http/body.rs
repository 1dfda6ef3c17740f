//! Bodies on their way through the layer.
//!
//! A request's body is passed on untouched where no key counts, and whole where it was compared. An
//! answer's body is passed on untouched, given whole, or fed by the task that records it, which
//! holds its end back until the outcome is durable (O5).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::mpsc;

/// An error of any kind, as bodies have them.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pin_project! {
    /// A request's body as the inner service sees it.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        source: Source<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = SourceProjection]
    enum Source<B> {
        // As it comes from the client.
        Stream { #[pin] body: B },
        // Read before the claim; empty once it was taken.
        Whole { bytes: Bytes },
        // Read in part: the rest comes from the client.
        Resumed { first: Bytes, body: Pin<Box<B>> },
    }
}

impl<B> RequestBody<B> {
    /// The body as it comes from the client.
    pub fn stream(body: B) -> Self {
        Self { source: Source::Stream { body } }
    }

    /// A body that was read already.
    pub fn whole(bytes: Bytes) -> Self {
        Self { source: Source::Whole { bytes } }
    }

    /// A body whose beginning was read already.
    pub(super) fn resumed(first: Bytes, body: Pin<Box<B>>) -> Self {
        Self { source: Source::Resumed { first, body } }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().source.project() {
            SourceProjection::Stream { body } => body.poll_frame(cx).map_err(Into::into),
            SourceProjection::Whole { bytes } => Poll::Ready(take(bytes)),
            SourceProjection::Resumed { first, body } => match take(first) {
                Some(frame) => Poll::Ready(Some(frame)),
                None => body.as_mut().poll_frame(cx).map_err(Into::into),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Stream { body } => body.is_end_stream(),
            Source::Whole { bytes } => bytes.is_empty(),
            Source::Resumed { first, body } => first.is_empty() && body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Stream { body } => body.size_hint(),
            Source::Whole { bytes } => SizeHint::with_exact(bytes.len() as u64),
            Source::Resumed { first, body } => {
                let read = first.len() as u64;
                let rest = body.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
                    hint.set_upper(upper);
                }
                hint
            }
        }
    }
}

fn take(bytes: &mut Bytes) -> Option<Result<Frame<Bytes>, BoxError>> {
    if bytes.is_empty() { None } else { Some(Ok(Frame::data(std::mem::take(bytes)))) }
}

pin_project! {
    /// An answer's body as the client sees it.
    #[derive(Debug)]
    pub struct ResponseBody<R> {
        #[pin]
        origin: Origin<R>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = OriginProjection]
    enum Origin<R> {
        // As it comes from the inner service.
        Inner { #[pin] body: R },
        // Known in full.
        Whole { bytes: Bytes },
        // Fed by the task that records it.
        Fed { feed: Feed },
    }
}

/// The client's end of a body that a task feeds.
#[derive(Debug)]
struct Feed {
    frames: mpsc::Receiver<Fed>,
    /// Bytes to come, where their number is known.
    left: Option<u64>,
    ended: bool,
}

/// What the task feeds.
#[derive(Debug)]
pub(super) enum Fed {
    Frame(Frame<Bytes>),
    /// The body is complete. Without it the client's end is an error: the task was cut off.
    End,
    Broken(BoxError),
}

/// Frames on their way from the task to the client.
const IN_FLIGHT: usize = 8;

impl<R> ResponseBody<R> {
    pub(super) fn inner(body: R) -> Self {
        Self { origin: Origin::Inner { body } }
    }

    pub(super) fn whole(bytes: Bytes) -> Self {
        Self { origin: Origin::Whole { bytes } }
    }

    /// A body of `length` bytes, where that is known, and the end that feeds it.
    pub(super) fn fed(length: Option<u64>) -> (Self, mpsc::Sender<Fed>) {
        let (sender, frames) = mpsc::channel(IN_FLIGHT);
        let feed = Feed { frames, left: length, ended: false };
        (Self { origin: Origin::Fed { feed } }, sender)
    }
}

impl<R> Body for ResponseBody<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().origin.project() {
            OriginProjection::Inner { body } => body.poll_frame(cx).map_err(Into::into),
            OriginProjection::Whole { bytes } => Poll::Ready(take(bytes)),
            OriginProjection::Fed { feed } => feed.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.origin {
            Origin::Inner { body } => body.is_end_stream(),
            Origin::Whole { bytes } => bytes.is_empty(),
            Origin::Fed { feed } => feed.ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.origin {
            Origin::Inner { body } => body.size_hint(),
            Origin::Whole { bytes } => SizeHint::with_exact(bytes.len() as u64),
            Origin::Fed { feed } => feed.left.map_or_else(SizeHint::new, SizeHint::with_exact),
        }
    }
}

impl Feed {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = match ready!(self.frames.poll_recv(cx)) {
            Some(Fed::Frame(frame)) => {
                if let (Some(left), Some(data)) = (&mut self.left, frame.data_ref()) {
                    *left = left.saturating_sub(data.len() as u64);
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Some(Fed::End) => None,
            Some(Fed::Broken(error)) => Some(Err(error)),
            None => Some(Err(BoxError::from(CutOff))),
        };
        self.ended = true;
        Poll::Ready(next)
    }
}

/// The task that fed a body ended before the body did.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut off")]
struct CutOff;

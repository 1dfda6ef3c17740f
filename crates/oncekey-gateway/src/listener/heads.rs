//! What the heads of requests take in memory together (X6).
//!
//! 1. A head of up to 8 KiB is part of what a connection takes anyway. A larger one needs room, of
//!    which there is a bounded amount, and holds it until its request is answered.
//! 2. Whoever finds none is not read until there is some, or until the time for a head is over.
//! 3. Bodies do not count here: from the end of a head to its answer everything passes.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http::{Response, StatusCode};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

/// The largest head that needs no room.
const SMALL: usize = 8 * 1024;

/// What all larger heads take together.
const TOGETHER: usize = 32 << 20;

/// In place of a count: a head has ended, and its request is being answered.
const ANSWERING: usize = usize::MAX;

/// The room for heads. A clone is another handle to the same.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    room: Arc<Semaphore>,
    each: u32,
}

impl Heads {
    /// Room for heads of at most so many bytes each.
    pub(super) fn new(head_bytes: usize) -> Self {
        // The buffer of a head grows by doubling, so it may be twice as large.
        let each = head_bytes.saturating_mul(2).clamp(1, TOGETHER);
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        Self { room: Arc::new(Semaphore::new(TOGETHER)), each }
    }

    /// The same stream, read only as far as there is room, and what tells it of its requests.
    pub(super) fn watch<IO>(&self, stream: IO) -> (Watched<IO>, Progress) {
        let progress = Progress(Arc::default());
        let own = progress.clone();
        let heads = self.clone();
        (Watched { stream, progress: own, heads, waiting: None, held: None }, progress)
    }
}

/// Where a connection is: the bytes of the head that is being read, or [`ANSWERING`].
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<AtomicUsize>);

impl Progress {
    /// The head has ended: `answer` is on its way, and after it comes the next head.
    pub(super) fn answering<F>(&self, answer: F) -> Answering<F> {
        self.0.store(ANSWERING, Ordering::Relaxed);
        Answering { answer, progress: self.clone() }
    }
}

pin_project! {
    /// An answer on its way.
    #[derive(Debug)]
    pub(super) struct Answering<F> {
        #[pin]
        answer: F,
        progress: Progress,
    }
}

impl<F, B, E> Future for Answering<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = ready!(this.answer.poll(cx));
        let switches = |answer: &Response<B>| answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        // Once the protocol is another one, there are no more heads.
        if !answer.as_ref().is_ok_and(switches) {
            this.progress.0.store(0, Ordering::Relaxed);
        }
        Poll::Ready(answer)
    }
}

/// A client's stream.
#[derive(Debug)]
pub(super) struct Watched<IO> {
    stream: IO,
    progress: Progress,
    heads: Heads,
    waiting: Option<PollSemaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl<IO> Watched<IO> {
    /// Ready as soon as the head that has come so far may grow.
    fn poll_room(&mut self, cx: &mut Context<'_>, head: usize) -> Poll<()> {
        if head == 0 {
            // The request before has been answered.
            (self.held, self.waiting) = (None, None);
        }
        if head < SMALL || head == ANSWERING || self.held.is_some() {
            return Poll::Ready(());
        }
        let waiting =
            self.waiting.get_or_insert_with(|| PollSemaphore::new(Arc::clone(&self.heads.room)));
        self.held = ready!(waiting.poll_acquire_many(cx, self.heads.each));
        self.waiting = None;
        Poll::Ready(())
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let head = self.progress.0.load(Ordering::Relaxed);
        ready!(self.poll_room(cx, head));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if head != ANSWERING {
            let head = head.saturating_add(buffer.filled().len() - before).min(ANSWERING - 1);
            self.progress.0.store(head, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Watched<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Reads all that has come; how much it was.
    async fn read<IO: AsyncRead + Unpin>(stream: &mut IO) -> usize {
        let mut bytes = vec![0; 128 * 1024];
        let mut count = 0;
        let look = std::future::poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut bytes);
            while Pin::new(&mut *stream).poll_read(cx, &mut buffer).is_ready() {
                if buffer.filled().is_empty() {
                    break;
                }
                count += buffer.filled().len();
                buffer.clear();
            }
            Poll::Ready(())
        });
        look.await;
        count
    }

    type Answer = Result<Response<()>, ()>;

    async fn answered(progress: &Progress, status: u16) {
        let answer: Answer = Ok(Response::builder().status(status).body(()).unwrap());
        progress.answering(std::future::ready(answer)).await.unwrap();
    }

    #[tokio::test]
    async fn x6_what_follows_an_upgrade_is_no_head() {
        let heads = Heads::new(1024);
        let (mut client, server) = duplex(256 * 1024);
        let (mut watched, progress) = heads.watch(server);
        answered(&progress, 101).await;
        client.write_all(&[b'x'; 100 * 1024]).await.unwrap();
        while read(&mut watched).await > 0 {}
        assert_eq!(heads.room.available_permits(), TOGETHER);
    }

    #[tokio::test]
    async fn x6_a_large_head_needs_room_and_gives_it_back_with_its_answer() {
        let heads = Heads::new(TOGETHER / 2);
        let open = || {
            let (client, server) = duplex(256 * 1024);
            (client, heads.watch(server))
        };
        let (mut client, (mut first, progress)) = open();
        client.write_all(&[b'x'; 20 * 1024]).await.unwrap();
        assert_eq!(first.read(&mut [0; SMALL]).await.unwrap(), SMALL);
        assert_eq!(read(&mut first).await, 12 * 1024);
        // There is no room for a second; but a small head needs none.
        let (mut client, (mut second, _)) = open();
        client.write_all(&[b'x'; 20 * 1024]).await.unwrap();
        assert_eq!(second.read(&mut [0; SMALL]).await.unwrap(), SMALL);
        assert_eq!(read(&mut second).await, 0);
        let (mut client, (mut small, _)) = open();
        client.write_all(&[b'x'; SMALL]).await.unwrap();
        assert_eq!(read(&mut small).await, SMALL);

        // While it is answered the first keeps its room, and bodies pass.
        let mut answer = Box::pin(progress.answering(std::future::pending::<Answer>()));
        assert!(answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(read(&mut second).await, 0);
        answered(&progress, 200).await;
        assert_eq!(read(&mut first).await, 0);
        assert_eq!(read(&mut second).await, 12 * 1024);
        drop(client);
    }
}

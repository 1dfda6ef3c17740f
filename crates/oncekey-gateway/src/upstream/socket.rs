//! A socket that knows how many bytes left through it.
//!
//! The count is of what the kernel accepted. It can be higher than what the application read, never
//! lower: a request whose count did not move has not been seen by anyone.
//!
//! The look: a connection that the application closed while it lay in the pool still accepts a
//! write, and only the answer's absence would tell, when it is too late to know whether the request
//! was read. So the first read or write after [`Line::expect_request`] peeks at the socket. A
//! healthy idle connection has nothing to read; an end of stream, an error or bytes that nobody
//! asked for mean that it is over. The HTTP codec reads before it writes, so it is told "end of
//! stream" while the request is still whole in its hands and can be given back.
//!
//! The bound: before the head of an answer an application may say "not yet" as often as it likes,
//! and the codec reads on without letting anybody else have a turn. So what may come before the
//! head has been seen has a bound; beyond it the connection is over.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much is read before the owner has seen the head of an answer: far more than a head, what
/// comes with it and a few interim answers take.
const BEFORE_THE_HEAD: u64 = 1 << 20;

/// What the owner of a connection sees of its socket.
#[derive(Debug, Default)]
pub(crate) struct Line {
    written: AtomicU64,
    look: AtomicBool,
    /// Bytes read since the request began; `u64::MAX` once its answer's head was seen.
    heard: AtomicU64,
}

impl Line {
    /// How many bytes the kernel has accepted on this connection so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Has the socket looked at before its next use, which is the first one of a new request.
    pub(crate) fn expect_request(&self) {
        self.look.store(true, Ordering::Relaxed);
        self.heard.store(0, Ordering::Relaxed);
    }

    /// The head of the answer was seen: what follows is its body.
    pub(crate) fn answered(&self) {
        self.heard.store(u64::MAX, Ordering::Relaxed);
    }

    /// Counts what was read; false where it is more than anybody says before an answer.
    fn hears(&self, bytes: usize) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        if heard == u64::MAX {
            return true;
        }
        let heard = heard.saturating_add(bytes as u64);
        // Only the socket's own task counts, so nothing is lost between the two.
        self.heard.store(heard, Ordering::Relaxed);
        heard <= BEFORE_THE_HEAD
    }

    /// Whether a look is due. A load first: most polls need no write to the shared word.
    fn look_is_due(&self) -> bool {
        self.look.load(Ordering::Relaxed) && self.look.swap(false, Ordering::Relaxed)
    }
}

/// A connection to the application.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    line: Arc<Line>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> (Self, Arc<Line>) {
        let line = Arc::new(Line::default());
        (Self { stream, line: Arc::clone(&line) }, line)
    }

    fn gone(&self) -> bool {
        let mut byte = [MaybeUninit::uninit(); 1];
        match SockRef::from(&self.stream).peek(&mut byte) {
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            Ok(_) => true,
        }
    }

    fn count(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.line.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.line.look_is_due() && self.gone() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if !self.line.hears(buffer.filled().len() - before) {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.line.look_is_due() && self.gone() {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.line.look_is_due() && self.gone() {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.count(&written);
        written
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
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn pair() -> (Socket, Arc<Line>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (theirs, _) = listener.accept().await.unwrap();
        let (socket, line) = Socket::new(ours);
        (socket, line, theirs)
    }

    #[tokio::test]
    async fn o4_every_accepted_byte_is_counted_plain_and_vectored() {
        let (mut socket, line, mut theirs) = pair().await;
        socket.write_all(b"12345").await.unwrap();
        let slices = [IoSlice::new(b"67"), IoSlice::new(b"890")];
        assert_eq!(socket.write_vectored(&slices).await.unwrap(), 5);
        assert_eq!(line.written(), 10);
        let mut seen = [0; 10];
        theirs.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"1234567890");
    }

    #[tokio::test]
    async fn o4_a_closed_connection_is_seen_before_the_first_byte() {
        let (mut socket, line, theirs) = pair().await;
        drop(theirs);
        // The end of stream is in the socket once it is readable; nobody has read it.
        socket.stream.readable().await.unwrap();
        line.expect_request();
        assert_eq!(socket.write(b"request").await.unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert_eq!(line.written(), 0);
    }

    #[tokio::test]
    async fn o4_a_healthy_connection_passes_the_look_once() {
        let (mut socket, line, mut theirs) = pair().await;
        line.expect_request();
        socket.write_all(b"head").await.unwrap();
        // An answer that comes early must not stop the rest of the request.
        theirs.write_all(b"early").await.unwrap();
        socket.stream.readable().await.unwrap();
        socket.write_all(b"body").await.unwrap();
        assert_eq!(line.written(), 8);
    }
}

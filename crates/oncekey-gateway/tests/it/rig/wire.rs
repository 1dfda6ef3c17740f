//! One end of a TCP connection, with what was read beyond the last message.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::SockRef;

use super::{Deadline, PATIENCE};

/// Why reading ended without what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The other side closed in order.
    Closed,
    /// The other side reset the connection.
    Reset,
    /// Nothing came in time.
    TimedOut,
}

/// A connection with a buffer; both sides of the rig read through it.
pub(crate) struct Wire {
    stream: Arc<TcpStream>,
    buffer: Vec<u8>,
    patience: Duration,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // What a test sends in two writes arrives in two packets.
        let _ = stream.set_nodelay(true);
        Self { stream: Arc::new(stream), buffer: Vec::new(), patience: PATIENCE }
    }

    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect_timeout(&address, PATIENCE).map(Self::new)
    }

    /// How long one read may take in all; [`PATIENCE`] if not set.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// To end it from elsewhere. It does not keep the socket open: the other side sees the end as
    /// soon as the wire is dropped.
    pub(crate) fn handle(&self) -> Weak<TcpStream> {
        Arc::downgrade(&self.stream)
    }

    /// Sends these bytes and no others.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.set_write_timeout(Some(self.patience))?;
        (&*self.stream).write_all(bytes.as_ref())
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Ends the connection so that the other side sees a reset.
    pub(crate) fn reset(self) {
        let _ = SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Everything up to and with `mark`.
    pub(crate) fn read_to(&mut self, mark: &[u8]) -> Result<Vec<u8>, Broken> {
        let deadline = Deadline::after(self.patience);
        let mut looked = 0;
        loop {
            let from = looked.min(self.buffer.len());
            if let Some(at) = find(&self.buffer[from..], mark) {
                return Ok(self.take(from + at + mark.len()));
            }
            looked = self.buffer.len().saturating_sub(mark.len());
            self.fill(&deadline)?;
        }
    }

    /// So many bytes.
    pub(crate) fn read_exactly(&mut self, count: usize) -> Result<Vec<u8>, Broken> {
        let deadline = Deadline::after(self.patience);
        while self.buffer.len() < count {
            self.fill(&deadline)?;
        }
        Ok(self.take(count))
    }

    /// At least one byte: what there is.
    pub(crate) fn read_some(&mut self) -> Result<Vec<u8>, Broken> {
        if self.buffer.is_empty() {
            self.fill(&Deadline::after(self.patience))?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Everything until the other side ends, and how it did.
    pub(crate) fn read_to_end(&mut self) -> (Vec<u8>, Broken) {
        let deadline = Deadline::after(self.patience);
        loop {
            if let Err(end) = self.fill(&deadline) {
                return (std::mem::take(&mut self.buffer), end);
            }
        }
    }

    /// What was read and not asked for yet.
    pub(crate) fn unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(count);
        std::mem::replace(&mut self.buffer, rest)
    }

    fn fill(&mut self, deadline: &Deadline) -> Result<(), Broken> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let left = deadline.left().ok_or(Broken::TimedOut)?;
            let read = self.stream.set_read_timeout(Some(left));
            match read.and_then(|()| (&*self.stream).read(&mut chunk)) {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut => {}
                    _ => return Err(Broken::Reset),
                },
            }
        }
    }
}

pub(crate) fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len()).position(|window| window == mark)
}

//! Single HTTP requests, to look at answers before and after the load.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

/// No answer of the peers is larger.
const MAX_ANSWER: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer; header names in lower case.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The first value of the header, whose name is given in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .find_map(|(found, value)| found.eq_ignore_ascii_case(name).then_some(value.trim()))
    }
}

/// GET, on a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// Sends a whole request that asks for the connection to be closed.
pub(crate) fn send(address: SocketAddr, request: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").context("the answer has no end of its head")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok(Answer {
        status: status.context("the answer has no status")?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

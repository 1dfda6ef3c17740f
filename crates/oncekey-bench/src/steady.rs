//! A load of a constant rate, whatever the other side does: an open loop.
//!
//! 1. Request number n is due at the n-th part of a second, and its time counts from then on: when
//!    an answer is late, the requests that had to wait behind it are late, too, and are told so.
//! 2. A connection that is free takes the next number. Each has a thread of its own that blocks,
//!    for timers of an event loop are as coarse as the times that are measured.
//! 3. A number that was not sent [`BEHIND`] after the time was over is an error: the other side did
//!    not keep up, and a percentile of what it did would say nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use oncekey::clock::{Clock, Stamp};

use crate::wrk::{PATH, body};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How late the last requests may be sent.
const BEHIND: Duration = Duration::from_secs(2);

/// No answer is larger.
const MAX_ANSWER: usize = 64 << 10;

/// How hard, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    pub(crate) seconds: u32,
    pub(crate) connections: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) requests: u64,
    /// 99 of a hundred requests took no longer since they were due, in microseconds.
    pub(crate) p99: f64,
}

/// Sends requests with new keys, all beginning with `prefix`, to `address`.
pub(crate) fn run(address: SocketAddr, prefix: &str, rate: Rate) -> Result<Times> {
    let clock = Clock::real();
    let load = Load {
        address,
        prefix,
        rate,
        next: AtomicU64::new(0),
        // Every connection is open by then.
        begun: clock.now().after(Duration::from_millis(200)),
        clock,
    };
    let taken: Result<Vec<Vec<u64>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..rate.connections).map(|_| scope.spawn(|| load.send())).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(taken) => taken,
            Err(_) => bail!("a connection panicked"),
        };
        threads.into_iter().map(join).collect()
    });
    let mut taken: Vec<u64> = taken?.into_iter().flatten().collect();
    taken.sort_unstable();
    let p99 = *taken.get(taken.len() * 99 / 100).context("not one request")?;
    #[allow(clippy::cast_precision_loss)] // Microseconds of a few seconds.
    Ok(Times { requests: taken.len() as u64, p99: p99 as f64 })
}

struct Load<'a> {
    address: SocketAddr,
    prefix: &'a str,
    rate: Rate,
    /// The number of the next request.
    next: AtomicU64,
    begun: Stamp,
    clock: Clock,
}

impl Load<'_> {
    /// One connection: how long each of its requests took, in microseconds.
    fn send(&self) -> Result<Vec<u64>> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let end = self.begun.after(Duration::from_secs(self.rate.seconds.into()));
        let (mut taken, mut buffer) = (Vec::new(), Vec::with_capacity(4096));
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let due = self.due(number);
            if due >= end {
                return Ok(taken);
            }
            let now = self.clock.now();
            ensure!(now < end.after(BEHIND), "{} did not keep up with the rate", self.address);
            let early = due.since(now);
            if !early.is_zero() {
                thread::sleep(early);
            }
            stream.write_all(self.request(number).as_bytes())?;
            answer(&mut stream, &mut buffer)?;
            let took = self.clock.now().since(due).as_micros();
            taken.push(u64::try_from(took).unwrap_or(u64::MAX));
        }
    }

    fn due(&self, number: u64) -> Stamp {
        #[allow(clippy::cast_precision_loss)] // Far fewer than 2^53 requests.
        self.begun.after(Duration::from_secs_f64(number as f64 / self.rate.per_second))
    }

    fn request(&self, number: u64) -> String {
        let (prefix, body) = (self.prefix, body());
        format!(
            "POST {PATH} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n\
             Idempotency-Key: \"{prefix}-{number}\"\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}

/// Reads one answer of success to its end.
fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    let mut chunk = [0; 4096];
    loop {
        if let Some(whole) = whole(buffer)? {
            ensure!(buffer.len() == whole, "more came than one answer");
            return Ok(());
        }
        let read = stream.read(&mut chunk)?;
        ensure!(read > 0, "the connection was closed");
        ensure!(buffer.len() + read <= MAX_ANSWER, "the answer has no end");
        buffer.extend_from_slice(&chunk[..read]);
    }
}

/// How long the answer that begins with `bytes` is, once enough of it is there.
fn whole(bytes: &[u8]) -> Result<Option<usize>> {
    const HEAD_END: &[u8] = b"\r\n\r\n";
    let end = bytes.windows(HEAD_END.len()).position(|window| window == HEAD_END);
    let Some(head) = end.map(|end| end + HEAD_END.len()) else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head]).context("the head is no text")?;
    ensure!(text.starts_with("HTTP/1.1 200 "), "not every request was answered with success");
    let length = text.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    let whole = head + length.context("the answer tells no length")??;
    Ok((bytes.len() >= whole).then_some(whole))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn an_answer_ends_where_its_length_says() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(whole(text).unwrap(), Some(text.len()));
        assert_eq!(whole(&text[..text.len() - 1]).unwrap(), None);
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\nCont").unwrap(), None);
        assert!(whole(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").is_err());
        assert!(whole(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    /// Answers every request at once, but lets the first one of all wait.
    fn server(pause: Duration) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut chunk, mut pause) = ([0; 4096], Some(pause));
            // The requests are sent whole, one at a time.
            while stream.read(&mut chunk).unwrap() > 0 {
                if let Some(pause) = pause.take() {
                    thread::sleep(pause);
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        });
        address
    }

    #[test]
    fn requests_that_wait_behind_a_late_answer_are_late_themselves() {
        let rate = Rate { per_second: 100.0, seconds: 2, connections: 1 };
        let times = run(server(Duration::from_millis(500)), "late", rate).unwrap();
        assert_eq!(times.requests, 200);
        // One answer of two hundred was late, but fifty requests were due meanwhile.
        assert!(times.p99 >= 450_000.0, "{times:?}");
    }

    #[test]
    fn a_server_that_does_not_keep_up_fails_the_run() {
        let rate = Rate { per_second: 100.0, seconds: 1, connections: 1 };
        let run = run(server(BEHIND + Duration::from_millis(1500)), "never", rate);
        assert!(run.unwrap_err().to_string().contains("keep up"));
    }
}

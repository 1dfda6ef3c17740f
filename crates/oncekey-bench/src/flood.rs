//! What a flood does to everybody else: how long other keys wait during it, and before it.
//!
//! 1. The probe is open-loop: requests are due at a fixed rate, and a late answer does not put off
//!    the next one, so what it waits for is counted in full.
//! 2. `flood.NAME.p99.ratio` is the probe's p99 during the flood, divided by that just before it; a
//!    second precedes each. That of the flood is told as `flood.NAME.arrival.p99`: thousands of
//!    clients that start on the same processors are in it.
//! 3. Every probe is a new key and must be answered with 200; each flood must stand when it is
//!    measured.
//! 4. All of it shares this machine: what a flood costs its own clients counts against it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use oncekey::clock::Clock;

use crate::process::{Peer, free_ports};
use crate::report::{Report, median};

/// Probes a second.
const RATE: u64 = 200;

/// Threads that send them.
const PROBES: u64 = 8;

/// How hard, and how often.
pub(crate) struct Load {
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    /// Clients of a flood that only wait.
    pub(crate) clients: usize,
}

/// A kind of flood.
#[derive(Clone, Copy)]
enum Flood {
    /// A thousand new keys a second at a route that is not there.
    Keys,
    /// Uploads that do not go on.
    Uploads,
    /// Heads of 60 KiB that do not end.
    Heads,
    /// A hundred waiters on each of some keys.
    Waiters,
    /// Five hundred connections a second, one after another.
    Connections,
}

const ALL: [(&str, Flood); 5] = [
    ("keys", Flood::Keys),
    ("uploads", Flood::Uploads),
    ("heads", Flood::Heads),
    ("waiters", Flood::Waiters),
    ("connections", Flood::Connections),
];

/// Measures the gateway that was built to `program`.
pub(crate) fn run(program: &Path, load: &Load) -> Result<Report> {
    let disk = program.parent().context("the gateway lies in a folder")?;
    let application = Application::start()?;
    let mut report = Report::default();
    for (name, flood) in ALL {
        let mut found = [Vec::new(), Vec::new(), Vec::new()];
        let mut most = 0.0_f64;
        for round in 1..=load.rounds {
            let folder = tempfile::Builder::new().prefix("oncekey-flood-").tempdir_in(disk)?;
            let [listen, admin] = free_ports::<2>()?;
            let mut command = Command::new(program);
            command.args(["serve", "--upstream", &format!("http://{}", application.address)]);
            command.args(["--listen", &listen.to_string(), "--admin", &admin.to_string()]);
            command.arg("--data").arg(folder.path().join("data"));
            command.env("ONCEKEY__DEFAULTS__IN_PROGRESS", "{ wait = \"10m\" }");
            command.env("ONCEKEY__DEFAULTS__MAX_RUN", "15m");
            command.env("ONCEKEY__UPSTREAM__TIMEOUT", "10m");
            command.env("ONCEKEY__SERVER__BODY_TIMEOUT", "10m");
            command.env("ONCEKEY__SERVER__HEADER_TIMEOUT", "10m");
            let mut gateway = Peer::start("oncekey", &mut command, folder.path())?;
            gateway.wait_until_ready(admin, "/readyz")?;
            probe(listen, "warm", 1)?;
            let before = probe(listen, "before", load.seconds)?;
            let (over, standing) = (AtomicBool::new(false), AtomicUsize::new(0));
            let (arrival, during) = thread::scope(|scope| {
                let (over, standing) = (&over, &standing);
                let flooding = scope.spawn(move || flood.run(listen, load.clients, over, standing));
                while standing.load(Ordering::SeqCst) == 0 && !flooding.is_finished() {
                    thread::sleep(Duration::from_millis(10));
                }
                let arrival = probe(listen, "arrival", 1);
                let during = probe(listen, "during", load.seconds);
                most = most.max(gateway.resident().unwrap_or(0.0));
                over.store(true, Ordering::SeqCst);
                let ended = flooding.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
                ended?;
                anyhow::Ok((arrival?, during?))
            })?;
            gateway.demand_alive()?;
            eprintln!("round {round}: {name} {before:.0} us before, {during:.0} us during");
            found[0].push(before);
            found[1].push(during);
            found[2].push(arrival);
        }
        let [before, during, arrival] = found.map(median);
        report.figure(format!("flood.{name}.before.p99"), before, "us");
        report.figure(format!("flood.{name}.arrival.p99"), arrival, "us");
        report.figure(format!("flood.{name}.p99"), during, "us");
        report.figure(format!("flood.{name}.rss"), most, "MiB");
        report.ratio(&format!("flood.{name}.p99"), during, before);
    }
    Ok(report)
}

/// The p99 of new keys at the fixed rate, in microseconds.
fn probe(gateway: SocketAddr, phase: &str, seconds: u32) -> Result<f64> {
    let clock = Clock::real();
    let begun = clock.now();
    let every = Duration::from_secs(1) * u32::try_from(PROBES)? / u32::try_from(RATE)?;
    let each = u64::from(seconds) * RATE / PROBES;
    let took = thread::scope(|scope| {
        let threads: Vec<_> = (0..PROBES)
            .map(|number| {
                let clock = clock.clone();
                scope.spawn(move || -> Result<Vec<f64>> {
                    let mut stream = TcpStream::connect(gateway)?;
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
                    let mut took = Vec::new();
                    for turn in 0..each {
                        let offset = every * u32::try_from(number)? / u32::try_from(PROBES)?;
                        let due = begun.after(every * u32::try_from(turn)? + offset);
                        thread::sleep(due.since(clock.now()));
                        let request = keyed("/pay", &format!("{phase}-{number}-{turn}"));
                        stream.write_all(request.as_bytes())?;
                        let status = status(&mut stream)?;
                        ensure!(status == 200, "a probe was answered with {status}");
                        took.push(clock.now().since(due).as_secs_f64() * 1e6);
                    }
                    Ok(took)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|one| one.join());
        let joined = joined.map(|one| one.unwrap_or_else(|why| std::panic::resume_unwind(why)));
        joined.collect::<Result<Vec<_>>>()
    })?;
    let mut took = took.concat();
    took.sort_by(f64::total_cmp);
    took.get(took.len() * 99 / 100).copied().context("no probe was answered")
}

fn keyed(path: &str, key: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nIdempotency-Key: {key}\r\n\
         Content-Length: 2\r\n\r\n{{}}"
    )
}

/// Reads one answer with a length; its status.
fn status(stream: &mut TcpStream) -> Result<u16> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).unwrap_or("0");
            let length: usize = length.split("\r\n").next().unwrap_or("0").parse()?;
            if body.len() >= length {
                let code = head.split(' ').nth(1).context("an answer has a status")?;
                return Ok(code.parse()?);
            }
        }
        let count = stream.read(&mut piece)?;
        ensure!(count > 0, "the gateway closed a connection");
        bytes.extend_from_slice(&piece[..count]);
    }
}

impl Flood {
    /// Floods until it is over. Counts up `standing` once the flood stands.
    fn run(
        self,
        gateway: SocketAddr,
        clients: usize,
        over: &AtomicBool,
        standing: &AtomicUsize,
    ) -> Result<()> {
        let stands = || standing.fetch_add(1, Ordering::SeqCst);
        match self {
            Self::Keys | Self::Connections => {
                stands();
                let keys = matches!(self, Self::Keys);
                let pause = if keys { Duration::from_millis(1) } else { Duration::from_millis(2) };
                let mut stream = TcpStream::connect(gateway)?;
                let mut number = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    number += 1;
                    if !keys {
                        stream = TcpStream::connect(gateway)?;
                    }
                    let key = if keys { format!("flood-{number}") } else { "flood".to_owned() };
                    stream.write_all(keyed("/missing", &key).as_bytes())?;
                    let status = status(&mut stream)?;
                    ensure!(status == 404, "the flood was answered with {status}");
                    thread::sleep(pause);
                }
            }
            Self::Uploads | Self::Heads | Self::Waiters => {
                let mut held = Vec::with_capacity(clients);
                for number in 0..clients {
                    let mut stream = TcpStream::connect(gateway)?;
                    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
                    // What is not read does not fit into the sockets' buffers for ever.
                    let _ = stream.write_all(self.bytes(number).as_bytes());
                    held.push(stream);
                }
                stands();
                while !over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
        Ok(())
    }

    fn bytes(self, number: usize) -> String {
        let head = "POST /pay HTTP/1.1\r\nHost: bench\r\n";
        match self {
            Self::Heads => format!("{head}X-Long: {}", "x".repeat(60 * 1024)),
            Self::Waiters => keyed("/held", &format!("hot-{}", number / 101)),
            _ => {
                format!("{head}Idempotency-Key: slow-{number}\r\nContent-Length: 1048576\r\n\r\nx")
            }
        }
    }
}

/// An application: 404 at `/missing`, nothing at `/held`, 200 elsewhere.
struct Application {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Application {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let over = Arc::<AtomicBool>::default();
        let told = Arc::clone(&over);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if told.load(Ordering::Relaxed) {
                    return;
                }
                thread::spawn(move || serve(stream));
            }
        });
        Ok(Self { address, over })
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut read = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        read.extend_from_slice(&piece[..count]);
        if !read.ends_with(b"{}") {
            continue;
        }
        let status = match &read {
            read if read.starts_with(b"POST /held") => {
                // The gateway closes the connection when it ends.
                let _ = stream.read(&mut piece);
                return;
            }
            read if read.starts_with(b"POST /missing") => 404,
            _ => 200,
        };
        read.clear();
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

//! The gateway against nginx, on the same application.
//!
//! 1. `gateway.new` and `gateway.pass` are compared with nginx as a plain proxy under the very same
//!    requests, `gateway.replay` with nginx answering by itself.
//! 2. The gateway keeps its records on the disk that holds the build, each claim and each
//!    completion synced.
//! 3. `gateway.p99` compares the slow answers at half of `gateway.new`'s rate with nginx's at the
//!    same rate, which comes constantly whatever the answers take: [`steady`].
//! 4. The application counts: as many requests reach it as there were new keys, and none for
//!    replays. So a key used twice by mistake, or a replay that ran, fails the bench.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::nginx::{ANSWER, Nginx};
use crate::plain::{self, Answer};
use crate::process::{Peer, free_ports};
use crate::report::{Report, median};
use crate::steady::{self, Rate, Times};
use crate::wrk::{self, Keys, Run, Wrk};

/// How hard, and how often.
pub(crate) struct Load {
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) connections: u32,
}

/// How long a fresh gateway is left alone before its memory is read.
const REST: Duration = Duration::from_secs(1);

/// One measurement of every round.
struct Lane {
    name: &'static str,
    address: SocketAddr,
    keys: Keys,
    runs: Vec<Run>,
}

impl Lane {
    fn new(name: &'static str, address: SocketAddr, keys: Keys) -> Self {
        Self { name, address, keys, runs: Vec::new() }
    }

    fn per_second(&self) -> f64 {
        median(self.runs.iter().map(|run| run.per_second))
    }
}

/// Measures the gateway that was built to `program`.
pub(crate) fn run(program: &Path, load: &Load) -> Result<Report> {
    let disk = program.parent().context("the gateway lies in a folder")?;
    let folder = tempfile::Builder::new().prefix("oncekey-bench-").tempdir_in(disk)?;
    let mut nginx = Nginx::start(folder.path())?;
    let mut gateway = Gateway::start(program, &folder, nginx.upstream)?;
    thread::sleep(REST);
    let resident = gateway.peer.resident()?;

    prime(gateway.listen)?;
    let mut lanes = [
        Lane::new("nginx.answer", nginx.upstream, Keys::Known),
        Lane::new("gateway.replay", gateway.listen, Keys::Known),
        Lane::new("nginx.proxy", nginx.proxy, Keys::None),
        Lane::new("gateway.pass", gateway.listen, Keys::None),
        Lane::new("nginx.proxy.keyed", nginx.proxy, Keys::Fresh),
        Lane::new("gateway.new", gateway.listen, Keys::Fresh),
    ];
    let connections = load.connections;
    let mut load_generator = Wrk { folder: folder.path().to_owned(), connections, runs: 0 };
    for lane in &lanes {
        load_generator.run(lane.address, lane.keys, 1)?; // Connections and memory warm up.
    }
    for round in 1..=load.rounds {
        for lane in &mut lanes {
            let before = nginx.requests()?;
            let run = load_generator.run(lane.address, lane.keys, load.seconds)?;
            gateway.peer.demand_alive()?;
            if lane.address == gateway.listen {
                let reached = nginx.requests()?.saturating_sub(before);
                expect_reached(lane, run.requests, reached, load)?;
            }
            eprintln!("round {round}: {} {:.0} /s", lane.name, run.per_second);
            lane.runs.push(run);
        }
    }
    let slow = slow_answers(&lanes, &mut nginx, &mut gateway, load)?;
    demand_replays(gateway.listen)?;
    let mut report = report(&lanes, resident, gateway.peer.resident()?);
    let [proxy, new] = slow;
    report.figure("nginx.proxy.steady.p99", proxy, "us");
    report.figure("gateway.new.steady.p99", new, "us");
    report.ratio("gateway.p99", new, proxy);
    Ok(report)
}

/// The p99 of new keys at half of the gateway's rate, of nginx and of the gateway.
fn slow_answers(
    lanes: &[Lane; 6],
    nginx: &mut Nginx,
    gateway: &mut Gateway,
    load: &Load,
) -> Result<[f64; 2]> {
    let [.., proxy, new] = lanes;
    let (per_second, connections) = (new.per_second() / 2.0, load.connections);
    let rate = Rate { per_second, seconds: load.seconds, connections };
    let mut taken = [const { Vec::new() }; 2];
    for round in 1..=load.rounds {
        for (lane, taken) in [proxy, new].into_iter().zip(&mut taken) {
            let before = nginx.requests()?;
            let prefix = format!("steady-{round}-{}", lane.name);
            let Times { requests, p99 } = steady::run(lane.address, &prefix, rate)?;
            gateway.peer.demand_alive()?;
            if lane.address == gateway.listen {
                let reached = nginx.requests()?.saturating_sub(before);
                expect_reached(lane, requests, reached, load)?;
            }
            eprintln!("round {round}: {} p99 {p99:.0} us at {per_second:.0} /s", lane.name);
            taken.push(p99);
        }
    }
    Ok(taken.map(median))
}

fn report(lanes: &[Lane; 6], idle: f64, loaded: f64) -> Report {
    let mut report = Report::default();
    for lane in lanes {
        report.figure(lane.name, lane.per_second(), "/s");
        let p99 = median(lane.runs.iter().map(|run| run.p99));
        report.figure(format!("{}.p99", lane.name), p99, "us");
    }
    report.figure("gateway.idle_rss", idle, "MiB");
    report.figure("gateway.loaded_rss", loaded, "MiB");
    let [answer, replay, proxy, pass, proxy_keyed, new] = lanes;
    for (ours, theirs) in [(new, proxy_keyed), (replay, answer), (pass, proxy)] {
        report.ratio(ours.name, ours.per_second(), theirs.per_second());
    }
    report
}

/// A running gateway.
struct Gateway {
    peer: Peer,
    listen: SocketAddr,
}

impl Gateway {
    fn start(program: &Path, folder: &TempDir, upstream: SocketAddr) -> Result<Self> {
        let [listen, admin] = free_ports::<2>()?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--upstream").arg(format!("http://{upstream}"));
        command.arg("--listen").arg(listen.to_string()).arg("--admin").arg(admin.to_string());
        command.arg("--data").arg(folder.path().join("data"));
        let mut peer = Peer::start("oncekey", &mut command, folder.path())?;
        peer.wait_until_ready(admin, "/readyz")?;
        Ok(Self { peer, listen })
    }
}

/// Uses every known key once, so that the load meets only replays.
fn prime(gateway: SocketAddr) -> Result<()> {
    for number in 0..wrk::KNOWN_KEYS {
        let answer = post(gateway, &wrk::known_key(number))?;
        ensure!(answer.status == 200, "a new key was answered with {}", answer.status);
        ensure!(answer.header("idempotent-replayed").is_none(), "a new key was a replay");
        ensure!(answer.body == ANSWER, "a new key got another body: {}", answer.body);
    }
    demand_replays(gateway)
}

/// Every known key is answered as first, and said to be.
fn demand_replays(gateway: SocketAddr) -> Result<()> {
    for number in 0..wrk::KNOWN_KEYS {
        let answer = post(gateway, &wrk::known_key(number))?;
        ensure!(answer.status == 200, "a replay was answered with {}", answer.status);
        ensure!(answer.header("idempotent-replayed") == Some("true"), "a known key was no replay");
        ensure!(answer.body == ANSWER, "a replay has another body: {}", answer.body);
    }
    Ok(())
}

fn post(gateway: SocketAddr, key: &str) -> Result<Answer> {
    let body = wrk::body();
    plain::send(
        gateway,
        &format!(
            "POST {} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n\
             Idempotency-Key: \"{key}\"\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            wrk::PATH,
            body.len()
        ),
    )
}

/// What must have reached the application in one run through the gateway. Requests that were under
/// way when the load ended are not among the answered ones.
fn expect_reached(lane: &Lane, answered: u64, reached: u64, load: &Load) -> Result<()> {
    let expected = match lane.keys {
        Keys::Known => 0..=0,
        Keys::None | Keys::Fresh => answered..=answered + u64::from(load.connections),
    };
    ensure!(
        expected.contains(&reached),
        "{}: {answered} requests were answered, and {reached} reached the application",
        lane.name
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_that_ran_and_a_key_used_twice_fail_the_bench() {
        let load = Load { rounds: 1, seconds: 1, connections: 64 };
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let reached = |keys, count| {
            expect_reached(&Lane::new("lane", address, keys), 1000, count, &load).is_ok()
        };
        assert!(reached(Keys::Known, 0) && !reached(Keys::Known, 1));
        assert!(reached(Keys::Fresh, 1064) && !reached(Keys::Fresh, 999));
        assert!(reached(Keys::None, 1000) && !reached(Keys::None, 1065));
    }
}

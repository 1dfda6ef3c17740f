//! Peers as child processes: started on free ports, waited for, and ended with the bench.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use oncekey::clock::Clock;

use crate::plain;

/// How long a peer may take to start.
const START: Duration = Duration::from_secs(20);

/// How long a peer that was told to end may take.
const END: Duration = Duration::from_secs(5);

/// A running peer; ended when it is dropped.
pub(crate) struct Peer {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Peer {
    /// Starts it, its output in `name.log` in `folder`.
    pub(crate) fn start(name: &'static str, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file =
            fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, log })
    }

    /// Returns once `GET path` is answered with 200.
    pub(crate) fn wait_until_ready(&mut self, address: SocketAddr, path: &str) -> Result<()> {
        let clock = Clock::real();
        let begun = clock.now();
        let mut last = String::from("no answer");
        while clock.now().since(begun) < START {
            match plain::get(address, path) {
                Ok(answer) if answer.status == 200 => return Ok(()),
                Ok(answer) => last = format!("{} {}", answer.status, answer.body.trim()),
                Err(_) => {} // Not listening yet.
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}: {}", self.name, self.said());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("{} was not ready after {START:?} ({last}): {}", self.name, self.said())
    }

    /// Is it still running? An error with its last words if not.
    pub(crate) fn demand_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}: {}", self.name, self.said()),
        }
    }

    /// Returns once it has ended by itself; dropping ends what has not by then.
    pub(crate) fn wait_for_end(&mut self) {
        let clock = Clock::real();
        let begun = clock.now();
        while clock.now().since(begun) < END && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Resident memory in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        resident(self.child.id())
    }

    /// The end of its output.
    fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended by itself.
        let _ = self.child.wait();
    }
}

/// Resident memory of a process, in MiB.
pub(crate) fn resident(id: u32) -> Result<f64> {
    let path = format!("/proc/{id}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let kib = resident_kib(&status).with_context(|| format!("{path} tells no VmRSS"))?;
    Ok(kib / 1024.0)
}

fn resident_kib(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Ports that nobody listens on, all different.
pub(crate) fn free_ports<const N: usize>() -> Result<[SocketAddr; N]> {
    let mut held = Vec::with_capacity(N);
    let mut found = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for address in &mut found {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
        *address = listener.local_addr()?;
        held.push(listener);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_what_the_kernel_tells() {
        assert_eq!(resident_kib("Name:\tx\nVmRSS:\t   2048 kB\n"), Some(2048.0));
        assert_eq!(resident_kib("Name:\tx\n"), None);
    }

    #[test]
    fn free_ports_differ() {
        let [a, b] = free_ports::<2>().expect("two ports are free");
        assert_ne!(a, b);
    }

    #[test]
    fn a_peer_that_dies_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no luck; exit 7"]);
        let mut peer = Peer::start("peer", &mut command, folder.path()).expect("it starts");
        let [address] = free_ports::<1>().expect("a port is free");
        let error = peer.wait_until_ready(address, "/").expect_err("it died");
        assert!(error.to_string().contains("no luck"), "{error}");
        assert!(peer.demand_alive().is_err());
    }
}

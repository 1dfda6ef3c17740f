//! The process that holds a store: started, told what to do line by line, killed.

use std::io::{BufRead, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use oncekey::clock::Clock;

use crate::process;

/// A running store. Ended with `kill -9` when it is dropped.
pub(crate) struct Child {
    process: Process,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// How long it took to open, in seconds.
    pub(crate) opened: f64,
}

/// What came of a steady load, in milliseconds from the moment that a claim was due.
pub(crate) struct Steady {
    pub(crate) longest: f64,
    pub(crate) p99: f64,
}

/// Fills a folder in a process of its own: what that leaves in memory is no store's. Says how many
/// seconds it took.
pub(crate) fn fill(program: &Path, folder: &Path, records: u64) -> Result<f64> {
    let clock = Clock::real();
    let begun = clock.now();
    let mut command = Command::new(program);
    command.arg("embedded-fill").arg(folder).arg(records.to_string());
    let status = command.stdin(Stdio::null()).status().context("cannot start the filling")?;
    ensure!(status.success(), "the filling ended with {status}");
    Ok(clock.now().since(begun).as_secs_f64())
}

impl Child {
    /// Opens the store in `folder`.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("embedded-serve").arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("cannot start a store")?;
        let orders = process.stdin.take().context("the store takes orders")?;
        let answers = process.stdout.take().context("the store answers")?;
        let answers = BufReader::new(answers).lines();
        let mut child = Self { process, orders, answers, opened: 0.0 };
        let [micros] = child.answer("opened")?;
        child.opened = micros / 1e6;
        Ok(child)
    }

    /// Claims and completions a second, as many as it can.
    pub(crate) fn busy(&mut self, seconds: u32) -> Result<f64> {
        writeln!(self.orders, "busy {seconds}")?;
        let [per_second] = self.answer("busy")?;
        Ok(per_second)
    }

    /// A steady load of `per_second` claims and completions.
    pub(crate) fn steady(&mut self, seconds: u32, per_second: f64) -> Result<Steady> {
        writeln!(self.orders, "steady {seconds} {per_second:.0}")?;
        let [longest, p99] = self.answer("steady")?;
        Ok(Steady { longest: longest / 1e3, p99: p99 / 1e3 })
    }

    /// Kills it in the middle of as much load as it can take.
    pub(crate) fn kill_while_busy(mut self, seconds: u32) -> Result<()> {
        writeln!(self.orders, "busy {}", 10 * seconds)?;
        thread::sleep(Duration::from_secs(seconds.into()));
        ensure!(self.process.try_wait()?.is_none(), "the store ended before it was killed");
        Ok(()) // Dropping kills it.
    }

    /// Resident memory in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        process::resident(self.process.id())
    }

    /// The numbers of the next line, which must begin with `name`.
    fn answer<const N: usize>(&mut self, name: &str) -> Result<[f64; N]> {
        let line = self.answers.next().context("the store ended by itself")??;
        let numbers = line.strip_prefix(name).map(str::split_whitespace);
        let numbers =
            numbers.into_iter().flatten().map(str::parse).collect::<Result<Vec<f64>, _>>();
        match numbers.ok().and_then(|numbers| numbers.try_into().ok()) {
            Some(numbers) => Ok(numbers),
            None => bail!("the store said {line}"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill(); // It may have ended by itself.
        let _ = self.process.wait();
    }
}

//! The embedded store with many records: what it slows down to, and what it costs.
//!
//! 1. `embedded.scale` compares claims and completions a second of a full store with those of one
//!    that holds a fiftieth of its records. Both are filled before, are open at once, and take
//!    turns.
//! 2. The records lie as traffic of more than a day leaves them: spread evenly over every bucket
//!    of one retention class, all of them still kept, with outcomes of 120 bytes.
//! 3. Each store lives in a process of its own, with the one thread that loads it, so that its
//!    memory can be told and it can be killed with `kill -9` while it is loaded.
//! 4. A pause is how long the slowest claim took from the moment that it was due, at half of the
//!    full store's rate: a claim that had to wait for others counts its wait.
//! 5. The folders lie on the disk that holds the build, and are deleted at the end.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::report::{Report, median};

mod child;
mod fill;
mod serve;

use child::Child;
pub(crate) use fill::fill;
pub(crate) use serve::serve;

/// How much, how long, how often.
pub(crate) struct Load {
    pub(crate) records: u64,
    pub(crate) rounds: u32,
    /// Each measurement of a round takes so long.
    pub(crate) seconds: u32,
    /// The steady load takes so long.
    pub(crate) minutes: u32,
}

/// How many times more records the full store has.
const TIMES: u64 = 50;

/// How often the full store is killed and opened again.
const KILLS: u32 = 3;

/// What the full store takes on the disk for each record, at most.
const BYTES: u64 = 450;

/// Fills, loads, kills.
pub(crate) fn run(load: &Load) -> Result<Report> {
    let program = std::env::current_exe()?;
    let disk = program.parent().context("the bench lies in a folder")?;
    let needed = load.records * BYTES + (2 << 30);
    let free = free_bytes(disk)?;
    ensure!(free > needed, "{} has {free} bytes free, not {needed}", disk.display());
    let folder = tempfile::Builder::new().prefix("oncekey-bench-").tempdir_in(disk)?;
    let (few, many) = (folder.path().join("few"), folder.path().join("many"));
    for (path, records) in [(&few, load.records / TIMES), (&many, load.records)] {
        eprintln!("filling {} with {records} records", path.display());
        let seconds = child::fill(&program, path, records)?;
        eprintln!("filled in {seconds:.0} s");
    }

    let mut report = Report::default();
    let (mut small, mut full) = (Child::start(&program, &few)?, Child::start(&program, &many)?);
    let (mut at_few, mut at_many) = (Vec::new(), Vec::new());
    for round in 0..=load.rounds {
        let (few, many) = (small.busy(load.seconds)?, full.busy(load.seconds)?);
        let what = if round == 0 { "warm-up" } else { "round" };
        eprintln!("{what} {round}: {few:.0} /s with few records, {many:.0} /s with many");
        if round > 0 {
            at_few.push(few);
            at_many.push(many);
        }
    }
    let (at_few, at_many) = (median(at_few), median(at_many));
    report.figure("embedded.few", at_few, "/s");
    report.figure("embedded.many", at_many, "/s");
    report.ratio("embedded.scale", at_many, at_few);
    drop(small);

    eprintln!("a steady load of {:.0} /s for {} minutes", at_many / 2.0, load.minutes);
    let steady = full.steady(load.minutes * 60, at_many / 2.0)?;
    report.figure("embedded.memory", full.resident()?, "MiB");
    report.figure("embedded.stall", steady.longest, "ms");
    report.figure("embedded.stall.p99", steady.p99, "ms");

    let mut opened = Vec::new();
    for kill in 1..=KILLS {
        full.kill_while_busy(load.seconds)?;
        full = Child::start(&program, &many)?;
        eprintln!("kill {kill}: open again after {:.2} s", full.opened);
        opened.push(full.opened);
    }
    full.busy(1)?;
    report.figure("embedded.open", opened.into_iter().fold(0.0, f64::max), "s");
    Ok(report)
}

/// What may still be written to the disk that holds `path`.
fn free_bytes(path: &Path) -> Result<u64> {
    let mut df = std::process::Command::new("df");
    let output = df.args(["--block-size=1", "--output=avail"]).arg(path).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().and_then(|line| line.trim().parse().ok());
    last.with_context(|| format!("df tells no free space: {said}"))
}

//! `oncekey store`: looks after a data folder while no gateway has it open (A4).
//!
//! - The folder is the one that `serve` would use: `--data`, else what the configuration and the
//!   environment say, else `./oncekey-data`.
//! - Results go to standard output, what went wrong to standard error; `--json` puts one object on
//!   standard output either way, with `ok` and, where it did not work, `error`.
//! - 0: done, or nothing is wrong. 1: something is damaged. 2: usage. 3: it could not be done, such
//!   as in a folder that is in use.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use oncekey::clock::Stamp;
use serde_json::{Value, json};

use super::Exit;
use crate::config::{self, Flags, LoadError, StoreKind};

mod accept;
mod backup;
mod check;

/// `oncekey store`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StoreArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub command: StoreCommand,
}

/// What to do with a data folder.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
#[non_exhaustive]
pub enum StoreCommand {
    /// Look whether everything in it is intact, changing nothing
    Check(Place),
    /// Go on without what is missing from it, and write down who says so
    AcceptLoss(AcceptLossArgs),
    /// Copy it to another folder, with checksums
    Backup(BackupArgs),
    /// Make it anew from a backup
    Restore(RestoreArgs),
}

/// Which data folder, and for whom the answer is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Place {
    /// The data folder [default: that of the configuration, else ./oncekey-data]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// The configuration file that names the data folder
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// `oncekey store accept-loss`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct AcceptLossArgs {
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Why it is right to go on; kept in the folder
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who decides; kept in the folder [default: the user's name]
    #[arg(long, value_name = "NAME")]
    pub who: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// `oncekey store backup`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct BackupArgs {
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// The folder for the backup; empty, or not there yet
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,
}

/// `oncekey store restore`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RestoreArgs {
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// The folder of the backup
    #[arg(long, value_name = "FOLDER")]
    pub from: PathBuf,
}

/// Runs it with the process's own environment and streams.
pub fn run(args: &StoreArgs) -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let streams = &mut Streams { out: &mut out, err: &mut err };
    let ended = match &args.command {
        StoreCommand::Check(place) => check::run(place, streams),
        StoreCommand::AcceptLoss(args) => accept::run(args, streams),
        StoreCommand::Backup(args) => backup::back_up(args, streams),
        StoreCommand::Restore(args) => backup::restore(args, streams),
    };
    // Nobody reads any more, or the disk is full: there is nobody left to tell.
    ended.unwrap_or(Exit::Trouble).into()
}

/// Where to say things.
struct Streams<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

impl Streams<'_> {
    /// Answers a program.
    fn answer(&mut self, value: &Value) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *self.out, value)?;
        writeln!(self.out)?;
        self.out.flush()
    }

    /// Says why it did not work.
    fn refuse(&mut self, place: &Place, exit: Exit, why: &dyn Display) -> io::Result<Exit> {
        if place.json {
            self.answer(&json!({ "ok": false, "error": why.to_string() }))?;
        } else {
            writeln!(self.err, "oncekey: {why}")?;
        }
        Ok(exit)
    }
}

/// Why it is not known which folder is meant.
#[derive(Debug, thiserror::Error)]
enum NoFolder {
    #[error(transparent)]
    Config(#[from] LoadError),
    #[error("the configuration keeps no records in a folder: name one with --data")]
    OtherStore,
}

impl Place {
    /// The data folder, as `serve` would find it.
    fn folder(&self) -> Result<PathBuf, NoFolder> {
        if let Some(data) = &self.data {
            return Ok(data.clone());
        }
        let loaded = config::load(self.config.as_deref(), std::env::vars_os(), &Flags::default())?;
        match loaded.config.store.kind {
            StoreKind::Embedded => Ok(loaded.config.store.path),
            _ => Err(NoFolder::OtherStore),
        }
    }
}

/// A moment, for people and programs alike.
fn moment(stamp: Stamp) -> String {
    let micros = i64::try_from(stamp.as_micros()).unwrap_or(i64::MAX);
    // What no calendar has comes from a broken clock.
    Timestamp::from_microsecond(micros).map_or_else(
        |_| "at no time".into(),
        |at| at.round(jiff::Unit::Second).unwrap_or(at).to_string(),
    )
}

/// So many bytes, for people.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a4_sizes_and_moments_are_for_people() {
        assert_eq!([0, 1023].map(size), ["0 B", "1023 B"]);
        assert_eq!([1024, 3 << 19, u64::MAX].map(size), ["1.0 KiB", "1.5 MiB", "16384.0 PiB"]);
        assert_eq!(moment(Stamp::from_micros(1_764_565_200_400_000)), "2025-12-01T05:00:00Z");
        assert_eq!(moment(Stamp::from_micros(u64::MAX)), "at no time");
    }
}

//! `oncekey check FILE`: judges a configuration and prints the effective one (A3).
//!
//! - Errors, warnings and notes go to standard error, the effective configuration to standard
//!   output: `oncekey check FILE > effective.toml` keeps them apart.
//! - `--json` puts one object on standard output: `ok`, `findings`, `effective`.
//! - 0: it holds, perhaps with warnings. 1: it is refused. 3: it could not be read.
//!
//! The environment counts, as it does for `serve`; flags that `serve` would be given do not.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::{CheckArgs, Exit};
use crate::config::{self, Diagnostic, Flags, LoadError, Loaded, Severity};

/// Runs it with the process's own environment and streams.
pub fn run(args: &CheckArgs) -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let ended = check(args, std::env::vars_os(), &mut out, &mut err);
    // Nobody reads any more, or the disk is full: there is nobody left to tell.
    ended.unwrap_or(Exit::Trouble).into()
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    ok: bool,
    findings: &'a [Diagnostic],
    effective: Option<String>,
}

/// Runs it with a given environment and streams.
pub fn check(
    args: &CheckArgs,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Exit> {
    let (loaded, findings) = match config::load(Some(&args.file), environment, &Flags::default()) {
        Ok(Loaded { config, remarks, .. }) => (Some(config), remarks),
        Err(LoadError::Rejected(rejected)) => (None, rejected.findings),
        Err(trouble) => {
            writeln!(err, "error: {trouble}")?;
            return Ok(Exit::Trouble);
        }
    };
    let effective = loaded.as_ref().map(config::Config::effective);
    let exit = if loaded.is_some() { Exit::Done } else { Exit::No };
    if args.json {
        let answer = Answer { ok: loaded.is_some(), findings: &findings, effective };
        serde_json::to_writer_pretty(&mut *out, &answer)?;
        writeln!(out)?;
        return Ok(exit);
    }
    for severity in [Severity::Error, Severity::Warning, Severity::Note] {
        for finding in findings.iter().filter(|finding| finding.severity == severity) {
            writeln!(err, "{finding}")?;
        }
    }
    if let Some(effective) = effective {
        write!(out, "{effective}")?;
    } else {
        let errors = findings.iter().filter(|found| found.severity == Severity::Error).count();
        let plural = if errors == 1 { "error" } else { "errors" };
        writeln!(err, "{}: refused, {errors} {plural}", args.file.display())?;
    }
    out.flush()?;
    Ok(exit)
}

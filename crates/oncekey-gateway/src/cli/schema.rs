//! `oncekey config schema`: the JSON Schema of the configuration file, for editors (A3).

use std::io::{self, Write};
use std::process::ExitCode;

use super::Exit;
use crate::config;

/// Prints it on standard output.
pub fn run() -> ExitCode {
    let printed = print(&mut io::stdout().lock());
    printed.map_or(Exit::Trouble, |()| Exit::Done).into()
}

/// Prints it.
pub fn print(out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &config::schema())?;
    writeln!(out)?;
    out.flush()
}

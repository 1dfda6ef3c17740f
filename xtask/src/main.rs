//! The project's own commands: `cargo xtask test`, `cargo xtask ci`, `cargo xtask bench NAME`,
//! `cargo xtask fuzz NAME`.
//!
//! 1. Whatever a command needs beyond Rust, git and Debian's package manager it installs itself,
//!    and says so.
//! 2. A command ends with an error if anything in it failed. Nothing is skipped in silence.
//! 3. All builds share one target folder: `CARGO_TARGET_DIR`, else `~/.cache/oncekey-target`.

#![allow(clippy::print_stderr)] // Telling what it does is a command's duty.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

mod bench;
mod ci;
mod features;
mod fuzz;
mod provide;
mod stopwatch;
mod suite;
mod workspace;

use workspace::Workspace;

/// The project's own commands
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every test, after installing what the tests need
    Test(suite::TestArgs),
    /// Check formatting, lints, features, documents and licences, then run every test
    Ci(CiArgs),
    /// Measure against the peers that the bench starts itself
    Bench(bench::BenchArgs),
    /// Try any bytes on the parsers, with libFuzzer
    Fuzz(fuzz::FuzzArgs),
}

#[derive(Args)]
struct CiArgs {
    /// Leave the tests out
    #[arg(long)]
    no_test: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let workspace = Workspace::find()?;
    match command {
        Command::Test(args) => suite::run(&workspace, &args),
        Command::Ci(args) => {
            let tests = if args.no_test { ci::Tests::LeftOut } else { ci::Tests::Run };
            ci::run(&workspace, tests)
        }
        Command::Bench(args) => bench::run(&workspace, &args),
        Command::Fuzz(args) => fuzz::run(&workspace, &args),
    }
}

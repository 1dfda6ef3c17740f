//! Benches: what oncekey costs beside what it stands in front of or competes with.
//!
//! 1. Everything compared is measured in the same run, in rounds that take turns, and the medians
//!    are compared: machines differ and drift, ratios much less.
//! 2. A bench starts its peers itself, on free ports of the loopback, and stops by itself.
//! 3. A bench fails if an answer was wrong: speed of errors is no speed.
//!
//! Results go to standard output as `name value unit`, ratios last; progress to standard error.

#![allow(clippy::print_stdout, clippy::print_stderr)] // Figures are what it is for.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, value_parser};

mod embedded;
mod flood;
mod gateway;
mod layer;
mod nginx;
mod plain;
mod process;
mod report;
mod steady;
mod wrk;

use report::Format;

/// Measures oncekey; `cargo xtask bench` builds and starts it
#[derive(Parser)]
#[command(name = "oncekey-bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The gateway against nginx: new keys, replays, no keys, memory at rest
    Gateway(GatewayArgs),
    /// What floods do to other keys' p99
    Flood(FloodArgs),
    /// The layer around an axum handler, in one process
    Layer(Shared),
    /// The embedded store with many records: rate, memory, pauses, opening after `kill -9`
    Embedded(EmbeddedArgs),
    /// Fills a folder for `embedded`
    #[command(hide = true)]
    EmbeddedFill { folder: PathBuf, records: u64 },
    /// Serves a folder for `embedded`
    #[command(hide = true)]
    EmbeddedServe { folder: PathBuf },
}

#[derive(Args)]
struct GatewayArgs {
    /// The built gateway
    #[arg(long, value_name = "FILE")]
    gateway: PathBuf,
    /// How long each measurement of a round takes
    #[arg(long, value_name = "N", default_value_t = 6)]
    #[arg(value_parser = value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Connections that the load comes over
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = value_parser!(u32).range(2..=1024))]
    connections: u32,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Args)]
struct FloodArgs {
    /// The built gateway
    #[arg(long, value_name = "FILE")]
    gateway: PathBuf,
    /// How long the others are measured before and during each flood
    #[arg(long, value_name = "N", default_value_t = 6)]
    #[arg(value_parser = value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Clients that only wait; each takes an open file here and in the gateway
    #[arg(long, value_name = "N", default_value_t = 5000)]
    #[arg(value_parser = value_parser!(u32).range(101..=16_000))]
    clients: u32,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Args)]
struct EmbeddedArgs {
    /// Records of the full store; the other one has a fiftieth
    #[arg(long, value_name = "N", default_value_t = 50_000_000)]
    #[arg(value_parser = value_parser!(u64).range(1000..=1_000_000_000))]
    records: u64,
    /// How long each measurement of a round takes
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How long the steady load takes
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = value_parser!(u32).range(1..=600))]
    minutes: u32,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Args)]
struct Shared {
    /// Rounds, of which the medians count
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// For programs
    #[arg(long)]
    json: bool,
}

impl Shared {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Lines }
    }
}

fn main() -> ExitCode {
    let (measured, format) = match Cli::parse().command {
        Command::Gateway(args) => {
            let load = gateway::Load {
                rounds: args.shared.rounds,
                seconds: args.seconds,
                connections: args.connections,
            };
            (gateway::run(&args.gateway, &load), args.shared.format())
        }
        Command::Flood(args) => {
            let load = flood::Load {
                rounds: args.shared.rounds,
                seconds: args.seconds,
                clients: args.clients as usize,
            };
            (flood::run(&args.gateway, &load), args.shared.format())
        }
        Command::Layer(shared) => (layer::run(shared.rounds), shared.format()),
        Command::Embedded(args) => {
            let load = embedded::Load {
                records: args.records,
                rounds: args.shared.rounds,
                seconds: args.seconds,
                minutes: args.minutes,
            };
            (embedded::run(&load), args.shared.format())
        }
        // Parts of a bench report to it.
        Command::EmbeddedFill { folder, records } => {
            return ended(embedded::fill(&folder, records));
        }
        Command::EmbeddedServe { folder } => return ended(embedded::serve(&folder)),
    };
    ended(measured.map(|report| report.print(format)))
}

fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oncekey-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

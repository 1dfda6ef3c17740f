//! The binary `oncekey`: a gateway that makes each request happen once.

use std::process::ExitCode;

use clap::Parser as _;
use oncekey_gateway::cli::{self, Cli, Servers};
use oncekey_gateway::{demo, serve};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(Cli::parse(), Servers { serve: serve::run, demo: demo::run })
}

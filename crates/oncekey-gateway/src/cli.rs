//! The command line.
//!
//! Exit codes, for every command: 0 done, 1 the answer is no, 2 usage, 3 trouble with the store, a
//! file or the network.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Flags;

pub mod check;
mod progress;
pub mod schema;
pub mod store;

/// Makes each request happen once, in front of any application.
#[derive(Debug, Parser)]
#[command(name = "oncekey", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Run the gateway in front of an application
    Serve(ServeArgs),
    /// Run a toy shop with the gateway in front of it
    Demo(DemoArgs),
    /// Judge a configuration and print the effective one
    Check(CheckArgs),
    /// About the configuration file
    Config(ConfigArgs),
    /// Look after a data folder while no gateway has it open
    Store(store::StoreArgs),
}

/// `oncekey serve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ServeArgs {
    /// The application, such as http://127.0.0.1:3000; needed here or in the file
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// Address and port for clients [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Address and port for health and metrics [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,
    /// The data folder [default: ./oncekey-data]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<String>,
    /// A configuration file; flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ServeArgs {
    /// The flags that set a field of the configuration.
    pub fn flags(&self) -> Flags {
        Flags {
            upstream: self.upstream.clone(),
            listen: self.listen.clone(),
            admin: self.admin.clone(),
            data: self.data.clone(),
        }
    }
}

/// `oncekey demo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct DemoArgs {
    /// Address and port for clients [default: 127.0.0.1:8080, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Address and port for health and metrics [default: 127.0.0.1:9090, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
}

/// `oncekey check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CheckArgs {
    /// The configuration file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// `oncekey config`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ConfigArgs {
    /// What about it.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What about the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
#[non_exhaustive]
pub enum ConfigCommand {
    /// Print its JSON Schema
    Schema,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done; the answer is yes.
    Done,
    /// The answer is no.
    No,
    /// The command line is wrong.
    Usage,
    /// Store, file or network trouble.
    Trouble,
}

impl Exit {
    /// The code that the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Trouble => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The commands that run until they are stopped, implemented elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Servers {
    /// `oncekey serve`.
    pub serve: fn(ServeArgs) -> ExitCode,
    /// `oncekey demo`.
    pub demo: fn(DemoArgs) -> ExitCode,
}

/// Runs a command that was read with [`Parser::parse`], which ends wrong usage with code 2.
pub fn run(cli: Cli, servers: Servers) -> ExitCode {
    match cli.command {
        Command::Serve(args) => (servers.serve)(args),
        Command::Demo(args) => (servers.demo)(args),
        Command::Check(args) => check::run(&args),
        Command::Config(ConfigArgs { command: ConfigCommand::Schema }) => schema::run(),
        Command::Store(args) => store::run(&args),
    }
}

#[cfg(test)]
mod tests;

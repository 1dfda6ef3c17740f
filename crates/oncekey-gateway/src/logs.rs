//! The log: text for people on a terminal, JSON for programs elsewhere.
//!
//! Keys and bodies are never logged; a record is named by its id.

use std::io::IsTerminal;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{Log, LogFormat, LogLevel};

/// Starts logging to standard error. `RUST_LOG` narrows or widens what is told.
///
/// # Errors
/// When logging was started before in this process.
pub fn start(log: &Log) -> Result<(), TryInitError> {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry
            .with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr))
            .try_init()
    } else {
        let ansi = std::io::stderr().is_terminal();
        registry
            .with(fmt::layer().with_target(false).with_ansi(ansi).with_writer(std::io::stderr))
            .try_init()
    }
}

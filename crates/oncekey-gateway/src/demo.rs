//! `oncekey demo`: a toy shop, the gateway in front of it, and what to try on them (A1).
//!
//! 1. The shop listens on a free port of the loopback address and knows nothing of the gateway.
//! 2. The gateway listens on 127.0.0.1:8080 and its admin side on 127.0.0.1:9090; where one of them
//!    is taken, a free port is used instead. An address that was asked for is used or refused.
//! 3. The gateway is the one that `serve` runs, with other settings.
//! 4. The records lie in a temporary folder that is gone when [`run`] returns.
//! 5. The first Ctrl-C (or SIGTERM) stops the gateway gracefully and then the shop; a second one
//!    stops waiting for them.

mod greeting;
mod ledger;
pub mod shop;

use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as Probe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::{DemoArgs, Exit};
use crate::config::{self, Flags, Loaded, Log, LogLevel, Rejected};
use crate::gateway::{Gateway, StartError};
use crate::logs;
use greeting::{Greeting, Style};

const PREFERRED_LISTEN: u16 = 8080;
const PREFERRED_ADMIN: u16 = 9090;

/// Shorter than the slow story takes: its first answer is then `outcome-unknown`.
const SETTINGS: &str = "[upstream]\ntimeout = \"2s\"\nconnect_timeout = \"1s\"\n";

/// Why the demo could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The temporary folder cannot be made.
    #[error("cannot make a temporary folder for the records: {0}")]
    Folder(#[source] io::Error),
    /// Signals cannot be received.
    #[error("cannot wait for Ctrl-C: {0}")]
    Signal(#[source] io::Error),
    /// The shop did not start, or stopped.
    #[error("the toy shop stopped: {0}")]
    Shop(#[source] io::Error),
    /// What was asked for on the command line is no configuration.
    #[error(transparent)]
    Config(#[from] Rejected),
    /// The gateway did not start.
    #[error(transparent)]
    Gateway(#[from] StartError),
    /// The gateway's store failed.
    #[error("the store failed")]
    Store,
}

/// Runs the command.
#[must_use]
#[allow(clippy::print_stderr)] // The last word, when there is nothing else left to tell it.
pub fn run(args: DemoArgs) -> ExitCode {
    // The demo speaks by its own text; the log is for trouble.
    let log = Log { level: LogLevel::Error, ..Log::default() };
    let started = logs::start(&log).is_ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match (runtime, started) {
        (Ok(runtime), true) => runtime.block_on(demonstrate(&args)),
        (Err(error), _) => Err(DemoError::Signal(error)),
        (_, false) => return Exit::Trouble.into(),
    };
    match ended {
        Ok(()) => Exit::Done.into(),
        Err(error) => {
            eprintln!("oncekey demo: {error}");
            Exit::Trouble.into()
        }
    }
}

async fn demonstrate(args: &DemoArgs) -> Result<(), DemoError> {
    let folder =
        tempfile::Builder::new().prefix("oncekey-demo-").tempdir().map_err(DemoError::Folder)?;
    let mut signals = Signals::new().map_err(DemoError::Signal)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(DemoError::Shop)?;
    let shop_address = listener.local_addr().map_err(DemoError::Shop)?;
    let stop_shop = CancellationToken::new();
    let _stop_on_early_return = stop_shop.clone().drop_guard();
    let mut shop = tokio::spawn(shop::serve(listener, stop_shop.clone().cancelled_owned()));

    let gateway = Gateway::start(configuration(args, shop_address, folder.path())?).await?;
    greet(&Greeting {
        gateway: gateway.address(),
        admin: gateway.admin(),
        shop: shop_address,
        folder: folder.path(),
    });
    let failed = gateway.store_failed();
    tokio::select! {
        () = signals.next() => {}
        () = failed.cancelled() => return Err(DemoError::Store),
        ended = &mut shop => return shop_ended(ended),
    }
    say("\n  Stopping. Ctrl-C again stops at once.\n");
    let stopping = async {
        gateway.stop().await;
        stop_shop.cancel();
        shop_ended(shop.await)
    };
    tokio::select! {
        ended = stopping => ended,
        () = signals.next() => Ok(()),
    }
}

fn shop_ended(ended: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), DemoError> {
    ended.map_err(io::Error::other).and_then(|result| result).map_err(DemoError::Shop)
}

/// The settings of a gateway in front of the shop.
fn configuration(args: &DemoArgs, shop: SocketAddr, folder: &Path) -> Result<Loaded, Rejected> {
    let flags = Flags {
        upstream: Some(format!("http://{shop}")),
        listen: Some(choose(args.listen, PREFERRED_LISTEN).to_string()),
        admin: Some(choose(args.admin, PREFERRED_ADMIN).to_string()),
        data: Some(folder.to_string_lossy().into_owned()),
    };
    let file = (PathBuf::from("demo"), SETTINGS.to_owned());
    // No environment: the demo is the same on every machine.
    config::parse(Some(file), [], &flags)
}

/// What was asked for; else the preferred port, or any free one where that is taken.
fn choose(asked: Option<SocketAddr>, preferred: u16) -> SocketAddr {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    asked.unwrap_or_else(|| match Probe::bind(loopback(preferred)) {
        Ok(_) => loopback(preferred),
        Err(_) => loopback(0),
    })
}

fn greet(greeting: &Greeting<'_>) {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let style = if io::stdout().is_terminal() && !plain { Style::Coloured } else { Style::Plain };
    say(&greeting.text(style));
}

/// Writes to standard output. A reader that went away is no reason to stop the demo.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Ctrl-C and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
#[path = "demo/tests.rs"]
mod tests;

//! `oncekey demo`: a toy shop, the gateway in front of it, and what to try on them.
//!
//! 1. The shop listens on a free port of the loopback address and knows nothing of the gateway.
//! 2. The gateway listens on 127.0.0.1:8080 and its admin side on 127.0.0.1:9090; where one of them
//!    is taken, a free port is used instead. An address that was asked for is used or refused.
//! 3. Both listeners are bound here and handed over open, so no other process can take the port
//!    between the choice and its use.
//! 4. The records lie in a temporary folder that is gone when [`run`] returns.
//! 5. The first Ctrl-C (or SIGTERM) stops the gateway gracefully and then the shop; a second one
//!    stops waiting for them.
//!
//! How a gateway is started is the caller's: [`run`] takes it as a function, so that the demo is
//! `serve` with other settings and not a gateway of its own.

mod greeting;
mod ledger;
pub mod shop;

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use greeting::{Greeting, Style};

const PREFERRED_LISTEN: u16 = 8080;
const PREFERRED_ADMIN: u16 = 9090;

/// What the command line says about the demo.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DemoArgs {
    /// Where the gateway listens [default: 127.0.0.1:8080, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Where its health and metrics are [default: 127.0.0.1:9090, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
}

/// Everything a gateway needs to stand in front of the shop.
#[derive(Debug)]
pub struct GatewayPlan {
    /// The open listener for clients.
    pub listen: TcpListener,
    /// The open listener for health and metrics.
    pub admin: TcpListener,
    /// Where the shop listens.
    pub upstream: SocketAddr,
    /// An empty folder for the records.
    pub data: PathBuf,
    /// All of this, and the time-out that the slow story needs, as a configuration file.
    pub config: String,
    /// Cancelled when the gateway has to stop gracefully.
    pub stop: CancellationToken,
}

/// A gateway that accepts connections.
#[derive(Debug)]
pub struct RunningGateway {
    /// Where clients reach it.
    pub listen: SocketAddr,
    /// Where health and metrics are.
    pub admin: SocketAddr,
    /// Ends when the gateway does: after `stop` was cancelled, or earlier with what went wrong.
    pub finished: JoinHandle<anyhow::Result<()>>,
}

/// Why the demo could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The temporary folder cannot be made.
    #[error("cannot make a temporary folder for the records")]
    Folder(#[source] io::Error),
    /// Signals cannot be received.
    #[error("cannot wait for Ctrl-C")]
    Signal(#[source] io::Error),
    /// The shop stopped.
    #[error("the toy shop stopped")]
    Shop(#[source] io::Error),
    /// The gateway did not start, or ended with an error.
    #[error("the gateway stopped: {0:#}")]
    Gateway(anyhow::Error),
}

/// Runs the demo until it is told to stop, on a gateway that `start_gateway` starts.
///
/// `start_gateway` must return once the gateway accepts connections.
///
/// # Errors
/// When something does not start, or the shop or the gateway ends before it was told to.
pub async fn run<S, F>(args: DemoArgs, start_gateway: S) -> Result<(), DemoError>
where
    S: FnOnce(GatewayPlan) -> F,
    F: Future<Output = anyhow::Result<RunningGateway>>,
{
    let folder = tempfile::Builder::new()
        .prefix("oncekey-demo-")
        .tempdir()
        .map_err(DemoError::Folder)?;
    let listen = bind(args.listen, PREFERRED_LISTEN).await?;
    let admin = bind(args.admin, PREFERRED_ADMIN).await?;
    let shop = bind(None, 0).await?;
    let shop_address = address_of(&shop)?;

    // Two switches: the gateway finishes what runs before the shop may go.
    let stop_gateway = CancellationToken::new();
    let stop_shop = CancellationToken::new();
    let _stop_on_early_return = (stop_gateway.clone().drop_guard(), stop_shop.clone().drop_guard());
    let shop = tokio::spawn(shop::serve(shop, stop_shop.clone().cancelled_owned()));

    let plan = GatewayPlan {
        config: configuration(&listen, &admin, shop_address, folder.path())?,
        listen,
        admin,
        upstream: shop_address,
        data: folder.path().to_owned(),
        stop: stop_gateway.clone(),
    };
    let gateway = start_gateway(plan).await.map_err(DemoError::Gateway)?;
    greet(&Greeting {
        gateway: gateway.listen,
        admin: gateway.admin,
        shop: shop_address,
        folder: folder.path(),
    });
    until_stopped(gateway, shop, &stop_gateway, &stop_shop).await
}

/// Waits for the end: a signal, or one of the two servers giving up.
async fn until_stopped(
    gateway: RunningGateway,
    mut shop: JoinHandle<io::Result<()>>,
    stop_gateway: &CancellationToken,
    stop_shop: &CancellationToken,
) -> Result<(), DemoError> {
    let mut finished = gateway.finished;
    let mut signals = Signals::new().map_err(DemoError::Signal)?;
    tokio::select! {
        () = signals.next() => {}
        ended = &mut finished => return gateway_ended(ended),
        ended = &mut shop => return shop_ended(ended),
    }
    say("\n  Stopping. Ctrl-C again stops at once.\n");
    let stopping = async {
        stop_gateway.cancel();
        gateway_ended((&mut finished).await)?;
        stop_shop.cancel();
        shop_ended((&mut shop).await)
    };
    let ended = tokio::select! {
        ended = stopping => ended,
        () = signals.next() => Ok(()),
    };
    finished.abort();
    shop.abort();
    ended
}

fn gateway_ended(
    ended: Result<anyhow::Result<()>, tokio::task::JoinError>,
) -> Result<(), DemoError> {
    ended.map_err(anyhow::Error::from).and_then(|result| result).map_err(DemoError::Gateway)
}

fn shop_ended(ended: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), DemoError> {
    ended.map_err(io::Error::other).and_then(|result| result).map_err(DemoError::Shop)
}

/// Binds what was asked for; else the preferred port, or any free one where that is taken.
async fn bind(asked: Option<SocketAddr>, preferred: u16) -> Result<TcpListener, DemoError> {
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let address = asked.unwrap_or_else(|| loopback(preferred));
    let refused = match TcpListener::bind(address).await {
        Ok(listener) => return Ok(listener),
        Err(source) => source,
    };
    if asked.is_some() {
        return Err(DemoError::Listen { address, source: refused });
    }
    let address = loopback(0);
    TcpListener::bind(address).await.map_err(|source| DemoError::Listen { address, source })
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, DemoError> {
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    listener.local_addr().map_err(|source| DemoError::Listen { address: unknown, source })
}

/// The plan as a configuration file.
fn configuration(
    listen: &TcpListener,
    admin: &TcpListener,
    upstream: SocketAddr,
    data: &Path,
) -> Result<String, DemoError> {
    let listen = address_of(listen)?;
    let admin = address_of(admin)?;
    // A folder may hold quotes and backslashes, so its escaping is left to the TOML writer.
    let path = toml::Value::String(data.to_string_lossy().into_owned());
    Ok(format!(
        "[server]\nlisten = \"{listen}\"\n\n\
         [admin]\nlisten = \"{admin}\"\n\n\
         [upstream]\nurl = \"http://{upstream}\"\n\
         # Shorter than the slow story takes: its first answer is then `outcome-unknown`.\n\
         timeout = \"2s\"\n\n\
         [store]\nkind = \"embedded\"\npath = {path}\n"
    ))
}

fn greet(greeting: &Greeting<'_>) {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let style =
        if io::stdout().is_terminal() && !plain { Style::Coloured } else { Style::Plain };
    say(&greeting.text(style));
}

/// Writes to standard output. A reader that went away is no reason to stop the demo.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Ctrl-C, and SIGTERM where there is one.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    #[cfg(not(unix))]
    fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        // Without a handler the system ends the process by itself, which is an answer too.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
#[path = "demo/tests.rs"]
mod tests;

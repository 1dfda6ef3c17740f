//! `oncekey serve`: the gateway until a signal ends it (A2, A5, U5).

use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{Exit, ServeArgs};
use crate::config::{self, LoadError, Loaded, Origin, Place, Severity};
use crate::files::{self, Share};
use crate::gateway::{Gateway, StartError, data_folder};
use crate::{folder, logs};

/// Runs the command.
#[must_use]
pub fn run(args: ServeArgs) -> ExitCode {
    let loaded = match load(&args) {
        Ok(loaded) => loaded,
        Err(error) => return refuse(exit(&error), &error),
    };
    if let Err(error) = logs::start(&loaded.config.log) {
        return refuse(Exit::Trouble, &error);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(Exit::Trouble, &error),
    };
    runtime.block_on(serve(&args, loaded)).into()
}

fn load(args: &ServeArgs) -> Result<Loaded, LoadError> {
    config::load(args.config.as_deref(), std::env::vars_os(), &args.flags())
}

/// A file that is refused is a no; one that cannot be read is trouble; and where the flags alone
/// are to blame, the command line is wrong (A4).
fn exit(error: &LoadError) -> Exit {
    let LoadError::Rejected(rejected) = error else { return Exit::Trouble };
    let errors = rejected.findings.iter().filter(|found| found.severity == Severity::Error);
    let by_flag = |place: &Place| matches!(place.origin, Origin::Flag(_));
    let mut places = errors.map(|found| found.place.as_ref());
    if places.all(|place| place.is_some_and(by_flag)) { Exit::Usage } else { Exit::No }
}

#[allow(clippy::print_stderr)] // Before there is a log.
fn refuse(exit: Exit, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("oncekey: {error}");
    exit.into()
}

async fn serve(args: &ServeArgs, loaded: Loaded) -> Exit {
    for remark in &loaded.remarks {
        match remark.severity {
            Severity::Note => tracing::info!("{remark}"),
            _ => tracing::warn!("{remark}"),
        }
    }
    if let Some(folder) = data_folder(&loaded.config)
        && let Some(doubt) = folder::doubt(&folder)
    {
        tracing::warn!(folder = %folder.display(), "THE DATA FOLDER IS NOT SAFE: {doubt}");
    }
    files::raise();
    let share = Share::now();
    if let (Some(wanted), Some(limit)) = (share.wanted(), share.limit) {
        tracing::warn!(
            limit,
            wanted,
            clients = share.clients,
            "few files may be open: raise the limit (ulimit -n, LimitNOFILE) for more clients"
        );
    }
    let signals = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::hangup()),
    );
    let (Ok(terminate), Ok(interrupt), Ok(hangup)) = signals else {
        tracing::error!("signals cannot be listened to");
        return Exit::Trouble;
    };
    match Gateway::start(loaded).await {
        Ok(gateway) => {
            tracing::info!(
                listen = %gateway.address(),
                admin = %gateway.admin(),
                "listening"
            );
            until_stopped(args, gateway, (terminate, interrupt, hangup)).await
        }
        Err(error) => {
            tracing::error!("{error}");
            match error {
                StartError::NoUpstream(_) | StartError::Upstream(_) => Exit::Usage,
                _ => Exit::Trouble,
            }
        }
    }
}

async fn until_stopped(
    args: &ServeArgs,
    mut gateway: Gateway,
    (mut terminate, mut interrupt, mut hangup): (Signal, Signal, Signal),
) -> Exit {
    let failed = gateway.store_failed();
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => reload(args, &mut gateway),
            () = failed.cancelled() => {
                // Nothing is retried on a doubtful file (X7).
                gateway.fail();
                match gateway.failure() {
                    Some(failure) => tracing::error!("the process ends: {failure}"),
                    None => tracing::error!("the process ends: the store failed"),
                }
                // At once: a write that hangs must not hold up the end, and whatever else is
                // dropped on the way might wait for it.
                std::process::exit(Exit::Trouble.code().into());
            }
        }
    }
    tracing::info!("stopping: running work is finished first");
    let cut = gateway.stop().await;
    if cut > 0 {
        tracing::warn!(cut, "runs were cut off: their outcome is unknown");
    }
    if failed.is_cancelled() {
        tracing::error!("the store failed while the process was stopping; see the message before");
        std::process::exit(Exit::Trouble.code().into());
    }
    tracing::info!("stopped");
    Exit::Done
}

/// Reads the configuration again and puts its routes in force, if nothing else changed (A5).
fn reload(args: &ServeArgs, gateway: &mut Gateway) {
    let loaded = match load(args) {
        Ok(loaded) => loaded,
        Err(error) => {
            tracing::error!("the new configuration is refused, the old one stays: {error}");
            return;
        }
    };
    if let Some(refusal) = gateway.config().reload_refusal(&loaded.config) {
        tracing::error!("the new configuration is refused, the old one stays: {refusal}");
        return;
    }
    let waiting = gateway.config().at_next_start(&loaded.config).join(", ");
    if !waiting.is_empty() {
        tracing::warn!(sections = waiting, "some changes take effect at the next start");
    }
    gateway.reload(loaded.config);
    tracing::info!("reloaded: the new routes are in force");
}

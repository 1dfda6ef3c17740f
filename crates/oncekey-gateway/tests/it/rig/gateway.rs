//! The built binary: started on a port of its own, killed, stopped, restarted on the same data.
//!
//! 1. It is ready when it logs `"message":"listening"`; the addresses come from that line.
//! 2. The port and the data folder stay the same over restarts, so that a client can try again.
//! 3. No variable of the environment that oncekey reads comes from the machine.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::port::Port;
use super::process::Process;

/// How a process ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// The exit code; none after a signal.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(super) fn wait(mut process: Process) -> Self {
        let status = process.wait_for_exit();
        let (out, err) = (process.out.all().join("\n"), process.err.all().join("\n"));
        Self { status, out, err }
    }
}

/// Runs the binary with these arguments to its end.
#[track_caller]
pub(crate) fn oncekey(arguments: &[&str]) -> Ended {
    Ended::wait(Process::start(binary().args(arguments)))
}

/// The binary in an environment without settings.
pub(super) fn binary() -> Command {
    clean(env!("CARGO_BIN_EXE_oncekey"))
}

fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("ONCEKEY") || text == "RUST_LOG" {
            command.env_remove(&name);
        }
    }
    command
}

/// The binary under a limit of open files.
fn with_files(limit: u32) -> Command {
    let mut command = clean("sh");
    let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_oncekey"));
    command
}

/// What a gateway is started with.
#[derive(Default)]
pub(crate) struct Builder {
    upstream: Option<String>,
    config: Option<String>,
    data: Option<PathBuf>,
    arguments: Vec<OsString>,
    variables: Vec<(String, String)>,
    files: Option<u32>,
}

impl Builder {
    /// The text of a configuration file. Flags for listen, admin, data and upstream win over it.
    pub(crate) fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// The data folder; a temporary one of its own if not given.
    pub(crate) fn data(mut self, folder: &Path) -> Self {
        self.data = Some(folder.to_owned());
        self
    }

    /// One more argument.
    pub(crate) fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// A variable of its environment.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// How many files it may have open.
    pub(crate) fn files(mut self, limit: u32) -> Self {
        self.files = Some(limit);
        self
    }

    /// Starts it and returns when it accepts connections; the test fails if it does not.
    #[track_caller]
    pub(crate) fn start(self) -> Gateway {
        let prepared = self.prepare();
        match prepared.launch() {
            Ok((process, addresses)) => Gateway { prepared, process, addresses },
            Err(ended) => panic!("the gateway does not start: {ended:?}"),
        }
    }

    /// Starts it, for a start that has to fail, and says how it did.
    #[track_caller]
    pub(crate) fn refuse(self) -> Ended {
        match self.prepare().launch() {
            Ok((process, _)) => panic!("the gateway starts: {:?}", process.err.so_far()),
            Err(ended) => ended,
        }
    }

    fn prepare(self) -> Prepared {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = self.config.map(|text| {
            let path = folder.path().join("oncekey.toml");
            fs::write(&path, text).expect("the folder can be written");
            path
        });
        let data = self.data.unwrap_or_else(|| folder.path().join("data"));
        Prepared {
            port: Port::reserve(),
            upstream: self.upstream,
            config,
            data,
            arguments: self.arguments,
            variables: self.variables,
            files: self.files,
            _folder: folder,
        }
    }
}

/// What stays the same over restarts.
struct Prepared {
    port: Port,
    upstream: Option<String>,
    config: Option<PathBuf>,
    data: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(String, String)>,
    files: Option<u32>,
    _folder: TempDir,
}

#[derive(Clone, Copy)]
struct Addresses {
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Prepared {
    fn command(&self) -> Command {
        let mut command = self.files.map_or_else(binary, with_files);
        command.arg("serve");
        command.args(["--listen", &self.port.address().to_string(), "--admin", "127.0.0.1:0"]);
        command.arg("--data").arg(&self.data);
        if let Some(upstream) = &self.upstream {
            command.args(["--upstream", upstream]);
        }
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        command.args(&self.arguments).envs(self.variables.iter().cloned());
        command
    }

    #[track_caller]
    fn launch(&self) -> Result<(Process, Addresses), Ended> {
        let mut process = Process::start(&mut self.command());
        match process.err.find(listening) {
            Some(addresses) => Ok((process, addresses)),
            None if process.exited().is_none() && !process.err.ended() => {
                panic!("the gateway says nothing of listening: {:?}", process.err.so_far())
            }
            None => Err(Ended::wait(process)),
        }
    }
}

fn listening(line: &str) -> Option<Addresses> {
    let line: Value = serde_json::from_str(line).ok()?;
    let address = |name| line[name].as_str()?.parse().ok();
    let ready = line["message"] == "listening";
    ready.then(|| Some(Addresses { listen: address("listen")?, admin: address("admin")? }))?
}

/// A running gateway, or one that was killed and may come back.
pub(crate) struct Gateway {
    prepared: Prepared,
    process: Process,
    addresses: Addresses,
}

impl Gateway {
    /// A gateway in front of this address.
    pub(crate) fn to(upstream: SocketAddr) -> Builder {
        Builder { upstream: Some(format!("http://{upstream}")), ..Builder::default() }
    }

    /// A gateway whose upstream the configuration names.
    pub(crate) fn with_config(text: &str) -> Builder {
        Builder::default().config(text)
    }

    /// Where clients reach it; the same after every restart.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses.listen
    }

    /// Where health and metrics are; another port after every restart.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.addresses.admin
    }

    pub(crate) fn data(&self) -> &Path {
        &self.prepared.data
    }

    /// The configuration file, if one was given.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.prepared.config.as_deref()
    }

    /// The process's id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it as a crash does (SIGKILL), and returns when it is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to stop gracefully (SIGTERM), and returns at once.
    pub(crate) fn terminate(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Asks it to read its configuration again (SIGHUP).
    pub(crate) fn hang_up(&self) {
        self.process.signal(Signal::HUP);
    }

    /// Stands it still (SIGSTOP) until [`go_on`](Self::go_on).
    pub(crate) fn freeze(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Ends [`freeze`](Self::freeze).
    pub(crate) fn go_on(&self) {
        self.process.signal(Signal::CONT);
    }

    /// How it ended, if it did.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.process.exited()
    }

    /// Returns when it has ended.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        self.process.wait_for_exit()
    }

    /// Kills it if it still runs, and starts it again on the same port and data.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.process.kill();
        match self.prepared.launch() {
            Ok((process, addresses)) => (self.process, self.addresses) = (process, addresses),
            Err(ended) => panic!("the gateway does not come back: {ended:?}"),
        }
    }

    /// Kills it if it still runs, starts it again, and kills that start after `moment`, wherever it
    /// is by then.
    pub(crate) fn kill_a_start(&mut self, moment: Duration) {
        self.process.kill();
        self.process = Process::start(&mut self.prepared.command());
        // The moment is what is drawn by lot, not a wait for anything.
        std::thread::sleep(moment);
        self.process.kill();
    }

    /// Kills it if it still runs, and starts it again where that has to fail.
    #[track_caller]
    pub(crate) fn refuse_restart(&mut self) -> Ended {
        self.process.kill();
        match self.prepared.launch() {
            Ok((process, _)) => panic!("the gateway comes back: {:?}", process.err.so_far()),
            Err(ended) => ended,
        }
    }

    /// Every line of the log since the last start.
    pub(crate) fn log(&self) -> Vec<String> {
        self.process.err.so_far()
    }

    /// Everything that it has written since the last start, on both outputs.
    pub(crate) fn said(&self) -> String {
        let mut lines = self.process.out.so_far();
        lines.extend(self.process.err.so_far());
        lines.join("\n")
    }

    /// The first line of the log, written already or to come, for which `is_it` holds.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = self.process.err.find(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            is_it(&line).then_some(line)
        });
        found.unwrap_or_else(|| panic!("the log says nothing of {what}: {:#?}", self.log()))
    }

    /// A sample of its metrics, by the name and labels as they are written; none if it is absent.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let page = super::get(self.admin(), "/metrics");
        page.text().lines().find_map(|line| {
            line.strip_prefix(name)?.strip_prefix(' ')?.split(' ').next()?.parse().ok()
        })
    }
}

//! `oncekey demo` as a process, and what it says on the terminal.

use std::net::SocketAddr;

use rustix::process::Signal;
use tempfile::TempDir;

use super::gateway::{Ended, binary};
use super::process::Process;

/// A running demo.
pub(crate) struct Demo {
    process: Process,
    /// Takes what a demo that is killed leaves behind.
    _temporary: TempDir,
}

impl Demo {
    /// Starts it on free ports and returns when it has said all it has to say.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let mut command = binary();
        command.arg("demo").args(ports).env("TMPDIR", temporary.path());
        let process = Process::start(&mut command);
        let ready = process.out.find(|line| line.contains("Ctrl-C stops").then_some(()));
        assert!(ready.is_some(), "{:?} {:?}", process.out.so_far(), process.err.so_far());
        Self { process, _temporary: temporary }
    }

    /// What it printed.
    pub(crate) fn text(&self) -> String {
        self.process.out.so_far().join("\n")
    }

    /// The address in the row of this name.
    #[track_caller]
    pub(crate) fn address(&self, row: &str) -> SocketAddr {
        let text = self.text();
        let row = text.lines().find_map(|line| line.trim_start().strip_prefix(row));
        let url = row.and_then(|rest| rest.trim_start().strip_prefix("http://"));
        let address = url.and_then(|url| url.split('/').next()).and_then(|text| text.parse().ok());
        address.unwrap_or_else(|| panic!("no address: {text}"))
    }

    /// The lines to paste, in order.
    pub(crate) fn curl_lines(&self) -> Vec<String> {
        let text = self.text();
        text.lines().filter(|line| line.contains("curl ")).map(|line| line.trim().into()).collect()
    }

    /// Presses Ctrl-C and returns when it has ended.
    #[track_caller]
    pub(crate) fn interrupt(self) -> Ended {
        self.process.signal(Signal::INT);
        Ended::wait(self.process)
    }
}

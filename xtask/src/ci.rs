//! `cargo xtask ci`: everything that a change must pass.
//!
//! Every step runs, also after one that failed, and the table at the end shows each.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::stopwatch::Stopwatch;
use crate::suite::{self, TestArgs};
use crate::workspace::{Workspace, run as must};
use crate::{features, provide};

/// Whether the tests are part of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tests {
    Run,
    LeftOut,
}

/// Runs all steps and shows them.
pub(crate) fn run(workspace: &Workspace, tests: Tests) -> Result<()> {
    let mut steps = Steps::default();
    steps.step("formatting", || must(&mut workspace.cargo("fmt --all --check")));
    steps.step("lints", || {
        let all = "clippy --workspace --all-targets --all-features --locked -- -D warnings";
        must(&mut workspace.cargo(all))
    });
    for_each_feature(workspace, &mut steps)?;
    steps.step("documents", || {
        let mut doc = workspace.cargo("doc --workspace --all-features --no-deps --locked");
        must(doc.env("RUSTDOCFLAGS", "-D warnings"))
    });
    steps.step("licences, bans, sources", || {
        let deny = provide::deny(workspace)?;
        // Also of platforms that are not built here; the judge itself needs no network then.
        must(&mut workspace.cargo("fetch --locked --quiet"))?;
        let mut check = workspace.command(deny);
        check.args(["--workspace", "--all-features", "--locked", "--offline"]);
        must(check.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))
    });
    if tests == Tests::Run {
        steps.step("tests", || suite::run(workspace, &TestArgs::default()));
    }
    steps.show()
}

/// No feature at all, then each one by itself: what one forgot is not hidden by another.
fn for_each_feature(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let manifest = workspace.root().join("crates/oncekey/Cargo.toml");
    let manifest = fs::read_to_string(&manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    steps.step("oncekey without features", || check_alone(workspace, "oncekey", None));
    for feature in features::of(&manifest) {
        let name = format!("oncekey with {feature} alone");
        steps.step(&name, || check_alone(workspace, "oncekey", Some(feature)));
    }
    steps.step("gateway without features", || check_alone(workspace, "oncekey-gateway", None));
    Ok(())
}

/// Clippy costs no more than `cargo check`, shares its artifacts, and can deny warnings without
/// building every dependency again.
fn check_alone(workspace: &Workspace, package: &str, feature: Option<&str>) -> Result<()> {
    let mut check = workspace.cargo("clippy --no-default-features --locked --package");
    check.arg(package);
    if let Some(feature) = feature {
        check.args(["--features", feature]);
    }
    must(check.args(["--", "-D", "warnings"]))
}

struct Step {
    name: String,
    took: Duration,
    outcome: Result<()>,
}

#[derive(Default)]
struct Steps(Vec<Step>);

impl Steps {
    fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        eprintln!("\n== {name}");
        let watch = Stopwatch::start();
        let outcome = work();
        self.0.push(Step { name: name.to_owned(), took: watch.read(), outcome });
    }

    /// Prints the table; an error if any step failed.
    fn show(&self) -> Result<()> {
        eprintln!();
        for step in &self.0 {
            let word = if step.outcome.is_ok() { "ok" } else { "FAILED" };
            eprintln!("{:<32} {:>8.1} s  {word}", step.name, step.took.as_secs_f64());
        }
        let failed: Vec<String> = self
            .0
            .iter()
            .filter_map(|step| Some((step, step.outcome.as_ref().err()?)))
            .map(|(step, error)| format!("{}: {error:#}", step.name))
            .collect();
        if !failed.is_empty() {
            bail!("{}", failed.join("\n       "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_step_fails_all_and_keeps_none_from_running() {
        let mut steps = Steps::default();
        let mut ran = 0;
        steps.step("first", || bail!("broken"));
        steps.step("second", || {
            ran += 1;
            Ok(())
        });
        assert_eq!(ran, 1);
        let error = steps.show().expect_err("a step failed");
        assert_eq!(error.to_string(), "first: broken");
    }

    #[test]
    fn steps_that_all_succeeded_are_a_success() {
        let mut steps = Steps::default();
        steps.step("first", || Ok(()));
        steps.show().expect("none failed");
    }
}

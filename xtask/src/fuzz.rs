//! `cargo xtask fuzz [NAME] [--seconds N]`: libFuzzer on the targets in `fuzz/`.
//!
//! 1. It works with stable Rust: the compiler's own flags put coverage into the code, and no
//!    sanitizer is needed, since nothing of ours is unsafe.
//! 2. Seeds are read from `fuzz/corpus/NAME` and never written; what is found on the way is kept
//!    in the target folder, and the next run begins with it.
//! 3. An input that breaks a promise ends the run with an error that names its file. It belongs
//!    into `fuzz/corpus/NAME`, from where every test begins.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::provide;
use crate::workspace::{Workspace, answer, run as must};

/// What `cargo fuzz` would give to the compiler.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// `cargo xtask fuzz`.
#[derive(Args)]
pub(crate) struct FuzzArgs {
    /// A file of `fuzz/fuzz_targets`, without its ending; all of them, one after another, if none
    /// is given
    name: Option<String>,
    /// How long each runs
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Builds and runs.
pub(crate) fn run(workspace: &Workspace, args: &FuzzArgs) -> Result<()> {
    let known = targets(workspace)?;
    let wanted = match &args.name {
        Some(name) if !known.contains(name) => {
            bail!("there is no target `{name}`, but {}", known.join(", "))
        }
        Some(name) => vec![name.clone()],
        None => known,
    };
    provide::cpp()?;
    // Naming the machine keeps the flags away from build scripts and macros.
    let machine = machine()?;
    let target = workspace.target().join("fuzz");
    let mut build = workspace.cargo("build --release --locked --manifest-path fuzz/Cargo.toml");
    build.args(["--target", &machine]).env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", COVERAGE);
    for name in &wanted {
        build.args(["--bin", name]);
    }
    must(&mut build)?;
    for name in &wanted {
        let found = target.join("corpus").join(name);
        fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
        let failed = format!("-artifact_prefix={}/failed-{name}-", target.display());
        // A client that leaves must not end the process: Rust's own `main`, which sees to that, is
        // not there.
        let mut fuzz = workspace.command("env");
        fuzz.arg("--ignore-signal=PIPE").arg(target.join(&machine).join("release").join(name));
        fuzz.arg(&found).arg(workspace.root().join("fuzz/corpus").join(name));
        fuzz.args(["-max_len=4096", "-timeout=60", "-print_final_stats=1"]);
        must(fuzz.arg(format!("-max_total_time={}", args.seconds)).arg(failed))?;
    }
    Ok(())
}

/// The names of the targets, in order.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = workspace.root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .collect::<std::io::Result<Vec<_>>>()?;
    let stem = |path: std::path::PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<_> = entries.iter().filter_map(|entry| stem(entry.path())).collect();
    names.sort();
    Ok(names)
}

/// What rustc calls this machine.
fn machine() -> Result<String> {
    let told = answer(Command::new("rustc").arg("-vV")).context("rustc does not answer")?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say what machine this is")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_found() {
        let targets = targets(&Workspace::find().expect("there is one")).expect("they are read");
        assert!(targets.iter().any(|name| name == "key"), "{targets:?}");
        assert!(!machine().expect("rustc is there").is_empty());
    }
}

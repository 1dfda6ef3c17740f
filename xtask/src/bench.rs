//! `cargo xtask bench NAME`: builds what is measured, sees that the peers are there, and measures.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::provide;
use crate::workspace::{Workspace, run as must};

/// `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    name: Name,
    /// For `oncekey-bench`: `--json`, `--rounds N`, `--seconds N`; `embedded` also takes
    /// `--records N` and `--minutes N`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    more: Vec<String>,
}

/// What can be measured.
#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// The gateway against nginx: new keys, replays, no keys, memory at rest
    Gateway,
    /// What floods do to other keys' p99
    Flood,
    /// The layer around an axum handler, in one process
    Layer,
    /// The embedded store with many records: rate, memory, pauses, opening after `kill -9`
    Embedded,
}

/// Builds and measures.
pub(crate) fn run(workspace: &Workspace, args: &BenchArgs) -> Result<()> {
    let mut build = workspace.cargo("build --release --locked --package oncekey-bench");
    if matches!(args.name, Name::Gateway) {
        provide::nginx_and_wrk()?;
    }
    if matches!(args.name, Name::Gateway | Name::Flood) {
        build.args(["--package", "oncekey-gateway"]);
    }
    must(&mut build)?;
    let built = workspace.target().join("release");
    let mut bench = workspace.command(built.join("oncekey-bench"));
    match args.name {
        Name::Gateway => bench.arg("gateway").arg("--gateway").arg(built.join("oncekey")),
        Name::Flood => bench.arg("flood").arg("--gateway").arg(built.join("oncekey")),
        Name::Layer => bench.arg("layer"),
        Name::Embedded => bench.arg("embedded"),
    };
    must(bench.args(&args.more))
}

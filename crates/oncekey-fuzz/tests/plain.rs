//! Every target by its plain form: on each seed, then on inputs that chance makes of the seeds.
//!
//! `ONCEKEY_FUZZ_SECONDS` says how long each target runs, 10 without it; `ONCEKEY_FUZZ_SEED`
//! repeats a run. An input that fails is written to the target folder's `tmp`.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.
#![allow(clippy::print_stdout)] // How much was tried is part of the answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use oncekey::clock::Clock;
use oncekey_fuzz::{Mutation, TARGETS, Target, mutation};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn run(name: &str) {
    let target = TARGETS.into_iter().find(|target| target.name == name).unwrap();
    let seeds = mutation::seeds(name).unwrap();
    for (seed, bytes) in &seeds {
        try_one(target, bytes, &format!("the seed {seed}"));
    }
    let clock = Clock::real();
    let chance = number("ONCEKEY_FUZZ_SEED").unwrap_or_else(|| clock.now().as_micros());
    let patience = Duration::from_secs(number("ONCEKEY_FUZZ_SECONDS").unwrap_or(10));
    println!("{name}: {} seeds, ONCEKEY_FUZZ_SEED={chance}", seeds.len());
    let end = clock.now().after(patience);
    let mut tried = 0_u64;
    for input in Mutation::new(chance, &seeds, target.words, target.longest) {
        try_one(target, &input, &format!("input {tried} of ONCEKEY_FUZZ_SEED={chance}"));
        tried += 1;
        if clock.now() >= end {
            break;
        }
    }
    println!("{name}: {tried} inputs in {patience:?}");
    assert!(tried > 0);
}

fn try_one(target: Target, input: &[u8], which: &str) {
    if catch_unwind(AssertUnwindSafe(|| (target.check)(input))).is_ok() {
        return;
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-failed", target.name));
    std::fs::write(&path, input).unwrap();
    panic!("{}: {which} fails: {} ({})", target.name, input.escape_ascii(), path.display());
}

#[test]
fn k3_any_bytes_are_one_key_or_none() {
    run("key");
}

#[test]
fn f2_any_body_has_one_canonical_form_or_none() {
    run("json");
}

#[test]
fn f2_any_form_has_one_digest_or_none() {
    run("multipart");
}

#[test]
fn x3_any_stored_bytes_are_one_record_or_none() {
    run("record");
}

#[test]
fn x3_any_journal_is_read_to_its_last_intact_batch() {
    run("journal");
}

#[test]
fn x3_any_log_is_read_to_its_last_whole_frame_and_past_what_is_none() {
    run("log");
}

#[test]
fn a3_any_configuration_prints_itself_or_is_refused_with_a_reason() {
    run("config");
}

#[test]
fn k3_c1_any_request_runs_once_and_has_one_framing() {
    run("request");
}

#[test]
fn every_target_is_run_here_and_by_the_fuzzer() {
    let own = include_str!("plain.rs");
    for target in TARGETS {
        let name = target.name;
        assert!(own.contains(&format!("run(\"{name}\")")), "{name} has no test");
        let fuzzer = mutation::corpus().join(format!("../fuzz_targets/{name}.rs"));
        assert!(fuzzer.is_file(), "{name} has no fuzz target");
        assert!(!mutation::seeds(name).unwrap().is_empty(), "{name} has no seeds");
    }
}

#[test]
fn the_configurations_to_start_from_hold_or_do_not_as_their_names_say() {
    for (name, text) in mutation::seeds("config").unwrap() {
        let refused = ["slip", "no-toml", "contradiction"].contains(&name.as_str());
        let text = String::from_utf8(text).unwrap();
        let file = text.split('\0').next().map(|text| ("oncekey.toml".into(), text.to_owned()));
        let loaded = oncekey_gateway::config::parse(file, [], &Default::default());
        assert_eq!(loaded.is_err(), refused, "{name}: {loaded:?}");
    }
}

#[test]
fn the_same_number_makes_the_same_inputs() {
    let seeds = mutation::seeds("json").unwrap();
    let some = |chance| {
        let inputs = Mutation::new(chance, &seeds, oncekey_fuzz::json::WORDS, 200);
        inputs.take(200).collect::<Vec<_>>()
    };
    assert_eq!(some(7), some(7));
    assert_ne!(some(7), some(8));
    assert!(some(7).iter().all(|input| input.len() <= 200));
}

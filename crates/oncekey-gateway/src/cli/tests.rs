//! Tests of the command line.

use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use super::check::check;
use super::{CheckArgs, Cli, Command, Exit, ServeArgs};

#[test]
fn a2_the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn a2_serve_takes_its_flags() {
    let line = [
        "oncekey",
        "serve",
        "--upstream",
        "http://a:1",
        "--listen",
        "127.0.0.1:1",
        "--admin",
        "127.0.0.1:2",
        "--data",
        "/d",
        "--config",
        "f.toml",
    ];
    let Command::Serve(args) = Cli::try_parse_from(line).expect("it is right").command else {
        panic!("serve was asked for");
    };
    assert_eq!(args.config, Some(PathBuf::from("f.toml")));
    assert_eq!(args.flags().upstream.as_deref(), Some("http://a:1"));
    assert_eq!(args.flags().data.as_deref(), Some("/d"));
    let bare = Cli::try_parse_from(["oncekey", "serve"]).expect("the file may name it all");
    assert!(matches!(bare.command, Command::Serve(args) if args == ServeArgs::default()));
}

#[test]
fn a4_wrong_usage_ends_with_2() {
    for line in [&["oncekey"][..], &["oncekey", "check"], &["oncekey", "serve", "--nope"]] {
        assert_eq!(Cli::try_parse_from(line).expect_err("it is wrong").exit_code(), 2);
    }
    let codes = [Exit::Done, Exit::No, Exit::Usage, Exit::Trouble].map(Exit::code);
    assert_eq!(codes, [0, 1, 2, 3]);
}

/// Exit, standard output, standard error.
fn checked(text: &str, json: bool) -> (Exit, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("oncekey.toml");
    std::fs::write(&file, text).expect("written");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = check(&CheckArgs { file, json }, [], &mut out, &mut err).expect("memory takes all");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (exit, text(out), text(err))
}

#[test]
fn a3_check_prints_the_effective_configuration() {
    let (exit, out, err) = checked("[store]\nkind = \"memory\"\n", false);
    assert_eq!(exit, Exit::Done);
    assert!(out.contains("[defaults]\nprofile = \"ietf\""), "{out}");
    assert!(err.contains("oncekey.toml:2:8: warning: the memory store"), "{err}");
    assert!(err.contains("note: all requests share one tenant"), "{err}");
}

#[test]
fn a3_check_refuses_with_file_line_and_hint() {
    let (exit, out, err) = checked("[server]\nlisen = 1\n", false);
    assert_eq!(exit, Exit::No);
    assert_eq!(out, "");
    assert!(err.contains("oncekey.toml:2:1: error: unknown field `lisen` in [server]"), "{err}");
    assert!(err.contains("\n  hint: did you mean `listen`?"), "{err}");
    assert!(err.contains("refused, 1 error\n"), "{err}");
}

#[test]
fn a4_check_answers_programs_in_json() {
    let (exit, out, err) = checked("[server]\nlisen = 1\n", true);
    assert_eq!((exit, err.as_str()), (Exit::No, ""));
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(answer["ok"], false);
    assert_eq!(answer["effective"], serde_json::Value::Null);
    let finding = &answer["findings"][0];
    assert_eq!(finding["severity"], "error");
    assert_eq!(finding["code"], "unknown_field");
    assert_eq!(finding["place"]["line"], 2);

    let (exit, out, _) = checked("", true);
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((exit, &answer["ok"]), (Exit::Done, &serde_json::Value::Bool(true)));
    assert!(answer["effective"].as_str().is_some_and(|text| text.contains("[upstream]")));
}

#[test]
fn a4_check_of_a_missing_file_is_trouble() {
    let args = CheckArgs { file: "/nowhere/oncekey.toml".into(), json: false };
    let mut err = Vec::new();
    let exit = check(&args, [], &mut Vec::new(), &mut err).expect("memory takes all");
    assert_eq!(exit, Exit::Trouble);
    assert!(String::from_utf8_lossy(&err).starts_with("error: /nowhere/oncekey.toml: "));
}

#[test]
fn a3_the_schema_is_printed() {
    let mut out = Vec::new();
    super::schema::print(&mut out).expect("memory takes all");
    let schema: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert!(schema["properties"]["route"].is_object());
}

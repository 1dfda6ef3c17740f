//! The environment over the file, flags over both, and the secret.

use std::ffi::OsString;

use super::super::{Config, Flags, LoadError, Loaded, Rejected, Severity, load, parse};

fn with(text: &str, variables: &[(&str, &str)], flags: &Flags) -> Result<Loaded, Rejected> {
    let variables: Vec<(OsString, OsString)> =
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    parse(Some(("oncekey.toml".into(), text.to_owned())), variables, flags)
}

fn config(text: &str, variables: &[(&str, &str)]) -> Config {
    match with(text, variables, &Flags::default()) {
        Ok(loaded) => loaded.config,
        Err(rejected) => panic!("refused:\n{rejected}"),
    }
}

#[test]
fn a5_a_variable_wins_over_the_file() {
    let config = config(
        "[server]\nlisten = \"127.0.0.1:1\"\n[defaults]\nretention = \"1h\"",
        &[("ONCEKEY__SERVER__LISTEN", "127.0.0.1:2"), ("HOME", "/root"), ("ONCEKEY", "x")],
    );
    assert_eq!(config.server.listen.port(), 2);
    assert_eq!(config.defaults.retention.as_secs(), 3600);
}

#[test]
fn a5_a_variable_is_toml_where_it_parses_and_text_where_not() {
    let config = config(
        "",
        &[
            ("ONCEKEY__DEFAULTS__REQUIRE_KEY", "true"),
            ("ONCEKEY__DEFAULTS__MIN_KEY_LENGTH", "16"),
            ("ONCEKEY__DEFAULTS__RETENTION", "2h"),
            ("ONCEKEY__DEFAULTS__KEY", "[\"header:X-Key\", \"body:/id\"]"),
            ("ONCEKEY__DEFAULTS__IN_PROGRESS", "{ wait = \"7s\" }"),
            ("ONCEKEY__DEFAULTS__STATUS__503", "release"),
            ("ONCEKEY__UPSTREAM__URL", "\"http://quoted:1\""),
            // A number is a fine name; the field takes nothing but text.
            ("ONCEKEY__NAMESPACE", "2024"),
            ("ONCEKEY__ROUTE", "[{ match = \"POST /a\", retention = \"9h\" }]"),
        ],
    );
    assert!(config.defaults.require_key);
    assert_eq!(config.defaults.min_key_length, 16);
    assert_eq!(config.defaults.retention.as_secs(), 7200);
    assert_eq!(config.defaults.key.len(), 2);
    assert_eq!(config.defaults.status.keep(503), super::super::Keep::Release);
    assert_eq!(config.upstream_url().expect("set").host(), "quoted");
    assert_eq!(config.namespace, "2024");
    assert_eq!(config.routes[0].settings.retention.as_secs(), 9 * 3600);
}

#[test]
fn a5_a_nested_variable_reaches_into_a_table_of_the_file() {
    let config = config(
        "[defaults]\nin_progress = { wait = \"5s\" }\nfingerprint = { mode = \"json\" }",
        &[
            ("ONCEKEY__DEFAULTS__IN_PROGRESS__WAIT", "9s"),
            ("ONCEKEY__DEFAULTS__FINGERPRINT__EXCLUDE", "[\"/at\"]"),
        ],
    );
    let nine = std::time::Duration::from_secs(9);
    assert_eq!(config.defaults.in_progress, super::super::InProgress::Wait(nine));
    assert_eq!(config.defaults.fingerprint.exclude[0].as_str(), "/at");
}

#[test]
fn a5_a_wrong_variable_is_named() {
    let rows: &[(&str, &str, &str)] = &[
        ("ONCEKEY__SERVER__LISEN", "x", "did you mean `listen`?"),
        ("ONCEKEY__DEFAULTS__LEASE", "0s", "zero"),
        ("ONCEKEY__DEFAULTS__MODE", "on", "is not one of"),
        ("ONCEKEY__DEFAULTS__KEY", "[\"header:X-Key\", 5]", "this is an integer"),
        ("ONCEKEY__SERVER", "x", "invalid type"),
        ("ONCEKEY__NAMESPACE__X", "x", "invalid type"),
        ("ONCEKEY____LISTEN", "x", "no path of fields"),
        ("ONCEKEY__A__B__C__D__E", "x", "no path of fields"),
        ("ONCEKEY__API__LISTEN", "x", "not in this version"),
        ("ONCEKEY__STORE__KIND", "postgres", "not in this version"),
    ];
    for (name, value, words) in rows {
        let rejected = with("", &[(name, value)], &Flags::default()).expect_err(name);
        let text = rejected.to_string();
        // A wrong type shows as a finding about the variable all the same.
        assert!(text.contains(&format!("{name}: error: ")), "{name}: {text}");
        assert!(text.contains(words) || text.contains("this is a table"), "{name}: {text}");
    }
}

#[test]
fn a5_a_variable_that_nobody_reads_is_warned_about() {
    let loaded = with("", &[("ONCEKEY_SERVER__LISTEN", "x")], &Flags::default());
    let remarks = loaded.expect("only a warning").remarks;
    let warning = remarks.iter().find(|remark| remark.severity == Severity::Warning);
    let text = warning.expect("it is warned about").to_string();
    assert!(text.starts_with("ONCEKEY_SERVER__LISTEN: warning: "), "{text}");
}

#[test]
fn a2_flags_win_over_everything() {
    let flags = Flags {
        upstream: Some("http://flag:1".into()),
        listen: Some("127.0.0.1:11".into()),
        admin: Some("127.0.0.1:12".into()),
        data: Some("/flag".into()),
    };
    let variables =
        [("ONCEKEY__UPSTREAM__URL", "http://variable:1"), ("ONCEKEY__STORE__PATH", "/variable")];
    let loaded = with("[upstream]\nurl = \"http://file:1\"", &variables, &flags);
    let config = loaded.expect("it is well formed").config;
    assert_eq!(config.upstream_url().expect("set").host(), "flag");
    assert_eq!(config.server.listen.port(), 11);
    assert_eq!(config.admin.listen.port(), 12);
    assert_eq!(config.store.path, std::path::Path::new("/flag"));
}

#[test]
fn a2_an_upstream_is_all_that_serve_needs() {
    let flags = Flags { upstream: Some("http://127.0.0.1:3000".into()), ..Flags::default() };
    let loaded = load(None, [], &flags).expect("no file is needed");
    assert_eq!(loaded.config.upstream_url().expect("set").port(), 3000);
    let wrong = Flags { upstream: Some("127.0.0.1:3000".into()), ..Flags::default() };
    let refused = load(None, [], &wrong).expect_err("no scheme").to_string();
    assert!(refused.starts_with("--upstream: error: "), "{refused}");
}

#[test]
fn a5_the_secret_comes_by_the_environment_and_is_never_shown() {
    let hex = "0123456789abcdef".repeat(4);
    let loaded = with("", &[("ONCEKEY_SECRET", &hex)], &Flags::default()).expect("64 digits");
    let secret = loaded.secret.clone().expect("it was set");
    assert_eq!(secret.as_bytes().len(), 32);
    assert_eq!(secret.as_bytes()[..3], [0x01, 0x23, 0x45]);
    let text = "correct horse battery staple, 32 bytes";
    let plain = with("", &[("ONCEKEY_SECRET", text)], &Flags::default()).expect("long enough");
    assert_eq!(plain.secret.as_ref().expect("it was set").as_bytes(), text.as_bytes());
    for loaded in [&loaded, &plain] {
        assert!(!format!("{loaded:?}").contains("horse"));
        assert!(!format!("{loaded:?}").contains("012345"));
        assert!(!loaded.config.effective().contains("horse"));
    }
    for short in ["hunter2-hunter2", "", &"a".repeat(40)] {
        let refused = with("", &[("ONCEKEY_SECRET", short)], &Flags::default());
        let text = format!("{:?}", refused.expect_err("too weak"));
        assert!(text.contains("ONCEKEY_SECRET"), "{text}");
        assert!(short.is_empty() || !text.contains(short), "{text}");
    }
    let refused = with("secret = \"x\"", &[], &Flags::default()).expect_err("not in the file");
    assert!(refused.to_string().contains("unknown field `secret`"));
}

#[test]
fn a3_a_file_that_cannot_be_read_is_trouble() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("none.toml");
    let error = load(Some(&missing), [], &Flags::default()).expect_err("it is not there");
    assert!(matches!(error, LoadError::Read { .. }), "{error}");

    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, [0xff, 0xfe]).expect("written");
    let error = load(Some(&binary), [], &Flags::default()).expect_err("it is no text");
    assert!(matches!(error, LoadError::Read { .. }), "{error}");

    let long = folder.path().join("long.toml");
    std::fs::write(&long, "#".repeat(1024 * 1024 + 1)).expect("written");
    let error = load(Some(&long), [], &Flags::default()).expect_err("it is too long");
    assert!(matches!(error, LoadError::TooLong { .. }), "{error}");
}

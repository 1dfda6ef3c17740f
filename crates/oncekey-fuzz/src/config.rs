//! Configurations (A3, A5).
//!
//! An input is the text of a file; after a NUL come variables, `NAME=value`, one a line.
//!
//! 1. What loads prints an effective configuration that loads to the same, without a remark of
//!    another kind, and prints itself again.
//! 2. What is refused says why: at least one error, each with a place inside of what was given.

use std::ffi::OsString;

use oncekey_gateway::config::{self, Diagnostic, Flags, Loaded, Origin, Severity};

/// What the parser knows.
pub const WORDS: &[&str] = &[
    "[server]\n",
    "[admin]\n",
    "[upstream]\n",
    "[store]\n",
    "[tenant]\n",
    "[principal]\n",
    "[cors]\n",
    "[problem]\n",
    "[log]\n",
    "[defaults]\n",
    "[[route]]\n",
    "listen = ",
    "url = ",
    "path = ",
    "kind = ",
    "match = ",
    "\"POST /api/*\"\n",
    "\"* /*\"\n",
    "profile = \"payment\"\n",
    "profile = \"stripe\"\n",
    "key = [\"header:Idempotency-Key\", \"body:/id\"]\n",
    "retention = ",
    "tombstone = ",
    "lease = ",
    "max_run = ",
    "\"24h\"\n",
    "\"90d\"\n",
    "\"1MiB\"\n",
    "status = { ",
    "\"5xx\" = \"unknown\"",
    "\"409\" = \"release\"",
    "fingerprint = { mode = \"json\" }\n",
    "exclude = [\"/a\"]",
    "in_progress = { wait = \"5s\" }\n",
    "in_progress = \"reject\"\n",
    "on_unknown = \"hold\"\n",
    "on_unknown = \"retry\"\n",
    "methods = [\"POST\", \"PUT\"]\n",
    "from = \"host\"\n",
    "from = \"header:X-Tenant\"\n",
    "trusted_peers = [\"10.0.0.0/8\"]\n",
    "replay = { allow = [\"Set-Cookie\"], deny = [] }\n",
    "= true\n",
    "= 3\n",
    "= \"\"\n",
    "'''",
    "\"\"\"",
    "#",
    "\0",
    "\nONCEKEY__STORE__KIND=memory",
    "\nONCEKEY__SERVER__LISTEN=",
    "ONCEKEY_",
    "operation = \"route:pay\"\n",
    "namespace = ",
    "origins = [\"https://a.example\"]\n",
    "max_request_body = ",
    "min_key_length = ",
    "max_key_age = ",
    "body = \"omit\"\n",
    "mode = ",
];

/// See the [module](self).
///
/// # Panics
/// Where a promise is broken.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (file, variables) = text.split_once('\0').unwrap_or((text, ""));
    let variables: Vec<(OsString, OsString)> = variables
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    match parse(file, variables) {
        Ok(loaded) => prints_itself(&loaded),
        Err(refused) => {
            let errors = refused.findings.iter().filter(|one| one.severity == Severity::Error);
            assert!(errors.count() > 0, "refused without a reason");
            refused.findings.iter().for_each(|finding| placed(finding, file));
        }
    }
}

fn parse(file: &str, variables: Vec<(OsString, OsString)>) -> Result<Loaded, config::Rejected> {
    let file = Some(("oncekey.toml".into(), file.to_owned()));
    config::parse(file, variables, &Flags::default())
}

fn prints_itself(loaded: &Loaded) {
    let effective = loaded.config.effective();
    let again = match parse(&effective, Vec::new()) {
        Ok(again) => again,
        Err(why) => panic!("the effective configuration is refused: {why}\n{effective}"),
    };
    assert_eq!(again.config, loaded.config, "read again it is another\n{effective}");
    assert_eq!(again.config.effective(), effective, "it prints itself in another way");
    assert_eq!(loaded.config.reload_refusal(&again.config), None, "no change needs no restart");
    assert!(loaded.config.at_next_start(&again.config).is_empty());
}

fn placed(finding: &Diagnostic, file: &str) {
    assert!(!finding.to_string().is_empty());
    let Some(place) = &finding.place else { return };
    if let Origin::File(_) = place.origin {
        let lines = file.matches('\n').count() + 1;
        assert!((1..=lines).contains(&place.line), "{finding} has a place outside");
        let line = file.split('\n').nth(place.line - 1).expect("counted above");
        assert!((1..=line.chars().count() + 1).contains(&place.column), "{finding}");
    }
}

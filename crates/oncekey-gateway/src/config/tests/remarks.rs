//! What is accepted with a warning or a note.

use super::super::Severity::{self, Note, Warning};
use super::read;

fn remarks(text: &str) -> Vec<(Severity, Option<usize>, String)> {
    let loaded = read(text).unwrap_or_else(|rejected| panic!("refused:\n{rejected}"));
    let line = |place: &super::super::Place| place.line;
    loaded
        .remarks
        .iter()
        .map(|found| (found.severity, found.place.as_ref().map(line), found.to_string()))
        .collect()
}

#[track_caller]
fn remarked(text: &str, severity: Severity, line: Option<usize>, words: &str) {
    let remarks = remarks(text);
    let said = remarks
        .iter()
        .any(|found| found.0 == severity && found.1 == line && found.2.contains(words));
    assert!(said, "{words:?} is not said for\n{text}\n{remarks:#?}");
}

#[test]
fn s3_a_shared_tenant_is_said() {
    remarked("", Note, None, "all requests share one tenant");
    remarked("[tenant]\nfrom = \"shared\"", Note, Some(2), "all requests share one tenant");
    let host = remarks("[tenant]\nfrom = \"host\"");
    assert!(!host.iter().any(|found| found.2.contains("share one tenant")));
}

#[test]
fn s7_trusted_peers_are_told_what_they_must_remove() {
    let trusting = "[tenant]\nfrom = \"host\"\ntrusted_peers = [\"10.0.0.7\"]";
    remarked(trusting, Note, Some(3), "believed about Idempotency-Record");
    let host = remarks("[tenant]\nfrom = \"host\"");
    assert!(!host.iter().any(|found| found.2.contains("Idempotency-Record")));
}

#[test]
fn s4_schemes_that_change_with_every_request_are_named() {
    for scheme in ["Digest", "DPoP", "SigV4"] {
        remarked("", Note, None, scheme);
    }
}

#[test]
fn a2_a_missing_upstream_is_said() {
    remarked("", Note, None, "no upstream is named");
    let named = remarks("[upstream]\nurl = \"http://a:1\"");
    assert!(!named.iter().any(|found| found.2.contains("no upstream")));
}

#[test]
fn a3_dangerous_settings_are_warned_about() {
    let rows: &[(&str, usize, &str)] = &[
        ("[store]\nkind = \"memory\"", 2, "forgets every key at a restart"),
        ("[store]\nkind = \"memory\"\npath = \"./x\"", 3, "uses no folder"),
        ("[store]\nkind = \"memory\"\nreserve = \"1GiB\"", 3, "uses no disk"),
        ("[admin]\nlisten = \"0.0.0.0:9090\"", 2, "reachable from outside"),
        ("[tenant]\nfrom = \"host\"\ntrusted_peers = [\"0.0.0.0/0\"]", 3, "trusts everyone"),
        ("[defaults]\ninsecure_pass_through = true", 2, "run unprotected"),
        ("[defaults]\nretention = \"5s\"", 2, "kept for 5s only"),
        (
            "[defaults]\nmax_run = \"30s\"\nlease = \"10s\"\n[upstream]\ntimeout = \"1m\"",
            2,
            "ends before",
        ),
        ("[defaults]\nin_progress = { wait = \"45s\" }", 2, "waits up to 45s"),
        ("[defaults]\nstatus = { \"504\" = \"retry\" }", 2, "504 says that nobody knows"),
        ("[defaults]\nstatus = { \"2xx\" = \"release\" }", 2, "2xx says that it was done"),
        ("[defaults]\nreplay = { allow = [\"Set-Cookie\"] }", 2, "gets it again"),
        ("[defaults]\nprofile = \"payment\"\non_unknown = \"retry\"", 3, "unknown runs again"),
        (
            "[defaults]\nprofile = \"payment\"\nstatus = { \"503\" = \"release\" }",
            3,
            "503 runs a payment again",
        ),
        ("[defaults]\nprofile = \"payment\"\ntombstone = \"off\"", 3, "new again"),
    ];
    for (text, line, words) in rows {
        remarked(text, Warning, Some(*line), words);
    }
}

#[test]
fn a3_a_plain_configuration_has_no_warning() {
    let warnings = remarks(super::SAMPLE);
    assert!(!warnings.iter().any(|found| found.0 == Warning), "{warnings:#?}");
}

#[test]
fn a3_a_setting_of_the_defaults_is_judged_once() {
    let remarks = remarks(
        "[defaults]\ninsecure_pass_through = true\n[[route]]\nmatch = \"POST /a\"\n\
         [[route]]\nmatch = \"POST /b\"\nprofile = \"stripe\"",
    );
    let said = remarks.iter().filter(|found| found.2.contains("unprotected")).count();
    assert_eq!(said, 1, "{remarks:#?}");
}

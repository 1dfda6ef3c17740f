//! The environment over the file, and SIGHUP (A5).

use std::fs;

use super::{Gate, Gateway, Request, counting, keyed, logged, slow};
use crate::rig::oncekey;

#[test]
fn a5_variables_win_over_the_file_and_flags_over_both() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address())
        .config(
            "[defaults]\nrequire_key = true\nmin_key_length = 4\n[upstream]\nurl = \"http://no\"\n",
        )
        .variable("ONCEKEY__DEFAULTS__MIN_KEY_LENGTH", "2")
        .variable("ONCEKEY__DEFAULTS__KEY", "[\"header:X-Key\"]")
        .variable("ONCEKEY__UPSTREAM__URL", "http://nowhere.invalid:1")
        .variable("ONCEKEY__UPSTREAM__TIMEOUT", "10s")
        .start();
    let send = |name: &str, key: &str| {
        Request::post("/pay").header(name, key).json("{}").reply(gateway.address())
    };
    assert_eq!(send("X-Key", "kk").status, 201);
    assert_eq!(send("X-Key", "k").code(), "invalid-key");
    assert_eq!(send("Idempotency-Key", "kkkk").code(), "missing-key");
}

#[test]
fn a5_a_bad_variable_is_refused_by_its_name() {
    let upstream = counting();
    for (name, value, said) in [
        ("ONCEKEY__SERVER__LISTEN_ON", "x", "unknown field"),
        ("ONCEKEY__DEFAULTS__LEASE", "soon", "is not a duration"),
        ("ONCEKEY__DEFAULTS__REQUIRE_KEY", "maybe", "true or false"),
        ("ONCEKEY__STORE__KIND", "redis", "not in this version"),
        ("ONCEKEY__", "x", "no path of fields"),
        ("ONCEKEY_SECRET", "short", ""),
    ] {
        let ended = Gateway::to(upstream.address()).variable(name, value).refuse();
        assert_eq!(ended.code(), Some(1), "{name}: {ended:?}");
        assert!(ended.err.contains(name) && ended.err.contains(said), "{name}: {ended:?}");
    }
    assert!(!oncekey(&["serve", "--help"]).out.is_empty());
}

#[test]
fn a5_hanging_up_puts_new_routes_in_force_and_keeps_the_records() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).config("").start();
    assert_eq!(keyed("/pay", "k").reply(gateway.address()).text(), "run 1");
    let unkeyed = || Request::post("/pay").json("{}").reply(gateway.address());
    assert_eq!(unkeyed().status, 201);

    let file = gateway.config_file().unwrap();
    fs::write(file, "[[route]]\nmatch = \"POST /pay\"\nrequire_key = true\n").unwrap();
    gateway.hang_up();
    logged(&gateway, "the new routes are in force");
    assert_eq!(unkeyed().code(), "missing-key");
    let again = keyed("/pay", "k").reply(gateway.address());
    assert_eq!((again.replayed(), again.text()), (true, "run 1"));
}

#[test]
fn a5_a_change_that_makes_keys_new_is_refused_and_said() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).config("").start();
    keyed("/pay", "k").reply(gateway.address());
    let file = gateway.config_file().unwrap();
    for (text, what) in [
        ("namespace = \"other\"\n", "only a restart changes namespace; keys used"),
        ("[tenant]\nfrom = \"host\"\n", "only a restart changes [tenant]; keys used"),
        (
            "[defaults]\noperation = \"tenant\"\n",
            "only a restart changes `operation` of [defaults]",
        ),
        ("[defaults]\nkey = [\"header:X-Key\"]\n", "only a restart changes `key` of [defaults]"),
        ("[principal]\nheaders = [\"X-User\"]\n", "callers from before it get 403"),
        ("[store]\nkind = \"memory\"\n", "only a restart changes [store] kind or path"),
    ] {
        // Whatever else is in the file stays out too.
        fs::write(file, format!("{text}[[route]]\nmatch = \"POST /x\"\nrequire_key = true\n"))
            .unwrap();
        gateway.hang_up();
        let line = logged(&gateway, what);
        assert_eq!(line["level"], "ERROR");
        assert!(line["message"].as_str().unwrap().contains("the old one stays"), "{line}");
        assert_eq!(Request::post("/x").json("{}").reply(gateway.address()).status, 201);
        assert!(keyed("/pay", "k").reply(gateway.address()).replayed());
    }
}

#[test]
fn a5_what_takes_effect_only_at_a_restart_is_said() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).config("").start();
    let text = "[cors]\norigins = [\"*\"]\n[upstream]\nidle_timeout = \"1s\"\n";
    fs::write(gateway.config_file().unwrap(), text).unwrap();
    gateway.hang_up();
    let line = logged(&gateway, "take effect at the next start");
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["sections"], "[upstream], [cors]");
    logged(&gateway, "the new routes are in force");
}

#[test]
fn a5_a_broken_file_changes_nothing() {
    let upstream = counting();
    let config = "[defaults]\nrequire_key = true\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let file = gateway.config_file().unwrap();
    fs::write(file, "[defaults]\nrequire_key = perhaps\n").unwrap();
    gateway.hang_up();
    logged(&gateway, "this is not TOML");
    fs::remove_file(file).unwrap();
    gateway.hang_up();
    logged(&gateway, "No such file");
    assert_eq!(Request::post("/pay").json("{}").reply(gateway.address()).code(), "missing-key");
}

#[test]
fn a5_a_request_under_way_keeps_the_policy_it_began_with() {
    let gate = Gate::new();
    let upstream = slow(&gate);
    let gateway = Gateway::to(upstream.address()).config("").start();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| keyed("/slow", "k").reply(gateway.address()));
        upstream.wait_for_requests(1);
        let text = "[[route]]\nmatch = \"POST /slow\"\nstatus = { \"2xx\" = \"unknown\" }\n";
        fs::write(gateway.config_file().unwrap(), text).unwrap();
        gateway.hang_up();
        logged(&gateway, "the new routes are in force");
        gate.open();
        assert_eq!(first.join().unwrap().idempotency(), "stored");
    });
    assert_eq!(keyed("/slow", "new").reply(gateway.address()).idempotency(), "unknown");
}

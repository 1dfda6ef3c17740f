//! Configurations and command lines that are refused: exit code, place, and what to write instead.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use super::untouched;
use crate::rig::{Ended, Gateway, oncekey};

/// A file that must be refused: where the finding points to, and what it must say.
struct Refused(&'static str, &'static str, &'static str);

fn check(folder: &Path, text: &str) -> Ended {
    let file = folder.join("oncekey.toml");
    fs::write(&file, text).unwrap();
    oncekey(&["check", file.to_str().unwrap()])
}

fn all_refused(files: &[Refused]) {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for Refused(text, place, said) in files {
        let ended = check(folder.path(), text);
        let place = format!("oncekey.toml:{place}: error: ");
        let hinted = ended.err.contains("\n  hint: ");
        let told = ended.err.contains(&place) && ended.err.contains(said);
        if ended.code() != Some(1) || !told || !hinted || !ended.out.is_empty() {
            wrong.push(format!("{text:?} is to be refused at {place} {said:?}, got {ended:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

#[test]
fn a3_check_refuses_slips_and_values_with_line_column_and_hint() {
    all_refused(&[
        Refused("[upstraem]\n", "1:2", "did you mean `upstream`?"),
        Refused("\n[server]\nlisen = \"127.0.0.1:1\"\n", "3:1", "did you mean `listen`?"),
        Refused("[server]\nlisten = \":8080\"\n", "2:10", "write \"127.0.0.1:8080\""),
        Refused("[server]\nlisten = 8080\n", "2:10", "an integer"),
        Refused("[upstream]\nurl = \"127.0.0.1:3000\"\n", "2:7", "has no scheme"),
        Refused("[upstream]\nurl = \"http://h/path\"\n", "2:7", "a path or a query"),
        Refused("[upstream]\nurl = \"http://u:p@h\"\n", "2:7", "a user name or a password"),
        Refused("namespace = \"a b\"\n", "1:13", "is not a name"),
        Refused("[cors]\norigins = [\"https://A.example/\"]\n", "2:12", "is not an origin"),
        Refused("[tenant]\nfrom = \"header\"\n", "2:8", "is not a tenant source"),
        Refused("[tenant]\ntrusted_peers = [\"10.0.0.1/8\"]\n", "2:18", "beyond its prefix"),
        Refused("[defaults]\nkey = [\"header:X-Request-Id\"]\n", "2:8", "cannot be the key"),
        Refused("[defaults]\nkey = [\"body:id\"]\n", "2:8", "write \"/id\""),
        Refused("[defaults]\nmin_key_length = 0\n", "2:18", "0"),
        Refused("[defaults]\nmode = \"watch\"\n", "2:8", "observe"),
        Refused("[defaults]\nstatus = { \"99\" = \"keep\" }\n", "2:12", "is not a final status"),
        Refused("[[route]]\nmatch = \"/pay\"\n", "2:9", "POST"),
        Refused("[[route]]\nprofile = \"payment\"\n", "1:1", "the route has no `match`"),
        Refused("[[route]]\nmatch = \"POST /a/{id}\"\n", "2:9", "a placeholder"),
    ]);
}

#[test]
fn t4_zero_negative_absurd_and_unitless_durations_are_refused() {
    all_refused(&[
        Refused("[defaults]\nretention = \"0s\"\n", "2:13", "the duration is zero"),
        Refused("[defaults]\nretention = \"-1h\"\n", "2:13", "is negative"),
        Refused("[defaults]\nretention = -3\n", "2:13", "is negative"),
        Refused("[defaults]\nretention = \"9999d\"\n", "2:13", "longer than ten years"),
        Refused("[defaults]\nretention = 30\n", "2:13", "has no unit"),
        Refused("[defaults]\nretention = \"30\"\n", "2:13", "a unit is missing"),
        Refused("[defaults]\nretention = \"1 week\"\n", "2:13", "is not a duration"),
        Refused("[defaults]\nretention = \"500ms\"\n", "2:13", "500ms"),
        Refused("[defaults]\nlease = \"0s\"\n", "2:9", "the duration is zero"),
        Refused("[upstream]\ntimeout = \"2d\"\n", "2:11", "2d"),
        Refused("[defaults]\nin_progress = { wait = \"0s\" }\n", "2:15", "the duration is zero"),
    ]);
}

#[test]
fn a3_check_refuses_settings_that_contradict_each_other() {
    all_refused(&[
        Refused("[defaults]\nlease = \"10m\"\n", "2:9", "longer than max_run"),
        Refused("[admin]\nlisten = \"127.0.0.1:8080\"\n", "2:10", "both listen"),
        Refused("[[route]]\nmatch = \"GET /a\"\n", "2:9", "keys do not count on GET"),
        Refused("[[route]]\nmatch = \"POST /a.B/C\"\n", "2:9", "gRPC"),
        Refused(
            "[[route]]\nmatch = \"POST /*\"\n[[route]]\nmatch = \"POST /a\"\n",
            "4:9",
            "never reached",
        ),
        Refused("[defaults.fingerprint]\nexclude = [\"/a\"]\n", "2:11", "set mode = \"json\""),
        Refused("[tenant]\nfrom = \"header:X-Tenant\"\n", "2:8", "trusted_peers"),
        Refused(
            "[[route]]\nmatch = \"POST /a\"\nprofile = \"payment\"\nrequire_key = false\n",
            "4:15",
            "requires a key",
        ),
    ]);
}

#[test]
fn a3_settings_of_a_later_version_are_refused_by_name() {
    let said = "is not in this version";
    all_refused(&[
        Refused("[api]\nlisten = \"127.0.0.1:9091\"\n", "1:2", said),
        Refused("[[inbox]]\npath = \"/w\"\n", "1:3", said),
        Refused("[store]\nkind = \"postgres\"\n", "2:8", said),
        Refused("[store]\nkind = \"redis\"\n", "2:8", said),
        Refused("[tenant]\nfrom = \"jwt:sub\"\n", "2:8", said),
        Refused("[tenant]\nfrom = \"auth_request\"\n", "2:8", said),
        Refused("[defaults]\non_unknown = \"reconcile\"\n", "2:14", said),
        Refused("[upstream]\nurl = \"https://h\"\n", "2:7", "not in this version"),
    ]);
}

#[test]
fn a3_text_that_is_no_toml_is_refused_where_it_breaks() {
    let folder = tempfile::tempdir().unwrap();
    for (text, place) in
        [("[server\n", "1:8"), ("a = \n", "1:"), ("[defaults]\nmode = observe\n", "2:8")]
    {
        let ended = check(folder.path(), text);
        assert_eq!(ended.code(), Some(1), "{ended:?}");
        assert!(ended.err.contains(&format!("oncekey.toml:{place}")), "{text:?}: {ended:?}");
        assert!(ended.err.contains("this is not TOML"), "{ended:?}");
    }
}

#[test]
fn a3_every_finding_is_told_at_once_and_serve_says_the_same() {
    let text = "[upstraem]\n[server]\nlisten = \"x\"\n[defaults]\nretention = \"0s\"\n";
    let folder = tempfile::tempdir().unwrap();
    let checked = check(folder.path(), text);
    let served = Gateway::with_config(text).refuse();
    assert_eq!((checked.code(), served.code()), (Some(1), Some(1)));
    // The rig's own flag wins over the file's `listen`.
    for place in [":1:2: error", ":5:13: error"] {
        assert!(checked.err.contains(place), "{place} in {}", checked.err);
        assert!(served.err.contains(place), "{place} in {}", served.err);
    }
    assert!(checked.err.contains(":3:10: error"), "{}", checked.err);
}

#[test]
fn a4_a_good_file_is_accepted_and_a_file_that_is_not_there_is_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let ended = check(folder.path(), "[upstream]\nurl = \"http://127.0.0.1:3000\"\n");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(ended.out.contains("namespace = \"main\""), "{}", ended.out);
    let again = check(folder.path(), &ended.out);
    assert_eq!((again.code(), again.out), (Some(0), ended.out));

    let nowhere = folder.path().join("none.toml");
    let nowhere = nowhere.to_str().unwrap();
    let folder = folder.path().to_str().unwrap();
    for file in [nowhere, folder] {
        assert_eq!(oncekey(&["check", file]).code(), Some(3), "{file}");
        let served = oncekey(&["serve", "--upstream", "http://127.0.0.1:1", "--config", file]);
        assert_eq!(served.code(), Some(3), "{served:?}");
        assert!(served.err.contains(file), "{served:?}");
    }
}

#[test]
fn a4_a_wrong_command_line_is_usage() {
    for arguments in [
        &["serve", "--nonsense"][..],
        &["serve", "--listen"],
        &["serve", "extra"],
        &["nonsense"],
        &["check"],
        &["check", "a", "b"],
        &["config", "nonsense"],
        &[],
        // Nothing names the application.
        &["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
        &["serve", "--upstream", "127.0.0.1:3000"],
        &["serve", "--upstream", "http://127.0.0.1:1", "--listen", "nowhere"],
    ] {
        let ended = oncekey(arguments);
        assert_eq!(ended.code(), Some(2), "{arguments:?}: {ended:?}");
        assert!(!ended.err.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a2_an_address_that_is_taken_is_trouble_and_is_named() {
    let upstream = untouched();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let url = format!("http://{}", upstream.address());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let free = "127.0.0.1:0";
    for (listen, admin) in [(taken.as_str(), free), (free, taken.as_str())] {
        let flags = ["serve", "--upstream", &url, "--listen", listen, "--admin", admin];
        let ended = oncekey(&[&flags[..], &["--data", data]].concat());
        assert_eq!(ended.code(), Some(3), "{ended:?}");
        assert!(ended.err.contains(&taken), "{ended:?}");
    }
    assert!(!Path::new(data).exists(), "a gateway that does not start leaves no folder");
}

#[test]
fn a2_a_data_folder_that_cannot_be_written_is_trouble_and_is_named() {
    let upstream = untouched();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "no folder").unwrap();
    for data in [file.as_path(), &file.join("below"), Path::new("/proc/oncekey-data")] {
        let ended = Gateway::to(upstream.address()).data(data).refuse();
        assert_eq!(ended.code(), Some(3), "{ended:?}");
        assert!(ended.err.contains(data.to_str().unwrap()), "{data:?} in {ended:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "no folder");
}

#[test]
fn a2_a_data_folder_in_use_is_refused_and_its_owner_goes_on() {
    let upstream = super::Upstream::start(|exchange| exchange.answer(201, &[], b"done"));
    let first = Gateway::to(upstream.address()).start();
    let second = Gateway::to(upstream.address()).data(first.data()).refuse();
    assert_eq!(second.code(), Some(3), "{second:?}");
    assert!(second.err.contains(first.data().to_str().unwrap()), "{second:?}");
    let keyed = [("Idempotency-Key", "k")];
    assert_eq!(crate::rig::post(first.address(), "/pay", &keyed, "{}").status, 201);
}

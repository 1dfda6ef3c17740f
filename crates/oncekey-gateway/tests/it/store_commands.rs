//! `oncekey store` through the built binary (A4): on good folders, on folders in use, on damaged
//! ones, and what serving from them does.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{Ended, Gateway, Reply, Request, Upstream, oncekey};

/// How many keys [`stopped`] has used.
const KEYS: usize = 24;

fn keyed(key: &str) -> Request {
    Request::post("/pay").key(key).json("{}")
}

fn counting() -> Upstream {
    Upstream::start(|exchange| {
        let run = format!("run {} {}", exchange.request.number, "of many ".repeat(40));
        exchange.answer(201, &[("X-Number", "7")], run.as_bytes())
    })
}

/// A gateway that has answered [`KEYS`] keys and was stopped, with what it answered.
fn stopped(upstream: &Upstream) -> (Gateway, Vec<Reply>) {
    let mut gateway = Gateway::to(upstream.address()).start();
    let replies = (0..KEYS).map(|key| keyed(&format!("k{key}")).reply(gateway.address())).collect();
    gateway.terminate();
    assert!(gateway.wait_for_exit().success());
    (gateway, replies)
}

/// `oncekey store` with these arguments.
#[track_caller]
fn store(arguments: &[&str]) -> Ended {
    oncekey(&[&["store"], arguments].concat())
}

/// The same, for programs: the exit code and the answer.
#[track_caller]
fn asked(arguments: &[&str]) -> (Option<i32>, Value) {
    let ended = store(&[arguments, &["--json"]].concat());
    let answer = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{ended:?}"));
    (ended.code(), answer)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Everything in a folder: what its files hold, and when they were changed.
fn tree(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![path.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::metadata(&path).unwrap();
            let mut bytes = Vec::new();
            if path.is_dir() {
                folders.push(path.clone());
            } else {
                bytes = fs::read(&path).unwrap();
                // Journals are preallocated.
                bytes.truncate(used(&bytes));
                bytes.extend(meta.len().to_le_bytes());
            }
            found.insert(path, (bytes, meta.mtime(), meta.mtime_nsec()));
        }
    }
    found
}

/// How many bytes there are before nothing but zeros.
fn used(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 1 << 12] = [0; 1 << 12];
    let mut used = bytes.len();
    // Whole pieces first: that is a comparison of memory, and most of a journal.
    while used >= ZEROS.len() && bytes[used - ZEROS.len()..used] == ZEROS {
        used -= ZEROS.len();
    }
    bytes[..used].iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
}

/// Changes one bit in the middle of what a file holds.
fn flip(path: &Path) {
    let at = used(&fs::read(path).unwrap()) / 2;
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at as u64).unwrap();
}

/// The journal that is written to.
fn journal(data: &Path) -> PathBuf {
    let names = fs::read_dir(data.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let mut journals: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|kind| kind == "jnl")).collect();
    journals.sort();
    journals.pop().unwrap()
}

/// A folder for backups.
fn elsewhere() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("backup");
    (folder, to)
}

#[test]
fn a4_check_of_an_intact_folder_says_so_and_changes_nothing() {
    let (gateway, _) = stopped(&counting());
    let before = tree(gateway.data());
    let ended = store(&["check", "--data", text(gateway.data())]);
    assert_eq!((ended.code(), ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.out.contains("Everything is intact."), "{ended:?}");
    assert!(ended.out.lines().skip(1).all(|line| line.len() <= 80), "{ended:?}");

    let (code, answer) = asked(&["check", "--data", text(gateway.data())]);
    assert_eq!((code, &answer["ok"]), (Some(0), &true.into()), "{answer}");
    assert_eq!(answer["folder"], text(gateway.data()));
    assert_eq!((&answer["format"], &answer["records_read"]), (&1.into(), &true.into()));
    assert_eq!(answer["standings"]["completed"], KEYS);
    assert_eq!(answer["standings"]["in-progress"], 0);
    assert_eq!(answer["unreadable"], serde_json::json!({ "count": 0, "ids": [] }));
    assert_eq!(answer["damage"], serde_json::json!([]));
    assert!(answer["journals"][0]["batches"].as_u64() > Some(0), "{answer}");
    assert!(answer["tables"]["count"].as_u64() > Some(0), "{answer}");
    let names = answer["keyspaces"].as_array().unwrap().iter();
    assert!(names.clone().any(|space| space["name"] == "live"), "{answer}");
    assert!(names.clone().any(|space| space["records"] == KEYS), "{answer}");
    assert_eq!(tree(gateway.data()), before);
}

#[test]
fn a4_the_folder_is_the_one_that_serve_would_use() {
    let (gateway, _) = stopped(&counting());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("oncekey.toml");
    fs::write(&config, format!("[store]\npath = \"{}\"\n", text(gateway.data()))).unwrap();
    let (code, answer) = asked(&["check", "--config", text(&config)]);
    assert_eq!((code, &answer["folder"]), (Some(0), &text(gateway.data()).into()), "{answer}");
    fs::write(&config, "[store]\nkind = \"memory\"\n").unwrap();
    let (code, answer) = asked(&["check", "--config", text(&config)]);
    assert_eq!((code, &answer["ok"]), (Some(3), &false.into()), "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("--data"), "{answer}");
    fs::write(&config, "[stroe]\n").unwrap();
    assert_eq!(store(&["check", "--config", text(&config)]).code(), Some(3));
}

#[test]
fn a4_a_folder_in_use_is_left_alone_by_every_command() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let first = keyed("k").reply(gateway.address());
    let (data, (_elsewhere, to)) = (text(gateway.data()), elsewhere());
    for command in [
        &["check", "--data", data][..],
        &["accept-loss", "--data", data, "--reason", "none", "--yes"],
        &["backup", "--data", data, "--to", text(&to)],
    ] {
        let ended = store(command);
        assert_eq!((ended.code(), ended.out.as_str()), (Some(3), ""), "{ended:?}");
        assert!(ended.err.contains("in use"), "{ended:?}");
        let (code, answer) = asked(command);
        assert_eq!((code, &answer["ok"]), (Some(3), &false.into()));
        assert!(answer["error"].as_str().unwrap().contains("in use"), "{answer}");
    }
    let ended = store(&["backup", "--data", data, "--to", text(&to)]);
    assert!(ended.err.contains("stop the gateway") && ended.err.contains("snapshot"), "{ended:?}");
    assert!(!to.exists());
    assert_eq!(keyed("k").reply(gateway.address()).body, first.body);
}

#[test]
fn a4_where_there_is_no_store_every_command_says_so_and_makes_nothing() {
    let (folder, to) = elsewhere();
    for data in [folder.path(), &folder.path().join("none")] {
        let data = text(data);
        for command in [
            &["check", "--data", data][..],
            &["accept-loss", "--data", data, "--reason", "none", "--yes"],
            &["backup", "--data", data, "--to", text(&to)],
        ] {
            let ended = store(command);
            assert_eq!(ended.code(), Some(3), "{ended:?}");
            assert!(ended.err.contains("there is no store in"), "{ended:?}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a4_a_folder_of_a_newer_format_is_refused_by_every_command() {
    let (gateway, _) = stopped(&counting());
    fs::write(gateway.data().join("format"), "oncekey embedded 2\n").unwrap();
    let (data, before) = (text(gateway.data()), tree(gateway.data()));
    let (_elsewhere, to) = elsewhere();
    for command in [
        &["check", "--data", data][..],
        &["accept-loss", "--data", data, "--reason", "none", "--yes"],
        &["backup", "--data", data, "--to", text(&to)],
    ] {
        let ended = store(command);
        assert_eq!(ended.code(), Some(3), "{ended:?}");
        assert!(ended.err.contains("newer version"), "{ended:?}");
    }
    assert_eq!(tree(gateway.data()), before);
}

#[test]
fn a4_wrong_usage_ends_with_2() {
    for command in [
        &[][..],
        &["backup"],
        &["restore"],
        &["accept-loss", "--yes"],
        &["accept-loss", "--reason", " ", "--yes"],
        &["check", "--nope"],
    ] {
        assert_eq!(store(command).code(), Some(2), "{command:?}");
    }
}

#[test]
fn x3_check_names_each_kind_of_damage_and_changes_nothing() {
    let (gateway, _) = stopped(&counting());
    let data = gateway.data();
    let meta = data.join("db/keyspaces/0");
    let table = fs::read_dir(meta.join("tables")).unwrap().next().unwrap().unwrap().path();
    for (file, whole) in [
        (journal(data), "journal"),
        (table, "checksum"),
        (meta.join("current"), "checksum"),
        (data.join("synced"), "synced"),
        (data.join("format"), "format"),
    ] {
        let intact = fs::read(&file).unwrap();
        if file.ends_with("synced") {
            // All its slots.
            fs::write(&file, vec![1; intact.len()]).unwrap();
        } else {
            flip(&file);
        }
        let before = tree(data);
        let (code, answer) = asked(&["check", "--data", text(data)]);
        assert_eq!((code, &answer["ok"]), (Some(1), &false.into()), "{answer}");
        let told = answer["error"].as_str().map_or(answer["damage"].to_string(), str::to_owned);
        assert!(told.contains(whole), "{}: {told}", file.display());
        let ended = store(&["check", "--data", text(data)]);
        assert_eq!(ended.code(), Some(1), "{ended:?}");
        assert!([ended.out, ended.err].concat().contains(whole));
        assert_eq!(tree(data), before);

        // Nobody keeps a copy of that, believing it whole.
        let (_elsewhere, to) = elsewhere();
        let ended = store(&["backup", "--data", text(data), "--to", text(&to)]);
        assert_eq!((ended.code(), to.exists()), (Some(1), false), "{ended:?}");
        assert_eq!(tree(data), before);
        fs::write(&file, intact).unwrap();
        assert_eq!(store(&["check", "--data", text(data)]).code(), Some(0));
    }
}

#[test]
fn x3_serve_refuses_a_folder_from_which_something_is_missing_until_a_person_accepts_it() {
    let upstream = counting();
    let (mut gateway, _) = stopped(&upstream);
    // More than before, and so the middle of the journal is among them.
    gateway.restart();
    let later: Vec<_> = (0..3 * KEYS).map(|key| format!("later-{key}")).collect();
    later.iter().for_each(|key| assert_eq!(keyed(key).reply(gateway.address()).status, 201));
    gateway.terminate();
    assert!(gateway.wait_for_exit().success());
    let data = gateway.data().to_path_buf();
    let data = text(&data);
    flip(&journal(gateway.data()));
    let before = tree(gateway.data());
    let refused = gateway.refuse_restart();
    assert_eq!(refused.code(), Some(3), "{refused:?}");
    assert!(refused.err.contains("oncekey store accept-loss"), "{refused:?}");

    // Nobody can be asked here, and nobody said yes.
    let ended = store(&["accept-loss", "--data", data, "--reason", "tested"]);
    assert_eq!(ended.code(), Some(2), "{ended:?}");
    assert!(ended.out.contains("Missing from") && ended.out.contains("missing"), "{ended:?}");
    assert!(ended.err.contains("--yes"), "{ended:?}");
    assert_eq!(tree(gateway.data()), before);

    let command = ["accept-loss", "--data", data, "--reason", "tested", "--who", "ann", "--yes"];
    let (code, answer) = asked(&command);
    assert_eq!((code, &answer["ok"]), (Some(0), &true.into()), "{answer}");
    assert_eq!(answer["accepted"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(
        (&answer["audit"]["who"], &answer["audit"]["reason"]),
        (&"ann".into(), &"tested".into())
    );
    assert!(Path::new(answer["copies"].as_str().unwrap()).is_dir(), "{answer}");
    let audit = fs::read_to_string(gateway.data().join("audit")).unwrap();
    assert_eq!(audit.lines().count(), 1, "{audit}");

    // Then it opens, and there is nothing more to accept.
    assert_eq!(store(&["check", "--data", data]).code(), Some(0));
    let before = tree(gateway.data());
    let ended = store(&command);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(ended.out.contains("Nothing is missing"), "{ended:?}");
    let (_, answer) = asked(&command);
    assert_eq!((&answer["accepted"], &answer["audit"]), (&serde_json::json!([]), &Value::Null));
    let same = |(path, _): &(&PathBuf, &_)| !path.ends_with("lock");
    assert!(tree(gateway.data()).iter().filter(same).eq(before.iter().filter(same)));
    gateway.restart();
    assert!(keyed("k0").reply(gateway.address()).replayed());
    let last = later.last().unwrap();
    assert!(!keyed(last).reply(gateway.address()).replayed(), "it is gone, as was accepted");
}

#[test]
fn a4_a_restored_backup_replays_byte_for_byte() {
    let upstream = counting();
    let (gateway, first) = stopped(&upstream);
    let (folder, to) = elsewhere();
    let before = tree(gateway.data());
    let (code, answer) = asked(&["backup", "--data", text(gateway.data()), "--to", text(&to)]);
    assert_eq!((code, &answer["ok"]), (Some(0), &true.into()), "{answer}");
    assert_eq!(answer["to"], text(&to));
    assert!(answer["files"].as_u64() > Some(5) && answer["bytes"].as_u64() > Some(5), "{answer}");
    let taken = answer["taken"].as_str().unwrap().to_owned();
    assert_eq!(tree(gateway.data()), before);

    let data = folder.path().join("data");
    let ended = store(&["restore", "--data", text(&data), "--from", text(&to)]);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(ended.out.contains(&taken), "{ended:?}");
    assert!(ended.err.contains("WARNING: KEYS THAT WERE USED AFTER THE BACKUP ARE NEW AGAIN"));
    let audit = fs::read_to_string(data.join("audit")).unwrap();
    let entry: Value = serde_json::from_str(audit.lines().last().unwrap()).unwrap();
    assert_eq!((&entry["did"], &entry["from"]), (&"restore".into(), &text(&to).into()));
    assert!(entry["taken"].as_u64() > Some(0) && entry["taken"].as_u64() <= entry["at"].as_u64());

    let again = Gateway::to(upstream.address()).data(&data).start();
    for (key, first) in first.iter().enumerate() {
        let replay = keyed(&format!("k{key}")).reply(again.address());
        assert!(replay.replayed() && replay.body == first.body, "{replay:?}");
        assert_eq!(replay.status, first.status);
        assert_eq!(replay.headers.text("x-number"), first.headers.text("x-number"));
    }
    assert_eq!(upstream.count(), KEYS);
}

#[test]
fn a4_restore_writes_nothing_over_and_from_nothing_doubtful() {
    let (gateway, _) = stopped(&counting());
    let (folder, to) = elsewhere();
    let ended = store(&["backup", "--data", text(gateway.data()), "--to", text(&to)]);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let before = tree(gateway.data());
    for (data, from, code, why) in [
        (gateway.data(), to.as_path(), 3, "not empty"),
        (&to.join("in"), &to, 3, "lies in"),
        (&folder.path().join("data"), folder.path(), 1, "no manifest"),
    ] {
        let ended = store(&["restore", "--data", text(data), "--from", text(from)]);
        assert_eq!(ended.code(), Some(code), "{ended:?}");
        assert!(ended.err.contains(why), "{ended:?}");
    }
    let again = store(&["backup", "--data", text(gateway.data()), "--to", text(&to)]);
    assert_eq!(again.code(), Some(3), "{again:?}");
    assert_eq!(tree(gateway.data()), before);

    let data = folder.path().join("data");
    flip(&to.join("format"));
    let (code, answer) = asked(&["restore", "--data", text(&data), "--from", text(&to)]);
    assert_eq!((code, data.exists()), (Some(1), false), "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("format"), "{answer}");
    fs::remove_file(to.join("manifest")).unwrap();
    let ended = store(&["restore", "--data", text(&data), "--from", text(&to)]);
    assert_eq!((ended.code(), data.exists()), (Some(1), false), "{ended:?}");
    assert!(ended.err.contains("did not come to its end"), "{ended:?}");
}

#[test]
fn a4_a_target_that_is_full_or_cannot_be_written_is_left_as_it_was() {
    let (gateway, _) = stopped(&counting());
    let data = text(gateway.data());
    let (_elsewhere, to) = elsewhere();
    // A disk of sixteen KiB, in a name space of this process's own.
    let script = "mkdir $1 && mount -t tmpfs -o size=16k none $1 && shift && exec \"$@\"";
    let disk = to.with_extension("disk");
    let target = disk.join("a/backup");
    let full = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh", text(&disk), env!("CARGO_BIN_EXE_oncekey")])
        .args(["store", "backup", "--data", data, "--to", text(&target)])
        .output()
        .unwrap();
    if full.status.code() == Some(1) && !disk.exists() {
        println!("not tried: this user may not mount a file system: {full:?}");
    } else {
        assert_eq!(full.status.code(), Some(3), "{full:?}");
        assert!(String::from_utf8_lossy(&full.stderr).contains("No space left"), "{full:?}");
    }

    let nowhere = Path::new("/proc/oncekey-backup");
    let ended = store(&["backup", "--data", data, "--to", text(nowhere)]);
    assert_eq!(ended.code(), Some(3), "{ended:?}");
    assert!(ended.err.contains("/proc/oncekey-backup"), "{ended:?}");
    assert_eq!(store(&["check", "--data", data]).code(), Some(0));
}

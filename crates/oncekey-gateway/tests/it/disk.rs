//! Disks that fill, fail and disappear below a running gateway (X5, X7), and few open files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::rig::{After, Connection, Gate, Gateway, Reply, Request, Upstream, get, wait_until};
use crate::small_disk::SmallDisk;

/// What the application answers on `/large`.
const LARGE: usize = 300_000;

/// Answers at once, but below `/wait` when the gate opens.
fn upstream(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |exchange| {
        let target = exchange.request.target.clone();
        if target.starts_with("/wait") && !exchange.wait(&gate) {
            return After::Close;
        }
        let run = format!("run {}", exchange.request.number);
        let size = if target.ends_with("large") { LARGE } else { 0 };
        exchange.answer(201, &[("X-Paid", "yes"), ("ETag", "\"1\"")], padded(&run, size).as_bytes())
    })
}

fn padded(text: &str, size: usize) -> String {
    let padding = size.saturating_sub(text.len());
    format!("{text}{}", " ".repeat(padding))
}

fn keyed(path: &str, key: &str) -> Request {
    Request::post(path).key(key).json("{}")
}

/// Sends and leaves the answer for later.
fn begin(gateway: &Gateway, path: &str, key: &str) -> Connection {
    let mut connection = Connection::open(gateway.address()).unwrap();
    connection.send(keyed(path, key).bytes()).unwrap();
    connection
}

fn wait_for_room(gateway: &Gateway, room: &str) {
    let name = format!("oncekey_store_room{{room=\"{room}\"}}");
    wait_until(&format!("the store is {room}"), || gateway.metric(&name) == Some(1.0));
}

#[track_caller]
fn is_full(reply: &Reply) {
    assert_eq!((reply.status, reply.code().as_str()), (503, "store-full"), "{reply:?}");
    assert!(reply.headers.has("retry-after"), "{reply:?}");
}

#[test]
fn x5_a_disk_that_fills_stops_new_keys_and_nothing_else_until_there_is_room_again() {
    let Some(disk) = SmallDisk::mount(96) else { return };
    let gate = Gate::new();
    let upstream = upstream(&gate);
    let config = "[store]\nreserve = \"32MiB\"\n[upstream]\ntimeout = \"2m\"\n";
    let gateway = Gateway::to(upstream.address()).data(&disk.folder()).config(config).start();
    let ended = keyed("/pay", "ended").reply(gateway.address());
    assert_eq!(ended.status, 201);
    let mut running = begin(&gateway, "/wait/large", "running");
    upstream.wait_for_requests(2);
    wait_for_room(&gateway, "open");

    disk.leave(20);
    wait_for_room(&gateway, "full");
    is_full(&keyed("/pay", "new").reply(gateway.address()));
    let again = keyed("/pay", "ended").reply(gateway.address());
    assert!(again.replayed() && again.body == ended.body, "{again:?}");
    assert_eq!(get(gateway.admin(), "/readyz").status, 200, "replays are still served");
    let free = gateway.metric("oncekey_store_free_bytes").unwrap();
    assert!(free < gateway.metric("oncekey_store_reserve_bytes").unwrap(), "{free}");

    // At worst without body: the client gets it whole, a replay says that it is not there.
    disk.leave(6);
    wait_for_room(&gateway, "critical");
    gate.open();
    let whole = running.read_reply().unwrap();
    assert_eq!((whole.status, whole.body.len()), (201, LARGE));
    assert_eq!(whole.header("idempotency-status"), "stored", "{:?}", whole.headers);
    let replay = keyed("/wait/large", "running").reply(gateway.address());
    assert!(replay.replayed() && replay.body.is_empty(), "{replay:?}");
    assert_eq!(replay.header("idempotency-body"), "omitted");
    assert_eq!((replay.status, replay.header("x-paid").as_str()), (201, "yes"));
    assert!(!replay.headers.has("etag"), "it is another body's: {replay:?}");
    assert_eq!(gateway.metric("oncekey_answers_without_body_total"), Some(1.0));
    is_full(&keyed("/pay", "new").reply(gateway.address()));

    disk.relieve();
    wait_for_room(&gateway, "open");
    assert_eq!(keyed("/pay", "new").reply(gateway.address()).text(), "run 3");
    assert_eq!(upstream.count(), 3, "nothing ran twice");
}

#[test]
fn x7_a_disk_that_is_filled_in_one_go_ends_the_process_and_loses_no_answer() {
    let Some(disk) = SmallDisk::mount(96) else { return };
    let gate = Gate::new();
    let upstream = upstream(&gate);
    // Next to no reserve: whoever fills the disk is faster than the guard.
    let config = "[store]\nreserve = 1\n[upstream]\ntimeout = \"2m\"\n";
    let mut gateway = Gateway::to(upstream.address()).data(&disk.folder()).config(config).start();
    let first = keyed("/pay", "first").reply(gateway.address());
    let keys: Vec<_> = (0..8).map(|number| format!("k{number}")).collect();
    let running: Vec<_> = keys.iter().map(|key| begin(&gateway, "/wait/large", key)).collect();
    upstream.wait_for_requests(9);
    disk.fill();
    wait_for_room(&gateway, "full");
    is_full(&keyed("/pay", "new").reply(gateway.address()));
    // What runs is written all the same, and meets the end of the disk.
    gate.open();
    let mut seen = vec![("/pay", "first".to_owned(), first)];
    for (key, mut connection) in keys.iter().zip(running) {
        if let Ok(reply) = connection.read_reply()
            && reply.headers.text("idempotency-status").as_deref() == Some("stored")
        {
            seen.push(("/wait/large", key.clone(), reply));
        }
    }
    let ended = gateway.wait_for_exit();
    assert_eq!(ended.code(), Some(3));
    let line = gateway.wait_for_log("the end", |line| {
        line["message"].as_str().is_some_and(|said| said.starts_with("the process ends"))
    });
    assert!(line["message"].as_str().unwrap().contains("free space"), "{line}");

    disk.relieve();
    gateway.restart();
    let before = upstream.count();
    for (path, key, told) in &seen {
        let again = keyed(path, key).reply(gateway.address());
        assert!(again.replayed() && again.body == told.body, "{key}: {again:?}");
    }
    for key in &keys {
        // Stored before its client heard of it, or nobody knows.
        let again = keyed("/wait/large", key).reply(gateway.address());
        assert!(again.replayed() || again.code() == "outcome-unknown", "{key}: {again:?}");
    }
    assert_eq!(upstream.count(), before, "nothing ran again");
    assert_eq!(keyed("/pay", "later").reply(gateway.address()).status, 201);
}

#[test]
fn x7_a_data_folder_that_is_deleted_ends_the_process() {
    let upstream = upstream(&Gate::new());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut gateway = Gateway::to(upstream.address()).data(&data).start();
    assert_eq!(keyed("/pay", "k").reply(gateway.address()).status, 201);
    fs::remove_dir_all(&data).unwrap();
    assert_eq!(gateway.wait_for_exit().code(), Some(3));
    let line = gateway.wait_for_log("the end", |line| {
        line["message"].as_str().is_some_and(|said| said.starts_with("the process ends"))
    });
    assert!(line["message"].as_str().unwrap().contains("deleted or replaced"), "{line}");
}

/// The binary, where anybody may run it.
fn for_everybody(folder: &Path) -> std::path::PathBuf {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("oncekey");
    let built = env!("CARGO_BIN_EXE_oncekey");
    if fs::hard_link(built, &program).is_err() {
        fs::copy(built, &program).unwrap();
    }
    program
}

/// The names and sizes of what lies in a folder and below it.
fn contents(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        found.push((entry.path().display().to_string(), metadata.len()));
        if metadata.is_dir() {
            found.extend(contents(&entry.path()));
        }
    }
    found.sort();
    found
}

#[test]
fn x7_a_folder_that_may_not_be_written_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let program = for_everybody(folder.path());
    let used = folder.path().join("used");
    let upstream = upstream(&Gate::new());
    let mut gateway = Gateway::to(upstream.address()).data(&used).start();
    assert_eq!(keyed("/pay", "k").reply(gateway.address()).status, 201);
    gateway.terminate();
    gateway.wait_for_exit();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let everybody_reads = Command::new("chmod").arg("-R").arg("a+rX").arg(&used).status();
    assert!(everybody_reads.unwrap().success());
    for data in [&used, &empty] {
        let before = contents(data);
        let told = Command::new(&program)
            .args(["serve", "--upstream", "http://127.0.0.1:1"])
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"])
            .arg(data)
            .current_dir("/")
            .stdin(Stdio::null())
            .uid(65_534)
            .output();
        // Only root may become somebody else; every automatic run is root's.
        let Ok(told) = told else { return };
        let said = String::from_utf8_lossy(&told.stderr);
        assert_eq!(told.status.code(), Some(3), "{said}");
        assert!(said.contains("is not writable") && said.contains("right to write"), "{said}");
        assert_eq!(contents(data), before);
    }
}

#[test]
fn x5_clients_never_take_the_files_that_the_store_needs() {
    let upstream = upstream(&Gate::new());
    let gateway = Gateway::to(upstream.address()).files(600).start();
    let warning = gateway.wait_for_log("few files", |line| line["limit"] == 600);
    let clients = warning["clients"].as_u64().unwrap();
    assert_eq!(keyed("/pay", "k").reply(gateway.address()).status, 201);
    // More than may be open at once: those beyond wait in the kernel.
    let idle: Vec<_> =
        (0..clients + 500).map(|_| Connection::open(gateway.address()).unwrap()).collect();
    // Health and metrics have files of their own.
    wait_until("the first is told of", || {
        gateway.metric("oncekey_runs_total{end=\"completed\"}") == Some(1.0)
    });
    let open = fs::read_dir(format!("/proc/{}/fd", gateway.id())).unwrap().count() as u64;
    assert!(open < 600 - 200, "{open} files are open");
    drop(idle);
    assert_eq!(keyed("/pay", "later").reply(gateway.address()).status, 201);
    assert!(keyed("/pay", "k").reply(gateway.address()).replayed());
    let trouble = gateway.log().iter().any(|line| line.contains("cannot accept"));
    assert!(!trouble, "{:#?}", gateway.log());
}

//! Starting (A2, A3), and what the process takes and tells.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Gateway, Request, Upstream, counting, keyed, logged};
use crate::rig::{Connection, oncekey, post};

/// A child that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a2_no_flag_but_the_upstream_is_needed() {
    let upstream = counting();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", upstream.address());
    // The usual ports may be taken on this machine: the environment names others.
    let mut child = Command::new(env!("CARGO_BIN_EXE_oncekey"))
        .args(["serve", "--upstream", &url])
        .env("ONCEKEY__SERVER__LISTEN", "127.0.0.1:0")
        .env("ONCEKEY__ADMIN__LISTEN", "127.0.0.1:0")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let _child = Ends(child);
    let address = said.lines().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
        (line["message"] == "listening").then(|| line["listen"].as_str()?.parse().ok())?
    });
    let keyed = [("Idempotency-Key", "k")];
    assert_eq!(post(address.unwrap(), "/pay", &keyed, "{}").status, 201);
    assert!(post(address.unwrap(), "/pay", &keyed, "{}").replayed());
    assert!(folder.path().join("oncekey-data").is_dir());
}

#[test]
fn a2_a_data_folder_in_memory_is_warned_about_loudly() {
    let upstream = counting();
    let shared_memory = Path::new("/dev/shm");
    if !shared_memory.is_dir() {
        return;
    }
    let folder = tempfile::tempdir_in(shared_memory).unwrap();
    let data = folder.path().join("data");
    let gateway = Gateway::to(upstream.address()).data(&data).start();
    let line = logged(&gateway, "THE DATA FOLDER IS NOT SAFE");
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["folder"], data.to_str().unwrap());
}

#[test]
fn a3_the_effective_configuration_runs_as_its_source_does() {
    let upstream = counting();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("oncekey.toml");
    fs::write(&file, "[[route]]\nmatch = \"POST /pay\"\nprofile = \"payment\"\n").unwrap();
    let checked = oncekey(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.code(), Some(0), "{checked:?}");
    let gateway = Gateway::to(upstream.address()).config(&checked.out).start();
    let refused = Request::post("/pay").json("{}").reply(gateway.address());
    assert_eq!(refused.code(), "missing-key");
    assert_eq!(keyed("/pay", "k").reply(gateway.address()).status, 201);
    let schema = oncekey(&["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_str(&schema.out).unwrap();
    assert!(schema["properties"]["route"].is_object());
}

#[test]
fn logs_contain_neither_keys_nor_bodies_nor_credentials() {
    const SECRETS: [&str; 5] = [
        "secret-key-7261",
        "secret-body-1893",
        "secret-token-4401",
        "secret-answer-5512",
        "secret-secret-9917-0000000000000000",
    ];
    let [key, body, token, answer, secret] = SECRETS;
    let upstream = Upstream::start(move |exchange| match exchange.request.target.as_str() {
        "/reset" => crate::rig::After::Reset,
        "/nonsense" => {
            exchange.send("HTTP/1.1 abc\r\n\r\n");
            crate::rig::After::Close
        }
        _ => exchange.answer(201, &[("Idempotency-Outcome", answer)], answer.as_bytes()),
    });
    let config = "[log]\nlevel = \"trace\"\n\
                  [[route]]\nmatch = \"POST /observe\"\nmode = \"observe\"\n\
                  [[route]]\nmatch = \"POST /uuid\"\nuuid_only = true\n\
                  [[route]]\nmatch = \"POST /json\"\nkey = [\"body:/id\"]\n";
    let gateway =
        Gateway::to(upstream.address()).config(config).variable("ONCEKEY_SECRET", secret).start();
    let json = format!(r#"{{"id":"{key}","of":"{body}"}}"#);
    for path in ["/pay", "/reset", "/nonsense", "/observe", "/uuid", "/json"] {
        for (value, credentials) in
            [(key, token), (key, token), (key, "other"), (&format!("\"{key}"), token)]
        {
            let request = Request::post(path).key(value).header("Authorization", credentials);
            request.json(&json).reply(gateway.address());
        }
    }
    // A client that leaves in the middle, and one that speaks no HTTP.
    let mut connection = Connection::open(gateway.address()).unwrap();
    let head = keyed("/pay", key).head_bytes();
    connection.send(head).unwrap();
    connection.send(body).unwrap();
    connection.reset();
    let mut connection = Connection::open(gateway.address()).unwrap();
    connection.send(format!("{key}: {body}\r\n\r\n")).unwrap();
    let _ = connection.read_reply();
    gateway.terminate();
    logged(&gateway, "stopped");
    let said = gateway.said();
    assert!(said.contains("an exchange failed") && said.contains("observed"), "{said}");
    for secret in SECRETS {
        let line = said.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret} in {line:?}");
    }
}

/// What a process keeps in memory, in kibibytes.
fn resident(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
fn an_idle_gateway_takes_less_than_40_mib() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    for number in 0..20 {
        keyed("/pay", &number.to_string()).reply(gateway.address());
    }
    let kib = resident(gateway.id());
    assert!(kib < 40 * 1024, "{kib} KiB");
}

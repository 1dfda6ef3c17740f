//! The store behind the gateway: full, damaged, failing (X1, X2, X3, X5).

use std::fs;
use std::path::Path;

use crate::rig::{After, Connection, Gate, Gateway, Reply, Request, Upstream, wait_for};

fn keyed(path: &str, key: &str) -> Request {
    Request::post(path).key(key).json("{}")
}

/// Answers at once, but `/reset` never and `/slow` when the gate opens.
fn upstream(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |exchange| {
        let target = exchange.request.target.clone();
        if target == "/reset" {
            return After::Reset;
        }
        if target == "/slow" && !exchange.wait(&gate) {
            return After::Close;
        }
        let run = format!("run {}", exchange.request.number);
        exchange.answer(201, &[], run.as_bytes())
    })
}

/// The id of the record that the application was told of with this key.
fn record_of(upstream: &Upstream, key: &str) -> Vec<u8> {
    let requests = upstream.requests();
    let told = requests.iter().find_map(|request| {
        let own = request.headers.text("idempotency-key").as_deref() == Some(key);
        request.headers.text("idempotency-record").filter(|_| own)
    });
    let digits: Vec<_> =
        told.unwrap().chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Changes one bit of each of these records in a data folder that nobody has open, in a batch that
/// follows on the store's own.
fn damage(data: &Path, ids: &[Vec<u8>]) -> usize {
    let database = fjall::Database::builder(data.join("db")).open().unwrap();
    let (mut batch, mut last, mut touched) = (database.batch(), Vec::new(), Vec::new());
    let number = |mark: &[u8]| u64::from_le_bytes(mark[..8].try_into().unwrap());
    for name in database.list_keyspace_names() {
        let keyspace = database.keyspace(&name, Default::default).unwrap();
        if let Some(mark) = keyspace.get("mark").unwrap()
            && (last.is_empty() || number(&mark) > number(&last))
        {
            last = mark.to_vec();
        }
        for id in ids {
            let Some(value) = keyspace.get(id).unwrap() else { continue };
            let mut value = value.to_vec();
            let middle = value.len() / 2;
            value[middle] ^= 1;
            batch.insert(&keyspace, id.as_slice(), value);
            touched.push(keyspace.clone());
        }
    }
    let next = number(&last) + 1;
    last[..8].copy_from_slice(&next.to_le_bytes());
    for keyspace in &touched {
        batch.insert(keyspace, "mark", last.as_slice());
    }
    batch.durability(Some(fjall::PersistMode::SyncAll)).commit().unwrap();
    touched.len()
}

#[track_caller]
fn refused(reply: &Reply, code: &str) {
    assert_eq!((reply.status, reply.code().as_str()), (503, code), "{reply:?}");
    assert!(reply.headers.has("retry-after"), "{reply:?}");
}

#[test]
fn x2_x3_a_record_that_cannot_be_read_is_never_a_fresh_claim_and_other_keys_run() {
    let upstream = upstream(&Gate::new());
    let mut gateway = Gateway::to(upstream.address()).start();
    assert_eq!(keyed("/pay", "ended").reply(gateway.address()).status, 201);
    assert_eq!(keyed("/reset", "unknown").reply(gateway.address()).status, 504);
    let fine = keyed("/pay", "fine").reply(gateway.address());
    // Closed, so that everything lies in the tables.
    gateway.terminate();
    assert!(gateway.wait_for_exit().success());
    let ids = [record_of(&upstream, "ended"), record_of(&upstream, "unknown")];
    assert_eq!(damage(gateway.data(), &ids), 2, "each record lies in one place");
    for _ in 0..2 {
        gateway.restart();
        for _ in 0..2 {
            refused(&keyed("/pay", "ended").reply(gateway.address()), "record-unreadable");
            refused(&keyed("/reset", "unknown").reply(gateway.address()), "record-unreadable");
        }
        let again = keyed("/pay", "fine").reply(gateway.address());
        assert!(again.replayed() && again.body == fine.body, "{again:?}");
    }
    assert_eq!(upstream.count(), 3, "nothing ran again");
    assert_eq!(keyed("/pay", "new").reply(gateway.address()).text(), "run 4");
}

#[test]
fn x1_after_a_store_has_failed_no_key_runs_and_the_process_ends() {
    let upstream = upstream(&Gate::new());
    let mut gateway = Gateway::to(upstream.address()).start();
    // The first answer needs a place on the disk, and there is nowhere to make it.
    let keyspaces = gateway.data().join("db/keyspaces");
    fs::remove_dir_all(&keyspaces).unwrap();
    fs::write(&keyspaces, "").unwrap();
    let mut keys = 0;
    let mut run = || {
        keys += 1;
        keyed("/pay", &format!("key-{keys}")).send(gateway.address())
    };
    // What is acknowledged until the store knows is in its log, and so it is kept.
    let _ = wait_for("the store has failed", || match run() {
        Ok(reply) if reply.status == 201 => None,
        other => Some(other),
    });
    let ran = upstream.count();
    let ended = wait_for("the process ends", || {
        if let Ok(reply) = keyed("/pay", "later").send(gateway.address()) {
            assert_eq!(reply.status, 503, "{reply:?}");
        }
        gateway.exited()
    });
    assert!(!ended.success());
    assert_eq!(upstream.count(), ran, "no later key ran");
}

#[test]
fn x5_max_entries_bounds_all_records_of_the_memory_store() {
    let upstream = upstream(&Gate::new());
    let config = "[store]\nkind = \"memory\"\nmax_entries = 2\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    for key in ["k1", "k2"] {
        assert_eq!(keyed("/pay", key).reply(gateway.address()).status, 201);
    }
    refused(&keyed("/pay", "k3").reply(gateway.address()), "store-full");
    assert!(keyed("/pay", "k1").reply(gateway.address()).replayed());
    assert_eq!(upstream.count(), 2);
    // The memory store is observed as the other one is.
    let batches = gateway.metric("oncekey_store_batch_size_count");
    assert!(batches.is_some_and(|count| count >= 4.0), "{batches:?}");
}

#[test]
fn x5_max_entries_bounds_what_the_embedded_store_holds_in_memory() {
    let gate = Gate::new();
    let upstream = upstream(&gate);
    let config = "[store]\nmax_entries = 1\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    for key in ["k1", "k2", "k3"] {
        assert_eq!(keyed("/pay", key).reply(gateway.address()).status, 201, "{key}");
    }
    let mut slow = Connection::open(gateway.address()).unwrap();
    slow.send(keyed("/slow", "k4").bytes()).unwrap();
    upstream.wait_for_requests(4);
    refused(&keyed("/pay", "k5").reply(gateway.address()), "store-full");
    assert!(keyed("/pay", "k1").reply(gateway.address()).replayed());
    gate.open();
    assert_eq!(slow.read_reply().unwrap().status, 201);
    assert_eq!(keyed("/pay", "k5").reply(gateway.address()).status, 201);
}

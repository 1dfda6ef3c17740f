//! Kills at chosen moments: while a large completion is written, while expired records are purged,
//! during one start after another (U1, O5, T3, X3).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::rig::{After, Gate, Gateway, Request, Upstream, race, wait_until};

/// Rounds of each test.
const ROUNDS: u64 = 12;

fn keyed(key: &str) -> Request {
    Request::post("/charge").key(key).json(r#"{"amount":420}"#)
}

/// Counts runs by key, and answers with `body` behind the key.
fn counting(body: &'static [u8]) -> (Upstream, Arc<Mutex<HashMap<String, usize>>>) {
    let runs: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let own = Arc::clone(&runs);
    let upstream = Upstream::start(move |exchange| {
        let key = exchange.request.headers.text("idempotency-key").unwrap();
        *own.lock().unwrap().entry(key.clone()).or_default() += 1;
        if key.starts_with("silent") {
            return exchange.stay_silent();
        }
        exchange.answer(201, &[], &[key.as_bytes(), body].concat())
    });
    (upstream, runs)
}

#[test]
fn o5_a_kill_while_a_large_completion_is_written_leaves_all_of_it_or_an_unknown() {
    // A little below what is kept.
    static LARGE: [u8; 1_000_000] = [b'x'; 1_000_000];
    let (upstream, runs) = counting(&LARGE);
    let mut gateway = Gateway::to(upstream.address()).start();
    let (mut whole, mut unknown) = (0, 0);
    for round in 0..ROUNDS {
        let key = format!("k{round}");
        let address = gateway.address();
        let told = thread::scope(|scope| {
            let client = scope.spawn(|| keyed(&key).send(address));
            wait_until("it runs", || runs.lock().unwrap().contains_key(&key));
            // The moment is what is varied, not a wait for anything.
            Gate::new().opens_within(Duration::from_millis(round * round * 2));
            if round + 1 == ROUNDS {
                // At the latest, it comes just behind the end.
                wait_until("the answer comes", || client.is_finished());
            }
            gateway.kill();
            client.join().unwrap()
        });
        gateway.restart();
        let again = keyed(&key).reply(gateway.address());
        if let Ok(told) = told {
            assert!(again.replayed() && again.body == told.body, "{key}: seen and lost");
        }
        if again.code() == "outcome-unknown" {
            unknown += 1;
        } else {
            let expected = [key.as_bytes(), &LARGE].concat();
            assert_eq!((again.status, again.body == expected), (201, true), "{key}: {again:?}");
            whole += 1;
        }
        assert_eq!(runs.lock().unwrap()[&key], 1, "{key} ran again");
    }
    println!("{whole} whole, {unknown} unknown");
    assert!(whole > 0, "every kill came before the answer");
}

#[test]
fn t3_a_kill_while_expired_records_are_purged_loses_nothing_that_has_not_expired() {
    let (upstream, runs) = counting(b" done");
    let config = "[[route]]\nmatch = \"POST /short\"\nretention = \"1s\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    let short = |key: &str| Request::post("/short").key(key).json("{}");
    let address = gateway.address();
    race(8, |client| {
        for number in 0..60 {
            let key = format!("{client}-{number}");
            assert_eq!(short(&format!("short-{key}")).reply(address).status, 201);
            assert_eq!(keyed(&format!("long-{key}")).reply(address).status, 201);
        }
    });
    wait_until("the short ones expire", || {
        short("probe").reply(address).status == 201 && runs.lock().unwrap()["probe"] > 1
    });
    // The purge begins as soon as the store is open.
    for round in 0..ROUNDS {
        gateway.kill_a_start(Duration::from_millis(10 + round * 7));
    }
    gateway.restart();
    let address = gateway.address();
    race(8, |client| {
        for number in 0..60 {
            let long = format!("long-{client}-{number}");
            assert!(keyed(&long).reply(address).replayed(), "{long} is lost");
            let expired = short(&format!("short-{client}-{number}")).reply(address);
            assert_eq!((expired.status, expired.replayed()), (201, false), "{expired:?}");
        }
    });
    let runs = runs.lock().unwrap();
    let of = |prefix: &str, count| {
        runs.iter().filter(|(key, _)| key.starts_with(prefix)).all(|(_, runs)| *runs == count)
    };
    assert!(of("long-", 1) && of("short-", 2), "{runs:?}");
}

#[test]
fn x3_kills_during_one_start_after_another_lose_and_forget_nothing() {
    let (upstream, runs) = counting(b" done");
    let mut gateway = Gateway::to(upstream.address()).start();
    let made = AtomicUsize::new(0);
    for round in 0..3 {
        let address = gateway.address();
        race(4, |_| {
            for _ in 0..10 {
                let key = format!("k{}", made.fetch_add(1, Ordering::SeqCst));
                assert_eq!(keyed(&key).reply(address).status, 201);
            }
        });
        let silent = format!("silent-{round}");
        thread::scope(|scope| {
            let client = scope.spawn(|| keyed(&silent).send(address));
            wait_until("it runs", || runs.lock().unwrap().contains_key(&silent));
            gateway.kill();
            assert!(client.join().unwrap().is_err());
        });
        // A start writes as well: each of these finds what the one before left half done.
        for start in 0..ROUNDS {
            gateway.kill_a_start(Duration::from_millis(5 + start * 6));
        }
        gateway.restart();
        for number in 0..made.load(Ordering::SeqCst) {
            let again = keyed(&format!("k{number}")).reply(gateway.address());
            assert!(again.replayed(), "k{number}: {again:?}");
        }
        for before in 0..=round {
            let again = keyed(&format!("silent-{before}")).reply(gateway.address());
            assert_eq!(again.code(), "outcome-unknown", "silent-{before}: {again:?}");
        }
    }
    assert!(runs.lock().unwrap().values().all(|runs| *runs == 1));
}

#[test]
fn u5_a_kill_in_the_middle_of_a_graceful_stop_is_a_kill_like_any_other() {
    let go_on = Gate::new();
    let own = go_on.clone();
    let upstream = Upstream::start(move |exchange| {
        if !exchange.wait(&own) {
            return After::Close;
        }
        exchange.answer(201, &[], b"done")
    });
    let mut gateway = Gateway::to(upstream.address()).start();
    let address = gateway.address();
    thread::scope(|scope| {
        let client = scope.spawn(|| keyed("k1").send(address));
        upstream.wait_for_requests(1);
        gateway.terminate();
        gateway.wait_for_log("the stop", |line| {
            line["message"].as_str().is_some_and(|text| text.starts_with("stopping"))
        });
        // The work that the stop waits for is still running.
        gateway.kill();
        assert!(client.join().unwrap().is_err());
    });
    gateway.restart();
    go_on.open();
    assert_eq!(keyed("k1").reply(gateway.address()).code(), "outcome-unknown");
    assert_eq!(upstream.count(), 1);
}

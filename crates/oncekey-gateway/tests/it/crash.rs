//! The gateway is killed at any moment while requests run (U1, O5, X3).
//!
//! The workload knows what it sent and what it was told; the upstream counts effects. After each
//! kill every key is asked again until its answer is final, and three things must hold:
//!
//! 1. no key has two effects;
//! 2. a key whose whole answer was seen replays the same bytes;
//! 3. every other one is replayed, told `outcome-unknown`, or runs for the first time.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::rig::{After, Exchange, Gate, Gateway, Reply, Request, Upstream, wait_for};

/// Clients that post at the same time.
const CLIENTS: usize = 8;

/// How often the gateway is killed; more is told by `ONCEKEY_ROUNDS`.
fn rounds() -> usize {
    let rounds = std::env::var("ONCEKEY_ROUNDS").ok().and_then(|text| text.parse().ok());
    rounds.unwrap_or(10)
}

/// Effects by key.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<HashMap<String, usize>>>);

impl Ledger {
    fn enter(&self, key: &str) -> usize {
        let mut effects = self.0.lock().unwrap();
        let count = effects.entry(key.to_owned()).or_default();
        *count += 1;
        *count
    }

    fn effects(&self, key: &str) -> usize {
        self.0.lock().unwrap().get(key).copied().unwrap_or(0)
    }

    fn total(&self) -> usize {
        self.0.lock().unwrap().values().sum()
    }
}

/// Has its effect, then answers in one of three ways: at once, after a while, or in pieces.
fn charge(exchange: &mut Exchange<'_>, ledger: &Ledger) -> After {
    let key = exchange.request.headers.text("idempotency-key").unwrap();
    let effect = ledger.enter(&key);
    let body = format!("{key} effect {effect} of request {}", exchange.request.number);
    match exchange.request.number % 3 {
        0 => exchange.answer(201, &[], body.as_bytes()),
        1 => {
            Gate::new().opens_within(Duration::from_millis(7));
            exchange.answer(201, &[], body.as_bytes())
        }
        _ => {
            let head = format!("HTTP/1.1 201 C\r\nContent-Length: {}\r\n\r\n", body.len());
            exchange.send(head);
            let all = exchange.trickle(body.as_bytes(), 12, Duration::from_millis(20));
            if all { After::Keep } else { After::Close }
        }
    }
}

fn keyed(key: &str) -> Request {
    Request::post("/charge").key(key).json(r#"{"amount":420}"#)
}

/// Numbers without a pattern that a test could run into; the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Keys, and the whole answers that came.
type Asked = Vec<(String, Option<Reply>)>;

/// Posts keys until the gateway is gone, each of them twice, mostly at the same time; what was
/// asked, and the whole answers that came.
fn load(address: SocketAddr, made: &AtomicUsize, over: &Gate) -> Asked {
    let mut asked = Vec::new();
    while !over.is_open() {
        let key = format!("k{}", made.fetch_add(1, Ordering::SeqCst) / 2);
        let reply = keyed(&key).send(address).ok();
        let came = reply.is_some();
        asked.push((key, reply));
        if !came {
            break;
        }
    }
    asked
}

/// One kill: load, a moment, SIGKILL, restart. What was asked and what came back.
fn round(gateway: &mut Gateway, made: &AtomicUsize, moment: Duration, ledger: &Ledger) -> Asked {
    let over = Gate::new();
    let before = ledger.total();
    let address = gateway.address();
    let asked = thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(|| load(address, made, &over))).collect();
        wait_for("the load begins", || (ledger.total() > before).then_some(()));
        // The moment is what is drawn by lot, not a wait for anything.
        Gate::new().opens_within(moment);
        gateway.kill();
        over.open();
        let asked = clients.into_iter().flat_map(|client| client.join().unwrap());
        asked.collect::<Vec<_>>()
    });
    gateway.restart();
    asked
}

/// Whether the answer of a first request was kept, as far as its client saw.
fn kept(reply: &Reply) -> bool {
    reply.status == 201
}

#[test]
fn u1_no_kill_makes_a_key_run_twice_or_forgets_an_answer_that_was_seen() {
    let ledger = Ledger::default();
    let own = ledger.clone();
    let upstream = Upstream::start(move |exchange| charge(exchange, &own));
    let mut gateway = Gateway::to(upstream.address()).start();
    let made = AtomicUsize::new(0);
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut seen: Asked = Vec::new();
    let (mut replayed, mut unknown, mut first_runs) = (0, 0, 0);
    for number in 0..rounds() {
        let moment = Duration::from_millis(chance.below(200));
        let asked = round(&mut gateway, &made, moment, &ledger);
        for (key, told) in &asked {
            let before = ledger.effects(key);
            let again = keyed(key).reply(gateway.address());
            match (told, again.code().as_str()) {
                (Some(told), _) if kept(told) => {
                    assert!(again.replayed(), "round {number}: {key} {told:?} then {again:?}");
                    assert_eq!((told.status, &told.body), (again.status, &again.body), "{key}");
                    replayed += 1;
                }
                (_, "outcome-unknown") => unknown += 1,
                (_, _) if again.replayed() => replayed += 1,
                (_, _) => {
                    assert_eq!((again.status, before), (201, 0), "round {number}: {key} {again:?}");
                    first_runs += 1;
                }
            }
        }
        for (key, _) in seen.iter().chain(&asked) {
            assert!(ledger.effects(key) <= 1, "round {number}: {key} has two effects");
        }
        seen.extend(asked);
    }
    // Old answers outlive every later kill, too.
    for (key, told) in &seen {
        let again = keyed(key).reply(gateway.address());
        if let Some(told) = told.as_ref().filter(|told| kept(told)) {
            assert!(again.replayed() && again.body == told.body, "{key}: {told:?} {again:?}");
        }
        assert_eq!(ledger.effects(key).max(1), 1, "{key}");
    }
    println!(
        "{} requests: {replayed} replayed, {unknown} unknown, {first_runs} first runs",
        seen.len()
    );
    assert!(replayed > 0 && unknown > 0, "{replayed} replayed, {unknown} unknown: too weak a load");
}

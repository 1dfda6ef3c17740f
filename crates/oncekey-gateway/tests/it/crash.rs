//! The gateway is killed at any moment while requests run (U1, O5, X3).
//!
//! The workload knows what it sent and what it was told; the upstream counts effects. A kill comes
//! at a moment drawn by lot: under load, during a graceful stop, and while the gateway starts
//! again, once or twice in a row. After each round every key of it is asked again, and it must hold
//! that
//!
//! 1. no key has two effects;
//! 2. a key whose whole answer was seen replays the same bytes;
//! 3. every other one is replayed, told `outcome-unknown`, or runs for the first time;
//! 4. what a key was told then stays, over all later rounds.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::rig::{After, Exchange, Gate, Gateway, Reply, Request, Upstream, wait_for};

/// Clients that post at the same time.
const CLIENTS: usize = 8;

/// Keys of earlier rounds that are asked again, at most, every so many rounds; at the end, all.
const LOOK_BACK: usize = 500;
const LOOK_BACK_EVERY: usize = 20;

/// How often the gateway is killed under load; more is told by `ONCEKEY_ROUNDS`.
fn rounds() -> usize {
    let rounds = std::env::var("ONCEKEY_ROUNDS").ok().and_then(|text| text.parse().ok());
    rounds.unwrap_or(100)
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

    /// A key that had more than one effect.
    fn twice(&self) -> Option<String> {
        let effects = self.0.lock().unwrap();
        effects.iter().find(|(_, count)| **count > 1).map(|(key, _)| key.clone())
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

/// Whether the answer of a first request was kept, as far as its client saw.
fn kept(reply: &Reply) -> bool {
    reply.status == 201
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

/// How often it was killed where.
#[derive(Debug, Default)]
struct Kills {
    load: usize,
    stop: usize,
    start: usize,
}

/// One round: load, a moment, the end, perhaps starts that are killed too, and a start that is not.
/// What was asked and what came back.
fn round(
    gateway: &mut Gateway,
    made: &AtomicUsize,
    ledger: &Ledger,
    chance: &mut Chance,
    kills: &mut Kills,
) -> Asked {
    let over = Gate::new();
    let before = ledger.total();
    let address = gateway.address();
    let asked = thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(|| load(address, made, &over))).collect();
        wait_for("the load begins", || (ledger.total() > before).then_some(()));
        // The moments are what is drawn by lot, not waits for anything.
        Gate::new().opens_within(Duration::from_millis(chance.below(150)));
        if chance.below(4) == 0 {
            gateway.terminate();
            Gate::new().opens_within(Duration::from_millis(chance.below(60)));
            kills.stop += 1;
        } else {
            kills.load += 1;
        }
        gateway.kill();
        over.open();
        let asked = clients.into_iter().flat_map(|client| client.join().unwrap());
        asked.collect::<Vec<_>>()
    });
    for _ in 0..chance.below(3) {
        gateway.kill_a_start(Duration::from_millis(chance.below(60)));
        kills.start += 1;
    }
    gateway.restart();
    asked
}

/// What a key was told at last, which it must be told for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Final {
    Answer(Vec<u8>),
    Unknown,
}

/// Asks a key again that was told `told`, each time it was asked.
fn ask_again(address: SocketAddr, key: &str, told: &[Option<Reply>], ledger: &Ledger) -> Final {
    let before = ledger.effects(key);
    let again = keyed(key).reply(address);
    let seen = told.iter().flatten().find(|reply| kept(reply));
    if let Some(seen) = seen {
        assert!(again.replayed(), "{key}: {told:?} then {again:?}");
        assert_eq!((seen.status, &seen.body), (again.status, &again.body), "{key}");
    }
    if again.code() == "outcome-unknown" {
        return Final::Unknown;
    }
    assert_eq!(again.status, 201, "{key}: {told:?} then {again:?}");
    assert!(again.replayed() || before == 0, "{key} ran again: {told:?} then {again:?}");
    Final::Answer(again.body)
}

/// Asks all these keys, some at a time.
fn verify(address: SocketAddr, asked: Asked, ledger: &Ledger, finals: &mut HashMap<String, Final>) {
    let mut told: HashMap<String, Vec<Option<Reply>>> = HashMap::new();
    for (key, reply) in asked {
        told.entry(key).or_default().push(reply);
    }
    let told: Vec<_> = told.into_iter().collect();
    let share = told.len().div_ceil(CLIENTS).max(1);
    let found: Vec<(String, Final)> = thread::scope(|scope| {
        let clients: Vec<_> = told
            .chunks(share)
            .map(|keys| {
                scope.spawn(|| {
                    let one = |(key, told): &(String, Vec<Option<Reply>>)| {
                        (key.clone(), ask_again(address, key, told, ledger))
                    };
                    keys.iter().map(one).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    finals.extend(found);
}

/// Asks some of the keys of earlier rounds.
fn look_back<'a>(address: SocketAddr, keys: impl Iterator<Item = (&'a String, &'a Final)>) {
    for (key, known) in keys {
        let again = keyed(key).reply(address);
        match known {
            Final::Answer(body) => {
                assert!(again.replayed() && again.body == *body, "{key}: {known:?} then {again:?}");
            }
            Final::Unknown => assert_eq!(again.code(), "outcome-unknown", "{key}: {again:?}"),
        }
    }
}

#[test]
fn u1_no_kill_makes_a_key_run_twice_or_forgets_an_answer_that_was_seen() {
    let ledger = Ledger::default();
    let own = ledger.clone();
    let upstream = Upstream::start(move |exchange| charge(exchange, &own));
    let mut gateway = Gateway::to(upstream.address()).start();
    let made = AtomicUsize::new(0);
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let (mut finals, mut kills, mut seen) = (HashMap::new(), Kills::default(), 0);
    for number in 1..=rounds() {
        let asked = round(&mut gateway, &made, &ledger, &mut chance, &mut kills);
        seen += asked.iter().filter(|(_, told)| told.as_ref().is_some_and(kept)).count();
        verify(gateway.address(), asked, &ledger, &mut finals);
        assert_eq!(ledger.twice(), None, "round {number}: two effects");
        if number % LOOK_BACK_EVERY == 0 {
            // In the order of a map, which is another in each run.
            look_back(gateway.address(), finals.iter().take(LOOK_BACK));
        }
    }
    look_back(gateway.address(), finals.iter());
    assert_eq!(ledger.twice(), None, "two effects");
    let unknown = finals.values().filter(|known| **known == Final::Unknown).count();
    println!("{kills:?}: {} keys, {seen} answers seen, {unknown} keys unknown", finals.len());
    assert!(seen > 0 && unknown > 0, "{seen} answers seen, {unknown} unknown: too weak a load");
}

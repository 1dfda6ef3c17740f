//! The `Idempotency-*` headers in both directions (H).

use super::{Gateway, Request, Upstream, keyed};

/// What oncekey sets: nobody else's reaches the other side.
const OURS: [&str; 8] = [
    "Idempotency-Record",
    "Idempotency-Attempt",
    "Idempotency-Outcome",
    "Idempotency-Status",
    "Idempotency-Expires",
    "Idempotency-Body",
    "Idempotency-Tenant",
    "Idempotency-Operation",
];

fn ours(names: Vec<String>) -> Vec<String> {
    let mut ours: Vec<_> = names.into_iter().filter(|name| name.starts_with("idempoten")).collect();
    ours.sort();
    ours
}

/// An application that claims everything that only oncekey may say.
fn boasting(status: u16) -> Upstream {
    Upstream::start(move |exchange| {
        let mut headers: Vec<_> = OURS
            .iter()
            .filter(|name| **name != "Idempotency-Outcome")
            .map(|name| (*name, "theirs"))
            .collect();
        headers.push(("Idempotent-Replayed", "true"));
        exchange.answer(status, &headers, b"done")
    })
}

#[test]
fn h_what_a_client_claims_is_removed_keyed_or_not() {
    let upstream = boasting(201);
    let gateway = Gateway::to(upstream.address()).start();
    let claiming = |request: Request| {
        let request = OURS.iter().fold(request, |request, name| request.header(name, "mine"));
        request.header("Idempotent-Replayed", "true").body("{}").reply(gateway.address())
    };
    claiming(Request::post("/pay").key("k"));
    claiming(Request::post("/pay"));
    claiming(Request::new("GET", "/pay").key("k"));
    claiming(Request::new("PUT", "/pay"));
    let seen: Vec<_> = upstream.requests().into_iter().map(|request| request.headers).collect();
    let names: Vec<_> = seen.iter().map(|headers| ours(headers.names())).collect();
    let keyed = ["idempotency-attempt", "idempotency-key", "idempotency-record"];
    assert_eq!(names[0], keyed);
    assert!(seen[0].all("idempotency-attempt") == [b"1"], "{seen:?}");
    assert!(names[1].is_empty() && names[3].is_empty(), "{names:?}");
    assert_eq!(names[2], ["idempotency-key"]);
}

#[test]
fn h_what_an_application_claims_is_removed_keyed_or_not() {
    let upstream = boasting(201);
    let gateway = Gateway::to(upstream.address()).start();
    let unkeyed = Request::post("/pay").json("{}").reply(gateway.address());
    assert!(ours(unkeyed.headers.names()).is_empty(), "{unkeyed:?}");
    let get = Request::new("GET", "/pay").reply(gateway.address());
    assert!(ours(get.headers.names()).is_empty(), "{get:?}");
    let ignored = Request::new("GET", "/pay").key("k").reply(gateway.address());
    assert_eq!(ours(ignored.headers.names()), ["idempotency-status"]);

    let first = keyed("/pay", "k").reply(gateway.address());
    assert_eq!(ours(first.headers.names()), ["idempotency-expires", "idempotency-status"]);
    assert_eq!(first.headers.all("idempotency-status"), [b"stored"]);
    let second = keyed("/pay", "k").reply(gateway.address());
    assert_eq!(
        ours(second.headers.names()),
        ["idempotency-expires", "idempotency-status", "idempotent-replayed"]
    );
    assert_ne!(second.header("idempotency-expires"), "theirs");
}

#[test]
fn o3_the_application_decides_and_its_word_stays_inside() {
    let upstream = Upstream::start(|exchange| {
        let said = exchange.request.target.trim_start_matches('/').to_owned();
        exchange.answer(200, &[("Idempotency-Outcome", &said)], b"done")
    });
    let gateway = Gateway::to(upstream.address()).start();
    for (said, first, second) in [
        ("keep", "stored", "replayed"),
        ("retry", "retry", "retry"),
        ("release", "released", "released"),
        ("unknown", "unknown", "unknown"),
        ("nonsense", "unknown", "unknown"),
    ] {
        for expected in [first, second] {
            let reply = keyed(&format!("/{said}"), "k").reply(gateway.address());
            assert_eq!(reply.idempotency(), expected, "{said}: {reply:?}");
            assert!(!reply.headers.has("idempotency-outcome"), "{reply:?}");
        }
    }
}

#[test]
fn h_the_clients_own_key_header_goes_on_unchanged() {
    let upstream = boasting(201);
    let config = "[defaults]\nkey = [\"header:Idempotency-Key\", \"header:X-Key\"]\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    for (name, value) in [
        ("Idempotency-Key", "\"a\";p=1"),
        ("IDEMPOTENCY-KEY", "bare"),
        ("X-Key", "\"es\\\"caped\""),
    ] {
        Request::post("/pay").header(name, value).json("{}").reply(gateway.address());
        let seen = upstream.requests().pop().unwrap().headers;
        assert_eq!(seen.all(name), [value.as_bytes()], "{seen:?}");
        assert_eq!(seen.text("idempotency-attempt").unwrap(), "1");
    }
}

#[test]
fn h_the_record_stays_and_the_attempt_counts() {
    let upstream = Upstream::start(|exchange| {
        let status = if exchange.request.number < 3 { 503 } else { 201 };
        exchange.answer(status, &[], b"")
    });
    let gateway = Gateway::to(upstream.address()).start();
    for status in [503, 503, 201, 201] {
        assert_eq!(keyed("/pay", "k").reply(gateway.address()).status, status);
    }
    let seen = upstream.requests();
    let of = |name: &str| -> Vec<_> {
        seen.iter().map(|request| request.headers.text(name).unwrap()).collect()
    };
    assert_eq!(of("idempotency-attempt"), ["1", "2", "3"]);
    let records = of("idempotency-record");
    assert!(records.iter().all(|record| *record == records[0]), "{records:?}");
}

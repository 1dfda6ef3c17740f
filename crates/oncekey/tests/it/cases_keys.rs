//! What a key stands for: fingerprint, identity, tenancy, and keys that are odd (B74 to B101 and
//! B139).

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;
use oncekey::clock::Clock;
use oncekey::fingerprint::{BodyMode, Selection};
use oncekey::http::{
    KeyNeed, KeyRules, KeySource, Operation, Policy, Scoping, StoreDown, normalised,
};
use oncekey::key::KeySyntax;
use oncekey::store::{MemoryStore, Store};

use crate::rig::{Reply, Rig, pay, request};

fn json(body: &'static str) -> Request<Full<Bytes>> {
    let headers = [("idempotency-key", "k"), ("content-type", "application/json")];
    request("/pay", &headers, body)
}

fn bytes(body: &'static [u8]) -> Request<Full<Bytes>> {
    let request = Request::post("/pay").header("idempotency-key", "k");
    request.body(Full::from(body)).expect("a request")
}

fn by_value(exclude: &[&str]) -> Policy {
    let exclude = exclude.iter().map(|pointer| (*pointer).to_owned()).collect();
    let selection = Selection { exclude, ..Selection::default() };
    Policy::default().with(|policy| policy.body = BodyMode::Json(selection))
}

/// What became of the second request, after the first was stored.
async fn second(
    policy: Policy,
    first: Request<Full<Bytes>>,
    second: Request<Full<Bytes>>,
) -> Reply {
    let rig = Rig::new(policy);
    assert_eq!(rig.send(first).await.told(), "stored");
    let reply = rig.send(second).await;
    assert_eq!(rig.app.runs(), 1, "one key, one run");
    reply
}

fn is_mismatch(reply: &Reply) -> bool {
    (reply.status, reply.code().as_str()) == (422, "key-reused")
}

#[tokio::test]
async fn f2_b74_b76_the_same_value_in_another_spelling_is_judged_by_the_policy() {
    let one = r#"{"a":1,"b":2}"#;
    for other in [r#"{"b":2,"a":1}"#, "{ \"a\": 1,\n \"b\": 2 }"] {
        // By bytes it is another request under this key; it is never a new operation.
        assert!(is_mismatch(&second(Policy::default(), json(one), json(other)).await));
        let reply = second(by_value(&[]), json(one), json(other)).await;
        assert_eq!(reply.told(), "replayed");
    }
}

#[tokio::test]
async fn f3_b77_what_changes_with_each_try_may_be_left_out_and_nothing_else() {
    let first = r#"{"amount":5,"at":"10:00","card":{"blob":"x"}}"#;
    let policy = || by_value(&["/at", "/card/blob"]);
    let retry = r#"{"amount":5,"at":"10:01","card":{"blob":"y"}}"#;
    assert_eq!(second(policy(), json(first), json(retry)).await.told(), "replayed");
    let dearer = r#"{"amount":6,"at":"10:00","card":{"blob":"x"}}"#;
    assert!(is_mismatch(&second(policy(), json(first), json(dearer)).await));
}

#[tokio::test]
async fn f1_b79_another_query_is_another_request() {
    let to = |uri| request(uri, &[("idempotency-key", "k")], "");
    let reply = second(Policy::default(), to("/search?q=a"), to("/search?q=b")).await;
    assert!(is_mismatch(&reply));
}

#[tokio::test]
async fn f1_b82_bodies_that_are_no_text_are_told_apart() {
    for policy in [Policy::default, || by_value(&[])] {
        let other = second(policy(), bytes(b"\xff\x01"), bytes(b"\xff\x02")).await;
        assert!(is_mismatch(&other));
        let same = second(policy(), bytes(b"\xff\x01"), bytes(b"\xff\x01")).await;
        assert_eq!(same.told(), "replayed");
    }
}

#[tokio::test]
async fn s2_b85_a_named_route_never_answers_for_one_resource_with_another() {
    let named = Policy::default().with(|p| p.operation = Operation::Named("tickets".into()));
    let to = |uri| request(uri, &[("idempotency-key", "k")], "");
    assert!(is_mismatch(&second(named, to("/tickets/1"), to("/tickets/2")).await));
}

#[tokio::test]
async fn s2_b85_b86_the_path_on_the_wire_is_the_operation() {
    let rig = Rig::new(Policy::default());
    let paths =
        ["/v1/pay", "/v2/pay", "/tickets/1", "/tickets/2", "/tickets/12", "/tickets/1/2", "/a%2Fb"];
    for path in paths {
        let reply = rig.send(request(path, &[("idempotency-key", "k")], "")).await;
        assert_eq!(reply.told(), "stored", "{path}");
    }
    assert_eq!(rig.app.runs(), paths.len());
    assert_eq!(paths.map(normalised).into_iter().collect::<HashSet<_>>().len(), paths.len());
}

#[tokio::test]
async fn f2_b88_values_that_other_parsers_stumble_over_run_and_are_told_apart() {
    for (first, other) in [
        (r#"{"id":9007199254740993}"#, r#"{"id":9007199254740992}"#),
        (r#"{"a":-0.0}"#, r#"{"a":0.0}"#),
        (r#"{"a":1e400}"#, r#"{"a":1e401}"#),
        (r#"{"a":170141183460469231731687303715884105727}"#, r#"{"a":1}"#),
        (r#"{"a":NaN}"#, r#"{"a":Infinity}"#),
        (r#"{"id":"67e55044-10b1-426f-9247-bb680e5fe0c8"}"#, r#"{"id":"2026-01-01"}"#),
    ] {
        assert!(is_mismatch(&second(by_value(&[]), json(first), json(other)).await), "{first}");
        let again = second(by_value(&[]), json(first), json(first)).await;
        assert_eq!(again.told(), "replayed", "{first}");
    }
}

#[tokio::test]
async fn k4_b91_equal_bodies_under_two_keys_are_two_operations() {
    let rig = Rig::new(Policy::default());
    for key in ["k1", "k2"] {
        assert_eq!(rig.send(pay(key, "", "one pizza")).await.told(), "stored");
    }
    assert_eq!(rig.app.runs(), 2);
}

#[tokio::test]
async fn f2_b92_a_member_that_occurs_twice_fails_no_request() {
    let twice = r#"{"a":1,"a":2}"#;
    assert_eq!(second(by_value(&[]), json(twice), json(twice)).await.told(), "replayed");
    let other = second(by_value(&[]), json(twice), json(r#"{"a":2}"#)).await;
    assert!(is_mismatch(&other), "which of the two counts is not ours to say");
}

#[tokio::test]
async fn f3_b94_a_replay_is_the_first_answer_unless_the_route_compares_accept() {
    let accepting = |what| request("/pay", &[("idempotency-key", "k"), ("accept", what)], "");
    let (plain, html) = (|| accepting("application/json"), || accepting("text/html"));
    assert_eq!(second(Policy::default(), plain(), html()).await.told(), "replayed");
    let compared = Policy::default().with(|p| p.headers = vec![http::header::ACCEPT]);
    assert!(is_mismatch(&second(compared, plain(), html()).await));
}

#[tokio::test]
async fn k1_b95_an_id_for_tracing_is_no_key() {
    let rig = Rig::new(Policy::default());
    for run in 1..=3 {
        let traced = [("x-request-id", "r1"), ("traceparent", "t"), ("x-correlation-id", "r1")];
        assert_eq!(rig.send(request("/pay", &traced, "")).await.told(), "-");
        assert_eq!(rig.app.runs(), run);
    }
}

#[tokio::test]
async fn s3_b98_a_missing_tenant_is_refused_and_never_taken_for_an_outage() {
    let clock = Clock::manual();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()));
    let policy = Policy::default().with(|p| p.store_down = StoreDown::InsecurePassThrough);
    let rig = Rig::on(Arc::clone(&store) as _, clock, policy, Scoping::by_tenant(|_| None));
    for _ in 0..3 {
        let reply = rig.send(pay("k", "", "")).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "missing-tenant"));
    }
    assert_eq!((rig.app.runs(), store.len()), (0, 0));
}

#[tokio::test]
async fn s1_b100_a_key_with_a_name_that_means_something_is_a_key_like_any_other() {
    let rig = Rig::new(Policy::default());
    let keys = [
        "user",
        "session",
        "meta",
        "records",
        "secret",
        "__proto__",
        "constructor",
        "..",
        "../../etc/passwd",
        "*",
        "%00",
        "0",
        "-1",
        "null",
        "a:b",
        "a/b",
        "a|b",
        "a#b",
        "{}",
        "[k]",
        "$where",
        "';--",
        "KEYS",
        "shared",
        "main",
        "POST",
        "stored",
    ];
    for told in ["stored", "replayed"] {
        for key in keys {
            assert_eq!(rig.send(pay(key, "", "")).await.told(), told, "{key}");
        }
    }
    assert_eq!(rig.app.runs(), keys.len());
}

#[tokio::test]
async fn x5_b101_what_is_refused_or_not_allowed_leaves_nothing_and_the_store_has_a_bound() {
    let clock = Clock::manual();
    let store = Arc::new(MemoryStore::new().with_clock(clock.clone()).with_limits(10, 1 << 30));
    let policy = Policy::default().with(|p| p.max_request_body = 16);
    let rig = Rig::on(Arc::clone(&store) as _, clock, policy, Scoping::shared());
    for number in 0..200 {
        let key = format!("k{number}");
        assert_eq!(rig.send(pay(&key, "status=401", "")).await.told(), "released");
        assert_eq!(rig.send(pay(&key, "", "far too long to be compared")).await.status, 413);
        assert_eq!(rig.send(pay(&format!("k {number}"), "", "")).await.status, 400);
    }
    assert_eq!(store.len(), 0, "strangers leave no state");
    for number in 0..200 {
        let reply = rig.send(pay(&format!("k{number}"), "", "")).await;
        let code = reply.code();
        let expected = if number < 10 { (201, "-") } else { (503, "store-full") };
        assert_eq!((reply.status, code.as_str()), expected);
    }
    assert_eq!(store.len(), 10);
    assert_eq!(rig.send(pay("k9", "", "")).await.told(), "replayed", "nothing was evicted");
    assert_eq!(store.purge_expired(usize::MAX).await.expect("no trouble"), 0);
}

/// What a header value comes to, after `"abc"` was stored.
enum Right {
    /// The record of `abc`.
    Same,
    /// A record of its own.
    Own,
    /// 400 with this code, and no run.
    Refused(&'static str),
}

#[tokio::test]
async fn k2_k3_k4_b139_malformed_and_odd_keys() {
    let long = [b'k'; 256];
    let table: &[(&str, &[&[u8]], Right)] = &[
        ("quoted", &[b"\"abc\""], Right::Same),
        ("bare", &[b"abc"], Right::Same),
        ("white space around it", &[b" \tabc "], Right::Same),
        ("a parameter after the string", &[b"\"abc\";v=1"], Right::Same),
        ("empty", &[b""], Right::Refused("invalid-key")),
        ("blank", &[b"   "], Right::Refused("invalid-key")),
        ("an empty string", &[b"\"\""], Right::Refused("invalid-key")),
        ("a blank string", &[b"\"  \""], Right::Refused("invalid-key")),
        ("another case", &[b"ABC"], Right::Own),
        ("a blank inside, bare", &[b"a bc"], Right::Refused("invalid-key")),
        ("a blank inside, quoted", &[b"\"a bc\""], Right::Own),
        ("a tab inside", &[b"a\tbc"], Right::Refused("invalid-key")),
        (
            "an ellipsis of a shortened hash",
            &["ab\u{2026}".as_bytes()],
            Right::Refused("invalid-key"),
        ),
        ("a byte that is no text", &[b"abc\xff"], Right::Refused("invalid-key")),
        ("a colon", &[b"a:bc"], Right::Own),
        ("a slash", &[b"a/bc"], Right::Own),
        ("two lines that differ", &[b"abc", b"abd"], Right::Refused("invalid-key")),
        ("two equal lines", &[b"abc", b"abc"], Right::Refused("invalid-key")),
        ("two in one line", &[b"abc, abc"], Right::Refused("invalid-key")),
        ("an open quote", &[b"\"abc"], Right::Refused("invalid-key")),
        ("256 bytes", &[&long], Right::Refused("invalid-key")),
        ("255 bytes", &[&long[..255]], Right::Own),
        ("a word that a client sends by mistake", &[b"undefined"], Right::Refused("invalid-key")),
        ("another such word", &[b"NULL"], Right::Refused("invalid-key")),
        ("none", &[], Right::Refused("missing-key")),
    ];
    let refused = ["undefined", "null", "NaN"].map(str::to_owned).to_vec();
    for (name, lines, right) in table {
        let rig = Rig::new(Policy::default().with(|policy| {
            let mut rules = KeyRules::default();
            rules.refused = refused.clone();
            policy.key_rules = rules;
            policy.need = KeyNeed::Required;
        }));
        let send = |lines: &[&[u8]]| {
            let mut request = Request::post("/pay");
            for line in lines {
                let value = HeaderValue::from_bytes(line).expect("HTTP lets it through");
                request = request.header("idempotency-key", value);
            }
            rig.send(request.body(Full::default()).expect("a request"))
        };
        assert_eq!(send(&[b"\"abc\""]).await.told(), "stored");
        let reply = send(lines).await;
        let code = reply.code();
        let got = (reply.status, reply.told(), code.as_str(), rig.app.runs());
        let expected = match right {
            Right::Same => (201, "replayed", "-", 1),
            Right::Own => (201, "stored", "-", 2),
            Right::Refused(code) => (400, "-", *code, 1),
        };
        assert_eq!(got, expected, "{name}");
    }
}

#[tokio::test]
async fn k1_k2_b139_a_route_may_be_strict_and_name_its_header_in_any_case() {
    let strict = Policy::default().with(|policy| policy.syntax = KeySyntax::Strict);
    let rig = Rig::new(strict);
    assert_eq!(rig.send(pay("abc", "", "")).await.code(), "invalid-key");
    assert_eq!(rig.send(pay("\"abc\"", "", "")).await.told(), "stored");

    let name = HeaderName::from_bytes(b"X-IDEMPOTENCY-KEY").expect("a name");
    let rig = Rig::new(Policy::default().with(|p| p.keys = vec![KeySource::Header(name.clone())]));
    for told in ["stored", "replayed"] {
        let reply = rig.send(request("/pay", &[("x-Idempotency-Key", "abc")], "")).await;
        assert_eq!(reply.told(), told);
    }
}

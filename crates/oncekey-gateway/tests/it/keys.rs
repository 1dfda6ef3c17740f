//! Keys through the whole gateway (rules K1 to K7): what is one key, what is another, and where a
//! key counts. What is malformed stands in `bad_input`.

use std::net::SocketAddr;
use std::time::UNIX_EPOCH;

use oncekey::clock::Clock;

use super::rig::{Gateway, Reply, Request, Upstream};

/// Answers each request with its number, so that a run can be told from a replay.
fn counting() -> Upstream {
    Upstream::start(|exchange| {
        let run = format!("run {}", exchange.request.number);
        exchange.answer(201, &[], run.as_bytes())
    })
}

fn keyed(address: SocketAddr, path: &str, value: &str) -> Reply {
    Request::post(path).key(value).json("{}").reply(address)
}

/// What a reply says: the run it comes from and what became of the request.
fn told(reply: &Reply) -> (String, String) {
    (reply.text().to_owned(), reply.idempotency())
}

#[track_caller]
fn is_run(reply: &Reply, number: usize) {
    assert_eq!(told(reply), (format!("run {number}"), "stored".into()), "{reply:?}");
    assert!(!reply.replayed());
}

#[track_caller]
fn is_replay(reply: &Reply, number: usize) {
    assert_eq!(told(reply), (format!("run {number}"), "replayed".into()), "{reply:?}");
    assert!(reply.replayed());
}

#[test]
fn k1_other_headers_and_the_body_can_name_the_key_and_all_sources_name_one() {
    let upstream = counting();
    let config =
        "[defaults]\nkey = [\"header:Idempotency-Key\", \"header:X-Key\", \"body:/a/id\"]\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let address = gateway.address();
    let body = r#"{"a":{"id":"k"}}"#;
    let ask = |headers: &[&str], body: &str| {
        let mut request = Request::post("/pay");
        for name in headers {
            request = request.header(name, "k");
        }
        request.json(body).reply(address)
    };
    is_run(&ask(&[], body), 1);
    is_replay(&ask(&["X-Key"], body), 1);
    is_replay(&ask(&["Idempotency-Key"], body), 1);
    is_replay(&ask(&["idempotency-key", "x-key"], body), 1);
    // The key is the same, and the request is another.
    assert_eq!(ask(&["X-Key"], "{}").code(), "key-reused");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn k1_null_in_the_body_is_absent_and_so_is_a_body_of_another_type() {
    let upstream = counting();
    let config = "[defaults]\nkey = [\"body:/id\"]\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    for (media_type, body) in [
        ("application/json", r#"{"id":null}"#),
        ("application/json", "{}"),
        ("application/json", "[]"),
        ("text/plain", "id"),
        ("application/x-www-form-urlencoded", "id=k"),
    ] {
        let before = upstream.count();
        for _ in 0..2 {
            let request = Request::post("/pay").header("Content-Type", media_type).body(body);
            let reply = request.reply(gateway.address());
            assert_eq!((reply.status, reply.idempotency().as_str()), (201, ""), "{body}");
        }
        assert_eq!(upstream.count(), before + 2, "{body}");
        let last = upstream.requests().pop().unwrap();
        assert_eq!(last.body, body.as_bytes(), "the body arrives whole");
    }
    // A header that no source names is no key.
    let reply = keyed(gateway.address(), "/pay", "k");
    assert_eq!(reply.idempotency(), "");
}

#[test]
fn k2_both_forms_are_one_key_and_parameters_belong_to_the_string_alone() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let ask = |value| keyed(gateway.address(), "/pay", value);
    is_run(&ask("k"), 1);
    for same in ["\"k\"", "\"k\";a=1", "\"k\"; a; b=\"x\"", "  k  ", "\t\"k\"\t"] {
        is_replay(&ask(same), 1);
    }
    is_run(&ask("k;a=1"), 2);
    is_replay(&ask("\"k;a=1\""), 2);
    is_run(&ask(r#""a\"b\\c""#), 3);
    is_replay(&ask(r#""a\"b\\c";x"#), 3);
    is_run(&ask("\"two words\""), 4);
    is_run(&ask("!#$%&'()*+-./:;<=>?@[]^_`{|}~"), 5);
    is_replay(&ask("\"!#$%&'()*+-./:;<=>?@[]^_`{|}~\""), 5);
    assert_eq!(upstream.count(), 5);
}

#[test]
fn k2_the_strict_form_is_the_same_key_as_elsewhere() {
    let upstream = counting();
    let config = "[defaults]\noperation = \"one\"\n[[route]]\nmatch = \"POST /strict\"\n\
                  key_syntax = \"strict\"\noperation = \"one\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let ask = |value| keyed(gateway.address(), "/strict", value);
    is_run(&ask("\"k\""), 1);
    is_replay(&ask("\"k\";a=1"), 1);
    assert_eq!(ask("k").code(), "invalid-key");
    // The record is the same from a lenient route: only the path differs.
    let lenient = keyed(gateway.address(), "/lenient", "k");
    assert_eq!((lenient.code().as_str(), upstream.count()), ("key-reused", 1));
}

#[test]
fn k3_a_key_of_255_bytes_is_taken_in_every_form_and_one_of_256_in_none() {
    let upstream = counting();
    let config = "[defaults]\nkey = [\"header:Idempotency-Key\", \"body:/id\"]\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let (fits, long) = ("k".repeat(255), "k".repeat(256));
    let ask = |value: &str| keyed(gateway.address(), "/pay", value);
    is_run(&ask(&fits), 1);
    is_replay(&ask(&format!("\"{fits}\"")), 1);
    // Unquoted, this has 255 bytes; on the wire it has more than 500.
    is_run(&ask(&format!("\"{}\"", "\\\"".repeat(255))), 2);
    is_run(&ask("k"), 3);
    let body = |key: &str| {
        let body = format!(r#"{{"id":"{key}"}}"#);
        Request::post("/body").json(&body).reply(gateway.address())
    };
    is_run(&body(&fits), 4);
    for reply in [ask(&long), ask(&format!("\"{long}\"")), body(&long)] {
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid-key"));
    }
    assert_eq!(upstream.count(), 4);
}

#[test]
fn k4_keys_that_differ_in_one_byte_are_two() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let keys = ["key", "KEY", "Key", "key.", "ke%79", "\" key\"", "\"key \"", "00key"];
    for (number, key) in keys.iter().enumerate() {
        is_run(&keyed(gateway.address(), "/pay", key), number + 1);
    }
    assert_eq!(upstream.count(), keys.len());
}

/// A UUIDv7 made so long ago.
fn uuid_v7(age_seconds: u64) -> String {
    let now = Clock::real().now().wall().duration_since(UNIX_EPOCH).unwrap();
    let millis = now.as_millis() - u128::from(age_seconds) * 1000;
    let digits = format!("{millis:012x}");
    format!("{}-{}-7abc-8def-0123456789ab", &digits[..8], &digits[8..])
}

#[test]
fn k5_a_route_takes_what_its_rules_allow() {
    let upstream = counting();
    let config = "[defaults]\nretention = \"1h\"\n[[route]]\nmatch = \"POST /long\"\n\
                  min_key_length = 16\n[[route]]\nmatch = \"POST /uuid\"\nuuid_only = true\n\
                  [[route]]\nmatch = \"POST /young\"\nmax_key_age = \"retention\"\n\
                  [[route]]\nmatch = \"POST /younger\"\nmax_key_age = \"10m\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let ask = |path, key: &str| keyed(gateway.address(), path, key);
    is_run(&ask("/long", "1234567890123456"), 1);
    is_run(&ask("/uuid", "8e03978e-40d5-43dd-930a-1dd1b1ab0bbb"), 2);
    is_run(&ask("/uuid", "\"8E03978E-40D5-43DD-930A-1DD1B1AB0BBB\""), 3);
    is_run(&ask("/young", &uuid_v7(30 * 60)), 4);
    is_run(&ask("/younger", &uuid_v7(5 * 60)), 5);
    // A key without a time in it has no age, and a clock that runs ahead is no reason to refuse.
    is_run(&ask("/young", "8e03978e-40d5-43dd-930a-1dd1b1ab0bbb"), 6);
    is_run(&ask("/young", "ffffffff-ffff-7fff-8fff-ffffffffffff"), 7);
    for (path, age) in [("/young", 61 * 60), ("/younger", 11 * 60)] {
        let old = ask(path, &uuid_v7(age));
        assert_eq!((old.status, old.code().as_str()), (400, "invalid-key"), "{path}");
    }
    assert_eq!(upstream.count(), 7);
}

#[test]
fn k6_no_key_passes_unprotected_unless_the_route_requires_one() {
    let upstream = counting();
    let config = "[[route]]\nmatch = \"POST /required\"\nrequire_key = true\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let ask = |path| Request::post(path).json("{}").reply(gateway.address());
    for number in 1..=2 {
        let reply = ask("/pay");
        assert_eq!(told(&reply), (format!("run {number}"), String::new()));
        assert!(!reply.headers.has("idempotency-expires"));
    }
    let refused = ask("/required");
    assert_eq!((refused.status, refused.code().as_str()), (400, "missing-key"));
    assert_eq!(upstream.count(), 2);
    is_run(&keyed(gateway.address(), "/required", "k"), 3);
    // Where no key counts, none is required.
    let get = Request::new("GET", "/required").reply(gateway.address());
    assert_eq!(get.status, 201);
}

#[test]
fn k7_keys_count_on_post_and_patch_and_elsewhere_only_where_it_is_configured() {
    let upstream = counting();
    let config = "[[route]]\nmatch = \"PUT /put\"\n[[route]]\nmatch = \"* /all\"\n\
                  methods = [\"POST\", \"PATCH\", \"PUT\", \"DELETE\"]\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let ask = |method, path| Request::new(method, path).key("k").body("").reply(gateway.address());
    let protected =
        [("POST", "/pay"), ("PATCH", "/pay"), ("PUT", "/put"), ("PUT", "/all"), ("DELETE", "/all")];
    for (number, (method, path)) in protected.into_iter().enumerate() {
        is_run(&ask(method, path), number + 1);
        is_replay(&ask(method, path), number + 1);
    }
    assert_eq!(upstream.count(), protected.len());
}

#[test]
fn k7_where_no_key_counts_it_is_ignored_and_the_answer_says_so() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
        let before = upstream.count();
        for _ in 0..2 {
            // Even a malformed key is ignored.
            for key in ["k", "\"k"] {
                let request = Request::new(method, "/pay").key(key);
                let mut wire = super::rig::Connection::open(gateway.address()).unwrap();
                let reply = if method == "HEAD" {
                    wire.send(request.bytes()).unwrap();
                    wire.read_head_to("HEAD").unwrap()
                } else {
                    wire.ask(&request).unwrap()
                };
                assert_eq!(reply.idempotency(), "ignored", "{method}: {reply:?}");
                assert!(!reply.replayed());
            }
        }
        assert_eq!(upstream.count(), before + 4, "{method}");
        let request = upstream.requests().pop().unwrap();
        assert!(!request.headers.has("idempotency-record"), "{method}: {request:?}");
        let unkeyed = Request::new(method, "/other").send(gateway.address());
        assert!(method == "HEAD" || unkeyed.unwrap().idempotency().is_empty(), "{method}");
    }
}

#[test]
fn k7_an_upgrade_on_a_keyed_post_is_dropped_and_on_a_get_the_key_is_ignored() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let upgrade = |method| {
        Request::new(method, "/pay")
            .key("k")
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
    };
    is_run(&upgrade("POST").body("").reply(gateway.address()), 1);
    is_replay(&upgrade("POST").body("").reply(gateway.address()), 1);
    let first = upstream.requests().pop().unwrap();
    assert!(!first.headers.has("upgrade"), "{first:?}");

    let get = upgrade("GET").reply(gateway.address());
    assert_eq!(told(&get), ("run 2".into(), "ignored".into()));
    assert_eq!(upstream.requests().pop().unwrap().headers.text("upgrade").unwrap(), "websocket");
}

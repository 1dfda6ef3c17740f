//! A real Express application behind the gateway, which it knows nothing of.

use std::fmt::Write as _;

use crate::replay::{in_order, lasting};
use crate::rig::{Express, Framing, Gateway, Reply, Request, post, race};

fn ask(gateway: &Gateway, path: &str, key: &str) -> Reply {
    post(gateway.address(), path, &[("Idempotency-Key", key)], r#"{"amount":420}"#)
}

#[test]
fn c1_a_double_post_runs_the_handler_once() {
    let express = Express::start();
    let gateway = Gateway::to(express.address()).start();
    let first = ask(&gateway, "/pay", "k1");
    let second = ask(&gateway, "/pay", "k1");
    assert_eq!(
        (first.status, first.replayed(), first.idempotency()),
        (201, false, "stored".into())
    );
    assert_eq!((second.status, second.replayed()), (201, true));
    assert_eq!(second.idempotency(), "replayed");
    assert_eq!(first.body, second.body);
    assert_eq!(in_order(&first), in_order(&second));
    assert_eq!(express.count("/pay"), 1);
    let other = ask(&gateway, "/pay", "k2");
    assert_eq!((other.status, other.replayed(), express.count("/pay")), (201, false, 2));
}

#[test]
fn p5_the_answer_outlives_a_graceful_stop_a_kill_and_the_application() {
    let mut express = Express::start();
    let mut gateway = Gateway::to(express.address()).start();
    let first = ask(&gateway, "/pay", "k1");
    gateway.terminate();
    assert!(gateway.wait_for_exit().success());
    gateway.restart();
    let second = ask(&gateway, "/pay", "k1");
    gateway.kill();
    gateway.restart();
    let third = ask(&gateway, "/pay", "k1");
    assert_eq!(express.count("/pay"), 1);
    express.kill();
    let fourth = ask(&gateway, "/pay", "k1");
    for reply in [&second, &third, &fourth] {
        assert!(reply.replayed(), "{reply:?}");
        assert_eq!((reply.status, &reply.body), (201, &first.body));
        assert_eq!(in_order(reply), in_order(&first));
    }
}

#[test]
fn p1_every_shape_of_answer_is_replayed_byte_for_byte() {
    let express = Express::start();
    let gateway = Gateway::to(express.address()).start();
    for path in ["/pay", "/binary", "/empty", "/empty202", "/gzip", "/stream", "/headers"] {
        let first = ask(&gateway, path, "k1");
        let second = ask(&gateway, path, "k1");
        assert_eq!(first.idempotency(), "stored", "{path}: {first:?}");
        assert!(second.replayed(), "{path}: {second:?}");
        assert_eq!((first.status, &first.body), (second.status, &second.body), "{path}");
        assert_eq!((&first.reason, &first.version), (&second.reason, &second.version), "{path}");
        assert_eq!(in_order(&first), in_order(&second), "{path}");
        assert_eq!(express.count(path), 1, "{path}");
    }
}

#[test]
fn p1_bodies_and_fields_come_back_as_the_application_wrote_them() {
    // Goal: not only equal to each other, but to what Express sends without a gateway.
    let express = Express::start();
    let gateway = Gateway::to(express.address()).start();
    for path in ["/binary", "/gzip", "/headers", "/stream"] {
        let first = ask(&gateway, path, "k1");
        let replay = ask(&gateway, path, "k1");
        let direct = post(express.address(), path, &[], r#"{"amount":420}"#);
        let run = |reply: &Reply| String::from_utf8_lossy(&reply.body).replace("run 1", "run 2");
        if path == "/stream" {
            assert_eq!(run(&replay), direct.text(), "{path}");
        } else if path == "/binary" {
            assert_eq!(replay.body, direct.body, "{path}");
        }
        for name in ["content-type", "content-encoding", "vary", "link", "x-latin", "x-empty"] {
            assert_eq!(first.headers.all(name), direct.headers.all(name), "{path}: {name}");
            assert_eq!(replay.headers.all(name), direct.headers.all(name), "{path}: {name}");
        }
    }
    let headers = ask(&gateway, "/headers", "k1");
    let links: [&[u8]; 3] = [b"</a>; rel=prev", b"</b>; rel=next", b"</c>; rel=last"];
    assert_eq!(headers.headers.all("link"), links);
    assert_eq!(headers.headers.get("x-latin"), Some(&b"caf\xe9"[..]));
    assert_eq!(headers.headers.get("x-empty"), Some(&b""[..]));
    let gzip = ask(&gateway, "/gzip", "k1");
    assert!(gzip.replayed() && gzip.body.starts_with(&[0x1f, 0x8b]), "{gzip:?}");
}

#[test]
fn p4_an_empty_answer_has_no_body_and_204_has_no_length() {
    let express = Express::start();
    let gateway = Gateway::to(express.address()).start();
    for _ in 0..2 {
        let none = ask(&gateway, "/empty", "k1");
        assert_eq!((none.status, none.framing), (204, Framing::NoBody));
        assert!(!none.headers.has("content-length"), "{none:?}");
        assert!(!none.headers.has("transfer-encoding"), "{none:?}");
        let accepted = ask(&gateway, "/empty202", "k1");
        assert_eq!((accepted.status, accepted.body.len()), (202, 0));
        assert_eq!(accepted.header("content-length"), "0");
    }
    assert_eq!((express.count("/empty"), express.count("/empty202")), (1, 1));
}

#[test]
fn p3_a_large_answer_is_whole_at_first_and_omitted_in_the_replay() {
    let express = Express::start();
    let gateway = Gateway::to(express.address()).start();
    let first = ask(&gateway, "/big", "k1");
    assert_eq!((first.status, first.body.len()), (200, 2 << 20));
    assert_eq!(
        (first.header("etag"), first.header("content-length")),
        ("\"big\"".into(), (2 << 20).to_string(),)
    );
    let direct = post(express.address(), "/big", &[], "{}");
    assert_eq!(first.body, direct.body);
    let second = ask(&gateway, "/big", "k1");
    assert!(second.replayed(), "{second:?}");
    assert_eq!((second.status, second.body.len()), (200, 0));
    assert_eq!(second.header("idempotency-body"), "omitted");
    assert_eq!(second.header("content-type"), "application/octet-stream");
    assert!(!second.headers.has("etag"), "{second:?}");
    assert_eq!(express.count("/big"), 2, "one of them was asked without the gateway");
}

#[test]
fn p3_events_pass_at_once_and_their_replay_has_no_body() {
    let express = Express::start();
    let gateway = Gateway::to(express.address()).start();
    let first = ask(&gateway, "/sse", "k1");
    assert_eq!((first.framing, first.idempotency()), (Framing::Chunked, "stored".into()));
    assert!(first.chunks.len() > 1, "gathered, not passed on: {:?}", first.chunks);
    assert_eq!(first.text().matches("data: ").count(), 3);
    assert!(!first.headers.has("idempotency-expires"), "{first:?}");
    let second = ask(&gateway, "/sse", "k1");
    assert!(second.replayed(), "{second:?}");
    assert_eq!((second.body.len(), second.header("idempotency-body")), (0, "omitted".into()));
    assert_eq!(second.header("content-type"), "text/event-stream");
    assert_eq!(express.count("/sse"), 1);
}

#[test]
fn p2_cookies_and_request_ids_are_not_replayed_unless_a_route_says_so() {
    let express = Express::start();
    let config = r#"
        [[route]]
        match = "POST /pay"
        replay = { allow = ["set-cookie"], deny = ["etag"] }
    "#;
    let plain = Gateway::to(express.address()).start();
    let first = ask(&plain, "/pay", "k1");
    assert!(first.headers.has("set-cookie") && first.headers.has("x-request-id"), "{first:?}");
    let second = ask(&plain, "/pay", "k1");
    assert!(second.replayed(), "{second:?}");
    for name in ["set-cookie", "x-request-id", "keep-alive"] {
        assert!(!second.headers.has(name), "{name}: {second:?}");
    }
    assert_eq!(lasting(&first).get("etag"), second.headers.get("etag"));

    let routed = Gateway::to(express.address()).config(config).start();
    let first = ask(&routed, "/pay", "k1");
    let second = ask(&routed, "/pay", "k1");
    assert_eq!(first.headers.all("set-cookie"), second.headers.all("set-cookie"));
    assert!(first.headers.has("set-cookie") && first.headers.has("etag"), "{first:?}");
    assert!(!second.headers.has("etag") && !second.headers.has("x-request-id"), "{second:?}");
}

#[test]
fn o1_a_run_that_failed_is_run_again_with_the_next_attempt() {
    let express = Express::start();
    let config = "[[route]]\nmatch = \"POST /pay\"\nstatus = { \"201\" = \"retry\" }\n";
    let gateway = Gateway::to(express.address()).config(config).start();
    for run in 1..=3 {
        let failed = ask(&gateway, "/fail", "k1");
        assert_eq!((failed.status, failed.idempotency()), (500, "retry".into()));
        assert_eq!(failed.json()["run"], run);
        let paid = ask(&gateway, "/pay", "k1");
        assert_eq!((paid.status, paid.idempotency()), (201, "retry".into()));
        assert_eq!(paid.json()["attempt"], run.to_string());
    }
    let refused = ask(&gateway, "/fail?status=422", "k2");
    assert_eq!((refused.status, refused.idempotency()), (422, "stored".into()));
    assert!(ask(&gateway, "/fail?status=422", "k2").replayed());
    assert_eq!((express.count("/fail"), express.count("/pay")), (4, 3));
}

#[test]
fn c4_many_clicks_on_a_slow_handler_run_it_once_and_other_keys_run_beside_it() {
    let express = Express::start();
    let gateway = Gateway::to(express.address()).start();
    let replies = race(24, |number| {
        let mut key = String::from("k");
        write!(key, "{}", number % 3).unwrap();
        (number % 3, ask(&gateway, "/slow?ms=300", &key))
    });
    assert_eq!(express.count("/slow"), 3);
    for key in 0..3 {
        let of_key: Vec<_> = replies.iter().filter(|(of, _)| *of == key).collect();
        assert!(of_key.iter().all(|(_, reply)| reply.status == 200));
        assert!(of_key.iter().all(|(_, reply)| reply.body == of_key[0].1.body));
        assert_eq!(of_key.iter().filter(|(_, reply)| !reply.replayed()).count(), 1);
    }
}

#[test]
fn o4_a_handler_that_hangs_up_leaves_an_unknown_outcome_and_is_not_run_again() {
    let express = Express::start();
    let mut gateway = Gateway::to(express.address()).start();
    let first = ask(&gateway, "/crash", "k1");
    assert_eq!((first.status, first.code().as_str()), (504, "outcome-unknown"));
    assert_eq!(first.idempotency(), "unknown");
    let second = ask(&gateway, "/crash", "k1");
    assert_eq!((second.status, second.code().as_str()), (409, "outcome-unknown"));
    gateway.restart();
    assert_eq!(ask(&gateway, "/crash", "k1").code(), "outcome-unknown");
    assert_eq!(express.count("/crash"), 1);
}

#[test]
fn h_the_application_sees_the_key_the_record_and_what_it_would_see_without_us() {
    let express = Express::start();
    let gateway = Gateway::to(express.address()).start();
    let request = Request::post("/echo?a=1&b=%20")
        .key("\"k 1\"")
        .header("Idempotency-Status", "replayed")
        .header("Idempotency-Outcome", "keep")
        .header("Idempotency-Record", "forged")
        .header("X-Odd", b"\xe9")
        .body(b"\x00\xff");
    let told = request.reply(gateway.address()).json();
    assert_eq!(told["url"], "/echo?a=1&b=%20");
    assert_eq!(told["body"], "AP8=");
    let field = |name: &str| -> Vec<String> {
        let fields = told["headers"].as_array().unwrap().iter();
        let named = fields.filter(|field| field[0].as_str().unwrap().eq_ignore_ascii_case(name));
        named.map(|field| field[1].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(field("idempotency-key"), ["\"k 1\""]);
    assert_eq!(field("idempotency-attempt"), ["1"]);
    assert_eq!(field("x-odd"), ["\u{e9}"]);
    assert!(field("idempotency-status").is_empty() && field("idempotency-outcome").is_empty());
    let record = field("idempotency-record");
    assert_eq!(record.len(), 1);
    assert!(record[0].len() == 64 && record[0].bytes().all(|byte| byte.is_ascii_hexdigit()));
}

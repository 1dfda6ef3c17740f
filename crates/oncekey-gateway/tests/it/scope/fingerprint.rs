//! What counts as the same request (F1 to F5).

use super::{Gateway, ask, counting, is_problem, is_replay, is_run, keyed};
use crate::rig::{Connection, Reply, Request, wait_until};

fn json_to(gateway: &Gateway, path: &str, body: &str) -> Reply {
    keyed(path, &[]).body(body).reply(gateway.address())
}

#[test]
fn f1_bytes_query_and_media_type_count_and_charset_does_not() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let of = |media_type: &str, target: &str, body: &str| {
        let request = Request::post(target).key("k").header("Content-Type", media_type);
        request.body(body).reply(gateway.address())
    };
    is_run(&of("application/json", "/pay?a=1&b=2", r#"{"a":1}"#), 1);
    is_replay(&of("Application/JSON; charset=UTF-8", "/pay?a=1&b=2", r#"{"a":1}"#), 1);
    for other in [
        of("application/json", "/pay?a=1&b=2", r#"{"a": 1}"#),
        of("application/json", "/pay?a=1&b=2", ""),
        of("application/json", "/pay?b=2&a=1", r#"{"a":1}"#),
        of("application/json", "/pay", r#"{"a":1}"#),
        of("text/plain", "/pay?a=1&b=2", r#"{"a":1}"#),
        of("application/json; profile=x", "/pay?a=1&b=2", r#"{"a":1}"#),
    ] {
        is_problem(&other, 422, "key-reused");
        assert_eq!(other.json()["first"], "completed");
    }
    assert_eq!(upstream.count(), 1);
}

#[test]
fn f1_each_of_several_media_types_counts() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let of = |media_types: &[&str]| {
        let request = Request::post("/pay").key("k").body("{}");
        let add = |request: Request, media_type: &&str| request.header("Content-Type", *media_type);
        media_types.iter().fold(request, add).reply(gateway.address())
    };
    is_run(&of(&["application/json", "text/plain"]), 1);
    is_replay(&of(&["application/json", "text/plain"]), 1);
    for other in [&["application/json"][..], &["text/plain"], &["text/plain", "application/json"]] {
        is_problem(&of(other), 422, "key-reused");
    }
}

#[test]
fn f1_how_a_body_is_framed_does_not_count() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    is_run(&json_to(&gateway, "/pay", "{\"a\":1}"), 1);
    let chunked = keyed("/pay", &[]).chunks(&[b"{\"a\"", b":", b"1}"]);
    is_replay(&chunked.reply(gateway.address()), 1);
}

#[test]
fn f3_credentials_tracing_and_dates_never_count_and_named_headers_do() {
    let upstream = counting();
    let config = "[[route]]\nmatch = \"POST /named\"\nfingerprint = { headers = [\"X-Amount\"] }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let varying = |n: &'static str| {
        [("Traceparent", n), ("Date", n), ("User-Agent", n), ("X-Amount", n), ("Accept", n)]
    };
    is_run(&ask(gateway.address(), "/pay", &varying("1")), 1);
    is_replay(&ask(gateway.address(), "/pay", &varying("2")), 1);
    is_run(&ask(gateway.address(), "/named", &[("X-Amount", "1"), ("Date", "1")]), 2);
    is_replay(&ask(gateway.address(), "/named", &[("X-Amount", "1"), ("Date", "2")]), 2);
    for other in [&[("X-Amount", "2")][..], &[], &[("X-Amount", "1"), ("X-Amount", "1")]] {
        is_problem(&ask(gateway.address(), "/named", other), 422, "key-reused");
    }
}

#[test]
fn f2_in_json_mode_values_count_and_spelling_does_not() {
    let upstream = counting();
    let config = "[defaults.fingerprint]\nmode = \"json\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let json = |body: &str| json_to(&gateway, "/pay", body);
    is_run(&json(r#"{"a":[1,2],"b":9007199254740993,"c":"x"}"#), 1);
    is_replay(&json("{ \"c\" : \"\\u0078\",\n\"b\":9007199254740993, \"a\":[1, 2] }"), 1);
    for other in [
        r#"{"a":[2,1],"b":9007199254740993,"c":"x"}"#,
        r#"{"a":[1,2],"b":9007199254740992,"c":"x"}"#,
        r#"{"a":[1,2],"b":9007199254740993,"c":"x","c":"x"}"#,
        r#"{"a":[1,2],"b":9007199254740993}"#,
        r#"{"a":[1,2],"b":9007199254740993,"c":"x"#,
    ] {
        is_problem(&json(other), 422, "key-reused");
    }
    // What is no JSON is compared by its bytes.
    let broken = |body: &str| json_to(&gateway, "/broken", body);
    is_run(&broken(r#"{"a":1,"#), 2);
    is_replay(&broken(r#"{"a":1,"#), 2);
    is_problem(&broken(r#"{"a": 1,"#), 422, "key-reused");
}

#[test]
fn f3_pointers_take_members_out_or_alone_in() {
    let upstream = counting();
    let config = "[[route]]\nmatch = \"POST /without\"\n\
                  fingerprint = { mode = \"json\", exclude = [\"/at\", \"/meta/nonce\"] }\n\
                  [[route]]\nmatch = \"POST /only\"\n\
                  fingerprint = { mode = \"json\", include = [\"/amount\", \"/to/iban\"] }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let without = |body| json_to(&gateway, "/without", body);
    is_run(&without(r#"{"amount":1,"at":1,"meta":{"nonce":"a","by":"x"}}"#), 1);
    is_replay(&without(r#"{"amount":1,"at":2,"meta":{"nonce":"b","by":"x"}}"#), 1);
    is_replay(&without(r#"{"amount":1,"meta":{"by":"x"}}"#), 1);
    is_problem(&without(r#"{"amount":2,"at":1,"meta":{"by":"x"}}"#), 422, "key-reused");
    is_problem(&without(r#"{"amount":1,"at":1,"meta":{"by":"y"}}"#), 422, "key-reused");

    let only = |body| json_to(&gateway, "/only", body);
    is_run(&only(r#"{"amount":1,"to":{"iban":"X","name":"a"},"at":1}"#), 2);
    is_replay(&only(r#"{"at":2,"to":{"name":"b","iban":"X"},"amount":1}"#), 2);
    is_problem(&only(r#"{"amount":1,"to":{"iban":"Y","name":"a"}}"#), 422, "key-reused");
    is_problem(&only(r#"{"amount":1}"#), 422, "key-reused");
}

#[test]
fn f5_a_sorted_query_has_no_order_and_repeated_names_keep_theirs() {
    let upstream = counting();
    let config = "[defaults.fingerprint]\nquery = \"sorted\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let of = |target| ask(gateway.address(), target, &[]);
    is_run(&of("/pay?b=2&a=1&a=3"), 1);
    is_replay(&of("/pay?a=1&a=3&b=2"), 1);
    is_replay(&of("/pay?a=1&b=2&a=3"), 1);
    for other in ["/pay?a=3&a=1&b=2", "/pay?a=1&b=2", "/pay?a=1&a=3&b=3", "/pay"] {
        is_problem(&of(other), 422, "key-reused");
    }
}

#[test]
fn f2_a_form_is_the_same_with_another_boundary() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let form = |boundary: &str, amount: &str| {
        let body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n{amount}\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.bin\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n\u{0}\u{1}\r\n--{boundary}--\r\n"
        );
        Request::post("/form")
            .key("k")
            .header("Content-Type", format!("multipart/form-data; boundary={boundary}"))
            .body(body)
            .reply(gateway.address())
    };
    is_run(&form("first", "1"), 1);
    is_replay(&form("another-one", "1"), 1);
    is_problem(&form("first", "2"), 422, "key-reused");
}

#[test]
fn f4_a_body_over_the_limit_takes_no_key() {
    let upstream = counting();
    let config = "[defaults]\nmax_request_body = \"8B\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    is_problem(&json_to(&gateway, "/pay", "123456789"), 413, "request-too-large");
    let chunked = keyed("/pay", &[]).chunks(&[b"12345", b"6789"]);
    is_problem(&chunked.reply(gateway.address()), 413, "request-too-large");
    // The key is still new: the shorter request is no mismatch.
    is_run(&json_to(&gateway, "/pay", "12345678"), 1);
    // Without a key there is nothing to compare, and so no limit.
    let unkeyed = Request::post("/pay").body("123456789").reply(gateway.address());
    assert_eq!((unkeyed.status, upstream.count()), (201, 2));
}

#[test]
fn f4_a_client_that_leaves_during_its_upload_takes_no_key() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    for ending in [Connection::leave, Connection::reset] {
        let mut connection = Connection::open(gateway.address()).unwrap();
        let request = keyed("/pay", &[]).header("Content-Length", "100");
        connection.send(request.head_bytes()).unwrap();
        connection.send("{\"amount\"").unwrap();
        ending(connection);
    }
    // Whatever body comes first with the key is the first request.
    is_run(&json_to(&gateway, "/pay", "{}"), 1);
    is_replay(&json_to(&gateway, "/pay", "{}"), 1);
    let acquired = "oncekey_claims_total{result=\"acquired\"}";
    wait_until("one claim", || gateway.metric(acquired) == Some(1.0));
    assert_eq!(upstream.count(), 1);
}

//! Namespace, tenant and operation (S1, S2, S3).

use super::{Gateway, Request, ask, counting, is_problem, is_replay, is_run};

#[test]
fn s1_the_record_is_named_by_namespace_tenant_operation_and_key() {
    let upstream = counting();
    let record = |config: &str, path: &str, key: &str| {
        let gateway = Gateway::to(upstream.address()).config(config).start();
        Request::post(path).key(key).json("{}").reply(gateway.address());
        upstream.requests().pop().unwrap().headers.text("idempotency-record").unwrap()
    };
    let main = record("", "/pay", "k");
    assert!(main.len() == 64 && main.bytes().all(|byte| byte.is_ascii_hexdigit()), "{main}");
    // Another store, the same record: its id is derived, not drawn.
    assert_eq!(main, record("namespace = \"main\"", "/pay", "\"k\""));
    let others = [
        record("namespace = \"other\"", "/pay", "k"),
        record("[tenant]\nfrom = \"host\"", "/pay", "k"),
        record("", "/pay/more", "k"),
        record("", "/pay", "k2"),
        record("[defaults]\noperation = \"pay\"", "/pay", "k"),
    ];
    for (at, other) in others.iter().enumerate() {
        assert!(*other != main && !others[..at].contains(other), "{at}: {other}");
    }
}

#[test]
fn s2_a_path_is_one_operation_in_all_its_spellings() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let ask = |path| ask(gateway.address(), path, &[]);
    is_run(&ask("/a/pay"), 1);
    for same in ["/a/pay/", "/a/%70ay", "/a/./pay", "/a/b/../pay", "/%61/b/%2E%2e/pay", "/../a/pay"]
    {
        is_replay(&ask(same), 1);
    }
    for (number, other) in
        ["/a/Pay", "/a//pay", "/a/pay/1", "/a%2Fpay", "/a/pay//"].into_iter().enumerate()
    {
        is_run(&ask(other), number + 2);
    }
    // The hex digits of an escape that stays have no case.
    is_replay(&ask("/a%2fpay"), 5);
    assert_eq!(upstream.count(), 6);
}

#[test]
fn s2_another_spelling_of_a_path_does_not_slip_past_its_route() {
    let upstream = counting();
    let config = "[[route]]\nmatch = \"POST /pay\"\nrequire_key = true\n\
                  [[route]]\nmatch = \"POST /api/*\"\nrequire_key = true\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    for path in
        ["/pay", "/pay/", "/%70ay", "/x/../pay", "/./pay", "/api/a", "/x/../api/a", "/ap%69/a"]
    {
        let reply = Request::post(path).json("{}").reply(gateway.address());
        is_problem(&reply, 400, "missing-key");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn s2_the_method_is_part_of_the_operation_and_the_query_is_not() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    is_run(&ask(gateway.address(), "/pay?a=1", &[]), 1);
    is_problem(&ask(gateway.address(), "/pay?a=2", &[]), 422, "key-reused");
    let patch = Request::new("PATCH", "/pay?a=1").key("k").json("{}").reply(gateway.address());
    is_run(&patch, 2);
}

#[test]
fn s2_routes_of_one_name_and_tenant_wide_keys_share_an_operation() {
    let upstream = counting();
    let config = "[[route]]\nmatch = \"POST /a\"\noperation = \"pay\"\n\
                  [[route]]\nmatch = \"POST /b\"\noperation = \"pay\"\n\
                  [[route]]\nmatch = \"POST /c\"\noperation = \"tenant\"\n\
                  [[route]]\nmatch = \"PUT /d\"\noperation = \"tenant\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    is_run(&ask(gateway.address(), "/a", &[]), 1);
    is_problem(&ask(gateway.address(), "/b", &[]), 422, "key-reused");
    is_run(&ask(gateway.address(), "/c", &[]), 2);
    let put = Request::new("PUT", "/d").key("k").json("{}").reply(gateway.address());
    is_problem(&put, 422, "key-reused");
    is_replay(&ask(gateway.address(), "/a", &[]), 1);
    is_replay(&ask(gateway.address(), "/c", &[]), 2);
}

#[test]
fn s2_the_authority_counts_where_the_route_says_so() {
    let upstream = counting();
    let config = "[[route]]\nmatch = \"POST /each\"\nauthority = true\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let ask = |path: &str, host: &str| {
        let request = Request::bare("POST", path).header("Host", host);
        request.key("k").json("{}").reply(gateway.address())
    };
    is_run(&ask("/each", "a.example"), 1);
    is_run(&ask("/each", "b.example"), 2);
    is_replay(&ask("/each", "A.Example"), 1);
    is_run(&ask("/all", "a.example"), 3);
    is_replay(&ask("/all", "b.example"), 3);
    // The target's own host wins over the field.
    is_replay(&ask("http://b.example/each", "a.example"), 2);
}

#[test]
fn s3_two_tenants_may_choose_the_same_key() {
    let upstream = counting();
    let config = "[tenant]\nfrom = \"header:X-Tenant\"\ntrusted_peers = [\"127.0.0.0/8\"]\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let of = |tenant| ask(gateway.address(), "/pay", &[("X-Tenant", tenant)]);
    is_run(&of("a"), 1);
    is_run(&of("b"), 2);
    is_replay(&of("a"), 1);
    is_replay(&of(" b "), 2);
    is_run(&of("A"), 3);
    // Without a key nobody asks for the tenant.
    assert_eq!(Request::post("/pay").json("{}").reply(gateway.address()).status, 201);
}

#[test]
fn s3_a_tenant_can_be_the_host_name() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).config("[tenant]\nfrom = \"host\"\n").start();
    let of = |host: &str| {
        let request = Request::bare("POST", "/pay").header("Host", host);
        request.key("k").json("{}").reply(gateway.address())
    };
    is_run(&of("a.example"), 1);
    is_run(&of("b.example"), 2);
    for same in ["A.example", "a.example:8080", "a.example."] {
        is_replay(&of(same), 1);
    }
    is_problem(&of(""), 400, "missing-tenant");
    assert_eq!(upstream.count(), 2);
}

#[test]
fn s3_the_shared_tenant_is_said_at_start() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    gateway.wait_for_log("the shared tenant", |line| {
        line["message"].as_str().is_some_and(|text| text.contains("share one tenant"))
    });
}

//! Health, readiness and metrics (A6).

use super::{Gateway, Request, counting, keyed};
use crate::rig::get;

#[test]
fn a6_health_readiness_and_metrics_are_open_and_nothing_else_is_there() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    assert!(gateway.admin().ip().is_loopback());
    assert_eq!(get(gateway.admin(), "/healthz").status, 200);
    assert_eq!(get(gateway.admin(), "/readyz").text(), "ready\n");
    let page = get(gateway.admin(), "/metrics");
    assert!(page.header("content-type").starts_with("application/openmetrics-text"));
    assert!(page.text().ends_with("# EOF\n"));
    for path in ["/", "/v1/records", "/metrics/x", "/health"] {
        assert_eq!(get(gateway.admin(), path).status, 404, "{path}");
    }
    assert_eq!(Request::post("/metrics").body("").reply(gateway.admin()).status, 421);
    // What is the admin's is not the clients'.
    assert_eq!(get(gateway.address(), "/metrics").text(), "run 1");
}

#[test]
fn a6_a_name_of_somebody_elses_is_refused() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let ask = |path: &str, host: &str| {
        Request::bare("GET", path).header("Host", host).reply(gateway.admin()).status
    };
    for path in ["/healthz", "/readyz", "/metrics", "/nothing"] {
        for host in ["evil.example", "evil.example:9090", "127.0.0.1.evil.example", ""] {
            assert_eq!(ask(path, host), 421, "{path} for {host:?}");
        }
    }
    for host in ["localhost", "127.0.0.1", "[::1]:9090"] {
        assert_eq!(ask("/healthz", host), 200, "{host}");
    }
}

#[test]
fn a6_a_page_of_another_origin_is_refused() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let host = gateway.admin().to_string();
    let ask = |path: &str, origin: &str| {
        let request = Request::bare("GET", path).header("Host", &host).header("Origin", origin);
        request.reply(gateway.admin()).status
    };
    for path in ["/healthz", "/readyz", "/metrics", "/nothing"] {
        for origin in ["https://evil.example", "http://127.0.0.1:3", "http://localhost", "null"] {
            assert_eq!(ask(path, origin), 421, "{path} for {origin}");
        }
    }
    assert_eq!(ask("/healthz", &format!("http://{host}")), 200);
    let two = Request::bare("GET", "/healthz")
        .header("Host", &host)
        .header("Origin", format!("http://{host}"))
        .header("Origin", "https://evil.example");
    assert_eq!(two.reply(gateway.admin()).status, 421);
}

#[test]
fn a6_metrics_tell_what_happened() {
    let upstream = crate::rig::Upstream::start(|exchange| {
        let status = exchange.request.target.trim_start_matches('/').parse().unwrap();
        exchange.answer(status, &[], b"")
    });
    let gateway = Gateway::to(upstream.address()).start();
    let send = |request: Request| request.reply(gateway.address());
    for _ in 0..3 {
        send(keyed("/201", "k"));
    }
    send(Request::post("/201").key("k").json("[]"));
    send(keyed("/201", "k").header("Authorization", "other"));
    send(Request::post("/201").key("k").header("Authorization", "x").json("{}"));
    send(keyed("/503", "k"));
    send(keyed("/429", "k"));
    send(keyed("/502", "k"));
    send(keyed("/502", "k"));
    send(Request::post("/201").json("{}"));
    send(keyed("/201", "\""));
    for (name, expected) in [
        ("oncekey_claims_total{result=\"acquired\"}", 4.0),
        ("oncekey_claims_total{result=\"replayed\"}", 2.0),
        ("oncekey_claims_total{result=\"mismatch\"}", 1.0),
        ("oncekey_claims_total{result=\"other_principal\"}", 2.0),
        ("oncekey_claims_total{result=\"unknown\"}", 1.0),
        ("oncekey_claims_total{result=\"error\"}", 0.0),
        ("oncekey_runs_total{end=\"completed\"}", 1.0),
        ("oncekey_runs_total{end=\"retry\"}", 1.0),
        ("oncekey_runs_total{end=\"released\"}", 1.0),
        ("oncekey_runs_total{end=\"unknown\"}", 1.0),
        ("oncekey_replays_total", 2.0),
        ("oncekey_became_unknown_total", 1.0),
        ("oncekey_records_unknown", 1.0),
        ("oncekey_records_in_progress", 0.0),
        ("oncekey_runs_in_progress", 0.0),
        ("oncekey_waiters", 0.0),
        ("oncekey_lease_lost_total", 0.0),
        ("oncekey_claim_seconds_count", 10.0),
        ("oncekey_run_seconds_count", 4.0),
    ] {
        assert_eq!(gateway.metric(name), Some(expected), "{name}");
    }
}

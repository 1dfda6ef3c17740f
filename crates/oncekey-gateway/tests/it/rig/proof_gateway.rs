//! The part of the rig that starts the binary.

use std::path::Path;

use super::{Express, Failure, Gateway, Upstream, get, oncekey, post, try_get, try_post};

const CREATED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ndone";

#[test]
fn the_gateway_comes_back_on_its_port_and_data_after_a_kill() {
    let upstream = Upstream::answering(CREATED);
    let mut gateway = Gateway::to(upstream.address()).start();
    let address = gateway.address();
    let first = post(address, "/pay", &[("Idempotency-Key", "k1")], "{}");
    assert_eq!((first.status, first.text(), first.replayed()), (201, "done", false));

    gateway.kill();
    assert!(matches!(try_get(address, "/"), Err(Failure::Connect(_))));
    gateway.restart();
    assert_eq!(gateway.address(), address);
    let second = post(address, "/pay", &[("Idempotency-Key", "k1")], "{}");
    assert_eq!((second.status, second.text(), second.replayed()), (201, "done", true));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn the_gateway_stops_when_it_is_asked_to_and_tells_of_it() {
    let upstream = Upstream::answering(CREATED);
    let mut gateway = Gateway::to(upstream.address()).start();
    assert_eq!(get(gateway.admin(), "/healthz").status, 200);
    assert!(gateway.metric("oncekey_no_such_metric").is_none());
    gateway.terminate();
    let line = gateway.wait_for_log("stopping", |line| {
        line["message"].as_str().is_some_and(|message| message.starts_with("stopping"))
    });
    assert_eq!(line["level"], "INFO");
    assert!(gateway.wait_for_exit().success());
}

#[test]
fn the_gateway_stands_in_front_of_the_application() {
    let express = Express::start();
    let gateway = Gateway::to(express.address()).start();
    let keyed = [("Idempotency-Key", "k1")];
    let first = post(gateway.address(), "/pay", &keyed, r#"{"amount":1}"#);
    let second = post(gateway.address(), "/pay", &keyed, r#"{"amount":1}"#);
    assert_eq!((first.body, express.count("/pay")), (second.body.clone(), 1));
    assert!(second.replayed(), "{second:?}");
    assert_eq!(second.json()["attempt"], "1");
}

#[test]
fn the_configuration_reaches_the_gateway_and_a_bad_one_is_refused() {
    let upstream = Upstream::answering(CREATED);
    let url = format!("http://{}", upstream.address());
    let config = format!("[upstream]\nurl = \"{url}\"\n[defaults]\nrequire_key = true\n");
    let gateway = Gateway::with_config(&config).start();
    assert!(gateway.config_file().is_some_and(Path::exists));
    let missing = try_post(gateway.address(), "/pay", &[], "{}").unwrap();
    assert_eq!((missing.status, missing.code().as_str()), (400, "missing-key"));

    let refused = Gateway::with_config("[upstraem]\n").refuse();
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    assert!(refused.err.contains("upstraem"), "{refused:?}");
    assert_eq!(oncekey(&["serve", "--nonsense"]).code(), Some(2));
}

#[test]
fn settings_of_this_machine_do_not_reach_the_gateway_but_those_of_the_test_do() {
    let upstream = Upstream::answering(CREATED);
    let gateway =
        Gateway::to(upstream.address()).variable("ONCEKEY__DEFAULTS__REQUIRE_KEY", "true").start();
    assert_eq!(post(gateway.address(), "/pay", &[], "{}").code(), "missing-key");
}

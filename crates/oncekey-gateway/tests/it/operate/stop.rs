//! Stopping gracefully (U5).

use std::time::Duration;

use super::{Gate, Gateway, Request, counting, keyed, logged, slow};
use crate::rig::{Connection, Deadline, get, wait_until};

#[test]
fn u5_an_idle_gateway_stops_at_once_and_its_records_stay() {
    let upstream = counting();
    let mut gateway = Gateway::to(upstream.address()).start();
    keyed("/pay", "k").reply(gateway.address());
    gateway.terminate();
    assert!(gateway.wait_for_exit().success());
    let said = gateway.said();
    assert!(said.contains("\"stopped\"") && !said.contains("cut"), "{said}");
    gateway.restart();
    assert!(keyed("/pay", "k").reply(gateway.address()).replayed());
}

#[test]
fn u5_running_work_is_finished_and_waiters_are_answered() {
    let gate = Gate::new();
    let upstream = slow(&gate);
    let config = "[defaults]\nin_progress = { wait = \"20s\" }\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    // Open before the stop: no new connection is taken after it.
    let mut late = Connection::open(gateway.address()).unwrap();
    late.ask(&Request::new("GET", "/")).unwrap();
    let admin = gateway.admin();
    std::thread::scope(|scope| {
        let gateway = &gateway;
        let first = scope.spawn(move || keyed("/slow", "k").reply(gateway.address()));
        upstream.wait_for_requests(2);
        let waiter = scope.spawn(move || keyed("/slow", "k").reply(gateway.address()));
        wait_until("somebody waits", || gateway.metric("oncekey_waiters") == Some(1.0));
        gateway.terminate();
        wait_until("readiness fails", || get(admin, "/readyz").status == 503);
        assert_eq!(get(admin, "/readyz").text(), "draining\n");
        assert_eq!(get(admin, "/healthz").status, 200);
        // The waiter leaves with an answer, long before its bound.
        let told = waiter.join().unwrap();
        assert!(matches!(told.code().as_str(), "in-progress" | "draining"), "{told:?}");
        assert!(told.headers.has("retry-after"), "{told:?}");
        gate.open();
        let first = first.join().unwrap();
        assert_eq!((first.status, first.idempotency().as_str()), (201, "stored"));
    });
    assert!(gateway.wait_for_exit().success());
    gateway.restart();
    assert!(keyed("/slow", "k").reply(gateway.address()).replayed());
}

#[test]
fn u5_new_keyed_work_is_refused_while_the_old_is_finished() {
    let gate = Gate::new();
    let upstream = slow(&gate);
    let mut gateway = Gateway::to(upstream.address()).start();
    let mut busy = Connection::open(gateway.address()).unwrap();
    busy.send(keyed("/slow", "k").bytes()).unwrap();
    upstream.wait_for_requests(1);
    // Its head is here, its body is not: it becomes a claim only after the stop.
    let mut late = Connection::open(gateway.address()).unwrap();
    let request = Request::post("/pay").key("late").header("Content-Length", "2");
    late.send(request.header("Expect", "100-continue").head_bytes()).unwrap();
    let go_on = late.wire().read_to(b"\r\n\r\n").unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100"), "{go_on:?}");
    gateway.terminate();
    // Nobody is let in after the drain has begun.
    wait_until("the door is closed", || Connection::open(gateway.address()).is_err());
    assert_eq!(get(gateway.admin(), "/readyz").status, 503);
    late.send("{}").unwrap();
    let refused = late.read_reply().unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (503, "draining"));
    assert_eq!(refused.header("retry-after"), "1");
    gate.open();
    assert_eq!(busy.read_reply().unwrap().idempotency(), "stored");
    assert!(gateway.wait_for_exit().success());
    assert_eq!(upstream.count(), 1);
    gateway.restart();
    let again = keyed("/pay", "late").reply(gateway.address());
    assert_eq!(again.idempotency(), "stored");
}

#[test]
fn u5_during_the_drain_delay_everything_still_runs() {
    let upstream = counting();
    let config = "[server]\ndrain_delay = \"4s\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    gateway.terminate();
    wait_until("readiness fails", || get(gateway.admin(), "/readyz").status == 503);
    let reply = keyed("/pay", "k").reply(gateway.address());
    assert_eq!(reply.idempotency(), "stored", "{reply:?}");
    assert!(gateway.wait_for_exit().success());
}

#[test]
fn u5_a_client_that_never_ends_its_head_holds_nobody_up_beyond_the_bound() {
    let upstream = counting();
    let config = "[server]\ndrain_timeout = \"500ms\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    let mut stalled = Connection::open(gateway.address()).unwrap();
    stalled.send("POST /pay HTTP/1.1\r\nHo").unwrap();
    gateway.terminate();
    // Far less than the seconds that a stop may take to write down what it cuts off.
    let deadline = Deadline::after(Duration::from_secs(4));
    wait_until("the process has ended", || gateway.exited().is_some() || deadline.left().is_none());
    assert!(gateway.exited().is_some(), "it still runs");
}

#[test]
fn u5_what_is_cut_off_is_unknown_and_nothing_else_is() {
    let gate = Gate::new();
    let upstream = slow(&gate);
    let config = "[server]\ndrain_timeout = \"300ms\"\n";
    let mut gateway = Gateway::to(upstream.address()).config(config).start();
    assert_eq!(keyed("/pay", "done").reply(gateway.address()).status, 201);
    let mut cut = Connection::open(gateway.address()).unwrap();
    cut.send(keyed("/slow", "k").bytes()).unwrap();
    upstream.wait_for_requests(2);
    gateway.terminate();
    let line = logged(&gateway, "were cut off: their outcome is unknown");
    assert_eq!(line["cut"], 1);
    gateway.wait_for_exit();
    gateway.restart();
    for _ in 0..2 {
        let held = keyed("/slow", "k").reply(gateway.address());
        assert_eq!((held.status, held.code().as_str()), (409, "outcome-unknown"));
    }
    assert!(keyed("/pay", "done").reply(gateway.address()).replayed());
    assert_eq!((upstream.count(), gateway.metric("oncekey_records_unknown")), (2, Some(1.0)));
}

//! Whose key it is, and which request it stands for (rules S1 to S7, F1 to F5), through the whole
//! gateway.
//!
//! S6, that a layer of the library cannot be built without a scope, holds at compile time: the
//! first argument of `oncekey::http::Layer::new` beside the engine is a `Scoping`, which has no
//! `Default` and comes from `Scoping::by_tenant` or from `Scoping::shared` alone.

mod chain;
mod fingerprint;
mod principal;
mod tenant;

use std::net::SocketAddr;

use super::rig::{Gateway, Reply, Request, Upstream};

/// Answers each request with its number, so that a run can be told from a replay.
fn counting() -> Upstream {
    Upstream::start(|exchange| {
        let run = format!("run {}", exchange.request.number);
        exchange.answer(201, &[], run.as_bytes())
    })
}

/// A request with a key, and with these headers.
fn keyed(path: &str, headers: &[(&str, &str)]) -> Request {
    let request = Request::post(path).key("k").header("Content-Type", "application/json");
    headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// Sends it with the body `{}`.
fn ask(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Reply {
    keyed(path, headers).body("{}").reply(address)
}

#[track_caller]
fn is_run(reply: &Reply, number: usize) {
    let told = (reply.text(), reply.idempotency());
    assert_eq!(told, (format!("run {number}").as_str(), "stored".into()), "{reply:?}");
}

#[track_caller]
fn is_replay(reply: &Reply, number: usize) {
    let told = (reply.text(), reply.idempotency());
    assert_eq!(told, (format!("run {number}").as_str(), "replayed".into()), "{reply:?}");
}

#[track_caller]
fn is_problem(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status, reply.code().as_str()), (status, code), "{reply:?}");
}

//! What clients and applications see (rules H, P2, T1, T2, T4, A8), through the whole gateway.

mod cors;
mod headers;
mod observe;
mod problem;
mod time;

use super::rig::{Gateway, Request, Upstream};

/// Answers each request with its number, so that a run can be told from a replay.
fn counting() -> Upstream {
    Upstream::start(|exchange| {
        let run = format!("run {}", exchange.request.number);
        exchange.answer(201, &[], run.as_bytes())
    })
}

fn keyed(path: &str, key: &str) -> Request {
    Request::post(path).key(key).json("{}")
}

//! Running the gateway (rules A2, A3, A5, A6, U5, and what it never says).

mod admin;
mod reload;
mod start;
mod stop;

use super::rig::{After, Exchange, Gate, Gateway, Request, Upstream};

/// Answers each request with its number, so that a run can be told from a replay.
fn counting() -> Upstream {
    Upstream::start(answer)
}

fn answer(exchange: &mut Exchange<'_>) -> After {
    let run = format!("run {}", exchange.request.number);
    exchange.answer(201, &[], run.as_bytes())
}

/// As [`counting`]; requests to `/slow` are answered once the gate opens.
fn slow(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |exchange| {
        if exchange.request.target == "/slow" && !exchange.wait(&gate) {
            return After::Close;
        }
        answer(exchange)
    })
}

fn keyed(path: &str, key: &str) -> Request {
    Request::post(path).key(key).json("{}")
}

/// Waits for a line of the log with this in its message.
#[track_caller]
fn logged(gateway: &Gateway, text: &str) -> serde_json::Value {
    gateway.wait_for_log(text, |line| {
        line["message"].as_str().is_some_and(|message| message.contains(text))
    })
}

//! The layer around an axum handler, in one process and one thread, over the memory store.
//!
//! The same requests, each with a new key, go to a router with the layer and to one without it;
//! what is told is the difference for one request. Nothing waits here, so the time that counts is
//! the time that this one thread had a processor: what else the machine does stays out of it.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use oncekey::engine::Engine;
use oncekey::fingerprint::Secret;
use oncekey::http::{Layer, Scoping};
use oncekey::store::MemoryStore;
use tower::ServiceExt as _;

use crate::report::{Report, median};
use crate::{nginx, wrk};

/// Requests of one round.
const REQUESTS: u32 = 100_000;

/// Requests before the first round.
const WARM_UP: u32 = 10_000;

/// Measures in rounds that take turns.
pub(crate) fn run(rounds: u32) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut plain, mut layered) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let requests = if round == 0 { WARM_UP } else { REQUESTS };
        let without = runtime.block_on(per_request(handler(), requests))?;
        let with = runtime.block_on(per_request(protected(), requests))?;
        if round > 0 {
            eprintln!("round {round}: {without:.2} us without, {with:.2} us with the layer");
            plain.push(without);
            layered.push(with);
        }
    }
    let (plain, layered) = (median(plain), median(layered));
    let mut report = Report::default();
    report.figure("layer.without", plain, "us");
    report.figure("layer.with", layered, "us");
    report.figure("layer.memory", layered - plain, "us");
    Ok(report)
}

fn handler() -> Router {
    Router::new().route(wrk::PATH, post(|body: Bytes| async move { answer(&body) }))
}

fn answer(body: &Bytes) -> (StatusCode, &'static str) {
    if body.is_empty() { (StatusCode::BAD_REQUEST, "") } else { (StatusCode::OK, nginx::ANSWER) }
}

/// The same router in the layer, over a store of its own.
fn protected() -> Router {
    let engine = Engine::new(Arc::new(MemoryStore::new()));
    handler().layer(Layer::new(engine, Scoping::shared(), Secret::random()))
}

/// Microseconds for one request and its whole answer.
async fn per_request(router: Router, requests: u32) -> Result<f64> {
    let body = Bytes::from(wrk::body());
    let begun = processor_micros()?;
    for number in 0..requests {
        let request = Request::post(wrk::PATH)
            .header("content-type", "application/json")
            .header("idempotency-key", format!("layer-{number:08}-7d2e"))
            .body(Body::from(body.clone()))?;
        let response = router.clone().oneshot(request).await.context("a router cannot fail")?;
        ensure!(response.status() == StatusCode::OK, "answered with {}", response.status());
        ensure!(!response.headers().contains_key("idempotent-replayed"), "a new key was a replay");
        let whole = response.into_body().collect().await?.to_bytes();
        ensure!(whole == nginx::ANSWER, "another body than the handler's");
    }
    Ok((processor_micros()? - begun) / f64::from(requests))
}

/// For how long this thread has had a processor.
fn processor_micros() -> Result<f64> {
    const TOLD: &str = "/proc/thread-self/schedstat";
    let told = fs::read_to_string(TOLD).with_context(|| format!("cannot read {TOLD}"))?;
    let nanos = told.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    Ok(nanos.with_context(|| format!("{TOLD} does not begin with a number"))? / 1e3)
}

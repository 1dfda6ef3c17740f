//! What `/metrics` tells: claims, runs and waits, counted as the library reports them.
//!
//! Handles are made once at start: on the path of a request there is nothing but atomics.

use std::time::Duration;

use oncekey::events::{ClaimResult, Event, Observer, RunEnd};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

type Labels = [(&'static str, &'static str); 1];

/// The gateway's metrics. An observer of the engine and of the store.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    claims: Vec<(ClaimResult, Counter)>,
    ends: Vec<(RunEnd, Counter)>,
    replays: Counter,
    running: Gauge,
    waiting: Gauge,
    unknown: Counter,
    lost: Counter,
    overloaded: Counter,
    claim_seconds: Histogram,
    run_seconds: Histogram,
    batch: Histogram,
    /// Unknown records in the store, told by the admin listener when it is asked.
    pub unknown_records: Gauge<i64>,
    /// Records in progress in the store.
    pub held_records: Gauge<i64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics, at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("oncekey");
        let claims = Family::<Labels, Counter>::default();
        registry.register("claims", "Claims by their result", claims.clone());
        let ends = Family::<Labels, Counter>::default();
        registry.register("runs", "Ended runs by how they ended", ends.clone());
        let latency = || Histogram::new(exponential_buckets(0.000_25, 2.0, 18));
        let metrics = Self {
            claims: ClaimResult::ALL
                .map(|result| (result, claims.get_or_create_owned(&[("result", result.as_str())])))
                .to_vec(),
            ends: RunEnd::ALL
                .map(|end| (end, ends.get_or_create_owned(&[("end", end.as_str())])))
                .to_vec(),
            replays: Counter::default(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            unknown: Counter::default(),
            lost: Counter::default(),
            overloaded: Counter::default(),
            claim_seconds: latency(),
            run_seconds: latency(),
            batch: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            unknown_records: Gauge::default(),
            held_records: Gauge::default(),
            registry: Registry::default(),
        };
        metrics.register(registry)
    }

    fn register(self, mut registry: Registry) -> Self {
        let r = &mut registry;
        r.register("replays", "Requests answered from a stored outcome", self.replays.clone());
        r.register("runs_in_progress", "Runs of this process", self.running.clone());
        r.register("waiters", "Requests that wait for another's run", self.waiting.clone());
        r.register("became_unknown", "Runs whose end nobody knows", self.unknown.clone());
        r.register("lease_lost", "Runs whose lease was somebody else's", self.lost.clone());
        let help = "Requests refused because their bodies found no room";
        r.register("requests_overloaded", help, self.overloaded.clone());
        let help = "From a request's arrival to the answer of its claim, waiting included";
        r.register_with_unit("claim", help, Unit::Seconds, self.claim_seconds.clone());
        let help = "From a run's start to its stored end";
        r.register_with_unit("run", help, Unit::Seconds, self.run_seconds.clone());
        r.register("store_batch_size", "Operations of one synced write", self.batch.clone());
        let help = "Records that wait for a resolution";
        r.register("records_unknown", help, self.unknown_records.clone());
        r.register("records_in_progress", "Records that are held", self.held_records.clone());
        Self { registry, ..self }
    }

    /// The metrics in OpenMetrics text.
    ///
    /// # Errors
    /// None in practice: a `String` takes whatever is written.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn claim(&self, result: ClaimResult, took: Duration) {
        if let Some((_, counter)) = self.claims.iter().find(|(known, _)| *known == result) {
            counter.inc();
        }
        if result == ClaimResult::Replayed {
            self.replays.inc();
        }
        self.claim_seconds.observe(took.as_secs_f64());
    }
}

impl Observer for Metrics {
    fn note(&self, event: Event) {
        match event {
            Event::Claimed(result, took) => self.claim(result, took),
            Event::RunStarted => {
                self.running.inc();
            }
            Event::RunEnded(end, took) => {
                self.running.dec();
                if let Some((_, counter)) = self.ends.iter().find(|(known, _)| *known == end) {
                    counter.inc();
                }
                self.run_seconds.observe(took.as_secs_f64());
            }
            Event::BecameUnknown(_) => {
                self.unknown.inc();
            }
            Event::LeaseLost => {
                self.running.dec();
                self.lost.inc();
            }
            Event::Overloaded => {
                self.overloaded.inc();
            }
            Event::WaitStarted => {
                self.waiting.inc();
            }
            Event::WaitEnded => {
                self.waiting.dec();
            }
            // A batch is far below what a float can count.
            #[allow(clippy::cast_precision_loss)]
            Event::StoreBatch(size) => self.batch.observe(size as f64),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_every_claim_result_is_known_from_the_start() {
        let metrics = Metrics::new();
        let text = metrics.text().expect("text");
        for result in ClaimResult::ALL {
            let line = format!("oncekey_claims_total{{result=\"{}\"}} 0", result.as_str());
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a6_events_are_counted() {
        let metrics = Metrics::new();
        metrics.note(Event::Claimed(ClaimResult::Replayed, Duration::from_millis(1)));
        metrics.note(Event::RunStarted);
        metrics.note(Event::LeaseLost);
        metrics.note(Event::StoreBatch(3));
        let text = metrics.text().expect("text");
        for line in [
            "oncekey_claims_total{result=\"replayed\"} 1",
            "oncekey_replays_total 1",
            "oncekey_runs_in_progress 0",
            "oncekey_lease_lost_total 1",
            "oncekey_store_batch_size_sum 3.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

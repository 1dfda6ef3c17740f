//! What `/metrics` tells: claims, runs and waits, counted as the library reports them.
//!
//! Handles are made once at start: on the path of a request there is nothing but atomics.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use oncekey::events::{ClaimResult, Event, Observer, RunEnd};
use oncekey::store::embedded::{Room, Space};
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
    unknown_ended: Counter,
    clock_skew: Gauge<f64, AtomicU64>,
    lessened: Counter,
    overloaded: Counter,
    claim_seconds: Histogram,
    run_seconds: Histogram,
    batch: Histogram,
    /// Unknown records in the store, told by the admin listener when it is asked.
    pub unknown_records: Gauge<i64>,
    /// Records in progress in the store.
    pub held_records: Gauge<i64>,
    unstored: Gauge<i64>,
    free: Gauge<i64>,
    used: Gauge<i64>,
    reserve: Gauge<i64>,
    rooms: Vec<(Room, Gauge<i64>)>,
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
        let rooms = Family::<Labels, Gauge<i64>>::default();
        let help = "Whether the embedded store takes everything (open), no new keys (full), or no \
                    large answers either (critical)";
        registry.register("store_room", help, rooms.clone());
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
            unknown_ended: Counter::default(),
            clock_skew: Gauge::default(),
            lessened: Counter::default(),
            overloaded: Counter::default(),
            claim_seconds: latency(),
            run_seconds: latency(),
            batch: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            unknown_records: Gauge::default(),
            held_records: Gauge::default(),
            unstored: Gauge::default(),
            free: Gauge::default(),
            used: Gauge::default(),
            reserve: Gauge::default(),
            rooms: Room::ALL
                .map(|room| (room, rooms.get_or_create_owned(&[("room", room.as_str())])))
                .to_vec(),
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
        let help = "Unknown requests that were forgotten at their horizon";
        r.register("unknown_ended", help, self.unknown_ended.clone());
        let help = "How far the wall clock is ahead of the store's; while it is not 0, nothing is \
                    purged";
        r.register_with_unit("wall_clock_skew", help, Unit::Seconds, self.clock_skew.clone());
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
        let help = "Answers kept without their body, for the store had no room for it";
        r.register("answers_without_body", help, self.lessened.clone());
        let help = "Answers of work that ran, which the store has not taken yet";
        r.register_with_unit("unstored", help, Unit::Bytes, self.unstored.clone());
        let help = "Free on the disk of the embedded store";
        r.register_with_unit("store_free", help, Unit::Bytes, self.free.clone());
        let help = "Taken by the embedded store, about";
        r.register_with_unit("store_used", help, Unit::Bytes, self.used.clone());
        let help = "Free bytes below which the embedded store takes no new keys";
        r.register_with_unit("store_reserve", help, Unit::Bytes, self.reserve.clone());
        Self { registry, ..self }
    }

    /// Takes note of how many bytes of answers wait for the store.
    pub fn set_unstored(&self, bytes: usize) {
        self.unstored.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Takes note of how much room the embedded store has.
    pub fn set_space(&self, space: &Space) {
        let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        if let Some(free) = space.free_bytes {
            self.free.set(gauge(free));
        }
        self.used.set(gauge(space.used_bytes));
        self.reserve.set(gauge(space.reserve_bytes));
        for (room, is_there) in &self.rooms {
            is_there.set((*room == space.room).into());
        }
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
            Event::OutcomeLessened => {
                self.lessened.inc();
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
            Event::UnknownEnded => {
                self.unknown_ended.inc();
            }
            Event::WallClock(skew) => {
                self.clock_skew.set(if skew.is_off() { skew.seconds() } else { 0.0 });
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
    use oncekey::clock::Skew;

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
        metrics.note(Event::UnknownEnded);
        metrics.note(Event::WallClock(Skew::Behind(Duration::from_secs(90))));
        let text = metrics.text().expect("text");
        for line in [
            "oncekey_claims_total{result=\"replayed\"} 1",
            "oncekey_replays_total 1",
            "oncekey_runs_in_progress 0",
            "oncekey_lease_lost_total 1",
            "oncekey_store_batch_size_sum 3.0",
            "oncekey_unknown_ended_total 1",
            "oncekey_wall_clock_skew_seconds -90.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        metrics.note(Event::WallClock(Skew::Ahead(Duration::from_secs(9))));
        let text = metrics.text().expect("text");
        assert!(text.contains("oncekey_wall_clock_skew_seconds 0.0"), "they agree\n{text}");
    }
}

//! The layer's future is dropped at every await, over both stores, for every kind of answer, with
//! and without duplicates waiting (L6): one effect, and nothing stays undecided.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use oncekey::clock::Clock;
use oncekey::http::{Policy, Scoping};
use oncekey::store::{MemoryStore, Store};
use tower::ServiceExt;

use crate::rig::{Reply, Rig, pay};

/// What a request with the same key meets once everybody before it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Later {
    Replay,
    Unknown,
    /// It runs as the next attempt.
    Second,
    /// It runs as if for the first time; so may whoever waited.
    Anew,
}

/// What the handler does, and what is left of it.
const KINDS: [(&str, Later); 15] = [
    ("", Later::Replay),
    ("wait", Later::Replay),
    ("wait status=422", Later::Replay),
    ("frames=40", Later::Replay),
    ("wait stream", Later::Replay),
    ("wait big=100000", Later::Replay),
    ("big=2000000", Later::Replay),
    ("type=text/event-stream stream", Later::Replay),
    ("broken", Later::Unknown),
    ("wait error", Later::Unknown),
    ("wait panic", Later::Unknown),
    ("wait outcome=unknown", Later::Unknown),
    ("status=502", Later::Unknown),
    ("wait status=503", Later::Second),
    ("wait status=429", Later::Anew),
];

/// More awaits than any answer has.
const MOST: usize = 400;

/// A future that does nothing for so long waits for the gate.
const STILL: Duration = Duration::from_millis(100);

/// Whether the handler's gate is open from the start, or only once the future was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Before,
    After,
}

/// Polls `future` whenever it is woken, and drops it when it has been pending so many times.
/// `between` is called after the first poll. Nothing, if it was dropped.
async fn dropped_at<F: Future>(
    awaits: usize,
    future: F,
    mut between: impl FnMut(),
) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = awaits;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if left == awaits {
            between();
        }
        left -= 1;
        if left == 0 { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

struct Case {
    store: Arc<dyn Store>,
    clock: Clock,
    script: &'static str,
    later: Later,
    gate: Gate,
    duplicates: usize,
}

impl Case {
    /// Drops the future at its await of this number; whether it got that far.
    async fn drop_at(&self, awaits: usize) -> bool {
        let Self { script, later, gate, duplicates, .. } = *self;
        let what = format!("{script:?} {gate:?} {duplicates} dropped at await {awaits}");
        let key = format!("{gate:?}-{duplicates}-{awaits}-{}", script.replace(' ', "-"));
        let key = key.replace(['=', '/'], "-");
        let rig = Rig::on(
            Arc::clone(&self.store),
            self.clock.clone(),
            Policy::default(),
            Scoping::shared(),
        );
        if gate == Gate::Before {
            rig.app.gate.add_permits(100);
        }
        let mut waiting = Vec::new();
        let first = async {
            let response = rig.service.clone().oneshot(pay(&key, script, "")).await.ok()?;
            Some(Reply::read(response).await)
        };
        let ended = dropped_at(awaits, first, || {
            for _ in 0..duplicates {
                let (rig, key) = (rig.clone(), key.clone());
                waiting.push(tokio::spawn(async move {
                    let sent = rig.service.clone().oneshot(pay(&key, script, "")).await.ok()?;
                    Some(Reply::read(sent).await)
                }));
            }
        });
        let dropped = match gate {
            Gate::Before => ended.await.is_none(),
            // Where it stands still at the gate, it is dropped there.
            Gate::After => tokio::time::timeout(STILL, ended).await.is_ok_and(|end| end.is_none()),
        };
        rig.app.gate.add_permits(100);
        for duplicate in waiting {
            let reply = duplicate.await.unwrap();
            told_rightly(reply.as_ref(), later, &what);
        }
        // Where running again is acceptable, a duplicate may have come after the first run's end.
        if matches!(later, Later::Replay | Later::Unknown) {
            assert!(rig.app.runs() <= 1, "{what}: {} runs", rig.app.runs());
        }
        self.ask_later(&rig, &key, &what).await;
        assert_eq!(rig.engine.stop(Duration::from_secs(20)).await, 0, "{what}: cut off");
        dropped
    }

    async fn ask_later(&self, rig: &Rig, key: &str, what: &str) {
        // The first one's task may still be at work, and is waited for as any duplicate would.
        let sent = rig.service.clone().oneshot(pay(key, self.script, "")).await;
        let reply = match sent {
            Ok(response) => Some(Reply::read(response).await),
            Err(_) => None,
        };
        told_rightly(reply.as_ref(), self.later, what);
        if matches!(self.later, Later::Replay | Later::Unknown) {
            assert_eq!(rig.app.runs(), 1, "{what}: {reply:?}");
        }
        let last = rig.service.clone().oneshot(pay(key, self.script, "")).await;
        let last = match last {
            Ok(response) => Some(Reply::read(response).await),
            Err(_) => None,
        };
        match (self.later, last) {
            (Later::Replay, Some(last)) => assert!(last.replayed(), "{what}: {last:?}"),
            (Later::Unknown, Some(last)) => assert_eq!(last.code(), "outcome-unknown", "{what}"),
            (Later::Second, Some(last)) => assert_eq!(last.told(), "retry", "{what}: {last:?}"),
            (Later::Anew, Some(last)) => assert_eq!(last.told(), "released", "{what}: {last:?}"),
            (_, None) => panic!("{what}: the handler ran again"),
        }
    }
}

/// Whoever was not dropped is told the one answer, or why there is none; nobody is left without.
fn told_rightly(reply: Option<&Reply>, later: Later, what: &str) {
    let Some(reply) = reply else {
        assert_eq!(later, Later::Unknown, "{what}: an error");
        return;
    };
    let fine = match later {
        Later::Replay => matches!(reply.told(), "stored" | "replayed"),
        Later::Unknown => matches!(reply.told(), "unknown"),
        Later::Second => matches!(reply.told(), "retry") || reply.code() == "in-progress",
        Later::Anew => matches!(reply.told(), "released"),
    };
    assert!(fine, "{what}: {reply:?}");
}

async fn at_every_await(store: Arc<dyn Store>, clock: &Clock) {
    let mut drops = 0;
    for (script, later) in KINDS {
        for (gate, duplicates) in
            [(Gate::Before, 0), (Gate::After, 0), (Gate::Before, 2), (Gate::After, 2)]
        {
            let case = Case {
                store: Arc::clone(&store),
                clock: clock.clone(),
                script,
                later,
                gate,
                duplicates,
            };
            let mut awaits = 0;
            while case.drop_at(awaits).await {
                awaits += 1;
                assert!(awaits < MOST, "{script:?} never ends");
            }
            drops += awaits;
        }
    }
    assert!(drops > 4 * KINDS.len(), "{drops} drops: hardly anything was tried");
}

#[tokio::test]
async fn l6_b28_a_drop_at_any_await_leaves_one_effect_and_nothing_undecided_in_memory() {
    at_every_await(Arc::new(MemoryStore::new()), &Clock::real()).await;
}

#[cfg(feature = "embedded")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l6_b28_a_drop_at_any_await_leaves_one_effect_and_nothing_undecided_on_disk() {
    use oncekey::store::embedded::{EmbeddedStore, Options};
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::real();
    let store = EmbeddedStore::open(folder.path(), Options::default()).unwrap();
    at_every_await(Arc::new(store), &clock).await;
}

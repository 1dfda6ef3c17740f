//! Clients that leave, futures that are dropped, handlers that panic (L6, O7).

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use http_body_util::BodyExt;
use oncekey::http::Policy;
use tower::ServiceExt;

use crate::rig::{Reply, Rig, pay, request};

#[tokio::test]
async fn l6_b28_b29_a_future_dropped_after_any_poll_leaves_one_run_and_a_decided_record() {
    for polls in 0..12 {
        let rig = Rig::new(Policy::default());
        {
            let mut future = pin!(rig.service.clone().oneshot(pay("k", "wait", "")));
            for _ in 0..polls {
                let once = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx)));
                if once.await.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        rig.app.open();
        // Whoever comes later gets the one answer, whether or not the first got as far as a claim.
        rig.app.open();
        let reply = rig.send(pay("k", "wait", "")).await;
        assert_eq!(reply.status, 201, "dropped after {polls} polls");
        assert_eq!(rig.app.runs(), 1, "dropped after {polls} polls");
    }
}

#[tokio::test]
async fn l6_a_client_that_leaves_mid_answer_changes_nothing() {
    let rig = Rig::new(Policy::default());
    let response = rig.service.clone().oneshot(pay("k", "stream", "")).await.expect("a head");
    let mut body = response.into_body();
    let first = body.frame().await.expect("a frame").expect("data");
    assert_eq!(first.into_data().expect("data"), "one");
    drop(body);
    rig.app.gate.add_permits(2);
    let reply = rig.send(pay("k", "stream", "")).await;
    assert_eq!((reply.told(), &reply.body[..]), ("replayed", &b"onetwo"[..]));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn o5_the_end_of_a_stream_comes_after_the_outcome_is_kept() {
    let rig = Rig::new(Policy::default());
    let response = rig.service.clone().oneshot(pay("k", "stream", "")).await.expect("a head");
    assert!(!response.headers().contains_key("idempotency-expires"), "not on a streamed answer");
    let mut body = response.into_body();
    body.frame().await.expect("a frame").expect("data");
    rig.app.open();
    let second = body.frame().await.expect("a frame").expect("data");
    assert_eq!(second.into_data().expect("data"), "two", "frames are not held back");
    let during = rig.spawn(pay("k", "stream", ""));
    rig.app.open();
    assert!(body.frame().await.is_none(), "the end");
    // The end was seen, so the outcome is kept: this one needs no run.
    let reply = rig.send(pay("k", "stream", "")).await;
    assert_eq!(reply.told(), "replayed");
    assert_eq!(during.await.expect("an answer").told(), "replayed");
}

#[tokio::test]
async fn p3_b113_an_event_stream_passes_at_once_and_its_status_is_the_outcome() {
    let rig = Rig::new(Policy::default());
    let script = "type=text/event-stream stream";
    let response = rig.service.clone().oneshot(pay("k", script, "")).await.expect("a head");
    let mut body = response.into_body();
    assert!(body.frame().await.expect("a frame").is_ok());
    drop(body);
    // The client left: the upstream is closed, and status and headers are kept.
    rig.until("the outcome is kept", || rig.app.runs() == 1).await;
    let reply = rig.send(pay("k", script, "")).await;
    assert_eq!((reply.status, reply.told()), (201, "replayed"));
    assert_eq!(reply.header("idempotency-body"), Some("omitted"));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn p3_an_answer_that_breaks_off_is_unknown() {
    let rig = Rig::new(Policy::default());
    let reply = rig.send(pay("k", "broken", "")).await;
    assert_eq!((reply.status, reply.code().as_str()), (504, "outcome-unknown"));
    assert_eq!(rig.send(pay("k", "broken", "")).await.code(), "outcome-unknown");
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn o7_b31_a_panic_is_500_to_the_client_and_unknown_to_the_record() {
    let rig = Rig::new(Policy::default());
    let reply = rig.send(pay("k", "panic", "")).await;
    assert_eq!((reply.status, reply.told()), (500, "unknown"));
    let again = rig.send(pay("k", "panic", "")).await;
    assert_eq!((again.status, again.code().as_str()), (409, "outcome-unknown"));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn l6_b25_an_error_of_the_handler_is_unknown() {
    let rig = Rig::new(Policy::default());
    let error = rig.service.clone().oneshot(pay("k", "error", "")).await;
    assert!(error.is_err(), "the error is the service's own");
    assert_eq!(rig.send(pay("k", "error", "")).await.code(), "outcome-unknown");
}

#[tokio::test(start_paused = true)]
async fn o4_b40_an_answer_after_the_time_out_completes_the_record() {
    let timeout = Some(Duration::from_secs(30));
    let rig = Rig::new(Policy::default().with(|p| {
        p.timeout = timeout;
    }));
    let reply = rig.send(pay("k", "wait", "")).await;
    assert_eq!((reply.status, reply.code().as_str()), (504, "outcome-unknown"));
    assert_eq!(reply.told(), "unknown");
    rig.app.open();
    let late = rig.send(pay("k", "wait", "")).await;
    assert_eq!((late.status, late.told()), (201, "replayed"));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn c4_a_waiter_that_leaves_changes_nothing() {
    let rig = Rig::new(Policy::default());
    let first = rig.spawn(pay("k", "wait", ""));
    rig.app.entered().await;
    let waiter = rig.spawn(pay("k", "wait", ""));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    waiter.abort();
    rig.app.open();
    assert_eq!(first.await.expect("an answer").told(), "stored");
    assert_eq!(
        rig.send(request("/pay", &[("idempotency-key", "k"), ("x-do", "wait")], "")).await.told(),
        "replayed"
    );
    assert_eq!(rig.app.runs(), 1);
}

/// The answer that comes after the time-out, once it is kept.
async fn late(policy: Policy, script: &str) -> Reply {
    let rig = Rig::new(policy.with(|p| p.timeout = Some(Duration::from_millis(20))));
    let script = format!("wait {script}");
    assert_eq!(rig.send(pay("k", &script, "")).await.status, 504);
    rig.app.gate.add_permits(10);
    let patience = Duration::from_secs(10);
    let reply = tokio::time::timeout(patience, async {
        loop {
            let reply = rig.send(pay("k", &script, "")).await;
            if reply.replayed() {
                return reply;
            }
            tokio::task::yield_now().await;
        }
    });
    let reply = reply.await.expect("the late answer is kept at once, though nobody reads it");
    assert_eq!(rig.app.runs(), 1);
    reply
}

#[tokio::test]
async fn o4_p3_a_late_stream_of_events_is_kept_by_its_status() {
    let reply = late(Policy::default(), "type=text/event-stream stream").await;
    assert_eq!((reply.status, reply.header("idempotency-body")), (201, Some("omitted")));
}

#[tokio::test]
async fn o4_a_late_answer_of_many_pieces_is_not_held_up_by_its_lost_reader() {
    let reply = late(Policy::default().with(|p| p.max_response_body = 4), "frames=40").await;
    assert_eq!((reply.status, reply.header("idempotency-body")), (201, Some("omitted")));
}

#[tokio::test]
async fn p3_an_answer_beyond_what_stores_take_is_kept_without_its_body() {
    let rig = Rig::new(Policy::default().with(|p| p.max_response_body = 64 << 20));
    let script = format!("big={}", 17 << 20);
    let first = rig.send(pay("k", &script, "")).await;
    assert_eq!((first.told(), first.body.len()), ("stored", 17 << 20));
    let second = rig.send(pay("k", &script, "")).await;
    assert_eq!((second.told(), second.body.len()), ("replayed", 0));
}

//! What is kept of an answer, and how it comes back (B104 to B127).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use oncekey::clock::Clock;
use oncekey::engine::{Engine, Wait};
use oncekey::fingerprint::Secret;
use oncekey::http::{BoxError, Cors, Layer, Policy, Scoping};
use oncekey::store::{MemoryStore, StoreErrorKind};
use tower::{Layer as _, ServiceExt};

use crate::faulty::{Call, Fault, Faulty};
use crate::rig::{AppBody, Reply, Rig, pay, request};

fn boxed(response: Response<Bytes>) -> Response<AppBody> {
    response.map(|bytes| Full::from(bytes).map_err(|never: Infallible| match never {}).boxed())
}

/// The first answer, its replay, and how often the handler ran.
async fn twice<A>(policy: Policy, answer: A) -> (Reply, Reply, usize)
where
    A: Fn() -> Response<Bytes> + Clone + Send + Sync + 'static,
{
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let inner = tower::service_fn(move |_: Request<_>| {
        count.fetch_add(1, Ordering::SeqCst);
        let answer = boxed(answer());
        async move { Ok::<_, BoxError>(answer) }
    });
    let engine = Engine::new(Arc::new(MemoryStore::new()));
    let layer = Layer::new(engine, Scoping::shared(), Secret::from_bytes([7; 32]));
    let service = layer.with_policy(policy).layer(inner);
    let mut replies = Vec::new();
    for _ in 0..2 {
        let response = service.clone().oneshot(pay("k", "", "")).await.expect("an answer");
        replies.push(Reply::read(response).await);
    }
    let replay = replies.pop().expect("two");
    (replies.pop().expect("two"), replay, runs.load(Ordering::SeqCst))
}

/// Without what a replay adds: its mark and its status.
fn unmarked(reply: &Reply) -> Reply {
    let mut reply = reply.clone();
    reply.headers.remove("idempotency-status");
    reply.headers.remove("idempotent-replayed");
    reply
}

#[tokio::test]
async fn p1_b104_b106_only_the_marker_differs() {
    let (first, replay, runs) = twice(Policy::default(), || {
        let response = Response::builder()
            .status(201)
            .header("location", "/orders/1")
            .header("etag", "W/\"1\"")
            .header("link", "</a>; rel=next")
            .header("link", "</b>; rel=last")
            .header("content-type", "text/csv; charset=iso-8859-1");
        response.body(Bytes::from_static(b"a;b\r\n1;2\r\n")).expect("an answer")
    })
    .await;
    assert_eq!((first.told(), replay.told(), runs), ("stored", "replayed", 1));
    assert_eq!(unmarked(&first), unmarked(&replay));
    assert_eq!(replay.header("content-type"), Some("text/csv; charset=iso-8859-1"));
    assert_eq!(replay.headers.get_all("link").iter().count(), 2);
}

#[tokio::test]
async fn p1_b107_b109_bytes_that_are_no_text_survive_in_body_and_headers() {
    let bytes: Vec<u8> = (0..=255).cycle().take(4_096).collect();
    let body = Bytes::from(bytes);
    let given = body.clone();
    let (first, replay, runs) = twice(Policy::default(), move || {
        let name = HeaderValue::from_bytes(b"caf\xe9").expect("a value");
        Response::builder().header("x-name", name).body(given.clone()).expect("an answer")
    })
    .await;
    assert_eq!((&first.body, &replay.body, runs), (&body, &body, 1));
    assert_eq!(replay.headers["x-name"].as_bytes(), b"caf\xe9");
    assert_eq!(unmarked(&first), unmarked(&replay));
}

#[tokio::test]
async fn p1_b110_an_answer_without_a_body_protects_like_any_other() {
    for status in [200, 201, 202, 204, 205, 304] {
        let (first, replay, runs) = twice(Policy::default(), move || {
            Response::builder().status(status).body(Bytes::new()).expect("an answer")
        })
        .await;
        assert_eq!((first.status, replay.status, runs), (status, status, 1));
        assert!(replay.body.is_empty() && replay.replayed());
        assert_eq!(replay.header("idempotency-body"), None, "empty is not omitted");
        assert_eq!(replay.header("content-length"), None);
    }
}

#[tokio::test]
async fn p1_b112_b119_a_body_that_comes_piece_by_piece_is_kept_as_it_went_out() {
    let rig = Rig::new(Policy::default());
    rig.app.gate.add_permits(2);
    let first = rig.send(pay("k", "stream", "")).await;
    let replay = rig.send(pay("k", "stream", "")).await;
    assert_eq!((&first.body[..], &replay.body[..]), (&b"onetwo"[..], &b"onetwo"[..]));
    assert_eq!((replay.told(), rig.app.runs()), ("replayed", 1));

    let rig = Rig::new(Policy::default().with(|p| p.max_response_body = 4));
    rig.app.gate.add_permits(2);
    assert_eq!(&rig.send(pay("k", "stream", "")).await.body[..], b"onetwo");
    let replay = rig.send(pay("k", "stream", "")).await;
    assert_eq!((replay.body.len(), replay.header("idempotency-body")), (0, Some("omitted")));
    assert_eq!(rig.app.runs(), 1);
}

#[tokio::test]
async fn p1_b115_an_error_that_is_kept_comes_back_as_the_answer_it_was() {
    let (first, replay, runs) = twice(Policy::stripe(), || {
        let body = Bytes::from_static(br#"{"type":"about:blank","status":503}"#);
        let response = Response::builder().status(503);
        response.header("content-type", "application/problem+json").body(body).expect("an answer")
    })
    .await;
    assert_eq!((first.status, replay.status, runs), (503, 503, 1));
    assert_eq!(unmarked(&first), unmarked(&replay));
}

#[tokio::test]
async fn p1_p3_b116_a_compressed_body_never_comes_without_its_coding_nor_the_coding_without_it() {
    let gzip = || {
        let response = Response::builder()
            .header("content-encoding", "gzip")
            .header("vary", "accept-encoding")
            .header("etag", "\"z\"");
        response.body(Bytes::from_static(b"\x1f\x8b\x08\x00")).expect("an answer")
    };
    let (first, replay, _) = twice(Policy::default(), gzip).await;
    assert_eq!(unmarked(&first), unmarked(&replay));
    assert_eq!(replay.header("content-encoding"), Some("gzip"));

    let (first, replay, runs) =
        twice(Policy::default().with(|p| p.max_response_body = 2), gzip).await;
    assert_eq!((first.header("content-encoding"), first.body.len()), (Some("gzip"), 4));
    assert_eq!((replay.header("content-encoding"), replay.header("etag")), (None, None));
    assert_eq!((replay.body.len(), replay.header("idempotency-body")), (0, Some("omitted")));
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn p2_b118_a_page_of_another_origin_may_send_the_key_and_read_what_became_of_it() {
    const ORIGIN: &str = "https://shop.example";
    let rig = Rig::new(Policy::default());
    let cors = Cors::new(vec![HeaderValue::from_static(ORIGIN)]);
    let layer = Layer::new(rig.engine.clone(), Scoping::shared(), Secret::from_bytes([7; 32]));
    let service = layer.with_cors(cors).layer(rig.app.clone());
    let send = async |request| {
        Reply::read(service.clone().oneshot(request).await.expect("an answer")).await
    };
    let preflight = Request::options("/pay")
        .header("origin", ORIGIN)
        .header("access-control-request-headers", "idempotency-key")
        .header("x-do", "status=204 header=access-control-allow-headers:content-type");
    let allowed = send(preflight.body(Full::default()).expect("a request")).await;
    let names: Vec<_> = allowed.headers.get_all("access-control-allow-headers").iter().collect();
    assert!(names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(b"idempotency-key")));
    let from = |body| request("/pay", &[("idempotency-key", "k"), ("origin", ORIGIN)], body);
    for reply in [send(from("a")).await, send(from("a")).await, send(from("b")).await] {
        let exposed = reply.header("access-control-expose-headers").expect("a list");
        for name in ["Idempotent-Replayed", "Idempotency-Status", "Retry-After"] {
            assert!(exposed.contains(name), "{name} of {}", reply.status);
        }
        let ours = reply.replayed() || reply.status == 422;
        let origin = reply.header("access-control-allow-origin");
        assert_eq!(origin, ours.then_some(ORIGIN), "the application answers for its own");
    }
}

#[tokio::test]
async fn o1_b121_b127_what_passes_by_itself_is_not_kept() {
    for status in [500, 503, 408, 425, 429] {
        let rig = Rig::new(Policy::default());
        let first = rig.send(pay("k", &format!("status={status}"), "")).await;
        assert_eq!(first.status, status);
        rig.clock.advance(Duration::from_secs(60));
        let second = rig.send(pay("k", "", "")).await;
        assert_eq!((second.status, second.told()), (201, "stored"), "{status}");
        assert_eq!(rig.app.runs(), 2);
    }
}

#[tokio::test]
async fn o1_o2_o3_b122_what_may_have_happened_is_never_done_again() {
    for (policy, script) in [
        (Policy::default(), "status=504"),
        (Policy::default(), "status=502"),
        (Policy::payment(), "status=500"),
        (Policy::default(), "status=500 outcome=unknown"),
        (Policy::default(), "status=429 outcome=unknown"),
    ] {
        let rig = Rig::new(policy);
        assert_eq!(rig.send(pay("k", script, "")).await.told(), "unknown", "{script}");
        for _ in 0..3 {
            rig.clock.advance(Duration::from_secs(3_600));
            assert_eq!(rig.send(pay("k", "", "")).await.code(), "outcome-unknown", "{script}");
        }
        assert_eq!(rig.app.runs(), 1, "{script}");
    }
    let rig = Rig::new(Policy::default());
    let kept = rig.send(pay("k", "status=500 outcome=keep", "")).await;
    assert_eq!((kept.status, kept.told()), (500, "stored"), "the handler knows which it is");
    assert_eq!(rig.send(pay("k", "", "")).await.status, 500);
}

#[tokio::test(start_paused = true)]
async fn l6_b124_every_way_to_end_leaves_a_decided_record_whatever_the_store_does() {
    let scripts = [
        "",
        "status=404",
        "status=500",
        "status=429",
        "status=504",
        "outcome=release",
        "panic",
        "error",
        "broken",
        "stream",
        "type=text/event-stream stream",
        "type=text/event-stream broken",
        "big=3000000",
    ];
    let unavailable = StoreErrorKind::Unavailable;
    let faults = [
        None,
        Some(Fault::Before(unavailable)),
        Some(Fault::Before(StoreErrorKind::Timeout)),
        Some(Fault::After(StoreErrorKind::Timeout)),
        Some(Fault::Hangs),
    ];
    for script in scripts {
        for fault in faults {
            let clock = Clock::manual();
            let memory = Arc::new(MemoryStore::new().with_clock(clock.clone()));
            let store = Arc::new(Faulty::new(memory));
            let policy = Policy::default().with(|policy| policy.wait = Wait::Reject);
            let rig = Rig::on(Arc::clone(&store) as _, clock, policy, Scoping::shared());
            if let Some(fault) = fault {
                store.fail(Call::Complete, fault);
                store.fail(Call::End, fault);
            }
            rig.app.gate.add_permits(2);
            if let Ok(response) = rig.service.clone().oneshot(pay("k", script, "")).await {
                Reply::read(response).await;
            }
            // What could not be stored at first is stored in the background.
            let mut code = "in-progress".to_owned();
            for _ in 0..200 {
                rig.clock.advance(Duration::from_millis(20));
                tokio::time::sleep(Duration::from_millis(1)).await;
                code = rig.send(pay("k", "", "")).await.code();
                if code != "in-progress" {
                    break;
                }
            }
            assert_ne!(code, "in-progress", "{script:?} and {fault:?}");
            assert!(rig.clock.now().since(Clock::manual().now()) < Duration::from_secs(30));
        }
    }
}

#[tokio::test]
async fn o3_b125_what_was_not_due_yet_runs_when_it_is() {
    let rig = Rig::new(Policy::default());
    let early = rig.send(pay("k", "status=409 outcome=release", "")).await;
    assert_eq!((early.status, early.told()), (409, "released"), "the answer is still sent");
    let due = rig.send(pay("k", "", "")).await;
    assert_eq!((due.status, due.told(), due.header("x-attempt")), (201, "stored", Some("1")));
}

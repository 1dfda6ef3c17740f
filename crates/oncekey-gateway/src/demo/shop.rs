//! The toy shop: an application that takes payments and knows nothing about idempotency.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the page with the pay button |
//! | `POST /api/pay` | takes a moment, writes a charge into the ledger, answers 201 with it |
//! | `GET /api/charges/{id}` | one charge |
//! | `GET /ledger` | a page with every charge that really ran |
//! | `GET /api/ledger` | the same as JSON |
//!
//! 1. Every request to pay that arrives is run. Whatever protects the shop from a double click
//!    stands in front of it.
//! 2. The body names a story, so that a visitor can see what happens when the shop fails, is slow,
//!    or dies after it has charged.
//! 3. Pages carry no inline script or style and load nothing from elsewhere; their
//!    `Content-Security-Policy` says so.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use oncekey::clock::Clock;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

use super::ledger::{Charge, Ledger};

const BODY_LIMIT: usize = 16 * 1024;
const ITEM_LIMIT: usize = 80;
const AMOUNT_LIMIT: u64 = 1_000_000;
const RECORD_LIMIT: usize = 128;

const SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// How long the shop takes.
#[derive(Clone, Copy, Debug)]
struct Pace {
    usual: Duration,
    slow: Duration,
}

impl Pace {
    /// Long enough to click twice; slow is twice as long as the demo's gateway waits for an answer.
    const DEMO: Self = Self { usual: Duration::from_millis(400), slow: Duration::from_secs(4) };
}

#[derive(Debug)]
struct Shop {
    ledger: Ledger,
    clock: Clock,
    pace: Pace,
}

/// What the visitor wants to see happen.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Story {
    /// It charges and says so.
    #[default]
    Works,
    /// The first attempt fails before it charges; the next one works.
    Fails,
    /// It works, but later than anyone waits.
    Slow,
    /// It charges, then the connection breaks before a word is said.
    Crashes,
}

#[derive(Debug, Deserialize)]
struct Order {
    item: String,
    amount: u64,
    #[serde(default)]
    story: Story,
}

impl Order {
    /// The content type is not looked at: a bare `curl -d` is welcome.
    fn read(body: &[u8]) -> Result<Self, &'static str> {
        const SHAPE: &str = "the body must be JSON like {\"item\":\"coffee\",\"amount\":420}";
        let order: Self = serde_json::from_slice(body).map_err(|_| SHAPE)?;
        if order.item.is_empty() || order.item.len() > ITEM_LIMIT {
            return Err("the item must have 1 to 80 bytes");
        }
        if !(1..=AMOUNT_LIMIT).contains(&order.amount) {
            return Err("the amount must be 1 to 1000000 cents");
        }
        Ok(order)
    }
}

/// The shop with an empty ledger.
pub fn router() -> Router {
    with_pace(Pace::DEMO)
}

fn with_pace(pace: Pace) -> Router {
    let shop = Shop { ledger: Ledger::default(), clock: Clock::real(), pace };
    let mut router = Router::new()
        .route("/", get(front))
        .route("/ledger", get(|| async { page(include_str!("assets/ledger.html")) }))
        .route("/api/pay", post(pay))
        .route("/api/ledger", get(statement))
        .route("/api/charges/{id}", get(charge));
    for asset in ASSETS {
        router = router.route(asset.path, get(move || async { file(asset.kind, asset.content) }));
    }
    router.layer(DefaultBodyLimit::max(BODY_LIMIT)).with_state(Arc::new(shop))
}

/// The page with the pay button. Where the request did not come through the gateway, it says so:
/// the same page behaves otherwise there.
async fn front(headers: HeaderMap) -> Response {
    const PROMISE: &str = "Click as often and as fast as you like. You are charged once.";
    const WARNING: &str = "No gateway stands before this page: every click charges again.";
    let html = include_str!("assets/shop.html");
    let through_gateway = headers
        .get_all(header::VIA)
        .iter()
        .any(|via| String::from_utf8_lossy(via.as_bytes()).contains("oncekey"));
    if through_gateway { page(html) } else { page(html.replace(PROMISE, WARNING)) }
}

/// Serves the shop until `shutdown` is ready and the running requests are answered.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router()).with_graceful_shutdown(shutdown).await
}

struct Asset {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

const ASSETS: &[Asset] = &[
    Asset {
        path: "/assets/shop.css",
        kind: "text/css; charset=utf-8",
        content: include_str!("assets/shop.css"),
    },
    Asset { path: "/assets/pay.js", kind: SCRIPT, content: include_str!("assets/pay.js") },
    Asset { path: "/assets/ledger.js", kind: SCRIPT, content: include_str!("assets/ledger.js") },
    Asset { path: "/assets/cup.svg", kind: IMAGE, content: include_str!("assets/cup.svg") },
    Asset { path: "/assets/mark.svg", kind: IMAGE, content: include_str!("assets/mark.svg") },
];

fn page(content: impl Into<Body>) -> Response {
    let mut answer = file("text/html; charset=utf-8", content);
    let headers = answer.headers_mut();
    headers
        .insert(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(SECURITY_POLICY));
    headers.insert(header::REFERRER_POLICY, header::HeaderValue::from_static("no-referrer"));
    answer
}

fn file(kind: &'static str, content: impl Into<Body>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The next demo on this port may bring other pages.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content.into()).into_response()
}

async fn pay(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Response {
    shop.ledger.saw_request();
    let order = match Order::read(&body) {
        Ok(order) => order,
        Err(why) => return refusal(StatusCode::BAD_REQUEST, why),
    };
    let attempt = attempt(&headers);
    let takes = match order.story {
        Story::Slow => shop.pace.slow,
        Story::Works | Story::Fails | Story::Crashes => shop.pace.usual,
    };
    shop.clock.sleep(takes).await;
    // Without a gateway nobody counts attempts, and each one is the first.
    if matches!(order.story, Story::Fails) && attempt.unwrap_or(1) <= 1 {
        let why = "the payment provider failed; nothing was charged";
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, why);
    }
    let charge = shop.ledger.charge(|id| Charge {
        id,
        item: order.item,
        amount: order.amount,
        at: shop.clock.now().as_micros() / 1000,
        record: record(&headers),
        attempt,
    });
    match order.story {
        Story::Crashes => cut_off(),
        Story::Works | Story::Fails | Story::Slow => created(&charge),
    }
}

fn created(charge: &Charge) -> Response {
    let headers = [
        (header::LOCATION, format!("/api/charges/{}", charge.id)),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::CONTENT_TYPE, "application/json".to_owned()),
    ];
    // The line end keeps a terminal's prompt off the answer.
    (StatusCode::CREATED, headers, format!("{}\n", json!(charge))).into_response()
}

/// An answer that never leaves the house: the server gives up on the connection when the body
/// fails, and the head is still in its buffer then.
fn cut_off() -> Response {
    let failure = futures_util::stream::once(async {
        Err::<Bytes, io::Error>(io::Error::other("the shop died midway"))
    });
    (StatusCode::CREATED, Body::from_stream(failure)).into_response()
}

fn refusal(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

/// The attempt that the gateway names.
fn attempt(headers: &HeaderMap) -> Option<u32> {
    headers.get("idempotency-attempt")?.to_str().ok()?.parse().ok()
}

/// The record that the gateway names.
fn record(headers: &HeaderMap) -> Option<String> {
    let record = headers.get("idempotency-record")?.to_str().ok()?;
    (record.len() <= RECORD_LIMIT).then(|| record.to_owned())
}

async fn statement(State(shop): State<Arc<Shop>>) -> Response {
    let headers = [(header::CACHE_CONTROL, "no-store")];
    (headers, Json(shop.ledger.statement())).into_response()
}

async fn charge(State(shop): State<Arc<Shop>>, Path(id): Path<String>) -> Response {
    match shop.ledger.find(&id) {
        Some(charge) => Json(charge).into_response(),
        None => refusal(StatusCode::NOT_FOUND, "there is no such charge"),
    }
}

#[cfg(test)]
#[path = "shop/tests.rs"]
mod tests;

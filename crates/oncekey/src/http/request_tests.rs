use std::sync::Arc;

use http::Request;
use http_body_util::Full;

use super::*;
use crate::engine::Engine;
use crate::fingerprint::{BodyMode, Relation, Secret, Selection};
use crate::http::cors::Cors;
use crate::http::policy::Query;
use crate::http::room::Room;
use crate::http::scoping::Scoping;
use crate::store::MemoryStore;

/// Recipes under the secret 07 x 32: a stored format.
const RAW_RECIPE: u64 = 3_430_494_897_545_828_925;
const JSON_RECIPE: u64 = 2_002_357_623_995_645_474;

fn front() -> Front {
    let policy = Arc::new(Policy::default());
    Front {
        engine: Engine::new(Arc::new(MemoryStore::new())),
        scoping: Scoping::shared(),
        secret: Secret::from_bytes([7; 32]),
        policies: Arc::new(move |_| Arc::clone(&policy)),
        cors: Cors::default(),
        problem_base: None,
        room: Room::new(1 << 20),
    }
}

async fn wish_of(policy: &Policy, request: Request<&'static str>) -> Wish<Full<Bytes>> {
    let (mut parts, body) = request.into_parts();
    wish(&front(), policy, &mut parts, Full::from(body)).await
}

/// The claim of a request, which must have one.
async fn claim(policy: &Policy, request: Request<&'static str>) -> Claim {
    match wish_of(policy, request).await {
        Wish::Once(claim, _) => *claim,
        Wish::Pass(_) => panic!("it passes"),
        Wish::Refused(problem, _) => panic!("it is refused: {problem:?}"),
    }
}

async fn code(policy: &Policy, request: Request<&'static str>) -> Option<Code> {
    match wish_of(policy, request).await {
        Wish::Refused(problem, _) => Some(problem.code()),
        Wish::Pass(_) | Wish::Once(..) => None,
    }
}

fn post(uri: &str) -> http::request::Builder {
    Request::post(uri).header("idempotency-key", "k")
}

fn with(request: http::request::Builder, body: &'static str) -> Request<&'static str> {
    request.body(body).expect("a request")
}

#[tokio::test]
async fn k1_two_sources_with_different_values_are_refused() {
    let policy = Policy {
        keys: vec![
            KeySource::Header(HeaderName::from_static("idempotency-key")),
            KeySource::Header(HeaderName::from_static("x-key")),
            KeySource::Body("/key".into()),
        ],
        ..Policy::default()
    };
    let json = |request: http::request::Builder| request.header("content-type", "application/json");
    let same = json(post("/")).header("x-key", "\"k\"");
    assert_eq!(code(&policy, with(same, r#"{"key":"k"}"#)).await, None);
    let other = json(post("/")).header("x-key", "j");
    assert_eq!(code(&policy, with(other, "{}")).await, Some(Code::InvalidKey));
    let body = json(post("/"));
    assert_eq!(code(&policy, with(body, r#"{"key":"j"}"#)).await, Some(Code::InvalidKey));
}

#[tokio::test]
async fn k1_m2_2_a_key_in_the_body_is_a_string_or_absent() {
    let policy = Policy { keys: vec![KeySource::Body("/a/key".into())], ..Policy::default() };
    let of = |body| with(Request::post("/").header("content-type", "application/json"), body);
    assert_eq!(claim(&policy, of(r#"{"a":{"key":"k1"}}"#)).await.key.as_str(), "k1");
    for absent in ["{}", r#"{"a":{}}"#, r#"{"a":{"key":null}}"#, r#"{"a":[]}"#, ""] {
        assert!(matches!(wish_of(&policy, of(absent)).await, Wish::Pass(_)), "{absent}");
    }
    for bad in [
        r#"{"a":{"key":1}}"#,
        r#"{"a":{"key":true}}"#,
        r#"{"a":{"key":[]}}"#,
        r#"{"a":{"key":""}}"#,
        r#"{"a":{"key":"k1","key":"k2"}}"#,
        r#"{"a":{"key":"k1"}"#,
        "not json",
    ] {
        assert_eq!(code(&policy, of(bad)).await, Some(Code::InvalidKey), "{bad}");
    }
    let form = Request::post("/").header("content-type", "application/x-www-form-urlencoded");
    assert!(matches!(wish_of(&policy, with(form, "a=1")).await, Wish::Pass(_)));
}

#[tokio::test]
async fn f4_a_body_that_ends_before_its_declared_length_is_incomplete() {
    let of = |length: &str| with(post("/").header("content-length", length), "{}");
    assert_eq!(code(&Policy::default(), of("2")).await, None);
    for wrong in ["3", "15", "1"] {
        let code = code(&Policy::default(), of(wrong)).await;
        assert_eq!(code, Some(Code::RequestIncomplete), "{wrong}");
    }
}

#[tokio::test]
async fn k3_a_key_on_two_lines_is_refused_equal_or_not() {
    for second in ["k", "j"] {
        let request = post("/").header("idempotency-key", second);
        assert_eq!(code(&Policy::default(), with(request, "")).await, Some(Code::InvalidKey));
    }
}

#[tokio::test]
async fn k5_a_route_may_ask_more_of_a_key() {
    let key = |text: &str| with(Request::post("/").header("idempotency-key", text), "");
    let mut policy = Policy::default();
    policy.key_rules.min_length = 16;
    assert_eq!(code(&policy, key("1")).await, Some(Code::InvalidKey));
    assert_eq!(code(&policy, key("0123456789abcdef")).await, None);
    policy.key_rules.form = KeyForm::Uuid;
    assert_eq!(code(&policy, key("0123456789abcdef")).await, Some(Code::InvalidKey));
    assert_eq!(code(&policy, key("8e03978e-40d5-43e8-bc93-6894a57f9324")).await, None);
    policy.key_rules.max_age = Some(Duration::from_secs(3600));
    // A version 4 key has no time in it; a version 7 key of the year 2020 is too old.
    assert_eq!(code(&policy, key("8e03978e-40d5-43e8-bc93-6894a57f9324")).await, None);
    let old = "0175d0a0-0000-7000-8000-000000000000";
    assert_eq!(code(&policy, key(old)).await, Some(Code::InvalidKey));
    policy.key_rules = KeyRules { refused: vec!["undefined".into()], ..KeyRules::default() };
    assert_eq!(code(&policy, key("Undefined")).await, Some(Code::InvalidKey));
}

#[tokio::test]
async fn k6_a_missing_key_passes_or_is_refused_by_the_route() {
    let none = || with(Request::post("/"), "");
    assert!(matches!(wish_of(&Policy::default(), none()).await, Wish::Pass(_)));
    let policy = Policy { need: KeyNeed::Required, ..Policy::default() };
    assert_eq!(code(&policy, none()).await, Some(Code::MissingKey));
}

#[tokio::test]
async fn f1_what_a_request_is_counts_and_what_varies_by_try_does_not() {
    let policy = Policy::default();
    let of = async |request: http::request::Builder, body| {
        claim(&policy, with(request, body)).await.fingerprint
    };
    let json = |uri: &str| post(uri).header("content-type", "application/json; charset=utf-8");
    let first = of(json("/pay?a=1"), "{}").await;
    let same = [
        of(json("/pay?a=1"), "{}").await,
        of(post("/pay?a=1").header("content-type", "application/json"), "{}").await,
        of(post("/pay?a=1").header("content-type", "Application/JSON;charset=x"), "{}").await,
        of(json("/%70ay/?a=1").header("traceparent", "1").header("date", "x"), "{}").await,
        of(json("/pay?a=1").header("authorization", "new").header("user-agent", "x"), "{}").await,
    ];
    for other in same {
        assert_eq!(first.relation(&other), Relation::Same);
    }
    let different = [
        of(json("/pay?a=1"), "[]").await,
        of(json("/pay?a=1"), "").await,
        of(json("/pay?a=2"), "{}").await,
        of(json("/pay"), "{}").await,
        of(json("/order?a=1"), "{}").await,
        of(post("/pay?a=1").header("content-type", "text/plain"), "{}").await,
        of(post("/pay?a=1").header("content-type", "application/json;v=2"), "{}").await,
        of(post("/pay?a=1"), "{}").await,
    ];
    for other in different {
        assert_eq!(first.relation(&other), Relation::Differs);
    }
}

#[tokio::test]
async fn f3_b94_chosen_headers_count_and_credentials_never_do() {
    let headers = ["accept", "authorization"].map(HeaderName::from_static);
    let policy = Policy { headers: headers.to_vec(), ..Policy::default() };
    let of = async |request: http::request::Builder| {
        claim(&policy, with(request, "{}")).await.fingerprint
    };
    let first = of(post("/").header("accept", "application/json")).await;
    let html = of(post("/").header("accept", "text/html")).await;
    assert_eq!(first.relation(&html), Relation::Differs);
    let signed = of(post("/").header("accept", "application/json").header("authorization", "x"));
    assert_eq!(first.relation(&signed.await), Relation::Same);
    let merged = of(post("/").header("accept", "a").header("accept", "b")).await;
    let single = of(post("/").header("accept", "ab")).await;
    assert_eq!(merged.relation(&single), Relation::Differs);
}

#[tokio::test]
async fn f5_b79_query_strings_are_compared_raw_or_sorted() {
    let mut policy = Policy::default();
    let of =
        async |policy: &Policy, uri: &str| claim(policy, with(post(uri), "")).await.fingerprint;
    let relation = async |policy: &Policy, a: &str, b: &str| {
        of(policy, a).await.relation(&of(policy, b).await)
    };
    assert_eq!(relation(&policy, "/?a=1&b=2", "/?b=2&a=1").await, Relation::Differs);
    policy = Policy { query: Query::Sorted, ..Policy::default() };
    assert_eq!(relation(&policy, "/?a=1&b=2", "/?b=2&a=1").await, Relation::Same);
    assert_eq!(relation(&policy, "/?a=1&a=2", "/?a=2&a=1").await, Relation::Differs);
    assert_eq!(relation(&policy, "/?a=&a=b&c=", "/?a=&b=c&b=").await, Relation::Differs);
}

#[tokio::test]
async fn f1_another_recipe_counts_as_equal() {
    let raw = claim(&Policy::default(), with(post("/"), "{}")).await.fingerprint;
    let policy = Policy { body: BodyMode::Json(Selection::default()), ..Policy::default() };
    let json = claim(&policy, with(post("/"), "[]")).await.fingerprint;
    assert_eq!(raw.relation(&json), Relation::OtherRecipe);
}

#[tokio::test]
async fn f1_a_changed_copy_of_a_policy_has_a_recipe_of_its_own() {
    let raw = Policy::default();
    let first = claim(&raw, with(post("/"), "{}")).await.fingerprint;
    let mut copy = raw.clone();
    copy.body = BodyMode::Json(Selection::default());
    let second = claim(&copy, with(post("/"), "[]")).await.fingerprint;
    assert_eq!(first.relation(&second), Relation::OtherRecipe);
}

#[tokio::test]
async fn f1_the_recipe_of_a_policy_is_pinned() {
    let json = Policy::default().with(|policy| {
        let selection = Selection { exclude: vec!["/ts".into()], include: vec!["/a".into()] };
        policy.body = BodyMode::Json(selection);
        policy.query = Query::Sorted;
        policy.headers = vec![HeaderName::from_static("accept")];
    });
    for (policy, number) in [(Policy::default(), RAW_RECIPE), (json, JSON_RECIPE)] {
        let claim = claim(&policy, with(post("/"), "{}")).await;
        assert_eq!(claim.fingerprint.recipe().number(), number);
    }
}

#[tokio::test]
async fn f4_a_body_over_the_limit_is_refused_declared_or_not() {
    let policy = Policy { max_request_body: 4, ..Policy::default() };
    assert_eq!(code(&policy, with(post("/"), "1234")).await, None);
    assert_eq!(code(&policy, with(post("/"), "12345")).await, Some(Code::RequestTooLarge));
    let declared = post("/").header("content-length", "5");
    assert_eq!(code(&policy, with(declared, "")).await, Some(Code::RequestTooLarge));
}

#[tokio::test(start_paused = true)]
async fn x6_a_body_that_does_not_arrive_is_refused_in_time() {
    let request = post("/").body(()).expect("a request");
    let (mut parts, ()) = request.into_parts();
    let body = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<http_body::Frame<Bytes>, BoxError>,
    >());
    let policy = Policy::default();
    let wish = wish(&front(), &policy, &mut parts, body).await;
    let Wish::Refused(problem, _) = wish else { panic!("it must be refused") };
    assert_eq!(problem.code(), Code::RequestIncomplete);
}

#[tokio::test]
async fn b32_a_body_that_breaks_off_leaves_no_claim() {
    let request = post("/").body(()).expect("a request");
    let (mut parts, ()) = request.into_parts();
    let frames = [
        Ok(http_body::Frame::data(Bytes::from_static(b"half"))),
        Err(BoxError::from("the client left")),
    ];
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
    let wish = wish(&front(), &Policy::default(), &mut parts, body).await;
    let Wish::Refused(problem, _) = wish else { panic!("it must be refused") };
    assert_eq!(problem.code(), Code::RequestIncomplete);
    assert_eq!(problem.into_response().status(), 400);
}

#[tokio::test]
async fn k7_an_upgrade_on_a_keyed_request_is_dropped() {
    let request = with(post("/").header("upgrade", "websocket"), "");
    let (mut parts, _) = request.into_parts();
    let body = Full::new(Bytes::new());
    assert!(matches!(wish(&front(), &Policy::default(), &mut parts, body).await, Wish::Once(..)));
    assert!(!parts.headers.contains_key(UPGRADE));
}

#[tokio::test]
async fn a8_an_observed_body_that_finds_no_room_is_passed_on_whole_and_at_once() {
    let policy = Policy { mode: Mode::Observe, ..Policy::default() };
    let front = Front { room: Room::new(16 << 10), ..front() };
    let mut full = front.room.buffer(8 << 10, Some(8 << 10), Patience::UntilThereIsRoom);
    full.push(&vec![b'x'; 8 << 10]).await.expect("all of it is free");
    let (mut parts, body) = with(post("/"), "every byte of it").into_parts();
    match wish(&front, &policy, &mut parts, Full::from(body)).await {
        Wish::Refused(problem, body) => {
            assert_eq!(problem.code(), Code::Overloaded);
            let bytes = body.collect().await.expect("a body").to_bytes();
            assert_eq!(bytes, "every byte of it");
        }
        _ => panic!("there is room"),
    }
}

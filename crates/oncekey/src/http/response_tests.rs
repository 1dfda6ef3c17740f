use proptest::prelude::*;

use super::*;

fn headers(list: &[(&str, &[u8])]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).expect("a name"),
            HeaderValue::from_bytes(value).expect("a value"),
        );
    }
    map
}

fn round(status: u16, list: &[(&str, &[u8])], body: &'static [u8]) -> Response<Bytes> {
    let kept = Bytes::from_static(body);
    let status = StatusCode::from_u16(status).expect("a status");
    let lists = ReplayHeaders::default();
    let outcome = store(status, &headers(list), Kept::Body(&kept), None, &lists);
    restore(&outcome, None).expect("what was stored is read")
}

fn names(response: &Response<Bytes>) -> Vec<(&str, &[u8])> {
    response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

#[test]
fn p1_b104_status_headers_and_body_come_back_as_they_were() {
    let response = round(
        201,
        &[("location", b"/charges/1"), ("etag", b"\"7\""), ("content-type", b"text/csv")],
        b"a,b\n\x00\xff",
    );
    assert_eq!(response.status(), 201);
    assert_eq!(
        names(&response),
        [("location", &b"/charges/1"[..]), ("etag", b"\"7\""), ("content-type", b"text/csv")]
    );
    assert_eq!(&response.body()[..], b"a,b\n\x00\xff");
}

#[test]
fn p1_b109_repeated_headers_keep_their_order_and_bytes() {
    let response = round(200, &[("link", b"<a>"), ("x-name", b"\xe9"), ("link", b"<b>")], b"");
    let links: Vec<_> = response.headers().get_all("link").iter().collect();
    assert_eq!(links, ["<a>", "<b>"]);
    assert_eq!(response.headers()["x-name"].as_bytes(), b"\xe9");
}

#[test]
fn p1_b110_an_empty_body_is_kept_for_every_status() {
    for status in [200, 201, 202, 204, 205, 304] {
        let response = round(status, &[], b"");
        assert_eq!(response.status().as_u16(), status);
        assert!(response.body().is_empty());
        assert!(!response.headers().contains_key(names::IDEMPOTENCY_BODY), "empty is not omitted");
    }
}

#[test]
fn p2_what_belongs_to_the_connection_or_the_moment_is_not_kept() {
    let response = round(
        200,
        &[
            ("connection", b"close, X-Hop"),
            ("x-hop", b"1"),
            ("keep-alive", b"timeout=5"),
            ("proxy-authenticate", b"Basic"),
            ("transfer-encoding", b"chunked"),
            ("trailer", b"x"),
            ("upgrade", b"h2c"),
            ("date", b"now"),
            ("age", b"1"),
            ("via", b"1.1 x"),
            ("server", b"x"),
            ("server-timing", b"x"),
            ("content-length", b"9"),
            ("retry-after", b"1"),
            ("nel", b"{}"),
            ("report-to", b"{}"),
            ("set-cookie", b"a=1"),
            ("www-authenticate", b"Basic"),
            ("ratelimit", b"1"),
            ("x-ratelimit-remaining", b"1"),
            ("x-request-id", b"1"),
            ("traceparent", b"1"),
            ("alt-svc", b"h3"),
            ("strict-transport-security", b"max-age=1"),
            ("idempotency-status", b"stored"),
            ("idempotent-replayed", b"true"),
            ("x-kept", b"1"),
            ("idempotency-key", b"k"),
        ],
        b"",
    );
    assert_eq!(names(&response), [("x-kept", &b"1"[..]), ("idempotency-key", b"k")]);
}

#[test]
fn p2_a_route_may_allow_and_deny_but_never_what_is_the_connections() {
    let lists =
        ReplayHeaders { allow: vec![header::SET_COOKIE, header::DATE], deny: vec![header::ETAG] };
    let map =
        headers(&[("set-cookie", b"a=1"), ("set-cookie", b"b=2"), ("date", b"x"), ("etag", b"1")]);
    let body = Bytes::new();
    let outcome = store(StatusCode::OK, &map, Kept::Body(&body), None, &lists);
    let response = restore(&outcome, None).expect("readable");
    assert_eq!(names(&response), [("set-cookie", &b"a=1"[..]), ("set-cookie", b"b=2")]);
}

#[test]
fn p2_permission_of_an_origin_is_replayed_to_that_origin_only() {
    let map = headers(&[("access-control-allow-origin", b"https://a.example"), ("x", b"1")]);
    let [a, b] = ["https://a.example", "https://b.example"].map(HeaderValue::from_static);
    let body = Bytes::new();
    let lists = ReplayHeaders::default();
    let outcome = store(StatusCode::OK, &map, Kept::Body(&body), Some(&a), &lists);
    let allows = |origin: Option<&HeaderValue>| {
        let response = restore(&outcome, origin).expect("readable");
        response.headers().contains_key("access-control-allow-origin")
    };
    assert!(allows(Some(&a)));
    assert!(!allows(Some(&b)));
    assert!(!allows(None));
    let outcome = store(StatusCode::OK, &map, Kept::Body(&body), None, &lists);
    let response = restore(&outcome, None).expect("readable");
    let allowed = response.headers().contains_key("access-control-allow-origin");
    assert!(allowed, "no origin equals no origin");
}

#[test]
fn p3_a_body_that_is_not_kept_is_said_to_be_missing() {
    let map = headers(&[
        ("content-type", b"application/pdf"),
        ("content-encoding", b"gzip"),
        ("etag", b"1"),
        ("content-digest", b"x"),
    ]);
    let lists = ReplayHeaders::default();
    let outcome = store(StatusCode::OK, &map, Kept::Omitted, None, &lists);
    let response = restore(&outcome, None).expect("readable");
    assert_eq!(
        names(&response),
        [("content-type", &b"application/pdf"[..]), ("idempotency-body", b"omitted")]
    );
    assert!(response.body().is_empty());
}

#[test]
fn x6_headers_beyond_the_limit_are_not_kept() {
    let long = vec![b'x'; MAX_HEADERS];
    let response = {
        let map = headers(&[("first", b"1"), ("long", &long), ("last", b"1")]);
        let body = Bytes::new();
        let lists = ReplayHeaders::default();
        let outcome = store(StatusCode::OK, &map, Kept::Body(&body), None, &lists);
        restore(&outcome, None).expect("readable")
    };
    assert_eq!(names(&response), [("first", &b"1"[..]), ("last", b"1")]);
}

#[test]
fn p1_the_stored_form_is_pinned() {
    let map = headers(&[("location", b"/1")]);
    let body = Bytes::from_static(b"{}");
    let origin = HeaderValue::from_static("https://a");
    let lists = ReplayHeaders::default();
    let outcome = store(StatusCode::CREATED, &map, Kept::Body(&body), Some(&origin), &lists);
    let golden = b"\x01\x00\xc9\x00\x09\x00https://a\x01\x00\x08\x00location\x02\x00\x00\x00/1{}";
    assert_eq!(&outcome.bytes()[..], golden);
}

proptest! {
    #[test]
    fn b107_any_bytes_come_back(body in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let kept = Bytes::from(body);
        let lists = ReplayHeaders::default();
        let outcome = store(StatusCode::OK, &HeaderMap::new(), Kept::Body(&kept), None, &lists);
        prop_assert_eq!(restore(&outcome, None).expect("readable").into_body(), kept);
    }

    #[test]
    fn x3_b136_damaged_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = restore(&Outcome::new(bytes), None);
    }

    #[test]
    fn x3_b136_a_cut_head_is_unreadable(cut in 0usize..30) {
        let map = headers(&[("location", b"/1")]);
        let body = Bytes::new();
        let lists = ReplayHeaders::default();
        let outcome = store(StatusCode::OK, &map, Kept::Body(&body), None, &lists);
        let length = outcome.bytes().len();
        prop_assume!(cut < length);
        prop_assert!(restore(&Outcome::new(outcome.bytes().slice(..cut)), None).is_err());
    }
}

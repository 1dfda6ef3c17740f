use super::*;
use http::Request;

const PEER: &str = "192.0.2.7:4711";

/// The head that the application gets for these fields, as sorted lines.
fn through(version: Version, fields: &[(&str, &str)]) -> Vec<String> {
    let mut request = Request::builder().version(version).uri("/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    let authority = HeaderValue::from_static("app:3000");
    super::request(&mut parts, Some(PEER.parse().unwrap()), &authority).unwrap();
    lines(&parts.headers)
}

fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    lines.sort();
    lines
}

fn added(host: &str) -> Vec<String> {
    let quoted = if host.contains(':') { format!("\"{host}\"") } else { host.to_owned() };
    vec![
        format!("forwarded: for=192.0.2.7;host={quoted};proto=http"),
        format!("host: {host}"),
        "via: 1.1 oncekey".to_owned(),
        "x-forwarded-for: 192.0.2.7".to_owned(),
        format!("x-forwarded-host: {host}"),
        "x-forwarded-proto: http".to_owned(),
    ]
}

#[test]
fn h_fields_of_one_connection_do_not_reach_the_application() {
    let seen = through(
        Version::HTTP_11,
        &[
            ("host", "shop"),
            ("connection", "close, X-Mine"),
            ("connection", "x-other"),
            ("x-mine", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic c2VjcmV0"),
            ("te", "gzip;q=0.5"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("upgrade", "websocket"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("expect", "100-continue"),
        ],
    );
    assert_eq!(seen, added("shop"));
}

#[test]
fn h_connection_cannot_name_away_what_the_exchange_needs() {
    let seen = through(
        Version::HTTP_11,
        &[
            ("host", "shop"),
            ("connection", "host, content-length, idempotency-record, Idempotency-Key"),
            ("content-length", "0"),
            ("idempotency-key", "k"),
            ("idempotency-record", "ab"),
        ],
    );
    for kept in ["host: shop", "content-length: 0", "idempotency-key: k", "idempotency-record: ab"]
    {
        assert!(seen.iter().any(|line| line == kept), "{kept} is gone: {seen:?}");
    }
}

#[test]
fn h_te_passes_trailers_and_nothing_else() {
    let seen = through(Version::HTTP_11, &[("host", "shop"), ("te", "gzip, Trailers;q=1")]);
    assert!(!seen.iter().any(|line| line.contains("gzip")));
    let seen = through(Version::HTTP_11, &[("host", "shop"), ("te", "gzip, Trailers")]);
    assert!(seen.contains(&"te: trailers".to_owned()));
    assert!(seen.contains(&"connection: te".to_owned()));
}

#[test]
fn h_forwarded_fields_are_added_behind_those_that_came() {
    let seen = through(
        Version::HTTP_11,
        &[
            ("host", "shop:8080"),
            ("x-forwarded-for", "203.0.113.1"),
            ("x-forwarded-for", "203.0.113.2"),
            ("forwarded", "for=203.0.113.1;proto=https"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.example"),
            ("via", "1.1 edge"),
        ],
    );
    let expected = [
        "forwarded: for=203.0.113.1;proto=https, for=192.0.2.7;host=\"shop:8080\";proto=http",
        "host: shop:8080",
        "via: 1.1 edge, 1.1 oncekey",
        "x-forwarded-for: 203.0.113.1, 203.0.113.2, 192.0.2.7",
        "x-forwarded-host: shop.example",
        "x-forwarded-proto: https",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn h_what_is_no_host_is_refused_and_so_cannot_break_out_of_the_forwarded_entry() {
    for host in ["a\";for=evil", "a,for=b", "a b", "u@a", "a/b", "a\\b"] {
        let request = Request::builder().uri("/").header("host", host);
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let authority = HeaderValue::from_static("app:3000");
        let refused = super::request(&mut parts, Some(PEER.parse().unwrap()), &authority);
        assert_eq!(refused, Err(StatusCode::BAD_REQUEST), "{host}");
    }
    for host in ["a.example", "a_b:80", "[::1]:8080", "127.0.0.1", ""] {
        let seen = through(Version::HTTP_11, &[("host", host)]);
        assert!(seen.contains(&format!("host: {host}")), "{seen:?}");
    }
}

#[test]
fn h_cookie_crumbs_are_joined() {
    let seen = through(Version::HTTP_2, &[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")]);
    assert!(seen.contains(&"cookie: a=1; b=2; c=3".to_owned()));
    assert!(seen.contains(&"via: 2.0 oncekey".to_owned()));
    assert!(seen.contains(&"host: app:3000".to_owned()));
}

#[test]
fn h_a_request_has_one_host() {
    let refused = |fields: &[&str]| {
        let mut request = Request::builder().uri("/");
        for value in fields {
            request = request.header("host", *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        super::request(&mut parts, None, &HeaderValue::from_static("app")).err()
    };
    assert_eq!(refused(&[]), Some(StatusCode::BAD_REQUEST));
    assert_eq!(refused(&["a", "b"]), Some(StatusCode::BAD_REQUEST));
    assert_eq!(refused(&["a"]), None);
}

#[test]
fn h_the_request_target_decides_over_the_host_field() {
    let request = Request::builder().uri("http://real/path?q=1").header("host", "other");
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    super::request(&mut parts, None, &HeaderValue::from_static("app")).unwrap();
    assert_eq!(parts.uri, "/path?q=1");
    assert_eq!(parts.headers[HOST], "real");
}

#[test]
fn h_an_absolute_form_without_a_path_is_sent_as_a_slash() {
    for (target, sent) in [
        ("http://b.example", "/"),
        ("http://b.example/", "/"),
        ("http://b.example#part", "/"),
        ("http://b.example?a=1", "/?a=1"),
        ("http://b.example/pay?a=1#part", "/pay?a=1"),
        ("b.example", "/"),
    ] {
        let request = Request::builder().uri(target).header(HOST, "a.example");
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let authority = HeaderValue::from_static("app:3000");
        super::request(&mut parts, Some(PEER.parse().unwrap()), &authority).unwrap();
        assert_eq!(parts.uri.to_string(), sent, "{target}");
    }
}

fn back(status: u16, fields: &[(&str, &str)]) -> (Vec<String>, Option<Duration>) {
    let mut response = http::Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    let (mut parts, ()) = response.body(()).unwrap().into_parts();
    let keep = answer(&mut parts);
    (lines(&parts.headers), keep)
}

#[test]
fn h_fields_of_one_connection_do_not_reach_the_client() {
    let (seen, keep) = back(
        200,
        &[
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5, max=100"),
            ("proxy-authenticate", "Basic"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "h2c"),
            ("content-type", "text/plain"),
        ],
    );
    assert_eq!(seen, ["content-type: text/plain"]);
    assert_eq!(keep, Some(Duration::from_secs(4)));
}

#[test]
fn o4_a_connection_is_kept_a_second_less_than_the_application_says() {
    let keep = |value: &str| back(200, &[("keep-alive", value)]).1;
    assert_eq!(keep("timeout=72"), Some(Duration::from_secs(71)));
    assert_eq!(keep("max=5, Timeout = \"2\""), Some(Duration::from_secs(1)));
    assert_eq!(keep("timeout=1"), Some(Duration::ZERO));
    assert_eq!(keep("timeout=0"), Some(Duration::ZERO));
    assert_eq!(keep("timeout=99999999"), Some(Duration::from_secs(LONGEST_KEPT - 1)));
    assert_eq!(keep("max=5"), None);
    assert_eq!(keep("timeout=soon"), None);
}

#[test]
fn p4_no_content_has_no_length() {
    assert!(back(204, &[("content-length", "0")]).0.is_empty());
    assert!(back(304, &[("content-length", "7")]).0.is_empty());
    assert_eq!(back(200, &[("content-length", "7")]).0, ["content-length: 7"]);
}

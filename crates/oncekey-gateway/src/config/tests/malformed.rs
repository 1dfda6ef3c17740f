//! Configurations that are refused, each with the line and the words that say why.

use super::super::{Code, Severity};
use super::refused;

/// Text, line of the error, words of message or hint.
type Row = (&'static str, usize, &'static str);

/// Every row is refused with exactly one error.
fn each_is_refused(rows: &[Row]) {
    for (text, line, words) in rows {
        let rejected = refused(text);
        let errors: Vec<_> =
            rejected.findings.iter().filter(|found| found.severity == Severity::Error).collect();
        assert_eq!(errors.len(), 1, "one mistake, one error:\n{text}\n{errors:#?}");
        let found = errors[0].to_string();
        assert!(found.contains(words), "{words:?} is not in:\n{found}\n--- for\n{text}");
        let place = errors[0].place.as_ref().expect("an error has a place");
        assert_eq!(place.line, *line, "{found}\n--- for\n{text}");
        assert!(found.starts_with(&format!("oncekey.toml:{line}:")), "{found}");
    }
}

#[test]
fn a3_unknown_fields_are_refused_with_what_was_meant() {
    each_is_refused(&[
        ("[server]\nlisen = \"127.0.0.1:80\"", 2, "did you mean `listen`?"),
        ("[sever]\nlisten = \"127.0.0.1:80\"", 1, "did you mean `server`?"),
        ("[server]\nlease = \"30s\"", 2, "it belongs in [defaults] or [[route]]"),
        ("[defaults]\nnamespace = \"x\"", 2, "before the first [section]"),
        ("[admin]\nfrobnicate = 1", 2, "known here: listen"),
        ("frobnicate = 1", 1, "at the top of the file"),
        ("[defaults]\nrequire-key = true", 2, "did you mean `require_key`?"),
        ("[[route]]\nmatch = \"POST /a\"\nretension = \"1h\"", 3, "did you mean `retention`?"),
        ("[defaults.fingerprint]\nmod = \"json\"", 2, "did you mean `mode`?"),
        ("[defaults]\nin_progress = { wiat = \"5s\" }", 2, "did you mean `wait`?"),
    ]);
}

#[test]
fn a3_syntax_errors_name_their_line() {
    each_is_refused(&[
        ("[server\nlisten = \"a\"", 1, "this is not TOML"),
        ("\n\nlisten = ", 3, "this is not TOML"),
        ("[a]\nb = 1\nb = 2", 3, "this is not TOML"),
    ]);
}

#[test]
fn t4_bad_durations_are_refused() {
    each_is_refused(&[
        ("[defaults]\nretention = \"0s\"", 2, "zero"),
        ("[defaults]\nretention = \"-5m\"", 2, "negative"),
        ("[defaults]\nretention = -5", 2, "negative"),
        ("[defaults]\nretention = 30", 2, "write \"30s\" or \"30ms\""),
        ("[defaults]\nretention = \"30\"", 2, "a unit is missing"),
        ("[defaults]\nretention = \"1.5h\"", 2, "not a duration"),
        ("[defaults]\nretention = \"soon\"", 2, "a number is missing"),
        ("[defaults]\nretention = \"3 fortnights\"", 2, "not a duration"),
        ("[defaults]\nretention = \"11000d\"", 2, "longer than ten years"),
        ("[defaults]\nretention = \"99999999999999999999h\"", 2, "longer than ten years"),
        ("[defaults]\nretention = \"\"", 2, "it is empty"),
        ("[defaults]\nretention = true", 2, "this is true or false"),
        ("[defaults]\nretention = \"10ms\"", 2, "out of range"),
        ("[defaults]\nlease = \"500ms\"", 2, "from \"1s\""),
        ("[defaults]\nlease = \"2h\"\nmax_run = \"3h\"", 2, "out of range"),
        ("[defaults]\ntombstone = \"0s\"", 2, "zero"),
        ("[defaults]\nin_progress = { wait = \"0s\" }", 2, "zero"),
        ("[upstream]\ntimeout = \"0ms\"", 2, "zero"),
        ("[server]\ndrain_delay = \"-1s\"", 2, "negative"),
        ("[server]\ndrain_timeout = \"0s\"", 2, "zero"),
    ]);
}

#[test]
fn a3_values_that_do_not_fit_are_refused() {
    each_is_refused(&[
        ("[server]\nlisten = \":8080\"", 2, "write \"127.0.0.1:8080\""),
        ("[server]\nlisten = \"localhost:8080\"", 2, "write \"127.0.0.1:8080\""),
        ("[server]\nlisten = 8080", 2, "this is an integer"),
        ("[server]\nmax_header_bytes = 16", 2, "out of range"),
        ("[server]\nmax_header_bytes = \"many\"", 2, "is not a size"),
        ("[defaults]\nmax_request_body = 0", 2, "the size is zero"),
        ("[defaults]\nmax_request_body = -1", 2, "is not a size"),
        ("[defaults]\nmax_response_body = \"16MiB\"", 2, "15MiB"),
        ("[upstream]\nurl = \"https://shop.example\"", 2, "https upstreams are not in this"),
        ("[upstream]\nurl = \"127.0.0.1:3000\"", 2, "write \"http://127.0.0.1:3000\""),
        ("[upstream]\nurl = \"http://127.0.0.1:3000/api\"", 2, "it has a path"),
        ("[upstream]\nurl = \"http://me:secret@host\"", 2, "a user name or a password"),
        ("[upstream]\nurl = \"ftp://host\"", 2, "its scheme is not http"),
        ("[upstream]\nmax_idle = -1", 2, "not a number of 0 or more"),
        ("[store]\nkind = \"embeded\"", 2, "did you mean \"embedded\"?"),
        ("[store]\npath = \"\"", 2, "is not a path"),
        ("namespace = \"a/b\"", 1, "is not a name"),
        ("namespace = \"\"", 1, "is not a name"),
        ("[log]\nlevel = \"warning\"", 2, "did you mean \"warn\"?"),
        ("[problem]\ntype_base = \"problems/\"", 2, "an absolute URL"),
        ("[cors]\norigins = [\"https://shop.example/\"]", 2, "is not an origin"),
        ("[cors]\norigins = [\"shop.example\"]", 2, "is not an origin"),
        ("[tenant]\nfrom = \"X-Tenant\"", 2, "is not a tenant source"),
        ("[tenant]\ntrusted_peers = [\"10.0.0.1/8\"]", 2, "bits set beyond its prefix"),
        ("[tenant]\ntrusted_peers = [\"10.0.0.0/33\"]", 2, "is not a network"),
        ("[principal]\nheaders = [\"X Api Key\"]", 2, "is not a header name"),
        ("[principal]\ncookies = [\"a=b\"]", 2, "is not the name of a cookie"),
        ("[defaults]\nmode = \"on\"", 2, "is not one of \"protect\""),
        ("[defaults]\nmin_key_length = 0", 2, "out of range"),
        ("[defaults]\nmin_key_length = 256", 2, "out of range"),
        ("[defaults]\nrequire_key = \"yes\"", 2, "true or false belongs here"),
        ("[defaults]\nin_progress = \"queue\"", 2, "{ wait = \"5s\" } or \"reject\""),
        ("[defaults]\noperation = \"a b\"", 2, "is not a name"),
        ("[defaults]\nprofile = \"payments\"", 2, "did you mean \"payment\"?"),
        ("[defaults]\nstatus = { \"999\" = \"keep\" }", 2, "is not a final status"),
        ("[defaults]\nstatus = { \"1xx\" = \"keep\" }", 2, "is not a final status"),
        ("[defaults]\nstatus = { \"409\" = \"drop\" }", 2, "is not one of \"keep\""),
        ("[defaults]\nmethods = [\"POST\", \"GET\"]", 2, "`GET` is not one of \"POST\""),
        ("[defaults]\nmethods = [\"POST\", \"POST\"]", 2, "stands twice"),
        ("[defaults]\nmethods = \"POST\"", 2, "write [\"POST\"]"),
        ("[defaults]\nmethods = 5", 2, "a list belongs here"),
        ("[defaults]\nmethods = { a = 1 }", 2, "expected a list"),
        ("[[route]]\nmatch = \"POST /\"\nmod = \"off\"", 3, "in [[route]]"),
        ("server = 5", 1, "invalid type"),
        ("route = \"POST /a\"", 1, "invalid type"),
    ]);
}

#[test]
fn k1_key_sources_that_cannot_be_one_are_refused() {
    each_is_refused(&[
        ("[defaults]\nkey = []", 2, "no key source is left"),
        ("[defaults]\nkey = [\"Idempotency-Key\"]", 2, "is not a key source"),
        ("[defaults]\nkey = [\"body:id\"]", 2, "does not begin with `/`"),
        ("[defaults]\nkey = [\"body:/a~2\"]", 2, "a `~` is not followed by 0 or 1"),
        ("[defaults]\nkey = [\"header:\"]", 2, "is not a header name"),
        ("[defaults]\nkey = [\"header:Authorization\"]", 2, "the same for many operations"),
        ("[defaults]\nkey = [\"header:Idempotency-Record\"]", 2, "removed from what clients send"),
    ]);
}

#[test]
fn b95_a_tracing_header_cannot_be_the_key() {
    each_is_refused(&[
        ("[defaults]\nkey = [\"header:X-Request-Id\"]", 2, "tracing gives each attempt"),
        ("[defaults]\nkey = [\"header:traceparent\"]", 2, "tracing gives each attempt"),
        ("[defaults]\nkey = [\"header:X-CORRELATION-ID\"]", 2, "tracing gives each attempt"),
    ]);
}

#[test]
fn a3_contradictions_are_refused() {
    const PAY: &str = "profile = \"payment\"";
    let payment = |line: &str| format!("[defaults]\n{PAY}\n{line}");
    each_is_refused(&[
        ("[tenant]\nfrom = \"header:X-Tenant-Id\"", 2, "trusted from nobody"),
        ("[tenant]\nfrom = \"header:X-T\"\ntrusted_peers = []", 2, "trusted from nobody"),
        (
            "[tenant]\nfrom = \"header:X-T\"\ntrusted_peers = [\"::1\"]\n\
             [defaults]\nkey = [\"header:X-T\"]",
            5,
            "both the key and the tenant",
        ),
        ("[admin]\nlisten = \"127.0.0.1:8080\"", 2, "both listen on port 8080"),
        ("[upstream]\nconnect_timeout = \"1m\"", 2, "longer than timeout"),
        ("[cors]\norigins = [\"*\", \"https://a.example\"]", 2, "already is every origin"),
        ("[principal]\nheaders = [\"DPoP\"]", 2, "each request has another"),
        ("[defaults]\nlease = \"10m\"", 2, "longer than max_run (5m)"),
        ("[defaults]\nin_progress = { wait = \"10m\" }", 2, "would wait 10m"),
        ("[defaults]\nmax_key_age = \"48h\"", 2, "longer than the retention (24h)"),
        ("[defaults]\nuuid_only = true\nmin_key_length = 40", 3, "refuse every key"),
        ("[defaults]\nfingerprint = { exclude = [\"/a\"] }", 2, "raw bytes"),
        (
            "[defaults.fingerprint]\nmode = \"json\"\nexclude = [\"/a\"]\ninclude = [\"/b\"]",
            3,
            "exclude each other",
        ),
        ("[defaults]\nreplay = { allow = [\"ETag\"], deny = [\"etag\"] }", 2, "allowed and denied"),
        ("[defaults]\nreplay = { allow = [\"Connection\"] }", 2, "never replayed"),
        ("[defaults]\nmethods = []", 2, "no method is left"),
        (&payment("require_key = false").leak()[..], 3, "requires a key"),
        (&payment("status = { \"5xx\" = \"retry\" }").leak()[..], 3, "every 5xx unknown"),
        (&payment("insecure_pass_through = true").leak()[..], 3, "never runs unprotected"),
    ]);
}

#[test]
fn f3_headers_that_never_count_in_a_fingerprint_are_refused() {
    for name in ["Cookie", "Authorization", "traceparent", "tracestate", "DATE", "User-Agent"] {
        let rejected = refused(&format!("[defaults]\nfingerprint = {{ headers = [\"{name}\"] }}"));
        let error = rejected.findings.iter().find(|found| found.severity == Severity::Error);
        let error = error.expect("there is one");
        assert!(error.message.contains("never counts in a fingerprint"), "{name}: {rejected}");
        assert!(error.hint.is_some(), "{name}: {rejected}");
    }
}

#[test]
fn x5_an_answer_that_no_store_takes_cannot_be_asked_for() {
    let longest = |text: &str| format!("[defaults]\nmax_response_body = \"{text}\"");
    assert_eq!(super::accepted(&longest("15MiB")).defaults.max_response_body, 15 << 20);
    refused(&longest("15361KiB"));
}

#[test]
fn x6_limits_that_nothing_keeps_are_no_settings() {
    each_is_refused(&[("[server]\nmax_buffered = \"1GiB\"", 2, "unknown field")]);
}

#[test]
fn x6_a_body_that_never_finds_room_cannot_be_asked_for() {
    each_is_refused(&[
        ("[server]\nmax_request_buffers = \"1KiB\"", 2, "out of range"),
        ("[defaults]\nmax_request_body = \"129MiB\"", 2, "more than half of max_request_buffers"),
        (
            "[server]\nmax_request_buffers = \"2MiB\"\n[defaults]\nmax_request_body = \"1025KiB\"",
            4,
            "more than half of max_request_buffers",
        ),
    ]);
    let fits = "[server]\nmax_request_buffers = \"2MiB\"\n[defaults]\nmax_request_body = \"1MiB\"";
    assert_eq!(super::accepted(fits).server.max_request_buffers, 2 << 20);
}

#[test]
fn a3_routes_that_cannot_work_are_refused() {
    each_is_refused(&[
        ("[[route]]\nretention = \"1h\"", 1, "the route has no `match`"),
        ("[[route]]\nmatch = \"/api/pay\"", 2, "is not a method and a path"),
        ("[[route]]\nmatch = \"POST api/pay\"", 2, "does not begin with `/`"),
        ("[[route]]\nmatch = \"PSOT /api\"", 2, "did you mean \"POST\"?"),
        ("[[route]]\nmatch = \"POST /a/{id}\"", 2, "it has a placeholder"),
        ("[[route]]\nmatch = \"POST /a/:id\"", 2, "it has a placeholder"),
        ("[[route]]\nmatch = \"POST /a/*/b\"", 2, "it has a placeholder"),
        ("[[route]]\nmatch = \"POST /a?b=1\"", 2, "it has a query"),
        ("[[route]]\nmatch = \"POST /a/../b\"", 2, "a dot segment"),
        ("[[route]]\nmatch = \"POST /%61\"", 2, "needs no escape"),
        ("[[route]]\nmatch = \"POST /a%2\"", 2, "two hex digits"),
        ("[[route]]\nmatch = \"POST /a\"\n[[route]]\nmatch = \"POST /a/\"", 4, "stands twice"),
        ("[[route]]\nmatch = \"* /a/*\"\n[[route]]\nmatch = \"POST /a/b\"", 4, "never reached"),
        ("[[route]]\nmatch = \"POST /*\"\n[[route]]\nmatch = \"POST /\"", 4, "never reached"),
        ("[[route]]\nmatch = \"POST /pay.v1.Pay/Charge\"", 2, "looks like a gRPC method"),
        ("[[route]]\nmatch = \"POST /pay.v1.Pay/*\"", 2, "looks like a gRPC method"),
    ]);
}

#[test]
fn k7_a_route_for_a_method_without_keys_is_refused() {
    each_is_refused(&[
        ("[[route]]\nmatch = \"GET /a\"", 2, "keys do not count on GET"),
        ("[[route]]\nmatch = \"OPTIONS /a\"", 2, "keys do not count on OPTIONS"),
        ("[[route]]\nmatch = \"PUT /a\"\nmethods = [\"POST\"]", 3, "not in its methods"),
    ]);
}

#[test]
fn a3_settings_of_a_later_version_are_refused_by_name() {
    let rows: &[Row] = &[
        ("[api]\nlisten = \"127.0.0.1:9091\"", 1, "[api] is not in this version"),
        ("[[inbox]]\npath = \"/w\"", 1, "[[inbox]] is not in this version"),
        ("[defaults]\non_unknown = \"reconcile\"", 2, "`reconcile` is not in this version"),
        ("[[route]]\nmatch = \"POST /a\"\non_unknown = \"reconcile\"", 3, "use \"hold\""),
        ("[[route]]\nmatch = \"POST /a\"\nreconcile = { url = \"x\" }", 3, "reconcile hook is"),
        ("[tenant]\nfrom = \"auth_request\"", 2, "auth_request is not in this version"),
        ("[tenant]\nfrom = \"jwt:sub\"", 2, "a tenant from a JWT is not in this version"),
        ("[principal]\njwt = \"x\"", 2, "a principal from a JWT is not in this version"),
        ("[store]\nkind = \"postgres\"", 2, "the Postgres store is not in this version"),
        ("[store]\nkind = \"redis\"", 2, "the Redis store is not in this version"),
        ("[alert]\nurl = \"http://x\"", 1, "[alert] is not in this version"),
        ("[server.tls]\ncert = \"x\"", 1, "TLS is not in this version"),
    ];
    each_is_refused(rows);
    for (text, ..) in rows {
        let rejected = refused(text);
        let error = rejected.findings.iter().find(|found| found.severity == Severity::Error);
        let error = error.expect("there is one");
        assert_eq!(error.code, Code::NotInVersion, "{text}");
        assert!(error.hint.is_some(), "{text}");
    }
}

#[test]
fn a3_the_sections_of_later_versions_are_all_that_is_wrong_with_the_full_sample() {
    let text = format!(
        "{}[api]\nlisten = \"127.0.0.1:9091\"\n[[inbox]]\npath = \"/webhooks/stripe\"\n",
        super::SAMPLE,
    );
    let rejected = refused(&text);
    let errors = rejected.findings.iter().filter(|found| found.severity == Severity::Error);
    assert!(errors.clone().all(|found| found.code == Code::NotInVersion), "{rejected}");
    assert_eq!(errors.count(), 2, "{rejected}");
}

#[test]
fn a3_every_mistake_is_told_at_once() {
    let rejected = refused(
        "namespace = 7\n\
         [server]\nlisen = 1\nheader_timeout = \"0s\"\n\
         [api]\n\
         [defaults]\nmethods = \"POST\"\nkey = \"x\"\nlease = \"1h\"\n\
         [[route]]\nmatch = \"GET /a\"\nstatus = { \"5zz\" = \"keep\", \"404\" = \"no\" }\n",
    );
    let errors = rejected.findings.iter().filter(|found| found.severity == Severity::Error);
    let lines: Vec<usize> =
        errors.map(|found| found.place.as_ref().map_or(0, |place| place.line)).collect();
    assert_eq!(lines, [1, 3, 4, 5, 7, 8, 9, 11, 12, 12], "{rejected}");
}

#[test]
fn a3_columns_count_characters() {
    let rejected =
        refused("[log]\nlevel = \"\u{e4}\u{e4}\"   # \u{e4}\n[cors]\norigins = [\"*\", 5]");
    let text = rejected.to_string();
    assert!(text.contains("oncekey.toml:2:9: error:"), "{text}");
    assert!(text.contains("oncekey.toml:4:17: error:"), "{text}");
}

#[test]
fn a3_many_warnings_never_crowd_out_an_error() {
    let mut text = String::new();
    for route in 0..900 {
        text.push_str(&format!("[[route]]\nmatch = \"POST /{route}\"\nretention = \"5s\"\n"));
    }
    text.push_str("lease = \"0s\"\n");
    let rejected = refused(&text);
    assert!(rejected.to_string().contains("oncekey.toml:2701:9: error: the duration is zero"));
    assert!(rejected.findings.len() < 700);
}

#[test]
fn a3_deep_nesting_is_refused_and_nothing_worse() {
    for deep in ["[".repeat(100_000), format!("a = {}", "[".repeat(50_000)), "a.".repeat(50_000)] {
        refused(&deep);
    }
    refused(&format!("{}a = 1", "a.".repeat(2_000)));
}

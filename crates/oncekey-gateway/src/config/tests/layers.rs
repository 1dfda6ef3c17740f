//! How profile, defaults and route are laid over each other, and which route is asked.

use std::time::Duration;

use http::Method;

use super::super::{Config, Keep, KeyedMethod, Mode, OnUnknown, Profile, Settings};
use super::{SAMPLE, accepted};

const DAY: Duration = Duration::from_secs(86_400);

/// The settings of a request: those of the first route that matches, or the defaults.
fn settings_for<'a>(config: &'a Config, method: &Method, path: &str) -> &'a Settings {
    let route = config.routes.iter().find(|route| route.matches(method, path));
    route.map_or(&config.defaults, |route| &route.settings)
}

#[test]
fn a5_an_empty_file_is_all_defaults() {
    let config = accepted("");
    assert_eq!(config, Config::default());
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:9090");
    assert_eq!(config.namespace, "main");
    assert!(config.upstream_url().is_err());
}

#[test]
fn a5_the_sample_of_the_handbook_is_read() {
    let config = accepted(SAMPLE);
    let url = config.upstream_url().expect("the sample names it");
    assert_eq!((url.host(), url.port()), ("127.0.0.1", 3000));
    let pay = &config.routes[0];
    assert!(pay.matches(&Method::POST, "/api/pay"));
    assert_eq!(pay.to_string(), "POST /api/pay");
    assert_eq!(pay.settings.retention, Duration::from_secs(15 * 60));
    assert_eq!(pay.settings.key.len(), 2);
    assert_eq!(pay.settings.status.keep(409), Keep::Release);
    assert!(pay.settings.require_key);
    assert!(!config.defaults.require_key);
}

#[test]
fn o1_the_final_status_decides() {
    let table = Settings::default().status;
    for status in [200, 201, 204, 302, 400, 404, 409, 422] {
        assert_eq!(table.keep(status), Keep::Keep, "{status}");
    }
    for status in [401, 403, 408, 425, 429] {
        assert_eq!(table.keep(status), Keep::Release, "{status}");
    }
    for status in [500, 501, 503, 599] {
        assert_eq!(table.keep(status), Keep::Retry, "{status}");
    }
    for status in [502, 504, 520, 524, 99, 600, 999] {
        assert_eq!(table.keep(status), Keep::Unknown, "{status}");
    }
}

#[test]
fn o2_the_payment_profile_requires_keys_and_makes_5xx_unknown() {
    let config = accepted("[defaults]\nprofile = \"payment\"");
    let settings = &config.defaults;
    assert!(settings.require_key);
    assert_eq!(settings.tombstone, Some(30 * DAY));
    for status in 500..600 {
        assert_eq!(settings.status.keep(status), Keep::Unknown, "{status}");
    }
    assert_eq!(settings.status.keep(201), Keep::Keep);
    assert_eq!(settings.profile.reuse_status(), 422);
}

#[test]
fn h_the_stripe_profile_keeps_5xx_except_the_unknown_ones() {
    let config = accepted("[defaults]\nprofile = \"stripe\"");
    let settings = &config.defaults;
    assert_eq!(settings.profile.reuse_status(), 400);
    assert_eq!(settings.status.keep(500), Keep::Keep);
    assert_eq!(settings.status.keep(503), Keep::Keep);
    for status in [502, 504, 520, 524] {
        assert_eq!(settings.status.keep(status), Keep::Unknown, "{status}");
    }
}

#[test]
fn o2_a_single_status_beats_its_class() {
    let config = accepted("[defaults]\nstatus = { \"5xx\" = \"keep\", \"503\" = \"release\" }");
    let table = &config.defaults.status;
    assert_eq!(table.keep(500), Keep::Keep);
    assert_eq!(table.keep(503), Keep::Release);
    assert_eq!(table.keep(504), Keep::Unknown);
}

#[test]
fn a5_the_nearer_layer_wins() {
    let config = accepted(
        "[defaults]\nprofile = \"stripe\"\nrequire_key = false\nretention = \"2h\"\n\
         status = { \"503\" = \"release\" }\n\
         [[route]]\nmatch = \"POST /pay\"\nprofile = \"payment\"\n\
         [[route]]\nmatch = \"POST /own\"\nretention = \"3h\"\n\
         [[route]]\nmatch = \"POST /ietf\"\nprofile = \"ietf\"\n",
    );
    let of = |path| settings_for(&config, &Method::POST, path);
    // The route's profile wins over what [defaults] writes; the rest comes from [defaults].
    assert!(of("/pay").require_key);
    assert_eq!(of("/pay").status.keep(503), Keep::Unknown);
    assert_eq!(of("/pay").retention, Duration::from_secs(2 * 3600));
    // Without a profile of its own a route has that of [defaults].
    assert_eq!(of("/own").profile, Profile::Stripe);
    assert_eq!(of("/own").status.keep(500), Keep::Keep);
    assert_eq!(of("/own").retention, Duration::from_secs(3 * 3600));
    // With one, the profile of [defaults] leaves no trace.
    assert_eq!(of("/ietf").status.keep(500), Keep::Retry);
    assert_eq!(of("/ietf").status.keep(503), Keep::Release);
    // No route: the defaults.
    assert_eq!(of("/else"), &config.defaults);
}

#[test]
fn k7_a_route_that_names_a_method_means_its_keys() {
    let config = accepted(
        "[[route]]\nmatch = \"PUT /a\"\n[[route]]\nmatch = \"* /b\"\n\
         [[route]]\nmatch = \"DELETE /c\"\nmethods = [\"DELETE\", \"PUT\"]",
    );
    assert_eq!(config.routes[0].settings.methods, [KeyedMethod::Put]);
    assert_eq!(config.routes[1].settings.methods, [KeyedMethod::Post, KeyedMethod::Patch]);
    assert_eq!(config.routes[2].settings.methods, [KeyedMethod::Delete, KeyedMethod::Put]);
}

#[test]
fn a8_a_route_that_is_off_may_be_anything() {
    let config = accepted(
        "[[route]]\nmatch = \"GET /a\"\nmode = \"off\"\n\
         [[route]]\nmatch = \"POST /pay.v1.Pay/*\"\nmode = \"off\"",
    );
    assert_eq!(settings_for(&config, &Method::POST, "/pay.v1.Pay/Charge").mode, Mode::Off);
}

#[test]
fn a5_the_first_route_that_matches_wins() {
    let config = accepted(
        "[[route]]\nmatch = \"POST /a/b\"\nretention = \"1h\"\n\
         [[route]]\nmatch = \"POST /a/*\"\nretention = \"2h\"\n\
         [[route]]\nmatch = \"* /a/*\"\nretention = \"3h\"\n\
         [[route]]\nmatch = \"* /*\"\nretention = \"4h\"\n",
    );
    let hours = |method, path| settings_for(&config, &method, path).retention.as_secs() / 3600;
    assert_eq!(hours(Method::POST, "/a/b"), 1);
    assert_eq!(hours(Method::POST, "/a/b/"), 1);
    assert_eq!(hours(Method::POST, "/a/b/c"), 2);
    assert_eq!(hours(Method::PATCH, "/a/b"), 3);
    assert_eq!(hours(Method::POST, "/a"), 4);
    assert_eq!(hours(Method::POST, "/ab"), 4);
    assert_eq!(hours(Method::POST, "/"), 4);
}

#[test]
fn u1_retry_is_for_those_who_ask_for_it() {
    assert_eq!(accepted("").defaults.on_unknown, OnUnknown::Hold);
    let config = accepted("[defaults]\non_unknown = \"retry\"");
    assert_eq!(config.defaults.on_unknown, OnUnknown::Retry);
}

//! Who is calling (S4): a guessed key leaks nothing and runs nothing.

use super::{Gateway, ask, counting, is_problem, is_replay, is_run};

#[test]
fn s4_another_authorization_gets_403_and_learns_nothing() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    let by = |value| ask(gateway.address(), "/pay", &[("Authorization", value)]);
    is_run(&by("Bearer one"), 1);
    is_replay(&by("Bearer one"), 1);
    for other in [by("Bearer two"), by("bearer one"), ask(gateway.address(), "/pay", &[])] {
        is_problem(&other, 403, "other-principal");
        assert!(!other.headers.has("idempotency-status"), "{other:?}");
        let problem = other.json();
        assert!(problem.get("record").is_none() && problem.get("first").is_none(), "{problem}");
    }
    assert_eq!(upstream.count(), 1);
}

#[test]
fn s4_the_principal_is_asked_before_the_fingerprint() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    is_run(&ask(gateway.address(), "/pay", &[("Authorization", "Bearer one")]), 1);
    // Another caller with another body must not learn that the bodies differ (C3).
    is_problem(
        &ask(gateway.address(), "/pay?other", &[("Authorization", "Bearer two")]),
        403,
        "other-principal",
    );
}

#[test]
fn s4_without_credentials_all_callers_are_anonymous_and_one() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    is_run(&ask(gateway.address(), "/pay", &[("User-Agent", "a"), ("Cookie", "sid=1")]), 1);
    is_replay(&ask(gateway.address(), "/pay", &[("User-Agent", "b"), ("Cookie", "sid=2")]), 1);
    is_problem(&ask(gateway.address(), "/pay", &[("Authorization", "x")]), 403, "other-principal");
}

#[test]
fn s4_named_headers_and_cookies_tell_callers_apart() {
    let upstream = counting();
    let config = "[principal]\nheaders = [\"X-Api-Key\"]\ncookies = [\"sid\"]\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let by = |path: &str, headers: &[(&str, &str)]| ask(gateway.address(), path, headers);
    is_run(&by("/header", &[("X-Api-Key", "one")]), 1);
    is_replay(&by("/header", &[("X-Api-Key", "one")]), 1);
    is_problem(&by("/header", &[("X-Api-Key", "two")]), 403, "other-principal");
    is_problem(&by("/header", &[]), 403, "other-principal");

    is_run(&by("/cookie", &[("Cookie", "theme=dark; sid=1")]), 2);
    is_replay(&by("/cookie", &[("Cookie", "sid=1; theme=light")]), 2);
    is_problem(&by("/cookie", &[("Cookie", "sid=2; theme=dark")]), 403, "other-principal");
    is_problem(&by("/cookie", &[("Cookie", "SID=1")]), 403, "other-principal");
    // A value does not move from one source to another.
    is_problem(&by("/cookie", &[("X-Api-Key", "1")]), 403, "other-principal");
    assert_eq!(upstream.count(), 2);
}

#[test]
fn s4_the_same_caller_is_known_after_a_restart_with_the_kept_or_the_given_secret() {
    let upstream = counting();
    let caller = [("Authorization", "Bearer one")];
    let given = "0123456789abcdef0123456789abcdef";
    for (number, secret) in [None, Some(given)].into_iter().enumerate() {
        let gateway = Gateway::to(upstream.address());
        let mut gateway = match secret {
            Some(secret) => gateway.variable("ONCEKEY_SECRET", secret).start(),
            None => gateway.start(),
        };
        is_run(&ask(gateway.address(), "/pay", &caller), number + 1);
        gateway.kill();
        gateway.restart();
        is_replay(&ask(gateway.address(), "/pay", &caller), number + 1);
        let other = ask(gateway.address(), "/pay", &[("Authorization", "Bearer two")]);
        is_problem(&other, 403, "other-principal");
        assert!(!gateway.said().contains(given));
    }
}

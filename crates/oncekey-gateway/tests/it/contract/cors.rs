//! Browsers of other origins (P2).

use super::{Gateway, Request, Upstream, counting, keyed};
use crate::rig::Reply;

const SHOP: &str = "https://shop.example";
const OTHER: &str = "https://other.example";

fn exposes(reply: &Reply) -> bool {
    reply.headers.all("access-control-expose-headers").iter().any(|value| {
        let text = String::from_utf8_lossy(value).to_ascii_lowercase();
        ["idempotency-status", "idempotent-replayed", "idempotency-expires", "retry-after"]
            .iter()
            .all(|name| text.contains(name))
    })
}

#[test]
fn p2_our_own_answers_are_readable_for_the_origins_that_are_named() {
    let upstream = counting();
    let config = format!("[cors]\norigins = [\"{SHOP}\", \"http://localhost:5173\"]\n");
    let gateway = Gateway::to(upstream.address()).config(&config).start();
    let send = |key: &str, origin: Option<&str>| {
        let request = keyed("/pay", key);
        let request = origin.into_iter().fold(request, |all, origin| all.header("Origin", origin));
        request.reply(gateway.address())
    };
    for origin in [SHOP, "http://localhost:5173"] {
        let refused = send("\"", Some(origin));
        assert_eq!(refused.status, 400);
        assert_eq!(refused.headers.all("access-control-allow-origin"), [origin.as_bytes()]);
        assert!(refused.header("vary").contains("Origin"), "{refused:?}");
        assert!(exposes(&refused), "{refused:?}");
    }
    for origin in [Some(OTHER), Some("https://shop.example.evil"), Some("null"), None] {
        let refused = send("\"", origin);
        assert!(!refused.headers.has("access-control-allow-origin"), "{refused:?}");
        assert!(!refused.headers.has("access-control-expose-headers"), "{refused:?}");
    }
    // A replay is ours too; its first answer was the application's, which allowed nobody.
    let first = send("k", Some(SHOP));
    assert!(!first.headers.has("access-control-allow-origin") && exposes(&first), "{first:?}");
    let second = send("k", Some(SHOP));
    assert_eq!(second.headers.all("access-control-allow-origin"), [SHOP.as_bytes()]);
    assert!(second.replayed() && exposes(&second), "{second:?}");
}

#[test]
fn p2_a_star_names_every_origin() {
    let upstream = counting();
    let config = "[cors]\norigins = [\"*\"]\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let refused = keyed("/pay", "\"").header("Origin", OTHER).reply(gateway.address());
    let allowed = refused.header("access-control-allow-origin");
    assert!(allowed == OTHER || allowed == "*", "{refused:?}");
    assert!(exposes(&refused));
}

#[test]
fn p2_an_applications_preflight_allows_the_key_too() {
    let upstream = Upstream::start(|exchange| {
        let headers = match exchange.request.target.as_str() {
            "/lists" => vec![("Access-Control-Allow-Headers", "Content-Type, idempotency-key")],
            "/any" => vec![("Access-Control-Allow-Headers", "*")],
            "/none" => vec![],
            _ => vec![("Access-Control-Allow-Headers", "Content-Type")],
        };
        exchange.answer(204, &headers, b"")
    });
    let config = format!("[cors]\norigins = [\"{SHOP}\"]\n");
    let gateway = Gateway::to(upstream.address()).config(&config).start();
    let allowed = |path: &str, origin: &str| -> Vec<String> {
        let request = Request::new("OPTIONS", path)
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "idempotency-key");
        let reply = request.reply(gateway.address());
        let lines = reply.headers.all("access-control-allow-headers");
        lines.into_iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    };
    assert_eq!(allowed("/pay", SHOP), ["Content-Type", "Idempotency-Key"]);
    assert_eq!(allowed("/lists", SHOP), ["Content-Type, idempotency-key"]);
    assert_eq!(allowed("/any", SHOP), ["*"]);
    assert!(allowed("/none", SHOP).is_empty(), "the application allows nothing");
    assert_eq!(allowed("/pay", OTHER), ["Content-Type"]);
}

#[test]
fn p2_permission_is_replayed_to_the_first_origin_alone() {
    let upstream = Upstream::start(|exchange| {
        let origin = exchange.request.headers.text("origin").unwrap_or_default();
        let headers = [("Access-Control-Allow-Origin", origin.as_str()), ("X-Kept", "yes")];
        exchange.answer(201, &headers, b"done")
    });
    let gateway = Gateway::to(upstream.address()).start();
    let by = |origin| keyed("/pay", "k").header("Origin", origin).reply(gateway.address());
    assert_eq!(by(SHOP).header("access-control-allow-origin"), SHOP);
    let same = by(SHOP);
    assert_eq!((same.header("access-control-allow-origin"), same.replayed()), (SHOP.into(), true));
    let other = by(OTHER);
    assert!(other.replayed() && other.header("x-kept") == "yes");
    assert!(!other.headers.has("access-control-allow-origin"), "{other:?}");
}

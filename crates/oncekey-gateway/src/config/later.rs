//! Settings that are understood and not in this version.
//!
//! They are refused by name, each with what to write instead, and taken out before the file is
//! read, so that nobody takes them for a slip of the keyboard.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Code, Fault, Report};
use super::source::Span;

enum When {
    Present,
    Is(&'static str),
    Begins(&'static str),
}

struct Later {
    path: &'static [&'static str],
    when: When,
    what: &'static str,
    instead: &'static str,
}

const fn later(
    path: &'static [&'static str],
    when: When,
    what: &'static str,
    instead: &'static str,
) -> Later {
    Later { path, when, what, instead }
}

const TENANT: &str = "use \"shared\", \"host\", or \"header:X-Tenant-Id\" with trusted_peers";
const PRINCIPAL: &str = "the Authorization header is hashed; name others in [principal] headers";
const UNKNOWN: &str = "use \"hold\", or \"retry\" for a handler known to be idempotent";
const STORE: &str = "use \"embedded\" (one gateway, durable) or \"memory\"";
const TLS: &str = "end TLS in front of the gateway";
const ALERT: &str = "watch the gauge of unknown records at [admin] /metrics";

/// `*` in a path stands for each element of a list.
const LATER: &[Later] = &[
    later(&["api"], When::Present, "[api]", "remove it; clients use the HTTP port alone"),
    later(
        &["inbox"],
        When::Present,
        "[[inbox]]",
        "give its path a [[route]] with key = [\"body:/id\"]",
    ),
    later(&["alert"], When::Present, "[alert]", ALERT),
    later(&["alert_url"], When::Present, "`alert_url`", ALERT),
    later(&["reconcile"], When::Present, "[reconcile]", UNKNOWN),
    later(&["hook"], When::Present, "[hook]", UNKNOWN),
    later(&["tls"], When::Present, "[tls]", TLS),
    later(&["server", "tls"], When::Present, "TLS", TLS),
    later(&["upstream", "tls"], When::Present, "TLS to the upstream", "use http:// in `url`"),
    later(&["admin", "tokens"], When::Present, "named tokens", "remove it"),
    later(&["tenant", "from"], When::Begins("jwt:"), "a tenant from a JWT", TENANT),
    later(&["tenant", "from"], When::Is("auth_request"), "a tenant from auth_request", TENANT),
    later(&["tenant", "auth_request"], When::Present, "auth_request", TENANT),
    later(&["tenant", "jwt"], When::Present, "a tenant from a JWT", TENANT),
    later(&["auth_request"], When::Present, "[auth_request]", TENANT),
    later(&["jwt"], When::Present, "[jwt]", PRINCIPAL),
    later(&["principal", "from"], When::Present, "choosing the principal's source", PRINCIPAL),
    later(&["principal", "jwt"], When::Present, "a principal from a JWT", PRINCIPAL),
    later(&["principal", "auth_request"], When::Present, "auth_request", PRINCIPAL),
    later(&["store", "kind"], When::Is("postgres"), "the Postgres store", STORE),
    later(&["store", "kind"], When::Is("redis"), "the Redis store", STORE),
    later(&["store", "url"], When::Present, "a store on the network", STORE),
    later(&["defaults", "on_unknown"], When::Is("reconcile"), "`reconcile`", UNKNOWN),
    later(&["defaults", "reconcile"], When::Present, "the reconcile hook", UNKNOWN),
    later(&["defaults", "hook"], When::Present, "the reconcile hook", UNKNOWN),
    later(&["defaults", "alert"], When::Present, "alerts", ALERT),
    later(&["defaults", "alert_url"], When::Present, "alerts", ALERT),
    later(&["route", "*", "on_unknown"], When::Is("reconcile"), "`reconcile`", UNKNOWN),
    later(&["route", "*", "reconcile"], When::Present, "the reconcile hook", UNKNOWN),
    later(&["route", "*", "hook"], When::Present, "the reconcile hook", UNKNOWN),
    later(&["route", "*", "alert"], When::Present, "alerts", ALERT),
    later(&["route", "*", "alert_url"], When::Present, "alerts", ALERT),
];

/// Takes every such setting out of the tree, and reports it.
pub(crate) fn refuse(tree: &mut DeTable<'_>, report: &mut Report) {
    for rule in LATER {
        take(tree, rule.path, &mut |key, value| {
            let hit = match (&rule.when, value.get_ref()) {
                (When::Present, _) => true,
                (When::Is(word), DeValue::String(text)) => text == word,
                (When::Begins(start), DeValue::String(text)) => text.starts_with(start),
                _ => false,
            };
            if hit {
                let span = if matches!(rule.when, When::Present) { key } else { value.span() };
                let fault = Fault::new(format!("{} is not in this version", rule.what));
                report.error(Some(span), Code::NotInVersion, fault.hint(rule.instead));
            }
            hit
        });
    }
}

/// Finds what stands at `path` and removes it where `hit` says so.
fn take(
    table: &mut DeTable<'_>,
    path: &[&str],
    hit: &mut dyn FnMut(Span, &Spanned<DeValue<'_>>) -> bool,
) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        let found = table.get_key_value(*first).is_some_and(|(key, value)| hit(key.span(), value));
        if found {
            table.remove(*first);
        }
        return;
    }
    let Some(value) = table.get_mut(*first) else { return };
    match value.get_mut() {
        DeValue::Table(inner) => take(inner, rest, hit),
        DeValue::Array(list) if rest[0] == "*" => {
            for element in list.iter_mut() {
                if let DeValue::Table(inner) = element.get_mut() {
                    take(inner, &rest[1..], hit);
                }
            }
        }
        _ => {}
    }
}

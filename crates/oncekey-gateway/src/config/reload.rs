//! What a reload may not change (A5).
//!
//! A record's id is derived from namespace, tenant, operation and key. A change of where one of
//! them comes from makes every younger key new: a repeat would run again. That is refused while
//! running; a restart does it, and says so. Listen addresses and the store cannot change in a
//! running process.

use std::fmt;

use super::path::Match;
use super::settings::Settings;
use super::{Config, Route};

/// A change that only a restart can make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What changed: a field, and the route where it is one's.
    pub what: String,
    /// Whether keys younger than the retention are new after it.
    pub effect: Effect,
}

/// What a change does to the records that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Records are no longer found: a key that was used counts as new.
    KeysBecomeNew,
    /// Records are found, and their callers are not recognised: repeats get 403.
    CallersChange,
    /// Nothing happens to them.
    None,
}

/// Why a reload is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ReloadRefusal {
    /// Every change that needs a restart; never empty.
    pub changes: Vec<Change>,
}

impl fmt::Display for ReloadRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.changes.iter().map(|change| change.what.as_str()).collect();
        write!(f, "only a restart changes {}", names.join(", "))?;
        if self.changes.iter().any(|change| change.effect == Effect::KeysBecomeNew) {
            f.write_str("; keys used before it become new")?;
        }
        if self.changes.iter().any(|change| change.effect == Effect::CallersChange) {
            f.write_str("; callers from before it get 403 other-principal on a repeat")?;
        }
        Ok(())
    }
}

/// Compares a running configuration with a new one.
pub(crate) fn refusal(old: &Config, new: &Config) -> Option<ReloadRefusal> {
    let mut changes = Vec::new();
    let mut note = |changed: bool, what: String, effect: Effect| {
        let change = Change { what, effect };
        if changed && !changes.contains(&change) {
            changes.push(change);
        }
    };
    note(old.namespace != new.namespace, "namespace".into(), Effect::KeysBecomeNew);
    note(old.tenant != new.tenant, "[tenant]".into(), Effect::KeysBecomeNew);
    note(old.principal != new.principal, "[principal]".into(), Effect::CallersChange);
    note(old.server.listen != new.server.listen, "[server] listen".into(), Effect::None);
    note(old.admin.listen != new.admin.listen, "[admin] listen".into(), Effect::None);
    let moved = old.store.kind != new.store.kind || old.store.path != new.store.path;
    note(moved, "[store] kind or path".into(), Effect::KeysBecomeNew);
    let bound = old.store.max_entries != new.store.max_entries;
    note(bound, "[store] max_entries".into(), Effect::None);
    let room = old.store.max_bytes != new.store.max_bytes || old.store.reserve != new.store.reserve;
    note(room, "[store] max_bytes or reserve".into(), Effect::None);

    compare(&old.defaults, &new.defaults, "[defaults]", &mut note);
    // A route that comes or goes hands its requests to another one, or to the defaults: what counts
    // is who governs the same requests before and after.
    for route in old.routes.iter().chain(&new.routes) {
        let matches = matching(route);
        let label = format!("route \"{matches}\"");
        compare(governing(old, &matches), governing(new, &matches), &label, &mut note);
    }
    (!changes.is_empty()).then_some(ReloadRefusal { changes })
}

/// The sections with changes that a running process takes over in part or not at all.
pub(crate) fn at_next_start(old: &Config, new: &Config) -> Vec<&'static str> {
    let (before, after) = (&old.server, &new.server);
    let heads = before.header_timeout != after.header_timeout
        || before.max_header_bytes != after.max_header_bytes
        || before.max_request_buffers != after.max_request_buffers;
    let changed = [
        (heads, "[server]"),
        (old.upstream != new.upstream, "[upstream]"),
        (old.cors != new.cors, "[cors]"),
        (old.problem != new.problem, "[problem]"),
        (old.log != new.log, "[log]"),
    ];
    changed.into_iter().filter_map(|(changed, section)| changed.then_some(section)).collect()
}

fn compare(
    old: &Settings,
    new: &Settings,
    label: &str,
    note: &mut impl FnMut(bool, String, Effect),
) {
    let operation = old.operation != new.operation || old.authority != new.authority;
    note(operation, format!("`operation` of {label}"), Effect::KeysBecomeNew);
    let key = old.key != new.key;
    note(key, format!("`key` of {label}"), Effect::KeysBecomeNew);
}

fn governing<'a>(config: &'a Config, matches: &Match) -> &'a Settings {
    let covering = config.routes.iter().find(|route| matching(route).covers(matches));
    covering.map_or(&config.defaults, |route| &route.settings)
}

fn matching(route: &Route) -> Match {
    Match { method: route.method.clone(), path: route.path.clone() }
}

//! From fields to a configuration in which nothing is left open.

use std::time::Duration;

use super::diagnostic::{Code, Fault, Report};
use super::field::{Choice, Field};
use super::file::{ConfigFile, FingerprintFile, RouteFile, ServerFile, SettingsFile};
use super::lint;
use super::names::Name;
use super::net::{TypeBase, WebOrigin};
use super::path::Match;
use super::quantity::{Delay, Size};
use super::sections::{Server, Store, StorePath, Upstream};
use super::settings::{Fingerprint, FingerprintMode, KeyedMethod, Settings, StatusKey, Tombstone};
use super::{Config, Route};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
/// Every request is compared with the routes in turn.
const MOST_ROUTES: usize = 1000;

/// Settles everything; what is wrong goes to the report.
pub(crate) fn resolve(file: &ConfigFile, report: &mut Report) -> Config {
    let mut config = Config {
        server: server(&file.server, report),
        upstream: upstream(file, report),
        store: store(file, report),
        ..Config::default()
    };
    file.admin.listen.set(&mut config.admin.listen, report);
    file.tenant.from.set(&mut config.tenant.from, report);
    file.tenant.trusted_peers.set(&mut config.tenant.trusted_peers, report);
    file.principal.headers.set(&mut config.principal.headers, report);
    file.principal.cookies.set(&mut config.principal.cookies, report);
    let mut origins: Vec<WebOrigin> = Vec::new();
    file.cors.origins.set(&mut origins, report);
    config.cors.origins = origins.into_iter().map(|origin| origin.0).collect();
    if let Some(Name(namespace)) = file.namespace.get(report) {
        config.namespace = namespace;
    }
    if let Some(TypeBase(base)) = file.problem.type_base.get(report) {
        config.problem.type_base = base;
    }
    file.log.format.set(&mut config.log.format, report);
    file.log.level.set(&mut config.log.level, report);

    if let Some(profile) = file.defaults.profile.get(report) {
        config.defaults.preset(profile);
    }
    apply(&file.defaults, &mut config.defaults, report);
    lint::sections(file, &config, report);
    lint::settings(&lint::Layers::defaults(&file.defaults), &config.defaults, &config, report);
    if file.route.len() > MOST_ROUTES {
        let fault = Fault::new(format!("{} routes", file.route.len()))
            .hint(format!("at most {MOST_ROUTES}; a final /* matches many paths"));
        report.error(file.route.last().map(|route| route.span.clone()), Code::BadValue, fault);
        return config;
    }
    config.routes = routes(file, &config, report);
    config
}

fn server(file: &ServerFile, report: &mut Report) -> Server {
    let mut server = Server::default();
    file.listen.set(&mut server.listen, report);
    file.header_timeout.set_within(MS..=HOUR, &mut server.header_timeout, report);
    file.body_timeout.set_within(MS..=HOUR, &mut server.body_timeout, report);
    // Below 8 KiB the HTTP parser has no room to work in.
    size(&file.max_header_bytes, 8 * Size::KIB, Size::MIB, &mut server.max_header_bytes, report);
    let buffers = &mut server.max_request_buffers;
    size(&file.max_request_buffers, 16 * Size::KIB, Size::TIB, buffers, report);
    let mut delay = Delay(server.drain_delay);
    file.drain_delay.set_within(Delay(Duration::ZERO)..=Delay(HOUR), &mut delay, report);
    server.drain_delay = delay.0;
    file.drain_timeout.set_within(MS..=HOUR, &mut server.drain_timeout, report);
    server
}

fn upstream(file: &ConfigFile, report: &mut Report) -> Upstream {
    let file = &file.upstream;
    let mut upstream = Upstream { url: file.url.get(report), ..Upstream::default() };
    file.timeout.set_within(MS..=DAY, &mut upstream.timeout, report);
    // Connecting is a part of the whole: a shorter whole makes the default shorter.
    upstream.connect_timeout = upstream.connect_timeout.min(upstream.timeout);
    file.connect_timeout.set_within(MS..=HOUR, &mut upstream.connect_timeout, report);
    file.idle_timeout.set_within(MS..=HOUR, &mut upstream.idle_timeout, report);
    file.max_idle.set_within(0..=10_000, &mut upstream.max_idle, report);
    upstream
}

fn store(file: &ConfigFile, report: &mut Report) -> Store {
    let file = &file.store;
    let mut store = Store::default();
    file.kind.set(&mut store.kind, report);
    if let Some(StorePath(path)) = file.path.get(report) {
        store.path = path;
    }
    file.max_entries.set_within(1..=1 << 40, &mut store.max_entries, report);
    store.max_bytes = some_size(&file.max_bytes, Size::MIB, report);
    store.reserve = some_size(&file.reserve, 1, report);
    store
}

/// A size without a default of its own.
fn some_size(field: &Field<Size>, least: u64, report: &mut Report) -> Option<u64> {
    let mut bytes = 0;
    size(field, least, 1024 * Size::TIB, &mut bytes, report);
    (bytes > 0).then_some(bytes)
}

fn size(field: &Field<Size>, least: u64, most: u64, target: &mut u64, report: &mut Report) {
    let mut bytes = Size(*target);
    field.set_within(Size(least)..=Size(most), &mut bytes, report);
    *target = bytes.0;
}

/// Lays what a table writes out over what is there; its profile is the caller's matter.
fn apply(file: &SettingsFile, settings: &mut Settings, report: &mut Report) {
    file.mode.set(&mut settings.mode, report);
    file.key.set(&mut settings.key, report);
    file.key_syntax.set(&mut settings.key_syntax, report);
    file.require_key.set(&mut settings.require_key, report);
    let mut shortest = u64::from(settings.min_key_length);
    file.min_key_length.set_within(1..=255, &mut shortest, report);
    settings.min_key_length = u16::try_from(shortest).expect("the range above ends at 255");
    file.uuid_only.set(&mut settings.uuid_only, report);
    file.max_key_age.set(&mut settings.max_key_age, report);
    file.methods.set(&mut settings.methods, report);
    file.operation.set(&mut settings.operation, report);
    file.authority.set(&mut settings.authority, report);
    fingerprint(&file.fingerprint, &mut settings.fingerprint, report);
    // A retention or lease below a second is shorter than the retry it is there for.
    file.retention.set_within(SECOND..=super::quantity::LONGEST, &mut settings.retention, report);
    if let Some(Tombstone(kept)) = file.tombstone.get(report) {
        settings.tombstone = kept;
    }
    file.lease.set_within(SECOND..=HOUR, &mut settings.lease, report);
    file.max_run.set_within(SECOND..=DAY, &mut settings.max_run, report);
    file.in_progress.set(&mut settings.in_progress, report);
    file.on_unknown.set(&mut settings.on_unknown, report);
    for (key, keep) in &file.status.0 {
        match (StatusKey::parse(key.get_ref()), keep.get(report)) {
            (Ok(status), Some(keep)) => settings.status.set(status, keep),
            (Err(fault), _) => report.error(Some(key.span()), Code::BadValue, fault),
            (Ok(_), None) => {}
        }
    }
    file.replay.allow.set(&mut settings.replay.allow, report);
    file.replay.deny.set(&mut settings.replay.deny, report);
    file.body.set(&mut settings.body, report);
    size(&file.max_request_body, 1, Size::GIB, &mut settings.max_request_body, report);
    // An answer is stored in one piece; a store takes 16 MiB of it, and its headers need room.
    size(&file.max_response_body, 1, 15 * Size::MIB, &mut settings.max_response_body, report);
    file.insecure_pass_through.set(&mut settings.insecure_pass_through, report);
}

fn fingerprint(file: &FingerprintFile, fingerprint: &mut Fingerprint, report: &mut Report) {
    let mode: &mut FingerprintMode = &mut fingerprint.mode;
    file.mode.set(mode, report);
    file.exclude.set(&mut fingerprint.exclude, report);
    file.include.set(&mut fingerprint.include, report);
    file.headers.set(&mut fingerprint.headers, report);
    file.query.set(&mut fingerprint.query, report);
}

fn routes(file: &ConfigFile, config: &Config, report: &mut Report) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    let mut seen: Vec<(Match, &RouteFile)> = Vec::new();
    for written in &file.route {
        let settings = settings(written, &file.defaults, config, report);
        let Some(matches) = written.matches.get(report) else {
            if written.matches.span().is_none() {
                let fault = Fault::new("the route has no `match`")
                    .hint("match = \"POST /api/pay\", for example");
                report.error(Some(written.span.clone()), Code::Missing, fault);
            }
            continue;
        };
        lint::reachable(&matches, written, &seen, report);
        let layers = lint::Layers::route(written, &file.defaults);
        lint::route(&layers, &matches, &settings, report);
        lint::settings(&layers, &settings, config, report);
        let Match { method, path } = matches.clone();
        seen.push((matches, written));
        routes.push(Route { method, path, settings });
    }
    routes
}

/// The settings of a route, in the order that [`super::settings`] describes.
fn settings(
    route: &RouteFile,
    defaults: &SettingsFile,
    config: &Config,
    report: &mut Report,
) -> Settings {
    let mut settings = config.defaults.clone();
    if let Some(profile) = route.settings.profile.get(report) {
        settings = Settings::default();
        apply(defaults, &mut settings, report);
        settings.preset(profile);
    }
    let method = route.matches.get(report).and_then(|matches| matches.method);
    if route.settings.methods.span().is_none() {
        // A route that names a method means that its keys count.
        let named = KeyedMethod::WORDS
            .iter()
            .find(|(word, _)| method.as_ref().is_some_and(|method| method.as_str() == *word));
        if let Some((_, method)) = named {
            settings.methods = vec![*method];
        }
    }
    apply(&route.settings, &mut settings, report);
    settings
}

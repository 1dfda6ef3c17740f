//! The effective configuration, with every default filled in.
//!
//! It is a configuration again: reading it gives the same values. Secrets are never part of it.

use std::fmt::Write;

use toml::Value;

use super::Config;
use super::field::Setting;
use super::names::Name;
use super::net::{TypeBase, WebOrigin};
use super::path::Match;
use super::quantity::{Delay, Size};
use super::sections::StorePath;
use super::settings::{Settings, Tombstone};

/// Lines of TOML in the order in which people read them.
#[derive(Default)]
struct Page(String);

impl Page {
    fn section(&mut self, header: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        self.line(&format!("{gap}{header}"));
    }

    fn field(&mut self, name: &str, value: &impl Setting) {
        self.line(&format!("{name} = {}", value.write()));
    }

    fn list<T: Setting>(&mut self, name: &str, values: &[T]) {
        self.line(&format!("{name} = {}", list(values)));
    }

    fn line(&mut self, line: &str) {
        writeln!(self.0, "{line}").expect("a String takes everything");
    }
}

fn list<T: Setting>(values: &[T]) -> Value {
    Value::Array(values.iter().map(Setting::write).collect())
}

/// Writes it all.
pub(crate) fn text(config: &Config) -> String {
    let mut page = Page::default();
    page.field("namespace", &Name(config.namespace.clone()));
    sections(config, &mut page);
    page.section("[defaults]");
    settings(&config.defaults, &mut page);
    for route in &config.routes {
        page.section("[[route]]");
        let matches = Match { method: route.method.clone(), path: route.path.clone() };
        page.field("match", &matches);
        settings(&route.settings, &mut page);
    }
    page.0
}

fn sections(config: &Config, page: &mut Page) {
    let server = &config.server;
    page.section("[server]");
    page.field("listen", &server.listen);
    page.field("header_timeout", &server.header_timeout);
    page.field("body_timeout", &server.body_timeout);
    page.field("max_header_bytes", &Size(server.max_header_bytes));
    page.field("max_request_buffers", &Size(server.max_request_buffers));
    page.field("drain_delay", &Delay(server.drain_delay));
    page.field("drain_timeout", &server.drain_timeout);

    page.section("[admin]");
    page.field("listen", &config.admin.listen);

    let upstream = &config.upstream;
    page.section("[upstream]");
    if let Some(url) = &upstream.url {
        page.field("url", url);
    }
    page.field("timeout", &upstream.timeout);
    page.field("connect_timeout", &upstream.connect_timeout);
    page.field("idle_timeout", &upstream.idle_timeout);
    page.field("max_idle", &upstream.max_idle);

    page.section("[store]");
    page.field("kind", &config.store.kind);
    page.field("path", &StorePath(config.store.path.clone()));
    page.field("max_entries", &config.store.max_entries);
    if let Some(bytes) = config.store.max_bytes {
        page.field("max_bytes", &Size(bytes));
    }
    if let Some(bytes) = config.store.reserve {
        page.field("reserve", &Size(bytes));
    }

    page.section("[tenant]");
    page.field("from", &config.tenant.from);
    page.list("trusted_peers", &config.tenant.trusted_peers);

    page.section("[principal]");
    page.list("headers", &config.principal.headers);
    page.list("cookies", &config.principal.cookies);

    page.section("[cors]");
    let origins: Vec<WebOrigin> = config.cors.origins.iter().cloned().map(WebOrigin).collect();
    page.list("origins", &origins);

    page.section("[problem]");
    page.field("type_base", &TypeBase(config.problem.type_base.clone()));

    page.section("[log]");
    page.field("format", &config.log.format);
    page.field("level", &config.log.level);
}

fn settings(settings: &Settings, page: &mut Page) {
    page.field("profile", &settings.profile);
    page.field("mode", &settings.mode);
    page.list("key", &settings.key);
    page.field("key_syntax", &settings.key_syntax);
    page.field("require_key", &settings.require_key);
    page.field("min_key_length", &u64::from(settings.min_key_length));
    page.field("uuid_only", &settings.uuid_only);
    page.field("max_key_age", &settings.max_key_age);
    page.list("methods", &settings.methods);
    page.field("operation", &settings.operation);
    page.field("authority", &settings.authority);
    let fingerprint = &settings.fingerprint;
    page.line(&format!(
        "fingerprint = {{ mode = {}, exclude = {}, include = {}, headers = {}, query = {} }}",
        fingerprint.mode.write(),
        list(&fingerprint.exclude),
        list(&fingerprint.include),
        list(&fingerprint.headers),
        fingerprint.query.write(),
    ));
    page.field("retention", &settings.retention);
    page.field("tombstone", &Tombstone(settings.tombstone));
    page.field("lease", &settings.lease);
    page.field("max_run", &settings.max_run);
    page.field("in_progress", &settings.in_progress);
    page.field("on_unknown", &settings.on_unknown);
    let statuses: Vec<String> = settings
        .status
        .0
        .iter()
        .map(|(key, keep)| format!("\"{key}\" = {}", keep.write()))
        .collect();
    page.line(&format!("status = {{ {} }}", statuses.join(", ")));
    page.line(&format!(
        "replay = {{ allow = {}, deny = {} }}",
        list(&settings.replay.allow),
        list(&settings.replay.deny),
    ));
    page.field("body", &settings.body);
    page.field("max_request_body", &Size(settings.max_request_body));
    page.field("max_response_body", &Size(settings.max_response_body));
    page.field("insecure_pass_through", &settings.insecure_pass_through);
}

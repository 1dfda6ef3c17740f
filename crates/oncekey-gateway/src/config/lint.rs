//! Settings that fit each for itself, and not together; and those that deserve a word.
//!
//! Errors depend on settled values alone, never on which table wrote them: so the effective
//! configuration, which writes everything out, is accepted exactly when its source is.

use std::net::IpAddr;

use std::time::Duration;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, DATE, USER_AGENT};

use super::Config;
use super::diagnostic::{Code, Fault, Report};
use super::field::Choice;
use super::file::{ConfigFile, RouteFile, SettingsFile};
use super::names::{KeySource, is_own, is_tracing};
use super::path::Match;
use super::quantity::{Size, duration_text, size_text};
use super::sections::{StoreKind, TenantFrom};
use super::settings::{
    FingerprintMode, InProgress, Keep, KeyedMethod, MaxKeyAge, Mode, OnUnknown, Profile,
    SAYS_UNKNOWN, Settings, StatusKey,
};
use super::source::Span;

/// Less than this an idle data folder may take: its journals are made in advance.
const LEAST_FOLDER: u64 = 256 * Size::MIB;

/// The tables that a route's settings come from, nearest first.
pub(crate) struct Layers<'a> {
    tables: Vec<&'a SettingsFile>,
    /// Where to point when no table wrote the setting.
    fallback: Option<Span>,
}

impl<'a> Layers<'a> {
    pub(crate) fn defaults(defaults: &'a SettingsFile) -> Self {
        Self { tables: vec![defaults], fallback: None }
    }

    pub(crate) fn route(route: &'a RouteFile, defaults: &'a SettingsFile) -> Self {
        let fallback = route.matches.span().or(Some(route.span.clone()));
        Self { tables: vec![&route.settings, defaults], fallback }
    }

    /// Where a setting was written.
    fn of(&self, field: impl Fn(&SettingsFile) -> Option<Span>) -> Option<Span> {
        self.tables.iter().find_map(|table| field(table)).or_else(|| self.fallback.clone())
    }

    fn status(&self, wanted: StatusKey) -> Option<Span> {
        self.of(|table| {
            let mut written = table.status.0.keys();
            let key = written.find(|key| StatusKey::parse(key.get_ref()) == Ok(wanted))?;
            Some(key.span())
        })
    }
}

fn contradiction(report: &mut Report, span: Option<Span>, message: impl Into<String>, hint: &str) {
    report.error(span, Code::Contradiction, Fault::new(message).hint(hint));
}

fn risk(report: &mut Report, span: Option<Span>, message: impl Into<String>, hint: &str) {
    report.warning(span, Fault::new(message).hint(hint));
}

/// Whether an upstream's host is the address that this gateway listens on.
fn leads_to(host: &str, listen: IpAddr) -> bool {
    let host = host.trim_matches(['[', ']']);
    let local = |ip: IpAddr| ip.is_loopback() && (listen.is_loopback() || listen.is_unspecified());
    match host.parse::<IpAddr>() {
        Ok(ip) => ip == listen || local(ip) && listen.is_unspecified(),
        Err(_) => host.eq_ignore_ascii_case("localhost") && local(IpAddr::from([127, 0, 0, 1])),
    }
}

/// Judges everything that is not a setting of a route.
pub(crate) fn sections(file: &ConfigFile, config: &Config, report: &mut Report) {
    let (server, admin) = (config.server.listen, config.admin.listen);
    if server.port() == admin.port() && server.port() != 0 {
        let same = server.ip() == admin.ip()
            || server.ip().is_unspecified()
            || admin.ip().is_unspecified();
        if same {
            let span = file.admin.listen.span().or(file.server.listen.span());
            let message = format!("clients and admin both listen on port {}", server.port());
            contradiction(report, span, message, "give [admin] a port of its own");
        }
    }
    if !admin.ip().is_loopback() {
        let message = format!("the admin listener is reachable from outside, on {admin}");
        risk(report, file.admin.listen.span(), message, "health and metrics ask for no token");
    }
    if config.upstream.connect_timeout > config.upstream.timeout {
        let span = file.upstream.connect_timeout.span().or(file.upstream.timeout.span());
        let message = format!(
            "connect_timeout ({}) is longer than timeout ({})",
            duration_text(config.upstream.connect_timeout),
            duration_text(config.upstream.timeout),
        );
        contradiction(report, span, message, "connecting is a part of the whole");
    }
    if let Some(url) = &config.upstream.url
        && url.port() == server.port()
        && leads_to(url.host(), server.ip())
    {
        let message = format!("the upstream {url} is this gateway itself");
        contradiction(report, file.upstream.url.span(), message, "name the application's address");
    }
    if config.upstream.url.is_none() && file.upstream.url.span().is_none() {
        let fault = Fault::new("no upstream is named").hint("`serve` will need --upstream URL");
        report.note(None, fault);
    }
    store(file, config, report);
    if config.cors.origins.len() > 1 && config.cors.origins.iter().any(|origin| origin == "*") {
        let hint = "leave \"*\" alone, or remove it";
        contradiction(report, file.cors.origins.span(), "`*` already is every origin", hint);
    }
    tenant(file, config, report);
    principal(file, config, report);
}

fn store(file: &ConfigFile, config: &Config, report: &mut Report) {
    if config.store.kind == StoreKind::Memory {
        let message = "the memory store forgets every key at a restart";
        risk(report, file.store.kind.span(), message, "use \"embedded\" where a repeat would hurt");
        if let Some(span) = file.store.path.span() {
            risk(report, Some(span), "the memory store uses no folder", "remove `path`");
        }
        if let Some(span) = file.store.reserve.span() {
            risk(report, Some(span), "the memory store uses no disk", "remove `reserve`");
        }
    }
    if let Some(bytes) = config.store.max_bytes
        && config.store.kind == StoreKind::Embedded
        && bytes < LEAST_FOLDER
    {
        let message = format!("max_bytes ({}) is what an idle folder takes", size_text(bytes));
        let hint = format!("at least \"{}\"", size_text(LEAST_FOLDER));
        contradiction(report, file.store.max_bytes.span(), message, &hint);
    }
}

fn tenant(file: &ConfigFile, config: &Config, report: &mut Report) {
    let tenant = &config.tenant;
    match &tenant.from {
        TenantFrom::Header(name) => {
            // A list that was written but did not fit has been reported already.
            if tenant.trusted_peers.is_empty() && file.tenant.trusted_peers.spans().is_empty() {
                let message = format!("the tenant header {name} is trusted from nobody");
                let hint = "name who sets it: trusted_peers = [\"10.0.0.0/8\"]";
                contradiction(report, file.tenant.from.span(), message, hint);
            }
            if is_tracing(name) || *name == AUTHORIZATION {
                let message = format!("{name} does not name a tenant");
                let hint = "use a header that your own proxy sets, such as X-Tenant-Id";
                contradiction(report, file.tenant.from.span(), message, hint);
            }
        }
        TenantFrom::Shared => {
            let fault = Fault::new("all requests share one tenant")
                .hint("two customers who choose the same key meet: the second gets 403 or 422");
            report.note(file.tenant.from.span(), fault);
        }
        TenantFrom::Host => {}
    }
    for (network, span) in tenant.trusted_peers.iter().zip(file.tenant.trusted_peers.spans()) {
        if network.is_everyone() {
            let message = format!("{network} trusts everyone to name any tenant");
            risk(report, span, message, "name the addresses of your own proxies");
        }
    }
    if !tenant.trusted_peers.is_empty() {
        let fault = Fault::new(
            "trusted_peers are believed about Idempotency-Record: a request that comes from one \
             with this header is protected elsewhere, and passes",
        )
        .hint("each of them must remove the header from what its own clients send");
        report.note(file.tenant.trusted_peers.span(), fault);
    }
}

fn principal(file: &ConfigFile, config: &Config, report: &mut Report) {
    for (name, span) in config.principal.headers.iter().zip(file.principal.headers.spans()) {
        let changing = is_tracing(name)
            || *name == DATE
            || ["dpop", "signature", "signature-input", "x-amz-date"].contains(&name.as_str());
        if changing || is_own(name) {
            let message = format!("{name} does not say who is calling: each request has another");
            contradiction(report, span, message, "a repeat would get 403 other-principal");
        }
    }
    let fault = Fault::new(
        "the Authorization header is part of who is calling: schemes that change it with every \
         request (Digest, DPoP, AWS SigV4) get 403 other-principal on a repeat",
    )
    .hint("they need another principal source; set mode = \"off\" on routes that use them");
    report.note(file.principal.headers.span(), fault);
}

/// A route that an earlier one always wins over will never be asked.
pub(crate) fn reachable(
    matches: &Match,
    route: &RouteFile,
    earlier: &[(Match, &RouteFile)],
    report: &mut Report,
) {
    let Some((winner, _)) = earlier.iter().find(|(earlier, _)| earlier.covers(matches)) else {
        return;
    };
    let (code, fault) = if winner == matches {
        (Code::Duplicate, Fault::new(format!("the route \"{matches}\" stands twice")))
    } else {
        let message = format!("never reached: \"{winner}\" above it matches all of \"{matches}\"");
        (Code::Unreachable, Fault::new(message))
    };
    report.error(route.matches.span(), code, fault.hint("the first match wins: put it first"));
}

/// Judges a route's match against its settings.
pub(crate) fn route(
    layers: &Layers<'_>,
    matches: &Match,
    settings: &Settings,
    report: &mut Report,
) {
    if settings.mode == Mode::Off {
        return;
    }
    let at_match = layers.fallback.clone();
    if let Some(method) = &matches.method {
        let named = |keyed: &KeyedMethod| keyed.word() == method.as_str();
        if !KeyedMethod::WORDS.iter().any(|(word, _)| *word == method.as_str()) {
            let message = format!("keys do not count on {method}");
            let hint = "remove the route, or set mode = \"off\"; keys are for POST, PATCH, PUT, \
                        DELETE";
            contradiction(report, at_match.clone(), message, hint);
        } else if !settings.methods.iter().any(named) {
            let span = layers.of(|table| table.methods.span());
            let message = format!("the route is for {method}, which is not in its methods");
            contradiction(report, span, message, "remove `methods`: the match says it");
        }
    }
    if looks_like_grpc(matches) {
        let message = "this looks like a gRPC method, and gRPC carries no idempotency keys";
        contradiction(report, at_match, message, "set mode = \"off\" on the route");
    }
}

/// `/package.Service/Method`, the only form gRPC has.
fn looks_like_grpc(matches: &Match) -> bool {
    let path = matches.path.to_string();
    let mut parts = path.split('/').skip(1);
    let (Some(service), Some(method), None) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let capital = |word: &str| word.starts_with(|first: char| first.is_ascii_uppercase());
    let Some((package, name)) = service.rsplit_once('.') else { return false };
    !package.is_empty() && capital(name) && (method == "*" || capital(method))
}

/// Judges the settings of a route, or of `[defaults]`.
pub(crate) fn settings(
    layers: &Layers<'_>,
    settings: &Settings,
    config: &Config,
    report: &mut Report,
) {
    if settings.mode == Mode::Off {
        return;
    }
    if settings.max_request_body > config.server.max_request_buffers / 2 {
        let span = layers.of(|table| table.max_request_body.span());
        let message = "max_request_body is more than half of max_request_buffers";
        let hint = "a body that large never finds room: raise [server] max_request_buffers";
        contradiction(report, span, message, hint);
    }
    keys(layers, settings, config, report);
    fingerprint(layers, settings, report);
    times(layers, settings, config, report);
    statuses(layers, settings, report);
    replay(layers, settings, report);
    payment(layers, settings, report);
    if settings.insecure_pass_through {
        let span = layers.of(|table| table.insecure_pass_through.span());
        let message = "while the store cannot be reached, requests run unprotected";
        risk(report, span, message, "a repeat in that time runs twice");
    }
}

fn keys(layers: &Layers<'_>, settings: &Settings, config: &Config, report: &mut Report) {
    const MOST_SOURCES: usize = 8;
    let span = layers.of(|table| table.key.span());
    if settings.key.is_empty() {
        let hint = "name a source, or set mode = \"off\"";
        contradiction(report, span.clone(), "no key source is left", hint);
    }
    if settings.key.len() > MOST_SOURCES {
        let message = format!("{} key sources", settings.key.len());
        contradiction(report, span.clone(), message, "at most 8");
    }
    if let TenantFrom::Header(name) = &config.tenant.from
        && settings.key.contains(&KeySource::Header(name.clone()))
    {
        let message = format!("{name} cannot be both the key and the tenant");
        contradiction(report, span, message, "take another header for one of them");
    }
    if settings.methods.is_empty() {
        let span = layers.of(|table| table.methods.span());
        contradiction(report, span, "no method is left", "name one, or set mode = \"off\"");
    }
    const UUID_LENGTH: u16 = 36;
    if settings.uuid_only && settings.min_key_length > UUID_LENGTH {
        let span = layers.of(|table| table.min_key_length.span());
        let message = "uuid_only and a min_key_length above 36 refuse every key";
        contradiction(report, span, message, "a UUID has 36 characters");
    }
    if let MaxKeyAge::Within(age) = settings.max_key_age
        && age > settings.retention
    {
        let span = layers.of(|table| table.max_key_age.span());
        let message = format!(
            "max_key_age ({}) is longer than the retention ({})",
            duration_text(age),
            settings.retention_text(),
        );
        let hint = "a key older than the retention would be taken for new; use \"retention\"";
        contradiction(report, span, message, hint);
    }
}

fn fingerprint(layers: &Layers<'_>, settings: &Settings, report: &mut Report) {
    let fingerprint = &settings.fingerprint;
    let (exclude, include) = (&fingerprint.exclude, &fingerprint.include);
    let exclude_span = || layers.of(|table| table.fingerprint.exclude.span());
    let include_span = || layers.of(|table| table.fingerprint.include.span());
    if !exclude.is_empty() && !include.is_empty() {
        let message = "`exclude` and `include` exclude each other";
        contradiction(report, exclude_span(), message, "keep the shorter list");
    }
    if fingerprint.mode == FingerprintMode::Raw && !(exclude.is_empty() && include.is_empty()) {
        let span = if exclude.is_empty() { include_span() } else { exclude_span() };
        let message = "pointers say nothing about raw bytes";
        contradiction(report, span, message, "set mode = \"json\" in `fingerprint`");
    }
    for name in &fingerprint.headers {
        let never = [AUTHORIZATION, COOKIE, DATE, USER_AGENT].contains(name);
        if never || is_tracing(name) || is_own(name) || name == "idempotency-key" {
            let span = layers.of(|table| table.fingerprint.headers.span());
            let message = format!("{name} never counts in a fingerprint");
            contradiction(
                report,
                span,
                message,
                "remove it: it may differ between two tries of a request",
            );
        }
    }
}

fn times(layers: &Layers<'_>, settings: &Settings, config: &Config, report: &mut Report) {
    const PATIENCE: Duration = Duration::from_secs(60);
    const BRIEF: Duration = Duration::from_secs(60);
    let timeout = config.upstream.timeout;
    let max_run_span = || layers.of(|table| table.max_run.span());
    if settings.lease > settings.max_run {
        let message = format!(
            "lease ({}) is longer than max_run ({})",
            duration_text(settings.lease),
            duration_text(settings.max_run),
        );
        let hint = "a claim is renewed until max_run, and ends a lease later";
        contradiction(report, layers.of(|table| table.lease.span()), message, hint);
    }
    if timeout > settings.max_run {
        let message = format!(
            "max_run ({}) ends before the upstream's timeout ({})",
            duration_text(settings.max_run),
            duration_text(timeout),
        );
        risk(report, max_run_span(), message, "raise max_run, or lower [upstream] timeout");
    }
    if let InProgress::Wait(wait) = settings.in_progress {
        let span = layers.of(|table| table.in_progress.span());
        if wait > settings.max_run {
            let message = format!(
                "a repeat would wait {} for a run of at most {}",
                duration_text(wait),
                duration_text(settings.max_run),
            );
            contradiction(report, span, message, "wait a few seconds, or \"reject\"");
        } else if wait > PATIENCE || wait > timeout {
            let message = format!(
                "a repeat waits up to {}, longer than the upstream's timeout or than most clients",
                duration_text(wait)
            );
            risk(report, span, message, "a client that gave up comes back anyway");
        }
    }
    if settings.retention < BRIEF {
        let message = format!("answers are kept for {} only", settings.retention_text());
        let hint = "a client that retries later than that starts a new operation";
        risk(report, layers.of(|table| table.retention.span()), message, hint);
    }
}

fn statuses(layers: &Layers<'_>, settings: &Settings, report: &mut Report) {
    for (key, keep) in &settings.status.0 {
        let runs_again = matches!(keep, Keep::Retry | Keep::Release);
        match key {
            StatusKey::Code(code) if SAYS_UNKNOWN.contains(code) && runs_again => {
                let message = format!("{code} says that nobody knows, and {keep} runs it again");
                risk(report, layers.status(*key), message, "\"unknown\" never runs it twice");
            }
            StatusKey::Code(200..400) | StatusKey::Class(2 | 3) if runs_again => {
                let message = format!("{key} says that it was done, and {keep} runs it again");
                risk(report, layers.status(*key), message, "\"keep\" is made for it");
            }
            _ => {}
        }
    }
}

fn replay(layers: &Layers<'_>, settings: &Settings, report: &mut Report) {
    let replay = &settings.replay;
    let span = || layers.of(|table| table.replay.allow.span());
    for name in &replay.allow {
        if replay.deny.contains(name) {
            let message = format!("{name} is both allowed and denied");
            contradiction(report, span(), message, "take it out of one of the lists");
        }
        if never_replayed(name) {
            let message = format!("{name} is never replayed: it belongs to one transfer");
            contradiction(report, span(), message, "remove it from `allow`");
        }
        if *name == http::header::SET_COOKIE || *name == http::header::WWW_AUTHENTICATE {
            let message = format!("{name} is replayed: who repeats a request gets it again");
            risk(report, span(), message, "a session that was ended must not come back");
        }
    }
}

fn never_replayed(name: &HeaderName) -> bool {
    const NEVER: &[&str] = &[
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "date",
        "age",
        "via",
        "server",
        "server-timing",
        "content-length",
        "retry-after",
        "nel",
        "report-to",
    ];
    NEVER.contains(&name.as_str()) || name.as_str().starts_with("proxy-") || is_own(name)
}

/// The payment profile is a promise; settings that break it are refused, not weighed.
fn payment(layers: &Layers<'_>, settings: &Settings, report: &mut Report) {
    if settings.profile != Profile::Payment {
        return;
    }
    if !settings.require_key {
        let span = layers.of(|table| table.require_key.span());
        let message = "the payment profile requires a key";
        contradiction(report, span, message, "remove `require_key`, or take another profile");
    }
    for (key, keep) in &settings.status.0 {
        let runs_again = matches!(keep, Keep::Retry | Keep::Release);
        match key {
            StatusKey::Class(5) if *keep != Keep::Unknown => {
                let message = "the payment profile makes every 5xx unknown";
                let hint = "name single statuses, or take another profile";
                contradiction(report, layers.status(*key), message, hint);
            }
            StatusKey::Code(500..) if runs_again => {
                let message = format!("{key} runs a payment again");
                let hint = "only where the application has certainly done nothing";
                risk(report, layers.status(*key), message, hint);
            }
            _ => {}
        }
    }
    if settings.on_unknown == OnUnknown::Retry {
        let span = layers.of(|table| table.on_unknown.span());
        let message = "a payment whose outcome is unknown runs again";
        risk(report, span, message, "only where the provider sees the same key: else use \"hold\"");
    }
    if settings.insecure_pass_through {
        let span = layers.of(|table| table.insecure_pass_through.span());
        let message = "the payment profile never runs unprotected";
        contradiction(report, span, message, "remove `insecure_pass_through`");
    }
    if settings.tombstone.is_none() {
        let span = layers.of(|table| table.tombstone.span());
        let message = "a payment's key is new again when its answer has gone";
        risk(report, span, message, "remove `tombstone`: the profile keeps them for 30 days");
    }
}

//! Which request gets which policy.
//!
//! 1. Routes are tried in the order of the file; the first that matches decides, else the
//!    defaults.
//! 2. The path is matched in one spelling, so that no other spelling of a protected path slips by.
//! 3. A reload replaces all routes at once; requests under way keep the policy they began with.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::request::Parts;
use http::{HeaderValue, Method};
use oncekey::engine::Wait;
use oncekey::fingerprint::{BodyMode, Selection};
use oncekey::http::{
    Authority, Cors, Endings, KeyForm, KeyNeed, KeySource, Mode, Operation, Policy, Query, Scoping,
    StatusEnding, StoreBody, StoreDown, Trust, normalised,
};
use oncekey::key::KeySyntax;
use oncekey::record::Retention;
use oncekey::store::OnUnknown;

use crate::config::{self, Config, Network, Route, Settings, TenantFrom};
use crate::listener::Peer;

/// The routes in force. Cheap to clone; all clones see a reload.
#[derive(Clone, Debug)]
pub struct Routes(Arc<ArcSwap<Table>>);

#[derive(Debug)]
struct Table {
    routes: Vec<(Route, Arc<Policy>)>,
    rest: Arc<Policy>,
}

impl Routes {
    /// The routes of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(table(config))))
    }

    /// Puts those of another configuration in force.
    pub fn replace(&self, config: &Config) {
        self.0.store(Arc::new(table(config)));
    }

    /// The policy of a request.
    #[must_use]
    pub fn find(&self, parts: &Parts) -> Arc<Policy> {
        let table = self.0.load();
        if table.routes.is_empty() {
            return Arc::clone(&table.rest);
        }
        let path = normalised(parts.uri.path());
        let found = table.routes.iter().find(|(route, _)| route.matches(&parts.method, &path));
        Arc::clone(found.map_or(&table.rest, |(_, policy)| policy))
    }
}

fn table(config: &Config) -> Table {
    let routes = config.routes.iter().map(|route| {
        let policy = policy(&route.settings, config);
        (route.clone(), Arc::new(policy))
    });
    Table { routes: routes.collect(), rest: Arc::new(policy(&config.defaults, config)) }
}

/// The library's policy for a route's settings.
#[must_use]
pub fn policy(settings: &Settings, config: &Config) -> Policy {
    let mut policy = Policy::default();
    policy.mode = match settings.mode {
        config::Mode::Protect => Mode::Protect,
        config::Mode::Observe => Mode::Observe,
        config::Mode::Off => Mode::Off,
    };
    policy.syntax = match settings.key_syntax {
        config::KeySyntax::Lenient => KeySyntax::Lenient,
        config::KeySyntax::Strict => KeySyntax::Strict,
    };
    policy.methods = settings
        .methods
        .iter()
        .map(|method| match method {
            config::KeyedMethod::Post => Method::POST,
            config::KeyedMethod::Patch => Method::PATCH,
            config::KeyedMethod::Put => Method::PUT,
            config::KeyedMethod::Delete => Method::DELETE,
        })
        .collect();
    policy.operation = match &settings.operation {
        config::Operation::Path => Operation::Path,
        config::Operation::Tenant => Operation::Tenant,
        config::Operation::Named(name) => Operation::Named(name.as_str().into()),
    };
    policy.authority = if settings.authority { Authority::Counted } else { Authority::Ignored };
    keys(&mut policy, settings);
    comparison(&mut policy, settings, config);
    run(&mut policy, settings, config);
    kept(&mut policy, settings);
    policy
}

fn keys(policy: &mut Policy, settings: &Settings) {
    policy.keys = settings
        .key
        .iter()
        .map(|source| match source {
            config::KeySource::Header(name) => KeySource::Header(name.clone()),
            config::KeySource::Body(pointer) => KeySource::Body(pointer.as_str().into()),
        })
        .collect();
    policy.need = if settings.require_key { KeyNeed::Required } else { KeyNeed::Optional };
    policy.key_rules.min_length = usize::from(settings.min_key_length);
    policy.key_rules.form = if settings.uuid_only { KeyForm::Uuid } else { KeyForm::Any };
    policy.key_rules.max_age = settings.oldest_key();
}

fn comparison(policy: &mut Policy, settings: &Settings, config: &Config) {
    let print = &settings.fingerprint;
    let texts = |pointers: &[config::Pointer]| {
        pointers.iter().map(|pointer| pointer.as_str().to_owned()).collect()
    };
    policy.body = match print.mode {
        config::FingerprintMode::Raw => BodyMode::Raw,
        config::FingerprintMode::Json => BodyMode::Json(Selection {
            exclude: texts(&print.exclude),
            include: texts(&print.include),
        }),
    };
    policy.headers.clone_from(&print.headers);
    policy.query = match print.query {
        config::QueryOrder::Raw => Query::Raw,
        config::QueryOrder::Sorted => Query::Sorted,
    };
    policy.max_request_body = size(settings.max_request_body);
    policy.body_timeout = config.server.body_timeout;
}

fn run(policy: &mut Policy, settings: &Settings, config: &Config) {
    policy.lease = settings.lease;
    policy.max_run = settings.max_run;
    policy.timeout = Some(config.upstream.timeout);
    policy.wait = match settings.in_progress {
        config::InProgress::Wait(bound) => Wait::UpTo(bound),
        config::InProgress::Reject => Wait::Reject,
    };
    policy.on_unknown = match settings.on_unknown {
        config::OnUnknown::Hold => OnUnknown::Hold,
        config::OnUnknown::Retry => OnUnknown::TakeOver,
    };
    policy.store_down = if settings.insecure_pass_through {
        StoreDown::InsecurePassThrough
    } else {
        StoreDown::Refuse
    };
}

fn kept(policy: &mut Policy, settings: &Settings) {
    policy.retention = Retention {
        keep: settings.retention,
        tombstone: settings.tombstone.unwrap_or(Duration::ZERO),
    };
    // The configuration's table is complete, so every final status is set by its number.
    policy.endings = (200..600).fold(Endings::default(), |endings, status| {
        endings.with_status(
            status,
            match settings.status.keep(status) {
                config::Keep::Keep => StatusEnding::Keep,
                config::Keep::Retry => StatusEnding::Retry,
                config::Keep::Release => StatusEnding::Release,
                config::Keep::Unknown => StatusEnding::Unknown,
            },
        )
    });
    policy.replay.allow.clone_from(&settings.replay.allow);
    policy.replay.deny.clone_from(&settings.replay.deny);
    policy.store_body = match settings.body {
        config::RecordedBody::Keep => StoreBody::Keep,
        config::RecordedBody::Omit => StoreBody::Omit,
    };
    policy.max_response_body = size(settings.max_response_body);
    policy.mismatch = settings.profile.reuse_status();
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Whose requests they are, by the configuration (S3, S4, S7).
#[must_use]
pub fn scoping(config: &Config) -> Scoping {
    let peers: Arc<[Network]> = config.tenant.trusted_peers.clone().into();
    let scoping = match &config.tenant.from {
        TenantFrom::Shared => Scoping::shared(),
        TenantFrom::Host => Scoping::by_tenant(oncekey::http::host_of),
        TenantFrom::Header(name) => {
            let (name, peers) = (name.clone(), Arc::clone(&peers));
            Scoping::by_tenant(move |parts| {
                let mut values = parts.headers.get_all(&name).into_iter();
                let value = values.next().filter(|_| values.next().is_none())?;
                let value = value.to_str().ok().filter(|_| is_trusted(&peers, parts))?;
                Some(value.trim().to_owned())
            })
        }
    };
    let cookies = config.principal.cookies.iter().map(|name| name.as_str().to_owned());
    scoping
        .with_namespace(config.namespace.as_str())
        .with_credentials(config.principal.headers.clone(), cookies.collect())
        .with_trusted(
            move |parts| {
                if is_trusted(&peers, parts) { Trust::Trusted } else { Trust::Untrusted }
            },
        )
}

fn is_trusted(peers: &[Network], parts: &Parts) -> bool {
    parts
        .extensions
        .get::<Peer>()
        .is_some_and(|Peer(peer)| peers.iter().any(|network| network.contains(peer.ip())))
}

/// The origins that our own answers are readable for.
#[must_use]
pub fn cors(config: &Config) -> Cors {
    let origins = config.cors.origins.iter();
    Cors::new(origins.filter_map(|origin| HeaderValue::from_str(origin).ok()).collect())
}

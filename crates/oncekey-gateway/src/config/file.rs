//! The file as it is written: every field may be absent, and knows where it stood.
//!
//! These types are also the source of the JSON Schema; a field's comment is what an editor shows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::field::{Field, List, Setting};
use super::names::{CookieName, KeySource, Name, Operation, Pointer};
use super::net::{Network, TypeBase, UpstreamUrl, WebOrigin};
use super::path::Match;
use super::quantity::{Delay, Size};
use super::sections::{LogFormat, LogLevel, StoreKind, StorePath, TenantFrom};
use super::settings::{
    FingerprintMode, InProgress, Keep, KeySyntax, KeyedMethod, MaxKeyAge, Mode, OnUnknown, Profile,
    QueryOrder, RecordedBody, Tombstone,
};

/// The configuration of the oncekey gateway.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "oncekey gateway configuration")]
pub(crate) struct ConfigFile {
    /// Where clients connect.
    pub(crate) server: ServerFile,
    /// Where health and metrics are read.
    pub(crate) admin: AdminFile,
    /// The application behind the gateway.
    pub(crate) upstream: UpstreamFile,
    /// Where records are kept.
    pub(crate) store: StoreFile,
    /// Whose key it is.
    pub(crate) tenant: TenantFile,
    /// Who is calling, beside the Authorization header.
    pub(crate) principal: PrincipalFile,
    /// Cross-origin browsers.
    pub(crate) cors: CorsFile,
    /// Keeps services apart that share a store: part of every record's id. Default: main.
    pub(crate) namespace: Field<Name>,
    /// How errors are told.
    pub(crate) problem: ProblemFile,
    /// What is logged, and how.
    pub(crate) log: LogFile,
    /// Settings of every route, and of requests that no route matches.
    pub(crate) defaults: SettingsFile,
    /// Routes; the first that matches wins.
    pub(crate) route: Vec<RouteFile>,
}

/// Where clients connect.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerFile {
    /// Address and port for clients. Default: 127.0.0.1:8080.
    pub(crate) listen: Field<SocketAddr>,
    /// How long a client may take to send its headers. Default: 30s.
    pub(crate) header_timeout: Field<Duration>,
    /// How long a client may take to send a keyed body. Default: 30s.
    pub(crate) body_timeout: Field<Duration>,
    /// The largest request head. Default: 64KiB.
    pub(crate) max_header_bytes: Field<Size>,
    /// What the bodies of keyed requests take in memory together, half of it for those of up to
    /// 8KiB. Default: 256MiB.
    pub(crate) max_request_buffers: Field<Size>,
    /// How long readiness fails before new work is refused at a stop. Default: 0s.
    pub(crate) drain_delay: Field<Delay>,
    /// How long running work is waited for at a stop. Default: 25s.
    pub(crate) drain_timeout: Field<Duration>,
}

/// Where health and metrics are read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AdminFile {
    /// Address and port of /healthz, /readyz and /metrics. Default: 127.0.0.1:9090.
    pub(crate) listen: Field<SocketAddr>,
}

/// The application behind the gateway.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct UpstreamFile {
    /// Scheme, host and port: http://127.0.0.1:3000. No default.
    pub(crate) url: Field<UpstreamUrl>,
    /// When the client gets 504 outcome-unknown; the exchange goes on. Default: 30s.
    pub(crate) timeout: Field<Duration>,
    /// How long connecting may take. Default: 5s.
    pub(crate) connect_timeout: Field<Duration>,
    /// How long an idle connection is kept where the upstream tells no bound. Default: 4s.
    pub(crate) idle_timeout: Field<Duration>,
    /// Idle connections kept by each worker. Default: 32.
    pub(crate) max_idle: Field<u64>,
}

/// Where records are kept.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreFile {
    /// Default: embedded.
    pub(crate) kind: Field<StoreKind>,
    /// The data folder of the embedded store. Default: ./oncekey-data.
    pub(crate) path: Field<StorePath>,
    /// Records held in memory above which new claims are refused: all those of the memory store,
    /// those in progress and unknown of the embedded one. Default: 1000000.
    pub(crate) max_entries: Field<u64>,
    /// Bytes above which new claims are refused: of the data folder, or of the memory of the memory
    /// store. Default: no bound but the disk, or 1GiB of memory.
    pub(crate) max_bytes: Field<Size>,
    /// Free bytes of the disk to keep for running work; below them new claims are refused. Default:
    /// 256MiB, or 5 % of a disk of which that is less.
    pub(crate) reserve: Field<Size>,
}

/// Whose key it is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TenantFile {
    /// Default: shared.
    pub(crate) from: Field<TenantFrom>,
    /// Networks whose tenant header, and whose Idempotency-Record header, is believed.
    pub(crate) trusted_peers: List<Network>,
}

/// Who is calling, beside the Authorization header.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PrincipalFile {
    /// Headers that are part of who is calling, such as X-Api-Key.
    pub(crate) headers: List<HeaderName>,
    /// Cookies that are part of who is calling, such as session.
    pub(crate) cookies: List<CookieName>,
}

/// Cross-origin browsers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CorsFile {
    /// Origins that may read the gateway's own answers.
    pub(crate) origins: List<WebOrigin>,
}

/// How errors are told.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProblemFile {
    /// What a problem's code is appended to. Default: urn:oncekey:problem:
    pub(crate) type_base: Field<TypeBase>,
}

/// What is logged, and how.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogFile {
    /// Default: auto, which is text on a terminal and JSON elsewhere.
    pub(crate) format: Field<LogFormat>,
    /// Default: info.
    pub(crate) level: Field<LogLevel>,
}

/// What counts as the same request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FingerprintFile {
    /// raw compares bytes, json values. Default: raw.
    pub(crate) mode: Field<FingerprintMode>,
    /// JSON pointers to members that do not count.
    pub(crate) exclude: List<Pointer>,
    /// JSON pointers to the only members that count.
    pub(crate) include: List<Pointer>,
    /// Headers that count too.
    pub(crate) headers: List<HeaderName>,
    /// raw compares the query as it came, sorted in any order. Default: raw.
    pub(crate) query: Field<QueryOrder>,
}

/// Which headers a replay bears.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReplayFile {
    /// Headers replayed although they are off by default, such as Set-Cookie.
    pub(crate) allow: List<HeaderName>,
    /// Headers never replayed.
    pub(crate) deny: List<HeaderName>,
}

/// The status table as written.
#[derive(Debug, Default)]
pub(crate) struct StatusFile(pub(crate) BTreeMap<Spanned<String>, Field<Keep>>);

impl<'de> Deserialize<'de> for StatusFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for StatusFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StatusFile".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "propertyNames": { "pattern": "^([2-5]xx|[2-5][0-9][0-9])$" },
            "additionalProperties": Keep::schema(),
        })
    }
}

/// The same fields twice: serde's `flatten` would lose where each of them stood.
macro_rules! settings_file {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)+) => {
        /// Settings of a route.
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct SettingsFile { $($(#[$meta])* pub(crate) $name: $type,)+ }

        /// A route.
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct RouteFields {
            /// A method (or *) and a path; a final /* matches everything below.
            #[serde(rename = "match")]
            matches: Field<Match>,
            $($(#[$meta])* $name: $type,)+
        }

        impl RouteFields {
            fn split(self) -> (Field<Match>, SettingsFile) {
                (self.matches, SettingsFile { $($name: self.$name,)+ })
            }
        }
    };
}

settings_file! {
    /// A set of settings for a convention. Default: ietf.
    profile: Field<Profile>,
    /// Default: protect.
    mode: Field<Mode>,
    /// Where the key is looked for, in order. Default: ["header:Idempotency-Key"].
    key: List<KeySource>,
    /// lenient takes "k" and k as the same key, strict only "k". Default: lenient.
    key_syntax: Field<KeySyntax>,
    /// Whether a request without a key is refused. Default: false.
    require_key: Field<bool>,
    /// The shortest key accepted. Default: 1.
    min_key_length: Field<u64>,
    /// Whether only UUIDs are accepted as keys. Default: false.
    uuid_only: Field<bool>,
    /// How old a UUIDv7 key may be. Default: off.
    max_key_age: Field<MaxKeyAge>,
    /// Methods whose keys count. Default: ["POST", "PATCH"], or the route's own method.
    methods: List<KeyedMethod>,
    /// path, tenant, or a name that routes can share. Default: path.
    operation: Field<Operation>,
    /// Whether the host is part of the operation. Default: false.
    authority: Field<bool>,
    /// What counts as the same request.
    fingerprint: FingerprintFile,
    /// How long an answer is kept. Default: 24h.
    retention: Field<Duration>,
    /// How long a key is still refused after its answer is gone. Default: off, payment 30d.
    tombstone: Field<Tombstone>,
    /// How long a claim holds without renewal. Default: 30s.
    lease: Field<Duration>,
    /// How long a running request's claim is renewed at most. Default: 5m.
    max_run: Field<Duration>,
    /// What a request meets whose key is in progress. Default: { wait = "5s" }.
    in_progress: Field<InProgress>,
    /// What a request meets whose outcome is unknown. Default: hold.
    on_unknown: Field<OnUnknown>,
    /// What becomes of a run by its status: "409" or "5xx" to keep, retry, release or unknown.
    status: StatusFile,
    /// Which headers a replay bears.
    replay: ReplayFile,
    /// Whether the body of an answer is recorded. Default: keep.
    body: Field<RecordedBody>,
    /// The longest request body with a key. Default: 1MiB.
    max_request_body: Field<Size>,
    /// The longest answer body that is recorded, 15MiB at most. Default: 1MiB.
    max_response_body: Field<Size>,
    /// Whether requests run unprotected while the store cannot be reached. Default: false.
    insecure_pass_through: Field<bool>,
}

/// A route, and where its table began.
#[derive(Debug)]
pub(crate) struct RouteFile {
    pub(crate) span: super::source::Span,
    pub(crate) matches: Field<Match>,
    pub(crate) settings: SettingsFile,
}

impl<'de> Deserialize<'de> for RouteFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Spanned::<RouteFields>::deserialize(deserializer)?;
        let span = fields.span();
        let (matches, settings) = fields.into_inner().split();
        Ok(Self { span, matches, settings })
    }
}

impl JsonSchema for RouteFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Route".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = RouteFields::json_schema(generator);
        schema.insert("required".into(), serde_json::json!(["match"]));
        schema
    }
}

/// The JSON Schema of the file (`oncekey config schema`).
pub fn schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    // In one piece, so that the reader can look a field up by its path.
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<ConfigFile>().to_value()
}

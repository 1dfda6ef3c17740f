//! The sections that are not routes, fully settled.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use schemars::{Schema, json_schema};
use toml::Value;

use super::diagnostic::{Fault, quoted};
use super::field::{Setting, Written, choice};
use super::names::{CookieName, header, is_own};
use super::net::{Network, UpstreamUrl};
use super::quantity::Size;

/// `[server]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Address and port for clients.
    pub listen: SocketAddr,
    /// How long a client may take to send its headers (X6).
    pub header_timeout: Duration,
    /// How long a client may take to send a keyed body (X6).
    pub body_timeout: Duration,
    /// The largest request head, in bytes.
    pub max_header_bytes: u64,
    /// What the bodies of keyed requests take in memory together, in bytes (X6).
    pub max_request_buffers: u64,
    /// How long readiness fails before new work is refused (U5); may be zero.
    pub drain_delay: Duration,
    /// How long running work is waited for (U5).
    pub drain_timeout: Duration,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            max_header_bytes: 64 * Size::KIB,
            max_request_buffers: 256 * Size::MIB,
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(25),
        }
    }
}

/// `[admin]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Address and port of health and metrics (A6).
    pub listen: SocketAddr,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)) }
    }
}

/// `[upstream]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Where the application is; none where only `--upstream` will tell.
    pub url: Option<UpstreamUrl>,
    /// When the client gets 504 `outcome-unknown` (O4).
    pub timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept where the upstream tells no bound (O4).
    pub idle_timeout: Duration,
    /// Idle connections kept by each worker.
    pub max_idle: u64,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            url: None,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(4),
            max_idle: 32,
        }
    }
}

choice! {
    /// Which store keeps the records.
    StoreKind {
        /// On the local disk.
        Embedded = "embedded",
        /// In memory: a restart forgets every key.
        Memory = "memory",
    }
}

/// The data folder, as text that TOML can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StorePath(pub(crate) PathBuf);

impl Setting for StorePath {
    fn read(written: &Written) -> Result<Self, Fault> {
        let text = written.text("a path")?;
        if text.trim().is_empty() || text.contains('\0') {
            return Err(Fault::new(format!("{} is not a path", quoted(text)))
                .hint("a folder, such as \"./oncekey-data\""));
        }
        Ok(Self(PathBuf::from(text)))
    }
    fn write(&self) -> Value {
        self.0.display().to_string().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// `[store]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Which store.
    pub kind: StoreKind,
    /// The data folder of the embedded store.
    pub path: PathBuf,
    /// Records held in memory above which new claims are refused (X5): all those of the memory
    /// store, those in progress and unknown of the embedded one.
    pub max_entries: u64,
    /// Bytes above which new claims are refused (X5): of the data folder, or of the memory that
    /// the memory store takes. None: no bound but the disk, or 1 GiB of memory.
    pub max_bytes: Option<u64>,
    /// Free bytes of the disk to keep for running work (X5). None: 256 MiB, or 5 % of a disk of
    /// which that is less.
    pub reserve: Option<u64>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            kind: StoreKind::Embedded,
            path: PathBuf::from("./oncekey-data"),
            max_entries: 1_000_000,
            max_bytes: None,
            reserve: None,
        }
    }
}

/// Where the tenant of a request comes from (S3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TenantFrom {
    /// All requests share one tenant.
    #[default]
    Shared,
    /// The host name.
    Host,
    /// A header, believed only from `trusted_peers`.
    Header(HeaderName),
}

impl Setting for TenantFrom {
    fn read(written: &Written) -> Result<Self, Fault> {
        const HINT: &str = "\"shared\", \"host\" or \"header:X-Tenant-Id\"";
        let text = written.text("a tenant source").map_err(|fault| fault.hint(HINT))?;
        if let Some(name) = text.strip_prefix("header:") {
            let name = header(name)?;
            if is_own(&name) {
                return Err(Fault::new(format!("{name} is removed from what clients send"))
                    .hint("name the tenant header otherwise, such as \"X-Tenant-Id\""));
            }
            return if name == http::header::HOST {
                Ok(Self::Host)
            } else {
                Ok(Self::Header(name))
            };
        }
        match text {
            "shared" => Ok(Self::Shared),
            "host" => Ok(Self::Host),
            other => {
                Err(Fault::new(format!("{} is not a tenant source", quoted(other))).hint(HINT))
            }
        }
    }
    fn write(&self) -> Value {
        match self {
            Self::Shared => "shared".into(),
            Self::Host => "host".into(),
            Self::Header(name) => format!("header:{name}").into(),
        }
    }
    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(shared|host|header:.+)$",
            "examples": ["shared", "host", "header:X-Tenant-Id"],
        })
    }
}

/// `[tenant]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tenant {
    /// Where it comes from.
    pub from: TenantFrom,
    /// Networks whose tenant header (S3) and `Idempotency-Record` (S7) are believed.
    pub trusted_peers: Vec<Network>,
}

/// `[principal]` (S4).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Principal {
    /// Headers hashed beside Authorization.
    pub headers: Vec<HeaderName>,
    /// Cookies hashed beside Authorization.
    pub cookies: Vec<CookieName>,
}

/// `[cors]` (P2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cors {
    /// Origins that may read the gateway's own answers; `*` stands alone.
    pub origins: Vec<String>,
}

/// `[problem]` (H).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What a problem's code is appended to, separator included.
    pub type_base: String,
}

impl Default for Problem {
    fn default() -> Self {
        Self { type_base: "urn:oncekey:problem:".into() }
    }
}

choice! {
    /// How log lines look.
    LogFormat {
        /// Text on a terminal, JSON elsewhere.
        Auto = "auto",
        /// Text.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

choice! {
    /// The least severe lines that are logged.
    LogLevel {
        /// Errors.
        Error = "error",
        /// And warnings.
        Warn = "warn",
        /// And what happens.
        Info = "info",
        /// And why.
        Debug = "debug",
        /// And every step.
        Trace = "trace",
    }
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
    /// The least severe lines.
    pub level: LogLevel,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: LogLevel::Info }
    }
}

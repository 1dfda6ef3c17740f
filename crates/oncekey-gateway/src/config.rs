//! The gateway's configuration.
//!
//! Promises:
//!
//! 1. One TOML file, `ONCEKEY__SECTION__FIELD` variables over it, flags over both (A5).
//! 2. A configuration that is loaded has no open question: every default is filled in, every
//!    duration is positive and sane (T4), and no two settings contradict each other (A3).
//! 3. One that is not loaded says everything that is wrong with it at once, each with file, line,
//!    column, and what to write instead.
//! 4. Settings of a later version are refused by name; nothing that is written is ignored.
//! 5. Secrets come by the environment only, and appear in no output (`ONCEKEY_SECRET`).
//!
//! A request that no `[[route]]` matches is governed by `[defaults]`. The first route that matches
//! wins. How profile, defaults and route are laid over each other: [`Settings`].
//!
//! ```
//! use oncekey_gateway::config::{self, Flags};
//!
//! let text = r#"
//!     [upstream]
//!     url = "http://127.0.0.1:3000"
//!     [[route]]
//!     match = "POST /api/pay"
//!     profile = "payment"
//! "#;
//! let file = Some(("oncekey.toml".into(), text.to_owned()));
//! let loaded = config::parse(file, [], &Flags::default()).expect("it is well formed");
//! assert!(loaded.config.routes[0].settings.require_key);
//!
//! let file = Some(("oncekey.toml".into(), "[upstraem]\n".to_owned()));
//! let refused = config::parse(file, [], &Flags::default()).expect_err("a slip");
//! assert!(refused.to_string().contains("oncekey.toml:1:2: error: unknown field `upstraem`"));
//! assert!(refused.to_string().contains("did you mean `upstream`?"));
//! ```

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use http::Method;

mod diagnostic;
mod effective;
mod field;
mod file;
mod known;
mod later;
mod lint;
mod names;
mod net;
mod path;
mod quantity;
mod read;
mod reload;
mod resolve;
mod secret;
mod sections;
mod settings;
mod source;
#[cfg(test)]
mod tests;

pub use diagnostic::{Code, Diagnostic, Severity};
pub use file::schema;
pub use names::{CookieName, KeySource, Operation, Pointer};
pub use net::{Network, UpstreamUrl};
pub use path::{NotAPath, PathPattern};
pub use reload::{Change, Effect, ReloadRefusal};
pub use secret::Secret;
pub use sections::{
    Admin, Cors, Log, LogFormat, LogLevel, Principal, Problem, Server, Store, StoreKind, Tenant,
    TenantFrom, Upstream,
};
pub use settings::{
    Fingerprint, FingerprintMode, InProgress, Keep, KeySyntax, KeyedMethod, MaxKeyAge, Mode,
    OnUnknown, Profile, QueryOrder, RecordedBody, Replay, Settings, StatusTable,
};
pub use source::{Origin, Place};

/// A longer file than this is not a configuration.
const LONGEST_FILE: u64 = 1024 * 1024;

/// Everything the gateway is told, with nothing left open but the upstream's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect.
    pub server: Server,
    /// Where health and metrics are read.
    pub admin: Admin,
    /// The application behind the gateway.
    pub upstream: Upstream,
    /// Where records are kept.
    pub store: Store,
    /// Whose key it is (S3).
    pub tenant: Tenant,
    /// Who is calling (S4).
    pub principal: Principal,
    /// Cross-origin browsers (P2).
    pub cors: Cors,
    /// Keeps services on one store apart (S3).
    pub namespace: String,
    /// How errors are told (H).
    pub problem: Problem,
    /// What is logged.
    pub log: Log,
    /// For requests that no route matches.
    pub defaults: Settings,
    /// The first that matches wins.
    pub routes: Vec<Route>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: Server::default(),
            admin: Admin::default(),
            upstream: Upstream::default(),
            store: Store::default(),
            tenant: Tenant::default(),
            principal: Principal::default(),
            cors: Cors::default(),
            namespace: "main".into(),
            problem: Problem::default(),
            log: Log::default(),
            defaults: Settings::default(),
            routes: Vec::new(),
        }
    }
}

/// One `[[route]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// None for any method.
    pub method: Option<Method>,
    /// The path, or everything below one.
    pub path: PathPattern,
    /// Everything that it settles.
    pub settings: Settings,
}

impl Route {
    /// Whether a request is this route's; the path is normalised (S2) and has no query.
    pub fn matches(&self, method: &Method, path: &str) -> bool {
        self.method.as_ref().is_none_or(|own| own == method) && self.path.matches(path)
    }
}

impl fmt::Display for Route {
    /// The route as its `match` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.method {
            Some(method) => write!(f, "{method} {}", self.path),
            None => write!(f, "* {}", self.path),
        }
    }
}

impl Config {
    /// The upstream's URL, which `serve` cannot do without.
    pub fn upstream_url(&self) -> Result<&UpstreamUrl, NoUpstream> {
        self.upstream.url.as_ref().ok_or(NoUpstream)
    }

    /// The configuration as TOML, with every default filled in; reading it gives the same again.
    pub fn effective(&self) -> String {
        effective::text(self)
    }

    /// What in `new` needs a restart (A5); none if it can be taken over while running.
    ///
    /// Changes of `[upstream]`, `[cors]`, `[problem]`, `[log]` and of time-outs are not refused;
    /// see [`Config::at_next_start`].
    pub fn reload_refusal(&self, new: &Self) -> Option<ReloadRefusal> {
        reload::refusal(self, new)
    }

    /// The sections of `new` that hold changes which wait for the next start, for those who reload
    /// to be told (A5).
    pub fn at_next_start(&self, new: &Self) -> Vec<&'static str> {
        reload::at_next_start(self, new)
    }
}

/// Neither `--upstream` nor `[upstream] url` was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no upstream: give --upstream URL, or `url` in [upstream]")]
pub struct NoUpstream;

/// Flags that set a field, over file and environment; text, judged like the file's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--upstream`: `[upstream] url`.
    pub upstream: Option<String>,
    /// `--listen`: `[server] listen`.
    pub listen: Option<String>,
    /// `--admin`: `[admin] listen`.
    pub admin: Option<String>,
    /// `--data`: `[store] path`.
    pub data: Option<String>,
}

/// A configuration that holds, and what is worth saying about it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// `ONCEKEY_SECRET`, where it is set; never part of the configuration.
    pub secret: Option<Secret>,
    /// Warnings and notes, in the order of the file.
    pub remarks: Vec<Diagnostic>,
}

/// A configuration that is refused: at least one error, and everything else that was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Rejected {
    /// Errors, warnings and notes, in the order of the file.
    pub findings: Vec<Diagnostic>,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.findings.iter().filter(|found| found.severity == Severity::Error);
        for (index, error) in errors.enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            write!(f, "{gap}{error}")?;
        }
        Ok(())
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is longer than any configuration.
    #[error("{}: longer than {LONGEST_FILE} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// It was read, and is refused.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// Loads the file, where there is one, then the environment, then the flags.
///
/// The environment is given as an iterator (`std::env::vars_os()`); variables that are not
/// oncekey's are passed over.
pub fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &Flags,
) -> Result<Loaded, LoadError> {
    let file = match file {
        Some(path) => Some((path.to_owned(), read_file(path)?)),
        None => None,
    };
    Ok(parse(file, environment, flags)?)
}

fn read_file(path: &Path) -> Result<String, LoadError> {
    use std::io::Read;
    let failed = |source| LoadError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(LoadError::TooLong { path: path.to_owned() });
    }
    String::from_utf8(bytes)
        .map_err(|error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))
}

/// As [`load`], with the file's text at hand; the path is only for messages.
pub fn parse(
    file: Option<(PathBuf, String)>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &Flags,
) -> Result<Loaded, Rejected> {
    let mut sources = source::Sources::default();
    let mut report = diagnostic::Report::default();
    let mut secret = None;
    let mut variables = Vec::new();
    // The file comes first in the line of sources, so that its findings come first too.
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with("ONCEKEY_")) else {
            continue;
        };
        // Bytes that are no text are lost here; what is left is judged like any other value.
        let value = value.to_string_lossy().into_owned();
        if name == secret::VARIABLE {
            secret = Some(Secret::read(&value));
        } else {
            variables.push((name.to_owned(), value));
        }
    }
    let fields = read::read(file, &variables, flags, &mut sources, &mut report);
    let config = match report.has_syntax_error() {
        // Defaults of a file that was not understood are not worth judging.
        true => Config::default(),
        false => resolve::resolve(&fields, &mut report),
    };
    let secret = match secret.transpose() {
        Ok(secret) => secret,
        Err(fault) => {
            // The value itself becomes part of no source: it must not be shown.
            let origin = Origin::Environment(secret::VARIABLE.into());
            let part = sources.add(origin, String::new());
            report.error(Some(sources.whole(part)), Code::BadValue, fault);
            None
        }
    };
    let refused = report.is_refused();
    let findings = report.finish(&sources);
    if refused {
        return Err(Rejected { findings });
    }
    Ok(Loaded { config, secret, remarks: findings })
}

//! Addresses: where to listen, the upstream, trusted networks, origins.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use http::Uri;
use schemars::{Schema, json_schema};
use toml::Value;

use super::diagnostic::{Fault, quoted};
use super::field::{Setting, Written};

impl Setting for SocketAddr {
    fn read(written: &Written) -> Result<Self, Fault> {
        const HINT: &str = "an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"";
        let text = written.text("an address").map_err(|fault| fault.hint(HINT))?;
        text.parse().map_err(|_| {
            let fault = Fault::new(format!("{} is not an address to listen on", quoted(text)));
            let port = text.strip_prefix(':').or_else(|| text.strip_prefix("localhost:"));
            match port.filter(|port| port.parse::<u16>().is_ok()) {
                Some(port) => fault.hint(format!("write \"127.0.0.1:{port}\"")),
                None => fault.hint(HINT),
            }
        })
    }
    fn write(&self) -> Value {
        self.to_string().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["127.0.0.1:8080"] })
    }
}

/// Where the application listens: plain HTTP, a host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UpstreamUrl {
    host: String,
    port: u16,
}

impl UpstreamUrl {
    /// The host name or address; an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 80 where none was written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port as they stand in a URL.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

impl Setting for UpstreamUrl {
    fn read(written: &Written) -> Result<Self, Fault> {
        const HINT: &str = "write \"http://127.0.0.1:3000\", for example";
        let text = written.text("a URL").map_err(|fault| fault.hint(HINT))?;
        // Before anything is quoted: what stands before the `@` may be a password.
        if text.contains('@') {
            return Err(Fault::new("the upstream's URL holds a user name or a password")
                .hint("the client's own Authorization header is forwarded"));
        }
        let shown = quoted(text);
        let bad = |why: &str| Fault::new(format!("{shown} is no upstream: {why}")).hint(HINT);
        if text.len() >= 8 && text.as_bytes()[..8].eq_ignore_ascii_case(b"https://") {
            return Err(Fault::new(format!("{shown}: https upstreams are not in this version"))
                .hint("use http:// to the application on this machine or a private network"));
        }
        if !text.contains("://") {
            return Err(Fault::new(format!("{shown} has no scheme"))
                .hint(format!("write \"http://{}\"", text.trim_start_matches('/'))));
        }
        let uri: Uri = text.parse().map_err(|_| bad("it is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(bad("its scheme is not http"));
        }
        if uri.path() != "/" || uri.query().is_some() || text.contains('#') {
            return Err(bad("it has a path or a query, and requests keep their own"));
        }
        let authority = uri.authority().map(|all| all.as_str()).unwrap_or_default();
        let host = uri.host().unwrap_or_default();
        // The parser passes over a port that is empty or too large.
        let port = match authority.strip_prefix(host).unwrap_or_default().strip_prefix(':') {
            Some(port) => port.parse().unwrap_or(0),
            None => 80,
        };
        if host.is_empty() || port == 0 {
            return Err(bad("host or port is missing"));
        }
        Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), port })
    }
    fn write(&self) -> Value {
        self.to_string().into()
    }
    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^http://",
            "examples": ["http://127.0.0.1:3000"],
        })
    }
}

/// A network of trusted peers, such as `10.0.0.0/8`; a bare address is a network of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether a peer belongs to it. An IPv4 peer seen through an IPv6 socket counts as IPv4.
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(peer)) => {
                same_prefix(network.to_bits().into(), peer.to_bits().into(), self.prefix, 32)
            }
            (IpAddr::V6(network), IpAddr::V6(peer)) => {
                same_prefix(network.to_bits(), peer.to_bits(), self.prefix, 128)
            }
            _ => false,
        }
    }

    /// Whether it is every address there is.
    pub(crate) fn is_everyone(&self) -> bool {
        self.prefix == 0
    }
}

fn same_prefix(left: u128, right: u128, prefix: u8, width: u8) -> bool {
    // A shift by the full width is not defined, and no bit has to be equal then.
    prefix == 0 || (left ^ right) >> (width - prefix) == 0
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Setting for Network {
    fn read(written: &Written) -> Result<Self, Fault> {
        const HINT: &str = "an address or a network, such as \"10.0.0.0/8\" or \"192.168.1.7\"";
        let text = written.text("a network").map_err(|fault| fault.hint(HINT))?;
        let bad = || Fault::new(format!("{} is not a network", quoted(text))).hint(HINT);
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(width);
        if prefix > width {
            return Err(bad());
        }
        let bits: u128 = match address {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits(),
        };
        let beyond = if prefix == 0 { bits } else { bits & ((1_u128 << (width - prefix)) - 1) };
        if beyond != 0 && prefix < width {
            return Err(Fault::new(format!("{} has bits set beyond its prefix", quoted(text)))
                .hint("write the network's first address, or /32 for one IPv4 address"));
        }
        Ok(Self { address, prefix })
    }
    fn write(&self) -> Value {
        self.to_string().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["10.0.0.0/8"] })
    }
}

/// An origin of web pages: scheme, host and port; or `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct WebOrigin(pub(crate) String);

impl Setting for WebOrigin {
    fn read(written: &Written) -> Result<Self, Fault> {
        let text = written.text("an origin")?;
        let bad = |why: &str| {
            Fault::new(format!("{} is not an origin: {why}", quoted(text)))
                .hint("scheme and host as browsers send them, such as \"https://shop.example\"")
        };
        if text == "*" {
            return Ok(Self("*".into()));
        }
        let uri: Uri = text.parse().map_err(|_| bad("it is not a URL"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(bad("its scheme is not http or https"));
        }
        let authority = uri.authority().map(|all| all.as_str()).unwrap_or_default();
        let plain = format!("{}://{authority}", uri.scheme_str().unwrap_or_default());
        // Browsers compare byte for byte: lower case, no slash at the end.
        if authority.is_empty() || authority.contains('@') || plain.to_ascii_lowercase() != text {
            return Err(bad("it has a path, capitals or a user"));
        }
        Ok(Self(plain))
    }
    fn write(&self) -> Value {
        self.0.clone().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": r"^(\*|https?://[^/]+)$" })
    }
}

/// What problem types begin with (H): a URL or URN that a code is appended to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeBase(pub(crate) String);

impl Setting for TypeBase {
    fn read(written: &Written) -> Result<Self, Fault> {
        let text = written.text("a URL")?;
        let bad = || {
            Fault::new(format!("{} cannot begin a problem type", quoted(text)))
                .hint("an absolute URL, such as \"https://docs.example/problems/\"")
        };
        let known = ["https://", "http://", "urn:"].iter().any(|start| text.starts_with(start));
        let printable = text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b));
        if !known || !printable || text.len() > 512 || text.ends_with("//") {
            return Err(bad());
        }
        // A code must not run into the last word of the base.
        let end = match text.ends_with(['/', ':', '#', '=']) {
            true => "",
            false if text.starts_with("urn:") => ":",
            false => "/",
        };
        Ok(Self(format!("{text}{end}")))
    }
    fn write(&self) -> Value {
        self.0.clone().into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^(https?://|urn:)" })
    }
}

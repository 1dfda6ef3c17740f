//! The way to the application: connections kept for reuse, and what is known about each of them.
//!
//! 1. Nothing is sent twice. A request leaves on one connection; it moves to another only while it
//!    is certain that not a byte of it was accepted by the first (rule O4).
//! 2. Every socket counts the bytes that the kernel took, so "was a byte sent?" is a
//!    comparison of two numbers and never a guess from an error's name.
//! 3. A kept connection is looked at just before its first byte, and given up a second before the
//!    application would close it, so that the keep-alive race never makes an unknown outcome.
//! 4. A pool belongs to one worker thread. Its lock is never contended and never held across I/O.

pub(crate) mod connect;
pub(crate) mod pool;
pub(crate) mod socket;

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderValue, Uri};

/// Where the application listens.
///
/// Only `http://host[:port]` is understood: the gateway stands next to the application, and a path
/// in the address would make what the client asked for and what the application sees differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: Host,
    port: u16,
    authority: HeaderValue,
}

/// A literal address needs no look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Ip(IpAddr),
    Name(String),
}

/// Why a URL is not an address of an application.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Not a URL at all.
    #[error("not a URL")]
    Syntax(#[from] http::uri::InvalidUri),
    /// Another scheme than `http`.
    #[error("the scheme must be http")]
    Scheme,
    /// No host, or a user name in front of it.
    #[error("a host is needed, without user name")]
    Host,
    /// Port 0, or one above 65535.
    #[error("the port must be between 1 and 65535")]
    Port,
    /// Something stands behind the host.
    #[error("the address must end after host and port")]
    Path,
}

impl Address {
    /// Takes an address apart.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn from_uri(uri: &Uri) -> Result<Self, AddressError> {
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(AddressError::Scheme);
        }
        let authority = uri.authority().ok_or(AddressError::Host)?;
        let name = authority.host();
        if name.is_empty() || authority.as_str().contains('@') {
            return Err(AddressError::Host);
        }
        if uri.query().is_some() || !matches!(uri.path(), "" | "/") {
            return Err(AddressError::Path);
        }
        let port = match authority.as_str().strip_prefix(name) {
            Some("") => 80,
            Some(_) => authority.port_u16().ok_or(AddressError::Port)?,
            None => return Err(AddressError::Host),
        };
        if port == 0 {
            return Err(AddressError::Port);
        }
        let literal = name.trim_start_matches('[').trim_end_matches(']');
        let host = match literal.parse() {
            Ok(ip) => Host::Ip(ip),
            Err(_) => Host::Name(name.to_owned()),
        };
        let authority =
            HeaderValue::from_str(authority.as_str()).map_err(|_| AddressError::Host)?;
        Ok(Self { host, port, authority })
    }

    /// The `Host` of a request that brought none.
    pub(crate) fn authority(&self) -> &HeaderValue {
        &self.authority
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        Self::from_uri(&url.parse()?)
    }
}

/// The bounds of the connections to the application.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// How long a connection may take to be made, look-up included.
    pub connect: Duration,
    /// How long a connection is kept unused where the application names no `Keep-Alive` timeout.
    pub idle: Duration,
    /// How many unused connections one worker keeps.
    pub kept: usize,
    /// How many connections one worker may have open; one more waits for another to close, within
    /// [`connect`](Self::connect).
    pub open: usize,
    /// The longest answer head, in bytes; also how much of a body is read at once at most.
    pub head: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(4),
            kept: 512,
            open: 16_384,
            head: 128 * 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_host_and_port() {
        let plain: Address = "http://127.0.0.1:3000".parse().unwrap();
        assert_eq!(plain.host, Host::Ip([127, 0, 0, 1].into()));
        assert_eq!((plain.port, plain.authority.to_str().unwrap()), (3000, "127.0.0.1:3000"));
        let named: Address = "http://app.internal/".parse().unwrap();
        assert_eq!((named.host, named.port), (Host::Name("app.internal".into()), 80));
        let six: Address = "http://[::1]:8080".parse().unwrap();
        assert_eq!(six.host, Host::Ip("::1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_address_is_told_why() {
        let why = |url: &str| url.parse::<Address>().unwrap_err();
        assert!(matches!(why("https://a"), AddressError::Scheme));
        assert!(matches!(why("/a"), AddressError::Scheme));
        assert!(matches!(why("http://a/b"), AddressError::Path));
        assert!(matches!(why("http://a?b"), AddressError::Path));
        assert!(matches!(why("http://u@a"), AddressError::Host));
        assert!(matches!(why("http://a:0"), AddressError::Port));
        assert!(matches!(why("http://a:70000"), AddressError::Port | AddressError::Syntax(_)));
        assert!(matches!(why("http://a b"), AddressError::Syntax(_)));
    }
}

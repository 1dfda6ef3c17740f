//! Connections that stop being HTTP: WebSocket and its like.
//!
//! 1. Only a GET of HTTP/1.1 may ask (rule K7): on any other method the field is dropped with the
//!    rest of what belongs to one connection, because there the key counts.
//! 2. `h2c` is not passed on. Behind it whole requests would travel that nobody protects.
//! 3. After the 101 bytes are copied both ways, untouched, until both sides are done.
//! 4. They are counted, bounded, and ended when the gateway stops.

use std::sync::Arc;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::headers::tokens;

/// The upgraded connections of a gateway. A clone is another handle to the same ones.
#[derive(Clone, Debug)]
pub struct Upgrades(Arc<Open>);

#[derive(Debug)]
struct Open {
    most: usize,
    running: TaskTracker,
    stop: CancellationToken,
}

impl Default for Upgrades {
    fn default() -> Self {
        Self::new(10_000)
    }
}

impl Upgrades {
    /// At most `most` at a time; a client that asks for one more gets 503.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Open { most, running: TaskTracker::new(), stop: CancellationToken::new() }))
    }

    /// How many are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.0.running.len()
    }

    /// Ends all of them, and returns when they have ended.
    pub async fn end(&self) {
        self.0.stop.cancel();
        self.0.running.close();
        self.0.running.wait().await;
    }

    pub(super) fn have_room(&self) -> bool {
        self.open() < self.0.most && !self.0.stop.is_cancelled()
    }

    /// Copies between the two sides as soon as both have left HTTP.
    pub(super) fn join(&self, wanted: Wanted, theirs: OnUpgrade) {
        let stop = self.0.stop.clone();
        let copy = async move {
            let (client, application) = tokio::try_join!(wanted.client, theirs)?;
            let (mut client, mut application) = (TokioIo::new(client), TokioIo::new(application));
            let copied = copy_bidirectional(&mut client, &mut application).await;
            // Either side may vanish at any time; that is how such connections end.
            drop(copied);
            Ok::<(), hyper::Error>(())
        };
        self.0.running.spawn(async move {
            tokio::select! {
                _ = copy => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// A client's wish to leave HTTP.
pub(super) struct Wanted {
    client: OnUpgrade,
    protocols: HeaderValue,
}

impl Wanted {
    /// Puts the wish into the head for the application, whose hop-by-hop fields are gone by now.
    pub(super) fn ask(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocols.clone());
    }
}

/// The wish that a request makes, if it may make one.
pub(super) fn wanted<B>(request: &mut Request<B>) -> Option<Wanted> {
    let headers = request.headers();
    let protocols = headers.get(UPGRADE)?;
    if request.method() != Method::GET
        || request.version() != Version::HTTP_11
        || headers.get_all(UPGRADE).iter().count() != 1
        || !tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case(b"upgrade"))
        || tokens(headers, &UPGRADE).any(speaks_http)
    {
        return None;
    }
    let protocols = protocols.clone();
    Some(Wanted { client: hyper::upgrade::on(request), protocols })
}

/// HTTP/2 in any of its spellings, or TLS, which would hide anything.
fn speaks_http(protocol: &[u8]) -> bool {
    let starts = |name: &[u8]| {
        protocol.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    starts(b"h2") || starts(b"http") || starts(b"tls")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(method: Method, upgrade: &str) -> bool {
        let mut request = Request::builder()
            .method(method)
            .header("connection", "keep-alive, Upgrade")
            .header("upgrade", upgrade)
            .body(())
            .unwrap();
        wanted(&mut request).is_some()
    }

    #[test]
    fn k7_only_a_get_may_leave_http() {
        assert!(asks(Method::GET, "websocket"));
        assert!(!asks(Method::POST, "websocket"));
        assert!(!asks(Method::PUT, "websocket"));
    }

    #[test]
    fn k7_no_upgrade_leads_back_to_http() {
        assert!(!asks(Method::GET, "h2c"));
        assert!(!asks(Method::GET, "websocket, H2C"));
        assert!(!asks(Method::GET, "TLS/1.0, HTTP/1.1"));
    }
}

//! One client's connection, from its first byte to its end.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::heads::{Answering, Heads, Progress};
use super::{BoxError, Peer, Settings, Upload};

/// What an HTTP/2 client says first. No HTTP/1 method begins with `PRI` (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// So many bytes of it tell the two apart.
const ENOUGH: usize = 3;

/// How soon, and at last how seldom, a connection is looked at again that said less than enough.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(320);

/// Streams of one HTTP/2 connection at a time.
const STREAMS: u32 = 128;

/// HTTP/2 connections at a time: each may have far more under way than one of HTTP/1.1.
const HTTP2_CONNECTIONS: usize = 1024;

/// What an HTTP/2 client may send ahead of being read, on one stream and on all of a connection:
/// the least that the protocol lets a server grant (RFC 9113, 6.9.2), since a client may fill it
/// and nothing of it shows before it is read.
const WINDOW: u32 = 65_535;

/// How much of an answer waits in memory for a client of HTTP/2 that does not read, by stream.
const UNREAD: usize = 16 * 1024;

/// How much of a body is read at once at most, and how much of an answer waits in memory.
const READ_AT_ONCE: usize = 64 * 1024;

/// An HTTP/2 client that stays silent so long is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(30);

/// The settings of both versions, made once.
#[derive(Debug)]
pub(super) struct Codecs {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    head_timeout: Duration,
    http2_room: Semaphore,
    heads: Heads,
}

impl Codecs {
    pub(super) fn new(settings: &Settings) -> Self {
        let head_bytes = settings.head_bytes.max(8 * 1024);
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(settings.head_timeout)
            .max_header_size(head_bytes)
            .max_buf_size(head_bytes.max(READ_AT_ONCE));
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(head_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_send_buf_size(UNREAD)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(settings.head_timeout);
        let http2_room = Semaphore::new(HTTP2_CONNECTIONS);
        let heads = Heads::new(head_bytes);
        Self { http1, http2, head_timeout: settings.head_timeout, http2_room, heads }
    }
}

/// Serves a connection until it ends, or until `stop` and the end of the answer it is at.
pub(super) async fn serve<S, B>(
    stream: TcpStream,
    peer: Peer,
    service: S,
    codecs: &Codecs,
    stop: CancellationToken,
) where
    S: Service<Request<Upload>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    // Without it an answer only comes a little later.
    let _ = stream.set_nodelay(true);
    let first = tokio::select! {
        biased;
        first = tokio::time::timeout(codecs.head_timeout, version(&stream)) => first,
        () = stop.cancelled() => return,
    };
    let Ok(Some(version)) = first else { return };
    // The stop is looked at first, so that an answer which comes at the same moment already says
    // that its connection closes.
    let ended = match version {
        Version::Http1 => {
            let (stream, progress) = codecs.heads.watch(stream);
            let io = TokioIo::new(stream);
            let service = Entry { service, peer, progress };
            let connection = codecs.http1.serve_connection(io, service).with_upgrades();
            let mut connection = pin!(connection);
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
                ended = connection.as_mut() => ended,
            }
        }
        Version::Http2 => {
            let Ok(_room) = codecs.http2_room.try_acquire() else { return };
            let io = TokioIo::new(stream);
            // Its streams are no part of one head.
            let (_, progress) = codecs.heads.watch(());
            let service = Entry { service, peer, progress };
            // Boxed, so that the many connections of the other version do not carry its size.
            let mut connection = Box::pin(codecs.http2.serve_connection(io, service));
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
                ended = connection.as_mut() => ended,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection ended early");
    }
}

enum Version {
    Http1,
    Http2,
}

/// Looks at the first bytes without taking them. Nothing: the client has gone.
async fn version(stream: &TcpStream) -> Option<Version> {
    let mut bytes = [0; ENOUGH];
    let mut pause = FIRST_LOOK;
    loop {
        let seen = match stream.peek(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.get(..count)?,
        };
        if !PREFACE.starts_with(seen) {
            return Some(Version::Http1);
        }
        if seen.len() == ENOUGH {
            return Some(Version::Http2);
        }
        // `P` or `PR` alone, which a peek would go on reporting at once: rare enough to look again
        // a little later, and less often the longer it lasts, for there may be many of them.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_LOOK);
    }
}

/// Where a request enters: it learns from where it came.
struct Entry<S> {
    service: S,
    peer: Peer,
    progress: Progress,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Entry<S>
where
    S: Service<Request<Upload>, Response = Response<B>> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Answering<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let version = request.version();
        let mut request = request.map(|body| Upload::new(body, version));
        request.extensions_mut().insert(self.peer);
        self.progress.answering(self.service.clone().call(request))
    }
}

//! Connections of HTTP/2, which gRPC needs.

mod unread;

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::answer::answer;
use super::limits::Limits;
use super::patient::Patient;
use unread::UnreadBodies;

/// Beginning of a connection of HTTP/2. No method of HTTP/1.1 begins so.
const PREFACE: &[u8; 3] = b"PRI";
/// Pause before a beginning that is too short is looked at again.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of concurrent requests of a connection.
const STREAMS: u32 = 256;
/// Time without a byte after which a client is asked for one, and time for its answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Returns true if a client begins with HTTP/2; `None` if it sends nothing in time, or the server stops.
pub(super) async fn is_begun(
    stream: &TcpStream,
    limit: Duration,
    mut stopped: watch::Receiver<bool>,
) -> Option<bool> {
    let seen = async {
        let mut start = [0; PREFACE.len()];
        loop {
            match stream.peek(&mut start).await {
                Ok(0) | Err(_) => return None,
                Ok(n) if start[..n] != PREFACE[..n] => return Some(false),
                Ok(n) if n == PREFACE.len() => return Some(true),
                Ok(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    tokio::select! {
        seen = tokio::time::timeout(limit, seen) => seen.ok().flatten(),
        _ = stopped.wait_for(|stopped| *stopped) => None,
    }
}

/// Serves the requests of a connection. After the stop it ends with the running ones.
pub(super) async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    router: Router,
    limits: Limits,
    mut stopped: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let unread = UnreadBodies::default();
    let watching = unread.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (answered, watching) = (answer(router.call(request)), watching.clone());
        async move { answered.await.map(|answer| watching.watch(answer)) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(Patient::new(stream, limits.write)), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = unread.expires(limits.write) => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = unread.expires(limits.write) => {}
    }
}

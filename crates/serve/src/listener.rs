//! The accept loop: connections with time-outs and caps, and a stop that drains.

mod answer;
#[cfg(feature = "grpc")]
mod http2;
mod limits;
pub(super) mod patient;

pub use limits::Limits;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::guard::OwnAddress;
use answer::answer;
use patient::Patient;

/// Pause after a failed accept, such as one with too many open connections.
const PAUSE: Duration = Duration::from_millis(50);

/// A bound socket and its limits.
pub struct Listener {
    socket: TcpListener,
    limits: Limits,
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::Tls>,
}

impl Listener {
    /// Creates a listener on a bound socket.
    pub fn new(socket: TcpListener, limits: Limits) -> Self {
        Self {
            socket,
            limits,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Returns the same listener with TLS, or without it for `None`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: Option<crate::tls::Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Passes requests to `router` until `stop` resolves. Then accepts no more connections, finishes the running requests
    /// within [`Limits::drain`], and returns.
    ///
    /// A handler that panics answers 500 with an id, which the log has beside the panic's message.
    pub async fn serve(self, router: Router, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let peers = PeerCounts::default();
        let mut stop = pin!(stop);
        loop {
            let taken = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, self.socket.accept().await)
            };
            let (place, (stream, address)) = tokio::select! {
                biased;
                () = &mut stop => break,
                (place, accepted) = taken => match accepted {
                    Ok(accepted) => (place, accepted),
                    Err(_) => {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                },
            };
            let Some(peer) = peers.enter(address.ip(), self.limits.connections_per_peer) else {
                continue;
            };
            let served = self.connection(stream, router.clone(), stopped.clone());
            tokio::spawn(async move {
                served.await;
                drop((place, peer));
            });
        }
        drop((self.socket, stopped));
        stopping.send_replace(true);
        // Every connection has a receiver until its end.
        let _ = tokio::time::timeout(self.limits.drain, stopping.closed()).await;
    }

    /// Serves one connection to its end. An error only concerns its client, which is gone.
    fn connection(
        &self,
        stream: TcpStream,
        router: Router,
        stopped: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        // Without `TCP_NODELAY` answers may be delayed until more data is sent; if it is not available, they are only
        // slower.
        let _ = stream.set_nodelay(true);
        let limits = self.limits;
        let own = OwnAddress(stream.local_addr().ok().map(|address| address.ip()));
        let router = router.layer(Extension(own));
        #[cfg(feature = "tls")]
        let tls = self.tls.clone();
        async move {
            #[cfg(feature = "tls")]
            if let Some(tls) = tls {
                let opened = tokio::time::timeout(limits.head, tls.accept(stream)).await;
                let Ok(Ok(stream)) = opened else { return };
                #[cfg(feature = "grpc")]
                if crate::tls::Tls::agreed_on_http2(&stream) {
                    return http2::speak(stream, router, limits, stopped).await;
                }
                return speak(stream, router, limits, stopped).await;
            }
            #[cfg(feature = "grpc")]
            match http2::is_begun(&stream, limits.head, stopped.clone()).await {
                Some(true) => return http2::speak(stream, router, limits, stopped).await,
                Some(false) => {}
                None => return,
            }
            speak(stream, router, limits, stopped).await;
        }
    }
}

/// Serves the requests of a connection. After the stop it ends with the running one. A WebSocket leaves the connection.
async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    router: Router,
    limits: Limits,
    mut stopped: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| answer(router.call(request)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes)
        .half_close(limits.half_close)
        .serve_connection(TokioIo::new(Patient::new(stream, limits.write)), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Number of connections of each address.
#[derive(Default, Clone)]
struct PeerCounts(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// One of the connections of an address, until it is dropped.
struct EnteredPeer(Option<(PeerCounts, IpAddr)>);

impl PeerCounts {
    /// Counts a connection; `None` if the address has too many.
    fn enter(&self, address: IpAddr, most: usize) -> Option<EnteredPeer> {
        if address.is_loopback() {
            return Some(EnteredPeer(None));
        }
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = peers.entry(address).or_default();
        (*count < most).then(|| {
            *count += 1;
            EnteredPeer(Some((self.clone(), address)))
        })
    }
}

impl Drop for EnteredPeer {
    fn drop(&mut self) {
        let Some((peers, address)) = &self.0 else { return };
        let mut peers = peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = peers.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                peers.remove(address);
            }
        }
    }
}

#[cfg(test)]
mod tests;

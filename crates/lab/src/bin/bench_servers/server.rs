//! A server in the process of its clients.

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use maverl::cli::Failure;
use maverl_serve::{Guard, Limits, Listener};

/// A running server. It stops when it is dropped.
pub(crate) struct LocalServer {
    pub(crate) url: String,
    _stop: oneshot::Sender<()>,
}

impl LocalServer {
    /// Serves routes at a free port.
    pub(crate) async fn start(router: Router) -> Result<Self, Failure> {
        let socket = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", socket.local_addr()?);
        let (stop, stopped) = oneshot::channel();
        let listener = Listener::new(socket, Limits::default());
        tokio::spawn(listener.serve(Guard::default().protect(router), async move {
            let _ = stopped.await;
        }));
        Ok(Self { url, _stop: stop })
    }
}

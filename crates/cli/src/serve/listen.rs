//! Options that every server has, and the course of a server.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use clap::Args;
use tokio::net::TcpListener;

use crate::{Failure, number};
use maverl::output;
use maverl::train::Interrupt;
use maverl_serve::{
    Guard, Health, Limits, Listener, Ready, ServerMetrics, is_loopback, with_common_routes,
};

/// Number of files that a server opens beside its connections.
#[cfg(unix)]
const OTHER_FILES: u64 = 128;

/// Options of a listener.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Server")]
pub(super) struct ListenArgs {
    /// Where to listen; port 0 takes a free one. The first line of standard output has the address.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    address: String,
    /// Environment variable that holds a key; clients send one as `Authorization: Bearer KEY`. May be given several times.
    #[arg(long, value_name = "NAME")]
    key_env: Vec<String>,
    /// File of keys, one a line, that no other user may read (mode 600). May be given several times.
    #[arg(long, value_name = "FILE")]
    key_file: Vec<PathBuf>,
    /// Listen beyond this machine although anyone who reaches the address may use the server.
    #[arg(long, conflicts_with_all = ["key_env", "key_file"])]
    no_key: bool,
    /// A further name under which clients may address the server, beside `localhost` and IP addresses; or an address whose
    /// pages may use it. May be given several times.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Certificate chain in PEM; the server then speaks HTTPS.
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM.
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Most connections at once; further ones wait.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = number::from_1)]
    max_connections: NonZeroUsize,
    /// Seconds that a stop waits for running requests.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = number::seed)]
    drain_s: u64,
}

/// A bound server.
pub(super) struct Server {
    listener: Listener,
    guard: Guard,
    pub(super) health: Health,
    pub(super) url: String,
}

impl ListenArgs {
    /// Binds the address, and prints it as the first line of standard output.
    pub(super) async fn open(&self, limits: Limits) -> Result<Server, Failure> {
        self.has_port()?;
        let guard = self.guard()?;
        #[cfg(feature = "tls")]
        let (tls, scheme) = (self.tls()?, if self.tls_cert.is_some() { "https" } else { "http" });
        #[cfg(not(feature = "tls"))]
        let scheme = "http";
        self.check_exposed(&guard, scheme)?;
        #[cfg(unix)]
        files_for(self.max_connections.get());
        let socket = TcpListener::bind(&self.address)
            .await
            .map_err(|error| Failure(format!("cannot listen at {}: {error}", self.address)))?;
        let address: SocketAddr = socket.local_addr()?;
        let limits = Limits {
            connections: self.max_connections.get(),
            drain: Duration::from_secs(self.drain_s),
            ..limits
        };
        let listener = Listener::new(socket, limits);
        #[cfg(feature = "tls")]
        let listener = listener.with_tls(tls);
        let url = format!("{scheme}://{address}");
        output::print(&format!("{}\n", serde_json::json!({"listening": url})))?;
        Ok(Server { listener, guard, health: Health::default(), url })
    }

    /// Refuses an address that is not HOST:PORT.
    fn has_port(&self) -> Result<(), Failure> {
        let address = &self.address;
        let (host, port) = address.rsplit_once(':').unwrap_or(("", address));
        let port = port.parse::<u16>();
        if !host.is_empty() && port.is_ok() {
            return Ok(());
        }
        let port = port.unwrap_or(8000);
        Err(Failure(format!(
            "`--address` is `{address}`; write HOST:PORT, such as 127.0.0.1:{port}"
        )))
    }

    fn guard(&self) -> Result<Guard, Failure> {
        let mut guard = Guard { hosts: self.host.clone(), ..Guard::default() };
        for name in &self.key_env {
            guard.keys.add_variable(name).map_err(Failure)?;
        }
        for path in &self.key_file {
            guard.keys.add_file(path).map_err(Failure)?;
        }
        Ok(guard)
    }

    /// Refuses, or warns of, an address that other machines reach.
    fn check_exposed(&self, guard: &Guard, scheme: &str) -> Result<(), Failure> {
        let address = &self.address;
        if is_loopback(address) {
            return Ok(());
        }
        if guard.keys.is_empty() && !self.no_key {
            return Err(Failure(format!(
                "`--address {address}` is reached from other machines, and there is no key; add `--key-env NAME` or \
                 `--key-file FILE`, or `--no-key` if anyone may use the server"
            )));
        }
        if !guard.keys.is_empty() && scheme == "http" {
            output::tell(format_args!(
                "warning: keys are sent to {address} without encryption; add `--tls-cert` and `--tls-key`, or a proxy \
                 that has them"
            ));
        }
        Ok(())
    }

    #[cfg(feature = "tls")]
    fn tls(&self) -> Result<Option<maverl_serve::Tls>, Failure> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        maverl_serve::Tls::read(certificate, key).map(Some).map_err(Failure)
    }
}

/// Raises the limit of open files of this process as far as the connections need it, and warns if the system refuses.
#[cfg(unix)]
fn files_for(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let current = limit.maximum.map_or(wanted, |most| most.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    if raised.is_err() || current < wanted {
        output::tell(format_args!(
            "warning: `--max-connections {connections}` needs {wanted} open files, and the system allows fewer (`ulimit -n`); \
             further connections wait"
        ));
    }
}

impl Server {
    /// Serves a router and the common routes until the first signal, then finishes the running requests.
    pub(super) async fn run(
        self,
        router: Router,
        name: &'static str,
        metrics: ServerMetrics,
        interrupt: &Interrupt,
    ) {
        let router = with_common_routes(router, name, self.health.clone(), metrics);
        self.run_as_is(router, interrupt).await;
    }

    /// Serves a router until the first signal, then finishes the running requests.
    pub(super) async fn run_as_is(self, router: Router, interrupt: &Interrupt) {
        let health = self.health.clone();
        let stop = async {
            interrupt.or(std::future::pending::<()>()).await;
            health.enter(Ready::Draining);
            output::tell(format_args!(
                "stopping once the requests under way are answered; again to stop now"
            ));
        };
        self.listener.serve(self.guard.protect(router), stop).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        listen: ListenArgs,
    }

    fn opened(options: &[&str]) -> Result<(), String> {
        let words = ["x"].iter().chain(options);
        let args = Cli::try_parse_from(words).map_err(|error| error.to_string())?.listen;
        args.has_port().map_err(|Failure(told)| told)?;
        let guard = args.guard().map_err(|Failure(told)| told)?;
        args.check_exposed(&guard, "http").map_err(|Failure(told)| told)
    }

    #[test]
    fn an_address_without_a_host_or_a_port_is_answered_with_the_form() {
        for (address, such) in [
            ("18313", "127.0.0.1:18313"),
            (":18313", "127.0.0.1:18313"),
            ("localhost", "127.0.0.1:8000"),
            ("127.0.0.1:99999", "127.0.0.1:8000"),
        ] {
            let told = opened(&["--address", address]).unwrap_err();
            let wanted = format!("`--address` is `{address}`; write HOST:PORT, such as {such}");
            assert_eq!(told, wanted);
        }
        assert_eq!(opened(&["--address", "[::1]:0"]), Ok(()));
    }

    #[test]
    fn an_address_beyond_this_machine_needs_a_key_or_an_explicit_option() {
        assert_eq!(opened(&["--address", "127.0.0.1:0"]), Ok(()));
        let told = opened(&["--address", "0.0.0.0:0"]).unwrap_err();
        assert!(told.contains("there is no key; add `--key-env NAME`"), "{told}");
        assert_eq!(opened(&["--address", "0.0.0.0:0", "--no-key"]), Ok(()));
        let told = opened(&["--key-env", "MAVERL_NO_SUCH_KEY"]).unwrap_err();
        assert!(
            told.contains("`MAVERL_NO_SUCH_KEY`, which is to hold a key, is not set"),
            "{told}"
        );
        assert!(opened(&["--key", "secret-key"]).is_err(), "a key is never an option");
    }
}

//! Access to a server: keys, and the `Host` and `Origin` of requests.
//!
//! A page in a browser can send requests to a server on the user's machine, and by DNS rebinding under a name of its own.
//! `Host` must therefore be a loopback name, an address, or a listed name: a rebound name is none of them. `Origin`, which
//! browsers send with requests of pages, must be one of these too.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};

use super::{Keys, Refusal};

/// Paths that need no key.
const OPEN: [&str; 1] = ["/health"];

/// Conditions on every request.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Accepted keys; every client is accepted without any.
    pub keys: Keys,
    /// Accepted names of the server, beside loopback names and addresses.
    pub hosts: Vec<String>,
}

/// The client of a request by its key, an extension of every request: its number among the keys, 0 without keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(pub usize);

impl Guard {
    /// Returns a router that refuses requests which violate a condition: 403 for `Host` and `Origin`, 401 for the key.
    pub fn protect(self, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::new(self), check))
    }

    fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<Client, Refusal> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
        let authority = uri.authority().map(Authority::as_str);
        if let Some(host) = text(HOST).or(authority)
            && !self.knows(host)
        {
            return Err(forbidden(format!(
                "this server is not called {host:?}; `--host NAME` adds a name that clients may use"
            )));
        }
        if let Some(origin) = text(ORIGIN) {
            let host = origin.split_once("://").map_or(origin, |(_, host)| host);
            if !self.knows(host) {
                return Err(forbidden(format!(
                    "pages of {origin:?} may not use this server; `--host NAME` adds a name"
                )));
            }
        }
        if self.keys.is_empty() || OPEN.contains(&uri.path()) {
            return Ok(Client(0));
        }
        let key = text(AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        key.and_then(|key| self.keys.find(key)).map(Client).ok_or_else(|| {
            let message =
                "the request has no key of this server; send it as `Authorization: Bearer KEY`";
            Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
        })
    }

    /// Returns true if a host, with or without its port, is a name of this server.
    fn knows(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Returns true if only programs of this machine reach an address of `HOST:PORT`.
pub fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn check(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    match guard.admit(request.uri(), request.headers()) {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        #[cfg(feature = "grpc")]
        Err(refusal) if super::grpc::is_request(request.headers()) => {
            tonic::Status::from(refusal).into_http()
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn forbidden(message: String) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "forbidden_host", message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn admitted(
        guard: &Guard,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Client, u16> {
        let headers = headers.iter().map(|(name, value)| {
            (axum::http::HeaderName::from_static(name), value.parse().unwrap())
        });
        let headers: HeaderMap = headers.collect();
        guard.admit(&path.parse().unwrap(), &headers).map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn a_name_that_was_not_listed_is_no_host_and_no_origin() {
        let guard = Guard { hosts: vec!["gpu.example".to_owned()], ..Guard::default() };
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8000",
            "[::1]:8000",
            "10.1.2.3",
            "gpu.example:1",
        ] {
            assert_eq!(admitted(&guard, "/v1", &[("host", host)]), Ok(Client(0)), "{host}");
            let origin = format!("http://{host}");
            let headers = [("host", "localhost"), ("origin", origin.as_str())];
            assert_eq!(admitted(&guard, "/v1", &headers), Ok(Client(0)), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""] {
            assert_eq!(admitted(&guard, "/health", &[("host", host)]), Err(403), "{host}");
            let origin = format!("https://{host}");
            let headers = [("host", "localhost"), ("origin", origin.as_str())];
            assert_eq!(admitted(&guard, "/v1", &headers), Err(403), "{host}");
        }
        let headers = [("host", "localhost"), ("origin", "null")];
        assert_eq!(admitted(&guard, "/v1", &headers), Err(403));
    }

    #[test]
    fn a_request_needs_one_of_the_keys_except_for_the_health() {
        let mut guard = Guard::default();
        guard.keys.add("a", "key-one-1").unwrap();
        guard.keys.add("b", "key-two-2").unwrap();
        let with =
            |key| admitted(&guard, "/v1/models", &[("host", "localhost"), ("authorization", key)]);
        assert_eq!(with("Bearer key-one-1"), Ok(Client(0)));
        assert_eq!(with("bearer key-two-2"), Ok(Client(1)));
        for wrong in ["Bearer key-one-2", "Basic key-one-1", "key-one-1", "Bearer", "Bearer "] {
            assert_eq!(with(wrong), Err(401), "{wrong}");
        }
        assert_eq!(admitted(&guard, "/v1/models", &[]), Err(401));
        assert_eq!(admitted(&guard, "/health", &[]), Ok(Client(0)));
    }

    #[test]
    fn loopback_addresses_are_told_from_others() {
        for address in ["127.0.0.1:8000", "localhost:0", "[::1]:80", "127.8.8.8:1"] {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["0.0.0.0:8000", "[::]:80", "10.0.0.1:80", "gpu.example:80"] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}

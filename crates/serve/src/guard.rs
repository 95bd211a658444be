//! Access to a server: keys, and the `Host` and `Origin` of requests.
//!
//! A page in a browser can send requests to a server on the user's machine, and by DNS rebinding under a name of its own.
//! `Host` must therefore be a loopback name, an address, or a listed name: a rebound name is none of them. `Origin`, which
//! browsers send with requests of pages, must be of this machine or listed: a loopback name or address, the address of this
//! server, or a listed name. The page of any other address is not, since WebSockets have no same-origin rule.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};

use crate::key::Keys;
use crate::refusal::{Refusal, in_form_of_client, is_of_anthropic};

/// Header with the key in Anthropic's protocol.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Paths that need no key.
const OPEN: [&str; 1] = ["/health"];

/// Conditions on every request.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Accepted keys; every client is accepted without any.
    pub keys: Keys,
    /// Accepted names of the server, beside loopback names and addresses.
    pub hosts: Vec<String>,
    /// True for a server of this machine alone: addresses of other machines are no names of it.
    pub local: bool,
}

/// The client of a request by its key, an extension of every request: its number among the keys, 0 without keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientNumber(pub usize);

impl ClientNumber {
    /// Returns the client of a request that a guard admitted.
    pub(super) fn of(request: &Request) -> Self {
        request.extensions().get().copied().unwrap_or(Self(0))
    }
}

impl Guard {
    /// Returns a router that refuses requests which violate a condition: 403 for `Host` and `Origin`, 401 for the key.
    pub fn protect(self, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::new(self), check))
    }

    /// Returns the client of a request; `own` is the address at which it came.
    fn admit(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        own: Option<IpAddr>,
    ) -> Result<ClientNumber, Refusal> {
        let authority = uri.authority().map(Authority::as_str);
        for host in only_value(headers, &HOST)?.into_iter().chain(authority) {
            if !host_of(host).is_some_and(|host| self.is_host(host)) {
                let remedy = if self.local {
                    "its names are localhost, 127.0.0.1 and [::1]"
                } else {
                    "`--host NAME` adds a name that clients may use"
                };
                return Err(forbidden(format!("this server is not called {host:?}; {remedy}")));
            }
        }
        if let Some(origin) = only_value(headers, &ORIGIN)? {
            let host = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
            if !host.and_then(host_of).is_some_and(|host| self.is_origin(host, own)) {
                let remedy = if self.local {
                    "only its own may"
                } else {
                    "`--host NAME` adds a name or an address"
                };
                let message = format!("pages of {origin:?} may not use this server; {remedy}");
                return Err(forbidden(message));
            }
        }
        if self.keys.is_empty() || OPEN.contains(&uri.path()) {
            return Ok(ClientNumber(0));
        }
        let found = sent_keys(headers).find_map(|key| self.keys.find(key));
        found.map(ClientNumber).ok_or_else(|| {
            let message = "the request has no key of this server; send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`";
            Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
        })
    }

    /// Returns true for a host that this server may have. A rebound name is no address.
    fn is_host(&self, host: &str) -> bool {
        let address = host.parse::<IpAddr>().map(|address| address.to_canonical());
        address.is_ok_and(|address| !self.local || address.is_loopback()) || self.is_named(host)
    }

    /// Returns true for the host of a page that may use this server, whose address is `own`.
    fn is_origin(&self, host: &str, own: Option<IpAddr>) -> bool {
        let own = own.map(|own| own.to_canonical());
        let address = host.parse::<IpAddr>().map(|address| address.to_canonical());
        address.is_ok_and(|address| address.is_loopback() || own == Some(address))
            || self.is_named(host)
    }

    /// Returns true for the name of this machine, and for listed names.
    fn is_named(&self, host: &str) -> bool {
        host.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }
}

/// Returns the keys of a request: of its header `Authorization`, then of `x-api-key`, which Anthropic's clients send.
pub(super) fn sent_keys(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = header_values(headers, &AUTHORIZATION).next().and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let other = header_values(headers, &API_KEY).next().map(str::trim);
    bearer.into_iter().chain(other)
}

/// Returns the values of a header.
fn header_values<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h str> + use<'h> {
    let values = headers.get_all(name).into_iter();
    values.map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

/// Returns the value of a header that a request has once.
fn only_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refusal> {
    let mut values = header_values(headers, name);
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(forbidden(format!("the request has two header lines `{name}`"))),
        (value, None) => Ok(value),
    }
}

/// Returns the host of `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`; `None` for any other text.
fn host_of(text: &str) -> Option<&str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, port)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let digits = match port.strip_prefix(':') {
        Some(digits) => digits,
        None if port.is_empty() => "",
        None => return None,
    };
    (!host.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(host)
}

/// Address at which a request came, an extension of every request.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnAddress(pub(super) Option<IpAddr>);

/// Returns true if only programs of this machine reach an address of `HOST:PORT`.
pub fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Checks a request. Its answer has the form that its client knows.
async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let of_anthropic = is_of_anthropic(request.uri().path(), request.headers());
    let response = admit(&guard, request, next).await;
    if of_anthropic { in_form_of_client(response) } else { response }
}

async fn admit(guard: &Guard, mut request: Request, next: Next) -> Response {
    let own = request.extensions().get().and_then(|&OwnAddress(own)| own);
    match guard.admit(request.uri(), request.headers(), own) {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        #[cfg(feature = "grpc")]
        Err(refusal) if crate::refusal::status::is_grpc(request.headers()) => {
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
    ) -> Result<ClientNumber, u16> {
        let headers = headers.iter().map(|(name, value)| {
            (axum::http::HeaderName::from_static(name), value.parse().unwrap())
        });
        let headers: HeaderMap = headers.collect();
        let own = Some("10.0.0.5".parse().unwrap());
        let client = guard.admit(&path.parse().unwrap(), &headers, own);
        client.map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn a_name_that_was_not_listed_is_no_host_and_no_origin() {
        let guard = Guard { hosts: vec!["gpu.example".to_owned()], ..Guard::default() };
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8000",
            "127.8.8.8",
            "[::1]:8000",
            "[::ffff:127.0.0.1]",
            "10.0.0.5:8000",
            "[::ffff:10.0.0.5]:1",
            "gpu.example:1",
            "GPU.example",
        ] {
            assert_eq!(admitted(&guard, "/v1", &[("host", host)]), Ok(ClientNumber(0)), "{host}");
            let origin = format!("http://{host}");
            let headers = [("host", "localhost"), ("origin", origin.as_str())];
            assert_eq!(admitted(&guard, "/v1", &headers), Ok(ClientNumber(0)), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""] {
            assert_eq!(admitted(&guard, "/health", &[("host", host)]), Err(403), "{host}");
            let origin = format!("https://{host}");
            let headers = [("host", "localhost"), ("origin", origin.as_str())];
            assert_eq!(admitted(&guard, "/v1", &headers), Err(403), "{host}");
        }
    }

    #[test]
    fn an_address_of_another_machine_is_a_host_and_no_origin() {
        let guard = Guard::default();
        for host in [
            "203.0.113.6",
            "10.1.2.3:80",
            "0.0.0.0:8000",
            "[2001:db8::1]",
            "[::]:80",
            "[fe80::1]:8000",
        ] {
            assert_eq!(admitted(&guard, "/ws", &[("host", host)]), Ok(ClientNumber(0)), "{host}");
            for scheme in ["http", "https"] {
                let origin = format!("{scheme}://{host}");
                let headers = [("host", "127.0.0.1"), ("origin", origin.as_str())];
                assert_eq!(admitted(&guard, "/ws", &headers), Err(403), "{origin}");
            }
        }
        let listed = Guard { hosts: vec!["203.0.113.6".to_owned()], ..Guard::default() };
        let headers = [("host", "127.0.0.1"), ("origin", "http://203.0.113.6:8080")];
        assert_eq!(admitted(&listed, "/ws", &headers), Ok(ClientNumber(0)));
    }

    #[test]
    fn a_server_of_this_machine_has_no_address_of_another() {
        let guard = Guard { local: true, ..Guard::default() };
        for host in ["localhost:1", "127.0.0.1:8000", "127.8.8.8", "[::1]:80", "[::ffff:127.0.0.1]"]
        {
            assert_eq!(admitted(&guard, "/", &[("host", host)]), Ok(ClientNumber(0)), "{host}");
        }
        for host in ["10.0.0.5:8000", "203.0.113.6", "0.0.0.0", "[::]:80", "gpu.example"] {
            assert_eq!(admitted(&guard, "/", &[("host", host)]), Err(403), "{host}");
        }
    }

    #[test]
    fn a_text_that_only_begins_like_a_host_is_refused() {
        let guard = Guard { hosts: vec!["gpu.example".to_owned()], ..Guard::default() };
        for host in [
            "[::1].evil",
            "[::1]evil:80",
            "[::1",
            "[127.0.0.1]",
            "[localhost]",
            "[::1]:80:80",
            "[fe80::1%25eth0]",
            "::1",
            "127.0.0.1:80.evil.example",
            "127.0.0.1:80@evil.example",
            "localhost@evil.example",
            "user@localhost",
            "localhost/evil",
            "localhost.",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            " localhost",
            "gpu.example.evil",
            ":80",
        ] {
            assert_eq!(admitted(&guard, "/v1", &[("host", host)]), Err(403), "{host}");
            let origin = format!("http://{host}");
            let headers = [("host", "localhost"), ("origin", origin.as_str())];
            assert_eq!(admitted(&guard, "/v1", &headers), Err(403), "{host}");
        }
        let origins = [
            "null",
            "",
            "localhost",
            "//localhost",
            "ws://localhost",
            "file://localhost",
            "http://localhost/",
            "http://",
            "chrome-extension://localhost",
            "http:localhost",
        ];
        for origin in origins {
            let headers = [("host", "localhost"), ("origin", origin)];
            assert_eq!(admitted(&guard, "/v1", &headers), Err(403), "{origin:?}");
        }
    }

    #[test]
    fn a_second_line_of_the_host_or_the_origin_is_refused() {
        let guard = Guard::default();
        for name in ["host", "origin"] {
            for (first, second) in [("localhost", "evil.example"), ("localhost", "localhost")] {
                let mut headers = HeaderMap::new();
                headers.insert("host", "localhost".parse().unwrap());
                headers.remove(name);
                let prefix = if name == "origin" { "http://" } else { "" };
                for value in [first, second] {
                    headers.append(name, format!("{prefix}{value}").parse().unwrap());
                }
                let refused = guard.admit(&"/v1".parse().unwrap(), &headers, None).unwrap_err();
                assert!(refused.message.contains("two header lines"), "{}", refused.message);
            }
        }
        let headers = [("host", "localhost")];
        assert_eq!(admitted(&guard, "http://evil.example/v1", &headers), Err(403));
        assert_eq!(admitted(&guard, "http://127.0.0.1:8000/v1", &headers), Ok(ClientNumber(0)));
    }

    #[test]
    fn a_request_needs_one_of_the_keys_except_for_the_health() {
        let mut guard = Guard::default();
        guard.keys.add("a", "key-one-1").unwrap();
        guard.keys.add("b", "key-two-2").unwrap();
        let with =
            |key| admitted(&guard, "/v1/models", &[("host", "localhost"), ("authorization", key)]);
        assert_eq!(with("Bearer key-one-1"), Ok(ClientNumber(0)));
        assert_eq!(with("bearer key-two-2"), Ok(ClientNumber(1)));
        for wrong in ["Bearer key-one-2", "Basic key-one-1", "key-one-1", "Bearer", "Bearer "] {
            assert_eq!(with(wrong), Err(401), "{wrong}");
        }
        let other =
            |key| admitted(&guard, "/v1/models", &[("host", "localhost"), ("x-api-key", key)]);
        assert_eq!((other("key-two-2"), other("key-two-3")), (Ok(ClientNumber(1)), Err(401)));
        let both = [("authorization", "Bearer none"), ("x-api-key", "key-one-1")];
        assert_eq!(admitted(&guard, "/v1/models", &both), Ok(ClientNumber(0)));
        assert_eq!(admitted(&guard, "/v1/models", &[]), Err(401));
        assert_eq!(admitted(&guard, "/health", &[]), Ok(ClientNumber(0)));
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

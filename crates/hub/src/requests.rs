//! Requests to the hub: the token goes to the hub alone, redirects and bytes are counted, and every wait has an end.

use std::io::{self, Read};
use std::path::PathBuf;

use ureq::config::ConfigBuilder;
use ureq::http::header::{HeaderMap, LOCATION};
use ureq::http::{Response, Uri};
use ureq::typestate::AgentScope;
use ureq::{Agent, Body, RequestBuilder};

use super::Hub;
use crate::retry;

/// Number of redirects that are followed.
const REDIRECTS: usize = 10;
/// Bytes that arrive at least in the time of a wait; a server that sends fewer makes no progress.
const LEAST: usize = 1024;

/// Failure of a request, or of storing its answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HubFailure {
    /// A server refuses the request, or is out of reach.
    #[error("{at}: {error}")]
    Request {
        /// Scheme, host and port of the server.
        at: String,
        /// The reason.
        #[source]
        error: Box<ureq::Error>,
    },
    /// A server answers as no hub does.
    #[error("{at} does not answer as the hub does: {what}")]
    Odd {
        /// Scheme, host and port of the server.
        at: String,
        /// The difference.
        what: String,
    },
    /// A file is not what the hub lists.
    #[error("it came damaged: it is not what the hub lists; try again")]
    Damaged,
    /// Another process holds the lock of a file, and has written nothing for a while.
    #[error("another process is downloading it ({}); wait for that", .0.display())]
    Busy(PathBuf),
    /// The cache cannot be written.
    #[error("{0}")]
    Cache(#[from] io::Error),
}

/// An answer to `GET`, after its redirects.
pub(super) struct HubAnswer {
    /// Address that answers at last.
    pub(super) url: String,
    /// Headers of the first answer, which is the hub's own.
    pub(super) first: HeaderMap,
    pub(super) response: Response<Body>,
}

/// A client of a hub.
pub(super) struct Requests<'a> {
    hub: &'a Hub,
    agent: Agent,
}

impl<'a> Requests<'a> {
    /// Creates a client that waits for a part of an answer no longer than the hub's patience.
    pub(super) fn new(hub: &'a Hub) -> Self {
        Self { hub, agent: agent_options(hub.patience_s).build().into() }
    }

    /// Returns the answer to `GET`, from a byte on.
    pub(super) fn get(&self, url: &str, range: Option<&str>) -> Result<HubAnswer, HubFailure> {
        let (mut url, mut first) = (url.to_owned(), None);
        for _ in 0..=REDIRECTS {
            let mut request = self.hub.with_token(self.agent.get(&url), &url);
            if let Some(range) = range {
                request = request.header("Range", range);
            }
            let response = request.call().map_err(|error| failure_of(&url, error))?;
            let target = redirect(&response).map(|target| join_address(&url, &target));
            let first = first.get_or_insert_with(|| response.headers().clone());
            let Some(target) = target else {
                return Ok(HubAnswer { url, first: std::mem::take(first), response });
            };
            url = target.map_err(|what| odd(&url, what))?;
        }
        Err(odd(&url, format!("more than {REDIRECTS} redirects")))
    }

    /// Returns the text of an answer, up to a number of bytes.
    pub(super) fn text(&self, url: &str, most: usize) -> Result<String, HubFailure> {
        let answer = self.get(url, None)?;
        let (mut text, mut parts) = (Vec::new(), Parts::new(answer, self.hub.wait()));
        while let Some(part) = parts.next_part()? {
            text.extend_from_slice(part);
            if text.len() > most {
                return Err(odd(url, format!("more than {most} bytes")));
            }
        }
        String::from_utf8(text).map_err(|error| odd(url, error.to_string()))
    }
}

/// The body of an answer, as it comes.
pub(super) struct Parts {
    url: String,
    reader: ureq::BodyReader<'static>,
    buffer: Vec<u8>,
    wait: retry::Wait,
    /// Bytes since the last progress.
    arrived: usize,
}

impl Parts {
    pub(super) fn new(answer: HubAnswer, wait: retry::Wait) -> Self {
        let reader = answer.response.into_body().into_reader();
        Self { url: answer.url, reader, buffer: vec![0; 1 << 18], wait, arrived: 0 }
    }

    /// Returns the next bytes; `None` at the end.
    pub(super) fn next_part(&mut self) -> Result<Option<&[u8]>, HubFailure> {
        let read = self.reader.read(&mut self.buffer);
        let read = read.map_err(|error| failure_of(&self.url, error.into()))?;
        self.arrived += read;
        if self.arrived >= LEAST {
            self.wait.goes_on();
            self.arrived = 0;
        } else if self.wait.is_over() {
            return Err(failure_of(&self.url, ureq::Error::Timeout(ureq::Timeout::PerRead)));
        }
        Ok((read > 0).then(|| &self.buffer[..read]))
    }
}

impl Hub {
    /// Begins a wait for a server, or for another process.
    pub(super) fn wait(&self) -> retry::Wait {
        retry::Wait::begin(retry::seconds(self.patience_s))
    }

    /// Adds the token to a request, if its address has the hub's own scheme, host and port.
    pub(super) fn with_token<B>(&self, request: RequestBuilder<B>, url: &str) -> RequestBuilder<B> {
        match self.bearer_for(url) {
            Some(bearer) => request.header("Authorization", bearer),
            None => request,
        }
    }

    fn bearer_for(&self, url: &str) -> Option<String> {
        let own = origin(&self.endpoint)?;
        let token = self.token.as_deref()?;
        (origin(url)? == own).then(|| format!("Bearer {token}"))
    }
}

/// Returns the options of an agent that follows no redirects, and waits for a part of an answer no longer than a time.
pub(super) fn agent_options(patience_s: f64) -> ConfigBuilder<AgentScope> {
    let patience = retry::seconds(patience_s);
    Agent::config_builder()
        .max_redirects(0)
        .accept_encoding("identity")
        .user_agent(concat!("maverl/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(patience))
        .timeout_connect(Some(patience))
        .timeout_recv_response(Some(patience))
        .timeout_per_read(Some(patience))
        .timeout_per_write(Some(patience))
}

/// Returns the failure of a request to an address.
pub(super) fn failure_of(url: &str, error: ureq::Error) -> HubFailure {
    HubFailure::Request { at: server(url), error: Box::new(error) }
}

/// Returns the failure of an answer that is none of a hub.
pub(super) fn odd(url: &str, what: impl Into<String>) -> HubFailure {
    HubFailure::Odd { at: server(url), what: what.into() }
}

/// Returns scheme, host and port of an address. Equal ones are the same server to a key.
fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_lowercase();
    let usual = if scheme == "https" { 443 } else { 80 };
    let port = uri.port_u16().unwrap_or(usual);
    Some((scheme, uri.host()?.to_lowercase(), port))
}

/// Returns the server of an address, for messages: without user, path and query.
fn server(url: &str) -> String {
    match origin(url) {
        Some((scheme, host, port)) if port == 443 || port == 80 => format!("{scheme}://{host}"),
        Some((scheme, host, port)) => format!("{scheme}://{host}:{port}"),
        None => format!("{url:?}"),
    }
}

/// Returns where a redirect leads to, or an empty text if it does not say; `None` if the answer is no redirect.
fn redirect(response: &Response<Body>) -> Option<String> {
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
    redirects.then(|| target.unwrap_or_default().to_owned())
}

/// Returns the address of a redirect from another one. TLS is never given up.
fn join_address(from: &str, target: &str) -> Result<String, String> {
    followed_address(from, target).ok_or_else(|| format!("a redirect to {target:?}"))
}

fn followed_address(from: &str, target: &str) -> Option<String> {
    let base: Uri = from.parse().ok()?;
    let scheme = base.scheme_str().unwrap_or("http");
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let target_path = target.split('#').next().unwrap_or_default();
    let url = if target_path.is_empty() {
        return None;
    } else if target_path.starts_with("//") {
        format!("{scheme}:{target_path}")
    } else if target_path.starts_with('/') {
        format!("{scheme}://{authority}{target_path}")
    } else if target_path.contains("://") {
        target_path.to_owned()
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{target_path}")
    };
    match (scheme, origin(&url)) {
        ("https", Some((to, ..))) if to == "https" => Some(url),
        ("http", Some((to, ..))) if to == "http" || to == "https" => Some(url),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_token_is_for_the_scheme_the_host_and_the_port_of_the_hub_alone() {
        let hub = |endpoint: &str| Hub {
            endpoint: endpoint.to_owned(),
            cache: PathBuf::new(),
            token: Some("secret".to_owned()),
            offline: false,
            patience_s: 1.0,
        };
        let cases = [
            ("https://hub.example", "https://hub.example/a?b", true),
            ("https://hub.example", "https://HUB.example:443/a", true),
            ("https://hub.example", "https://me:x@hub.example/", true),
            ("https://hub.example", "http://hub.example/a", false),
            ("https://hub.example", "http://hub.example:443/a", false),
            ("https://hub.example", "https://hub.example:444/a", false),
            ("https://hub.example", "https://cdn.hub.example/a", false),
            ("https://hub.example", "https://hub.example.evil/a", false),
            ("https://hub.example", "https://hub.example@evil/a", false),
            ("https://hub.example", "https://evil/hub.example", false),
            ("https://hub.example", "https://hub.example./a", false),
            ("https://hub.example", "hub.example/a", false),
            ("http://127.0.0.1:80/mirror", "http://127.0.0.1/x", true),
            ("http://127.0.0.1:8000", "http://127.0.0.2:8000/x", false),
            ("http://127.0.0.1:8000", "http://127.0.0.1:8001/x", false),
            ("http://127.0.0.1:8000", "http://localhost:8000/x", false),
            ("http://[::1]:8000", "http://[::1]:8000/x", true),
        ];
        for (endpoint, url, wanted) in cases {
            assert_eq!(hub(endpoint).bearer_for(url).is_some(), wanted, "{endpoint} {url}");
        }
    }

    #[test]
    fn a_redirect_is_followed_to_addresses_of_every_form_and_never_from_tls_to_none() {
        let from = "https://hub/org/name/resolve/main/a.json?x=1";
        let cases = [
            ("https://cdn:9/b?c=d#e", Ok("https://cdn:9/b?c=d")),
            ("//cdn/b", Ok("https://cdn/b")),
            ("/b?c", Ok("https://hub/b?c")),
            ("b", Ok("https://hub/org/name/resolve/main/b")),
            ("http://hub/b", Err(r#"a redirect to "http://hub/b""#)),
            ("file:///etc/passwd", Err(r#"a redirect to "file:///etc/passwd""#)),
            ("", Err(r#"a redirect to """#)),
            ("https://", Err(r#"a redirect to "https://""#)),
            ("#x", Err(r##"a redirect to "#x""##)),
        ];
        for (target, wanted) in cases {
            let wanted = wanted.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(join_address(from, target), wanted, "{target}");
        }
        assert_eq!(join_address("http://hub/a", "https://cdn/b").unwrap(), "https://cdn/b");
        assert!(join_address("http://hub/a", "ftp://cdn/b").is_err());
    }
}

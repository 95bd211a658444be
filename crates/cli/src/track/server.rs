//! Requests to the server of a tracker.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Longest time of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest pause that a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Characters of an answer that messages show.
const SHOWN: usize = 200;

/// Reason that something was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SendFailure {
    /// A later attempt may have another end; the pause is at least that long.
    Later(String, Duration),
    /// Every attempt has this end.
    Refused(String),
}

impl fmt::Display for SendFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later(message, _) | Self::Refused(message) => f.write_str(message),
        }
    }
}

/// Result of sending something.
pub(super) type SendResult<T = ()> = Result<T, SendFailure>;

/// A server, and the header with which it knows the user.
pub(super) struct Server {
    agent: Agent,
    url: String,
    header: Option<(&'static str, String)>,
}

/// Returns a text as a value of the query of an address.
pub(super) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns an address without what only its owner may know: user and password before the host, and the query.
fn public_address(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or(url);
    let Some((scheme, rest)) = plain.split_once("://") else { return plain.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or(host);
    format!("{scheme}://{host}{path}")
}

/// An answer with its status.
pub(super) struct TrackerAnswer {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Server {
    pub(super) fn new(url: &str, header: Option<(&'static str, String)>) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("maverl/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into(), url: url.trim_end_matches('/').to_owned(), header }
    }

    /// Returns the address, for messages and files: without user, password and query.
    pub(super) fn address(&self) -> String {
        public_address(&self.url)
    }

    /// Sends JSON with `POST`, and returns the JSON of the answer.
    pub(super) fn post(&self, path: &str, body: &Value) -> SendResult<Value> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.post(&url);
        if let Some((name, value)) = &self.header {
            request = request.header(*name, value);
        }
        self.json(path, &self.answer(request.send_json(body))?)
    }

    /// Asks with `GET`; the answer may have any status.
    pub(super) fn ask(&self, path: &str) -> SendResult<TrackerAnswer> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.get(&url);
        if let Some((name, value)) = &self.header {
            request = request.header(*name, value);
        }
        self.answer(request.call())
    }

    /// Sends bytes with `PUT`.
    pub(super) fn put(&self, path: &str, bytes: &[u8]) -> SendResult {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.put(&url);
        if let Some((name, value)) = &self.header {
            request = request.header(*name, value);
        }
        let answer = self.answer(request.send(bytes))?;
        if answer.status < 300 { Ok(()) } else { Err(self.refusal(path, &answer)) }
    }

    /// Returns the JSON of an answer with status 200.
    pub(super) fn json(&self, path: &str, answer: &TrackerAnswer) -> SendResult<Value> {
        if answer.status != 200 {
            return Err(self.refusal(path, answer));
        }
        let parsed = serde_json::from_str(&answer.text);
        parsed.map_err(|_| {
            SendFailure::Later(format!("{}{path} answers no JSON", self.address()), Duration::ZERO)
        })
    }

    /// Reads an answer. A server that is busy, failing or out of reach is asked again later.
    fn answer(&self, sent: Result<Response<Body>, ureq::Error>) -> SendResult<TrackerAnswer> {
        let address = self.address();
        let later = |error: ureq::Error| {
            SendFailure::Later(format!("{address} cannot be reached: {error}"), Duration::ZERO)
        };
        let mut response = sent.map_err(later)?;
        let status = response.status().as_u16();
        if matches!(status, 408 | 429 | 500..=599) {
            let pause = response.headers().get("retry-after");
            let pause = pause.and_then(|pause| pause.to_str().ok()?.trim().parse().ok());
            let pause = Duration::from_secs(pause.unwrap_or(0)).min(LONGEST_PAUSE);
            return Err(SendFailure::Later(
                format!("{address} answers with status {status}"),
                pause,
            ));
        }
        let text = response.body_mut().read_to_string().map_err(later)?;
        Ok(TrackerAnswer { status, text })
    }

    fn refusal(&self, path: &str, answer: &TrackerAnswer) -> SendFailure {
        let text: String = answer.text.chars().take(SHOWN).collect();
        let status = answer.status;
        SendFailure::Refused(format!(
            "{}{path} answers with status {status}: {text}",
            self.address()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_user_password_and_query() {
        for (url, shown) in [
            ("https://host", "https://host"),
            ("http://user:secret@host:5000/path/?key=secret", "http://host:5000/path/"),
            ("https://user:p@ss@host/a@b", "https://host/a@b"),
            ("https://token@host#secret", "https://host"),
            ("host/path?key=secret", "host/path"),
        ] {
            assert_eq!(Server::new(url, None).address(), shown);
        }
    }
}

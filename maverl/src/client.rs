//! JSON over HTTP to external servers: retries with growing pauses, bounded answers, errors that name the address.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::unversioned::transport::DefaultConnector;

use maverl_hub::retry;

#[cfg(test)]
mod hostile;
mod resolver;
#[cfg(test)]
pub(crate) mod testing;

use resolver::Resolver;

/// Maximum time of an attempt, to avoid overflow of the clock.
const MAX_TIMEOUT: Duration = Duration::from_secs(1 << 30);
/// Maximum size of a decompressed answer in bytes: the limit of the HTTP library applies to compressed bytes.
const MOST_BYTES: u64 = 32 << 20;
/// Longest pause that a server can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Address of an environment's server, if its options name none.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8000";
/// Timeout of such a server in seconds, if its options name none.
pub const DEFAULT_TIMEOUT_S: f64 = 60.0;
/// Number of characters of an answer that messages show.
const SHOWN: usize = 80;

/// A client of one address that accepts `POST` with a JSON body.
///
/// Redirects are not followed, because the request and the key are meant for the configured server only.
pub struct Client {
    url: String,
    key: Option<String>,
    retries: u32,
    timeout: Duration,
    agent: ureq::Agent,
}

/// Result of a request over all attempts.
pub struct Answered {
    /// Number of failed attempts.
    pub failures: u32,
    /// The body of the answer with status 200, or the address and the reason for the failure.
    pub body: Result<String, String>,
}

/// Failure of one attempt, with its reason.
#[derive(Debug)]
pub enum AttemptFailure {
    /// A failure that is tried again, not before the time that the server asked for.
    Transient(String, Duration),
    /// A status that another attempt would have too.
    Refused(u16, String),
    /// A failure that another attempt would have too.
    Final(String),
}

impl Client {
    /// Creates a client with up to `connections` idle connections. The key is sent as a bearer token.
    pub fn new(
        url: String,
        key: Option<String>,
        timeout: Duration,
        retries: u32,
        connections: usize,
    ) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout.min(MAX_TIMEOUT)))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .build();
        let agent =
            ureq::Agent::with_parts(config, DefaultConnector::default(), Resolver::default());
        Self { url, key, retries, timeout, agent }
    }

    /// Returns the address for messages: without user, password and query, which may be secrets.
    pub fn address(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("http", &self.url));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        format!("{scheme}://{host}{path}")
    }

    /// Sends a body until it is answered with status 200, within the number of retries. A server that is busy, failing
    /// or unreachable is retried.
    pub async fn post(self: &Arc<Self>, body: &Arc<Value>) -> Answered {
        let (mut pauses, mut failures) = (retry::pauses(self.retries), 0);
        loop {
            let failure = match self.post_once(body).await {
                Ok(text) => return Answered { failures, body: Ok(text) },
                Err(failure) => failure,
            };
            failures += 1;
            let pause = match &failure {
                AttemptFailure::Transient(_, least) => pauses.next().map(|pause| pause.max(*least)),
                AttemptFailure::Refused(..) | AttemptFailure::Final(_) => None,
            };
            let Some(pause) = pause else {
                let reason = failure.reason();
                let plural = if failures == 1 { "" } else { "s" };
                let address = self.address();
                let body = Err(format!("{address}: {reason} ({failures} attempt{plural})"));
                return Answered { failures, body };
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a body once. Returns the body of the answer with status 200.
    pub async fn post_once(self: &Arc<Self>, body: &Arc<Value>) -> Result<String, AttemptFailure> {
        let (client, body) = (Arc::clone(self), Arc::clone(body));
        let done = tokio::task::spawn_blocking(move || client.attempt(&body)).await;
        done.unwrap_or_else(|error| Err(AttemptFailure::Final(error.to_string())))
    }

    fn attempt(&self, body: &Value) -> Result<String, AttemptFailure> {
        self.read(self.with_key(self.agent.post(&self.url)).send_json(body))
    }

    fn with_key<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.key {
            Some(key) => request.header("Authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    /// Sends a body once, and returns the answer with status 200. Blocks the thread.
    pub fn ask(&self, body: &Value) -> Result<String, String> {
        self.attempt(body).map_err(|failure| format!("{}: {}", self.address(), failure.reason()))
    }

    /// Returns the answer to `GET` with status 200. Blocks the thread; a failure is not tried again.
    pub fn get(&self) -> Result<String, String> {
        self.read(self.with_key(self.agent.get(&self.url)).call())
            .map_err(|failure| format!("{}: {}", self.address(), failure.reason()))
    }

    /// Reads the answer to a request.
    fn read(
        &self,
        sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<String, AttemptFailure> {
        let mut response = sent.map_err(|error| self.failure(&error))?;
        let status = response.status().as_u16();
        let target = response.headers().get("location").map(|to| start(&lossy(to.as_bytes())));
        let later = response.headers().get("retry-after").map(|after| after.as_bytes().to_vec());
        let mut bytes = Vec::new();
        let mut reader = response.body_mut().as_reader().take(MOST_BYTES + 1);
        reader.read_to_end(&mut bytes).map_err(|error| self.failure(&error.into()))?;
        if bytes.len() as u64 > MOST_BYTES {
            let most = MOST_BYTES >> 20;
            return Err(AttemptFailure::Final(format!("the answer is longer than {most} MiB")));
        }
        let text = lossy(&bytes);
        match status {
            200 => Ok(text),
            300..=399 => {
                let target = target.unwrap_or_else(|| "nowhere".to_owned());
                Err(AttemptFailure::Final(format!(
                    "status {status}, a redirect to {target}, which is not followed; write the address that answers"
                )))
            }
            _ if retry::is_transient_status(status) => {
                let least = later.map_or(Duration::ZERO, |after| seconds(&lossy(&after)));
                Err(AttemptFailure::Transient(format!("status {status}: {}", start(&text)), least))
            }
            _ => Err(AttemptFailure::Refused(status, format!("status {status}: {}", start(&text)))),
        }
    }

    fn failure(&self, error: &ureq::Error) -> AttemptFailure {
        let reason = match error {
            ureq::Error::Io(error) => error.to_string(),
            ureq::Error::Timeout(_) => {
                format!("no answer within {} s", self.timeout.as_secs_f64())
            }
            error => error.to_string(),
        };
        if retry::is_transient(error) {
            AttemptFailure::Transient(reason, Duration::ZERO)
        } else {
            AttemptFailure::Final(reason)
        }
    }
}

impl AttemptFailure {
    /// Returns the reason.
    pub fn reason(&self) -> &str {
        let (Self::Transient(reason, _) | Self::Refused(_, reason) | Self::Final(reason)) = self;
        reason
    }
}

/// Reason that messages give for an address that begins with https:// if this program cannot ask it.
const NO_HTTPS: &str = concat!("begins with https://; ", crate::lacks_feature!("https"));

/// Returns the reason why this program cannot ask an address, to follow its name: it begins with https://, and the feature
/// `https` is not built.
pub fn lacks_https(url: &str) -> Option<&'static str> {
    no_https(url, cfg!(feature = "https"))
}

/// Returns the reason of [`lacks_https`] for a program that has the feature, or has not.
fn no_https(url: &str, built: bool) -> Option<&'static str> {
    (!built && url.starts_with("https://")).then_some(NO_HTTPS)
}

/// Returns the addresses of HTTP and of WebSockets of a server.
pub fn addresses(url: &str) -> Result<(String, String), String> {
    let schemes = [("http", "ws"), ("https", "wss")];
    let found = schemes.into_iter().find_map(|(http, ws)| {
        let rest = [http, ws].into_iter().find_map(|scheme| {
            url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"))
        })?;
        let rest = rest.trim_end_matches('/');
        (!rest.is_empty() && !rest.starts_with('/'))
            .then(|| (format!("{http}://{rest}"), format!("{ws}://{rest}/ws")))
    });
    found.ok_or_else(|| format!("is {url:?}; write a whole URL, as \"http://127.0.0.1:8000\""))
}

/// Returns the key in the variable that `key_env` names, if it names one.
pub fn key(key_env: &str) -> Result<Option<String>, String> {
    if key_env.is_empty() {
        return Ok(None);
    }
    let key = std::env::var(key_env).ok().filter(|key| !key.is_empty());
    key.map(Some).ok_or_else(|| format!("`key_env` names `{key_env}`, which is not set, or empty"))
}

/// Returns the pause of a `Retry-After` in seconds, up to the longest; dates are ignored.
fn seconds(text: &str) -> Duration {
    let seconds = text.trim().parse().map_or(Duration::ZERO, Duration::from_secs);
    seconds.min(MAX_RETRY_AFTER)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the beginning of a server's answer, for messages.
pub fn start(text: &str) -> String {
    format!("{:?}", text.chars().take(SHOWN).collect::<String>())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write as _;

    use serde_json::json;

    use super::testing::{response, response_with, serve};
    use super::*;

    async fn post(url: &str, retries: u32) -> Answered {
        let key = Some("secret".to_owned());
        let client = Client::new(url.to_owned(), key, Duration::from_secs(10), retries, 1);
        Arc::new(client).post(&Arc::new(json!({"a": 1}))).await
    }

    #[tokio::test]
    async fn a_redirect_is_named_and_not_followed() {
        let (elsewhere, asked) = serve(|_, _| response(200, "{}"));
        for status in [301, 302, 303, 307, 308] {
            let moved = response_with(&format!("{status} X\r\nLocation: {elsewhere}"), b"");
            let (url, _) = serve(move |_, _| moved.clone());
            let error = post(&url, 3).await.body.unwrap_err();
            let wanted = format!(
                "{url}: status {status}, a redirect to {elsewhere:?}, which is not followed; write the address that \
                 answers (1 attempt)"
            );
            assert_eq!(error, wanted);
        }
        assert!(asked.lock().unwrap().is_empty());
    }

    #[test]
    fn a_program_without_tls_says_how_to_build_it_for_addresses_of_https() {
        let reason = no_https("https://host/v1", false).unwrap();
        assert!(reason.starts_with("begins with https://; this program lacks the feature `https`"));
        assert!(reason.contains("`--features https`"), "{reason}");
        assert_eq!(no_https("http://host/v1", false), None);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_by_its_address_and_no_secret() {
        let answered = post("http://me:password@127.0.0.1:1/v1?token=x", 1).await;
        let error = answered.body.unwrap_err();
        assert!(error.starts_with("http://127.0.0.1:1/v1: Connection refused"), "{error}");
        assert!(error.ends_with(" (2 attempts)"), "{error}");
        assert_eq!(answered.failures, 2);
    }

    #[tokio::test]
    async fn an_answer_is_bounded_as_it_is_unpacked() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for _ in 0..(MOST_BYTES >> 20) + 1 {
            packed.write_all(&[b' '; 1 << 20]).unwrap();
        }
        let packed = packed.finish().unwrap();
        assert!(packed.len() < 1 << 20);
        let answer = response_with("200 OK\r\nContent-Encoding: gzip", &packed);
        let (url, _) = serve(move |_, _| answer.clone());
        let error = post(&url, 0).await.body.unwrap_err();
        assert_eq!(error, format!("{url}: the answer is longer than 32 MiB (1 attempt)"));
    }
}

//! Requests and responses as plain data, and the checks of every request. Independent of the HTTP library.

use std::fmt::Write as _;

use serde::Serialize;

use maverl::train::own;

/// Content security policy of every response. No inline script or style runs, and no string becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Maximum length of a path with its query.
const LONGEST: usize = 8 << 10;

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Method, as `GET`.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Headers.
    pub headers: &'a [(&'a str, &'a str)],
}

/// A response.
#[derive(Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Body,
}

/// Body of a response.
pub enum Body {
    /// Complete content.
    Whole(Vec<u8>),
    /// Parts that are made while they are sent. An empty part only asks whether the client is still there.
    Parts(Box<dyn Iterator<Item = Vec<u8>> + Send>),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Parts(_) => f.write_str("parts"),
        }
    }
}

impl<'a> Request<'a> {
    /// Returns the value of a header; `Err` if it is given several times.
    fn header(&self, name: &str) -> Result<Option<&'a str>, ()> {
        let mut found = self.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
        let first = found.next().map(|(_, value)| *value);
        if found.next().is_some() { Err(()) } else { Ok(first) }
    }

    /// Returns the id of the last event that the client has seen.
    pub(crate) fn last_event(&self) -> Option<&'a str> {
        self.header("last-event-id").ok().flatten()
    }

    /// Returns the path without the key and the query; `Err` with the refusal of a request that must not be answered.
    ///
    /// - `Host` names this machine: other names are those of pages that were rebound to the loopback address.
    /// - `Origin`, if there, is that of the page itself.
    /// - Everything but the page itself is fetched by the page itself.
    pub(crate) fn admitted(&self, key: &str) -> Result<&'a str, Response> {
        if !["GET", "HEAD"].contains(&self.method) {
            let mut refusal = Response::refusal(405, "only GET and HEAD are answered");
            refusal.headers.push(("allow", "GET, HEAD".to_owned()));
            return Err(refusal);
        }
        if self.target.len() > LONGEST {
            return Err(Response::refusal(414, "the address is too long"));
        }
        let elsewhere =
            || Response::refusal(421, "the name in `Host` must be localhost, 127.0.0.1 or [::1]");
        let host = self.header("host").ok().flatten().filter(|host| is_loopback(host));
        let host = host.ok_or_else(elsewhere)?;
        let foreign = || Response::refusal(403, "the request comes from another page");
        let origin = self.header("origin").map_err(|()| foreign())?;
        if origin.is_some_and(|origin| origin.strip_prefix("http://") != Some(host)) {
            return Err(foreign());
        }
        let path = self.target.split('?').next().unwrap_or_default();
        let unknown =
            || Response::refusal(404, &own("open the address that `maverl view` printed"));
        let rest = path.strip_prefix('/').and_then(|path| path.split_once('/'));
        let (_, rest) = rest.filter(|(given, _)| equal(given, key)).ok_or_else(unknown)?;
        let site = self.header("sec-fetch-site").map_err(|()| foreign())?;
        if !rest.is_empty() && site.is_some_and(|site| !["none", "same-origin"].contains(&site)) {
            return Err(foreign());
        }
        Ok(rest)
    }

    /// Returns the parameters of the query, decoded.
    pub(crate) fn query(&self) -> Result<Query, Response> {
        let text = self.target.split_once('?').map_or("", |(_, query)| query);
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(pair);
        let pairs: Option<Vec<_>> = pairs.collect();
        pairs.map(Query).ok_or_else(|| Response::refusal(400, "the query is not encoded text"))
    }
}

/// Returns true if a `Host` names this machine, with any port: a forwarded port differs.
fn is_loopback(host: &str) -> bool {
    let port = |port: &str| port.parse::<u16>().is_ok();
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| match host.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest.strip_prefix(':').is_some_and(port),
        None => false,
    })
}

/// Compares a key in a time that does not depend on where it differs.
fn equal(given: &str, key: &str) -> bool {
    let differences = given.bytes().zip(key.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == key.len() && differences == 0
}

/// Decodes `%XX` and `+`; `None` if the result is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut found = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(bytes.next())? * 16 + digit(bytes.next())?) as u8
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(found).ok()
}

/// Parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Returns the value of a parameter that is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(given, value)| given == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a parameter; `Err` if it cannot be parsed.
    pub(crate) fn parse<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Response> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let refusal = |_| Response::refusal(400, &format!("`{name}` cannot be `{text}`"));
        text.parse().map(Some).map_err(refusal)
    }

    /// Returns the ends of a range written `A..B`, either of which may be missing, or one value for both.
    pub(crate) fn range<T>(&self, name: &str) -> Result<(Option<T>, Option<T>), Response>
    where
        T: std::str::FromStr + Copy,
    {
        let Some(text) = self.text(name) else { return Ok((None, None)) };
        let refusal = || Response::refusal(400, &format!("`{name}` cannot be `{text}`"));
        let end = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| refusal()),
        };
        match text.split_once("..") {
            Some((low, high)) => Ok((end(low)?, end(high)?)),
            None => end(text).map(|value| (value, value)),
        }
    }
}

impl Response {
    /// Creates a response with the headers that all have.
    pub(crate) fn new(status: u16, content_type: &str, body: Body) -> Self {
        let headers = vec![
            ("content-type", content_type.to_owned()),
            ("content-security-policy", POLICY.to_owned()),
            ("x-content-type-options", "nosniff".to_owned()),
            ("referrer-policy", "no-referrer".to_owned()),
            ("cache-control", "no-store".to_owned()),
            ("cross-origin-opener-policy", "same-origin".to_owned()),
            ("cross-origin-resource-policy", "same-origin".to_owned()),
        ];
        Self { status, headers, body }
    }

    /// Creates a response of JSON.
    pub(crate) fn json<T: Serialize>(value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => Self::new(200, "application/json", Body::Whole(bytes)),
            Err(error) => Self::refusal(500, &error.to_string()),
        }
    }

    /// Creates a response with the reason why there is nothing else.
    pub(crate) fn refusal(status: u16, reason: &str) -> Self {
        let body = serde_json::json!({ "error": reason }).to_string();
        Self::new(status, "application/json", Body::Whole(body.into_bytes()))
    }

    /// Returns the reason of a refusal.
    pub(crate) fn reason(self) -> String {
        let Body::Whole(bytes) = self.body else { return String::new() };
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        value["error"].as_str().unwrap_or_default().to_owned()
    }

    /// Removes the body, as the answer to HEAD has none.
    pub(crate) fn without_body(mut self) -> Self {
        self.body = Body::Whole(Vec::new());
        self
    }
}

/// Returns 128 random bits in hexadecimal, from the operating system.
pub(crate) fn random_key() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    let mut source = std::fs::File::open("/dev/urandom")?;
    std::io::Read::read_exact(&mut source, &mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut key, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(key, "{byte:02x}");
        key
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn status(method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
        Request { method, target, headers }.admitted(KEY).map_or_else(|r| r.status, |_| 200)
    }

    #[test]
    fn only_this_machine_is_a_host() {
        let target = format!("/{KEY}/api/runs");
        let local = ["localhost", "127.0.0.1:4000", "[::1]:1", "localhost:65535"];
        for host in local {
            assert_eq!(status("GET", &target, &[("Host", host)]), 200, "{host}");
        }
        let foreign = [
            "example.com",
            "localhost.example.com",
            "127.0.0.1.nip.io",
            "127.0.0.1:4000:1",
            "localhost:",
            "localhost:99999",
            "127.0.0.2",
            "0.0.0.0",
            "",
            "[::1].a",
            "a@localhost",
        ];
        for host in foreign {
            assert_eq!(status("GET", &target, &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status("GET", &target, &[]), 421);
        assert_eq!(status("GET", &target, &[("host", "localhost"), ("Host", "localhost")]), 421);
    }

    #[test]
    fn other_pages_get_nothing_and_may_only_link_to_the_page() {
        let (page, api) = (format!("/{KEY}/"), format!("/{KEY}/api/runs"));
        let host = ("host", "127.0.0.1:4000");
        let sent = |target: &str, header| status("GET", target, &[host, header]);
        assert_eq!(sent(&api, ("origin", "http://127.0.0.1:4000")), 200);
        for origin in ["http://127.0.0.1:4001", "https://127.0.0.1:4000", "null", "http://evil"] {
            assert_eq!(sent(&api, ("origin", origin)), 403, "{origin}");
            assert_eq!(sent(&page, ("origin", origin)), 403, "{origin}");
        }
        for site in ["cross-site", "same-site", "x"] {
            assert_eq!(sent(&api, ("sec-fetch-site", site)), 403, "{site}");
            assert_eq!(sent(&page, ("sec-fetch-site", site)), 200, "{site}");
        }
        for site in ["none", "same-origin"] {
            assert_eq!(sent(&api, ("sec-fetch-site", site)), 200, "{site}");
        }
    }

    #[test]
    fn without_the_key_there_is_nothing() {
        let host = [("host", "localhost")];
        let wrong = KEY.replace('f', "e");
        let targets = ["/", "", "*", "/x/", "//", "/../", KEY, "/0123456789abcdef0123456789abcde/"];
        for target in targets.iter().copied().chain([wrong.as_str(), &format!("/{wrong}/")]) {
            assert_eq!(status("GET", target, &host), 404, "{target}");
        }
        assert_eq!(status("GET", &format!("/{}", "x".repeat(LONGEST)), &host), 414);
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get", "", "G\0T"] {
            assert_eq!(status(method, &format!("/{KEY}/"), &host), 405, "{method}");
        }
    }

    #[test]
    fn keys_are_random() {
        let keys: std::collections::BTreeSet<String> =
            (0..100).map(|_| random_key().unwrap()).collect();
        assert!(keys.len() == 100 && keys.iter().all(|key| key.len() == 32));
    }

    #[test]
    fn queries_are_decoded_or_refused() {
        let query = |target| Request { method: "GET", target, headers: &[] }.query();
        let found = query("/x?q=a%20b+%C3%A4&step=3..&limit=7&empty=").unwrap();
        assert_eq!(found.text("q"), Some("a b ä"));
        assert_eq!(found.text("empty"), None);
        assert_eq!(found.range::<u64>("step").unwrap(), (Some(3), None));
        assert_eq!(found.parse::<u64>("limit").unwrap(), Some(7));
        assert_eq!(found.parse::<u64>("q").unwrap_err().status, 400);
        for target in ["/x?q=%", "/x?q=%f", "/x?q=%zz", "/x?q=%ff", "/x?%ff=1"] {
            assert_eq!(query(target).unwrap_err().status, 400, "{target}");
        }
    }
}

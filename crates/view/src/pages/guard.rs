//! Conditions on requests to the pages that the servers' guard does not have, and headers of every response.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::Response;
use maverl::train::own_name;
use maverl_serve::{Guard, Keys};

use super::answer::refusal_response;

/// Content security policy of every response. No inline script or style runs, and no string becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Maximum length of a path with its query.
const LONGEST: usize = 8 << 10;

/// Site of the page that a request comes from, as browsers say it.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Returns a router that refuses requests without a key in their path, and those of other pages. `Host` is checked by the
/// guard of the servers.
pub(crate) fn protect_pages(router: Router, keys: Keys) -> Router {
    let router = router.layer(from_fn_with_state(Arc::new(keys), check_request));
    let guard = Guard { local: true, ..Guard::default() };
    guard.protect(router).layer(map_response(add_headers))
}

async fn check_request(State(keys): State<Arc<Keys>>, request: Request, next: Next) -> Response {
    match admit_request(&keys, request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => *refusal,
    }
}

fn refuse_request(status: StatusCode, reason: &str) -> Result<(), Box<Response>> {
    Err(Box::new(refusal_response(status, reason)))
}

/// Returns the refusal of a request that must not be answered.
///
/// - The first part of its path is a key: other users of the machine can reach the port, too.
/// - `Origin`, if there, is that of the page itself.
/// - Everything but the page itself is fetched by the page itself.
fn admit_request(
    keys: &Keys,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Box<Response>> {
    if ![Method::GET, Method::HEAD].contains(method) {
        let mut response =
            refusal_response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Err(Box::new(response));
    }
    if uri.path_and_query().is_some_and(|target| target.as_str().len() > LONGEST) {
        return refuse_request(StatusCode::URI_TOO_LONG, "the address is too long");
    }
    let origin = headers.get(ORIGIN).map(HeaderValue::as_bytes);
    let host = headers.get(HOST).map_or(&b""[..], HeaderValue::as_bytes);
    if origin.is_some_and(|origin| origin.strip_prefix(b"http://") != Some(host)) {
        return refuse_request(StatusCode::FORBIDDEN, "the request comes from another page");
    }
    let path = uri.path().strip_prefix('/').and_then(|path| path.split_once('/'));
    let Some((_, rest)) = path.filter(|(key, _)| keys.find(key).is_some()) else {
        let reason = own_name("open the address that `maverl view` printed");
        return refuse_request(StatusCode::NOT_FOUND, &reason);
    };
    let mut sites = headers.get_all(SITE).iter().map(HeaderValue::as_bytes);
    if !sites.all(|site| matches!(site, b"none" | b"same-origin") || rest.is_empty()) {
        return refuse_request(StatusCode::FORBIDDEN, "the request comes from another page");
    }
    Ok(())
}

async fn add_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn status(method: &str, target: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut keys = Keys::default();
        keys.add("the test", KEY).unwrap();
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let refused = admit_request(&keys, &method, &target.parse().unwrap(), &all);
        refused.map_or_else(|refusal| refusal.status().as_u16(), |()| 200)
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
        let two = [host, ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")];
        assert_eq!(status("GET", &api, &two), 403);
    }

    #[test]
    fn without_the_key_there_is_nothing() {
        let host = [("host", "localhost")];
        let wrong = KEY.replace('f', "e");
        let targets = ["/", "*", "/x/", "//", "/../", KEY, "/0123456789abcdef0123456789abcde/"];
        for target in targets.iter().copied().chain([wrong.as_str(), &format!("/{wrong}/")]) {
            assert_eq!(status("GET", target, &host), 404, "{target}");
        }
        assert_eq!(status("GET", &format!("/{}", "x".repeat(LONGEST)), &host), 414);
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get"] {
            assert_eq!(status(method, &format!("/{KEY}/"), &host), 405, "{method}");
        }
    }
}

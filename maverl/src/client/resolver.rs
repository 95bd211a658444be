//! Names of hosts as addresses.

use std::net::{IpAddr, SocketAddr};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver as Resolve};
use ureq::unversioned::transport::NextTimeout;

/// Resolves names as [`DefaultResolver`] does, and returns addresses as they are. The default starts a thread for each
/// request that has a timeout, those to an address and over an open connection included.
#[derive(Debug, Default)]
pub(super) struct Resolver(DefaultResolver);

impl Resolve for Resolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let Some(address) = address(uri) else { return self.0.resolve(uri, config, timeout) };
        let mut addresses = self.empty();
        addresses.push(address);
        Ok(addresses)
    }
}

/// Returns the address that a URL names, if it names one instead of a host.
fn address(uri: &Uri) -> Option<SocketAddr> {
    let host = uri.host()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let ip: IpAddr = host.parse().ok()?;
    let port = match (uri.port(), uri.scheme_str()?) {
        (Some(port), _) => port.as_str().parse().ok()?,
        (None, "http") => 80,
        (None, "https") => 443,
        (None, _) => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_as_it_is_and_a_name_is_not() {
        let cases = [
            ("http://127.0.0.1:8000/retrieve", Some("127.0.0.1:8000")),
            ("http://127.0.0.1/", Some("127.0.0.1:80")),
            ("https://[::1]/", Some("[::1]:443")),
            ("http://user:key@[fe80::1]:9/x", Some("[fe80::1]:9")),
            ("http://localhost:8000/", None),
            ("http://127.0.0.1.example.org/", None),
        ];
        for (url, wanted) in cases {
            let found = address(&Uri::from_static(url)).map(|address| address.to_string());
            assert_eq!(found.as_deref(), wanted, "{url}");
        }
    }
}

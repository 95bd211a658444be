//! URLs in settings: secrets, which would be written into every run directory, and link-local addresses, at which clouds
//! tell the programs of a machine its secrets.

use std::net::{IpAddr, Ipv6Addr};

use figment::value::Value;

use super::names::key;
use super::problems::Problems;

/// Reports URLs that contain a password or a key, and those of link-local addresses, in any setting.
pub(super) fn check(problems: &mut Problems<'_>) {
    let merged = problems.layers().merged_values().clone();
    walk(&merged, &mut Vec::new(), problems);
}

fn walk(value: &Value, path: &mut Vec<String>, problems: &mut Problems<'_>) {
    match value {
        Value::Dict(_, table) => {
            for (name, value) in table {
                path.push(name.clone());
                walk(value, path, problems);
                path.pop();
            }
        }
        Value::Array(_, items) => items.iter().for_each(|item| walk(item, path, problems)),
        Value::String(_, text) => {
            if let Some(what) = secret(text) {
                let message = format!(
                    "`{}` holds {what}, and run directories keep their configuration",
                    key(path)
                );
                let help = "put it into an environment variable, and the variable's name into `key_env` beside the URL";
                problems.value(path, message, help.to_owned());
            } else if is_link_local(text) {
                let message =
                    format!("`{}` is a link-local address, which no run may ask", key(path));
                let help =
                    "there, clouds tell a machine its secrets; write another address of the server";
                problems.value(path, message, help.to_owned());
            }
        }
        _ => {}
    }
}

/// Returns true for a URL whose host is an address of `169.254.0.0/16` or `fe80::/10`. Names are not resolved.
fn is_link_local(text: &str) -> bool {
    let Some(rest) = after_scheme(text) else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split([']', '%']).next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    match host.parse().map(|address: IpAddr| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => address.is_link_local(),
        Ok(IpAddr::V6(address)) => Ipv6Addr::is_unicast_link_local(&address),
        Err(_) => false,
    }
}

/// Returns the part of a URL after its scheme.
fn after_scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once("://")?;
    // The address of a tracker follows its name: `mlflow=http://..`.
    let scheme = scheme.rsplit_once('=').map_or(scheme, |(_, scheme)| scheme);
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+');
    is_scheme.then_some(rest)
}

/// Returns the name of the secret part of a URL, if it has one.
fn secret(text: &str) -> Option<&'static str> {
    let rest = after_scheme(text)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Some("a user or a password");
    }
    let (_, query) = rest.split_once('?')?;
    query.split(['&', '#']).any(is_secret).then_some("a key")
}

/// Returns true for a pair `NAME=VALUE` of a query whose value is a key, by its name.
fn is_secret(pair: &str) -> bool {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let name = name.to_lowercase();
    let parts = ["token", "secret", "passw", "apikey", "api_key", "api-key", "credential"];
    let known = ["key", "sig", "signature", "auth", "access_key"].contains(&name.as_str());
    !value.is_empty() && (known || parts.iter().any(|part| name.contains(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_are_found_in_urls_alone() {
        for url in [
            "http://169.254.169.254/latest",
            "https://169.254.0.1:80",
            "ws://[fe80::1]:8000",
            "http://[fe80::1%25eth0]/v1",
            "http://[::ffff:169.254.169.254]/",
        ] {
            assert!(is_link_local(url), "{url}");
        }
        for text in [
            "169.254.169.254",
            "http://169.253.1.1",
            "http://127.0.0.1:8000/169.254.1.1",
            "http://[::1]:80",
            "http://169.254.1.1.example",
            "see http://",
        ] {
            assert!(!is_link_local(text), "{text}");
        }
    }

    #[test]
    fn passwords_and_keys_in_urls_are_found_and_nothing_else() {
        for url in ["https://me:hush@host/v1", "http://token@host", "redis+tls://:pw@host"] {
            assert_eq!(secret(url), Some("a user or a password"), "{url}");
        }
        for url in ["https://host/v1?api_key=hush", "https://host?a=b&Token=x", "http://h/?key=1#x"]
        {
            assert_eq!(secret(url), Some("a key"), "{url}");
        }
        for text in [
            "http://127.0.0.1:8000/v1",
            "https://host/@me?page=2",
            "https://host/?key=",
            "me@host",
            "see http:// and me@host",
            "hf:org/name@main",
        ] {
            assert_eq!(secret(text), None, "{text}");
        }
    }
}

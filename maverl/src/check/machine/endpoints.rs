//! Endpoints that serve agents: their settings and scripts.

use std::path::Path;

use super::keys::check_key_env;
use crate::client::lacks_https;
use crate::config::source::{Problems, path, path_within};
use crate::config::{Config, EndpointConfig};
use crate::data;

/// Reports endpoints with invalid settings.
pub(crate) fn check_endpoints(config: &Config, base: &Path, problems: &mut Problems<'_>) {
    for (name, endpoint) in &config.endpoints {
        let table = path(["endpoints", name]);
        let EndpointConfig { url, model, script, .. } = endpoint;
        let wrong = match (url, model, script) {
            (Some(_), _, Some(_)) => "has a `url` and a `script`",
            (None, _, None) => "has neither a `url` nor a `script`",
            (Some(_), None, None) => "has a `url` and no `model`",
            _ => "",
        };
        if !wrong.is_empty() {
            let help = "write `url` and `model` of a server, or `script`, a file of replies";
            problems.key(&table, format!("endpoint `{name}` {wrong}"), help.to_owned());
        }
        let schemes = ["http://", "https://"];
        if let Some(url) = url.as_ref().filter(|url| !schemes.iter().any(|it| url.starts_with(it)))
        {
            let message =
                format!("`endpoints.{name}.url` is {url:?}; it begins with http:// or https://");
            problems.value(&path_within(&table, "url"), message, None);
        }
        if let Some(reason) = url.as_deref().and_then(lacks_https) {
            let message = format!("`endpoints.{name}.url` {reason}");
            problems.value(&path_within(&table, "url"), message, None);
        }
        if let Some(Err(error)) = script.as_ref().map(|script| data::script(&base.join(script))) {
            problems.value(&path_within(&table, "script"), error.to_string(), None);
        }
        check_key_env(endpoint.key_env.as_deref(), &table, problems);
    }
}

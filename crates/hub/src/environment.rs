//! The hub that environment variables name.

use std::path::PathBuf;

use super::Hub;
use crate::{HubError, HubErrorKind as Kind};

/// Seconds that a server may send nothing, unless `HF_HUB_DOWNLOAD_TIMEOUT` says otherwise.
const PATIENCE_S: f64 = 30.0;

impl Hub {
    /// Returns the hub that the environment variables name.
    ///
    /// # Errors
    ///
    /// If no directory for a cache is known, or a variable has no meaning.
    pub fn from_env() -> Result<Self, HubError> {
        let endpoint = read_variable::<String>("HF_ENDPOINT")
            .unwrap_or_else(|| "https://huggingface.co".to_owned());
        let patience = read_variable::<String>("HF_HUB_DOWNLOAD_TIMEOUT");
        check_endpoint(&endpoint)?;
        let patience_s = patience.map_or(Ok(PATIENCE_S), |text| seconds(&text))?;
        let home = read_variable::<PathBuf>("HF_HOME").or_else(|| {
            let caches = read_variable::<PathBuf>("XDG_CACHE_HOME")
                .or_else(|| Some(read_variable::<PathBuf>("HOME")?.join(".cache")));
            Some(caches?.join("huggingface"))
        });
        let cache =
            read_variable::<PathBuf>("HF_HUB_CACHE").or_else(|| Some(home.as_ref()?.join("hub")));
        let cache = cache.ok_or_else(|| {
            let message = "no place for downloads: set `HF_HOME`, `HF_HUB_CACHE` or `HOME`";
            HubError::new(Kind::Cache, message)
        })?;
        let cache = std::path::absolute(&cache)
            .map_err(|e| HubError::io(format!("{}: {e}", cache.display()), e))?;
        let token_file =
            read_variable::<PathBuf>("HF_TOKEN_PATH").or_else(|| Some(home?.join("token")));
        let token = read_variable::<String>("HF_TOKEN")
            .or_else(|| Some(std::fs::read_to_string(token_file?).ok()?.trim().to_owned()))
            .filter(|token| !token.is_empty());
        let offline = read_variable::<String>("HF_HUB_OFFLINE")
            .is_some_and(|value| ["1", "ON", "YES", "TRUE"].contains(&&*value.to_uppercase()));
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Ok(Self { endpoint, cache, token, offline, patience_s })
    }
}

/// Returns the value of an environment variable; `None` if it is empty.
fn read_variable<T: From<String>>(name: &str) -> Option<T> {
    std::env::var(name).ok().filter(|value| !value.is_empty()).map(T::from)
}

/// Returns an error unless a hub is a whole URL.
fn check_endpoint(endpoint: &str) -> Result<(), HubError> {
    let after = ["http://", "https://"].iter().find_map(|scheme| endpoint.strip_prefix(scheme));
    if after.is_some_and(|host| host.starts_with(|c: char| c.is_alphanumeric() || c == '[')) {
        return Ok(());
    }
    Err(HubError::new(
        Kind::Argument,
        format!(
            "the environment variable `HF_ENDPOINT` is {endpoint:?}; it names a hub as a whole URL, as \
             \"https://huggingface.co\""
        ),
    ))
}

/// Returns the seconds of `HF_HUB_DOWNLOAD_TIMEOUT`.
fn seconds(text: &str) -> Result<f64, HubError> {
    let seconds = text.trim().parse().ok().filter(|seconds| (0.001..=1e9).contains(seconds));
    seconds.ok_or_else(|| {
        let what = format!(
            "the environment variable `HF_HUB_DOWNLOAD_TIMEOUT` is {text:?}; write the seconds that a server may send \
             nothing, as \"30\""
        );
        HubError::new(Kind::Argument, what)
    })
}

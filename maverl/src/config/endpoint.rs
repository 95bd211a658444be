//! Who speaks for agents without being a model of the run.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[endpoints.NAME]`: a server, or a script. Its agents are members like any other and never trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointConfig {
    /// Where an OpenAI-compatible server is, up to `/v1`. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Name of the model on the server. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The environment variable that holds the server's key, which is written nowhere. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// A file of replies instead of a server: JSONL of `reply`, and which seat (`seat`) and prompt (`contains`) it is for; the
    /// first line that fits is said. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Seconds after which an attempt has failed. **(default: `60`)**
    pub timeout_s: f64,
    /// Further attempts where a server is busy, failing or out of reach. **(default: `3`)**
    pub retries: u32,
    /// Requests at once. **(default: `16`)**
    pub max_requests: NonZeroUsize,
    /// Price of a million prompt tokens. **(default: `0.0`)**
    pub prompt_price: f64,
    /// Price of a million completion tokens. **(default: `0.0`)**
    pub completion_price: f64,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            url: None,
            model: None,
            key_env: None,
            script: None,
            timeout_s: 60.0,
            retries: 3,
            max_requests: NonZeroUsize::MIN.saturating_add(15),
            prompt_price: 0.0,
            completion_price: 0.0,
        }
    }
}

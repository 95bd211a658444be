//! `[endpoints.NAME]`: servers and files of replies that answer for agents instead of a model of the run.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::MANY;
use crate::settings::Settings;

/// `[endpoints.NAME]`: a server, or a script. Its agents are members like any other and never trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct EndpointConfig {
    /// URL of an OpenAI-compatible server, up to `/v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"http://127.0.0.1:8000/v1\"")]
    pub url: Option<String>,
    /// Name of the model on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "team", example = "\"Qwen/Qwen2.5-7B-Instruct\"")]
    pub model: Option<String>,
    /// Environment variable that holds the API key of the server; the key is never written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"OPENAI_API_KEY\"")]
    pub key_env: Option<String>,
    /// File of replies instead of a server: JSONL with `reply`, and optionally `seat` and `contains` (text in the prompt);
    /// the first line that matches seat and prompt gives the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "team", example = "\"replies.jsonl\"")]
    pub script: Option<String>,
    /// Timeout of an attempt, in seconds.
    #[setting(default = 60.0, range = above(0.0)..=1e9)]
    pub timeout_s: f64,
    /// Maximum number of retries if the server is busy, fails or is unreachable.
    #[setting(default = 3)]
    pub retries: u32,
    /// Maximum number of concurrent requests.
    #[setting(default = 16, range = 1..=MANY)]
    pub max_requests: NonZeroUsize,
    /// Price of a million prompt tokens, in any currency.
    #[setting(range = 0.0..=1e9)]
    pub prompt_price: f64,
    /// Price of a million completion tokens, in the same currency.
    #[setting(range = 0.0..=1e9)]
    pub completion_price: f64,
}

//! `[rollout_servers.NAME]`: inference servers that sample for the policies of a model.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::MANY;
use crate::settings::Settings;

/// `[rollout_servers.NAME]`: inference servers with one base. The policies of the models that name them are sampled there, and
/// trained here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct RolloutServerConfig {
    /// Protocol of the servers; no default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "team", example = "\"vllm\"")]
    pub kind: Option<ServerKind>,
    /// URLs of the servers, without a path. Requests are spread over them.
    #[setting(example = "[\"http://127.0.0.1:8000\"]")]
    pub urls: Vec<String>,
    /// Directory for the weights that the servers load; trainer and servers must see it under the same absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"weights\"")]
    pub weights_dir: Option<String>,
    /// Name of the base model on the servers; only with `vllm`, and needed only if the servers sample for frozen agents
    /// without an adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"Qwen/Qwen2.5-3B\"")]
    pub model: Option<String>,
    /// Environment variable that holds the API key of the servers; the key is never written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"VLLM_API_KEY\"")]
    pub key_env: Option<String>,
    /// Timeout of an attempt, in seconds.
    #[setting(default = 300.0, range = above(0.0)..=1e9)]
    pub timeout_s: f64,
    /// Maximum number of retries of a request, after one attempt at each server.
    #[setting(default = 3)]
    pub retries: u32,
    /// Maximum number of concurrent requests of each server.
    #[setting(default = 256, range = 1..=MANY)]
    pub max_requests: NonZeroUsize,
    /// Largest mean difference, at the start of a run, between log-probs of the servers and of the trainer.
    #[setting(default = 0.1, range = 0.0..=1e3)]
    pub max_mismatch: f64,
    /// Ask the servers for the experts of each token, and use them in updates (router replay); only for mixtures of experts.
    #[setting(default = false, level = "team")]
    pub router_replay: bool,
}

/// Protocol of inference servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerKind {
    /// `/generate` of SGLang.
    Sglang,
    /// `/v1/completions` of vLLM.
    Vllm,
}

impl ServerKind {
    /// Returns the name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }
}

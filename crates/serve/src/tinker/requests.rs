//! Bodies of requests in JSON. Fields that are not named here are ignored: the package of the clients adds some with each version.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Body of `create_session`.
#[derive(Debug, Deserialize)]
pub(super) struct SessionRequest {
    pub(super) session_id: String,
}

/// Body of `create_model`.
#[derive(Debug, Deserialize)]
pub(super) struct CreateRequest {
    pub(super) session_id: String,
    pub(super) model_seq_id: u64,
    pub(super) base_model: String,
    pub(super) lora_config: Option<LoraRequest>,
    pub(super) optimizer_config: Option<OptimizerRequest>,
}

/// Shape of an adapter.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct LoraRequest {
    pub(super) rank: u64,
    pub(super) seed: Option<u64>,
    #[serde(default = "yes")]
    pub(super) train_unembed: bool,
    #[serde(default = "yes")]
    pub(super) train_mlp: bool,
    #[serde(default = "yes")]
    pub(super) train_attn: bool,
}

fn yes() -> bool {
    true
}

/// Kind of an optimizer.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct OptimizerRequest {
    #[serde(rename = "type")]
    pub(super) kind: String,
}

/// Body of requests about a model alone.
#[derive(Debug, Deserialize)]
pub(super) struct ModelRequest {
    pub(super) model_id: String,
}

/// Body of `optim_step`.
#[derive(Debug, Deserialize)]
pub(super) struct StepRequest {
    pub(super) model_id: String,
    pub(super) seq_id: Option<u64>,
    pub(super) adam_params: Option<AdamRequest>,
    pub(super) optimizer_params: Option<Value>,
}

/// Constants of a step of AdamW, with the defaults of the package.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct AdamRequest {
    pub(super) learning_rate: f64,
    pub(super) beta1: f64,
    pub(super) beta2: f64,
    pub(super) eps: f64,
    pub(super) weight_decay: f64,
    pub(super) grad_clip_norm: f64,
}

impl Default for AdamRequest {
    fn default() -> Self {
        Self {
            learning_rate: 1e-4,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-12,
            weight_decay: 0.0,
            grad_clip_norm: 0.0,
        }
    }
}

/// Body of `save_weights`.
#[derive(Debug, Deserialize)]
pub(super) struct SaveRequest {
    pub(super) model_id: String,
    pub(super) path: Option<String>,
    pub(super) seq_id: Option<u64>,
    #[serde(default)]
    pub(super) overwrite: bool,
    pub(super) user_metadata: Option<Map<String, Value>>,
}

/// Body of `save_weights_for_sampler`.
#[derive(Debug, Deserialize)]
pub(super) struct SaveSamplerRequest {
    pub(super) model_id: String,
    pub(super) path: Option<String>,
    pub(super) seq_id: Option<u64>,
    pub(super) sampling_session_seq_id: Option<u64>,
    pub(super) user_metadata: Option<Map<String, Value>>,
}

/// Body of `load_weights`.
#[derive(Debug, Deserialize)]
pub(super) struct LoadWeightsRequest {
    pub(super) model_id: Option<String>,
    pub(super) seq_id: Option<u64>,
    pub(super) session_id: Option<String>,
    pub(super) model_seq_id: Option<u64>,
    pub(super) path: String,
    #[serde(default)]
    pub(super) optimizer: bool,
}

/// Body of `weights_info`.
#[derive(Debug, Deserialize)]
pub(super) struct WeightsInfoRequest {
    pub(super) tinker_path: String,
}

/// Body of `create_sampling_session`.
#[derive(Debug, Deserialize)]
pub(super) struct SamplerRequest {
    pub(super) session_id: String,
    pub(super) sampling_session_seq_id: u64,
    pub(super) base_model: Option<String>,
    pub(super) model_path: Option<String>,
}

/// Body of `asample`.
#[derive(Debug, Deserialize)]
pub(super) struct SampleRequest {
    #[serde(default = "one")]
    pub(super) num_samples: usize,
    pub(super) prompt: PromptRequest,
    pub(super) sampling_params: SamplingRequest,
    pub(super) sampling_session_id: Option<String>,
    pub(super) seq_id: Option<u64>,
    pub(super) base_model: Option<String>,
    pub(super) model_path: Option<String>,
    #[serde(default)]
    pub(super) prompt_logprobs: Option<bool>,
    #[serde(default)]
    pub(super) topk_prompt_logprobs: usize,
    #[serde(default)]
    pub(super) topk_sample_logprobs: usize,
    pub(super) target_prompt_logprobs: Option<Value>,
    #[serde(default)]
    pub(super) prompt_alt_tokens_k: u64,
    pub(super) prompt_logprobs_last_n: Option<u64>,
}

fn one() -> usize {
    1
}

/// Prompt of a request.
#[derive(Debug, Deserialize)]
pub(super) struct PromptRequest {
    pub(super) chunks: Vec<ChunkRequest>,
}

/// Part of a prompt.
#[derive(Debug, Deserialize)]
pub(super) struct ChunkRequest {
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    pub(super) tokens: Option<Vec<i64>>,
}

/// Sampling of a request.
#[derive(Debug, Deserialize)]
pub(super) struct SamplingRequest {
    pub(super) max_tokens: Option<usize>,
    pub(super) seed: Option<i64>,
    pub(super) stop: Option<StopRequest>,
    #[serde(default = "one_f64")]
    pub(super) temperature: f64,
    #[serde(default = "all")]
    pub(super) top_k: i64,
    #[serde(default = "one_f64")]
    pub(super) top_p: f64,
}

fn one_f64() -> f64 {
    1.0
}

fn all() -> i64 {
    -1
}

/// Ends of a reply.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum StopRequest {
    Text(String),
    Ids(Vec<i64>),
    Texts(Vec<String>),
}

/// Body of `retrieve_future`.
#[derive(Debug, Deserialize)]
pub(super) struct RetrieveRequest {
    pub(super) request_id: String,
}

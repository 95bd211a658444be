//! `[models.NAME]`: directory, precision, scale of the loss, adapter, optimizer.
//!
//! Precisions and scales of the loss are options of the engine's worker groups, adapters and optimizers of its policies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::runtime::{Dtype, LoraConfig, LossScaleConfig, OptimConfig};
use crate::settings::Settings;
use crate::tools::{CallFormat, ThoughtFormat};

/// `[models.NAME]`: a base, and how the policy on it is updated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(deny_unknown_fields)]
#[settings(level = "policy")]
pub struct ModelConfig {
    /// `builtin:tiny` or `builtin:generalist`, a Hugging Face directory, a GGUF file, or `hf:ORG/NAME@REVISION` on the hub.
    #[setting(default = "builtin:tiny")]
    pub path: String,
    /// Optimizer.
    #[serde(default)]
    #[setting(table)]
    pub optim: OptimConfig,
    /// Do not update this model.
    #[serde(default)]
    pub frozen: bool,
    /// Precision of matrix products; a GPU supports only `bf16`, which is then the default. `bf16` is faster on processors with bf16
    /// instructions. `f16` rounds 8 times finer, has a smaller range, and scales the loss. Weights, sums, gradients and moments are
    /// f32 in any case; only `file` keeps the weights of a frozen base in the blocks of its GGUF file, with products in f32 on the
    /// device `candle:cpu`.
    #[serde(default)]
    pub dtype: Dtype,
    /// Scale of the loss, with products in f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(table, idle_unless = "dtype = 'f16'")]
    pub loss_scale: Option<LossScaleConfig>,
    /// Activation checkpointing: keep the input of each layer only, and recompute the layer in the backward pass. It saves
    /// memory and costs about a third more time; results are equal.
    #[serde(default)]
    #[setting(level = "run")]
    pub gradient_checkpointing: bool,
    /// Train an adapter on it; its own weights stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(table)]
    pub lora: Option<LoraConfig>,
    /// Directory of a PEFT adapter; new LoRA adapters of this model start from its weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"adapters/search\"")]
    pub adapter: Option<String>,
    /// Name of a table in `[rollout_servers]`: these servers sample for the policies of this model, instead of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(level = "team", example = "\"fast\"")]
    pub rollout_servers: Option<String>,
    /// Tool-call format of the model. Without the key, and with `auto`, the format in which its chat template renders calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"qwen_xml\"")]
    pub calls: Option<CallFormat>,
    /// Form of the thoughts before an answer: `auto`, `think`, `none`, `harmony`, or the texts around them. Without the key,
    /// and with `auto`, the form in which its chat template renders thoughts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"[THINK] [/THINK]\"")]
    pub thoughts: Option<ThoughtFormat>,
    /// Further variables of its chat template, as `enable_thinking` of Qwen3's.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[setting(table)]
    pub chat_template_kwargs: Map<String, Value>,
}

//! `[models.NAME]`: directory, precision, adapter, optimizer.
//!
//! A key of `optim` is also a field of the engine's `OptimOptions`. The formula of a schedule is in `algo/schedule.rs`.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroUsize;

use maverl_kernels::matmul::Precision;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::settings::Settings;

/// `[models.NAME]`: a base, and how the policy on it is updated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(deny_unknown_fields)]
#[settings(level = "policy")]
pub struct ModelConfig {
    /// `builtin:tiny` or `builtin:generalist`, a Hugging Face directory, or `hf:ORG/NAME@REVISION` on the hub.
    #[setting(default = "builtin:tiny")]
    pub path: String,
    /// Optimizer.
    #[serde(default)]
    #[setting(table)]
    pub optim: OptimConfig,
    /// Never update this model.
    #[serde(default)]
    pub frozen: bool,
    /// Precision of matrix products; a GPU supports only `bf16`, which is then the default. `bf16` is faster on processors with bf16 instructions. Weights,
    /// sums, gradients and moments are f32 in any case.
    #[serde(default)]
    pub dtype: Dtype,
    /// Activation checkpointing: keep the input of each layer only, and recompute the layer in the backward pass. It saves
    /// memory and costs about a third more time; results are equal.
    #[serde(default)]
    #[setting(level = "run")]
    pub gradient_checkpointing: bool,
    /// Train an adapter on it; its own weights stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(table)]
    pub lora: Option<LoraConfig>,
    /// Directory of a PEFT adapter that new LoRA adapters of this model start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"adapters/search\"")]
    pub adapter: Option<String>,
    /// Name of a table in `[rollout_servers]`: these servers sample for the policies of this model, instead of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(level = "team", example = "\"fast\"")]
    pub rollout_servers: Option<String>,
    /// Further variables of its chat template, as `enable_thinking` of Qwen3's.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[setting(table)]
    pub chat_template_kwargs: Map<String, Value>,
}

/// Precision of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// Nothing: single precision.
    #[default]
    F32,
    /// The nearest `bf16`.
    Bf16,
}

impl From<Dtype> for Precision {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::Bf16 => Self::Bf16,
        }
    }
}

/// Shape of an adapter: `lora = { .. }` of a model, or of an agent with an adapter of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Settings)]
#[settings(partial = "LoraConfig", level = "policy")]
pub struct LoraPlan {
    /// Rank of the update `B·A`.
    #[setting(default = 8, written = NonZeroUsize, range = 1..=65536)]
    pub rank: usize,
    /// Numerator of the scale `alpha / rank`.
    #[setting(default = 16.0, range = above(0.0)..)]
    pub alpha: f64,
    /// Dropout probability of the inputs of A in training; rollout has no dropout.
    #[setting(default = 0.0, range = 0.0..1.0)]
    pub dropout: f32,
    /// Linear layers that get an adapter: `all-linear`, or a list such as ["q_proj", "v_proj"].
    pub target_modules: TargetModules,
    /// Use the scale `alpha / sqrt(rank)` (rsLoRA).
    #[setting(default = false)]
    pub rslora: bool,
}

/// Which linear maps an adapter corrects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TargetModules {
    /// `"all-linear"`: every one of the decoder's layers.
    #[default]
    AllLinear,
    /// Those whose names end so.
    Named(Vec<String>),
}

impl TargetModules {
    const ALL: &str = "all-linear";
}

impl JsonSchema for TargetModules {
    fn schema_name() -> Cow<'static, str> {
        "TargetModules".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "const": Self::ALL, "description": "Every linear map of the decoder's layers." },
                { "type": "array", "items": { "type": "string" }, "description": "Those whose names end so." },
            ],
        })
    }
}

impl Serialize for TargetModules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::AllLinear => Self::ALL.serialize(serializer),
            Self::Named(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TargetModules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = TargetModules;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"all-linear\" or a list of module names such as [\"q_proj\", \"v_proj\"]",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                match text {
                    TargetModules::ALL => Ok(TargetModules::AllLinear),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                let items = de::value::SeqAccessDeserializer::new(items);
                Deserialize::deserialize(items).map(TargetModules::Named)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// AdamW: `optim = { .. }` of a model, or of an agent with a worker of its own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "OptimConfig", level = "policy")]
pub struct OptimPlan {
    /// Learning rate.
    #[setting(default = 1e-6, range = above(0.0)..)]
    pub lr: f64,
    /// Decay rates of the moments.
    #[setting(default = (0.9, 0.999), range = 0.0..1.0)]
    pub betas: (f64, f64),
    /// Added to the denominator.
    #[setting(default = 1e-8, range = above(0.0)..)]
    pub eps: f64,
    /// Decoupled weight decay.
    #[setting(default = 0.01, range = 0.0..)]
    pub weight_decay: f64,
    /// Maximum of the global gradient norm; larger gradients are scaled down to it.
    #[setting(default = 1.0, range = above(0.0)..)]
    pub grad_clip: f64,
    /// Learning rate schedule over `steps`.
    pub schedule: Schedule,
    /// Warm-up: steps over which the learning rate rises linearly to `lr`.
    #[setting(default = 0)]
    pub warmup_steps: u64,
}

/// Learning rate schedule after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It stays.
    #[default]
    Constant,
    /// Straight down; it would be zero one step after the last.
    Linear,
    /// Half a cosine down; it would be zero one step after the last.
    Cosine,
}

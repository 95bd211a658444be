//! Models, the agents on them, and how both sample and learn.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;

use maverl_kernels::matmul::Precision;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use super::loss::LossConfig;
use super::tables::REPLY;
use crate::settings::Settings;

/// Sampling of replies: `[sampling]` and `[agents.*.sampling]`.
#[derive(Debug, Clone, PartialEq, Serialize, Settings)]
#[settings(partial = "SamplingConfig", level = "agent")]
pub struct Sampling {
    /// Divisor of the logits; 0 is greedy, for trained agents only with the presets sft and dpo.
    #[setting(default = 1.0, range = 0.0..)]
    pub temperature: f32,
    /// Number of most likely tokens that are kept; 0 keeps all; trained agents may set it only with the presets sft and dpo.
    #[setting(default = 0)]
    pub top_k: u32,
    /// Nucleus sampling: smallest set of most likely tokens with this total probability; 1 keeps all; trained agents may set it only with the presets sft and dpo.
    #[setting(default = 1.0, range = above(0.0)..=1.0)]
    pub top_p: f32,
    /// Minimum probability of a token, relative to that of the most likely token; 0 keeps all; trained agents may set it only with the presets sft and dpo.
    #[setting(default = 0.0, range = 0.0..=1.0)]
    pub min_p: f32,
    /// Penalty on tokens that the prompt or the reply already contains: their positive logits are divided by it, negative ones multiplied; 1 disables it; trained agents may set it only with the presets sft and dpo.
    #[setting(default = 1.0, range = above(0.0)..)]
    pub repetition_penalty: f32,
    /// Maximum number of tokens of a reply.
    #[setting(default = 256, written = NonZeroUsize, range = 1..=REPLY)]
    pub max_tokens: usize,
    /// Strings that end a reply and stay in it, in addition to the model's stop ids.
    pub stop: Vec<String>,
    /// Token ids that end a reply, in addition to the model's.
    pub stop_ids: Vec<u32>,
}

/// `[models.NAME]`: a base, and how the policy on it is updated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(deny_unknown_fields)]
#[settings(level = "policy")]
pub struct ModelConfig {
    /// `builtin:tiny` or `builtin:generalist`, a Hugging Face directory relative to the file that names it, or `hf:ORG/NAME@REVISION` on the hub.
    #[setting(default = "builtin:tiny")]
    pub path: String,
    /// Optimizer.
    #[serde(default)]
    #[setting(table)]
    pub optim: OptimConfig,
    /// Never update it.
    #[serde(default)]
    pub frozen: bool,
    /// Precision of matrix products. `bf16` is faster on processors with bf16 instructions. Weights,
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
    /// Directory of a PEFT adapter that new LoRA adapters of this model start from; relative to the file that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"adapters/search\"")]
    pub adapter: Option<String>,
    /// Name of `[rollout_servers]` that sample for the policies of this model, instead of this process.
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
    /// Linear layers with an adapter, or a list: ["q_proj", "v_proj"].
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
    /// Global gradient norm is clipped to this.
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

/// `[agents."team/role"]` and, on top of it, `[agents."team/role".seats.N]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "policy")]
pub struct AgentConfig {
    /// Name of `[models]`; may be left out where there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"tiny\"")]
    pub model: Option<String>,
    /// Name of `[endpoints]`, which answers instead of a model and is never trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "agent", example = "\"expert\"")]
    pub endpoint: Option<String>,
    /// Name of a copy of the weights, which agents with the same model and worker group share; the model's name unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"tiny\"")]
    pub worker_group: Option<String>,
    /// Name (not a directory) of an adapter, which agents with the same model, worker group and adapter share; the worker
    /// group's name unless set, where the model has `lora`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"tiny\"")]
    pub adapter: Option<String>,
    /// Keys of `lora`: allowed only where every agent of the policy agrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table, example = "{ rank = 4 }")]
    pub lora: Option<LoraConfig>,
    /// Never train on this agent's turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "agent", example = "false")]
    pub frozen: Option<bool>,
    /// Keys of `optim`: allowed only where every agent of the policy agrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table, example = "{ lr = 1e-5 }")]
    pub optim: Option<OptimConfig>,
    /// Name of a critic: policies whose critics have the same name share one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"judge\"")]
    pub critic: Option<String>,
    /// Keys of `[sampling]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table, level = "agent", example = "{ temperature = 0.8 }")]
    pub sampling: Option<SamplingConfig>,
    /// Keys of `[algorithm.loss]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table, level = "agent", example = "{ kl_coef = 0.01 }")]
    pub loss: Option<LossConfig>,
    /// Fields of the agent's Rust type.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[setting(table, level = "agent", example = "{ style = \"short\" }")]
    pub options: Map<String, Value>,
    /// Overrides for single seats, by number from 0.
    #[schemars(with = "BTreeMap<String, AgentConfig>")]
    #[serde(with = "seats", skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table, level = "agent")]
    pub seats: BTreeMap<u32, AgentConfig>,
}

impl AgentConfig {
    /// A seat's table on top of its agent's. A seat with an endpoint inherits nothing that is about a policy, and a seat with a
    /// model no endpoint.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let base = &self.inherits(base);
        let mut options = base.options.clone();
        options.extend(self.options.clone());
        Self {
            model: self.model.clone().or_else(|| base.model.clone()),
            endpoint: self.endpoint.clone().or_else(|| base.endpoint.clone()),
            worker_group: self.worker_group.clone().or_else(|| base.worker_group.clone()),
            adapter: self.adapter.clone().or_else(|| base.adapter.clone()),
            lora: either(&self.lora, &base.lora, LoraConfig::over),
            frozen: self.frozen.or(base.frozen),
            optim: either(&self.optim, &base.optim, OptimConfig::over),
            critic: self.critic.clone().or_else(|| base.critic.clone()),
            sampling: either(&self.sampling, &base.sampling, SamplingConfig::over),
            loss: either(&self.loss, &base.loss, LossConfig::over),
            options,
            seats: BTreeMap::new(),
        }
    }

    /// The part of an agent's table that holds for a seat with this one.
    fn inherits(&self, base: &Self) -> Self {
        let base = Self { seats: BTreeMap::new(), ..base.clone() };
        match (&self.endpoint, &self.model) {
            (Some(_), _) => {
                let Self { sampling, options, .. } = base;
                Self { sampling, options, ..Self::default() }
            }
            (None, Some(_)) => Self { endpoint: None, ..base },
            (None, None) => base,
        }
    }
}

fn either<T: Clone>(ours: &Option<T>, base: &Option<T>, over: fn(&T, &T) -> T) -> Option<T> {
    match (ours, base) {
        (Some(ours), Some(base)) => Some(over(ours, base)),
        (ours, base) => ours.clone().or_else(|| base.clone()),
    }
}

/// TOML keys are text, seats are numbers.
mod seats {
    use std::collections::BTreeMap;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::AgentConfig;

    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct Number(u32);

    impl<'de> Deserialize<'de> for Number {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            let number = text.parse().map_err(|_| {
                D::Error::custom(format!(
                    "seat `{text}` is not a number; seats are numbered from 0"
                ))
            })?;
            Ok(Self(number))
        }
    }

    pub(super) fn serialize<S: Serializer>(
        seats: &BTreeMap<u32, AgentConfig>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(seats.iter().map(|(number, seat)| (number.to_string(), seat)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<u32, AgentConfig>, D::Error> {
        let seats = BTreeMap::<Number, AgentConfig>::deserialize(deserializer)?;
        Ok(seats.into_iter().map(|(number, seat)| (number.0, seat)).collect())
    }
}

//! Models, the agents on them, and how both sample and learn.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;

use maverl_kernels::matmul::Precision;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::config::LossConfig;

/// `[sampling]` and `[agents.*.sampling]`; what is left out is inherited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingConfig {
    /// Divides the logits; 0 is greedy. **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "short")]
    pub temperature: Option<f32>,
    /// Keep the k likeliest tokens; 0 keeps all. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Keep the smallest set of likeliest tokens with this mass. **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "short")]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this times the likeliest. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "short")]
    pub min_p: Option<f32>,
    /// Logits of tokens that are there already are divided by this where positive, multiplied where negative; 1 is off.
    /// **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "short")]
    pub repetition_penalty: Option<f32>,
    /// Longest reply in tokens. **(default: `256`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<NonZeroUsize>,
    /// Texts that end a reply (kept in it), beside the model's own stop ids. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Vec<String>>,
    /// Token ids that end a reply, beside the model's own. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_ids: Option<Vec<u32>>,
}

/// `[models.NAME]`: a base, and how the policy on it is updated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// `builtin:tiny`, a Hugging Face directory relative to the file that names it, or `hf:ORG/NAME@REVISION` on the hub.
    pub path: String,
    /// Optimizer.
    #[serde(default)]
    pub optim: OptimConfig,
    /// Never update it. **(default: `false`)**
    #[serde(default)]
    pub frozen: bool,
    /// Precision of matrix products: `f32`, or `bf16`, which is faster where the processor has it. Weights,
    /// sums, gradients and moments are f32 in any case. **(default: `f32`)**
    #[serde(default)]
    pub dtype: Dtype,
    /// In an update, keep the inputs of its layers alone and compute the layers again for the gradient: less memory, about
    /// a third more time, the same result. **(default: `false`)**
    #[serde(default)]
    pub gradient_checkpointing: bool,
    /// Train an adapter on it; its own weights stay as they are. **(default: none)**
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// A PEFT directory that adapters on it start from, relative to the file that names it. **(default: none)**
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Further variables of its chat template, as `enable_thinking` of Qwen3's. **(default: none)**
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub chat_template_kwargs: Map<String, Value>,
}

/// Precision of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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

/// `lora = { .. }` of a model, or of an agent with an adapter of its own; what is left out is inherited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Rows of A and columns of B. **(default: `8`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<NonZeroUsize>,
    /// The scale is `alpha / rank`. **(default: `16`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Share of the inputs of A that is dropped in training. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "short")]
    pub dropout: Option<f32>,
    /// Which linear maps it corrects. **(default: `"all-linear"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_modules: Option<TargetModules>,
    /// The scale is `alpha / sqrt(rank)`. **(default: `false`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rslora: Option<bool>,
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

/// `optim = { .. }` of a model, or of an agent with a worker of its own; what is left out is inherited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimConfig {
    /// AdamW step size. **(default: `1e-6`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lr: Option<f64>,
    /// Decay rates of the moments. **(default: `[0.9, 0.999]`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub betas: Option<(f64, f64)>,
    /// Added to the denominator. **(default: `1e-8`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
    /// Decoupled weight decay. **(default: `0.01`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Global gradient norm is clipped to this. **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_clip: Option<f64>,
    /// Schedule of the step size over `steps`. **(default: `"constant"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Steps over which the step size rises from 0. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_steps: Option<u64>,
}

/// Schedule of the step size after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// A name of `[models]`. **(default: the only model)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A name of `[endpoints]`, which speaks for it instead of a model. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Agents with the same model and worker share weights; another name makes another copy. **(default: the model's name)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_group: Option<String>,
    /// Agents with the same model, worker and adapter share it; another name makes another adapter on the same base.
    /// **(default: the worker's name, where the model has `lora`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Per policy: allowed only where every agent of the policy agrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// Never train on this agent's turns. **(default: `false`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<bool>,
    /// Per policy: allowed only where every agent of the policy agrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optim: Option<OptimConfig>,
    /// Policies whose critics have the same name share one. **(default: as `algorithm.critic.scope` says)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critic: Option<String>,
    /// Per row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingConfig>,
    /// Per row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossConfig>,
    /// The agent type's own fields.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// Overrides for single seats, by number from 0.
    #[serde(with = "seats", skip_serializing_if = "BTreeMap::is_empty")]
    pub seats: BTreeMap<u32, AgentConfig>,
}

macro_rules! layered {
    ($config:ty { $($field:ident),* $(,)? }) => {
        impl $config {
            /// These values, and where one is left out, that of `base`.
            #[must_use]
            pub fn over(&self, base: &Self) -> Self {
                Self { $($field: self.$field.clone().or_else(|| base.$field.clone())),* }
            }
        }
    };
}
pub(super) use layered;

layered!(SamplingConfig {
    temperature,
    top_k,
    top_p,
    min_p,
    repetition_penalty,
    max_tokens,
    stop,
    stop_ids,
});
layered!(OptimConfig { lr, betas, eps, weight_decay, grad_clip, schedule, warmup_steps });
layered!(LoraConfig { rank, alpha, dropout, target_modules, rslora });

impl OptimConfig {
    /// Nothing is written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
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

/// Writes an `f32` as the shortest decimal that reads back as it: 0.8, not 0.800000011920929.
pub(super) fn short<S: Serializer>(value: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
    value
        .map(|value| value.to_string().parse::<f64>().unwrap_or(f64::from(value)))
        .serialize(serializer)
}

//! Adapters of policies: shape and start.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::files::HfConfig;
use crate::net;
use crate::net::lora::{Patterns, linear_names, split_targets};
use crate::settings::Settings;

/// Start of an adapter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AdapterSpec {
    /// A new adapter: random A, zero B.
    New(LoraSpec),
    /// The adapter of a PEFT directory, with this dropout in training.
    Load {
        /// Directory.
        dir: PathBuf,
        /// Share of the inputs of A that is dropped in training.
        dropout: f32,
    },
}

/// Shape of an adapter: `lora = { .. }` of a model, or of an agent with an adapter of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Settings)]
#[settings(partial = "LoraConfig", level = "policy", crate = crate)]
pub struct LoraSpec {
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

impl LoraSpec {
    /// Returns the configuration of the adapter on a base.
    pub fn on(&self, base: &HfConfig) -> net::LoraConfig {
        let mut target_modules = match &self.target_modules {
            TargetModules::Named(names) => names.clone(),
            TargetModules::AllLinear => linear_names(base),
        };
        target_modules.sort();
        target_modules.dedup();
        let (target_modules, target_parameters) = split_targets(base, target_modules);
        net::LoraConfig {
            rank: self.rank,
            alpha: self.alpha,
            dropout: self.dropout,
            target_modules,
            rslora: self.rslora,
            patterns: Patterns { target_parameters, ..Patterns::default() },
        }
    }
}

impl From<&net::LoraConfig> for LoraSpec {
    fn from(lora: &net::LoraConfig) -> Self {
        let mut named = [&lora.target_modules[..], &lora.patterns.target_parameters].concat();
        named.sort();
        Self {
            rank: lora.rank,
            alpha: lora.alpha,
            dropout: lora.dropout,
            target_modules: TargetModules::Named(named),
            rslora: lora.rslora,
        }
    }
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
        struct ModulesVisitor;

        impl<'de> de::Visitor<'de> for ModulesVisitor {
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

        deserializer.deserialize_any(ModulesVisitor)
    }
}

//! Choice of a device, and its text in options.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Device on which worker groups generate and are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The CPU.
    #[default]
    Cpu,
    /// The first GPU if it can run the worker groups, else the CPU.
    Auto,
    /// The GPU of a number.
    Cuda(usize),
    /// Candle on its CPU: other people's kernels, for comparison.
    CandleCpu,
    /// The kernels of GPUs as C++ on the CPU: slow, for tests.
    Emulated,
}

impl DeviceChoice {
    /// Returns true if a token's results have the same bits in every company (K-1). Where they have not, they agree within a
    /// bound, and depend on which requests share a pass.
    pub fn is_exact(self) -> bool {
        self != Self::CandleCpu
    }

    /// Returns the largest difference that a token's log-probs are expected to have in different company; 0 where they have the
    /// same bits.
    pub fn mismatch_bound(self) -> f32 {
        if self.is_exact() { 0.0 } else { 1e-3 }
    }

    /// Returns the note of a device whose results are not the same in every company; `None` if they are.
    pub fn note(self) -> Option<String> {
        (!self.is_exact()).then(|| {
            format!(
                "results on {self} depend on timing in their last bits (K-1 does not hold there)"
            )
        })
    }
}

/// Devices, in messages.
const NAMES: &str = "\"cpu\", \"auto\", \"cuda\", \"cuda:1\", \"candle:cpu\" or \"emulated\"";
/// Hint for another device of candle, in messages.
const CANDLE_ALONE: &str = "candle runs on its CPU alone; write \"candle:cpu\"";

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Auto => f.write_str("auto"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::CandleCpu => f.write_str("candle:cpu"),
            Self::Emulated => f.write_str("emulated"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = match name {
            "cpu" => Some(Self::Cpu),
            "auto" => Some(Self::Auto),
            "cuda" => Some(Self::Cuda(0)),
            "candle:cpu" => Some(Self::CandleCpu),
            "emulated" => Some(Self::Emulated),
            _ => name.strip_prefix("cuda:").and_then(|n| n.parse().ok()).map(Self::Cuda),
        };
        found.ok_or_else(|| match name.split(':').next() {
            Some("candle") => format!("\"{name}\" is no device: {CANDLE_ALONE}"),
            _ => format!("\"{name}\" is no device; write {NAMES}"),
        })
    }
}

impl JsonSchema for DeviceChoice {
    fn schema_name() -> Cow<'static, str> {
        "Device".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(cpu|auto|cuda(:[0-9]+)?|candle:cpu|emulated)$",
            "description": "The CPU, a GPU if there is one, a GPU by its number, candle's CPU, or the emulation of a GPU.",
        })
    }
}

impl Serialize for DeviceChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChoiceVisitor;

        impl de::Visitor<'_> for ChoiceVisitor {
            type Value = DeviceChoice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(NAMES)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DeviceChoice, E> {
                text.parse().map_err(|message: String| {
                    if text.starts_with("candle") {
                        return E::custom(message);
                    }
                    E::invalid_value(de::Unexpected::Str(text), &self)
                })
            }
        }

        deserializer.deserialize_str(ChoiceVisitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_device_is_read_as_it_is_written() {
        for name in ["cpu", "auto", "cuda:0", "cuda:7", "candle:cpu", "emulated"] {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        for name in ["gpu", "cuda:", "cuda:x", "CPU", ""] {
            let error = name.parse::<DeviceChoice>().unwrap_err();
            assert!(error.contains("\"cuda:1\""), "{error}");
        }
        for name in ["candle", "candle:metal", "candle:cuda:1"] {
            let error = name.parse::<DeviceChoice>().unwrap_err();
            assert!(
                error.ends_with("candle runs on its CPU alone; write \"candle:cpu\""),
                "{error}"
            );
        }
    }
}

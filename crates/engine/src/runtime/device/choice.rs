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
    /// The kernels of GPUs as C++ on the CPU: slow, for tests.
    Emulated,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Auto => f.write_str("auto"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
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
            "emulated" => Some(Self::Emulated),
            _ => name.strip_prefix("cuda:").and_then(|n| n.parse().ok()).map(Self::Cuda),
        };
        found.ok_or_else(|| {
            format!("\"{name}\" is no device; write \"cpu\", \"auto\", \"cuda\", \"cuda:1\" or \"emulated\"")
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
            "pattern": "^(cpu|auto|cuda(:[0-9]+)?|emulated)$",
            "description": "The CPU, a GPU if there is one, a GPU by its number, or its emulation.",
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
                f.write_str("\"cpu\", \"auto\", \"cuda\", \"cuda:1\" or \"emulated\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DeviceChoice, E> {
                text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
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
        for name in ["cpu", "auto", "cuda:0", "cuda:7", "emulated"] {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        for name in ["gpu", "cuda:", "cuda:x", "CPU", ""] {
            let error = name.parse::<DeviceChoice>().unwrap_err();
            assert!(error.contains("\"cuda:1\""), "{error}");
        }
    }
}

//! Devices of models: `runtime.device`, and `[worker_groups.NAME]`.
//!
//! A key of `[worker_groups.NAME]` is also a field of `WorkerPlan`, whose value `check/worker.rs` sets, and of the
//! engine's `WorkerSpec`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::runtime::DeviceChoice;
use crate::settings::Settings;

/// `[worker_groups.NAME]`: a worker group of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct WorkerGroupConfig {
    /// Device of this worker group: a value of `runtime.device`, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"cuda:1\"")]
    pub device: Option<Device>,
}

/// Device of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Device(pub DeviceChoice);

impl Device {
    /// Returns true if products on it are in bf16 alone.
    pub(crate) fn is_accelerator(self) -> bool {
        match self.0 {
            DeviceChoice::Cpu => false,
            DeviceChoice::Auto => DeviceChoice::Cuda(0).unavailable().is_none(),
            _ => true,
        }
    }
}

impl JsonSchema for Device {
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

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Device;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"cpu\", \"auto\", \"cuda\", \"cuda:1\" or \"emulated\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Device, E> {
                let unknown = |_| E::invalid_value(de::Unexpected::Str(text), &self);
                text.parse().map(Device).map_err(unknown)
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

//! Evaluations: their tasks, and the steps at which they run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::limits::GROUP;
use super::{ComponentConfig, Preset, TaskConfig};
use crate::settings::{self, Settings};

/// `[eval]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct EvalConfig {
    /// Steps between evaluations on the validation split; 0 disables them.
    pub every: u64,
    /// Split of evaluations during training.
    #[setting(default = "validation")]
    pub split: String,
    /// Split of the evaluations before and after training, and of `maverl eval`.
    #[setting(default = "test")]
    pub test_split: String,
    /// File of held-out tasks, in place of the splits of the training data; a row without a split belongs to every split. Several
    /// are a table, and the result has a line for each name.
    #[setting(example = "\"questions.jsonl\"")]
    pub data: Option<EvalData>,
    /// Maximum number of tasks of an evaluation; of each file, where there are several.
    #[setting(default = 512)]
    pub tasks: NonZeroUsize,
    /// Episodes per task, n: gives avg@n, and pass@k for k = 1, 2, 4 and so on up to n.
    #[setting(default = 1, range = 1..=GROUP)]
    pub samples: NonZeroU32,
    /// Temperature of all agents in evaluations, instead of that in their `sampling`; 0 is greedy.
    #[serde(serialize_with = "settings::shortest_decimal")]
    #[setting(range = 0.0.., example = "0.0")]
    pub temperature: Option<f32>,
    /// Evaluate before and after training.
    #[setting(default = true)]
    pub before_and_after: bool,
}

/// Held-out tasks: data, or several by name.
#[derive(Debug, Clone, PartialEq)]
pub enum EvalData {
    /// As `task.data`.
    One(String),
    /// Each as `task.data`.
    Several(BTreeMap<String, String>),
}

impl EvalData {
    /// Returns the data, if there are not several.
    fn one(&self) -> Option<&str> {
        match self {
            Self::One(data) => Some(data),
            Self::Several(_) => None,
        }
    }

    /// Iterates over the data.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self {
            Self::One(data) => (Some(data.as_str()), None),
            Self::Several(sets) => (None, Some(sets.values().map(String::as_str))),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Returns the key of each of the data, in the order of [`EvalData::names`].
    pub(crate) fn places(&self) -> Vec<Vec<String>> {
        let at = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
        match self {
            Self::One(_) => vec![at(&["eval", "data"])],
            Self::Several(sets) => sets.keys().map(|name| at(&["eval", "data", name])).collect(),
        }
    }

    /// Returns the same with each of the data changed.
    pub(crate) fn map_data(&self, mut change: impl FnMut(&str, &[String]) -> String) -> Self {
        let mut changed = self.names().zip(self.places()).map(|(data, at)| change(data, &at));
        match self {
            Self::One(data) => Self::One(changed.next().unwrap_or_else(|| data.clone())),
            Self::Several(sets) => Self::Several(sets.keys().cloned().zip(changed).collect()),
        }
    }

    /// Returns several data as components that the environment of tasks judges.
    fn components(&self, task: &TaskConfig) -> BTreeMap<String, ComponentConfig> {
        let Self::Several(sets) = self else { return BTreeMap::new() };
        let components = sets.iter().map(|(name, data)| {
            let component = ComponentConfig {
                data: data.clone(),
                format: task.format,
                keys: task.keys.clone(),
                ids: task.ids,
                environment: task.environment.clone(),
                ..ComponentConfig::default()
            };
            (name.clone(), component)
        });
        components.collect()
    }
}

impl Serialize for EvalData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(data) => data.serialize(serializer),
            Self::Several(sets) => sets.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for EvalData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EvalDataVisitor;

        impl<'de> de::Visitor<'de> for EvalDataVisitor {
            type Value = EvalData;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("data, or a table of data by name such as { math = \"math.jsonl\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(EvalData::One(text.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let map = de::value::MapAccessDeserializer::new(map);
                Deserialize::deserialize(map).map(EvalData::Several)
            }
        }

        deserializer.deserialize_any(EvalDataVisitor)
    }
}

impl JsonSchema for EvalData {
    fn schema_name() -> Cow<'static, str> {
        "EvalData".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "description": "As `task.data`." },
                {
                    "type": "object",
                    "additionalProperties": { "type": "string" },
                    "description": "Several data by name.",
                },
            ],
        })
    }
}

/// Split of the rows of a file that name none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unsplit {
    /// `train`, `validation` or `test`, by a hash of the id.
    #[default]
    Hashed,
    /// Every split: such rows are of each split that is asked for.
    Every,
}

impl EvalConfig {
    /// When training evaluates. Demonstrations are no tasks: supervised training does only where [`EvalConfig::data`] names
    /// some. A verifier is evaluated on labeled replies, without episodes.
    #[must_use]
    pub fn used(&self, preset: Preset) -> Self {
        let without = preset.is_supervised() && (self.data.is_none() || preset == Preset::Verifier);
        Self {
            every: if without { 0 } else { self.every },
            before_and_after: self.before_and_after && !without,
            ..self.clone()
        }
    }

    /// Where held-out tasks come from: the evaluation's own file, or that of the training data. Of a split, the first
    /// [`EvalConfig::tasks`].
    pub fn held_out(&self, task: &TaskConfig) -> TaskConfig {
        let limit = Some(self.tasks);
        match self.own_data(task) {
            // Another file of the same rows, as a data set's test set is.
            Some(data) => TaskConfig {
                data: data.one().unwrap_or_default().to_owned(),
                mixture: data.components(task),
                limit,
                format: task.format,
                keys: task.keys.clone(),
                ignore: task.ignore.clone(),
                ids: task.ids,
                max_mib: task.max_mib,
                max_row_mib: task.max_row_mib,
                environment: task.environment.clone(),
                unsplit: Unsplit::Every,
                ..TaskConfig::default()
            },
            None => TaskConfig { limit, ..task.clone() },
        }
    }

    /// Returns the file of held-out tasks if it is another than that of the training data, which has its own splits.
    pub fn own_data(&self, task: &TaskConfig) -> Option<&EvalData> {
        let same = |data: &EvalData| data.one() == Some(&task.data);
        self.data.as_ref().filter(|data| !task.mixture.is_empty() || !same(data))
    }
}

//! The configuration: typed, layered, and unable to lie. Every key is used or rejected.
//!
//! Layers: defaults < file < `MAVERL_*` < `--set key=value`. `docs/src/config.md` is the commented reference.

mod advantage;
mod agent;
mod algorithm;
mod critic;
mod device;
mod endpoint;
mod instance;
mod loss;
mod preset;
pub(crate) mod reference;
pub(crate) mod schema;
pub(crate) mod tables;
#[cfg(test)]
mod tests;

pub use crate::credit::{GroupBy, KnownBaseline};
pub use advantage::{
    AdvantagePlan, AnchorPlan, GreedyPlan, GroupBaseline, GroupPlan, MovingAveragePlan, RewardPlan,
    Singleton,
};
pub use agent::{
    AgentConfig, Dtype, LoraConfig, LoraPlan, ModelConfig, OptimConfig, OptimPlan, Sampling,
    SamplingConfig, Schedule, TargetModules,
};
pub use algorithm::{
    AdaptiveKlConfig, AdaptiveKlPlan, AlgorithmConfig, AlgorithmPlan, HappoConfig, HappoPlan,
    InfluenceConfig, InfluencePlan, PairLoss, PreferenceConfig, PreferencePlan, RewardConfig,
    Shaping, TrainOn,
};
pub use critic::{
    Bootstrap, Credit, CriticInput, CriticPlan, CriticScope, FutureRewards, Granularity,
    HappoFactor, MixerNetwork, MixerPlan, MixerTrunk, Normalize, Trunk, UpdateOrder,
};
pub use device::Device;
pub use endpoint::EndpointConfig;
pub use instance::{Chosen, DeclaredPlan, Instance};
pub use loss::{
    Aggregation, Correction, Kl, KlIn, LossConfig, LossPlan, Ratio, ReferenceConfig, ReferencePlan,
    Surrogate,
};
pub use preset::Preset;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::settings::{self, Settings};
use tables::{GROUP, LARGE, MANY};

/// A run, as a user writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "step")]
pub struct Config {
    /// Seed that every other seed derives from.
    pub seed: u64,
    /// Training steps.
    #[setting(default = 100, level = "run")]
    pub steps: u64,
    /// Directory that relative paths start from, relative to the file; the file's own unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "run", example = "\"..\"")]
    pub base: Option<String>,
    /// Source of tasks.
    #[setting(table)]
    pub task: TaskConfig,
    /// The component the team acts in, and its options.
    #[setting(table)]
    pub environment: Named,
    /// Further components that the orchestra acts in, by the name it has for them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table)]
    pub environments: BTreeMap<String, Named>,
    /// The control flow, and its options.
    #[setting(table)]
    pub orchestra: Named,
    /// Rollout settings.
    #[setting(table)]
    pub rollout: RolloutConfig,
    /// Sampling of every agent without settings of its own.
    #[setting(table)]
    pub sampling: SamplingConfig,
    /// Models by the name agents refer to them by.
    #[setting(table)]
    pub models: BTreeMap<String, ModelConfig>,
    /// Endpoints, which answer for agents instead of a model of the run, by the name agents refer to them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table)]
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// Agents by their registered name; unlisted agents use the only model there is.
    #[setting(table)]
    pub agents: BTreeMap<String, AgentConfig>,
    /// The algorithm: from rewards to updates.
    #[setting(table)]
    pub algorithm: AlgorithmConfig,
    /// Reward functions to add, by registered name.
    #[setting(table)]
    pub rewards: BTreeMap<String, RewardConfig>,
    /// Evaluation settings.
    #[setting(table)]
    pub eval: EvalConfig,
    /// Checkpoint settings.
    #[setting(table)]
    pub checkpoint: CheckpointConfig,
    /// The machine.
    #[setting(table)]
    pub runtime: RuntimeConfig,
}

/// `[environment]` and `[orchestra]`: a registered name, and the options of what it names beside it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// The registered name; may be left out where only one is linked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its options, checked against the declared type.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

/// `[task]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "step")]
pub struct TaskConfig {
    /// `builtin:facts`, `builtin:arithmetic`, `builtin:nli`, `builtin:code`, `builtin:tools`, or a file relative to the one that names it.
    #[setting(default = "builtin:facts")]
    pub data: String,
    /// Format of the file, `auto` by its content.
    pub format: DataFormat,
    /// Keys of rows: our name, and that of the file; a `.` leads into an object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(example = "{ question = \"query\" }")]
    pub keys: BTreeMap<String, String>,
    /// Source of the ids of tasks.
    pub ids: Ids,
    /// MiB that a compressed data file may unpack to.
    #[setting(default = 1024, range = 1..=LARGE, level = "run")]
    pub max_mib: NonZeroU64,
    /// MiB of a row.
    #[setting(default = 16, range = 1..=LARGE, level = "run")]
    pub max_row_mib: NonZeroU64,
    /// Split trained on, where the data has splits.
    #[setting(default = "train")]
    pub split: String,
    /// Tasks a step.
    #[setting(default = 16, range = 1..=MANY)]
    pub tasks_per_step: NonZeroUsize,
    /// Episodes a task, compared with each other.
    #[setting(default = 8, range = 1..=GROUP)]
    pub group_size: NonZeroU32,
    /// Draw tasks in a new random order each epoch; else in file order.
    #[setting(default = true)]
    pub shuffle: bool,
    /// Use only the first so many tasks.
    #[setting(example = "1000")]
    pub limit: Option<NonZeroUsize>,
    /// Leave out tasks of a higher `level`, here and where held-out tasks are from the same data.
    #[setting(example = "2")]
    pub max_level: Option<u64>,
    /// Steps after which tasks one `level` harder are drawn, too, beginning with the easiest; 0 draws all from the start.
    pub harder_every: u64,
    /// Several components at once, in the place of `data` and `[environment]`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table)]
    pub mixture: BTreeMap<String, ComponentConfig>,
}

/// `[task.mixture.NAME]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "step")]
pub struct ComponentConfig {
    /// As that of `[task]`.
    #[setting(default = "builtin:facts")]
    pub data: String,
    /// As that of `[task]`.
    pub format: DataFormat,
    /// As those of `[task]`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(example = "{ question = \"query\" }")]
    pub keys: BTreeMap<String, String>,
    /// As that of `[task]`.
    pub ids: Ids,
    /// Its tasks of a step, compared with those of other components.
    #[setting(default = 1.0, range = above(0.0)..)]
    pub weight: f64,
    /// As `[environment]`.
    #[setting(table, example = "{ name = \"search\" }")]
    pub environment: Named,
}

/// Where the ids of tasks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ids {
    /// The id of each row, or else its number.
    #[default]
    File,
    /// The number of the line or row, whatever it says.
    Line,
}

/// Format of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataFormat {
    /// By its content.
    #[default]
    Auto,
    /// Rows, JSON objects one a line or in a list, or those of a Parquet file: `question`, `answers` (or `answer`), optional
    /// `id` and `source`; or as TRL, verl, ANLI and mathematical data sets have them.
    Jsonl,
    /// SQuAD: `data[].paragraphs[].qas[]`.
    Squad,
    /// HotpotQA: a list of `question`, `answer`, `context`.
    Hotpot,
}

/// `[rollout]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct RolloutConfig {
    /// Episodes under way at once.
    #[setting(default = 512)]
    pub max_episodes: NonZeroUsize,
    /// Seconds after which an episode ends unscored.
    #[setting(default = 600.0, range = above(0.0).., level = "step")]
    pub timeout_s: f64,
    /// Behavior when a prompt does not fit the context.
    #[setting(level = "step")]
    pub overflow: Overflow,
    /// Share of unscored episodes in a step above which the run stops.
    #[setting(default = 0.5, range = 0.0..=1.0)]
    pub max_unscored: f64,
}

/// Behavior when a prompt does not fit the model's context beside `max_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The episode ends unscored, with kind `overflow`.
    #[default]
    Error,
    /// Observations (input fields marked `#[input(observation)]`) are shortened from their end, the longest first;
    /// each turn records how many characters were cut.
    TruncateObservation,
}

/// `[eval]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct EvalConfig {
    /// Evaluate on the validation split every so many steps; 0 never.
    pub every: u64,
    /// Split validated on during training, where the data has splits.
    #[setting(default = "validation")]
    pub split: String,
    /// Split of the evaluations before and after training and of `maverl eval`.
    #[setting(default = "test")]
    pub test_split: String,
    /// Another file to evaluate on than the training data.
    #[setting(example = "\"questions.jsonl\"")]
    pub data: Option<String>,
    /// Play at most so many tasks.
    #[setting(default = 512)]
    pub tasks: NonZeroUsize,
    /// Episodes a task: k of avg@k and pass@k.
    #[setting(default = 1, range = 1..=GROUP)]
    pub samples: NonZeroU32,
    /// Temperature of every agent instead of its own; 0 is greedy.
    #[serde(serialize_with = "settings::short")]
    #[setting(range = 0.0.., example = "0.0")]
    pub temperature: Option<f32>,
    /// Evaluate before and after training.
    #[setting(default = true)]
    pub before_and_after: bool,
}

impl EvalConfig {
    /// When training evaluates. Demonstrations are no tasks: supervised training does only where [`EvalConfig::data`] names
    /// some.
    #[must_use]
    pub fn used(&self, preset: Preset) -> Self {
        let without = preset.is_supervised() && self.data.is_none();
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
        match &self.data {
            // Another file of the same rows, as a data set's test set is.
            Some(data) => TaskConfig {
                data: data.clone(),
                limit,
                keys: task.keys.clone(),
                ids: task.ids,
                max_mib: task.max_mib,
                max_row_mib: task.max_row_mib,
                ..TaskConfig::default()
            },
            None => TaskConfig { limit, ..task.clone() },
        }
    }
}

/// `[checkpoint]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct CheckpointConfig {
    /// Write one every so many steps; 0 only at the end.
    #[setting(default = 10)]
    pub every: u64,
    /// Keep so many of the newest.
    #[setting(default = 2)]
    pub keep: NonZeroUsize,
    /// Also keep the best by validation.
    #[setting(default = true)]
    pub best: bool,
}

/// `[runtime]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct RuntimeConfig {
    /// Device of models: "cpu", "cuda", "cuda:1", "auto" or "emulated". "auto" takes the first GPU if one can be used. On a
    /// GPU, products are in bf16. "emulated" runs a GPU's kernels on the CPU: slow, for tests.
    #[setting(level = "step")]
    pub device: Device,
    /// Threads of the numeric kernels; 0 is one per core. Results do not depend on it.
    #[setting(range = 0..=1024)]
    pub threads: usize,
    /// Requests in a worker group at once.
    #[setting(default = 512, range = 1..=MANY)]
    pub max_requests: NonZeroUsize,
    /// Prompt tokens computed between two decode steps.
    #[setting(default = 4096, range = 1..=LARGE)]
    pub prefill_tokens: NonZeroUsize,
    /// MiB of keys and values that a worker group may hold. Where they do not suffice, requests wait or are computed again
    /// later; results do not depend on it.
    #[setting(default = 4096, range = 1..=LARGE)]
    pub kv_mib: NonZeroUsize,
    /// Compute what prompts have in common once. Results do not depend on it.
    #[setting(default = true)]
    pub prefix_cache: bool,
    /// Tokens of a training micro-batch.
    #[setting(default = 4096, range = 1..=LARGE, level = "step")]
    pub micro_batch_tokens: NonZeroUsize,
}

//! The configuration: typed, layered, and unable to lie. Every key is used or rejected.
//!
//! Layers: defaults < file < `MAVERL_*` < `--set key=value`. `docs/src/config.md` is the commented reference.

mod agent;
mod algorithm;
mod critic;
mod endpoint;
mod loss;
mod preset;
pub(crate) mod reference;
#[cfg(test)]
mod tests;

pub use agent::{
    AgentConfig, Dtype, LoraConfig, ModelConfig, OptimConfig, SamplingConfig, Schedule,
    TargetModules,
};
pub use algorithm::{
    AdaptiveKlConfig, AlgorithmConfig, Baseline, GroupBy, HappoConfig, InfluenceConfig, PairLoss,
    PreferenceConfig, RewardConfig, Shaping, Singleton, TrainOn,
};
pub use critic::{
    Bootstrap, Credit, CriticConfig, CriticInput, CriticScope, Estimator, FutureRewards,
    Granularity, HappoFactor, Mixer, Normalize, Trunk, UpdateOrder,
};
pub use endpoint::EndpointConfig;
pub use loss::{Aggregation, Correction, Kl, KlIn, LossConfig, Ratio, ReferenceConfig, Surrogate};
pub use preset::Preset;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A run, as a user writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// From which every other seed derives. **(default: `0`)**
    pub seed: u64,
    /// Training steps. **(default: `100`)**
    pub steps: u64,
    /// Directory that relative paths start from, itself relative to the file. **(default: the file's directory)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Where tasks come from.
    pub task: TaskConfig,
    /// The component the team acts in, and its options.
    pub environment: Named,
    /// Further components that the orchestra acts in, by the name it has for them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environments: BTreeMap<String, Named>,
    /// The control flow, and its options.
    pub orchestra: Named,
    /// Rollout settings.
    pub rollout: RolloutConfig,
    /// Sampling of every agent without settings of its own.
    pub sampling: SamplingConfig,
    /// Models by the name agents refer to them by.
    pub models: BTreeMap<String, ModelConfig>,
    /// Who speaks for agents without being a model, by the name agents refer to them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// Agents by their registered name; unlisted agents use the only model there is.
    pub agents: BTreeMap<String, AgentConfig>,
    /// The algorithm: from rewards to updates.
    pub algorithm: AlgorithmConfig,
    /// Reward functions to add, by registered name.
    pub rewards: BTreeMap<String, RewardConfig>,
    /// Evaluation settings.
    pub eval: EvalConfig,
    /// Checkpoint settings.
    pub checkpoint: CheckpointConfig,
    /// The machine.
    pub runtime: RuntimeConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            steps: 100,
            base: None,
            task: TaskConfig::default(),
            environment: Named::default(),
            environments: BTreeMap::new(),
            orchestra: Named::default(),
            rollout: RolloutConfig::default(),
            sampling: SamplingConfig::default(),
            models: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            agents: BTreeMap::new(),
            algorithm: AlgorithmConfig::default(),
            rewards: BTreeMap::new(),
            eval: EvalConfig::default(),
            checkpoint: CheckpointConfig::default(),
            runtime: RuntimeConfig::default(),
        }
    }
}

/// `[environment]` and `[orchestra]`: a registered name, and the options of what it names beside it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Named {
    /// The registered name; may be left out where only one is linked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its options, checked against the declared type.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

/// `[algorithm.advantage]` and `[algorithm.surrogate]`: a registered name, and the settings of what it names beside it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeclaredConfig {
    /// The registered name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its settings, checked against the declared type.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// `[task]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskConfig {
    /// `builtin:facts`, `builtin:arithmetic`, `builtin:nli`, `builtin:code`, `builtin:tools`, or a file relative to the one that names it. **(default: `"builtin:facts"`)**
    pub data: String,
    /// Format of the file. **(default: `"auto"`, by its content)**
    pub format: DataFormat,
    /// Keys of rows: our name, and what the file calls it; a `.` leads into an object. **(default: none)**
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
    /// Where the ids of tasks come from. **(default: `"file"`)**
    pub ids: Ids,
    /// MiB that a compressed data file may unpack to. **(default: `1024`)**
    pub max_mib: NonZeroU64,
    /// MiB of a row. **(default: `16`)**
    pub max_row_mib: NonZeroU64,
    /// The split trained on, where the data has splits. **(default: `"train"`)**
    pub split: String,
    /// Tasks a step. **(default: `16`)**
    pub tasks_per_step: NonZeroUsize,
    /// Episodes a task, compared with each other. **(default: `8`)**
    pub group_size: NonZeroU32,
    /// Draw tasks in a new random order each epoch; else in file order. **(default: `true`)**
    pub shuffle: bool,
    /// Use only the first so many tasks. **(default: all)**
    pub limit: Option<NonZeroUsize>,
    /// Leave out tasks of a higher `level`, here and where held-out tasks are from the same data. **(default: none)**
    pub max_level: Option<u64>,
    /// Steps after which tasks one `level` harder are drawn, too, beginning with the easiest; 0 draws all from the start.
    /// **(default: `0`)**
    pub harder_every: u64,
    /// Several components at once, in the place of `data` and `[environment]`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mixture: BTreeMap<String, ComponentConfig>,
}

/// `[task.mixture.NAME]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ComponentConfig {
    /// As that of `[task]`. **(default: `"builtin:facts"`)**
    pub data: String,
    /// As that of `[task]`. **(default: `"auto"`)**
    pub format: DataFormat,
    /// As those of `[task]`. **(default: none)**
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
    /// As that of `[task]`. **(default: `"file"`)**
    pub ids: Ids,
    /// Its tasks of a step, compared with those of other components. **(default: `1.0`)**
    pub weight: f64,
    /// As `[environment]`.
    pub environment: Named,
}

impl Default for ComponentConfig {
    fn default() -> Self {
        let TaskConfig { data, format, keys, ids, .. } = TaskConfig::default();
        Self { data, format, keys, ids, weight: 1.0, environment: Named::default() }
    }
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            data: "builtin:facts".to_owned(),
            format: DataFormat::Auto,
            keys: BTreeMap::new(),
            ids: Ids::File,
            max_mib: NonZeroU64::MIN.saturating_add(1023),
            max_row_mib: NonZeroU64::MIN.saturating_add(15),
            split: "train".to_owned(),
            tasks_per_step: NonZeroUsize::MIN.saturating_add(15),
            group_size: NonZeroU32::MIN.saturating_add(7),
            shuffle: true,
            limit: None,
            max_level: None,
            harder_every: 0,
            mixture: BTreeMap::new(),
        }
    }
}

/// Where the ids of tasks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ids {
    /// The id of each row, or else its number.
    #[default]
    File,
    /// The number of the line or row, whatever it says.
    Line,
}

/// Format of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Episodes under way at once. **(default: `512`)**
    pub max_episodes: NonZeroUsize,
    /// Seconds after which an episode ends unscored. **(default: `600`)**
    pub timeout_s: f64,
    /// Behavior when a prompt does not fit the context. **(default: `"error"`)**
    pub overflow: Overflow,
    /// Share of unscored episodes in a step above which the run stops. **(default: `0.5`)**
    pub max_unscored: f64,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            max_episodes: NonZeroUsize::MIN.saturating_add(511),
            timeout_s: 600.0,
            overflow: Overflow::Error,
            max_unscored: 0.5,
        }
    }
}

/// Behavior when a prompt does not fit the model's context beside `max_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalConfig {
    /// Evaluate on the validation split every so many steps; 0 never. **(default: `0`)**
    pub every: u64,
    /// The split validated on during training, where the data has splits. **(default: `"validation"`)**
    pub split: String,
    /// The split of the evaluations before and after training and of `maverl eval`. **(default: `"test"`)**
    pub test_split: String,
    /// Another file to evaluate on. **(default: the training data's)**
    pub data: Option<String>,
    /// Play at most so many tasks. **(default: `512`)**
    pub tasks: NonZeroUsize,
    /// Episodes a task: k of avg@k and pass@k. **(default: `1`)**
    pub samples: NonZeroU32,
    /// Temperature of every agent instead of its own; 0 is greedy. **(default: each agent's own)**
    #[serde(serialize_with = "agent::short")]
    pub temperature: Option<f32>,
    /// Evaluate before and after training. **(default: `true`)**
    pub before_and_after: bool,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self {
            every: 0,
            split: "validation".to_owned(),
            test_split: "test".to_owned(),
            data: None,
            tasks: NonZeroUsize::MIN.saturating_add(511),
            samples: NonZeroU32::MIN,
            temperature: None,
            before_and_after: true,
        }
    }
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Write one every so many steps; 0 only at the end. **(default: `10`)**
    pub every: u64,
    /// Keep so many of the newest. **(default: `2`)**
    pub keep: NonZeroUsize,
    /// Also keep the best by validation. **(default: `true`)**
    pub best: bool,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 10, keep: NonZeroUsize::MIN.saturating_add(1), best: true }
    }
}

/// `[runtime]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeConfig {
    /// Threads of the numeric kernels; 0 is one per core. Results do not depend on it. **(default: `0`)**
    pub threads: usize,
    /// Requests in a worker group at once. **(default: `512`)**
    pub max_requests: NonZeroUsize,
    /// Prompt tokens computed between two decode steps. **(default: `4096`)**
    pub prefill_tokens: NonZeroUsize,
    /// MiB of keys and values that a worker group may hold. Where they do not suffice, requests wait or are computed again
    /// later; results do not depend on it. **(default: `4096`)**
    pub kv_mib: NonZeroUsize,
    /// Compute what prompts have in common once. Results do not depend on it. **(default: `true`)**
    pub prefix_cache: bool,
    /// Tokens of a training micro-batch. **(default: `4096`)**
    pub micro_batch_tokens: NonZeroUsize,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            threads: 0,
            max_requests: NonZeroUsize::MIN.saturating_add(511),
            prefill_tokens: NonZeroUsize::MIN.saturating_add(4095),
            kv_mib: NonZeroUsize::MIN.saturating_add(4095),
            prefix_cache: true,
            micro_batch_tokens: NonZeroUsize::MIN.saturating_add(4095),
        }
    }
}

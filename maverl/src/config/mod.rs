//! The configuration: typed and layered. Every key is used or rejected.
//! Layers: defaults < file < `MAVERL_*` < `--set key=value`. `docs/src/keys.md` is the commented reference.

mod advantage;
mod agent;
mod algorithm;
mod branch;
mod critic;
mod curriculum;
mod device;
mod dist;
mod endpoint;
mod entropy;
mod eval;
mod instance;
mod judge;
mod limits;
mod loss;
mod model;
mod overlong;
mod preset;
mod preset_keys;
mod record;
pub mod reference;
mod replay;
mod resolved;
mod reward;
mod reward_unit;
mod rollout_server;
pub(crate) mod schema;
mod served;
pub mod source;
pub mod table;
pub mod tables;
mod teacher;
#[cfg(test)]
mod tests;
mod track;
mod verifier;

pub use crate::credit::{GroupBy, KnownBaseline, Unbranched};
pub use crate::dist::{Shard, Transport};
pub use crate::loss::{
    AdaptiveKl, AdaptiveKlConfig, Aggregation, CispoOptions, ClipOptions, Correction,
    CorrectionUnit, CpgdOptions, Kl, MaskOptions, PairLoss, PreferenceConfig, PreferenceOptions,
    Ratio, SapoOptions, Selection, TruncateOptions,
};
pub use crate::net::HeadKind;
pub use crate::runtime::{
    DeviceChoice, Dtype, LoraConfig, LoraSpec, LossScaleConfig, LossScaleOptions, Normalize,
    OptimConfig, OptimOptions, OptimizerKind, RuntimeOptions, Sampling, SamplingConfig,
    SavedMoments, Schedule, TargetModules, Trunk,
};
pub use advantage::{
    AdvantagePlan, AnchorPlan, BranchUse, ContinuationsPlan, CounterfactualPlan, GreedyPlan,
    GroupBaseline, GroupPlan, MovingAveragePlan, OpoPlan, RewardPlan, ShapleyPlan, Singleton,
    TokenBaselinePlan,
};
pub use agent::AgentConfig;
pub use algorithm::{
    AlgorithmConfig, AlgorithmPlan, FuturePlan, FutureRewards, HappoFactor, InfluenceConfig,
    InfluencePlan, ObservationPlan, SequencePlan, Shaping, ShapingPlan, TrainOn, UpdateOrder,
};
pub use branch::{BranchConfig, BranchKeep, BranchTurns};
pub use critic::{
    Bootstrap, Credit, CriticInput, CriticPasses, CriticPlan, CriticScope, Granularity,
    MixerNetwork, MixerPlan, MixerTrunk,
};
pub use curriculum::{CurriculumConfig, SolvePool};
pub use device::WorkerGroupConfig;
pub use dist::{DistConfig, RolloutWeights};
pub use endpoint::EndpointConfig;
pub use entropy::{AdaptiveEntropy, AdaptiveEntropyConfig};
pub use eval::{EvalConfig, EvalData, Unsplit};
pub use instance::{Chosen, Instance};
pub use judge::{
    JudgeMode, JudgeOrders, RewardJudgeConfig, VerdictForm, next_rubric_name, rubric_names,
};
pub use loss::{
    KlIn, LossConfig, LossPlan, ReferenceConfig, ReferencePlan, SurrogatePlan, TruncatedReply,
};
pub use model::ModelConfig;
pub use overlong::OverlongText;
pub use preset::Preset;
pub use record::{CheckpointConfig, RecordConfig};
pub use replay::{ReplayConfig, ReplayPlan};
pub use resolved::Resolved;
pub(crate) use reward::STAGE;
pub use reward::{
    PythonStyle, RewardConfig, RewardProtocol, RewardPythonConfig, RewardServerConfig,
    RewardUsageConfig, RewardVerifierConfig, UsageAfter,
};
pub use reward_unit::{OnRewardError, RewardUnit};
pub use rollout_server::{RolloutServerConfig, ServerKind};
pub(crate) use served::{ServedTasks, TaskServer, is_served};
pub use teacher::{
    DistillConfig, DistillHorizon, DistillKind, DistillPlan, DistillSupport, HintPlace,
    TeacherChoice, TeacherConfig, TeacherPolicy,
};
pub use track::{TrackConfig, TrackTarget, Tracker};

pub use verifier::{VerifierConfig, VerifierLabels, VerifierLoss, VerifierPlan, VerifierTrunk};

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::settings::Settings;
use limits::{GROUP, LARGE, MANY};

/// A run, as a user writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct Config {
    /// Seed of the run, from which all other seeds are derived.
    pub seed: u64,
    /// Training steps.
    #[setting(default = 100, level = "run")]
    pub steps: u64,
    /// Directory from which relative paths in this file start; the default is the directory of the file, and a relative
    /// value starts there too.
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
    /// Defaults of every agent's `sampling`.
    #[setting(table)]
    pub sampling: SamplingConfig,
    /// Models by the name agents refer to them by.
    #[setting(table)]
    pub models: BTreeMap<String, ModelConfig>,
    /// Endpoints, which answer for agents instead of a model of the run, by the name agents refer to them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table)]
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// Inference servers that sample in place of this process, by the name models refer to them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table)]
    pub rollout_servers: BTreeMap<String, RolloutServerConfig>,
    /// Teachers by the name agents refer to them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table)]
    pub teachers: BTreeMap<String, TeacherConfig>,
    /// Agents by their registered name; unlisted agents use the only model there is.
    #[setting(table)]
    pub agents: BTreeMap<String, AgentConfig>,
    /// The algorithm: from rewards to updates.
    #[setting(table)]
    pub algorithm: AlgorithmConfig,
    /// Parts of the reward beside the score: declared functions by their name; servers, Python files and verifiers by any other.
    #[setting(table)]
    pub rewards: BTreeMap<String, RewardConfig>,
    /// Evaluation settings.
    #[setting(table)]
    pub eval: EvalConfig,
    /// Checkpoint settings.
    #[setting(table)]
    pub checkpoint: CheckpointConfig,
    /// Records that the pages about a run show.
    #[setting(table)]
    pub record: RecordConfig,
    /// Trackers that the run is reported to.
    #[serde(skip_serializing_if = "TrackConfig::is_default")]
    #[setting(table)]
    pub track: TrackConfig,
    /// The machine.
    #[setting(table)]
    pub runtime: RuntimeOptions,
    /// Settings of worker groups, by their name: that of a model, or what agents have as `worker_group`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table)]
    pub worker_groups: BTreeMap<String, WorkerGroupConfig>,
    /// Processes that train together.
    #[setting(table)]
    pub dist: DistConfig,
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
#[settings(level = "team")]
pub struct TaskConfig {
    /// `builtin:facts`, `builtin:arithmetic`, `builtin:nli`, `builtin:code`, `builtin:tools`, `builtin:resets`, `openenv:SPLIT`, the path of a file, or `hf:ORG/NAME` on the hub.
    #[setting(default = "builtin:facts")]
    pub data: String,
    /// Format of the file; `auto` detects it from the content.
    pub format: DataFormat,
    /// Fields with another name in the file: `{ question = "query" }` reads the question from `query`; `a.b` is a nested field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(example = "{ question = \"query\" }")]
    pub keys: BTreeMap<String, String>,
    /// Names to ignore in supervised data: columns of rows, and keys of messages; an unknown name that is not listed here
    /// is an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[setting(example = "[\"prompt_id\"]")]
    pub ignore: Vec<String>,
    /// Treatment of rows that are longer than the context, in supervised training: an error, drop the row, or truncate it.
    pub overlong: OverlongText,
    /// Source of task ids: `file` uses the id in the row, or the row's number if there is no id; `line` always uses the
    /// number.
    pub ids: Ids,
    /// Maximum size of an unpacked data file in MiB.
    #[setting(default = 1024, range = 1..=LARGE, level = "run")]
    pub max_mib: NonZeroU64,
    /// Maximum size of a row in MiB.
    #[setting(default = 16, range = 1..=LARGE, level = "run")]
    pub max_row_mib: NonZeroU64,
    /// Split of the data that is trained on, if the data has splits.
    #[setting(default = "train")]
    pub split: String,
    /// Tasks per step.
    #[setting(default = 16, range = 1..=MANY)]
    pub tasks_per_step: NonZeroUsize,
    /// Episodes per task in a step; group-relative advantages compare their rewards.
    #[setting(default = 8, range = 1..=GROUP)]
    pub group_size: NonZeroU32,
    /// Shuffle tasks in each epoch; otherwise they are in file order.
    #[setting(default = true)]
    pub shuffle: bool,
    /// Maximum number of tasks; the first ones are used.
    #[setting(example = "1000")]
    pub limit: Option<NonZeroUsize>,
    /// Highest difficulty (`level` of a task) that is used, in training and in evaluations on the same data.
    #[setting(example = "2")]
    pub max_level: Option<u64>,
    /// Curriculum: number of steps after which the next `level` is added, starting with the lowest; 0 uses all levels from
    /// the start.
    pub harder_every: u64,
    /// Curriculum by solve rates.
    #[serde(skip_serializing_if = "CurriculumConfig::is_default")]
    #[setting(table)]
    pub curriculum: CurriculumConfig,
    /// Several components at once, in the place of `data` and `[environment]`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table)]
    pub mixture: BTreeMap<String, ComponentConfig>,
    /// `[environment]`, whose server has the tasks of `openenv:SPLIT`; empty for other data.
    #[serde(skip)]
    #[setting(skip)]
    pub environment: Named,
    /// Split of rows that name none.
    #[serde(skip)]
    #[setting(skip)]
    pub unsplit: Unsplit,
}

/// `[task.mixture.NAME]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct ComponentConfig {
    /// As `task.data`.
    #[setting(default = "builtin:facts")]
    pub data: String,
    /// As `task.format`.
    pub format: DataFormat,
    /// As `task.keys`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(example = "{ question = \"query\" }")]
    pub keys: BTreeMap<String, String>,
    /// As `task.ids`.
    pub ids: Ids,
    /// Share of a step's tasks: this weight over the sum of all components' weights.
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
    /// Maximum number of concurrent episodes.
    #[setting(default = 512)]
    pub max_episodes: NonZeroUsize,
    /// Time limit of each part of an episode in seconds (opening, playing, scoring, closing, reward servers); after it, the episode ends
    /// unscored.
    #[setting(default = 600.0, range = above(0.0).., level = "team")]
    pub timeout_s: f64,
    /// Outcome if a prompt does not fit the context: the episode ends unscored, or observations are shortened.
    #[setting(level = "team")]
    pub overflow: Overflow,
    /// Prompts of a conversation whose chat template changes earlier turns, such as their thoughts: encode what it renders now
    /// (`template`), or keep the sampled tokens and encode only what follows the last reply (`append`).
    #[setting(level = "team")]
    pub history: History,
    /// Share of unscored episodes above which the run stops; it is checked for each evaluation, and in a step
    /// separately for first tasks, for replacements (`resample`), for greedy episodes and for branches.
    #[setting(default = 0.5, range = 0.0..=1.0)]
    pub max_unscored: f64,
    /// Number of steps that the weights of a step's episodes are behind those that it trains. 0: each step plays, then learns. Above it,
    /// as many batches are played while a step is updated.
    #[setting(range = 0..=64, level = "team")]
    pub staleness: u64,
    /// Number of turns after which an episode goes on with the next weights, up to those that its step trains; 0: an episode has
    /// one version of the weights. It needs `staleness` above 0.
    #[setting(level = "team")]
    pub advance_turns: u64,
    /// Branches of played episodes, for estimators that compare them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table)]
    pub branch: Option<BranchConfig>,
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

/// Tokens of earlier turns that the chat template renders in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// As the template renders them; the turn is marked `forked`.
    #[default]
    Template,
    /// As the model saw and sampled them: only what follows the last reply is rendered. The model then sees conversations
    /// that its template never shows, such as those with earlier thoughts.
    Append,
}

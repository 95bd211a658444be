//! The configuration: typed, layered, and unable to lie. Every key is used or rejected.
//!
//! Layers: defaults < file < `MAVERL_*` < `--set key=value`. `docs/src/config.md` is the commented reference.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};

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
    /// Where tasks come from.
    pub task: TaskConfig,
    /// The world the team acts in, and its options.
    pub environment: Named,
    /// The control flow, and its options.
    pub orchestra: Named,
    /// How episodes are played.
    pub rollout: RolloutConfig,
    /// How every agent samples, unless its own table says otherwise.
    pub sampling: SamplingConfig,
    /// Models by the name agents refer to them by.
    pub models: BTreeMap<String, ModelConfig>,
    /// Agents by their registered name; unlisted agents use the only model there is.
    pub agents: BTreeMap<String, AgentConfig>,
    /// How rewards become updates.
    pub algorithm: AlgorithmConfig,
    /// Reward functions to add, by registered name.
    pub rewards: BTreeMap<String, RewardConfig>,
    /// How held-out tasks are played.
    pub eval: EvalConfig,
    /// What is kept, and how often.
    pub checkpoint: CheckpointConfig,
    /// The machine.
    pub runtime: RuntimeConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            steps: 100,
            task: TaskConfig::default(),
            environment: Named::default(),
            orchestra: Named::default(),
            rollout: RolloutConfig::default(),
            sampling: SamplingConfig::default(),
            models: BTreeMap::new(),
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

/// `[task]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskConfig {
    /// `builtin:facts`, or a file relative to the one that names it. **(default: `"builtin:facts"`)**
    pub data: String,
    /// How the file is read. **(default: `"auto"`, by its content)**
    pub format: DataFormat,
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
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            data: "builtin:facts".to_owned(),
            format: DataFormat::Auto,
            split: "train".to_owned(),
            tasks_per_step: NonZeroUsize::MIN.saturating_add(15),
            group_size: NonZeroU32::MIN.saturating_add(7),
            shuffle: true,
            limit: None,
        }
    }
}

/// How a data file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataFormat {
    /// By its content.
    #[default]
    Auto,
    /// One JSON object a line: `question`, `answers` (or `answer`), optional `id` and `source`; or TRL and verl rows.
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
    /// What happens when a prompt does not fit the context. **(default: `"error"`)**
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

/// What happens when a prompt does not fit the model's context beside `max_tokens`.
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

/// `[sampling]` and `[agents.*.sampling]`; what is left out is inherited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingConfig {
    /// Divides the logits; 0 is greedy. **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Keep the k likeliest tokens; 0 keeps all. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Keep the smallest set of likeliest tokens with this mass. **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this times the likeliest. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f32>,
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
    /// `builtin:tiny`, or a Hugging Face directory relative to the file that names it.
    pub path: String,
    /// How it is updated.
    #[serde(default)]
    pub optim: OptimConfig,
    /// Never update it. **(default: `false`)**
    #[serde(default)]
    pub frozen: bool,
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
    /// How the step size moves over `steps`. **(default: `"constant"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Steps over which the step size rises from 0. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_steps: Option<u64>,
}

/// How the step size moves after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It stays.
    #[default]
    Constant,
    /// Straight to zero at the last step.
    Linear,
    /// Half a cosine to zero at the last step.
    Cosine,
}

/// `[agents."team/role"]` and, on top of it, `[agents."team/role".seats.N]`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// A name of `[models]`. **(default: the only model)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Agents with the same model and worker share weights; another name makes another copy. **(default: the model's name)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Never train on this agent's turns. **(default: `false`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<bool>,
    /// Per policy: allowed only where every agent of the policy agrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optim: Option<OptimConfig>,
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
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub seats: BTreeMap<u32, AgentConfig>,
}

/// `[algorithm]`: a preset's name; any part it sets can be overridden.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlgorithmConfig {
    /// The preset. **(default: `"drmas"`)**
    pub name: Preset,
    /// Which rows are compared with each other. **(default: the preset's)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// Divide by the group's standard deviation. **(default: `true`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize_std: Option<bool>,
    /// Added to the standard deviation. **(default: `1e-6`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage_eps: Option<f64>,
    /// The advantage of a group of one. **(default: `"zero"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub singleton: Option<Singleton>,
    /// Per row: coefficients of the loss, for every agent.
    pub loss: LossConfig,
    /// How token losses become one number. **(default: `"token_mean"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
    /// Optimizer steps a batch is split into, per epoch. **(default: `1`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minibatches: Option<NonZeroUsize>,
    /// Passes over a batch. **(default: `1`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<NonZeroUsize>,
    /// Flat steps (no group has spread) in a row after which the run stops. **(default: `10`)**
    pub max_flat_steps: u64,
}

impl Default for AlgorithmConfig {
    fn default() -> Self {
        Self {
            name: Preset::Drmas,
            group_by: None,
            normalize_std: None,
            advantage_eps: None,
            singleton: None,
            loss: LossConfig::default(),
            aggregation: None,
            minibatches: None,
            epochs: None,
            max_flat_steps: 10,
        }
    }
}

/// A choice of parts with a paper behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Group-relative per (task, seat), a turn at a time. arXiv:2602.08847
    #[default]
    Drmas,
    /// Group-relative per task, an episode at a time. arXiv:2402.03300
    Grpo,
    /// Supervised: raise the log-probability of given replies; no rollout.
    Sft,
}

/// Which rows are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// Episodes of a task (GRPO): unit = episode, group = task.
    Task,
    /// Turns of a seat on a task (Dr. MAS): unit = row, group = (task, seat).
    TaskSeat,
}

/// The advantage of a group of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Singleton {
    /// 0: nothing to compare with.
    #[default]
    Zero,
    /// The reward itself, as the reference implementation of Dr. MAS does.
    Raw,
}

/// How token losses become one number; every count is a true count of the whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Sum over tokens, over the number of tokens.
    #[default]
    TokenMean,
    /// Mean over each row's tokens, then over rows.
    SequenceMean,
    /// Sum over each row's tokens, then mean over rows.
    SequenceSum,
}

/// Per-row coefficients of the loss; what is left out is inherited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Lower clip of the ratio: 1 - this. **(default: `0.2`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_low: Option<f32>,
    /// Upper clip of the ratio: 1 + this. **(default: `0.2`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_high: Option<f32>,
    /// Bound of the surrogate for negative advantages (dual clip), above 1. **(default: `3.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_dual: Option<f32>,
    /// Coefficient of the KL to the reference (the starting weights). **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl_coef: Option<f32>,
    /// Its estimator. **(default: `"k3"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<Kl>,
    /// Coefficient of the entropy bonus. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entropy_coef: Option<f32>,
    /// Subtracted from the reward of a turn whose reply is malformed or truncated. **(default: `0.1`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid_reply_penalty: Option<f64>,
}

/// Estimators of the KL divergence to the reference (Schulman, "Approximating KL divergence").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kl {
    /// log p - log q
    K1,
    /// (log p - log q)² / 2
    K2,
    /// exp(log q - log p) - (log q - log p) - 1
    #[default]
    K3,
}

/// `[rewards.NAME]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RewardConfig {
    /// Multiplies what the function gives. **(default: `1.0`)**
    pub weight: f64,
}

impl Default for RewardConfig {
    fn default() -> Self {
        Self { weight: 1.0 }
    }
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
    /// Tokens of a training micro-batch. **(default: `8192`)**
    pub micro_batch_tokens: NonZeroUsize,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            threads: 0,
            max_requests: NonZeroUsize::MIN.saturating_add(511),
            prefill_tokens: NonZeroUsize::MIN.saturating_add(4095),
            micro_batch_tokens: NonZeroUsize::MIN.saturating_add(8191),
        }
    }
}

//! The plan: what a configuration means for the declared team. A pure value; nothing is loaded to make it.

mod activations;
mod adapter;
mod checkpoints;
mod critic;
mod devices;
mod memory;
mod numbers;
mod overlong;
mod ranks;
mod shard_text;
mod sharding;
mod shares;
mod specs;
mod step;
mod summary;
mod teacher;
mod undivided;
pub mod weights;

pub use crate::config::{
    AlgorithmPlan, Chosen, CriticPlan, InfluencePlan, Instance, LossPlan, OptimOptions,
    ReferencePlan, Sampling,
};
pub use crate::files::ModelSource;
pub use crate::net::LoraConfig;
pub use activations::{TokenBytes, activation_bytes, muon_bytes, packed_bytes};
pub use checkpoints::CheckpointWriting;
pub(crate) use critic::host;
pub use devices::{DEVICES, DeviceModel, Placement};
pub use memory::DeviceMemory;
pub use numbers::{bytes, count};
pub use overlong::Overlong;
pub use ranks::RanksSummary;
pub use sharding::{SentBytes, ShardedGroup, ShardingSummary, model_units};
pub use step::StepSummary;
pub use summary::{PlanSummary, PlannedSeat, PolicySummary, WorkerSummary, json, table};
pub(crate) use teacher::teacher_by_source;
pub use teacher::{HintPlan, SeatTeachers, TeacherPlan, TeacherSource};
pub(crate) use undivided::UndividedPart;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::{
    DeviceChoice, Dtype, EndpointConfig, LossScaleOptions, Resolved, RewardJudgeConfig,
    RewardPythonConfig, RewardServerConfig, RewardUsageConfig, RewardVerifierConfig,
    RolloutServerConfig,
};
use crate::dist::UnitSizes;
use crate::tools::{CallFormat, ThoughtFormat};
use crate::trajectory::Seat;

/// The resolved plan of a run: the seats of the team, which policy speaks for each seat, which worker group holds each policy,
/// and what a step is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The resolved configuration, every default written out.
    pub config: Resolved,
    /// Relative paths are relative to this directory.
    pub base: PathBuf,
    /// The environment's registered name and options; of several components, their names and no options.
    pub environment: Chosen,
    /// The environment of each component, if there are several.
    pub mixture: BTreeMap<String, Chosen>,
    /// The orchestra's registered name and options.
    pub orchestra: Chosen,
    /// Every seat that a policy speaks for, sorted.
    pub seats: Vec<SeatPlan>,
    /// Every other seat, sorted.
    pub endpoints: Vec<EndpointPlan>,
    /// Every policy, sorted by name.
    pub policies: Vec<PolicyPlan>,
    /// Every worker group, sorted by name.
    pub workers: Vec<WorkerPlan>,
    /// Every teacher that some trained seat has, sorted by name.
    pub teachers: Vec<TeacherPlan>,
    /// The environments that the orchestra acts in beside its component, by name.
    pub environments: BTreeMap<String, Chosen>,
    /// The algorithm: from rewards to updates.
    pub algorithm: AlgorithmPlan,
    /// Parts of the reward beside the score, sorted by name.
    pub rewards: Vec<RewardPlan>,
    /// Memory that each worker group takes of its device; those on the CPU are left out.
    pub device_memory: Vec<DeviceMemory>,
    /// Way in which checkpoints are written; `None` if none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointWriting>,
    /// The tasks that were read to make the plan.
    #[serde(skip)]
    pub tasks: PlannedTasks,
    /// Warnings about settings that are valid and probably not intended.
    pub warnings: Vec<String>,
}

/// Facts about the tasks of a plan. A plan of an evaluation has none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlannedTasks {
    /// Splits in use with their number of tasks (at most `task.limit` and `eval.tasks`), that of training first.
    pub splits: Vec<(String, usize)>,
    /// Questions of training, at most [`PlannedTasks::QUESTIONS`] of them, spread evenly over the split.
    pub questions: Vec<String>,
}

impl PlannedTasks {
    /// Maximum number of questions that a plan has.
    pub const QUESTIONS: usize = 20_000;
}

impl Plan {
    /// True if a policy learns in step `step`, from 0: all that are trained, or, with `train_cycle`, one after the other,
    /// in the order of their names.
    ///
    /// MARFT's updates of one agent at a time ([2504.16129](https://arxiv.org/abs/2504.16129)) and siiRL's `train_cycle`.
    pub fn learns(&self, policy: usize, step: u64) -> bool {
        let Some(turn) = step.checked_div(self.algorithm.train_cycle) else { return true };
        let mut trained = (0..self.policies.len()).filter(|&index| self.policies[index].trained);
        let place = turn.checked_rem(trained.clone().count() as u64).unwrap_or(0);
        trained.nth(place as usize) == Some(policy)
    }

    /// Returns the forms in which the model of a worker group writes calls and thoughts, as configured.
    pub fn reply_format(&self, worker: usize) -> (CallFormat, ThoughtFormat) {
        let model = self.config.models.get(&self.workers[worker].model);
        model.map_or_else(Default::default, |model| {
            (model.calls.unwrap_or_default(), model.thoughts.clone().unwrap_or_default())
        })
    }

    /// Returns the name and the settings of the inference servers that sample for a policy.
    pub fn rollout_servers(&self, policy: usize) -> Option<(&str, &RolloutServerConfig)> {
        self.servers_of(self.policies[policy].worker)
    }

    /// Returns the name and the settings of the inference servers that sample for the policies of a worker group.
    pub(super) fn servers_of(&self, worker: usize) -> Option<(&str, &RolloutServerConfig)> {
        let model = &self.workers[worker].model;
        let name = self.config.models.get(model)?.rollout_servers.as_ref()?;
        Some((name, self.config.rollout_servers.get(name)?))
    }

    /// Returns the device of a worker group: its own, or `runtime.device`.
    pub fn device_of(&self, worker: &WorkerPlan) -> DeviceChoice {
        worker.device.unwrap_or(self.config.runtime.device)
    }

    /// Returns the largest number of tokens of a micro-batch of a worker group: its own, or `runtime.micro_batch_tokens`.
    pub fn micro_batch_tokens(&self, worker: &WorkerPlan) -> usize {
        worker.micro_batch_tokens.unwrap_or(self.config.runtime.micro_batch_tokens).get()
    }

    /// Every seat, sorted.
    pub fn members(&self) -> Vec<Seat> {
        let seats = self.seats.iter().map(|seat| &seat.seat);
        let mut members: Vec<Seat> =
            seats.chain(self.endpoints.iter().map(|endpoint| &endpoint.seat)).cloned().collect();
        members.sort();
        members
    }

    /// Returns the plan with another seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        Self { config: self.config.with(|config| config.seed = seed), ..self.clone() }
    }

    /// Returns the plan with the policies of its two trained seats exchanged. A second exchange restores it.
    ///
    /// CORY, [2410.06101](https://arxiv.org/abs/2410.06101).
    #[must_use]
    pub fn with_swapped_policies(&self) -> Self {
        let mut plan = self.clone();
        let mut trained = plan.seats.iter_mut().filter(|seat| seat.trained);
        if let (Some(one), Some(other)) = (trained.next(), trained.next()) {
            std::mem::swap(&mut one.policy, &mut other.policy);
        }
        plan
    }
}

/// A part of the reward beside the score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RewardPlan {
    /// Name of the part: for a function, its registered name.
    pub name: String,
    /// Factor of the values.
    pub weight: f64,
    /// Origin of the values.
    pub source: RewardSource,
}

/// Origin of a part of the reward.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardSource {
    /// The declared function of the part's name.
    Function,
    /// A server.
    Server(RewardServerConfig),
    /// A function of a Python file.
    Python(RewardPythonConfig),
    /// A language model behind an endpoint.
    Judge(RewardJudgeConfig),
    /// A model with a head, in this process.
    Verifier(RewardVerifierConfig),
    /// Prices of what an episode used.
    Usage(RewardUsageConfig),
}

/// One seat of the team.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeatPlan {
    /// Who.
    pub seat: Seat,
    /// Index into [`Plan::policies`].
    pub policy: usize,
    /// Its turns are trained on.
    pub trained: bool,
    /// Sampling settings.
    pub sampling: Sampling,
    /// Coefficients of its rows.
    pub loss: LossPlan,
    /// Teachers of its turns.
    pub teachers: Option<SeatTeachers>,
    /// The agent type's own fields.
    pub options: Value,
}

/// One seat of the team that no policy speaks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EndpointPlan {
    /// Who.
    pub seat: Seat,
    /// The endpoint's name.
    pub name: String,
    /// Settings of the endpoint.
    pub endpoint: EndpointConfig,
    /// Sampling settings of a request.
    pub sampling: Sampling,
    /// The agent type's own fields.
    pub options: Value,
}

/// Weights, a base's own or an adapter on it, and how they are updated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyPlan {
    /// The name in metrics and checkpoints.
    pub name: String,
    /// Index into [`Plan::workers`].
    pub worker: usize,
    /// Some seat's turns train it.
    pub trained: bool,
    /// A frozen copy of the starting weights is kept for the KL.
    pub reference: bool,
    /// An update computes layers again for the gradient instead of keeping what they computed.
    pub gradient_checkpointing: bool,
    /// Activation bytes of a full micro-batch, at most, or the work of Muon, if that is more; `None` where it is not updated.
    pub activation_bytes: Option<u64>,
    /// Number of trained parameters of its critic; 0 without one.
    pub critic_parameters: u64,
    /// The adapter that it is; without one it is the base's own weights.
    pub adapter: Option<AdapterPlan>,
    /// The name of its critic, where it was given one; policies whose critics have one name share one.
    pub critic: Option<String>,
    /// The optimizer.
    pub optim: OptimOptions,
}

/// An adapter with every value settled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdapterPlan {
    /// Rank, scale, dropout and targets.
    pub lora: LoraConfig,
    /// The PEFT directory it starts from; else it is drawn from the seed and changes nothing yet.
    pub start: Option<PathBuf>,
    /// Number of parameters.
    pub parameters: u64,
}

/// A worker group: one thread that owns one base model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerPlan {
    /// Its name: the model's, or `worker_group = ".."`.
    pub name: String,
    /// The name in `[models]`.
    pub model: String,
    /// Where the weights come from.
    pub source: ModelSource,
    /// Precision of its products.
    pub dtype: Dtype,
    /// Scale of the loss, with products in f16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScaleOptions>,
    /// Device of its own (`worker_groups.NAME.device`); `None` for `runtime.device`.
    pub device: Option<DeviceChoice>,
    /// Largest micro-batch of its own (`worker_groups.NAME.micro_batch_tokens`); `None` for `runtime.micro_batch_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch_tokens: Option<NonZeroUsize>,
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes of the base, if its weights stay in the blocks of their file; `None` for f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Units of the model that ranks may divide.
    #[serde(skip)]
    pub units: UnitSizes,
    /// Bytes of the way forward and back through one layer and the head, by the largest micro-batch.
    #[serde(skip)]
    pub layer_pass_bytes: u64,
    /// Bytes of the packed weights during rollout.
    pub packed_bytes: u64,
    /// Bytes of the keys and values of a sequence.
    pub token_bytes: TokenBytes,
    /// Maximum number of tokens of a sequence.
    pub context: usize,
    /// Further variables of its chat template.
    pub chat_template_kwargs: Map<String, Value>,
}

//! The plan: what a configuration means for the declared team. A pure value; nothing is loaded to make it.

mod activations;
mod critic;
mod instance;
mod overlong;
mod reference;
mod settled;
mod summary;
pub(crate) mod weights;

pub use crate::model::{LoraConfig, ModelSource};
pub use activations::{activation_bytes, packed_bytes};
pub use critic::CriticPlan;
pub(crate) use critic::host;
pub use instance::{Chosen, DeclaredPlan, Instance};
pub use overlong::Overlong;
pub use reference::ReferencePlan;
pub use summary::{
    PlanSummary, PolicySummary, SeatSummary, StepSummary, WorkerSummary, json, table,
};
pub(crate) use summary::{bytes, count};

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::{
    Aggregation, Baseline, CheckpointConfig, Config, Correction, Dtype, EndpointConfig, EvalConfig,
    FutureRewards, GroupBy, HappoFactor, Kl, KlIn, PairLoss, Preset, Ratio, RolloutConfig,
    RuntimeConfig, Schedule, Shaping, Singleton, Surrogate, TaskConfig, TrainOn, UpdateOrder,
};
use crate::trajectory::Seat;

/// The resolved plan of a run: the seats of the team, which policy speaks for each seat, which worker group holds each policy,
/// and what a step is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The resolved configuration, every default written out.
    pub config: Config,
    /// Relative paths are relative to this directory.
    pub base: PathBuf,
    /// From which every other seed derives.
    pub seed: u64,
    /// Training steps.
    pub steps: u64,
    /// Where tasks come from.
    pub task: TaskConfig,
    /// The environment's registered name and options; of several components, their names and no options.
    pub environment: Chosen,
    /// The environment of each component, if there are several.
    pub mixture: BTreeMap<String, Chosen>,
    /// The orchestra's registered name and options.
    pub orchestra: Chosen,
    /// Rollout settings.
    pub rollout: RolloutConfig,
    /// Every seat that a policy speaks for, sorted.
    pub seats: Vec<SeatPlan>,
    /// Every other seat, sorted.
    pub endpoints: Vec<EndpointPlan>,
    /// Every policy, sorted by name.
    pub policies: Vec<PolicyPlan>,
    /// Every worker group, sorted by name.
    pub workers: Vec<WorkerPlan>,
    /// The environments that the orchestra acts in beside its component, by name.
    pub environments: BTreeMap<String, Chosen>,
    /// The algorithm: from rewards to updates.
    pub algorithm: AlgorithmPlan,
    /// Reward functions and their weights, sorted by name.
    pub rewards: Vec<(String, f64)>,
    /// Evaluation settings.
    pub eval: EvalConfig,
    /// Checkpoint settings.
    pub checkpoint: CheckpointConfig,
    /// The machine.
    pub runtime: RuntimeConfig,
    /// Warnings about settings that are valid and probably not intended.
    pub warnings: Vec<String>,
}

impl Plan {
    /// True if a policy learns in step `step`, from 0: all that are trained, or, with `train_cycle`, one after the other,
    /// in the order of their names.
    ///
    /// MARFT's updates of one agent at a time ([2504.16129](https://arxiv.org/abs/2504.16129)) and siiRL's `train_cycle`.
    pub fn learns(&self, policy: usize, step: u64) -> bool {
        let Some(turn) = step.checked_div(self.algorithm.train_cycle) else { return true };
        let trained = || self.policies.iter().enumerate().filter(|(_, policy)| policy.trained);
        let place = turn.checked_rem(trained().count() as u64).unwrap_or(0);
        trained().nth(place as usize).is_some_and(|(its, _)| its == policy)
    }

    /// Every seat, sorted.
    pub fn members(&self) -> Vec<Seat> {
        let seats = self.seats.iter().map(|seat| &seat.seat);
        let mut members: Vec<Seat> =
            seats.chain(self.endpoints.iter().map(|endpoint| &endpoint.seat)).cloned().collect();
        members.sort();
        members
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

/// Sampling with every value settled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Keep the k likeliest tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of likeliest tokens with this mass.
    pub top_p: f32,
    /// Drop tokens less likely than this times the likeliest.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that are there already; 1 is off.
    pub repetition_penalty: f32,
    /// Longest reply in tokens.
    pub max_tokens: usize,
    /// Texts that end a reply.
    pub stop: Vec<String>,
    /// Token ids that end a reply, beside the model's own.
    pub stop_ids: Vec<u32>,
}

/// Per-row coefficients with every value settled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LossPlan {
    /// Surrogate loss of a token.
    pub surrogate: Surrogate,
    /// Unit of the importance ratio.
    pub ratio: Ratio,
    /// Steepness of SAPO's gate for positive and negative advantages.
    pub gate: (f64, f64),
    /// Lower clip of the ratio: 1 - this.
    pub clip_low: f32,
    /// Upper clip of the ratio: 1 + this.
    pub clip_high: f32,
    /// Bound of the surrogate for negative advantages.
    pub clip_dual: f32,
    /// Coefficient of the KL to the reference.
    pub kl_coef: f32,
    /// Its estimator.
    pub kl: Kl,
    /// The KL of a token is weighted by its ratio.
    pub kl_corrected: bool,
    /// Where the KL counts.
    pub kl_in: KlIn,
    /// Correction of differences between the log-probs of sampler and trainer.
    pub correction: Correction,
    /// Largest ratio of the trainer's to the sampler's probability, and one over the smallest.
    pub correction_cap: f64,
    /// Coefficient of the pull towards the policy that sampled.
    pub drift_coef: f32,
    /// Coefficient of the entropy bonus.
    pub entropy_coef: f32,
    /// Subtracted from the reward of a turn whose reply is malformed or truncated.
    pub invalid_reply_penalty: f64,
    /// Share of `max_tokens`, at the end, in which a reply loses reward with its length.
    pub overlong_buffer: f64,
    /// Penalty of a reply of `max_tokens`.
    pub overlong_penalty: f64,
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
    /// Activation bytes of a full micro-batch, at most; `None` where it is not updated.
    pub activation_bytes: Option<u64>,
    /// Number of trained parameters of its critic; 0 without one.
    pub critic_parameters: u64,
    /// The adapter that it is; without one it is the base's own weights.
    pub adapter: Option<AdapterPlan>,
    /// The name of its critic, where it was given one; policies whose critics have one name share one.
    pub critic: Option<String>,
    /// The optimizer.
    pub optim: OptimPlan,
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

/// The optimizer with every value settled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OptimPlan {
    /// AdamW step size.
    pub lr: f64,
    /// Decay rates of the moments.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Global gradient norm is clipped to this.
    pub grad_clip: f64,
    /// Schedule of the step size.
    pub schedule: Schedule,
    /// Steps over which it rises from 0.
    pub warmup_steps: u64,
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
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes of the packed weights during rollout.
    pub packed_bytes: u64,
    /// Further variables of its chat template.
    pub chat_template_kwargs: Map<String, Value>,
}

/// The algorithm, with every part resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlgorithmPlan {
    /// The preset it started from.
    pub preset: Preset,
    /// Baseline of a reward.
    pub baseline: Baseline,
    /// Which rows are compared with each other.
    pub group_by: GroupBy,
    /// Which rows the deviation is taken over.
    pub deviation_by: GroupBy,
    /// Divide by the group's standard deviation.
    pub normalize_std: bool,
    /// Added to the standard deviation.
    pub advantage_eps: f64,
    /// The advantage of a group of one.
    pub singleton: Singleton,
    /// Momentum of the moving average.
    pub baseline_momentum: f64,
    /// Shaping of a turn's reward by the rewards of earlier rounds.
    pub shaping: Shaping,
    /// Weight of the shaping.
    pub shaping_weight: f64,
    /// The advantages of a step's tokens are given mean 0 and deviation 1.
    pub whiten: bool,
    /// Weight of advantages among turns that were given the same prompt.
    pub anchor_weight: f64,
    /// Similarity of prompts that are compared; 1 is equal.
    pub anchor_similarity: f64,
    /// Of later rewards, per turn, where turns with the same prompt are compared.
    pub discount: f64,
    /// Times that tasks whose episodes all earned the same are replaced by others.
    pub resample: u32,
    /// Aggregation of token losses.
    pub aggregation: Aggregation,
    /// Optimizer steps a batch is split into, per epoch.
    pub minibatches: usize,
    /// Passes over a batch.
    pub epochs: usize,
    /// Mean KL to the policy that sampled beyond which no further epoch begins; 0 is never.
    pub early_stop_kl: f64,
    /// Where values come from; without, advantages are among episodes.
    pub critic: Option<CriticPlan>,
    /// Whose policy is updated when.
    pub update_order: UpdateOrder,
    /// Weights of the advantages of policies that are updated one after the other.
    pub happo: HappoPlan,
    /// Whose later rewards a turn is worth too.
    pub future_rewards: FutureRewards,
    /// Of later rewards, per round.
    pub future_discount: f64,
    /// Rewards for the effect of agents on each other.
    pub influence: InfluencePlan,
    /// Controller of `kl_coef`.
    pub adaptive_kl: AdaptiveKlPlan,
    /// Renewal of the reference policy.
    pub reference: ReferencePlan,
    /// Steps after which two agents exchange their policies; 0 is never.
    pub swap_every: u64,
    /// Steps for which one policy learns alone before the next does; 0: all learn in each.
    pub train_cycle: u64,
    /// Tokens of a conversation that supervised training trains on.
    pub train_on: TrainOn,
    /// Weight of an observation beside a reply.
    pub observation_weight: f64,
    /// Loss of a pair of replies.
    pub preference: PreferencePlan,
    /// Estimator and surrogate that are declared with attributes.
    pub declared: DeclaredPlan,
    /// Flat steps in a row after which the run stops.
    pub max_flat_steps: u64,
}

/// Weights of the advantages of policies that are updated one after the other, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HappoPlan {
    /// Factor of an advantage from the policies that were updated before.
    pub factor: HappoFactor,
    /// Largest distance of a clipped factor from 1.
    pub clip: f64,
}

/// Rewards for the effect of agents on each other, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct InfluencePlan {
    /// Reward for following the others.
    pub follow: f64,
    /// Reward for resisting the others.
    pub resist: f64,
    /// Reward for provoking the others.
    pub provoke: f64,
    /// Reward for persuading the others.
    pub persuade: f64,
}

/// Controller of `kl_coef`, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AdaptiveKlPlan {
    /// KL to the reference policy that `kl_coef` is adapted to; 0 keeps `kl_coef` constant.
    pub target: f64,
    /// Rows over which `kl_coef` may change by 20 %.
    pub horizon: f64,
}

/// Loss of a pair of replies, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PreferencePlan {
    /// The loss of a pair.
    pub loss: PairLoss,
    /// Strength of the KL constraint to the reference: less is weaker.
    pub beta: f64,
    /// Share of pairs taken to be the wrong way round.
    pub label_smoothing: f64,
    /// Compare with nothing instead of the reference.
    pub reference_free: bool,
}

//! `[algorithm.advantage]`: the estimator of advantages, and its settings.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::critic::{Bootstrap, CriticPlan, MixerPlan};
use super::instance::Instance;
use crate::credit::{Advantage, GroupBy, KnownBaseline, Rewarded, Unbranched};
use crate::settings::{Settings, Tagged};

/// Estimator of advantages.
#[derive(Debug, Clone, PartialEq, Settings)]
pub enum AdvantagePlan {
    /// The reward relative to those of a group of episodes or turns.
    #[setting(default)]
    Group(GroupPlan),
    /// The reward itself.
    Reward(RewardPlan),
    /// The reward minus the reward of an additional, greedy episode on the task (ReMax).
    Greedy(GreedyPlan),
    /// The reward minus the average reward of the seat over the steps so far.
    MovingAverage(MovingAveragePlan),
    /// GAE over the values of critics.
    Critic(CriticPlan),
    /// A share of the advantage of the team, whose value a mixer makes of those of the agents.
    Mixer(MixerPlan),
    /// The reward minus the mean of a group, each unit weighted by its number of tokens (OPO).
    Opo(OpoPlan),
    /// The reward minus a baseline for each place in a reply, which makes the variance of the gradient least (OTB).
    TokenBaseline(TokenBaselinePlan),
    /// The reward minus the mean reward of branches in which the turn has another reply (COMA, C3).
    Counterfactual(CounterfactualPlan),
    /// The mean reward of branches after the turn, minus that of branches before it (VinePO).
    Continuations(ContinuationsPlan),
    /// The Shapley value of the seat: the mean change of the reward by the replies of the seat, over the orders of the seats.
    Shapley(ShapleyPlan),
    /// An estimator declared with `#[advantage]`.
    #[setting(open)]
    Declared(Instance<dyn Advantage>),
}

impl AdvantagePlan {
    /// The critics that it needs, if any. A declared estimator needs those of its setting `critic`.
    pub fn critic(&self) -> Option<CriticPlan> {
        match self {
            Self::Critic(critic) => Some(critic.clone()),
            Self::Mixer(mixer) => Some(mixer.critic()),
            Self::Declared(declared) => {
                let critic = declared.chosen.options.get("critic")?;
                CriticPlan::deserialize(critic).ok()
            }
            _ => None,
        }
    }

    /// The estimator; none of a mixer, which is trained and no function of the step, and of a token baseline, which needs
    /// probabilities of tokens that a step does not have.
    pub fn estimator(&self) -> Option<&dyn Advantage> {
        match self {
            Self::Group(plan) => Some(plan),
            Self::Reward(plan) => Some(plan),
            Self::Greedy(plan) => Some(plan),
            Self::MovingAverage(plan) => Some(plan),
            Self::Critic(plan) => Some(plan),
            Self::Mixer(_) | Self::TokenBaseline(_) => None,
            Self::Opo(plan) => Some(plan),
            Self::Counterfactual(plan) => Some(plan),
            Self::Continuations(plan) => Some(plan),
            Self::Shapley(plan) => Some(plan),
            Self::Declared(declared) => Some(&*declared.value),
        }
    }

    /// Name of the kind.
    pub fn name(&self) -> &str {
        Tagged::kind(self)
    }

    /// The baseline that is known before a step.
    pub fn baseline(&self) -> KnownBaseline {
        self.estimator().map_or(KnownBaseline::None, Advantage::baseline)
    }

    /// The branches that it compares, if it compares branches.
    pub fn branches(&self) -> Option<BranchUse> {
        match self.baseline() {
            KnownBaseline::Counterfactual(_) => Some(BranchUse::Replies),
            KnownBaseline::Continuations(_) => Some(BranchUse::States),
            KnownBaseline::Shapley { .. } => Some(BranchUse::Coalitions),
            _ => {
                let by = self.estimator().map(Advantage::group_by);
                (by == Some(GroupBy::Branch)).then_some(BranchUse::Rows)
            }
        }
    }

    /// True if advantages have the unit of rewards, which no deviation of a group divides. That of a declared estimator is
    /// unknown.
    pub fn has_reward_unit(&self) -> bool {
        match self {
            Self::Group(plan) => !plan.normalize_std && !plan.normalize_mean,
            Self::Declared(_) => false,
            _ => true,
        }
    }

    /// True if the parts of a reward may count in other replies or with other weights than in the reward of the turn.
    pub fn compares_parts(&self) -> bool {
        match self {
            Self::Critic(critic) => critic.bootstrap != Bootstrap::Turn,
            Self::Declared(_) => true,
            _ => false,
        }
    }

    /// True if rewards are compared with those of a group of the step.
    pub fn compares_group(&self) -> bool {
        let compares = matches!(
            self,
            Self::Group(_) | Self::Opo(_) | Self::TokenBaseline(_) | Self::Declared(_)
        );
        compares && self.critic().is_none()
    }
}

/// Use of branches by an estimator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchUse {
    /// Rewards of other replies to a turn are the baseline of the played one.
    Replies,
    /// Rewards of branches at a turn are the value of the state before it.
    States,
    /// Replies at a branch are trained on, and compared with each other.
    Rows,
    /// Rewards of branches in which some of the seats have other replies are the values of coalitions of the rest.
    Coalitions,
}

/// Rewards relative to those of a group.
#[maverl::advantage(name = "group")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct GroupPlan {
    /// Units that are compared: the episodes of a task (`task`), all turns on a task (`task_turn`), the turns of one seat on a
    /// task (`task_seat`), the turns of one seat with the same number on a task (`task_seat_turn`), the turns of one seat in an
    /// episode (`episode_seat`), or the replies at a turn with branches (`branch`, see `[rollout.branch]`; all of them are
    /// trained on, and turns without branches are compared as with `task_seat`).
    #[setting(default = GroupBy::TaskSeat)]
    pub by: GroupBy,
    /// Units that are compared for turns of some seats, instead of `by`: the keys are seats, such as `debate/debater#0`, or agents,
    /// for all of their seats.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(example = "{ \"pair/solver\" = \"episode_seat\" }")]
    pub by_seat: BTreeMap<String, GroupBy>,
    /// Units that the standard deviation is computed over; the default is the value of `by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"task\"")]
    pub deviation_by: Option<GroupBy>,
    /// Baseline: the mean of the group (`mean`), the mean of the other units of the group (`leave_one_out`), or the
    /// second-best reward, for the best unit only (`second_best`).
    pub baseline: GroupBaseline,
    /// Divide by the group's standard deviation.
    #[setting(default = true)]
    pub normalize_std: bool,
    /// Divide by the group's mean, in place of the deviation; 0 if the mean is 0 or less (MaxRL).
    #[setting(default = false)]
    pub normalize_mean: bool,
    /// Multiply by the number of units of the step, over the number of those in groups with unequal rewards (GPG).
    #[setting(default = false)]
    pub compensate_flat: bool,
    /// Added to the standard deviation.
    #[setting(default = 1e-6, range = 0.0..)]
    pub eps: f64,
    /// Advantage in a group of one unit: 0 (`zero`), or the formula with a baseline of 0, and with 1 for the deviation of a
    /// single unit (`raw`).
    pub singleton: Singleton,
    /// GiGPO: adds the advantage of a turn relative to turns with the same or a similar prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(inner, example = "{ weight = 1.0, similarity = 0.9, discount = 0.95 }")]
    pub anchor: Option<AnchorPlan>,
}

impl GroupPlan {
    /// The units that are compared for turns of a seat of an agent. The name of a seat comes before that of its agent.
    pub fn by_of(&self, seat: &str, agent: &str) -> GroupBy {
        let of_seat = self.by_seat.get(seat).or_else(|| self.by_seat.get(agent));
        of_seat.copied().unwrap_or(self.by)
    }
}

/// Rewards minus the mean of a group, each unit weighted by its number of tokens.
#[maverl::advantage(name = "opo")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct OpoPlan {
    /// Units that are compared, as in `group`.
    #[setting(default = GroupBy::TaskSeat)]
    pub by: GroupBy,
}

/// Rewards minus a baseline for each place in a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct TokenBaselinePlan {
    /// Turns that are compared, as in `group`; with `task`, a turn has the mean reward of its episode's turns.
    #[setting(default = GroupBy::TaskSeat)]
    pub by: GroupBy,
}

/// Declares an estimator that compares rewards with a baseline known before the step, or with none. These have keys in
/// common.
macro_rules! ungrouped {
    ($(#[$meta:meta])* $plan:ident { $($own:tt)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
        #[serde(default, deny_unknown_fields)]
        #[settings(level = "team")]
        pub struct $plan {
            $($own)*
            /// Unit of reward: with `task`, all turns of an episode have the mean reward of the episode; with the other
            /// values, each turn has its own reward.
            #[setting(default = GroupBy::TaskSeat)]
            pub by: GroupBy,
            /// GiGPO: adds the advantage of a turn relative to turns with the same or a similar prompt.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[setting(inner, example = "{ weight = 1.0, similarity = 0.9, discount = 0.95 }")]
            pub anchor: Option<AnchorPlan>,
        }
    };
}

ungrouped! {
    /// Rewards as they are.
    #[maverl::advantage(name = "reward")]
    RewardPlan {}
}

ungrouped! {
    /// Rewards minus the reward of an additional, greedy episode on the same task.
    #[maverl::advantage(name = "greedy")]
    GreedyPlan {}
}

ungrouped! {
    /// Rewards minus the average reward of the seat over the steps so far.
    #[maverl::advantage(name = "moving_average")]
    MovingAveragePlan {
        /// Momentum of the average.
        #[setting(default = 0.9, range = 0.0..1.0)]
        pub momentum: f64,
    }
}

/// Declares an estimator that compares the reward of a turn with those of branches. These have keys in common.
macro_rules! branched {
    ($(#[$meta:meta])* $plan:ident, $baseline:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
        #[serde(default, deny_unknown_fields)]
        #[settings(level = "team")]
        pub struct $plan {
            /// Advantage of turns without branches: the reward minus the mean of the seat's turns on the task (`group`), or 0
            /// (`zero`).
            pub otherwise: Unbranched,
        }

        impl Advantage for $plan {
            fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
                out.copy_from_slice(step.rewards);
            }

            fn baseline(&self) -> KnownBaseline {
                KnownBaseline::$baseline(self.otherwise)
            }
        }
    };
}

branched! {
    /// Rewards minus the mean reward of branches in which the turn has another reply.
    #[maverl::advantage(name = "counterfactual")]
    CounterfactualPlan, Counterfactual
}

branched! {
    /// Differences of the mean rewards of branches after and before a turn.
    #[maverl::advantage(name = "continuations")]
    ContinuationsPlan, Continuations
}

/// Shapley values of seats, from branches in which some of the seats have other replies.
#[maverl::advantage(name = "shapley")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct ShapleyPlan {
    /// Number of random orders of the seats if there are more than four; up to four seats have all of their orders.
    #[setting(default = 8, range = 1..=1024)]
    pub permutations: NonZeroU32,
    /// Advantage of turns without branches: the reward minus the mean of the seat's turns on the task (`group`), or 0 (`zero`).
    pub otherwise: Unbranched,
}

impl Advantage for ShapleyPlan {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        out.copy_from_slice(step.rewards);
    }

    fn baseline(&self) -> KnownBaseline {
        let Self { permutations, otherwise } = *self;
        KnownBaseline::Shapley { permutations: permutations.get(), otherwise }
    }
}

/// Advantages among turns that were given the same prompt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct AnchorPlan {
    /// Weight of these advantages; 0 is none.
    #[setting(default = 1.0, range = 0.0..)]
    pub weight: f64,
    /// Least similarity of prompts that are compared: 1 is equal, token by token.
    #[setting(default = 1.0, range = above(0.0)..=1.0)]
    pub similarity: f64,
    /// Discount of later rewards, per turn.
    #[setting(default = 0.95, range = 0.0..=1.0)]
    pub discount: f64,
}

/// Reward of a group that others are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupBaseline {
    /// The mean of the group.
    #[default]
    Mean,
    /// The mean of the others of the group.
    LeaveOneOut,
    /// The second best, for the best of the group; the others have no advantage.
    SecondBest,
}

/// The advantage of a group of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Singleton {
    /// 0: nothing to compare with.
    #[default]
    Zero,
    /// The reward itself, as the reference implementation of Dr. MAS does.
    Raw,
}

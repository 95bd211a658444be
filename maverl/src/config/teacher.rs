//! Teachers, whose log-probabilities are an advantage of a policy's replies, or a loss (on-policy distillation).
//!
//! [`TeacherConfig`] is a table of `[teachers]`, [`TeacherChoice`] the key `teacher` of an agent, and [`DistillPlan`] the table
//! `[algorithm.distill]`. The arithmetic is in `algo/advantage/distill.rs`, and of divergences in the engine's `loss/teacher.rs`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::MANY;
use super::reward_unit::OnRewardError;
use crate::loss::{DistillOptions, TeacherDivergence};
use crate::settings::Settings;

/// `[teachers.NAME]`: a model, or a policy with a hint, whose log-probabilities are a part of advantages or of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct TeacherConfig {
    /// Name of a table in `[models]`, which is not updated. A checkpoint is a model whose `path` is its directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"big\"")]
    pub model: Option<String>,
    /// Weights of the policy that is taught, in place of a model: its current ones (`self`), or its reference (`reference`); no
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"self\"")]
    pub policy: Option<TeacherPolicy>,
    /// Name of a table in `[endpoints]`, in place of a model: a server that returns log-probabilities of the tokens of a prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"expert\"")]
    pub endpoint: Option<String>,
    /// Text that only the teacher reads: a Jinja template with the keys of the task's row, `{{answer}}`, `{{reward}}`,
    /// `{{feedback}}` and `{{success}}`. A turn whose hint is empty has no teacher.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"A right answer: {{answer}}\"")]
    pub hint: Option<String>,
    /// Place of the hint: before the last user message, or at the end of the system message.
    pub place: HintPlace,
    /// Maximum number of tokens of a hint, which is cut there.
    #[setting(default = 512, range = 1..=MANY)]
    pub max_hint_tokens: NonZeroUsize,
    /// Outcome if an endpoint does not score a turn: its episode is unscored, or the turn has no teacher.
    pub on_error: OnRewardError,
}

/// Weights of the policy that is taught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeacherPolicy {
    /// The current weights.
    #[serde(rename = "self")]
    Current,
    /// The reference (`[algorithm.reference]`).
    Reference,
}

/// Place of a hint in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HintPlace {
    /// Before the text of the last user message.
    #[default]
    User,
    /// After the text of the system message, which is added if there is none.
    System,
}

/// The teacher of an agent, or one for each source of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TeacherChoice {
    /// Name of a table in `[teachers]`.
    One(String),
    /// Names by the source of the task: the name of a component of a mixture, or `default` for all others.
    BySource(BTreeMap<String, String>),
}

impl TeacherChoice {
    /// Key of the teacher of all sources that are not named.
    pub const DEFAULT: &'static str = "default";

    /// Returns the names of teachers by source; [`TeacherChoice::DEFAULT`] is that of all others.
    pub fn by_source(&self) -> BTreeMap<&str, &str> {
        match self {
            Self::One(name) => BTreeMap::from([(Self::DEFAULT, name.as_str())]),
            Self::BySource(names) => {
                names.iter().map(|(source, name)| (source.as_str(), name.as_str())).collect()
            }
        }
    }
}

/// Use of teachers: `A ← task_coef · A + coef · Δ`, with the teacher's log-prob of a token less the policy's as Δ; or
/// `L ← L + coef · D`, with the divergence D from the teacher.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "DistillConfig", level = "team")]
pub struct DistillPlan {
    /// Form of the teacher's signal: an advantage of each sampled token (`advantage`), or a loss of the whole distributions of
    /// policy and teacher in its place (`divergence`).
    pub kind: DistillKind,
    /// Weight of the teacher; an agent's own is `loss.distill_coef`.
    #[setting(default = 1.0, range = 0.0..)]
    pub coef: f64,
    /// Weight of the advantages of rewards, for turns with a teacher; 0 is pure distillation.
    #[setting(default = 1.0, range = 0.0..)]
    pub task_coef: f64,
    /// Tokens whose differences (the teacher's log-prob minus the policy's) are summed for a token: itself (`token`), or also
    /// the later tokens of the reply (`reply`).
    #[setting(idle_when = "kind = 'divergence'")]
    pub horizon: DistillHorizon,
    /// Bound of the absolute difference of a token; 0 is none.
    #[setting(default = 0.0, range = 0.0.., idle_when = "kind = 'divergence'")]
    pub clip: f64,
    /// Divergence of the policy q from the teacher p: KL(q ‖ p) (`reverse`), KL(p ‖ q) (`forward`), or that of Jensen and Shannon
    /// with weight `beta` (`jsd`).
    #[setting(idle_unless = "kind = 'divergence'")]
    pub divergence: TeacherDivergence,
    /// Weight of the teacher in the mean distribution of `jsd`.
    #[setting(default = 0.5, range = above(0.0)..1.0, idle_unless = "divergence = 'jsd'")]
    #[setting(idle_unless = "kind = 'divergence'")]
    pub beta: f64,
    /// Number of the most probable tokens that are compared; that of the vocabulary compares all.
    #[setting(default = 32, range = 1..=MANY, idle_unless = "kind = 'divergence'")]
    pub top_k: NonZeroUsize,
    /// Model whose most probable tokens are compared: the teacher, or the policy before the update (`student`).
    #[setting(idle_unless = "kind = 'divergence'")]
    pub support: DistillSupport,
    /// Compare all other tokens together as one more token. Without it, the probabilities of the `top_k` tokens are divided by
    /// their sum.
    #[setting(default = true, idle_unless = "kind = 'divergence'")]
    pub tail: bool,
}

impl DistillPlan {
    /// Returns the options of the divergence.
    pub fn options(&self) -> DistillOptions {
        DistillOptions { divergence: self.divergence, beta: self.beta, tail: self.tail }
    }
}

/// Form of the signal of teachers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DistillKind {
    /// The difference of log-probs at the sampled token is a part of its advantage.
    #[default]
    Advantage,
    /// The divergence of the two distributions is a part of the loss of the token.
    Divergence,
}

/// Model whose most probable tokens a divergence compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DistillSupport {
    /// The teacher.
    #[default]
    Teacher,
    /// The policy, with the weights before the update of the step.
    Student,
}

/// Tokens of a reply whose differences are summed for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DistillHorizon {
    /// The token itself.
    #[default]
    Token,
    /// The token, and all later ones of the reply.
    Reply,
}

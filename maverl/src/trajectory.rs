//! Record of an episode as plain data: turns, tokens, outcome.

mod branch;
mod routes;

use std::fmt;

use maverl_engine::message::Routes;
use maverl_kernels::sample::derive_seed;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use maverl_engine::message::{Finish, Message, Role};

pub use branch::BranchPoint;
pub(crate) use branch::request_seed;

use crate::task::{Action, Score, Task};

/// A place in an orchestra: an agent and the index of its seat. The unit of every statistic and of the Dr. MAS group
/// key.
///
/// Written `search/verifier`, or `debate/debater#2` if the agent has several seats.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Seat {
    /// Registered name of the agent.
    pub agent: String,
    /// Index of the seat of that agent, from 0; `None` for an agent with one seat.
    pub index: Option<u32>,
}

impl Seat {
    /// Creates the only seat of an agent.
    pub fn only(agent: impl Into<String>) -> Self {
        Self { agent: agent.into(), index: None }
    }

    /// Creates seat `index` of an agent with several seats.
    pub fn at(agent: impl Into<String>, index: u32) -> Self {
        Self { agent: agent.into(), index: Some(index) }
    }

    /// Returns true if the name of this seat means the other one: an agent without an index means each of its seats.
    pub fn covers(&self, other: &Self) -> bool {
        self.agent == other.agent && self.index.is_none_or(|index| other.index == Some(index))
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            None => f.write_str(&self.agent),
            Some(index) => write!(f, "{}#{index}", self.agent),
        }
    }
}

impl From<Seat> for String {
    fn from(seat: Seat) -> Self {
        seat.to_string()
    }
}

impl TryFrom<String> for Seat {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once('#') {
            None => Ok(Self::only(text)),
            Some((agent, index)) => match index.parse() {
                Ok(index) => Ok(Self::at(agent, index)),
                Err(_) => Err(format!("`{text}`: what follows `#` is a seat number")),
            },
        }
    }
}

/// Position of a turn in its episode: the path of branches, then the number of the ask in the last one.
///
/// The path depends on the order in which asks are *called*, never on the order in which they complete, so seeds and
/// sort order are the same in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnPath(pub Vec<u32>);

impl TurnPath {
    /// Returns the seed of the request of this turn in an episode with a seed.
    pub(crate) fn seed(&self, episode: u64) -> u64 {
        self.0.iter().fold(episode, |seed, &step| derive_seed(seed, u64::from(step)))
    }
}

impl fmt::Display for TurnPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            write!(f, "{step}")?;
        }
        Ok(())
    }
}

/// Tokens of one turn, exactly as the model saw and sampled them, never decoded and encoded again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    /// Prompt tokens.
    pub prompt: Vec<u32>,
    /// Sampled tokens, stop id included.
    pub completion: Vec<u32>,
    /// Log-probability of each sampled token under the temperature-scaled, unfiltered softmax.
    pub logprobs: Vec<f32>,
    /// Number of updates of the policy before this turn.
    pub version: u64,
    /// Seed of the request.
    pub seed: u64,
    /// Sampling temperature (0 = greedy; log-probabilities are then those of temperature 1).
    pub temperature: f32,
    /// Reason that the generation ended.
    pub finish: Finish,
    /// Experts of all tokens of prompt and completion but the last, if rollout servers returned them.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "routes")]
    pub routes: Option<Routes>,
}

/// One call of one agent: a training row, if it has tokens and its policy is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Position in the episode.
    pub path: TurnPath,
    /// Seat that was asked.
    pub seat: Seat,
    /// Name of the policy or endpoint that replied.
    pub policy: String,
    /// Messages of the prompt as text: system if any, then the conversation.
    pub prompt: Vec<Message>,
    /// Tools that the agent could call, in the form of chat templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// Reply as text, without special tokens.
    pub reply: String,
    /// Reason that the reply could not be parsed as the agent's output type; `None` if it could.
    pub error: Option<String>,
    /// True if the reply was truncated by `max_tokens` or the context.
    pub truncated: bool,
    /// Number of characters cut from observations to fit the context.
    #[serde(default)]
    pub shortened: usize,
    /// True if the conversation had to be rendered again because the chat template changes earlier turns.
    #[serde(default)]
    pub forked: bool,
    /// True if the orchestra masked it: no policy is trained on it, and it is in no group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
    /// Token ids and log-probs; an agent behind an API or a script has none and is never trained.
    pub tokens: Option<Tokens>,
    /// Log-probs of a teacher behind an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<TeacherScore>,
}

/// Log-probs of the sampled tokens of a turn, by a teacher behind an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TeacherScore {
    /// Name of the teacher.
    pub name: String,
    /// Log-probability of each sampled token.
    pub logprobs: Vec<f32>,
}

/// A failure that the policy did not cause: the episode is *unscored*, never reward 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Kind of the failure; faults are counted by it.
    pub kind: FaultKind,
    /// Description of the failure.
    pub message: String,
}

impl Fault {
    /// Creates a fault from its kind and description.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)
    }
}

impl std::error::Error for Fault {}

/// Origin of a [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// The environment (or a retriever, a tool server behind it) failed.
    Environment,
    /// A worker group failed, or rollout servers in its place.
    Worker,
    /// A server or script of an endpoint gave no reply.
    Endpoint,
    /// A prompt did not fit the model's context and `rollout.overflow = "error"`.
    Overflow,
    /// The episode took longer than `rollout.timeout_s`.
    Timeout,
    /// The orchestra, an agent or a reward panicked.
    Panic,
    /// The orchestra returned an error of its own, or asked in an order that depends on completion.
    Orchestra,
    /// A program that plays as an orchestra could not be started, or reported that it failed.
    Program,
    /// A program that plays as an orchestra, or the worker that had claimed the episode, ended while it played.
    Crash,
}

impl FaultKind {
    /// Returns the name in metrics: `rollout/unscored/<name>`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Worker => "worker",
            Self::Endpoint => "endpoint",
            Self::Overflow => "overflow",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::Orchestra => "orchestra",
            Self::Program => "program",
            Self::Crash => "crash",
        }
    }
}

/// Outcome of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The environment judged the answer (or its absence).
    Scored(Score),
    /// A fault that the policy did not cause: recorded, counted by kind, excluded from statistics and loss.
    Unscored(Fault),
}

/// One named part of the reward of a turn, a seat or the whole episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewardPart {
    /// Name of the reward function, or one of the constants here.
    pub name: String,
    /// Value, already multiplied by its weight.
    pub value: f64,
    /// Recipient.
    pub of: RewardOf,
}

/// Names of the parts that are not declared.
impl RewardPart {
    /// Name of the environment's score, where it is counted among the parts.
    pub const SCORE: &'static str = "score";
    /// Name of the part for a malformed or truncated reply.
    pub const INVALID_REPLY: &'static str = "invalid_reply";
    /// Name of the part for a reply close to the length limit.
    pub const OVERLONG_REPLY: &'static str = "overlong_reply";
    /// Name of the part for the judgement of the turn's own answer, by the environment.
    pub const OWN: &'static str = "own";
    /// Name of the KL penalty in the reward.
    pub const KL: &'static str = "kl";
    /// Name of whatever else changed a reward, where it is counted among the parts: shaping, later rounds, a baseline.
    pub const OTHER: &'static str = "other";
}

/// Recipient of a [`RewardPart`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardOf {
    /// Every turn of the episode.
    Episode,
    /// Every turn of one seat.
    Seat(Seat),
    /// One turn, by its index in [`Episode::turns`].
    Turn(usize),
}

/// One action of the orchestra in an environment, with its observation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Act {
    /// Path of the next ask of its branch: the action was called before that turn.
    pub path: TurnPath,
    /// Number of the action among those before that turn, from 0.
    pub nth: u32,
    /// Name of the environment in `[environments]`; `None` for the environment of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Action that was executed.
    pub action: Action,
    /// Text of the observation.
    pub observation: String,
    /// True if the environment accepts no further action.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
}

/// One run of an orchestra on one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Task of the episode.
    pub task: Task,
    /// Index of the episode in the group of its task, from 0.
    pub index: u32,
    /// Seed from which every request's seed is derived.
    pub seed: u64,
    /// Turn at which it leaves another episode of the task, if it begins like that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchPoint>,
    /// Turns sorted by [`TurnPath`].
    pub turns: Vec<Turn>,
    /// Actions in environments, sorted by path and number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acts: Vec<Act>,
    /// Answer that the orchestra returned.
    pub answer: Option<String>,
    /// Outcome of the episode.
    pub outcome: Outcome,
    /// Reward parts in addition to the score.
    pub rewards: Vec<RewardPart>,
    /// Output of the program that played it, for the logs of the run; not part of the record.
    #[serde(skip)]
    pub log: String,
}

impl Episode {
    /// Returns the score, if the episode has one.
    pub fn score(&self) -> Option<&Score> {
        match &self.outcome {
            Outcome::Scored(score) => Some(score),
            Outcome::Unscored(_) => None,
        }
    }

    /// Returns the reward of turn `turn`: the score, plus the parts for the episode, its seat, and the turn. `None` if
    /// unscored.
    pub fn turn_reward(&self, turn: usize) -> Option<f64> {
        let score = self.score()?;
        let seat = &self.turns.get(turn)?.seat;
        let parts = self.rewards.iter().filter(|part| match &part.of {
            RewardOf::Episode => true,
            RewardOf::Seat(of) => of == seat,
            RewardOf::Turn(of) => *of == turn,
        });
        Some(score.reward + parts.map(|part| part.value).sum::<f64>())
    }

    /// Returns the sum of the reward parts of each turn that are for the turn alone.
    pub(crate) fn own_rewards(&self) -> Vec<f64> {
        let mut rewards = vec![0.0; self.turns.len()];
        for part in &self.rewards {
            if let RewardOf::Turn(turn) = part.of {
                rewards[turn] += part.value;
            }
        }
        rewards
    }

    /// Returns the judgement of each turn's own answer: its parts [`RewardPart::OWN`] for the turn alone. Penalties, and
    /// values of verifiers and of servers, are no judgement.
    pub(crate) fn judgements(&self) -> Vec<f64> {
        let mut judgements = vec![0.0; self.turns.len()];
        for part in self.rewards.iter().filter(|part| part.name == RewardPart::OWN) {
            if let RewardOf::Turn(turn) = part.of {
                judgements[turn] += part.value;
            }
        }
        judgements
    }
}

//! What happened in an episode, as plain data: turns, tokens, outcome.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::task::{Score, Task};

/// A place in an orchestra: an agent, and which of its seats. The unit of every statistic and of the Dr. MAS group key.
///
/// Written `search/verifier`, or `debate/debater#2` where a role sits several times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Seat {
    /// The agent's registered name.
    pub agent: String,
    /// Which seat of that agent, from 0; `None` for a role that sits once.
    pub index: Option<u32>,
}

impl Seat {
    /// The only seat of an agent.
    pub fn only(agent: impl Into<String>) -> Self {
        Self { agent: agent.into(), index: None }
    }

    /// Seat `index` of an agent that sits several times.
    pub fn at(agent: impl Into<String>, index: u32) -> Self {
        Self { agent: agent.into(), index: Some(index) }
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

/// Where a turn stands in its episode: the path of branches, then the number of the ask in the last one.
///
/// It depends on the order in which asks are *written*, never on the order in which they complete, so seeds and
/// sort order are the same in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnPath(pub Vec<u32>);

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

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model produced a stop id, or a stop string appeared.
    Stop,
    /// `max_tokens` was reached, or the context was full: the reply is truncated.
    Length,
}

/// The tokens of one turn, as the model saw and made them. Nothing here was decoded and encoded again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    /// Everything the model was given.
    pub prompt: Vec<u32>,
    /// What it sampled, stop id included.
    pub completion: Vec<u32>,
    /// Log-probability of each sampled token under the temperature-scaled, unfiltered softmax.
    pub logprobs: Vec<f32>,
    /// Number of updates the policy had seen.
    pub version: u64,
    /// The request's own seed.
    pub seed: u64,
    /// The temperature it was sampled at (0 = greedy; log-probabilities are then those of temperature 1).
    pub temperature: f32,
    /// Why it ended.
    pub finish: Finish,
}

/// One call of one agent: a training row, if it has tokens and its policy is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Where it stands in the episode.
    pub path: TurnPath,
    /// Who was asked.
    pub seat: Seat,
    /// The name of the policy (or endpoint) that answered.
    pub policy: String,
    /// The messages the agent was given, as text: system if any, then the conversation.
    pub prompt: Vec<Message>,
    /// What the agent could call, as chat templates take it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// The reply as text, special tokens left out.
    pub reply: String,
    /// Why the reply could not be read as the agent's output type; `None` if it could.
    pub error: Option<String>,
    /// The reply was cut off by `max_tokens` or the context.
    pub truncated: bool,
    /// Characters cut from observations to fit the context.
    #[serde(default)]
    pub shortened: usize,
    /// A growing conversation had to be rendered afresh because the chat template changes earlier turns.
    #[serde(default)]
    pub forked: bool,
    /// The orchestra let it rest: nobody is trained on it, and it is in no group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
    /// Ids and log-probs; an agent behind an API or a script has none and is never trained.
    pub tokens: Option<Tokens>,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// Who speaks in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// What the agent is asked with.
    User,
    /// What the agent said.
    Assistant,
    /// What a call gave back.
    Tool,
}

/// A failure that is not the policy's: the episode is *unscored*, never reward 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The border that was crossed; faults are counted by it.
    pub kind: FaultKind,
    /// What happened.
    pub message: String,
}

impl Fault {
    /// A fault of a kind, with what happened.
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

/// Where a [`Fault`] came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The environment (or a retriever, a tool server behind it) failed.
    Environment,
    /// A worker group failed.
    Worker,
    /// A server or a script that speaks for an agent gave no reply.
    Endpoint,
    /// A prompt did not fit the model's context and `rollout.overflow = "error"`.
    Overflow,
    /// The episode took longer than `rollout.timeout_s`.
    Timeout,
    /// The orchestra, an agent or a reward panicked.
    Panic,
    /// The orchestra returned an error of its own, or asked in an order that completion decides.
    Orchestra,
}

impl FaultKind {
    /// The name used in metrics: `rollout/unscored/<name>`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Worker => "worker",
            Self::Endpoint => "endpoint",
            Self::Overflow => "overflow",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::Orchestra => "orchestra",
        }
    }
}

/// How an episode ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The environment judged the answer (or its absence).
    Scored(Score),
    /// A fault that is not the policy's: recorded, counted by kind, out of statistics and loss.
    Unscored(Fault),
}

/// One named part of the reward of a turn, a seat or the whole episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewardPart {
    /// The reward function's name, or `invalid_reply`.
    pub name: String,
    /// Already multiplied by its weight.
    pub value: f64,
    /// Whom it is for.
    pub of: RewardOf,
}

/// Whom a [`RewardPart`] is for.
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

/// One run of an orchestra on one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// What was asked.
    pub task: Task,
    /// Which of the group's episodes on this task, from 0.
    pub index: u32,
    /// The seed from which every request's seed is derived.
    pub seed: u64,
    /// Every turn, sorted by [`TurnPath`].
    pub turns: Vec<Turn>,
    /// What the orchestra returned.
    pub answer: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Reward parts beside the score.
    pub rewards: Vec<RewardPart>,
}

impl Episode {
    /// The score, if the episode has one.
    pub fn score(&self) -> Option<&Score> {
        match &self.outcome {
            Outcome::Scored(score) => Some(score),
            Outcome::Unscored(_) => None,
        }
    }

    /// The reward of turn `turn`: the score, plus the parts for the episode, its seat, and the turn. `None` if unscored.
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
}

//! Turns of episodes, each with the values of its rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::task::question_key;
use crate::trajectory::{Episode, Message, RewardOf, Role, Turn};

/// Source and id of a task.
pub(super) type CollectedTask = (String, String);

/// An episode with its origin.
#[derive(Debug, Clone)]
pub struct Collected {
    /// Name of the run.
    pub run: Arc<str>,
    /// `train`, or `eval/SPLIT`.
    pub stage: Arc<str>,
    /// Step of a training episode, from 1; 0 otherwise.
    pub step: u64,
    /// Fingerprint of the starting weights of each policy, as far as it is known.
    pub weights: Arc<BTreeMap<String, String>>,
    /// Instruction that every prompt of the episode ended with (`--ask`).
    pub asked: Option<Arc<str>>,
    /// The episode.
    pub episode: Episode,
}

impl Collected {
    /// Returns the place of the episode in the order of rows.
    pub(super) fn order(&self) -> (&str, &str, &str, &str, u64, u32) {
        let Self { run, stage, step, episode, .. } = self;
        (&episode.task.source, &episode.task.id, run, stage, *step, episode.index)
    }
}

/// A turn of a scored episode.
pub(super) struct CollectedExample<'e> {
    pub(super) of: &'e Collected,
    pub(super) turn: &'e Turn,
    /// Index of the turn in its episode.
    pub(super) index: usize,
    pub(super) reward: f64,
    pub(super) solved: bool,
    /// Key of the question.
    pub(super) question: String,
}

/// Returns every turn of scored episodes, in their order.
pub(super) fn examples(episodes: &[Collected]) -> Vec<CollectedExample<'_>> {
    let mut examples = Vec::new();
    for of in episodes {
        let Some(score) = of.episode.score() else { continue };
        let question = question_key(&of.episode.task.question);
        for (index, turn) in of.episode.turns.iter().enumerate() {
            let Some(reward) = of.episode.turn_reward(index) else { continue };
            let question = question.clone();
            let solved = score.solved;
            examples.push(CollectedExample { of, turn, index, reward, solved, question });
        }
    }
    examples
}

impl CollectedExample<'_> {
    pub(super) fn task(&self) -> CollectedTask {
        let task = &self.of.episode.task;
        (task.source.clone(), task.id.clone())
    }

    /// Returns the prompt, without an instruction that was added for this collection.
    pub(super) fn prompt(&self) -> Vec<Message> {
        let prompt = self.turn.prompt.clone();
        match &self.of.asked {
            None => prompt,
            Some(instruction) => without_instruction(prompt, instruction),
        }
    }

    /// Returns the part of the reward of this turn with a name; 0 without one.
    pub(super) fn part(&self, name: &str) -> f64 {
        let here = RewardOf::Turn(self.index);
        let parts = self.of.episode.rewards.iter();
        parts.filter(|part| part.name == name && part.of == here).map(|part| part.value).sum()
    }

    /// Returns the origin of a row.
    pub(super) fn origin(&self) -> Value {
        let Self { of, turn, reward, solved, .. } = self;
        let tokens = turn.tokens.as_ref();
        let mut origin = json!({
            "run": &*of.run,
            "step": of.step,
            "stage": &*of.stage,
            "task": of.episode.task.id,
            "source": of.episode.task.source,
            "question": self.question,
            "index": of.episode.index,
            "path": turn.path.to_string(),
            "seat": turn.seat.to_string(),
            "policy": turn.policy,
            "version": tokens.map(|tokens| tokens.version),
            "weights": of.weights.get(&turn.policy),
            "temperature": tokens.map(|tokens| tokens.temperature),
            // Many readers round numbers above 2^53.
            "seed": tokens.map(|tokens| tokens.seed.to_string()),
            "reward": reward,
            "solved": solved,
        });
        if let Some(asked) = &of.asked {
            origin["asked"] = json!(&**asked);
        }
        origin
    }
}

/// Returns messages without the instruction that was added to those of the user.
fn without_instruction(mut messages: Vec<Message>, instruction: &str) -> Vec<Message> {
    for message in messages.iter_mut().filter(|message| message.role == Role::User) {
        let plain = message.content.strip_suffix(instruction).and_then(|it| it.strip_suffix('\n'));
        if let Some(plain) = plain.map(str::to_owned) {
            message.content = plain;
        }
    }
    messages
}

//! Turns of episodes, each with what its rows tell of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::TaskKey;
use crate::task::question_key;
use crate::trajectory::{Episode, Turn};

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
pub(super) struct Example<'e> {
    pub(super) of: &'e Collected,
    pub(super) turn: &'e Turn,
    pub(super) reward: f64,
    pub(super) solved: bool,
    /// Key of the question.
    pub(super) question: String,
}

/// Returns every turn of scored episodes, in their order.
pub(super) fn examples(episodes: &[Collected]) -> Vec<Example<'_>> {
    let mut examples = Vec::new();
    for of in episodes {
        let Some(score) = of.episode.score() else { continue };
        let question = question_key(&of.episode.task.question);
        for (index, turn) in of.episode.turns.iter().enumerate() {
            let Some(reward) = of.episode.turn_reward(index) else { continue };
            let question = question.clone();
            examples.push(Example { of, turn, reward, solved: score.solved, question });
        }
    }
    examples
}

impl Example<'_> {
    pub(super) fn task(&self) -> TaskKey {
        let task = &self.of.episode.task;
        (task.source.clone(), task.id.clone())
    }

    /// Returns the origin of a row.
    pub(super) fn origin(&self) -> Value {
        let Self { of, turn, reward, solved, .. } = self;
        let tokens = turn.tokens.as_ref();
        json!({
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
        })
    }
}

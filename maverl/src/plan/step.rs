//! A step in numbers.

use serde::Serialize;

use super::Plan;
use super::numbers::bytes;
use crate::config::CriticPasses;

/// A step in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepSummary {
    /// Tasks.
    pub tasks: u64,
    /// Episodes of each task.
    pub group_size: u64,
    /// Episodes; 0 in supervised training, which plays none.
    pub episodes: u64,
    /// Samples, where every seat speaks once an episode. How often it does is the orchestra's decision.
    pub samples_per_call: u64,
    /// Sampled tokens at most, where every seat speaks once an episode.
    pub tokens_per_call: u64,
    /// Optimizer steps of each policy.
    pub optimizer_steps: u64,
    /// Optimizer steps of each critic; none without critics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critic_steps: Option<u64>,
}

impl StepSummary {
    /// Returns the numbers of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        let algorithm = &plan.algorithm;
        let tasks = plan.config.task.tasks_per_step.get() as u64;
        let group_size = u64::from(plan.config.task.group_size.get());
        let plays = !algorithm.preset.is_supervised();
        let episodes = if plays { tasks.saturating_mul(group_size) } else { 0 };
        let longest = plan.seats.iter().map(|seat| seat.sampling.max_tokens as u64);
        let longest = longest.fold(0, u64::saturating_add);
        let critics = algorithm.critic_passes();
        let passes =
            [[algorithm.epochs, algorithm.minibatches], [critics.epochs, critics.minibatches]];
        let [optimizer_steps, critic_steps] =
            passes.map(|[epochs, minibatches]| (minibatches as u64).saturating_mul(epochs as u64));
        Self {
            tasks,
            group_size,
            episodes,
            samples_per_call: episodes.saturating_mul(plan.seats.len() as u64),
            tokens_per_call: episodes.saturating_mul(longest),
            optimizer_steps,
            critic_steps: algorithm.critic.as_ref().map(|_| critic_steps),
        }
    }

    /// Returns the sentences about a step of the plan.
    pub(super) fn text(&self, plan: &Plan) -> String {
        let preset = plan.algorithm.preset;
        let played = if preset.is_supervised() && preset.generates() {
            "a step plays no episode: given replies are compared with generated ones\n".to_owned()
        } else if preset.is_supervised() {
            "a step plays no episode: replies are given\n".to_owned()
        } else {
            format!(
                "a step: {} tasks x {} episodes = {} episodes; each time every seat speaks once, {} samples and at most {} \
                 tokens\n",
                self.tasks,
                self.group_size,
                self.episodes,
                self.samples_per_call,
                self.tokens_per_call
            )
        };
        played + &staleness_text(plan) + &self.critics(plan)
    }

    /// Returns the sentence about the updates of critics beside those of policies; nothing without critics.
    fn critics(&self, plan: &Plan) -> String {
        let supervised = plan.algorithm.preset.is_supervised();
        let Some(steps) = self.critic_steps.filter(|_| !supervised) else { return String::new() };
        let CriticPasses { epochs, minibatches } = plan.algorithm.critic_passes();
        format!(
            "a critic gets {} a step ({epochs} x {minibatches}: `epochs` and `minibatches` of `algorithm.advantage`, or of \
             `algorithm`), {} in the run; a policy gets {} a step\n",
            updates(steps),
            steps.saturating_mul(plan.config.steps),
            self.optimizer_steps
        )
    }
}

fn updates(number: u64) -> String {
    format!("{number} update{}", if number == 1 { "" } else { "s" })
}

/// Returns the sentence about episodes that earlier weights play; nothing without staleness.
fn staleness_text(plan: &Plan) -> String {
    let staleness = plan.config.rollout.staleness;
    if staleness == 0 {
        return String::new();
    }
    let snapshots: u64 = plan
        .summary()
        .workers
        .iter()
        .map(|worker| worker.snapshot_bytes)
        .fold(0, u64::saturating_add);
    let (batches, behind) = match staleness {
        1 => ("one batch".to_owned(), "a step".to_owned()),
        _ => (format!("{staleness} batches"), format!("{staleness} steps")),
    };
    let newer = match plan.config.rollout.advance_turns {
        0 => String::new(),
        1 => ", and an episode goes on with the next weights after each turn, up to those that its step trains".to_owned(),
        turns => format!(
            ", and an episode goes on with the next weights after every {turns} turns, up to those that its step trains"
        ),
    };
    format!(
        "while a step is updated, {batches} of later steps are played: the weights of a step's episodes are {behind} behind those \
         that it trains{newer}; copies of weights take {}, and a second cache of keys and values may take as much as the first\n",
        bytes(snapshots)
    )
}

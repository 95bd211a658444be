//! Credit of a turn from branches of its episode: what the team would have earned with other replies.
//!
//! ```text
//! R_j = mean over its branches of the reward of the turn    of reply j at the turn; 0 is the played one
//! V_t = mean of R_j over the replies j > 0 at turn t        value of the state before turn t
//!
//! counterfactual   A_t = R_0 − V_t                          COMA, 1705.08926 eq. 4; C3, 2603.06859
//! continuations    A_t = V_{t+1} − V_t                      VinePO, 2410.01679 eq. 5 and 6; V is the reward after the last turn
//! by = "branch"    r = R_j                                  of the row of reply j, which a group compares (C3, AT-GRPO)
//! keep = "all"     R_j = mean over the replies of others    MAGRPO, 2508.04652
//! ```
//!
//! - The reward of a branch is that of the same turn in the branch, with the parts for that turn, its seat and the episode.
//! - Every reply counts once, whatever the number of its branches that were scored.
//! - The counterfactual advantage differs from 0 only for turns that the reward depends on, and its mean over replies is 0. The
//!   advantages `continuations` of an episode add up to its reward less the value of its first state.
//! - Turns without branches have `otherwise`: the reward less the mean of the played turns of the seat on the task, or 0.

use std::collections::BTreeMap;

use crate::algo::branch::{PromptReplies, reward_at};
use crate::algo::{Sample, TaskKey};
use crate::config::{BranchKeep, BranchUse};
use crate::credit::{KnownBaseline, Unbranched, dense};
use crate::plan::Plan;
use crate::trajectory::{BranchPoint, Episode, TurnPath};

/// Branches at one turn of a played episode: by alternative, then continuation.
type TurnBranches<'e> = BTreeMap<u32, Vec<&'e Episode>>;

/// Branches of the episodes of a step.
pub(super) struct Branches<'e> {
    by_turn: BTreeMap<(TaskKey, u32, &'e TurnPath), TurnBranches<'e>>,
}

impl<'e> Branches<'e> {
    /// Collects the scored branches of a step.
    pub(super) fn of(episodes: &'e [Episode]) -> Self {
        let mut by_turn: BTreeMap<_, TurnBranches<'e>> = BTreeMap::new();
        for episode in episodes.iter().filter(|episode| episode.score().is_some()) {
            let Some(point) = &episode.branch else { continue };
            let turn = by_turn.entry((TaskKey::of(episode), point.of, &point.at)).or_default();
            turn.entry(point.alternative).or_default().push(episode);
        }
        Self { by_turn }
    }

    /// Returns the branches at a turn of a played episode of an index.
    fn at(&self, task: &TaskKey, of: u32, path: &'e TurnPath) -> Option<&TurnBranches<'e>> {
        self.by_turn.get(&(task.clone(), of, path))
    }

    /// Returns the value of the state before turn `at` for turn `turn` of a played episode: the mean over other replies to `at`.
    /// `None` if no branch with another reply was scored.
    fn value(&self, task: &TaskKey, played: &'e Episode, at: usize, turn: usize) -> Option<f64> {
        let branches = self.at(task, played.index, &played.turns.get(at)?.path)?;
        let others = branches.iter().filter(|(alternative, _)| **alternative > 0);
        let path = &played.turns[turn].path;
        let rewards: Vec<Vec<f64>> = others.map(|(_, plays)| rewards(plays, path)).collect();
        subtree_mean(&rewards)
    }

    /// Returns the rewards of a turn in further plays of a reply.
    fn more_rewards(&self, sample: &Sample, episodes: &'e [Episode]) -> Vec<f64> {
        let episode = &episodes[sample.episode];
        let path = &episode.turns[sample.turn].path;
        let (of, alternative) = match &episode.branch {
            Some(branch) if branch.at == *path => (branch.of, branch.alternative),
            _ => (episode.index, 0),
        };
        let plays = self.at(&sample.task, of, path).and_then(|turn| turn.get(&alternative));
        let plays = plays.into_iter().flatten().copied();
        let more: Vec<&Episode> = plays.filter(|play| !std::ptr::eq(*play, episode)).collect();
        rewards(&more, path)
    }
}

/// Returns the reward of the turn of a path in each episode that has it.
fn rewards(plays: &[&Episode], path: &TurnPath) -> Vec<f64> {
    plays.iter().filter_map(|play| reward_at(play, path)).collect()
}

/// Returns the mean over replies of the means over their branches; `None` without a branch.
fn subtree_mean(replies: &[Vec<f64>]) -> Option<f64> {
    let means: Vec<f64> = replies.iter().filter_map(|plays| mean(plays)).collect();
    mean(&means)
}

pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Sets the rewards of samples at branches to the mean over the plays of their reply, if replies at branches are trained on.
pub(crate) fn average_plays(plan: &Plan, episodes: &[Episode], samples: &mut [Sample]) {
    if plan.algorithm.advantage.branches() != Some(BranchUse::Rows) {
        return;
    }
    let keep = plan.config.rollout.branch.as_ref().map(|config| config.keep);
    if keep == Some(BranchKeep::All) {
        return average_joint_plays(episodes, samples);
    }
    let branches = Branches::of(episodes);
    for sample in samples {
        let mut plays = branches.more_rewards(sample, episodes);
        if plays.is_empty() {
            continue;
        }
        plays.push(sample.reward);
        sample.reward = mean(&plays).unwrap_or(sample.reward);
    }
}

/// Sets the rewards of samples whose prompts have several replies to the mean over the plays of their reply, with whatever others
/// replied.
fn average_joint_plays(episodes: &[Episode], samples: &mut [Sample]) {
    let replies = PromptReplies::of(episodes);
    for sample in samples {
        let plays = replies.plays(&episodes[sample.episode], sample.turn).into_iter().flatten();
        let rewards = plays.filter_map(|&(episode, turn)| episodes[episode].turn_reward(turn));
        let rewards: Vec<f64> = rewards.collect();
        sample.reward = mean(&rewards).unwrap_or(sample.reward);
    }
}

/// Gives each sample the baseline that leaves its credit: `reward − baseline = A`.
pub(super) fn credit_baselines(known: KnownBaseline, episodes: &[Episode], samples: &mut [Sample]) {
    let branches = Branches::of(episodes);
    let of_sample = match known {
        KnownBaseline::Continuations(_) => state_difference,
        _ => counterfactual,
    };
    let credits = samples.iter().map(|sample| of_sample(&branches, episodes, sample));
    let credits: Vec<Option<f64>> = credits.collect();
    let otherwise = match known {
        KnownBaseline::Counterfactual(otherwise) | KnownBaseline::Continuations(otherwise) => {
            unbranched(otherwise, samples)
        }
        _ => vec![0.0; samples.len()],
    };
    for ((sample, credit), otherwise) in samples.iter_mut().zip(credits).zip(otherwise) {
        sample.baseline = sample.reward - credit.unwrap_or(otherwise);
    }
}

/// Returns the reward of the reply less that of other replies.
fn counterfactual(branches: &Branches<'_>, episodes: &[Episode], sample: &Sample) -> Option<f64> {
    let played = &episodes[sample.episode];
    let value = branches.value(&sample.task, played, sample.turn, sample.turn)?;
    let mut plays = branches.more_rewards(sample, episodes);
    plays.push(sample.reward);
    Some(mean(&plays)? - value)
}

/// Returns the difference of the values of the states after and before a turn.
fn state_difference(branches: &Branches<'_>, episodes: &[Episode], sample: &Sample) -> Option<f64> {
    let played = &episodes[sample.episode];
    let before = branches.value(&sample.task, played, sample.turn, sample.turn)?;
    let after = if sample.turn + 1 < played.turns.len() {
        branches.value(&sample.task, played, sample.turn + 1, sample.turn)?
    } else {
        sample.reward
    };
    Some(after - before)
}

/// Returns the advantage that each sample has without branches.
pub(super) fn unbranched(otherwise: Unbranched, samples: &[Sample]) -> Vec<f64> {
    if otherwise == Unbranched::Zero {
        return vec![0.0; samples.len()];
    }
    let groups = dense(samples.iter().map(|sample| (&sample.task, sample.seat)));
    let mut sums = vec![(0.0, 0.0); samples.len()];
    for (sample, &group) in samples.iter().zip(&groups) {
        sums[group] = (sums[group].0 + sample.reward, sums[group].1 + 1.0);
    }
    let rows = samples.iter().zip(&groups);
    rows.map(|(sample, &group)| sample.reward - sums[group].0 / sums[group].1).collect()
}

/// Returns the dense id of the branch of each sample; `None` for samples that are the only reply to their turn.
pub(super) fn branch_ids(episodes: &[Episode], samples: &[Sample]) -> Vec<Option<usize>> {
    let ids = dense(samples.iter().map(|sample| branch_key(episodes, sample)));
    let mut counts = vec![0; samples.len()];
    ids.iter().for_each(|&id| counts[id] += 1);
    ids.into_iter().map(|id| (counts[id] > 1).then_some(id)).collect()
}

/// Task, index of an episode, path, seat and prompt of a turn.
type BranchKey<'e> = (&'e TaskKey, u32, &'e TurnPath, usize, &'e [u32]);

/// Returns what the replies at a branch have in common, of the turn of a sample: the episode is that which the branch begins like,
/// and the played one if seats are drawn. `None` if there is no such turn.
fn branch_key<'e>(episodes: &'e [Episode], sample: &'e Sample) -> Option<BranchKey<'e>> {
    let episode = episodes.get(sample.episode)?;
    let turn = episode.turns.get(sample.turn)?;
    let begins = |branch: &BranchPoint| branch.at == turn.path || !branch.drawn.is_empty();
    let branch = episode.branch.as_ref().filter(|branch| begins(branch));
    let of = branch.map_or(episode.index, |branch| branch.of);
    let prompt = turn.tokens.as_ref().map_or(&[][..], |tokens| tokens.prompt.as_slice());
    Some((&sample.task, of, &turn.path, sample.seat, prompt))
}

#[cfg(test)]
mod tests;

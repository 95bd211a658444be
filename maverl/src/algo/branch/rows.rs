//! Turns of branches that are trained on.

use std::collections::{BTreeMap, BTreeSet};

use crate::algo::TaskKey;
use crate::config::{BranchKeep, BranchUse};
use crate::plan::Plan;
use crate::trajectory::{Episode, Seat, TurnPath};

/// A turn: the index of its episode in the step, and its own in the episode.
type TurnIndex = (usize, usize);
/// A prompt in the plays of an episode: its task, the index of the episode, the turn, the seat and the tokens.
type PromptKey<'e> = (TaskKey, u32, &'e TurnPath, &'e Seat, &'e [u32]);

/// Replies to the prompts of played episodes and of their branches with drawn seats: by the seed of the reply, the turns that have
/// it.
pub(in crate::algo) struct PromptReplies<'e> {
    by_prompt: BTreeMap<PromptKey<'e>, BTreeMap<u64, Vec<TurnIndex>>>,
}

impl<'e> PromptReplies<'e> {
    /// Collects the replies of the scored episodes of a step; those of played episodes come first.
    pub(in crate::algo) fn of(episodes: &'e [Episode]) -> Self {
        let mut order: Vec<usize> = (0..episodes.len()).collect();
        order.sort_by_key(|&at| (episodes[at].branch.is_some(), episodes[at].index, at));
        let mut seen = BTreeSet::new();
        let mut by_prompt: BTreeMap<_, BTreeMap<u64, Vec<TurnIndex>>> = BTreeMap::new();
        for at in order {
            let episode = &episodes[at];
            // A task that was drawn twice in a step has equal episodes.
            if episode.score().is_none() || !seen.insert((TaskKey::of(episode), episode.index)) {
                continue;
            }
            for turn in 0..episode.turns.len() {
                if let Some((key, seed)) = prompt_key(episode, turn) {
                    let replies = by_prompt.entry(key).or_default();
                    replies.entry(seed).or_default().push((at, turn));
                }
            }
        }
        Self { by_prompt }
    }

    /// Returns the turns with the reply of a turn; `None` if its prompt has no other reply.
    pub(in crate::algo) fn plays(&self, episode: &'e Episode, turn: usize) -> Option<&[TurnIndex]> {
        let (key, seed) = prompt_key(episode, turn)?;
        let replies = self.by_prompt.get(&key).filter(|replies| replies.len() > 1)?;
        replies.get(&seed).map(Vec::as_slice)
    }

    /// Returns the first turn with each reply, of prompts with several replies.
    fn rows(&self) -> BTreeSet<TurnIndex> {
        let several = self.by_prompt.values().filter(|replies| replies.len() > 1);
        let first = several.flat_map(BTreeMap::values).filter_map(|plays| plays.first());
        first.copied().collect()
    }
}

/// Returns the prompt of a turn and the seed of its reply; `None` for a turn without tokens.
fn prompt_key(episode: &Episode, turn: usize) -> Option<(PromptKey<'_>, u64)> {
    let of = episode.branch.as_ref().map_or(episode.index, |branch| branch.of);
    let turn = episode.turns.get(turn)?;
    let tokens = turn.tokens.as_ref()?;
    let prompt = tokens.prompt.as_slice();
    Some(((TaskKey::of(episode), of, &turn.path, &turn.seat, prompt), tokens.seed))
}

/// Returns the turns of branches that are trained on: none if the estimator compares no replies at branches.
///
/// - At a turn with branches, the first play of each other reply.
/// - If the best reply goes on, also the turn of a branch that has branches itself.
/// - If all replies go on, the first play of each reply to a prompt with several replies.
pub(in crate::algo) fn branch_rows(plan: &Plan, episodes: &[Episode]) -> BTreeSet<TurnIndex> {
    if plan.algorithm.advantage.branches() != Some(BranchUse::Rows) {
        return BTreeSet::new();
    }
    let keep = plan.config.rollout.branch.as_ref().map(|config| config.keep);
    if keep == Some(BranchKeep::All) {
        return PromptReplies::of(episodes).rows();
    }
    let points = episodes.iter().filter_map(|it| Some((it, it.branch.as_ref()?)));
    let begun: BTreeSet<(TaskKey, u32, &TurnPath)> =
        points.map(|(episode, point)| (TaskKey::of(episode), point.of, &point.at)).collect();
    let mut rows = BTreeSet::new();
    for (at, episode) in episodes.iter().enumerate() {
        let Some(point) = &episode.branch else { continue };
        let first = point.alternative > 0 && point.continuation == 0;
        let task = TaskKey::of(episode);
        for (turn, played) in episode.turns.iter().enumerate() {
            let has_branches = || begun.contains(&(task.clone(), episode.index, &played.path));
            if (first && played.path == point.at) || has_branches() {
                rows.insert((at, turn));
            }
        }
    }
    rows
}

//! Branches after the best reply of each turn: the replies at a turn are played to the end, and the play with the best one gets
//! branches at its next turn.

use std::collections::BTreeMap;

use crate::algo::branch::{PlannedBranch, TaskBranches, TurnPlace, reward_at};
use crate::trajectory::{Episode, TurnPath};

impl TaskBranches<'_> {
    /// Returns the branches at the next turn of each played episode of a task, after the best replies at its earlier turns. Their
    /// indices follow those of the branches so far, or begin at `first`.
    pub(super) fn after_best(
        &self,
        played: &[usize],
        branches: &[usize],
        first: u32,
    ) -> Vec<PlannedBranch> {
        let used = branches.iter().map(|&at| self.episodes[at].index + 1);
        let mut index = used.max().unwrap_or(first);
        let mut planned = Vec::new();
        let scored = played.iter().filter(|&&at| self.episodes[at].score().is_some());
        for place in scored.filter_map(|&at| self.open_turn(at, branches)) {
            for point in self.points(place) {
                planned.push(PlannedBranch { episode: place.0, index, point });
                index += 1;
            }
        }
        planned
    }

    /// Returns the first turn that has no branches yet, in the play with the best reply at each turn before it; `None` after the
    /// last turn.
    fn open_turn(&self, played: usize, branches: &[usize]) -> Option<TurnPlace> {
        let (mut play, mut from): (usize, Option<&TurnPath>) = (played, None);
        loop {
            let episode = &self.episodes[play];
            let turns = self.turns(episode).into_iter();
            let mut later =
                turns.filter(|&turn| from.is_none_or(|at| episode.turns[turn].path > *at));
            let turn = later.next()?;
            let path = &episode.turns[turn].path;
            let others: Vec<usize> =
                branches.iter().copied().filter(|&at| self.begins(at, episode, path)).collect();
            if others.is_empty() {
                return Some((play, turn));
            }
            from = Some(path);
            play = self.best_play(play, &others, path);
        }
    }

    /// Returns true if a branch begins like an episode and leaves it at the turn of a path.
    fn begins(&self, branch: usize, episode: &Episode, path: &TurnPath) -> bool {
        let point = self.episodes[branch].branch.as_ref();
        point.is_some_and(|point| point.of == episode.index && point.at == *path)
    }

    /// Returns the play that goes on of those of the replies at a turn: the first one of the reply with the highest mean reward,
    /// of several such replies the first. `play` has the first reply, and is also that if no other reply was scored.
    fn best_play(&self, play: usize, others: &[usize], path: &TurnPath) -> usize {
        // Rewards of the plays of a reply, and its first play.
        let mut replies: BTreeMap<u32, (Vec<f64>, usize)> = BTreeMap::new();
        let first = std::iter::once((0, play));
        let numbers = others.iter().filter_map(|&at| {
            let point = self.episodes[at].branch.as_ref()?;
            Some((point.alternative, at))
        });
        for (alternative, at) in first.chain(numbers) {
            if let Some(reward) = reward_at(&self.episodes[at], path) {
                replies.entry(alternative).or_insert((Vec::new(), at)).0.push(reward);
            }
        }
        let (mut best, mut highest) = (play, f64::NEG_INFINITY);
        for (rewards, at) in replies.values() {
            let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
            if mean > highest {
                (best, highest) = (*at, mean);
            }
        }
        best
    }
}

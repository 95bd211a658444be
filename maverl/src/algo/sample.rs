//! Selection of the turns that are trained on.

use std::collections::{BTreeMap, BTreeSet};

use crate::algo::advantage::{is_greedy, rounding_of};
use crate::algo::branch::branch_rows;
use crate::plan::Plan;
use crate::trajectory::Episode;

/// Key of a task. Ids are unique only within a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// Source of the task, [`crate::task::Task::source`].
    pub source: String,
    /// Id of the task, [`crate::task::Task::id`].
    pub id: String,
}

impl TaskKey {
    /// Returns the key of an episode's task.
    pub(super) fn of(episode: &Episode) -> Self {
        Self { source: episode.task.source.clone(), id: episode.task.id.clone() }
    }
}

/// A turn that is trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Index in the step's episodes.
    pub episode: usize,
    /// Index in the episode's turns.
    pub turn: usize,
    /// Task of the episode.
    pub task: TaskKey,
    /// Index in [`Plan::seats`].
    pub seat: usize,
    /// Index in [`Plan::policies`].
    pub policy: usize,
    /// Reward of the turn, [`Episode::turn_reward`]: the score plus the reward parts of this turn.
    pub reward: f64,
    /// Baseline of the reward, in addition to that of its group: see `algo::baselines`.
    pub baseline: f64,
    /// True if the episode solved the task.
    pub solved: bool,
    /// Number of tokens that are trained on.
    pub tokens: usize,
}

impl Sample {
    /// Returns what samples are sorted by. Turns are sorted by path within their episode. The episode separates equal
    /// tasks that were sampled twice in a step.
    fn sort_key(&self, episodes: &[Episode]) -> (&TaskKey, u32, usize, usize) {
        (&self.task, episodes[self.episode].index, self.episode, self.turn)
    }
}

/// Returns the tasks with scored episodes that all have the same score, up to rounding. They give no gradient.
///
/// Dynamic sampling of DAPO, [2503.14476](https://arxiv.org/abs/2503.14476) §3.2, replaces them by other tasks. Only
/// the score of the episode is compared, before reward parts and penalties.
pub fn flat_tasks(episodes: &[Episode]) -> BTreeSet<TaskKey> {
    let mut rewards: BTreeMap<TaskKey, (f64, f64)> = BTreeMap::new();
    for episode in episodes {
        let Some(score) = episode.score() else { continue };
        let (low, high) =
            rewards.entry(TaskKey::of(episode)).or_insert((f64::INFINITY, f64::NEG_INFINITY));
        (*low, *high) = (low.min(score.reward), high.max(score.reward));
    }
    let flat = rewards.into_iter().filter(|(_, (low, high))| high - low <= rounding_of(*low));
    flat.map(|(task, _)| task).collect()
}

/// Returns the turns of `episodes` that are trained on, sorted by (task, episode index, turn path).
///
/// A turn is a sample if its episode is *scored*, its seat is trained, it has tokens and it is not masked. A malformed
/// or truncated reply is a sample like any other. Turns of frozen seats, of endpoints and of greedy baseline episodes
/// are not samples, so they enter no statistic of a group. Of branches, the turns with other replies are samples if an estimator
/// compares these (`by = "branch"`).
pub fn samples(episodes: &[Episode], plan: &Plan) -> Vec<Sample> {
    let rows = branch_rows(plan, episodes);
    let played = episodes.iter().enumerate().filter(|(_, episode)| !is_greedy(plan, episode));
    let all = played.flat_map(|(index, episode)| of_episode(index, episode, plan));
    let is_row = |sample: &Sample| rows.contains(&(sample.episode, sample.turn));
    let is_played = |sample: &Sample| episodes[sample.episode].branch.is_none();
    let mut samples: Vec<Sample> =
        all.filter(|sample| is_played(sample) || is_row(sample)).collect();
    samples.sort_by(|a, b| a.sort_key(episodes).cmp(&b.sort_key(episodes)));
    samples
}

fn of_episode<'a>(
    index: usize,
    episode: &'a Episode,
    plan: &'a Plan,
) -> impl Iterator<Item = Sample> + 'a {
    episode.turns.iter().enumerate().filter_map(move |(turn, played)| {
        let tokens = played.tokens.as_ref().filter(|_| !played.masked)?.completion.len();
        let seat = plan.seats.iter().position(|seat| seat.seat == played.seat)?;
        let trained = &plan.seats[seat];
        trained.trained.then_some(())?;
        Some(Sample {
            episode: index,
            turn,
            task: TaskKey::of(episode),
            seat,
            policy: trained.policy,
            reward: episode.turn_reward(turn)?,
            baseline: 0.0,
            solved: episode.score()?.solved,
            tokens,
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{episode, plan, turn};
    use crate::trajectory::{Fault, FaultKind, Outcome, RewardOf, RewardPart};

    #[test]
    fn one_sample_per_turn_with_tokens_of_a_trained_seat_of_a_scored_episode() {
        let plan = plan(&[("t/a", true), ("t/b", false)]);
        let mut endpoint = turn("t/a", 2);
        endpoint.tokens = None;
        let mut masked = turn("t/a", 4);
        masked.masked = true;
        let mut unscored = episode("p", 1, 1.0, vec![turn("t/a", 0)]);
        unscored.outcome = Outcome::Unscored(Fault::new(FaultKind::Environment, "down"));
        let played = episode(
            "p",
            0,
            1.0,
            vec![turn("t/a", 0), turn("t/b", 1), endpoint, turn("t/a", 3), masked],
        );
        let got = samples(&[unscored, played], &plan);
        let places: Vec<_> = got.iter().map(|s| (s.episode, s.turn, s.seat)).collect();
        assert_eq!(places, [(1, 0, 0), (1, 3, 0)]);
    }

    #[test]
    fn a_malformed_reply_is_a_sample_with_a_lower_reward() {
        let plan = plan(&[("t/a", true)]);
        let mut played = episode("p", 0, 1.0, vec![turn("t/a", 0), turn("t/a", 1)]);
        played.turns[1].error = Some("no <x>...</x> block".to_owned());
        let of = RewardOf::Turn(1);
        played.rewards.push(RewardPart { name: "invalid_reply".to_owned(), value: -0.25, of });
        let rewards: Vec<_> = samples(&[played], &plan).iter().map(|s| s.reward).collect();
        assert_eq!(rewards, [1.0, 0.75]);
    }

    #[test]
    fn tasks_whose_scores_differ_by_rounding_are_flat() {
        let one = |index, reward| episode("p", index, reward, vec![turn("t/a", 0)]);
        let flat = |rewards: &[f64]| {
            let episodes = rewards.iter().zip(0..).map(|(&reward, index)| one(index, reward));
            !flat_tasks(&episodes.collect::<Vec<_>>()).is_empty()
        };
        for rewards in [&[1.0; 3][..], &[0.3, 0.1 + 0.2], &[-0.0, 0.0], &[1e9, 1e9 + 1e-6], &[0.5]]
        {
            assert!(flat(rewards), "{rewards:?}");
        }
        for rewards in [&[1.0, 1.0, 0.0][..], &[0.3, 0.301], &[-1e9, 1e9], &[1e6, 1e6 + 0.01]] {
            assert!(!flat(rewards), "{rewards:?}");
        }
    }

    #[test]
    fn samples_are_sorted_whatever_the_order_of_episodes() {
        let plan = plan(&[("t/a", true)]);
        let one = |task: &str, index| episode(task, index, 0.0, vec![turn("t/a", 0)]);
        let key = |episodes: &[Episode]| {
            let sorted = samples(episodes, &plan);
            sorted
                .iter()
                .map(|s| (s.task.id.clone(), episodes[s.episode].index))
                .collect::<Vec<_>>()
        };
        let sorted = key(&[one("b", 1), one("a", 1), one("b", 0), one("a", 0)]);
        assert_eq!(sorted, key(&[one("a", 0), one("a", 1), one("b", 0), one("b", 1)]));
        assert_eq!(sorted[0], ("a".to_owned(), 0));
    }
}

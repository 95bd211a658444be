//! Parts of the reward of an episode in addition to the score of its environment.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use crate::orchestra::EpisodeState;
use crate::plan::Overlong;
use crate::reward::Rewards;
use crate::rollout::error::RolloutError;
use crate::rollout::fault::{bounded_reward, panic_fault, timeout_fault};
use crate::rollout::rewards::{ScoredRewards, Scorer};
use crate::task::Score;
use crate::trajectory::{Episode, Fault, FaultKind, Outcome, RewardOf, RewardPart, Seat, Turn};

/// Rule for rewards.
const RULE: &str = "a reward is a number from -1e9 to 1e9, and so is the sum of the absolute values of an episode's";

/// A part of the reward with its weight.
#[derive(Clone)]
pub struct WeightedReward {
    /// Its name.
    pub name: String,
    /// Factor of its values.
    pub weight: f64,
    /// Origin of its values.
    pub source: ValueSource,
}

/// Origin of the values of a part of the reward.
#[derive(Clone)]
pub enum ValueSource {
    /// A declared function.
    Function(fn(&Episode) -> Rewards),
    /// A server, a Python file, or a verifier in this process.
    Scorer(Arc<dyn Scorer>),
}

/// Parts of the reward of each episode in addition to the score of its environment; none by default.
#[derive(Clone, Default)]
pub struct EpisodeRewards {
    /// Parts that functions, servers and verifiers compute.
    pub parts: Vec<WeightedReward>,
    /// Penalty of each seat for a malformed or truncated reply; missing seats have no penalty.
    pub penalties: BTreeMap<Seat, f64>,
    /// Penalty of each seat for a long reply; missing seats have no penalty.
    pub overlong: BTreeMap<Seat, Overlong>,
}

impl EpisodeRewards {
    /// Adds the reward parts of a scored episode; parts of 0 are omitted.
    pub(super) async fn add(
        &self,
        episode: &mut Episode,
        state: &EpisodeState,
        timeout: Duration,
    ) -> Result<(), Fault> {
        for part in state.reward_parts(&episode.turns) {
            bounded_reward(&format!("reward `{}` of the orchestra", part.name), part.value)?;
            episode.rewards.push(part);
        }
        let costs = episode.turns.iter().enumerate();
        let costs: Vec<_> = costs.flat_map(|(i, turn)| self.turn_costs(i, turn)).collect();
        episode.rewards.extend(costs);
        for WeightedReward { name, weight, source } in &self.parts {
            for (of, value) in source.values(name, episode, timeout).await?.parts() {
                check_recipient(name, of, episode, state)?;
                let value = bounded_reward(&format!("reward `{name}`"), value * weight)?;
                if value != 0.0 {
                    episode.rewards.push(part(name, value, of.clone()));
                }
            }
        }
        check_sum(episode)
    }

    /// Adds the reward parts that compare the scored episodes of a task. Returns true if there are such parts.
    pub(crate) async fn compare(&self, episodes: &mut [Episode]) -> bool {
        let mut compares = false;
        for WeightedReward { name, weight, source } in &self.parts {
            let Some(scorer) = source.scorer() else { continue };
            for places in scored_groups(episodes) {
                let group: Vec<&Episode> = places.iter().map(|&at| &episodes[at]).collect();
                let Some(compared) = scorer.compare(&group) else { break };
                let compared = compared.await;
                compares = true;
                for (at, result) in places.iter().zip(compared) {
                    let added = result.and_then(|found| {
                        add_compared(&mut episodes[*at], (name.as_str(), *weight), found)
                    });
                    if let Err(what) = added {
                        let fault = format!("reward `{name}`: {what}");
                        let fault = Fault::new(FaultKind::Environment, fault);
                        episodes[*at].rewards.clear();
                        episodes[*at].outcome = Outcome::Unscored(fault);
                    }
                }
            }
        }
        compares
    }

    /// Returns the name of a part whose values are repeatable in runs of one process only.
    pub(crate) fn takes_one_process(&self) -> Option<&str> {
        self.scorers().find(|(_, scorer)| scorer.takes_one_process()).map(|(name, _)| name)
    }

    /// Returns the names of the files that the parts depend on.
    pub(crate) fn sources(&self) -> Vec<String> {
        self.scorers().flat_map(|(_, scorer)| scorer.sources()).collect()
    }

    /// Writes what belongs to a run into its directory from now on.
    ///
    /// # Errors
    ///
    /// The description of a file that cannot be written.
    pub(crate) fn open_in(&self, dir: &Path) -> Result<(), RolloutError> {
        self.scorers().try_for_each(|(name, scorer)| {
            let opened = scorer.open_in(dir);
            opened.map_err(|problem| RolloutError::Reward { name: name.to_owned(), problem })
        })
    }

    /// Takes the counts and times of the parts since the last call, by the name of the part and their own.
    pub(crate) fn take_usage(&self) -> Vec<(String, f64)> {
        let usage = self.scorers().map(|(name, scorer)| (name, scorer.take_usage()));
        let named = usage.flat_map(|(name, usage)| {
            usage
                .into_iter()
                .map(move |(quantity, value)| (format!("reward/{name}/{quantity}"), value))
        });
        named.collect()
    }

    fn scorers(&self) -> impl Iterator<Item = (&str, &dyn Scorer)> {
        self.parts.iter().filter_map(|part| Some((part.name.as_str(), part.source.scorer()?)))
    }

    /// Returns the penalties of a turn that are not 0.
    fn turn_costs(&self, index: usize, turn: &Turn) -> impl Iterator<Item = RewardPart> {
        let invalid = turn.error.is_some() || turn.truncated;
        let penalty = self.penalties.get(&turn.seat).copied().filter(|_| invalid);
        let overlong = self.overlong.get(&turn.seat).zip(turn.tokens.as_ref());
        let overlong = overlong.map(|(overlong, tokens)| overlong.reward(tokens.completion.len()));
        let of = RewardOf::Turn(index);
        let costs = [
            part(RewardPart::INVALID_REPLY, -penalty.unwrap_or(0.0), of.clone()),
            part(RewardPart::OVERLONG_REPLY, overlong.unwrap_or(0.0), of),
        ];
        costs.into_iter().filter(|part| part.value != 0.0)
    }
}

impl ValueSource {
    /// Returns the scorer, if it is one.
    fn scorer(&self) -> Option<&dyn Scorer> {
        match self {
            Self::Function(_) => None,
            Self::Scorer(scorer) => Some(&**scorer),
        }
    }

    pub(super) fn of_scorer(scorer: impl Scorer + 'static) -> Self {
        Self::Scorer(Arc::new(scorer))
    }

    /// Returns the values of a part of the reward. Those that a server left out are a metric of the episode.
    async fn values(
        &self,
        name: &str,
        episode: &mut Episode,
        timeout: Duration,
    ) -> Result<Rewards, Fault> {
        let part = format!("reward `{name}`");
        let scorer = match self {
            Self::Function(reward) => {
                return catch_unwind(AssertUnwindSafe(|| reward(episode)))
                    .map_err(|panic| panic_fault(&part, &*panic));
            }
            Self::Scorer(scorer) => scorer,
        };
        let scored = AssertUnwindSafe(scorer.score(episode)).catch_unwind();
        let scored = tokio::time::timeout(timeout, scored).await;
        let scored = scored.map_err(|_elapsed| timeout_fault(timeout))?;
        let scored = scored.map_err(|panic| panic_fault(&part, &*panic))?;
        let ScoredRewards { rewards, skipped, metrics } =
            scored.map_err(|what| Fault::new(FaultKind::Environment, format!("{part}: {what}")))?;
        if let Outcome::Scored(score) = &mut episode.outcome {
            score.metrics.extend(metrics);
            let skipped = skipped.map(|n| (format!("skipped/{name}"), n.into()));
            score.metrics.extend(skipped);
        }
        Ok(rewards)
    }
}

/// Returns the places of the scored episodes of each task, in the order of their first ones.
fn scored_groups(episodes: &[Episode]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, episode) in episodes.iter().enumerate().filter(|(_, it)| it.score().is_some()) {
        let task = |at: usize| (&episodes[at].task.source, &episodes[at].task.id);
        let own = (&episode.task.source, &episode.task.id);
        match groups.iter_mut().find(|group| group.first().is_some_and(|&first| task(first) == own))
        {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Adds the values of a comparison to an episode.
fn add_compared(
    episode: &mut Episode,
    (name, weight): (&str, f64),
    ScoredRewards { rewards, skipped, metrics }: ScoredRewards,
) -> Result<(), String> {
    for (of, value) in rewards.parts() {
        let value =
            bounded_reward("a comparison", value * weight).map_err(|fault| fault.message)?;
        if value != 0.0 {
            episode.rewards.push(part(name, value, of.clone()));
        }
    }
    if let Outcome::Scored(score) = &mut episode.outcome {
        score.metrics.extend(metrics);
        score.metrics.extend(skipped.map(|n| (format!("skipped/{name}"), n.into())));
    }
    check_sum(episode).map_err(|fault| fault.message)
}

/// Checks that the recipient exists: a reward for an unknown one would be lost silently.
fn check_recipient(
    name: &str,
    of: &RewardOf,
    episode: &Episode,
    state: &EpisodeState,
) -> Result<(), Fault> {
    let turns = episode.turns.len();
    let message = match of {
        RewardOf::Turn(turn) if *turn >= turns => {
            format!("reward `{name}` is for turn {turn} of an episode of {turns} turns")
        }
        RewardOf::Seat(seat) if !state.has_member(seat) => {
            format!("reward `{name}` is for seat `{seat}`, where nobody sits")
        }
        _ => return Ok(()),
    };
    Err(Fault::new(FaultKind::Environment, message))
}

/// Refuses an episode whose score and parts are beyond [`Score::LIMIT`] together, and names the part that passes it.
fn check_sum(episode: &Episode) -> Result<(), Fault> {
    let mut sum = episode.score().map_or(0.0, |score| score.reward.abs());
    for RewardPart { name, value, .. } in &episode.rewards {
        sum += value.abs();
        if sum > Score::LIMIT {
            let what = format!(
                "reward `{name}` is {value:?}, after which those of the episode add up to {sum:?}"
            );
            return Err(Fault::new(FaultKind::Environment, format!("{what}; {RULE}")));
        }
    }
    Ok(())
}

fn part(name: &str, value: f64, of: RewardOf) -> RewardPart {
    RewardPart { name: name.to_owned(), value, of }
}

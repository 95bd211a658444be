//! Bit-exact replay of a recorded episode.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::join_all;

use crate::orchestra::Prefix;
use crate::rollout::{EpisodeRequest, Rollout};
use crate::trajectory::{Episode, Tokens, Turn, TurnPath};

/// Result of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// The replayed episode.
    pub episode: Episode,
    /// Differences from the recorded episode, by turn.
    pub differences: Vec<TurnDifference>,
    /// Difference of log-probs that is none; 0 if they are compared to the bit.
    pub bound: f32,
}

impl Replayed {
    /// Returns true if every turn has the recorded ids and log-probs, to the bit or within the bound.
    pub fn identical(&self) -> bool {
        self.differences.is_empty()
    }
}

/// A turn that differs from the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnDifference {
    /// Path of the turn.
    pub path: TurnPath,
    /// First difference of the turn.
    pub what: String,
}

impl fmt::Display for TurnDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn {}: {}", self.path, self.what)
    }
}

/// Replays a recorded episode with its own seed, and compares every turn: the seat, the prompt ids, the sampled ids,
/// their log-probs bit for bit, or within a bound that is not 0; the text if there are no ids.
///
/// A branch is played without its recorded turns: those have the random numbers of the episode that it begins like, so they
/// are sampled and compared like its own.
///
/// The rollout's policies must hold the weights that the episode was played with, and sample at its temperature.
/// [`Rollout::at_temperature`] replays an evaluation at another temperature.
pub async fn replay(rollout: &Rollout, recorded: &Episode, bound: f32) -> Replayed {
    let request =
        EpisodeRequest { task: recorded.task.clone(), index: recorded.index, seed: recorded.seed };
    let prefix = recorded.branch.clone().map(|branch| Arc::new(Prefix::sampled(branch)));
    let episode = rollout.runner().play_from(request, prefix).await;
    let differences = differences(&recorded.turns, &episode.turns, bound);
    Replayed { episode, differences, bound }
}

/// Samples every recorded turn again, from its own prompt, without playing the episode: replies of a program, or results of a
/// server, may be no function of the seed. Turns without tokens are not compared; log-probs are compared as by [`replay`].
///
/// The rollout's policies must hold the weights that the episode was played with.
pub async fn replay_turns(rollout: &Rollout, recorded: &Episode, bound: f32) -> Replayed {
    let members = &rollout.runner().members;
    let again = recorded.turns.iter().map(async |turn| {
        let backend = members.get(&turn.seat).map(|member| &member.backend);
        let tokens = turn.tokens.as_ref();
        let sampled = backend
            .zip(tokens)
            .and_then(|(backend, tokens)| backend.sample_again(&turn.path, tokens));
        match sampled {
            Some(sampled) => sampled.await.map(Some).map_err(|fault| fault.to_string()),
            None if tokens.is_none() => Ok(None),
            None => Err(format!("`{}` has no policy that samples tokens", turn.seat)),
        }
    });
    let (mut episode, mut differences) = (recorded.clone(), Vec::new());
    let sampled = join_all(again).await;
    for (turn, sampled) in episode.turns.iter_mut().zip(sampled) {
        let difference = match (&turn.tokens, sampled) {
            (Some(recorded), Ok(Some(sampled))) => {
                let difference = token_difference(recorded, &sampled, bound);
                turn.tokens = Some(sampled);
                difference
            }
            (_, Ok(_)) => None,
            (_, Err(what)) => Some(what),
        };
        let path = turn.path.clone();
        differences.extend(difference.map(|what| TurnDifference { path, what }));
    }
    Replayed { episode, differences, bound }
}

fn differences(recorded: &[Turn], played: &[Turn], bound: f32) -> Vec<TurnDifference> {
    let mut pairs: BTreeMap<&TurnPath, [Option<&Turn>; 2]> = BTreeMap::new();
    for (side, turns) in [recorded, played].into_iter().enumerate() {
        for turn in turns {
            pairs.entry(&turn.path).or_default()[side] = Some(turn);
        }
    }
    let mut differences = Vec::new();
    for (path, pair) in pairs {
        let what = match pair {
            [Some(recorded), Some(played)] => turn_difference(recorded, played, bound),
            [Some(_), None] => Some("it was not played again".to_owned()),
            [None, _] => Some("it was not recorded".to_owned()),
        };
        differences.extend(what.map(|what| TurnDifference { path: path.clone(), what }));
    }
    differences
}

fn turn_difference(recorded: &Turn, played: &Turn, bound: f32) -> Option<String> {
    if recorded.seat != played.seat {
        return Some(format!("`{}` was asked, now `{}`", recorded.seat, played.seat));
    }
    match (&recorded.tokens, &played.tokens) {
        (Some(recorded), Some(played)) => token_difference(recorded, played, bound),
        (None, None) if recorded.reply == played.reply => None,
        (None, None) => Some(format!("the reply was {:?}, now {:?}", recorded.reply, played.reply)),
        (Some(_), None) => Some("the tokens were recorded, now there are none".to_owned()),
        (None, Some(_)) => Some("no tokens were recorded, now there are some".to_owned()),
    }
}

fn token_difference(recorded: &Tokens, played: &Tokens, bound: f32) -> Option<String> {
    first("prompt id", &recorded.prompt, &played.prompt)
        .or_else(|| first("sampled id", &recorded.completion, &played.completion))
        .or_else(|| {
            let at = logprob_mismatch(&recorded.logprobs, &played.logprobs, bound)?;
            let (was, is) = (recorded.logprobs.get(at), played.logprobs.get(at));
            Some(format!("log-prob {at} was {was:?}, now {is:?}"))
        })
}

fn first(what: &str, recorded: &[u32], played: &[u32]) -> Option<String> {
    let at = mismatch(recorded, played)?;
    let [was, is] = [recorded, played]
        .map(|ids| ids.get(at).map_or_else(|| "missing".to_owned(), u32::to_string));
    Some(format!("{what} {at} was {was}, now {is}"))
}

/// Returns the index of the first log-probs that differ, to the bit or by more than a bound that is not 0.
fn logprob_mismatch(was: &[f32], is: &[f32], bound: f32) -> Option<usize> {
    let near =
        |a: &f32, b: &f32| a.to_bits() == b.to_bits() || (bound > 0.0 && (a - b).abs() <= bound);
    let same = was.iter().zip(is).take_while(|(a, b)| near(a, b)).count();
    (same < was.len().max(is.len())).then_some(same)
}

/// Returns the index of the first difference of two lists, including their lengths.
fn mismatch<T: PartialEq>(a: &[T], b: &[T]) -> Option<usize> {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    (same < a.len().max(b.len())).then_some(same)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::rollout::testing::{Flow, Speaker, Talker, line, rollout, task};

    fn two_turns() -> Flow {
        Flow::new(|_, team| {
            Box::pin(async move {
                let first = team.ask::<Speaker>(&line("one")).await?;
                Ok(Some(team.ask::<Speaker>(&line(&first.0)).await?.0))
            })
        })
    }

    async fn recorded(rollout: &Rollout) -> Episode {
        let request = EpisodeRequest { task: task("p"), index: 0, seed: 11 };
        rollout.collect(vec![request], |_| ()).await.remove(0)
    }

    #[tokio::test]
    async fn an_episode_played_again_is_the_same_to_the_bit() {
        let rollout = rollout(two_turns(), Talker::default());
        let episode = recorded(&rollout).await;
        let again = replay(&rollout, &episode, 0.0).await;
        assert!(again.identical(), "{:?}", again.differences);
        assert_eq!(again.episode, episode);
    }

    #[tokio::test]
    async fn every_kind_of_difference_is_named() {
        let rollout = rollout(two_turns(), Talker::default());
        let episode = recorded(&rollout).await;
        let differ = async |change: fn(&mut Episode)| {
            let mut changed = episode.clone();
            change(&mut changed);
            let differences = replay(&rollout, &changed, 0.0).await.differences;
            differences.first().map(ToString::to_string).unwrap_or_default()
        };
        let tokens = |episode: &mut Episode| episode.turns[1].tokens.clone().unwrap();
        assert!(tokens(&mut episode.clone()).completion.len() > 1);
        let found = differ(|e| e.turns[1].tokens.as_mut().unwrap().completion[1] += 1).await;
        assert!(found.starts_with("turn 1: sampled id 1 was"), "{found}");
        let found = differ(|e| e.turns[1].tokens.as_mut().unwrap().logprobs[0] = -0.0).await;
        assert!(found.starts_with("turn 1: log-prob 0 was"), "{found}");
        let found = differ(|e| e.turns[0].tokens.as_mut().unwrap().prompt.truncate(1)).await;
        assert!(found.contains("was missing, now"), "{found}");
        let found = differ(|e| e.turns.truncate(1)).await;
        assert_eq!(found, "turn 1: it was not recorded");
    }

    #[tokio::test]
    async fn log_probs_within_a_bound_are_no_difference_and_others_are() {
        let rollout = rollout(two_turns(), Talker::default());
        let mut episode = recorded(&rollout).await;
        episode.turns[1].tokens.as_mut().unwrap().logprobs[0] += 5e-4;
        for (bound, identical) in [(0.0, false), (1e-4, false), (1e-3, true)] {
            assert_eq!(replay(&rollout, &episode, bound).await.identical(), identical, "{bound}");
        }
        episode.turns[1].tokens.as_mut().unwrap().completion[0] += 1;
        assert!(!replay(&rollout, &episode, 1e-3).await.identical(), "other ids");
    }
}

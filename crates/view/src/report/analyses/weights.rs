//! Weights of groups in the update.
//!
//! Equal replies of an agent to equal prompts have the same gradient, so that their advantages add up: A in one episode and
//! −A in another cancel. The weight of a group is the sum over its distinct replies of `|sum of their advantages|`, before
//! clipping. It is at most the sum of absolute advantages, and equals it if no reply occurs twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use maverl::run_dir::{StepSamples, TRAIN, Texts};

use super::divergence::TurnKey;
use crate::compact::collect_into;
use crate::report::rows::run::ReportedRun;
use crate::report::rows::texts::read_turns;

/// Length of a file, and the time at which it was written.
type FileStamp = Option<(u64, SystemTime)>;

/// Weights of the groups of a step, and the files that they were computed from.
type OfStep = ([FileStamp; 2], Vec<f64>);

/// Weights of the groups of each step by their id, computed once for the files of a step.
#[derive(Default)]
pub(crate) struct GroupWeights(Mutex<BTreeMap<u64, OfStep>>);

impl GroupWeights {
    fn lock_known(&self) -> MutexGuard<'_, BTreeMap<u64, OfStep>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the weights of the groups of a step by their id; `None` if a reply cannot be read.
    pub(crate) fn of_step(
        &self,
        run: &ReportedRun,
        step: u64,
        all: &StepSamples,
    ) -> Option<Vec<f64>> {
        let stamps = [
            file_stamp(&run.files.samples_file(step)),
            file_stamp(&run.files.episodes_file(TRAIN, step)?),
        ];
        if let Some((_, weights)) = self.lock_known().get(&step).filter(|(of, _)| *of == stamps) {
            return Some(weights.clone());
        }
        let weights = compute_weights(run, step, all)?;
        self.lock_known().insert(step, (stamps, weights.clone()));
        Some(weights)
    }
}

fn file_stamp(file: &Path) -> FileStamp {
    let found = file.metadata().ok()?;
    Some((found.len(), found.modified().ok()?))
}

/// Sums of the advantages of equal replies.
#[derive(Debug, Default)]
pub(crate) struct ReplySums(BTreeMap<TurnKey, (usize, f64)>);

impl ReplySums {
    pub(crate) fn add(&mut self, reply: TurnKey, advantage: f64) {
        let (n, sum) = self.0.entry(reply).or_default();
        (*n, *sum) = (*n + 1, *sum + advantage);
    }

    /// Returns the number of replies that are equal to a reply, itself included.
    pub(crate) fn count_equal(&self, reply: &TurnKey) -> usize {
        self.0.get(reply).map_or(0, |(n, _)| *n)
    }

    pub(crate) fn weight(&self) -> f64 {
        self.0.values().map(|(_, sum)| sum.abs()).sum()
    }
}

/// Computes the weights of the groups of a step from its replies.
fn compute_weights(run: &ReportedRun, step: u64, all: &StepSamples) -> Option<Vec<f64>> {
    let only = u32::try_from(step).ok()?;
    let played = run.lock_content().index.played_episodes(TRAIN, [only; 2]);
    let in_group = all.samples.iter().filter_map(|sample| Some((sample, sample.group?)));
    let mut samples: BTreeMap<(usize, usize), (usize, f64)> =
        collect_into(in_group.map(|(sample, group)| {
            ((sample.episode, sample.turn), (group, sample.loss_advantage()))
        }));
    let sampled: BTreeSet<usize> = collect_into(samples.keys().map(|(n, _)| *n));
    let numbered = played.iter().map(|one| (one.location.n as usize, one));
    let episodes: Vec<_> = numbered.filter(|(n, _)| sampled.contains(n)).collect();
    let mut groups: Vec<ReplySums> = Vec::new();
    groups.resize_with(all.groups.len(), ReplySums::default);
    read_turns(&run.files, &episodes, |n, texts| {
        if let Texts::Turn { turn, seat, prompt, reply, .. } = texts
            && let Some((group, advantage)) = samples.remove(&(n, turn))
            && let Some(replies) = groups.get_mut(group)
        {
            replies.add(TurnKey::new(seat.to_string(), &prompt, &reply), advantage);
        }
    });
    samples.is_empty().then(|| groups.iter().map(ReplySums::weight).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advantages_of_equal_replies_cancel_and_those_of_others_do_not() {
        let mut replies = ReplySums::default();
        let reply = |seat: &str, prompt: &str, text: &str| {
            TurnKey::new(seat.to_owned(), &[prompt.to_owned()], text)
        };
        for (key, advantage) in [
            (reply("t/a", "who?", "Peru"), 1.5),
            (reply("t/a", "who?", "Peru"), -1.5),
            (reply("t/a", "who?", "Lima"), 0.5),
            (reply("t/a", "where?", "Lima"), -0.25),
            (reply("t/b", "who?", "Lima"), -0.5),
        ] {
            replies.add(key, advantage);
        }
        assert_eq!(replies.weight(), 0.5 + 0.25 + 0.5);
        assert_eq!(replies.count_equal(&reply("t/a", "who?", "Peru")), 2);
        assert_eq!(replies.count_equal(&reply("t/a", "who?", "Rome")), 0);
    }
}

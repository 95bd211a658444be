//! Verifiers that give rewards, compared with the judgement of the environment.
//!
//! A policy that is rewarded by a verifier may learn to please it. Then its replies are no longer those that the verifier was
//! tested on, and its values tell less about right and wrong.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::Metrics;
use crate::plan::{Plan, RewardSource};
use crate::trajectory::Episode;
use crate::verifier::auc;

/// Number of steps whose values are compared at once.
const EVERY: u64 = 10;
/// AUC below which the user is warned: half of the distance between chance and a verifier that is worth its price.
const NEAR_CHANCE: f64 = 0.55;
/// Minimum number of right and of wrong replies for a warning.
const ENOUGH: usize = 16;

/// Rise of the mean value, from one comparison to the next, from which the user is warned if fewer replies are right.
const RISE: f64 = 0.1;

/// Values of verifiers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Live {
    /// Values of each verifier since the last comparison, each with the judgement of its episode.
    waiting: BTreeMap<String, Vec<(f64, bool)>>,
    /// Means of the last comparison: the value, and the share of right replies.
    before: BTreeMap<String, (f64, f64)>,
}

impl Live {
    /// Returns true if no verifier gives rewards.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.before.is_empty()
    }

    /// Adds the episodes of step `step`, counted from 0. Returns the AUC of each verifier at every tenth step and at the last one, with warnings
    /// about those near chance. Values of a step that is not scored, or of one label, have no AUC.
    pub(crate) fn step(
        &mut self,
        plan: &Plan,
        step: u64,
        episodes: &[Episode],
    ) -> (Metrics, Vec<String>) {
        for reward in plan.rewards.iter().filter(|reward| reward.weight != 0.0) {
            if matches!(reward.source, RewardSource::Verifier(_)) {
                let values = episodes.iter().flat_map(|episode| values(&reward.name, episode));
                let values = values.map(|(value, solved)| (value / reward.weight, solved));
                self.waiting.entry(reward.name.clone()).or_default().extend(values);
            }
        }
        let (mut metrics, mut warnings) = (Metrics::default(), Vec::new());
        if !(step + 1).is_multiple_of(EVERY) && step + 1 != plan.config.steps {
            return (metrics, warnings);
        }
        for (name, values) in std::mem::take(&mut self.waiting) {
            let (scores, labels): (Vec<f64>, Vec<bool>) = values.into_iter().unzip();
            warnings.extend(self.content_warning(&name, &scores, &labels));
            let Some(area) = auc(&scores, &labels) else { continue };
            metrics.set(format!("verifier/live_auc/{name}"), area);
            let right = labels.iter().filter(|label| **label).count();
            let wrong = labels.len() - right;
            if area < NEAR_CHANCE && right.min(wrong) >= ENOUGH {
                warnings.push(format!(
                    "the AUC of the verifier `{name}` is {area:.3} on {right} right and {wrong} wrong replies of the last \
                     steps, where 0.5 is chance: its reward does not tell them apart. The replies may differ from those that \
                     it was trained on, or the policy has learned to please it"
                ));
            }
        }
        (metrics, warnings)
    }

    /// Returns a warning if a verifier is more content than in the last comparison, and the environment less.
    fn content_warning(&mut self, name: &str, scores: &[f64], labels: &[bool]) -> Option<String> {
        let n = scores.len();
        if n == 0 {
            return None;
        }
        let right = labels.iter().filter(|label| **label).count();
        let (mean, share) = (scores.iter().sum::<f64>() / n as f64, right as f64 / n as f64);
        let (mean_before, share_before) = self.before.insert(name.to_owned(), (mean, share))?;
        (mean >= mean_before + RISE && share < share_before && n >= ENOUGH).then(|| {
            format!(
                "the mean value of the verifier `{name}` rose from {mean_before:.3} to {mean:.3} in the last {} steps, while \
                 the share of right replies fell from {share_before:.3} to {share:.3}: the policy learns to please it",
                2 * EVERY
            )
        })
    }
}

/// Returns the values of a verifier in an episode with the judgement of the environment; none if it is unscored.
fn values<'e>(name: &'e str, episode: &'e Episode) -> impl Iterator<Item = (f64, bool)> + 'e {
    let solved = episode.score().map(|score| score.solved);
    let parts = episode.rewards.iter().filter(move |part| part.name == name);
    parts.filter_map(move |part| Some((part.value, solved?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::plan;
    use crate::config::RewardVerifierConfig;
    use crate::plan::RewardPlan;
    use crate::run_dir::tests::episode;
    use crate::trajectory::{RewardOf, RewardPart};

    /// Returns the plan of a team that two verifiers reward.
    fn verified() -> Plan {
        let reward = |name: &str, weight| RewardPlan {
            name: name.to_owned(),
            weight,
            source: RewardSource::Verifier(RewardVerifierConfig::default()),
        };
        let plan = plan(&[("t/a", true)]);
        Plan {
            rewards: vec![reward("good", 0.5), reward("blind", -2.0)],
            config: plan.config.with(|config| config.steps = 14),
            ..plan
        }
    }

    /// Returns episodes of a step. The first verifier has a higher value for right replies, the second has not.
    fn played(step: u64) -> Vec<Episode> {
        (0..4u32)
            .map(|i| {
                let mut played = episode("a", i, i % 2 == 0, 1);
                let part = |name: &str, value: f64| RewardPart {
                    name: name.to_owned(),
                    value,
                    of: RewardOf::Episode,
                };
                let good = if i % 2 == 0 { 0.9 } else { 0.1 } + step as f64 * 0.01;
                played
                    .rewards
                    .extend([part("good", 0.5 * good), part("blind", -2.0 * f64::from(1 + i / 2))]);
                played
            })
            .collect()
    }

    #[test]
    fn verifiers_are_compared_with_the_judge_every_ten_steps_and_one_near_chance_is_told_of() {
        let (plan, mut live) = (verified(), Live::default());
        for step in 0..14 {
            let (metrics, warnings) = live.step(&plan, step, &played(step));
            if ![9, 13].contains(&step) {
                assert!(metrics.iter().next().is_none() && warnings.is_empty(), "{step}");
                continue;
            }
            assert_eq!(metrics.get("verifier/live_auc/good"), Some(1.0));
            assert_eq!(metrics.get("verifier/live_auc/blind"), Some(0.5));
            assert!(live.waiting.is_empty());
            // Four steps have too few replies for a warning.
            assert_eq!(warnings.len(), usize::from(step == 9), "{warnings:?}");
            if let Some(told) = warnings.first() {
                let start =
                    "the AUC of the verifier `blind` is 0.500 on 20 right and 20 wrong replies";
                assert!(told.starts_with(start), "{told}");
            }
        }
    }

    #[test]
    fn a_verifier_that_is_pleased_while_fewer_replies_are_right_is_told_of() {
        let mut live = Live::default();
        let mut compared = |mean: f64, right: usize| {
            let labels: Vec<bool> = (0..20).map(|i| i < right).collect();
            live.content_warning("v", &[mean; 20], &labels)
        };
        assert_eq!(compared(0.3, 10), None, "there is nothing to compare with");
        assert_eq!((compared(0.5, 10), compared(0.55, 8)), (None, None));
        let told = compared(0.75, 6).unwrap();
        let start = "the mean value of the verifier `v` rose from 0.550 to 0.750 in the last 20 steps, while the share";
        assert!(told.starts_with(start) && told.contains("fell from 0.400 to 0.300"), "{told}");
        assert_eq!(compared(0.7, 2), None);
    }

    #[test]
    fn values_that_wait_are_in_the_state_of_a_checkpoint() {
        let (plan, mut live) = (verified(), Live::default());
        live.step(&plan, 0, &played(0));
        let stored: Live = serde_json::from_str(&serde_json::to_string(&live).unwrap()).unwrap();
        assert_eq!(stored, live);
        assert_eq!(live.waiting["blind"], [(1.0, true), (1.0, false), (2.0, true), (2.0, false)]);
    }
}

//! GDPO, as an estimator like those of other crates.

use std::collections::BTreeMap;

use crate::settings::Settings;

use super::{Advantage, Baseline, GroupBy, Relative, Rewarded, Segments, Singleton};

/// GDPO: each reward is normalized within its group by itself, then their sum over the step.
///
/// ```text
/// Aₖ = (rₖ − μₖ) / (σₖ + ε)          over the units of the group, for each part k of the reward
/// A  = (S − mean S) / (std S + ε)    S = Σ wₖ · Aₖ, over the rows of the step
/// ```
///
/// [2601.05242](https://arxiv.org/abs/2601.05242). Parts of different scale count alike, where GRPO's sum is dominated by
/// the part with the largest deviation.
///
/// - Deviations have n − 1, as in TRL's `normalize_then_sum`.
/// - A group of one unit has no advantage of any part.
#[maverl::advantage(name = "gdpo")]
#[derive(Debug, Clone, PartialEq, Settings)]
pub struct Gdpo {
    /// Rows that are compared with each other.
    #[setting(default = GroupBy::Task)]
    pub by: GroupBy,
    /// Weight of each part by its name, as in `[rewards]`; the environment's is `score`. A part that is not named has 1.
    pub weights: BTreeMap<String, f64>,
    /// Added to deviations.
    #[setting(default = 1e-4, range = 0.0..)]
    pub eps: f64,
}

impl Advantage for Gdpo {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        let (baseline, singleton) = (Baseline::Mean, Singleton::Zero);
        let options = Relative { baseline, normalize_std: true, eps: self.eps, singleton };
        let by = step.grouping();
        for part in step.parts {
            let weight = self.weights.get(&part.name).copied().unwrap_or(1.0);
            let (normalized, _) = step.relative(&part.values, &by, None, &options);
            for (out, advantage) in out.iter_mut().zip(normalized) {
                *out += weight * advantage;
            }
        }
        let all = Segments::single_group(out.len()).into();
        out.copy_from_slice(&step.relative(out, &all, None, &options).0);
    }

    fn group_by(&self) -> GroupBy {
        self.by
    }

    fn named_parts(&self) -> Vec<String> {
        self.weights.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{assert_close, matrix, numbers, rl_math};
    use crate::credit::{RewardColumn, RewardedStep};

    #[test]
    fn gdpo_agrees_with_trl() {
        let name = "grpo_advantages/normalize_then_sum";
        let case = rl_math(name);
        let rewards = matrix(&case["inputs"]["rewards_per_func"]);
        let column = |k: usize| rewards.iter().map(|row| row[k]).collect();
        let parts = ["score", "brevity"].into_iter().enumerate();
        let part =
            |(k, name): (usize, &str)| RewardColumn { name: name.to_owned(), values: column(k) };
        let step = RewardedStep {
            rewards: vec![0.0; rewards.len()],
            parts: parts.map(part).collect(),
            units: (0..rewards.len()).collect(),
            groups: (0..rewards.len()).map(|row| row / 4).collect(),
            ..RewardedStep::default()
        };
        let gdpo = Gdpo {
            weights: BTreeMap::from([("brevity".to_owned(), 0.5)]),
            eps: 1e-4,
            ..Gdpo::default()
        };
        let got = step.estimate(&gdpo);
        assert_close(name, &got, &numbers(&case["outputs"]["advantages"]), 1e-9);
    }

    #[test]
    fn a_part_that_does_not_differ_changes_nothing() {
        let column = |name: &str, values: [f64; 4]| RewardColumn {
            name: name.to_owned(),
            values: values.to_vec(),
        };
        let mut step = RewardedStep {
            rewards: vec![0.0; 4],
            parts: vec![column("score", [1.0, 0.0, 0.0, 1.0])],
            units: vec![0, 1, 2, 3],
            groups: vec![0; 4],
            ..RewardedStep::default()
        };
        let alone = step.estimate(&Gdpo::default());
        step.parts.push(column("brevity", [0.5; 4]));
        assert_eq!(step.estimate(&Gdpo::default()), alone);
    }
}

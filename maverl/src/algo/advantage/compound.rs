//! Compound ratios of the policies that were updated before (HAPPO).

use std::collections::BTreeMap;

use crate::config::{HappoFactor, SequencePlan};

/// The factor of each episode: how much likelier the policies that were already updated made what they said in it.
///
/// ```text
/// exact      F = Π exp(Σ (logp_new − logp_old))           over replies, within over tokens
/// length     F = Π exp(mean (logp_new − logp_old))
/// clip       F within 1 ± clip
/// ```
///
/// HAPPO, [2109.11251](https://arxiv.org/abs/2109.11251) §4: the advantages of the next policy are multiplied by it.
#[derive(Debug, Clone, PartialEq)]
pub struct Compound {
    kind: HappoFactor,
    clip: Option<f64>,
    /// Logarithms, by episode.
    changed: BTreeMap<usize, f64>,
}

impl Compound {
    /// Nothing was updated.
    pub fn new(plan: SequencePlan) -> Self {
        Self { kind: plan.factor, clip: plan.clip, changed: BTreeMap::new() }
    }

    /// The factor of an episode.
    pub fn of(&self, episode: usize) -> f64 {
        let factor = self.changed.get(&episode).map_or(1.0, |log| libm::exp(*log));
        self.clip.map_or(factor, |clip| factor.clamp(1.0 - clip, 1.0 + clip))
    }

    /// Takes in a reply of an episode, whose policy was updated: the log-probs of its tokens before and after, `[T]` each.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn take(&mut self, episode: usize, old: &[f32], new: &[f32]) {
        assert_eq!(old.len(), new.len(), "take: one log-prob before and after");
        let sum: f64 =
            new.iter().zip(old).map(|(new, old)| f64::from(*new) - f64::from(*old)).sum();
        *self.changed.entry(episode).or_default() += match self.kind {
            HappoFactor::Length => sum / new.len().max(1) as f64,
            HappoFactor::Exact => sum,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANS: [SequencePlan; 4] = [
        SequencePlan { factor: HappoFactor::Exact, clip: None },
        SequencePlan { factor: HappoFactor::Length, clip: None },
        SequencePlan { factor: HappoFactor::Exact, clip: Some(0.04) },
        SequencePlan { factor: HappoFactor::Length, clip: Some(0.01) },
    ];

    #[test]
    fn the_factor_agrees_with_the_reference() {
        let wanted = [0.05_f64.exp(), 0.025_f64.exp(), 1.04, 1.01];
        for (plan, want) in PLANS.into_iter().zip(wanted) {
            let mut compound = Compound::new(plan);
            compound.take(3, &[-1.0, -2.0], &[-0.9, -2.05]);
            let got = compound.of(3);
            assert!((got - want).abs() < 1e-6, "marl.md 8.5, {plan:?}: {got} is not {want}");
            assert_eq!(compound.of(4), 1.0);
        }
    }

    #[test]
    fn the_factor_is_one_when_nothing_changed_and_compounds_over_replies() {
        for plan in PLANS {
            let mut compound = Compound::new(plan);
            for length in 1..40 {
                let logp: Vec<f32> = (0..length).map(|t| -0.37 * t as f32).collect();
                compound.take(0, &logp, &logp);
            }
            assert_eq!(compound.of(0), 1.0, "{plan:?}");
        }
        let mut compound = Compound::new(PLANS[0]);
        compound.take(0, &[-1.0], &[-0.5]);
        compound.take(0, &[-1.0, -1.0], &[-1.5, -1.25]);
        assert!((compound.of(0) - (-0.25_f64).exp()).abs() < 1e-12);
    }
}

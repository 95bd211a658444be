//! Compound ratios of the policies that were updated before (HAPPO).

use std::collections::BTreeMap;

use crate::config::HappoFactor;

/// The factor of each episode: how much likelier the policies that were already updated made what they said in it.
///
/// ```text
/// exact      F = Π exp(Σ (logp_new − logp_old))           over replies, within over tokens
/// length     F = Π exp(mean (logp_new − logp_old))
/// clipped    the exact one, within 1 ± clip
/// ```
///
/// HAPPO, [2109.11251](https://arxiv.org/abs/2109.11251) §4: the advantages of the next policy are multiplied by it.
#[derive(Debug, Clone, PartialEq)]
pub struct Compound {
    kind: HappoFactor,
    clip: f64,
    /// Logarithms, by episode.
    changed: BTreeMap<usize, f64>,
}

impl Compound {
    /// Nothing was updated.
    pub fn new(kind: HappoFactor, clip: f64) -> Self {
        Self { kind, clip, changed: BTreeMap::new() }
    }

    /// The factor of an episode.
    pub fn of(&self, episode: usize) -> f64 {
        let factor = self.changed.get(&episode).map_or(1.0, |log| log.exp());
        match self.kind {
            HappoFactor::Clipped => factor.clamp(1.0 - self.clip, 1.0 + self.clip),
            HappoFactor::Exact | HappoFactor::Length => factor,
        }
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
            HappoFactor::Exact | HappoFactor::Clipped => sum,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [HappoFactor; 3] = [HappoFactor::Exact, HappoFactor::Length, HappoFactor::Clipped];

    #[test]
    fn the_factor_agrees_with_the_reference() {
        for (kind, want) in KINDS.into_iter().zip([0.05_f64.exp(), 0.025_f64.exp(), 1.04]) {
            let mut compound = Compound::new(kind, 0.04);
            compound.take(3, &[-1.0, -2.0], &[-0.9, -2.05]);
            let got = compound.of(3);
            assert!((got - want).abs() < 1e-6, "marl.md 8.5, {kind:?}: {got} is not {want}");
            assert_eq!(compound.of(4), 1.0);
        }
    }

    #[test]
    fn the_factor_is_one_when_nothing_changed_and_compounds_over_replies() {
        for kind in KINDS {
            let mut compound = Compound::new(kind, 0.2);
            for length in 1..40 {
                let logp: Vec<f32> = (0..length).map(|t| -0.37 * t as f32).collect();
                compound.take(0, &logp, &logp);
            }
            assert_eq!(compound.of(0), 1.0, "{kind:?}");
        }
        let mut compound = Compound::new(HappoFactor::Exact, 0.0);
        compound.take(0, &[-1.0], &[-0.5]);
        compound.take(0, &[-1.0, -1.0], &[-1.5, -1.25]);
        assert!((compound.of(0) - (-0.25_f64).exp()).abs() < 1e-12);
    }
}

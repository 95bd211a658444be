//! Mixtures of experts: results that the backward pass needs, loads of experts, and the loss that balances them.

mod routes;

use std::ops::AddAssign;

use maverl_kernels::experts::{ExpertRows, Router};

use crate::net::memory::{Cpu, Memory};

pub use routes::{LayerRoutes, PackedRoutes};

/// Results of the experts of a layer that their backward pass needs. `N` tokens, `E` experts, `k` of a token, `F` width of an
/// expert, `D` width of the residual stream; the `N k` rows are sorted by expert and token.
#[derive(Debug)]
pub struct SavedExperts<O: Memory = Cpu> {
    /// Choice and weights by the scores.
    pub(super) router: Router,
    /// Scores `[N, E]`.
    pub(super) scores: Vec<f32>,
    /// Experts of each token, `[N, k]`.
    pub(super) chosen: Vec<u32>,
    /// Their weights, `[N, k]`.
    pub(super) weights: Vec<f32>,
    pub(super) rows: ExpertRows,
    /// Gates of the rows, `[N k, F]`.
    pub(super) gate: O::Act,
    /// Factors of the gates, `[N k, F]`.
    pub(super) up: O::Act,
    /// Results of the experts, `[N k, D]`.
    pub(super) out: O::Act,
    /// Results of the shared expert, if there is one.
    pub(super) shared: Option<SavedShared<O>>,
    /// For each token with a route true if its experts are not those of the router, `[N]`; empty without routes.
    pub(super) replaced: Vec<Option<bool>>,
}

/// Results of a shared expert that its backward pass needs. `F` is its width.
#[derive(Debug)]
pub(super) struct SavedShared<O: Memory> {
    /// Gates of the tokens before the sigmoid, `[N]`.
    pub(super) gates: O::Act,
    /// Gates of its MLP, `[N, F]`.
    pub(super) gate: O::Act,
    /// Factors of the gates, `[N, F]`.
    pub(super) up: O::Act,
    /// Results, `[N, D]`.
    pub(super) out: O::Act,
}

impl<O: Memory> SavedShared<O> {
    /// Returns its buffers, for the pool.
    pub(super) fn buffers(self) -> [O::Act; 4] {
        [self.gates, self.gate, self.up, self.out]
    }
}

impl<O: Memory> SavedExperts<O> {
    /// Returns its buffers, for the pool.
    pub(super) fn buffers(self) -> impl Iterator<Item = O::Act> {
        let shared = self.shared.into_iter().flat_map(SavedShared::buffers);
        [self.gate, self.up, self.out].into_iter().chain(shared)
    }

    /// Computes the load of the experts. `counts` has the number of texts with each token, `[N]`.
    pub(super) fn load(&self, counts: &[f32]) -> RouterLoad {
        let Router { experts, chosen: k, .. } = self.router;
        let mut load = RouterLoad::zero(experts);
        for (replaced, &count) in self.replaced.iter().zip(counts) {
            let count = f64::from(count);
            load.replayed += if replaced.is_some() { count } else { 0.0 };
            load.changed += if *replaced == Some(true) { count } else { 0.0 };
        }
        let probabilities = self.router.probabilities(&self.scores);
        let tokens = probabilities.chunks_exact(experts).zip(self.chosen.chunks_exact(k));
        for ((p, chosen), &count) in tokens.zip(counts) {
            let count = f64::from(count);
            load.tokens += count;
            chosen.iter().for_each(|&expert| load.chosen[expert as usize] += count);
            for (sum, p) in load.probability.iter_mut().zip(p) {
                *sum += count * f64::from(*p);
                load.entropy -= count * weighted_log(f64::from(*p));
            }
        }
        load
    }
}

/// Returns `p ln p`; 0 for 0.
fn weighted_log(p: f64) -> f64 {
    if p > 0.0 { p * libm::log(p) } else { 0.0 }
}

/// Sums over tokens of a router's results. A token counts for each text that has it, so the sums do not depend on what texts
/// share a micro-batch.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RouterLoad {
    /// Number of tokens.
    pub(crate) tokens: f64,
    /// Tokens that chose each expert, `[E]`.
    pub(crate) chosen: Vec<f64>,
    /// Sum of each expert's probability under the softmax of all scores, `[E]`.
    pub(crate) probability: Vec<f64>,
    /// Sum of the entropies of these probabilities, in nats.
    pub(crate) entropy: f64,
    /// Number of tokens with a route.
    pub(crate) replayed: f64,
    /// Number of those whose experts are not those of the router.
    pub(crate) changed: f64,
}

impl RouterLoad {
    /// Returns the load of no tokens.
    pub(crate) fn zero(experts: usize) -> Self {
        let zeros = vec![0.0; experts];
        Self { chosen: zeros.clone(), probability: zeros, ..Self::default() }
    }

    /// Returns the sum of several loads of as many experts.
    pub(crate) fn sum<'a>(loads: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        loads.into_iter().for_each(|load| all += load);
        all
    }

    /// Computes the loss that balances the load (Fedus et al., 2022, arXiv:2101.03961, section 2.2), over the tokens of all
    /// layers together; it is k if the load is even.
    ///
    /// ```text
    /// E Σ_e f_e P_e,   f_e = tokens that chose e / tokens,   P_e = mean probability of e
    /// ```
    pub(crate) fn balance_loss(&self) -> f64 {
        let (experts, tokens) = (self.chosen.len() as f64, self.tokens.max(1.0));
        let products = self.chosen.iter().zip(&self.probability).map(|(f, p)| f * p);
        experts * products.sum::<f64>() / (tokens * tokens)
    }

    /// Computes the derivative of [`RouterLoad::balance_loss`] by the probability of each expert at a token, `[E]`, times a
    /// coefficient. The load itself has no derivative.
    pub(crate) fn balance_slopes(&self, coefficient: f64) -> Vec<f32> {
        let (experts, tokens) = (self.chosen.len() as f64, self.tokens.max(1.0));
        let slope = |f: &f64| (coefficient * experts * f / (tokens * tokens)) as f32;
        self.chosen.iter().map(slope).collect()
    }

    /// Returns all sums as numbers, for other processes.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = f64> {
        let sums = self.chosen.iter().chain(&self.probability).copied();
        [self.tokens, self.entropy, self.replayed, self.changed].into_iter().chain(sums)
    }

    /// Reads the sums of [`RouterLoad::numbers`].
    pub(crate) fn from_numbers(numbers: &[f64]) -> Self {
        let (first, sums) = numbers.split_first_chunk().unwrap_or((&[0.0; 4], &[]));
        let &[tokens, entropy, replayed, changed] = first;
        let (chosen, probability) = sums.split_at(sums.len() / 2);
        let (chosen, probability) = (chosen.to_vec(), probability.to_vec());
        Self { tokens, chosen, probability, entropy, replayed, changed }
    }
}

impl AddAssign<&Self> for RouterLoad {
    fn add_assign(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.entropy += other.entropy;
        self.replayed += other.replayed;
        self.changed += other.changed;
        for (to, from) in
            [(&mut self.chosen, &other.chosen), (&mut self.probability, &other.probability)]
        {
            to.resize(to.len().max(from.len()), 0.0);
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }
}

/// Gradient of the loss that balances the load of experts, in a pass.
#[derive(Debug, Clone, Copy)]
pub struct BalanceTerm<'a> {
    /// Derivative by the probability of each expert at a token, `[E]`.
    pub(crate) slopes: &'a [f32],
    /// Number of texts with each token of the pass, `[N]`.
    pub(crate) counts: &'a [f32],
}

#[cfg(test)]
mod tests;

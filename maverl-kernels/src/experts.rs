//! Mixture of experts (Shazeer et al., 2017, arXiv:1701.06538): the choices of a router for each token, and rows of tokens in the
//! order of their experts. `N` tokens, `E` experts, `k` experts of a token, `d` width.
//!
//! ```text
//! e₁ .. e_k = the k largest scores s,   w = softmax of the scores,   y = Σ_e w_e expert_e(h),   e rising
//! ```
//!
//! A *choice* is a token with one of its experts: choice `t k + i` is that of token `t` and its `i`-th expert, by rising numbers.
//! The *rows* are the choices, sorted by expert and token. Sums over the experts of a token are taken by rising expert, so that
//! they do not depend on other tokens (K-1).

mod shared;

use std::ops::Range;

use pulp::Simd;

pub use shared::{add_gated_rows, gated_rows_bwd};

use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Router of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Router {
    /// Number of experts, E.
    pub experts: usize,
    /// Number of experts of a token, k.
    pub chosen: usize,
    /// Scores under the softmax of the weights.
    pub softmax: RouterSoftmax,
}

/// Scores under the softmax of the weights of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterSoftmax {
    /// Those of all experts; the weights of a token sum to less than 1.
    All,
    /// Those of the chosen experts. A softmax of all scores whose chosen weights are divided by their sum is the same.
    Chosen,
}

impl Router {
    /// Chooses the experts of each token by `scores [N, E]`: the largest, and of equal ones the lower. Returns them, `[N, k]`, by
    /// rising numbers.
    ///
    /// # Panics
    ///
    /// If the length is not that of whole rows.
    pub fn choose_experts(self, scores: &[f32]) -> Vec<u32> {
        let tokens = self.check_scores("choose_experts", scores);
        let mut chosen = vec![0; tokens * self.chosen];
        for (scores, chosen) in self.rows(scores).zip(chosen.chunks_exact_mut(self.chosen)) {
            choose_largest(scores, chosen);
        }
        chosen
    }

    /// Computes the weights `[N, k]` of chosen experts from `scores [N, E]`.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn weigh_experts(self, scores: &[f32], chosen: &[u32]) -> Vec<f32> {
        self.check_choices("weigh_experts", scores, chosen.len());
        let mut weights = vec![0.0; chosen.len()];
        let mut softmax = vec![0.0; self.experts];
        let choices = chosen.chunks_exact(self.chosen).zip(weights.chunks_exact_mut(self.chosen));
        for (scores, (chosen, weights)) in self.rows(scores).zip(choices) {
            match self.softmax {
                RouterSoftmax::All => {
                    softmax_row(scores, &mut softmax);
                    pick_numbers(&softmax, chosen, weights);
                }
                RouterSoftmax::Chosen => {
                    let picked = &mut softmax[..self.chosen];
                    pick_numbers(scores, chosen, picked);
                    softmax_row(picked, weights);
                }
            }
        }
        weights
    }

    /// Computes the gradient `[N, E]` of the scores from that of [`Router::weigh_experts`]'s weights, which is 0 for experts
    /// that are not under the softmax. The choice has no gradient.
    ///
    /// ```text
    /// All:     ds_j = p_j ([j chosen] dw_j − Σ_f p_f dw_f)
    /// Chosen:  ds_e = w_e (dw_e − Σ_f w_f dw_f)
    /// ```
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn weigh_experts_back(
        self,
        scores: &[f32],
        chosen: &[u32],
        [weights, dweights]: [&[f32]; 2],
        dscores: &mut [f32],
    ) {
        self.check_choices("weigh_experts_back", scores, chosen.len());
        self.check_choices("weigh_experts_back", dscores, weights.len().max(dweights.len()));
        dscores.fill(0.0);
        let k = self.chosen;
        let choices = weights.chunks_exact(k).zip(dweights.chunks_exact(k));
        let tokens = self.rows(scores).zip(dscores.chunks_exact_mut(self.experts));
        for ((scores, dscores), (chosen, of)) in tokens.zip(chosen.chunks_exact(k).zip(choices)) {
            self.token_back(scores, chosen, of, dscores);
        }
    }

    /// Computes the gradient of a token's scores.
    fn token_back(
        self,
        scores: &[f32],
        chosen: &[u32],
        (weights, dweights): (&[f32], &[f32]),
        dscores: &mut [f32],
    ) {
        let pull: f32 = weights.iter().zip(dweights).map(|(w, dw)| w * dw).sum();
        if self.softmax == RouterSoftmax::All {
            softmax_row(scores, dscores);
            dscores.iter_mut().for_each(|ds| *ds *= -pull);
        }
        for ((&expert, w), dw) in chosen.iter().zip(weights).zip(dweights) {
            dscores[expert as usize] = w * (dw - pull);
        }
    }

    /// Computes the softmax `[N, E]` of all scores `[N, E]`.
    ///
    /// # Panics
    ///
    /// If the length is not that of whole rows.
    pub fn probabilities(self, scores: &[f32]) -> Vec<f32> {
        self.check_scores("probabilities", scores);
        let mut found = vec![0.0; scores.len()];
        let rows = self.rows(scores).zip(found.chunks_exact_mut(self.experts));
        rows.for_each(|(scores, found)| softmax_row(scores, found));
        found
    }

    /// Adds the gradient of `Σ_t c_t Σ_j g_j p_tj` by the scores to `dscores [N, E]`; `p` is the softmax of all scores.
    ///
    /// ```text
    /// ds_tj += c_t p_tj (g_j − Σ_f p_tf g_f)
    /// ```
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn add_mean_back(
        self,
        scores: &[f32],
        slopes: &[f32],
        counts: &[f32],
        dscores: &mut [f32],
    ) {
        let tokens = self.check_scores("add_mean_back", scores);
        assert_eq!(counts.len(), tokens, "add_mean_back: a count for each token");
        assert_eq!(slopes.len(), self.experts, "add_mean_back: a slope for each expert");
        assert_eq!(dscores.len(), scores.len(), "add_mean_back: a gradient for each score");
        let mut p = vec![0.0; self.experts];
        let rows = self.rows(scores).zip(dscores.chunks_exact_mut(self.experts));
        for ((scores, dscores), count) in rows.zip(counts) {
            softmax_row(scores, &mut p);
            let pull: f32 = p.iter().zip(slopes).map(|(p, g)| p * g).sum();
            for ((ds, p), g) in dscores.iter_mut().zip(&p).zip(slopes) {
                *ds += count * p * (g - pull);
            }
        }
    }

    fn rows(self, scores: &[f32]) -> std::slice::ChunksExact<'_, f32> {
        scores.chunks_exact(self.experts)
    }

    /// Asserts that scores are whole rows. Returns the number of tokens.
    #[track_caller]
    fn check_scores(self, name: &str, scores: &[f32]) -> usize {
        let Self { experts, chosen, .. } = self;
        assert!(
            (1..=experts).contains(&chosen) && scores.len().is_multiple_of(experts),
            "{name}: {} scores, {chosen} of {experts} experts",
            scores.len()
        );
        scores.len() / experts
    }

    #[track_caller]
    fn check_choices(self, name: &str, scores: &[f32], choices: usize) {
        let tokens = self.check_scores(name, scores);
        assert_eq!(choices, tokens * self.chosen, "{name}: choices of {tokens} tokens");
    }
}

/// Writes the indices of the largest scores by rising numbers; of equal scores the lower indices.
fn choose_largest(scores: &[f32], chosen: &mut [u32]) {
    for found in 0..chosen.len() {
        let (taken, free) = chosen.split_at_mut(found);
        let rest = (0..scores.len()).filter(|index| !taken.contains(&(*index as u32)));
        let best =
            rest.reduce(|best, index| if scores[index] > scores[best] { index } else { best });
        free[0] = best.unwrap_or_default() as u32;
    }
    chosen.sort_unstable();
}

/// Copies the numbers of some indices.
fn pick_numbers(all: &[f32], indices: &[u32], picked: &mut [f32]) {
    indices.iter().zip(picked).for_each(|(&index, picked)| *picked = all[index as usize]);
}

/// Computes the softmax of scores. Sums are taken in the order of the scores.
fn softmax_row(scores: &[f32], out: &mut [f32]) {
    let max = scores.iter().fold(f32::NEG_INFINITY, |max, &s| if s > max { s } else { max });
    out.iter_mut().zip(scores).for_each(|(out, s)| *out = libm::expf(s - max));
    let sum: f32 = out.iter().sum();
    out.iter_mut().for_each(|out| *out /= sum);
}

/// Choices sorted by expert and token.
#[derive(Debug, Clone, Default)]
pub struct ExpertRows {
    /// Number of experts of a token, k.
    chosen: usize,
    /// Bounds of the rows of experts, `[E + 1]`: expert `e` has the rows `offsets[e]..offsets[e + 1]`.
    pub offsets: Vec<usize>,
    /// Choice of each row, `[N k]`.
    choices: Vec<u32>,
    /// Row of each choice, `[N k]`.
    rows: Vec<u32>,
}

impl ExpertRows {
    /// Sorts the choices `[N, k]` of a router.
    ///
    /// # Panics
    ///
    /// If an expert is out of range.
    pub fn sort_choices(chosen: &[u32], router: Router) -> Self {
        let mut offsets = vec![0; router.experts + 1];
        chosen.iter().for_each(|&expert| offsets[expert as usize + 1] += 1);
        (0..router.experts).for_each(|expert| offsets[expert + 1] += offsets[expert]);
        let mut next = offsets.clone();
        let (mut choices, mut rows) = (vec![0; chosen.len()], vec![0; chosen.len()]);
        for (choice, &expert) in chosen.iter().enumerate() {
            let row = &mut next[expert as usize];
            (choices[*row], rows[choice]) = (choice as u32, *row as u32);
            *row += 1;
        }
        Self { chosen: router.chosen, offsets, choices, rows }
    }

    /// Returns the number of rows.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Iterates over the tokens of some rows.
    ///
    /// # Panics
    ///
    /// If the rows are out of range.
    pub fn tokens(&self, rows: Range<usize>) -> impl Iterator<Item = usize> {
        self.choices[rows].iter().map(|&choice| choice as usize / self.chosen)
    }

    /// Copies the token `x [N, d]` of each row to `out [N k, d]`, times the weight of the choice, if there are weights.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn gather_tokens(&self, x: &[f32], weights: Option<&[f32]>, d: usize, out: &mut [f32]) {
        self.check_shapes("gather_tokens", x.len(), d, out.len());
        par::for_each_part(out, d, |start, out| {
            let choices = &self.choices[start / d.max(1)..];
            for (&choice, out) in choices.iter().zip(out.chunks_exact_mut(d)) {
                let (choice, token) = (choice as usize, choice as usize / self.chosen);
                let x = &x[token * d..][..d];
                match weights {
                    None => out.copy_from_slice(x),
                    Some(weights) => {
                        out.iter_mut().zip(x).for_each(|(out, x)| *out = weights[choice] * x);
                    }
                }
            }
        });
    }

    /// Sums the rows `x [N k, d]` of each token to `y [N, d]`, times the weights of the choices, if there are weights, by rising
    /// expert.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn sum_choices(&self, x: &[f32], weights: Option<&[f32]>, d: usize, y: &mut [f32]) {
        self.check_shapes("sum_choices", y.len(), d, x.len());
        par::for_each_part(y, d, |start, y| {
            let tokens = self.rows.chunks_exact(self.chosen).enumerate().skip(start / d.max(1));
            for ((token, rows), y) in tokens.zip(y.chunks_exact_mut(d)) {
                y.fill(0.0);
                for (index, &row) in rows.iter().enumerate() {
                    let weight = weights.map_or(1.0, |w| w[token * self.chosen + index]);
                    let x = &x[row as usize * d..][..d];
                    y.iter_mut().zip(x).for_each(|(y, x)| *y += weight * x);
                }
            }
        });
    }

    /// Computes the product of each choice's token `y [N, d]` and row `x [N k, d]`: the gradient `[N, k]` of the weights in
    /// [`ExpertRows::sum_choices`].
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn multiply_choices(&self, y: &[f32], x: &[f32], d: usize) -> Vec<f32> {
        self.check_shapes("multiply_choices", y.len(), d, x.len());
        let mut found = vec![0.0; self.rows.len()];
        par::for_each_part(&mut found, 1, |start, found| {
            lanes::run_kernel(ChoiceProducts { of: self, y, x, d, start, found });
        });
        found
    }

    #[track_caller]
    fn check_shapes(&self, name: &str, tokens: usize, d: usize, rows: usize) {
        let Self { chosen, rows: all, .. } = self;
        assert_eq!(rows, all.len() * d, "{name}: {rows} elements of {} rows of {d}", all.len());
        assert_eq!(tokens * chosen, rows, "{name}: {tokens} elements of tokens");
    }
}

/// Products of some choices.
struct ChoiceProducts<'a> {
    of: &'a ExpertRows,
    y: &'a [f32],
    x: &'a [f32],
    d: usize,
    /// First choice.
    start: usize,
    found: &'a mut [f32],
}

impl Kernel for ChoiceProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { of, y, x, d, start, found } = self;
        for (choice, found) in (start..).zip(found) {
            let (token, row) = (choice / of.chosen, of.rows[choice] as usize);
            *found = lanes.dot(&y[token * d..][..d], &x[row * d..][..d]);
        }
    }
}

#[cfg(test)]
mod tests;

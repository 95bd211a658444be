//! Divergence of a policy from a teacher, over the teacher's most probable tokens and all others together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Least probability of all tokens outside a support: log-probs in f32 do not determine a smaller one.
const REST: f64 = 1e-6;

/// Divergence of two distributions of a token: q of the policy and p of the teacher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeacherDivergence {
    /// KL(q ‖ p), which makes unlikely what the teacher finds unlikely.
    #[default]
    Reverse,
    /// KL(p ‖ q), which makes likely what the teacher finds likely.
    Forward,
    /// The generalized Jensen-Shannon divergence: β KL(p ‖ m) + (1 − β) KL(q ‖ m), with m = (1 − β) q + β p.
    Jsd,
}

/// Loss of a token with a teacher.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistillOptions {
    /// Divergence that is computed.
    pub divergence: TeacherDivergence,
    /// Weight β of the teacher in [`TeacherDivergence::Jsd`], between 0 and 1.
    pub beta: f64,
    /// True if all tokens outside the support are one more category; else both distributions are those within the support.
    pub tail: bool,
}

impl Default for DistillOptions {
    /// Returns the reverse KL with a category for all other tokens.
    fn default() -> Self {
        Self { divergence: TeacherDivergence::Reverse, beta: 0.5, tail: true }
    }
}

/// Divergence of a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistillLoss {
    /// Value of the divergence, in nats.
    pub value: f64,
    /// Probability of the support under the policy.
    pub mass: f64,
}

/// Computes the divergence of a policy from a teacher at one token, from the log-probs of a support of `k` tokens, `[k]`. Writes
/// its derivatives by the policy's log-probs.
///
/// ```text
/// q, p: probabilities of the k tokens, and of all others together (`tail`); without `tail`, divided by their sum
///
/// reverse   L = Σ q log(q / p)                                   g = log(q / p)
/// forward   L = Σ p log(p / q)                                   g = −p / q
/// jsd       L = β Σ p log(p / m) + (1 − β) Σ q log(q / m)        g = (1 − β) log(q / m)        m = (1 − β) q + β p
///
/// ∂L/∂log qᵢ = qᵢ (gᵢ − g_tail)            without tail: qᵢ (gᵢ − Σ q g)
/// ```
///
/// The sums are over all categories, so the divergence is never negative. Through the softmax, a logit z of any token has the
/// derivative q_z (g_c(z) − Σ q g), with the category c(z) of the token, and none outside the support without `tail`.
///
/// Forward and reverse: GKD, [2306.13649](https://arxiv.org/abs/2306.13649); MiniLLM,
/// [2306.08543](https://arxiv.org/abs/2306.08543). β as in TRL.
///
/// # Panics
///
/// If the lengths differ, or the support is empty.
pub fn teacher_divergence(
    options: &DistillOptions,
    policy: &[f32],
    teacher: &[f32],
    slopes: &mut [f64],
) -> DistillLoss {
    let k = policy.len();
    assert!(k > 0 && (teacher.len(), slopes.len()) == (k, k), "teacher_divergence: {k} tokens");
    let [(own, mass), (other, _)] = [policy, teacher].map(|logp| categories(logp, options.tail));
    let terms = own.iter().zip(&other).map(|(&q, &p)| options.term(q, p));
    let (values, weighted): (Vec<f64>, Vec<f64>) = terms.unzip();
    let base = match weighted.get(k) {
        Some(rest) => rest / libm::exp(own[k]),
        None => weighted.iter().sum(),
    };
    for ((slope, q), term) in slopes.iter_mut().zip(&own).zip(&weighted) {
        *slope = term - libm::exp(*q) * base;
    }
    DistillLoss { value: values.iter().sum(), mass }
}

impl DistillOptions {
    /// Returns the part of one category in the divergence, from the log-probs of both, and q g. Both are finite, also where a
    /// probability is 0 in f64.
    fn term(&self, q: f64, p: f64) -> (f64, f64) {
        let [own, other] = [q, p].map(libm::exp);
        match self.divergence {
            TeacherDivergence::Reverse => (own * (q - p), own * (q - p)),
            TeacherDivergence::Forward => (other * (p - q), -other),
            TeacherDivergence::Jsd => {
                let middle = log_sum(&[q + libm::log(1.0 - self.beta), p + libm::log(self.beta)]);
                let by_own = (1.0 - self.beta) * own * (q - middle);
                (self.beta * other * (p - middle) + by_own, by_own)
            }
        }
    }
}

/// Computes `log Σ exp(xᵢ)`.
fn log_sum(x: &[f64]) -> f64 {
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + libm::log(x.iter().map(|x| libm::exp(x - largest)).sum())
}

/// Returns the log-probs of the categories, `[k]` or with a tail `[k + 1]`, and the probability of the support.
fn categories(logp: &[f32], tail: bool) -> (Vec<f64>, f64) {
    let mut own: Vec<f64> = logp.iter().map(|&logp| f64::from(logp)).collect();
    let mass: f64 = own.iter().map(|logp| libm::exp(*logp)).sum();
    if tail {
        own.push(libm::log((1.0 - mass).max(REST)));
    } else {
        let all = log_sum(&own);
        own.iter_mut().for_each(|logp| *logp -= all);
    }
    (own, mass)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_that_are_0_in_f64_have_finite_values_and_slopes() {
        for divergence in
            [TeacherDivergence::Reverse, TeacherDivergence::Forward, TeacherDivergence::Jsd]
        {
            for (policy, teacher, tail) in [
                ([-750.0, -1e-6], [-0.1, -2.3], true),
                ([-800.0, -1e-6], [-800.0, -1e-6], true),
                ([-800.0, -1e-6], [-800.0, -1e-6], false),
                ([-900.0, -800.0], [-0.1, -2.3], false),
                ([-0.1, -2.3], [-900.0, -800.0], false),
            ] {
                let options = DistillOptions { divergence, beta: 0.3, tail };
                let mut slopes = [f64::NAN; 2];
                let loss = teacher_divergence(&options, &policy, &teacher, &mut slopes);
                let numbers = [loss.value, loss.mass, slopes[0], slopes[1]];
                assert!(numbers.iter().all(|x| x.is_finite()), "{options:?}: {numbers:?}");
                assert!(loss.value >= -1e-9, "{options:?}: {}", loss.value);
            }
        }
    }
}

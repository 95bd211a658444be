//! What an update adds up to be reported.

use candle_core::Tensor;

use crate::algo::loss;
use crate::model::values::with_values;
use crate::runtime::{Batch, UpdateStats};

/// Sums that become [`UpdateStats`].
#[derive(Default)]
pub(super) struct Totals {
    pub(super) loss: f64,
    pub(super) pg_loss: f64,
    pub(super) kl: f64,
    pub(super) entropy: f64,
    pub(super) grad_norm: f64,
    pub(super) surrogate: loss::SurrogateStats,
    pub(super) mismatch: f64,
    pub(super) mismatch_max: f64,
    pub(super) mismatch_tokens: u64,
    pub(super) steps: u64,
}

impl Totals {
    pub(super) fn supervised(
        &mut self,
        logp: &Tensor,
        entropy: &Tensor,
        weights: &Tensor,
    ) -> candle_core::Result<()> {
        self.pg_loss -= dot(logp, weights)?;
        self.entropy += dot(entropy, weights)?;
        Ok(())
    }

    pub(super) fn weighted(
        &mut self,
        surrogate: &Tensor,
        entropy: &Tensor,
        weights: &Tensor,
    ) -> candle_core::Result<()> {
        self.pg_loss += dot(surrogate, weights)?;
        self.entropy += dot(entropy, weights)?;
        Ok(())
    }

    /// |trainer - rollout| of the tokens seen before the first optimizer step.
    pub(super) fn mismatch(&mut self, logp: &[f32], old: &[f32]) {
        for difference in logp.iter().zip(old).map(|(a, b)| f64::from((a - b).abs())) {
            self.mismatch += difference;
            self.mismatch_max = self.mismatch_max.max(difference);
            self.mismatch_tokens += 1;
        }
    }

    pub(super) fn stats(&self, batch: &Batch, version: u64) -> UpdateStats {
        let steps = self.steps.max(1) as f64;
        let tokens = self.surrogate.tokens.max(1) as f64;
        UpdateStats {
            loss: self.loss / steps,
            pg_loss: self.pg_loss / steps,
            kl: self.kl / steps,
            entropy: self.entropy / steps,
            clip_frac_low: self.surrogate.clipped_low as f64 / tokens,
            clip_frac_high: self.surrogate.clipped_high as f64 / tokens,
            clip_frac_dual: self.surrogate.clipped_dual as f64 / tokens,
            ppo_kl: self.surrogate.ppo_kl / tokens,
            grad_norm: self.grad_norm / steps,
            mismatch_mean: self.mismatch / self.mismatch_tokens.max(1) as f64,
            mismatch_max: self.mismatch_max,
            optimizer_steps: self.steps,
            rows: batch.rows.len() as u64,
            tokens: batch.rows.iter().map(|row| row.completion.len() as u64).sum(),
            version,
        }
    }
}

/// Σ aᵢ bᵢ in f64.
pub(super) fn dot(a: &Tensor, b: &Tensor) -> candle_core::Result<f64> {
    with_values(a, |a| {
        with_values(b, |b| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum())
    })?
}

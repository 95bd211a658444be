//! Sums over the optimizer steps of an update.

use super::routers::RouterTotals;
use super::weights::SelectionSums;
use crate::loss::{KtoReply, PolicyLoss, PreferenceLoss};
use crate::runtime::columns::ColumnRecorder;
use crate::runtime::pass::PassTokens;
use crate::runtime::{Batch, DivergenceStats, ObservationStats, PairStats, UpdateStats};

/// Sums over pairs of replies, or over replies with a label.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PairSums {
    /// Numbers of better and of worse replies.
    replies: [u64; 2],
    /// Sums of their implicit rewards.
    rewards: [f64; 2],
    /// Number of pairs, or of replies with a label.
    judged: u64,
    /// Number of pairs in which the better reply has the higher implicit reward, or of replies on their side of z₀.
    right: u64,
    /// Sum and number of the z₀ of minibatches.
    shift: (f64, u64),
}

impl PairSums {
    /// Adds a pair.
    pub(super) fn add(&mut self, lost: &PreferenceLoss) {
        for (side, reward) in [lost.reward_chosen, lost.reward_rejected].into_iter().enumerate() {
            self.replies[side] += 1;
            self.rewards[side] += reward;
        }
        self.judged += 1;
        self.right += u64::from(lost.reward_chosen > lost.reward_rejected);
    }

    /// Adds a reply with a label, of a minibatch with a z₀.
    pub(super) fn add_labeled(&mut self, reply: KtoReply, beta: f64, shift: f64) {
        let side = usize::from(!reply.good);
        self.replies[side] += 1;
        self.rewards[side] += beta * reply.log_ratio;
        self.judged += 1;
        let gain = reply.log_ratio - shift;
        self.right += u64::from(if reply.good { gain > 0.0 } else { gain < 0.0 });
    }

    /// Adds the z₀ of a minibatch.
    pub(super) fn add_shift(&mut self, shift: f64) {
        self.shift = (self.shift.0 + shift, self.shift.1 + 1);
    }

    /// Returns the means, if there were any pairs or replies.
    pub(super) fn stats(&self) -> Option<PairStats> {
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        (self.judged > 0).then(|| PairStats {
            reward_chosen: mean(self.rewards[0], self.replies[0]),
            reward_rejected: mean(self.rewards[1], self.replies[1]),
            accuracy: self.right as f64 / self.judged as f64,
            shift: mean(self.shift.0, self.shift.1),
        })
    }
}

/// Sums for [`UpdateStats`].
#[derive(Default)]
pub(super) struct Totals {
    pub(super) policy: PolicyLoss,
    pub(super) grad_norm: f64,
    pub(super) mismatch: f64,
    pub(super) mismatch_max: f64,
    pub(super) mismatch_tokens: u64,
    pub(super) steps: u64,
    /// Optimizer steps that were skipped.
    pub(super) skipped: u64,
    /// First layer in which an activation overflowed in f16, if the loss is not finite.
    pub(super) overflow: Option<usize>,
    /// Passes over the batch.
    pub(super) epochs: u64,
    pub(super) pairs: PairSums,
    /// Tokens that selections chose from.
    pub(super) selection: SelectionSums,
    /// Tokens of the optimizer steps.
    pub(super) tokens: PassTokens,
    /// Mean weight of the tokens whose log-probs were corrected.
    pub(super) mean_weight: Option<f64>,
    /// Share of these tokens whose weight is not 0, if a correction masks tokens and keeps their ratio.
    pub(super) kept: Option<f64>,
    /// Root mean square of the last updates of Muon.
    pub(super) muon_rms: Option<f64>,
    /// Loads of experts.
    pub(super) routers: RouterTotals,
    /// Recorder of tokens, if the batch asks for one.
    pub(super) recorder: Option<ColumnRecorder>,
    /// Log-probs of the completion of each row, if they are wanted.
    pub(super) logprobs: Option<Vec<Vec<f32>>>,
}

impl Totals {
    /// Adds |trainer - rollout| of the tokens seen before the first optimizer step.
    pub(super) fn mismatch(&mut self, logp: &[f32], old: &[f32]) {
        for difference in logp.iter().zip(old).map(|(a, b)| f64::from((a - b).abs())) {
            self.mismatch += difference;
            self.mismatch_max = self.mismatch_max.max(difference);
            self.mismatch_tokens += 1;
        }
    }

    pub(super) fn stats(mut self, batch: &Batch, version: u64) -> UpdateStats {
        let columns = self.recorder.take().map(ColumnRecorder::finish);
        // A skipped step has a loss, and no gradient.
        let counts = [self.steps + self.skipped, self.steps, self.epochs];
        let [steps, taken, epochs] = counts.map(|count| count.max(1) as f64);
        let sums = &self.policy;
        let tokens = sums.tokens.max(1) as f64;
        let [low, high, dual] = sums.clipped.map(|clipped| clipped as f64 / tokens);
        let taught = |sum: f64| sum / sums.taught as f64;
        let divergence = (sums.taught > 0)
            .then(|| DivergenceStats { mean: taught(sums.divergence), mass: taught(sums.mass) });
        let observations = (sums.observed > 0).then(|| ObservationStats {
            nll: sums.observation_nll / sums.observed as f64,
            tokens: sums.observed / self.epochs.max(1),
        });
        let masks = batch.rows.iter().any(|row| row.loss.off_policy_mask > 0.0);
        UpdateStats {
            loss: sums.loss / steps,
            pg_loss: sums.surrogate / steps,
            // The mean over the tokens that have a KL: agents of a policy may differ in it.
            kl: sums.kl / epochs * (tokens / sums.kl_tokens.max(1) as f64),
            entropy: sums.entropy / epochs,
            clip_frac_low: low,
            clip_frac_high: high,
            clip_frac_dual: dual,
            ppo_kl: sums.ppo_kl / tokens,
            grad_norm: self.grad_norm / taken,
            mismatch_mean: self.mismatch / self.mismatch_tokens.max(1) as f64,
            mismatch_max: self.mismatch_max,
            correction_mean: self.mean_weight,
            correction_kept: self.kept,
            off_policy_masked: masks.then_some(sums.masked as f64 / tokens),
            select_kept: self.selection.kept_share(),
            select_covariance: self.selection.mean_covariance(),
            muon_rms: self.muon_rms,
            divergence,
            observations,
            preference: self.pairs.stats(),
            optimizer_steps: self.steps,
            skipped_steps: self.skipped,
            loss_scale: None,
            rows: batch.trained_rows().count() as u64,
            tokens: batch.trained_rows().map(|row| row.completion.len() as u64).sum(),
            shared: self.tokens.into(),
            version,
            routers: self.routers.stats(steps),
            columns,
        }
    }
}

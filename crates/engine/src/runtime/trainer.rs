//! Training of one policy: packed micro-batches, accumulated gradients, AdamW. Moments and gradients exist only for
//! trainable weights; a base under an adapter costs neither.
//!
//! Losses are normalized by the tokens and rows of the whole minibatch, so the size of micro-batches changes the
//! gradient by rounding alone. An update ends before its optimizer step if the loss or the gradient is not finite, or
//! if a trained weight has no gradient (MO-1). In f16, a gradient that is not finite skips the step instead (`scaled.rs`).

mod balance;
mod before;
mod checkpoint;
mod labeled;
mod micro;
mod pending;
mod ranks;
mod routers;
mod scaled;
mod selection;
mod totals;
mod weights;

use std::borrow::Cow;

use maverl_kernels::sample::derive_seed;

use crate::files::ModelError;
use crate::net::ops::Backend;
use crate::net::{Decoder, Gradients, Model, Params, Pool, RoutedTokens, Tape, lora};
use crate::runtime::columns::ColumnRecorder;
use crate::runtime::critic::{Joint, SharedTrunk};
use crate::runtime::loss_scale::{LossScale, factor_of, scale_slopes};
use crate::runtime::optimizer::Optimizer;
use crate::runtime::packed::{PackedRows, PassText};
use crate::runtime::pass::PassTexts;
use crate::runtime::peers::Peers;
use crate::runtime::pools::Pools;
use crate::runtime::{Batch, Objective, PolicySpec, Row, RuntimeError, UpdateStats};
use micro::Micro;
pub(crate) use pending::PendingPass;
use routers::{check_routes, token_counts};
use totals::Totals;
use weights::token_share;

/// Moments and counters of one policy, and its reference.
pub(crate) struct Trainer<O: Backend> {
    policy: String,
    /// Seed of the dropout masks.
    seed: u64,
    micro_batch_tokens: usize,
    checkpointing: bool,
    /// Buffers of activations.
    pools: Pools<O>,
    /// Ranks that train the policy together.
    peers: Peers,
    optimizer: Optimizer<O>,
    /// Scale of the loss, if products are in f16.
    scale: Option<LossScale>,
    /// Policy that a KL and pairs are compared with: the starting weights, or a copy of later ones.
    reference: Option<Model<O>>,
    /// True if the reference is not the starting weights, so that checkpoints contain it.
    renewed: bool,
    /// Number of updates applied, the version of RT-2.
    pub(crate) version: u64,
}

impl<O: Backend> Trainer<O> {
    pub(crate) fn new(
        spec: &PolicySpec,
        model: &Model<O>,
        (seed, scale): (u64, Option<LossScale>),
        micro_batch_tokens: usize,
        (pools, peers): (Pools<O>, Peers),
    ) -> Result<Self, ModelError> {
        let ops = model.decoder.ops();
        let params = if spec.trained {
            model.trainable().clone()
        } else {
            Params::default().on(ops, false)?
        };
        let optimizer = Optimizer::new(ops, spec.optim, params, peers.clone())?;
        let reference = spec.reference.then(|| model.copy(false)).transpose()?;
        Ok(Self {
            policy: spec.name.clone(),
            seed,
            micro_batch_tokens,
            checkpointing: spec.gradient_checkpointing,
            pools,
            peers,
            optimizer,
            scale,
            reference,
            renewed: false,
            version: 0,
        })
    }

    /// Trains on a batch: `epochs` passes, each in `minibatches` optimizer steps.
    ///
    /// A loss or gradient that is not finite ends the update before the optimizer step that would have used it.
    pub(crate) fn update(
        &mut self,
        model: &Model<O>,
        batch: &Batch,
        mut values: Option<&mut SharedTrunk<'_, O>>,
    ) -> Result<UpdateStats, RuntimeError> {
        self.require_reference(batch).map_err(|error| self.failed_update(&error))?;
        check_routes(model, &batch.rows).map_err(|error| self.failed_update(&error))?;
        let agreed = self.peers.agree(|| batch.checksum(), &self.policy);
        agreed.map_err(|error| self.failed_update(&error))?;
        let mut totals = Totals { recorder: ColumnRecorder::new(batch), ..Totals::default() };
        let corrected = self.correct_rows(model, batch, &mut totals);
        let rows = corrected.map_err(|error| self.failed_update(&error))?;
        for _ in 0..batch.epochs {
            let before = totals.policy;
            for part in 0..batch.minibatches {
                let rows = batch.minibatch(&rows, part);
                if rows.iter().all(|row| row.skipped) {
                    continue;
                }
                if let Some(recorder) = &mut totals.recorder {
                    recorder.begin(part);
                }
                let joint = values.as_mut().map(|values| values.part(part, batch.minibatches));
                self.optimizer_step(model, (batch, part), &rows, &mut totals, joint)?;
            }
            totals.epochs += 1;
            let tokens = (totals.policy.tokens - before.tokens).max(1) as f64;
            let kl = (totals.policy.ppo_kl - before.ppo_kl) / tokens;
            if batch.early_stop_kl > 0.0 && kl > batch.early_stop_kl {
                break;
            }
        }
        self.version += 1;
        let same = self.peers.compare(model.decoder.ops(), model.trainable(), &self.policy);
        same.map_err(|error| self.failed_update(&error))?;
        if let Some(recorder) = &mut totals.recorder {
            recorder.gather(&self.peers).map_err(|error| self.failed_update(&error))?;
        }
        let loss_scale = self.scale.as_ref().map(LossScale::stats);
        Ok(UpdateStats { loss_scale, ..totals.stats(batch, self.version) })
    }

    /// Returns an error if a row has a KL to a reference that is not kept.
    fn require_reference(&self, batch: &Batch) -> Result<(), ModelError> {
        let of_loss = batch.objective == Objective::PolicyGradient && self.reference.is_none();
        match batch.rows.iter().position(|row| of_loss && row.loss.kl_coef != 0.0) {
            None => Ok(()),
            Some(index) => {
                let coefficient = batch.rows[index].loss.kl_coef;
                Err(ModelError::wrong_argument(format!(
                    "row {index} has `kl_coef` {coefficient}, and no copy of the starting weights is kept to \
                         compare with"
                )))
            }
        }
    }

    fn optimizer_step(
        &mut self,
        model: &Model<O>,
        (batch, part): (&Batch, usize),
        rows: &[&Row],
        totals: &mut Totals,
        joint: Option<Joint<'_, O>>,
    ) -> Result<(), RuntimeError> {
        let mut pool = self.pools.lend();
        let factors = self.token_weights(model, (batch, part), rows, totals, &mut pool);
        let factors = factors.map_err(|error| self.failed_update(&error))?;
        let gradients = self.optimizer.gradients(model.trainable());
        let gradients = gradients.map_err(|error| self.failed_update(&error))?;
        let mut back = Back { gradients, joint };
        let (pass, share) = (pass_of_rows(rows, shares(model)), token_share(batch));
        let own = self.peers.share(&pass.rank_units(self.peers.size()));
        totals.tokens += pass.counts();
        let units = (&pass, own.clone());
        let slopes = self.balance_slopes(model, batch.router_aux_coef, rows, units, &mut pool);
        let mut slopes = slopes.map_err(|error| self.failed_update(&error))?;
        slopes.iter_mut().for_each(|slopes| scale_slopes(self.scale.as_ref(), slopes));
        let before = self.peers.channel().map(|_| totals.begin_step(&mut back));
        for indices in pass.micro_batches(own, self.micro_batch_tokens) {
            let micro = Micro::new(pass.pack(indices), (rows, &factors), indices, share);
            let micro = micro.with_slopes(slopes.as_deref());
            totals.tokens.computed += micro.packed.tokens() as u64;
            self.accumulate(model, batch, &micro, &mut back, totals, &mut pool)
                .map_err(|error| self.failed_update(&error))?;
        }
        if let Some(before) = before {
            let combined = self.combine(model, before, &mut back, totals);
            combined.map_err(|error| self.failed_update(&error))?;
        }
        totals.routers.end_step();
        self.end_step(model, batch, back, totals)
    }

    /// Adds the gradient of one micro-batch. Losses are weighted sums over tokens, so any split gives the same total.
    fn accumulate(
        &self,
        model: &Model<O>,
        batch: &Batch,
        micro: &Micro<'_>,
        Back { gradients, joint }: &mut Back<'_, O>,
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let decoder = self.decoder(model, &micro.packed, micro.indices);
        let packed = &micro.packed;
        let counts = token_counts(model, packed, &micro.rows);
        let (slopes, routes) = (micro.slopes, packed.routes());
        let tokens = counts.as_deref().map(|counts| RoutedTokens { counts, slopes, routes });
        let tape = Tape::record_routed(&decoder, packed.rows(), tokens, self.checkpointing, pool)?;
        totals.routers.step.add(tape.loads());
        let ops = decoder.ops();
        let hidden = packed.predicting(ops, tape.hidden())?;
        let reference = match (&self.reference, batch.objective) {
            (Some(reference), Objective::PolicyGradient)
                if micro.rows.iter().any(|row| row.loss.kl_coef != 0.0) =>
            {
                Some(packed.unrouted().logprobs(&reference.decoder, pool)?)
            }
            _ => None,
        };
        let (of, ends) = (packed.predicted(), &packed.completions);
        let scale = self.scale.as_ref();
        let mut dhidden = decoder.loss(&hidden, of, ends, gradients, |rows, found, slopes| {
            let [of_logp, of_entropy] = slopes;
            let both = [&mut *of_logp, &mut *of_entropy];
            micro.loss(batch, rows, found, reference.as_deref(), both, totals);
            [of_logp, of_entropy].into_iter().for_each(|slopes| scale_slopes(scale, slopes));
            Ok(())
        })?;
        self.note_overflow(model, packed, totals, pool)?;
        if let Some(joint) = joint {
            let lengths = micro.rows.iter().map(|row| row.completion.len());
            let rows = micro.indices.iter().copied().zip(lengths);
            dhidden = joint.backward(ops, &hidden, rows, (dhidden, factor_of(scale)))?;
        }
        tape.backward(&packed.spread(ops, &dhidden)?, gradients, pool)
    }

    /// Returns the decoder for training: with dropout, if the adapter has any. The mask is a function of the seed, the
    /// optimizer step, the row and the position, so no split into micro-batches changes it. `rows` are the numbers of the packed
    /// rows in the minibatch.
    fn decoder<'m>(
        &self,
        model: &'m Model<O>,
        packed: &PackedRows,
        rows: &[usize],
    ) -> Cow<'m, Decoder<O>> {
        let dropout = model.adapter().map_or(0.0, |adapter| adapter.config().dropout);
        if dropout == 0.0 {
            return Cow::Borrowed(&model.decoder);
        }
        let step = derive_seed(self.seed, self.optimizer.step);
        let keys = packed.keys(step, rows).into();
        Cow::Owned(lora::with_dropout(&model.decoder, dropout, &keys))
    }

    fn failed_update(&self, error: &ModelError) -> RuntimeError {
        error.clone().in_worker(&self.policy)
    }
}

/// Returns true if rows share what they begin with. Under dropout they do not, because each row has masks of its own.
fn shares<O: Backend>(model: &Model<O>) -> bool {
    model.adapter().is_none_or(|adapter| adapter.config().dropout == 0.0)
}

/// Returns a pass over rows.
fn pass_of_rows<'r>(rows: &[&'r Row], share: bool) -> PassTexts<'r> {
    PassTexts::new(rows.iter().map(|row| PassText::of_row(row)), share)
}

/// Gradient sums of one optimizer step.
struct Back<'a, O: Backend> {
    gradients: Gradients<'a, O>,
    joint: Option<Joint<'a, O>>,
}

//! Training of one policy: packed micro-batches, accumulated gradients, AdamW. Moments and gradients exist only for
//! trainable weights; a base under an adapter costs neither.
//!
//! Losses are normalized by the tokens and rows of the whole minibatch, so the size of micro-batches changes the
//! gradient by rounding alone. An update ends before its optimizer step if the loss or the gradient is not finite, or
//! if a trained weight has no gradient (MO-1). In f16, a gradient that is not finite skips the step instead (`scaled.rs`).

mod balance;
mod before;
mod by_layers;
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
use crate::net::{Decoder, Gradients, Model, Params, Pool, Tape, lora};
use crate::runtime::columns::ColumnRecorder;
use crate::runtime::critic::{Joint, SharedTrunk};
use crate::runtime::loss_scale::{LossScale, factor_of, scale_slopes};
use crate::runtime::optimizer::Optimizer;
use crate::runtime::packed::{PackedRows, PassText};
use crate::runtime::pass::PassTexts;
use crate::runtime::peers::Peers;
use crate::runtime::pools::Pools;
use crate::runtime::sharded::ShardedModel;
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
    /// Weights of the policy that ranks divide, if they do.
    sharded: Option<ShardedModel<O>>,
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
        let divided = spec.trained && peers.divide_weights();
        let sharded = divided.then(|| ShardedModel::new(model, peers.clone())).transpose()?;
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
            sharded,
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
        values: Option<&mut SharedTrunk<'_, O>>,
    ) -> Result<UpdateStats, RuntimeError> {
        self.require_reference(batch).map_err(|error| self.failed_update(&error))?;
        check_routes(model, &batch.rows).map_err(|error| self.failed_update(&error))?;
        let agreed = self.peers.agree(|| batch.checksum(), &self.policy);
        agreed.map_err(|error| self.failed_update(&error))?;
        let mut totals = Totals { recorder: ColumnRecorder::new(batch), ..Totals::default() };
        let corrected = self.correct_rows(model, batch, &mut totals);
        let rows = corrected.map_err(|error| self.failed_update(&error))?;
        let passed = self.passes(model, batch, &rows, &mut totals, values);
        // Numbers that are not finite are those of all ranks; other errors may be of one.
        if matches!(passed, Ok(()) | Err(RuntimeError::NotFinite { .. })) {
            let whole = self.gather_whole(model);
            whole.map_err(|error| self.failed_update(&error))?;
        }
        passed?;
        self.version += 1;
        let same = self.peers.compare(model.decoder.ops(), model.trainable(), &self.policy);
        same.map_err(|error| self.failed_update(&error))?;
        if let Some(recorder) = &mut totals.recorder {
            recorder.gather(&self.peers).map_err(|error| self.failed_update(&error))?;
        }
        let loss_scale = self.scale.as_ref().map(LossScale::stats);
        Ok(UpdateStats { loss_scale, ..totals.stats(batch, self.version) })
    }

    /// Makes the passes over the rows of a batch.
    fn passes(
        &mut self,
        model: &Model<O>,
        batch: &Batch,
        rows: &[Row],
        totals: &mut Totals,
        mut values: Option<&mut SharedTrunk<'_, O>>,
    ) -> Result<(), RuntimeError> {
        for _ in 0..batch.epochs {
            let before = totals.policy;
            for part in 0..batch.minibatches {
                let rows = batch.minibatch(rows, part);
                if rows.iter().all(|row| row.skipped) {
                    continue;
                }
                if let Some(recorder) = &mut totals.recorder {
                    recorder.begin(part);
                }
                let joint = values.as_mut().map(|values| values.part(part, batch.minibatches));
                self.optimizer_step(model, (batch, part), &rows, totals, joint)?;
            }
            totals.epochs += 1;
            let tokens = (totals.policy.tokens - before.tokens).max(1) as f64;
            let kl = (totals.policy.ppo_kl - before.ppo_kl) / tokens;
            if batch.early_stop_kl > 0.0 && kl > batch.early_stop_kl {
                break;
            }
        }
        Ok(())
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
        if let Some(mut sharded) = self.sharded.take() {
            let stepped = self.sharded_step((model, &mut sharded), (batch, part), rows, totals);
            self.sharded = Some(sharded);
            return stepped;
        }
        let back = self.step_gradients(model, (batch, part), rows, totals, joint);
        let back = back.map_err(|error| self.failed_update(&error))?;
        self.end_step(model, batch, back, totals)
    }

    /// Computes the gradients of an optimizer step, which are those of all ranks.
    fn step_gradients<'m>(
        &mut self,
        model: &'m Model<O>,
        (batch, part): (&Batch, usize),
        rows: &[&Row],
        totals: &mut Totals,
        joint: Option<Joint<'m, O>>,
    ) -> Result<Back<'m, O>, ModelError> {
        let mut pool = self.pools.lend();
        let factors = self.token_weights(model, (batch, part), rows, totals, &mut pool)?;
        let mut back = Back { gradients: self.zero_gradients(model)?, joint };
        let (pass, share) = (pass_of_rows(rows, shares(model)), token_share(batch));
        let own = self.peers.share(&pass.rank_units(self.peers.size()));
        totals.tokens += pass.counts();
        let units = (&pass, own.clone());
        let slopes = self.balance_slopes(model, batch.router_aux_coef, rows, units, &mut pool);
        let mut slopes = slopes?;
        slopes.iter_mut().for_each(|slopes| scale_slopes(self.scale.as_ref(), slopes));
        let before = self.peers.channel().map(|_| totals.begin_step(back.joint.as_mut()));
        for indices in pass.micro_batches(own, self.micro_batch_tokens) {
            let micro = Micro::new(pass.pack(indices), (rows, &factors), indices, share);
            let micro = micro.with_slopes(slopes.as_deref());
            totals.tokens.computed += micro.packed.tokens() as u64;
            self.accumulate(model, batch, &micro, &mut back, totals, &mut pool)?;
        }
        if let Some(before) = before {
            self.peers.combine(model.decoder.ops(), &mut back.gradients)?;
            self.combine_totals(model, before, back.joint.as_mut(), totals)?;
        }
        totals.routers.end_step();
        Ok(back)
    }

    /// Returns an error if the loss or a norm is not finite.
    fn require_finite(&self, totals: &Totals, norms: [f64; 2]) -> Result<(), RuntimeError> {
        let loss = totals.policy.loss.is_finite();
        if loss && norms.iter().all(|norm| norm.is_finite()) {
            return Ok(());
        }
        let what = if loss { "the gradient" } else { "the loss" };
        Err(RuntimeError::NotFinite { policy: self.policy.clone(), what: what.to_owned() })
    }

    /// Creates gradients of zeros for an optimizer step. With several ranks, the parts of an embedding that is also the head are apart.
    fn zero_gradients<'m>(&mut self, model: &'m Model<O>) -> Result<Gradients<'m, O>, ModelError> {
        let mut gradients = self.optimizer.gradients(model.trainable())?;
        if self.peers.size() > 1 {
            gradients.separate_embedding(model.decoder.ops(), model.decoder.tied_slot())?;
        }
        Ok(gradients)
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
        let tokens = micro.routed_tokens(counts.as_deref());
        let tape = Tape::record_routed(&decoder, packed.rows(), tokens, self.checkpointing, pool)?;
        totals.routers.step.add(tape.loads());
        let step = (batch, micro);
        let dhidden = self.losses(
            &decoder,
            tape.hidden(),
            step,
            (&mut *gradients, &mut *joint),
            totals,
            pool,
        )?;
        tape.backward(&dhidden, gradients, pool)
    }

    /// Computes the losses of a micro-batch from its hidden states `[N, D]`, and adds the gradients of the heads. Returns the gradient
    /// of the hidden states.
    fn losses(
        &self,
        decoder: &Decoder<O>,
        hidden: &O::Act,
        (batch, micro): (&Batch, &Micro<'_>),
        (gradients, joint): (&mut Gradients<'_, O>, &mut Option<Joint<'_, O>>),
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        let (ops, packed) = (decoder.ops(), &micro.packed);
        let hidden = packed.predicting(ops, hidden)?;
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
        self.note_overflow(decoder, packed, totals, pool)?;
        if let Some(joint) = joint {
            let lengths = micro.rows.iter().map(|row| row.completion.len());
            let rows = micro.indices.iter().copied().zip(lengths);
            dhidden = joint.backward(ops, &hidden, rows, (dhidden, factor_of(scale)))?;
        }
        packed.spread(ops, &dhidden)
    }

    /// Returns the decoder for training: with dropout, if the adapter has any. The mask is a function of the seed, the
    /// number of optimizer steps since training began, the row and the position, so no split into micro-batches changes it, and no
    /// resume. `rows` are the numbers of the packed rows in the minibatch.
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
        let step = derive_seed(self.seed, self.optimizer.taken);
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

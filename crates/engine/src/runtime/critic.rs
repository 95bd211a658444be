//! The critic of a policy: a head on a trunk, the scale of its values, and its optimizer.

mod checkpoint;
mod joint;
mod pass;
mod scale;
mod scaled;

pub(crate) use joint::{Joint, SharedTrunk};
pub use scale::Scale;

use crate::files::ModelError;
use crate::loss::{ValueLimits, ValueLoss, value_loss};
use crate::net::ops::{Backend, Cpu};
use crate::net::{Adapter, Gradients, HeadKind, Model, Params, Pool, Tape, ValueHead};
use crate::runtime::loss_scale::{LossScale, factor_of, scale_slopes};
use crate::runtime::optimizer::Optimizer;
use crate::runtime::packed::PackedRows;
use crate::runtime::pass::{PassTexts, PassTokens};
use crate::runtime::peers::Peers;
use crate::runtime::pools::Pools;
use crate::runtime::{
    CriticSpec, Normalize, PolicySpec, RuntimeError, Trunk, ValueBatch, ValueRow, ValueStats,
    ValueTarget, ValueText,
};
use scaled::skip_step;

/// A value head on a trunk of its own, or on the policy's.
pub(crate) struct Critic<O: Backend> {
    policy: String,
    body: Body<O>,
    scale: Scale,
    /// Scale of the loss on a trunk of its own, if products are in f16.
    loss_scale: Option<LossScale>,
    /// Optimizer of the trunk.
    of_trunk: Optimizer<O>,
    /// Optimizer of the head, which is in host memory.
    of_head: Optimizer,
}

/// Modules of the critic that are run and differentiated.
struct Body<O: Backend> {
    spec: CriticSpec,
    ops: O,
    /// Trunk of its own; `None` if it shares the policy's, which is updated with the policy.
    trunk: Option<Model<O>>,
    head: ValueHead,
    micro_batch_tokens: usize,
    checkpointing: bool,
    pools: Pools<O>,
    /// Ranks that train the critic together.
    peers: Peers,
}

/// A text and the target of its values, in the units of the head.
struct Aimed<'a> {
    text: &'a ValueText,
    aim: ValueTarget,
}

impl<'a> Aimed<'a> {
    /// Returns a row with values in the units of the head, by the scales of its old values and of its returns.
    fn normalized_row(row: &'a ValueRow, [of_old, of_returns]: [Scale; 2]) -> Self {
        let aim = match &row.aim {
            ValueTarget::Returns { old, returns } => ValueTarget::Returns {
                old: of_old.all_normalized(old),
                returns: of_returns.all_normalized(returns),
            },
            grads @ ValueTarget::Slopes(_) => grads.clone(),
        };
        Self { text: &row.text, aim }
    }
}

impl<O: Backend> Critic<O> {
    /// Creates the critic of a policy. `bases` are the policy's model without its adapter, on the device and as it was
    /// loaded.
    pub(crate) fn new(
        spec: &CriticSpec,
        policy: &PolicySpec,
        (base, loaded): (&Model<O>, &Model),
        (seed, loss_scale, micro_batch_tokens): (u64, Option<LossScale>, usize),
        (pools, peers): (Pools<O>, Peers),
    ) -> Result<Self, ModelError> {
        let ops = base.decoder.ops();
        let loss_scale = loss_scale.filter(|_| spec.trunk != Trunk::Shared);
        let trunk = match spec.trunk {
            Trunk::Shared => None,
            Trunk::Own => Some(ops.load(loaded.duplicate()?, true)?),
            Trunk::Lora => {
                let adapter = Adapter::new(&base.config, spec.lora.on(&base.config), seed)?;
                Some(base.with_adapter(adapter.on(ops, true)?))
            }
        };
        let head = ValueHead::new(spec.head, &base.config);
        let params = match &trunk {
            Some(trunk) => trunk.trainable().clone(),
            None => Params::default().on(ops, false)?,
        };
        let of_trunk = Optimizer::new(ops, spec.optim, params, peers.clone())?;
        let params = head.params().clone();
        let of_head = Optimizer::new(&Cpu::default(), spec.optim, params, peers.on_host())?;
        let checkpointing = policy.gradient_checkpointing;
        let (spec, ops) = (spec.clone(), ops.clone());
        let body = Body { spec, ops, trunk, head, micro_batch_tokens, checkpointing, pools, peers };
        let (policy, scale) = (policy.name.clone(), Scale::default());
        Ok(Self { policy, body, scale, loss_scale, of_trunk, of_head })
    }

    /// Computes the values of texts, each `[places]`, in units of the reward.
    pub(crate) fn values(
        &self,
        policy: &Model<O>,
        texts: &[ValueText],
    ) -> Result<Vec<Vec<f32>>, RuntimeError> {
        let Body { trunk, head, .. } = &self.body;
        let decoder = &trunk.as_ref().unwrap_or(policy).decoder;
        let values = self.all_lists(&pass::pass_of_texts(head, texts.iter()), |packed, pool| {
            let values = pass::values(head, decoder, packed, pool)?.into_iter();
            Ok(values.map(|value| self.scale.value(value)).collect())
        });
        values.map_err(|error| self.failed_pass(&error))
    }

    /// Computes the state of texts, each `[D]`: the trunk's hidden state at the position of the first value.
    pub(crate) fn states(
        &self,
        policy: &Model<O>,
        texts: &[ValueText],
    ) -> Result<Vec<Vec<f32>>, RuntimeError> {
        let Body { trunk, ops, .. } = &self.body;
        let decoder = &trunk.as_ref().unwrap_or(policy).decoder;
        let states = self.all_lists(&pass::pass_of_states(texts.iter()), |packed, pool| {
            Ok(ops.read(&packed.hidden(decoder, pool)?)?.into_owned())
        });
        states.map_err(|error| self.failed_pass(&error))
    }

    /// Computes [`PassTexts::lists`] of a pass.
    fn all_lists(
        &self,
        pass: &PassTexts<'_>,
        compute: impl Fn(&PackedRows, &mut Pool<O>) -> Result<Vec<f32>, ModelError>,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let Body { micro_batch_tokens, pools, peers, .. } = &self.body;
        let mut pool = pools.lend();
        pass.lists(peers, *micro_batch_tokens, |packed, _| compute(packed, &mut pool))
    }

    /// Trains a critic with a trunk of its own: `epochs` passes, each in `minibatches` optimizer steps.
    pub(crate) fn update(&mut self, batch: &ValueBatch) -> Result<ValueStats, RuntimeError> {
        let agreed = self.body.peers.agree(|| batch.checksum(), &self.policy);
        agreed.map_err(|error| self.failed_pass(&error))?;
        let rows = self.aim(batch).map_err(|error| self.failed_pass(&error))?;
        let mut totals = CriticTotals::default();
        for _ in 0..batch.epochs {
            for part in 0..batch.minibatches {
                let rows: Vec<&Aimed<'_>> =
                    rows.iter().skip(part).step_by(batch.minibatches).collect();
                if !rows.is_empty() {
                    self.step(&rows, batch.lr, &mut totals)?;
                }
            }
        }
        if let Some(trunk) = &self.body.trunk {
            let same = self.body.peers.compare(&self.body.ops, trunk.trainable(), &self.policy);
            same.map_err(|error| self.failed_pass(&error))?;
        }
        let (likelihood, shared) = (self.body.head.likelihood(), Some(totals.tokens.into()));
        let loss_scale = self.loss_scale.as_ref().map(LossScale::stats);
        Ok(ValueStats { likelihood, shared, loss_scale, ..totals.stats(batch) })
    }

    /// Updates the scale with the batch's returns, and converts all targets to it.
    fn aim<'a>(&mut self, batch: &'a ValueBatch) -> Result<Vec<Aimed<'a>>, ModelError> {
        let before = self.scale;
        if self.body.spec.normalize != Normalize::None {
            let returns = batch.rows.iter().flat_map(|row| match &row.aim {
                ValueTarget::Returns { returns, .. } => returns.as_slice(),
                ValueTarget::Slopes(_) => &[],
            });
            self.scale.update(&returns.map(|&value| f64::from(value)).collect::<Vec<_>>());
        }
        // Without PopArt the head's current outputs are still in the old scale.
        let head_scale = match self.body.spec.normalize {
            Normalize::Popart => {
                let (by, plus) = self.scale.preserving(&before);
                self.body.head.rescale(by, plus);
                self.scale
            }
            Normalize::None | Normalize::Running => before,
        };
        let scales = [head_scale, self.scale];
        Ok(batch.rows.iter().map(|row| Aimed::normalized_row(row, scales)).collect())
    }

    fn step(
        &mut self,
        rows: &[&Aimed<'_>],
        lr: f64,
        totals: &mut CriticTotals,
    ) -> Result<(), RuntimeError> {
        let scale = self.loss_scale;
        let found = self.body.gradients(&mut self.of_trunk, rows, scale.as_ref(), totals);
        let (of_trunk, of_head) = found.map_err(|error| failed_critic(&self.policy, &error))?;
        let norms = self.body.peers.norm(&self.body.ops, &of_trunk).and_then(|trunk| {
            let head = of_head.norm(&Cpu::default())?;
            Ok(libm::hypot(trunk, head))
        });
        let factor = factor_of(scale.as_ref());
        let norm = norms.map_err(|error| failed_critic(&self.policy, &error))? / f64::from(factor);
        if !totals.value.loss.is_finite() || !norm.is_finite() {
            totals.skipped += 1;
            return skip_step(&mut self.loss_scale, &self.policy, [totals.value.loss, norm]);
        }
        self.loss_scale.iter_mut().for_each(LossScale::count_step);
        totals.grad_norm += norm;
        totals.steps += 1;
        let Self { of_trunk: trunk, of_head: head, .. } = self;
        let head_lr = lr * self.body.spec.head_rate;
        let norm = (norm, factor);
        let applied =
            trunk.apply(of_trunk, lr, norm).and_then(|()| head.apply(of_head, head_lr, norm));
        applied.map_err(|error| failed_critic(&self.policy, &error))
    }

    fn failed_pass(&self, error: &ModelError) -> RuntimeError {
        failed_critic(&self.policy, error)
    }
}

impl<O: Backend> Body<O> {
    /// Computes the gradients of one optimizer step, of the trunk's variables and of the head's, times the scale of the loss.
    fn gradients(
        &self,
        optimizer: &mut Optimizer<O>,
        rows: &[&Aimed<'_>],
        scale: Option<&LossScale>,
        CriticTotals { value: sums, tokens, .. }: &mut CriticTotals,
    ) -> Result<(Gradients<'_, O>, Gradients<'_>), ModelError> {
        let Some(trunk) = &self.trunk else {
            return Err(ModelError::wrong_argument(
                "a critic on the policy's trunk is updated with it",
            ));
        };
        let mut of_trunk = optimizer.gradients(trunk.trainable())?;
        let mut of_head = Gradients::new(self.head.params());
        // No value of a hidden state depends on a separate output head.
        if self.head.kind() != HeadKind::Likelihood {
            let mut vars = trunk.trainable().vars().iter();
            of_trunk.mark_unused(vars.position(|(name, _)| name == trunk.config.names.head));
        } else if self.peers.size() > 1 {
            of_trunk.separate_embedding(&self.ops, trunk.decoder.tied_slot())?;
        }
        let mut pool = self.pools.lend();
        let before = self.peers.channel().map(|_| std::mem::take(sums));
        let weight = weight(rows);
        let pass = pass::pass_of_texts(&self.head, rows.iter().map(|row| row.text));
        let own = self.peers.share(&pass.rank_units(self.peers.size()));
        let mut counts = pass.counts();
        for micro in pass.micro_batches(own, self.micro_batch_tokens) {
            let now: Vec<&Aimed<'_>> = micro.iter().map(|&row| rows[row]).collect();
            let packed = pass.pack(micro);
            counts.computed += packed.tokens() as u64;
            let tape = Tape::record(&trunk.decoder, packed.rows(), self.checkpointing, &mut pool)?;
            pass::backward(
                &self.head,
                &trunk.decoder,
                (&packed, tape),
                |rows, values| {
                    let mut grads = all_grads(&now[rows], values, weight, self.spec.limits, sums);
                    scale_slopes(scale, &mut grads);
                    grads
                },
                (&mut of_trunk, &mut of_head),
                &mut pool,
            )?;
        }
        counts.computed = self.peers.count(counts.computed)?;
        *tokens += counts;
        if let Some(before) = before {
            self.peers.combine(&self.ops, &mut of_trunk)?;
            self.peers.on_host().combine(&Cpu::default(), &mut of_head)?;
            let all = self.peers.value_loss(*sums)?;
            *sums = before;
            *sums += all;
        }
        Ok((of_trunk, of_head))
    }
}

fn failed_critic(policy: &str, error: &ModelError) -> RuntimeError {
    error.clone().in_worker(policy)
}

/// Returns the weight of each value in an optimizer step.
fn weight(rows: &[&Aimed<'_>]) -> f64 {
    1.0 / rows.iter().map(|row| row.text.places).sum::<usize>().max(1) as f64
}

impl Aimed<'_> {
    /// Computes the derivatives of the loss by the values `[places]`.
    fn grads(
        &self,
        values: &[f32],
        weight: f64,
        limits: ValueLimits,
        sums: &mut ValueLoss,
    ) -> Vec<f32> {
        match &self.aim {
            ValueTarget::Slopes(grads) => grads.clone(),
            ValueTarget::Returns { old, returns } => {
                let mut grads = vec![0.0; values.len()];
                *sums += value_loss([values, old, returns], weight, limits, &mut grads);
                grads
            }
        }
    }
}

/// Computes the derivatives of the loss by the values of rows, which follow each other.
fn all_grads(
    rows: &[&Aimed<'_>],
    mut values: &[f32],
    weight: f64,
    limits: ValueLimits,
    sums: &mut ValueLoss,
) -> Vec<f32> {
    let mut grads = Vec::new();
    for row in rows {
        let (own, others) = values.split_at(row.text.places);
        values = others;
        grads.extend(row.grads(own, weight, limits, sums));
    }
    grads
}

/// Sums for [`ValueStats`].
#[derive(Default)]
struct CriticTotals {
    value: ValueLoss,
    /// Tokens of the optimizer steps, unless they are the policy's.
    tokens: PassTokens,
    grad_norm: f64,
    steps: u64,
    /// Optimizer steps that were skipped.
    skipped: u64,
}

impl CriticTotals {
    fn stats(&self, batch: &ValueBatch) -> ValueStats {
        let [all, steps] = [self.steps + self.skipped, self.steps].map(|count| count.max(1) as f64);
        ValueStats {
            loss: self.value.loss / all,
            clip_frac: self.value.clipped as f64 / self.value.values.max(1) as f64,
            grad_norm: self.grad_norm / steps,
            optimizer_steps: self.steps,
            skipped_steps: self.skipped,
            loss_scale: None,
            rows: batch.rows.len() as u64,
            values: batch.rows.iter().map(|row| row.text.places as u64).sum(),
            shared: None,
            likelihood: None,
        }
    }
}

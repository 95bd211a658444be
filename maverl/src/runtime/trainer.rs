//! One policy's optimizer: packed micro-batches, accumulated gradients, AdamW. It has moments and gradients of what the
//! policy may change, and of nothing else: a base under an adapter costs neither.

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, InplaceOp1, Layout, Tensor, Var, bail};
use maverl_kernels::adamw::{AdamW, adamw_step};
use maverl_kernels::sample::mix;

use crate::algo::loss;
use crate::config::Kl;
use crate::model::save::{self, Entry};
use crate::model::values::{tensor, with_values};
use crate::model::weights::Shards;
use crate::model::{Decoder, Gradients, Model, ModelError, Pool, Tape, lora};
use crate::plan::{OptimPlan, PolicyPlan};
use crate::runtime::packed::{Packed, micro_batches};
use crate::runtime::totals::{Totals, dot};
use crate::runtime::{Batch, Objective, Row, RuntimeError, UpdateStats};

/// Moments and counters of one policy, and the frozen copy its KL is taken to.
pub(crate) struct Trainer {
    policy: String,
    optim: OptimPlan,
    /// From which dropout masks derive.
    seed: u64,
    micro_batch_tokens: usize,
    checkpointing: bool,
    /// Activations; every trainer of a worker uses the same, one after the other.
    pool: Arc<Mutex<Pool>>,
    moments: Vec<(Vec<f32>, Vec<f32>)>,
    optimizer_step: u64,
    reference: Option<Decoder>,
    /// Updates applied: what RT-2 hands out.
    pub(crate) version: u64,
}

impl Trainer {
    pub(crate) fn new(
        plan: &PolicyPlan,
        model: &Model,
        seed: u64,
        micro_batch_tokens: usize,
        pool: Arc<Mutex<Pool>>,
    ) -> Result<Self, ModelError> {
        let zeros = |var: &Var| vec![0.0; var.elem_count()];
        let moments = match plan.trained {
            true => model.trainable().iter().map(|(_, var)| (zeros(var), zeros(var))).collect(),
            false => Vec::new(),
        };
        let reference = match plan.reference {
            true => Some(model.duplicate()?.decoder),
            false => None,
        };
        let (policy, optim) = (plan.name.clone(), plan.optim);
        Ok(Self {
            policy,
            optim,
            seed,
            micro_batch_tokens,
            checkpointing: plan.gradient_checkpointing,
            pool,
            moments,
            optimizer_step: 0,
            reference,
            version: 0,
        })
    }

    /// Trains on a batch: `epochs` passes, each in `minibatches` optimizer steps.
    ///
    /// A loss or gradient that is not finite ends it before the optimizer step it would have entered.
    pub(crate) fn update(
        &mut self,
        model: &Model,
        batch: &Batch,
    ) -> Result<UpdateStats, RuntimeError> {
        let mut totals = Totals::default();
        for _ in 0..batch.epochs {
            for part in 0..batch.minibatches {
                let rows: Vec<&Row> =
                    batch.rows.iter().skip(part).step_by(batch.minibatches).collect();
                if !rows.is_empty() {
                    self.optimizer_step(model, batch, &rows, &mut totals)?;
                }
            }
        }
        self.version += 1;
        Ok(totals.stats(batch, self.version))
    }

    fn optimizer_step(
        &mut self,
        model: &Model,
        batch: &Batch,
        rows: &[&Row],
        totals: &mut Totals,
    ) -> Result<(), RuntimeError> {
        let lengths: Vec<usize> = rows.iter().map(|row| row.completion.len()).collect();
        let weights = loss::token_weights(&lengths, batch.aggregation);
        let pool = Arc::clone(&self.pool);
        let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gradients = Gradients::new(model.trainable());
        let (mut row_at, mut token_at) = (0, 0);
        for micro in micro_batches(rows, self.micro_batch_tokens) {
            let rows = &rows[row_at..row_at + micro];
            let tokens: usize = rows.iter().map(|row| row.completion.len()).sum();
            let weights = &weights[token_at..token_at + tokens];
            let micro = Micro { rows, weights, packed: Packed::new(rows), first_row: row_at };
            self.accumulate(model, batch.objective, &micro, &mut gradients, totals, &mut pool)
                .map_err(|error| self.failed(&error))?;
            (row_at, token_at) = (row_at + rows.len(), token_at + tokens);
        }
        let norm = gradients.norm();
        if !totals.loss.is_finite() || !norm.is_finite() {
            let what = if totals.loss.is_finite() { "the gradient" } else { "the loss" };
            return Err(RuntimeError::NotFinite {
                policy: self.policy.clone(),
                what: what.to_owned(),
            });
        }
        totals.grad_norm += norm;
        totals.steps += 1;
        let sums = gradients.sums().map_err(|error| self.failed(&error))?;
        self.apply(model, batch.lr, norm, sums).map_err(|error| self.failed(&error.into()))
    }

    /// Adds the gradient of one micro-batch; losses are sums over tokens times their weights, so any split adds up.
    fn accumulate(
        &self,
        model: &Model,
        objective: Objective,
        micro: &Micro<'_>,
        gradients: &mut Gradients<'_>,
        totals: &mut Totals,
        pool: &mut Pool,
    ) -> Result<(), ModelError> {
        let decoder = self.decoder(model, micro);
        let packed = &micro.packed;
        let tape = Tape::record(&decoder, packed.rows(), self.checkpointing, pool)?;
        let hidden = packed.predicting(tape.hidden());
        let (targets, inv_temperature) = (&packed.targets, &packed.inv_temperature);
        let (logp, entropy) = decoder.logprobs(&hidden, targets, inv_temperature)?;
        let m = targets.len();
        let out = Var::from_tensor(&tensor([logp, entropy].concat(), (2, m))?)?;
        let mut found = self.loss(objective, micro, &out, totals, pool)?.backward()?;
        let Some(dout) = found.remove(&out) else {
            return Err(ModelError("the loss does not depend on the log-probs".to_owned()));
        };
        let dhidden = with_values(&dout, |dout| {
            let (dlogp, dentropy) = dout.split_at(m);
            let dout = [dlogp, dentropy];
            decoder.logprobs_backward(&hidden, targets, inv_temperature, dout, gradients)
        })?;
        tape.backward(&packed.spread(&dhidden), gradients, pool);
        Ok(())
    }

    /// The loss of one micro-batch, from log-probs and entropies `[2, M]`.
    fn loss(
        &self,
        objective: Objective,
        micro: &Micro<'_>,
        out: &Tensor,
        totals: &mut Totals,
        pool: &mut Pool,
    ) -> Result<Tensor, ModelError> {
        let (logp, entropy) = (out.get(0)?, out.get(1)?);
        let weights = vector(micro.weights.to_vec())?;
        let token_loss = match objective {
            Objective::Supervised => {
                totals.supervised(&logp, &entropy, &weights)?;
                logp.neg()?
            }
            Objective::PolicyGradient => {
                self.policy_loss(micro, [&logp, &entropy, &weights], totals, pool)?
            }
        };
        let loss = (token_loss * weights)?.sum_all()?;
        totals.loss += f64::from(loss.to_scalar::<f32>()?);
        Ok(loss)
    }

    /// The decoder to train with: with dropout, if the adapter has any. Its mask is a function of the seed, the optimizer
    /// step, the row and the position, so that no split into micro-batches changes it.
    fn decoder<'m>(&self, model: &'m Model, micro: &Micro<'_>) -> Cow<'m, Decoder> {
        let dropout = model.adapter().map_or(0.0, |adapter| adapter.config().dropout);
        if dropout == 0.0 {
            return Cow::Borrowed(&model.decoder);
        }
        let step = mix(self.seed, self.optimizer_step);
        let keys = micro.packed.keys(step, micro.first_row).into();
        Cow::Owned(lora::with_dropout(&model.decoder, dropout, &keys))
    }

    /// Surrogate, KL and entropy terms per token `[M]`.
    fn policy_loss(
        &self,
        Micro { rows, packed, .. }: &Micro<'_>,
        [logp, entropy, weights]: [&Tensor; 3],
        totals: &mut Totals,
        pool: &mut Pool,
    ) -> Result<Tensor, ModelError> {
        let per_token = |value: &dyn Fn(&Row) -> f32| -> Vec<f32> {
            rows.iter()
                .flat_map(|row| std::iter::repeat_n(value(row), row.completion.len()))
                .collect()
        };
        let old: Vec<f32> = rows.iter().flat_map(|row| row.logprobs.iter().copied()).collect();
        let advantages = per_token(&|row| row.advantage);
        let low = per_token(&|row| row.loss.clip_low);
        let high = per_token(&|row| row.loss.clip_high);
        let dual = per_token(&|row| row.loss.clip_dual);
        with_values(logp, |logp| {
            totals.surrogate += loss::surrogate_stats(logp, &old, &advantages, &low, &high, &dual);
            if totals.steps == 0 {
                totals.mismatch(logp, &old);
            }
        })?;
        let surrogate = loss::clipped_surrogate(
            logp,
            &vector(old)?,
            &vector(advantages)?,
            &vector(low)?,
            &vector(high)?,
            &vector(dual)?,
        )?;
        totals.weighted(&surrogate, entropy, weights)?;
        let mut total = surrogate;
        let entropy_coef = per_token(&|row| row.loss.entropy_coef);
        if entropy_coef.iter().any(|&c| c != 0.0) {
            total = (total - (entropy * vector(entropy_coef)?)?)?;
        }
        if let Some(reference) = &self.reference {
            let reference = vector(packed.logprobs(reference, pool)?)?;
            for kind in [Kl::K1, Kl::K2, Kl::K3] {
                let coef =
                    per_token(&|row| if row.loss.kl == kind { row.loss.kl_coef } else { 0.0 });
                if coef.iter().any(|&c| c != 0.0) {
                    let kl = loss::kl(kind, logp, &reference)?;
                    totals.kl += dot(&kl, weights)?;
                    total = (total + (kl * vector(coef)?)?)?;
                }
            }
        }
        Ok(total)
    }

    fn apply(
        &mut self,
        model: &Model,
        lr: f64,
        norm: f64,
        gradients: &[Vec<f32>],
    ) -> candle_core::Result<()> {
        self.optimizer_step += 1;
        let OptimPlan { betas: (beta1, beta2), eps, weight_decay, grad_clip, .. } = self.optim;
        let adamw = AdamW { lr, beta1, beta2, eps, weight_decay };
        let scale = (grad_clip / (norm + 1e-6)).min(1.0) as f32;
        for (((_, var), grad), moments) in
            model.trainable().iter().zip(gradients).zip(&mut self.moments)
        {
            let step = self.optimizer_step;
            var.inplace_op1(&Step { adamw, step, scale, grad, moments: RefCell::new(moments) })?;
        }
        Ok(())
    }

    /// Writes moments and counters into `dir/optimizer.safetensors`.
    pub(crate) fn save(&self, model: &Model, dir: &Path) -> Result<(), ModelError> {
        let counters = halves(self.optimizer_step, self.version);
        let mut entries = vec![Entry::slice("counters", &[4], &counters)];
        for ((name, var), (m, v)) in model.trainable().iter().zip(&self.moments) {
            entries.push(Entry::slice(format!("m.{name}"), var.dims(), m));
            entries.push(Entry::slice(format!("v.{name}"), var.dims(), v));
        }
        save::one_file(&dir.join("optimizer.safetensors"), &entries)
    }

    /// Reads weights, moments and counters back from a directory that was saved.
    pub(crate) fn load(&mut self, model: &Model, dir: &Path) -> Result<(), ModelError> {
        model.restore(dir)?;
        let saved = Shards::open_file(&dir.join("optimizer.safetensors"))?;
        let values = |name: &str| -> Result<Vec<f32>, ModelError> {
            Ok(saved.tensor(name)?.flatten_all()?.to_vec1()?)
        };
        (self.optimizer_step, self.version) = whole(&values("counters")?);
        for ((name, _), (m, v)) in model.trainable().iter().zip(&mut self.moments) {
            *m = values(&format!("m.{name}"))?;
            *v = values(&format!("v.{name}"))?;
        }
        Ok(())
    }

    fn failed(&self, error: &ModelError) -> RuntimeError {
        RuntimeError::Model { worker: self.policy.clone(), message: error.0.clone() }
    }
}

/// Rows that go through the model together.
struct Micro<'a> {
    rows: &'a [&'a Row],
    /// Of each completion token, in the loss.
    weights: &'a [f32],
    packed: Packed,
    /// The place of the first row in the minibatch.
    first_row: usize,
}

/// Two counters as four f32 that hold 24 bits each exactly.
fn halves(a: u64, b: u64) -> Vec<f32> {
    [a >> 24, a & 0xff_ffff, b >> 24, b & 0xff_ffff].iter().map(|&half| half as f32).collect()
}

fn whole(halves: &[f32]) -> (u64, u64) {
    let at = |i: usize| halves.get(i).map_or(0, |&half| half as u64);
    (at(0) << 24 | at(1), at(2) << 24 | at(3))
}

/// One AdamW step on a variable's own storage: rollout sees it at once.
struct Step<'a> {
    adamw: AdamW,
    step: u64,
    scale: f32,
    grad: &'a [f32],
    moments: RefCell<&'a mut (Vec<f32>, Vec<f32>)>,
}

impl InplaceOp1 for Step<'_> {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let (CpuStorage::F32(values), Some((start, end))) = (storage, layout.contiguous_offsets())
        else {
            bail!("adamw: a contiguous f32 variable is needed");
        };
        let mut moments = self.moments.borrow_mut();
        let (m, v) = &mut **moments;
        adamw_step(&self.adamw, self.step, self.scale, &mut values[start..end], self.grad, m, v);
        Ok(())
    }
}

fn vector(values: Vec<f32>) -> candle_core::Result<Tensor> {
    let len = values.len();
    tensor(values, len)
}

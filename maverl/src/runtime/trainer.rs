//! One policy's optimizer: packed micro-batches, accumulated gradients, AdamW. It has moments and gradients of what the
//! policy may change, and of nothing else: a base under an adapter costs neither.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, InplaceOp1, Layout, Var, bail};
use maverl_kernels::adamw::{AdamW, adamw_step};
use maverl_kernels::sample::mix;

use crate::algo::loss::{self, PolicyLoss, RowTokens};
use crate::model::save::{self, Entry};
use crate::model::weights::Shards;
use crate::model::{Decoder, Gradients, Model, ModelError, Pool, Tape, lora};
use crate::plan::{OptimPlan, PolicyPlan};
use crate::runtime::packed::{Packed, micro_batches};
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
            let before = totals.policy;
            for part in 0..batch.minibatches {
                let rows: Vec<&Row> =
                    batch.rows.iter().skip(part).step_by(batch.minibatches).collect();
                if !rows.is_empty() {
                    self.optimizer_step(model, batch, &rows, &mut totals)?;
                }
            }
            let tokens = (totals.policy.tokens - before.tokens).max(1) as f64;
            let kl = (totals.policy.ppo_kl - before.ppo_kl) / tokens;
            if batch.target_kl > 0.0 && kl > batch.target_kl {
                break;
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
        let weights = loss::token_weights(&lengths, batch.aggregation, batch.longest);
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
        if !totals.policy.loss.is_finite() || !norm.is_finite() {
            let what = if totals.policy.loss.is_finite() { "the gradient" } else { "the loss" };
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
        let reference = match (&self.reference, objective) {
            (Some(reference), Objective::PolicyGradient) => Some(packed.logprobs(reference, pool)?),
            _ => None,
        };
        let loss = |rows, given: [&[f32]; 2], derivatives: [&mut [f32]; 2]| {
            micro.loss(objective, rows, given, reference.as_deref(), derivatives, totals);
            Ok(())
        };
        let Packed { targets, inv_temperature, completions, .. } = packed;
        let dhidden =
            decoder.loss(&hidden, targets, inv_temperature, completions, loss, gradients)?;
        tape.backward(&packed.spread(&dhidden), gradients, pool);
        Ok(())
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

impl Micro<'_> {
    /// The losses of some rows, and their derivatives by the log-probs and entropies of the rows' completion tokens.
    fn loss(
        &self,
        objective: Objective,
        rows: Range<usize>,
        [logp, entropy]: [&[f32]; 2],
        reference: Option<&[f32]>,
        [d_logp, d_entropy]: [&mut [f32]; 2],
        totals: &mut Totals,
    ) {
        let completions = &self.packed.completions;
        let start = completions[rows.start];
        for row in rows {
            let all = completions[row]..completions[row + 1];
            let here = all.start - start..all.end - start;
            let row = self.rows[row];
            let tokens = RowTokens {
                logp: &logp[here.clone()],
                entropy: &entropy[here.clone()],
                old: &row.logprobs,
                reference: reference.map(|reference| &reference[all.clone()]),
                weights: &self.weights[all],
            };
            let (d_logp, d_entropy) = (&mut d_logp[here.clone()], &mut d_entropy[here]);
            if totals.steps == 0 && objective == Objective::PolicyGradient {
                totals.mismatch(tokens.logp, tokens.old);
            }
            totals.policy += match objective {
                Objective::Supervised => loss::log_likelihood(&tokens, d_logp),
                Objective::PolicyGradient => {
                    loss::policy_gradient(&tokens, row.advantage, &row.loss, d_logp, d_entropy)
                }
            };
        }
    }
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

/// Sums that become [`UpdateStats`].
#[derive(Default)]
struct Totals {
    policy: PolicyLoss,
    grad_norm: f64,
    mismatch: f64,
    mismatch_max: f64,
    mismatch_tokens: u64,
    steps: u64,
}

impl Totals {
    /// |trainer - rollout| of the tokens seen before the first optimizer step.
    fn mismatch(&mut self, logp: &[f32], old: &[f32]) {
        for difference in logp.iter().zip(old).map(|(a, b)| f64::from((a - b).abs())) {
            self.mismatch += difference;
            self.mismatch_max = self.mismatch_max.max(difference);
            self.mismatch_tokens += 1;
        }
    }

    fn stats(&self, batch: &Batch, version: u64) -> UpdateStats {
        let steps = self.steps.max(1) as f64;
        let sums = &self.policy;
        let tokens = sums.tokens.max(1) as f64;
        let [low, high, dual] = sums.clipped.map(|clipped| clipped as f64 / tokens);
        UpdateStats {
            loss: sums.loss / steps,
            pg_loss: sums.surrogate / steps,
            kl: sums.kl / steps,
            entropy: sums.entropy / steps,
            clip_frac_low: low,
            clip_frac_high: high,
            clip_frac_dual: dual,
            ppo_kl: sums.ppo_kl / tokens,
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

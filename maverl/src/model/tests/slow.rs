//! The fused operations against the same model in plain operations of candle, one row after the other, with its autograd. The
//! plain ones are in f64: in f32 their own rounding moves twenty steps of qwen3 by 1.3e-4.

use std::collections::BTreeMap;

use candle_core::{D, IndexOp, Result};
use maverl_kernels::adamw::{AdamW, adamw_step};

use super::*;
use crate::model::values::{tensor, with_values};

const STEPS: u64 = 20;
const ADAMW: AdamW = AdamW { lr: 3e-4, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };

/// A decoder without one fused operation: weights by name.
struct Slow<'m> {
    config: &'m HfConfig,
    weights: BTreeMap<&'m str, Var>,
}

impl<'m> Slow<'m> {
    fn new(model: &'m Model) -> Self {
        let own =
            |var: &Var| Var::from_tensor(&var.as_tensor().to_dtype(DType::F64).unwrap()).unwrap();
        let weights = model.weights.vars().iter().map(|(name, var)| (name.as_str(), own(var)));
        Self { config: &model.config, weights: weights.collect() }
    }

    fn get(&self, name: &str) -> Option<&Tensor> {
        self.weights.get(name).map(Var::as_tensor)
    }

    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let Some(weight) = self.get(&format!("{name}.weight")) else { return Ok(x.clone()) };
        let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
        let inverse = (mean + f64::from(self.config.rms_norm_eps))?.sqrt()?.recip()?;
        x.broadcast_mul(&inverse)?.broadcast_mul(weight)
    }

    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let y = x.matmul(&self.get(&format!("{name}.weight")).unwrap().t()?)?;
        match self.get(&format!("{name}.bias")) {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }

    /// The heads of `x [T, H * d]`, normalized if there is a norm, and rotated: `[H, T, d]`.
    fn heads(&self, x: &Tensor, norm: Option<&str>, rotate: bool) -> Result<Tensor> {
        let (tokens, dim) = (x.dim(0)?, self.config.head_dim);
        let mut x = x.reshape((tokens, (), dim))?.transpose(0, 1)?.contiguous()?;
        if let Some(norm) = norm {
            x = self.norm(&x, norm)?;
        }
        if !rotate {
            return Ok(x);
        }
        let inverse = self.config.rope.inv_freq(dim);
        let angles =
            (0..tokens).flat_map(|t| inverse.iter().map(move |f| t as f64 * f64::from(*f)));
        let (cos, sin): (Vec<f64>, Vec<f64>) =
            angles.map(|angle| (angle.cos(), angle.sin())).unzip();
        let table = |of| Tensor::from_vec(of, (tokens, dim / 2), &Device::Cpu);
        let (cos, sin) = (table(cos)?, table(sin)?);
        let (low, high) = (x.narrow(2, 0, dim / 2)?, x.narrow(2, dim / 2, dim / 2)?);
        let first = (low.broadcast_mul(&cos)? - high.broadcast_mul(&sin)?)?;
        let second = (high.broadcast_mul(&cos)? + low.broadcast_mul(&sin)?)?;
        Tensor::cat(&[first, second], 2)
    }

    fn attention(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let of = |part: &str| self.linear(x, &format!("{name}.{part}_proj"));
        let [q_norm, k_norm] = ["q", "k"].map(|part| format!("{name}.{part}_norm"));
        let q = self.heads(&of("q")?, Some(&q_norm), true)?;
        let k = self.heads(&of("k")?, Some(&k_norm), true)?;
        let v = self.heads(&of("v")?, None, false)?;
        let (tokens, group) = (x.dim(0)?, q.dim(0)? / k.dim(0)?);
        let heads: Vec<Tensor> = (0..q.dim(0)?)
            .map(|head| {
                let scores = q.i(head)?.matmul(&k.i(head / group)?.t()?)?;
                let scores = (scores / (self.config.head_dim as f64).sqrt())?;
                let hidden = (0..tokens * tokens)
                    .map(|at| if at % tokens > at / tokens { f64::NEG_INFINITY } else { 0.0 });
                let mask = Tensor::from_iter(hidden, &Device::Cpu)?.reshape((tokens, tokens))?;
                log_softmax(&(scores + mask)?)?.exp()?.matmul(&v.i(head / group)?)
            })
            .collect::<Result<_>>()?;
        self.linear(&Tensor::cat(&heads, 1)?, &format!("{name}.o_proj"))
    }

    /// The log-probs `[T, V]` after each token of a row.
    fn forward(&self, ids: &[u32]) -> Result<Tensor> {
        let embed = self.get("model.embed_tokens.weight").unwrap();
        let mut x = embed.index_select(&Tensor::new(ids, &Device::Cpu)?, 0)?;
        for layer in 0..self.config.num_hidden_layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            let h = self.norm(&x, &name("input_layernorm"))?;
            x = (x + self.attention(&h, &name("self_attn"))?)?;
            let h = self.norm(&x, &name("post_attention_layernorm"))?;
            let gate = self.linear(&h, &name("mlp.gate_proj"))?;
            let gate = (&gate / (gate.neg()?.exp()? + 1.0)?)?;
            let act = (gate * self.linear(&h, &name("mlp.up_proj"))?)?;
            x = (x + self.linear(&act, &name("mlp.down_proj"))?)?;
        }
        let head = self.get("lm_head.weight").unwrap_or(embed);
        log_softmax(&self.norm(&x, "model.norm")?.matmul(&head.t()?)?)
    }

    /// The negative mean log-prob of every next token, as the gradient of each weight, by name.
    fn gradients(&self, rows: &[Vec<u32>]) -> Result<Vec<Vec<f64>>> {
        let next: usize = rows.iter().map(|row| row.len() - 1).sum();
        let mut loss = Tensor::new(0.0_f64, &Device::Cpu)?;
        for row in rows {
            let targets = Tensor::new(&row[1..], &Device::Cpu)?.unsqueeze(1)?;
            let logp = self.forward(&row[..row.len() - 1])?.gather(&targets, 1)?;
            loss = (loss - (logp.sum_all()? / next as f64)?)?;
        }
        let gradients = loss.backward()?;
        let of = |var: &Var| values(gradients.get(var).unwrap());
        self.weights.values().map(of).collect()
    }
}

fn log_softmax(x: &Tensor) -> Result<Tensor> {
    let x = x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())?;
    let sum = x.exp()?.sum_keepdim(D::Minus1)?;
    x.broadcast_sub(&sum.log()?)
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    x.flatten_all()?.to_vec1()
}

/// Trains without fused operations; the log-probs of every next token afterwards.
fn train_slowly(model: &Model, rows: &[Vec<u32>]) -> Vec<f32> {
    let slow = Slow::new(model);
    let zeros = |var: &Var| vec![(0.0, 0.0); var.elem_count()];
    let mut moments: Vec<_> = slow.weights.values().map(zeros).collect();
    for step in 1..=STEPS {
        plain_adamw(&slow, step, &slow.gradients(rows).unwrap(), &mut moments);
    }
    let logp = |row: &Vec<u32>| {
        let targets = Tensor::new(&row[1..], &Device::Cpu)?.unsqueeze(1)?;
        values(&slow.forward(&row[..row.len() - 1])?.gather(&targets, 1)?)
    };
    rows.iter().flat_map(|row| logp(row).unwrap()).map(|logp| logp as f32).collect()
}

/// One step of plain AdamW on every weight, after clipping.
fn plain_adamw(slow: &Slow<'_>, step: u64, grads: &[Vec<f64>], moments: &mut [Vec<(f64, f64)>]) {
    let squares: f64 = grads.iter().flatten().map(|g| g * g).sum();
    let scale = (1.0 / (squares.sqrt() + 1e-6)).min(1.0);
    let AdamW { lr, beta1, beta2, eps, weight_decay } = ADAMW;
    for ((var, grads), moments) in slow.weights.values().zip(grads).zip(moments) {
        let mut values = values(var.as_tensor()).unwrap();
        for ((value, grad), (m, v)) in values.iter_mut().zip(grads).zip(moments) {
            let grad = grad * scale;
            *m = beta1 * *m + (1.0 - beta1) * grad;
            *v = beta2 * *v + (1.0 - beta2) * grad * grad;
            let (m, v) =
                (*m / (1.0 - beta1.powi(step as i32)), *v / (1.0 - beta2.powi(step as i32)));
            *value = *value * (1.0 - lr * weight_decay) - lr * m / (v.sqrt() + eps);
        }
        let new = Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap();
        var.set(&new).unwrap();
    }
}

/// Trains as maverl does; the log-probs of every next token afterwards.
fn train_fused(model: &Model, rows: &[Vec<u32>]) -> Vec<f32> {
    let inputs: Vec<Vec<u32>> = rows.iter().map(|row| row[..row.len() - 1].to_vec()).collect();
    let targets: Vec<u32> = rows.iter().flat_map(|row| row[1..].iter().copied()).collect();
    let dlogp = vec![-1.0 / targets.len() as f32; targets.len()];
    let elements = model.weights.vars().iter().map(|(_, var)| var.elem_count());
    let mut moments: Vec<_> = elements.map(|n| (vec![0.0; n], vec![0.0; n])).collect();
    let packed = pack(&inputs);
    for step in 1..=STEPS {
        let gradients = gradients_of(model, &packed, &targets, &dlogp);
        let scale = (1.0 / (gradients.norm() + 1e-6)).min(1.0) as f32;
        let vars = model.weights.vars().iter().zip(gradients.sums().unwrap());
        for (((_, var), grad), (m, v)) in vars.zip(&mut moments) {
            let mut values = with_values(var.as_tensor(), <[f32]>::to_vec).unwrap();
            adamw_step(&ADAMW, step, scale, &mut values, grad, m, v);
            var.set(&tensor(values, var.shape()).unwrap()).unwrap();
        }
    }
    let (mut pool, even) = (Pool::default(), vec![1.0; targets.len()]);
    let context = Context::Packed(Packing::of(&packed.offsets));
    let hidden = model.decoder.forward(&packed.ids, &packed.positions, context, &mut pool).unwrap();
    model.decoder.logprobs(&hidden, &targets, &even).unwrap().0
}

#[test]
fn training_equals_training_with_plain_operations_and_autograd_after_twenty_steps() {
    let rows: Vec<Vec<u32>> =
        [9_u32, 2, 23, 14].map(|n| (0..n).map(|i| (i * i * 7 + 3 * n) % 60).collect()).into();
    for config in made_configs() {
        let fused = train_fused(&made(&config), &rows);
        let slow = train_slowly(&made(&config), &rows);
        let (kind, apart) = (&config["model_type"], furthest(&fused, &slow));
        println!("{kind}: after {STEPS} steps log-probs differ by at most {apart:.1e}");
        assert!(apart <= 1e-4, "{kind}: {apart:e}");
    }
}

//! Comparison of the fused operations with the same model in plain operations, one row after the other, with automatic
//! differentiation. The plain operations are in f64: in f32 their own rounding changes twenty steps of qwen3 by 1.3e-4.

use std::collections::BTreeMap;

use maverl_kernels::adamw::{AdamW, adamw_step};

use super::autograd::Matrix;
use super::*;

const STEPS: u64 = 20;
const ADAMW: AdamW = AdamW { lr: 3e-4, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };

/// A decoder without fused operations: weights by name, vectors as rows.
pub(super) struct Slow<'m> {
    config: &'m HfConfig,
    weights: BTreeMap<&'m str, Matrix>,
}

impl<'m> Slow<'m> {
    pub(super) fn new(model: &'m Model) -> Self {
        let own = |tensor: &Tensor| {
            let values = tensor.values().iter().map(|x| f64::from(*x)).collect();
            let columns = *tensor.dims().last().unwrap();
            Matrix::new(values, [tensor.elem_count() / columns, columns])
        };
        let weights = model.weights.vars().iter().map(|(name, var)| (name.as_str(), own(var)));
        Self { config: &model.config, weights: weights.collect() }
    }

    fn get(&self, name: &str) -> Option<&Matrix> {
        self.weights.get(name)
    }

    /// Returns the names of the weights, in the order of their gradients.
    pub(super) fn names(&self) -> Vec<&'m str> {
        self.weights.keys().copied().collect()
    }

    /// Adds `scale · B A` to a weight, for `A [r, I]` and `B [O, r]`.
    pub(super) fn correct(&mut self, name: &str, scale: f64, a: &[f64], b: &[f64]) {
        let weight = self.weights.get_mut(name).unwrap();
        let shape = [weight.rows(), weight.columns()];
        let [rows, rank] = [shape[0], b.len() / shape[0]];
        let a = Matrix::new(a.to_vec(), [rank, shape[1]]);
        let b = Matrix::new(b.to_vec(), [rows, rank]);
        let sum = weight.add(&b.matmul(&a).affine(scale, 0.0));
        *weight = Matrix::new(sum.values().to_vec(), shape);
    }

    fn norm(&self, x: &Matrix, name: &str) -> Matrix {
        let Some(weight) = self.get(&format!("{name}.weight")) else { return x.clone() };
        let mean = x.mul(x).sum_rows().affine((x.columns() as f64).recip(), 0.0);
        let inverse = mean.affine(1.0, f64::from(self.config.norm.eps)).sqrt().recip();
        x.mul(&inverse).mul(weight)
    }

    fn linear(&self, x: &Matrix, name: &str) -> Matrix {
        let y = x.matmul(&self.get(&format!("{name}.weight")).unwrap().transpose());
        match self.get(&format!("{name}.bias")) {
            Some(bias) => y.add(bias),
            None => y,
        }
    }

    /// Applies rotary position embedding to a head `[T, d]`.
    fn rotate(&self, x: &Matrix) -> Matrix {
        let (tokens, half) = (x.rows(), x.columns() / 2);
        let inverse = self.config.ropes[0].frequencies(2 * half).inv_freq;
        let angles =
            (0..tokens).flat_map(|t| inverse.iter().map(move |f| t as f64 * f64::from(*f)));
        let (cos, sin): (Vec<f64>, Vec<f64>) =
            angles.map(|angle| (angle.cos(), angle.sin())).unzip();
        let (cos, sin) = (Matrix::new(cos, [tokens, half]), Matrix::new(sin, [tokens, half]));
        let (low, high) = (x.narrow(0..half), x.narrow(half..2 * half));
        let first = low.mul(&cos).sub(&high.mul(&sin));
        let second = high.mul(&cos).add(&low.mul(&sin));
        Matrix::concat(&[first, second])
    }

    /// Splits a projection `[T, H * d]` into heads: `H` times `[T, d]`.
    fn heads(&self, x: &Matrix) -> Vec<Matrix> {
        let dim = self.config.heads().dim;
        (0..x.columns() / dim).map(|head| x.narrow(head * dim..(head + 1) * dim)).collect()
    }

    fn attention(&self, x: &Matrix, name: &str) -> Matrix {
        let heads = |part: &str| self.heads(&self.linear(x, &format!("{name}.{part}_proj")));
        let rotated = |part: &str| -> Vec<Matrix> {
            let norm = format!("{name}.{part}_norm");
            heads(part).iter().map(|head| self.rotate(&self.norm(head, &norm))).collect()
        };
        let (q, k, v) = (rotated("q"), rotated("k"), heads("v"));
        let (tokens, group) = (x.rows(), q.len() / k.len());
        let hidden = (0..tokens * tokens)
            .map(|at| if at % tokens > at / tokens { f64::NEG_INFINITY } else { 0.0 });
        let mask = Matrix::new(hidden.collect(), [tokens, tokens]);
        let scale = (self.config.heads().dim as f64).sqrt().recip();
        let attend = |(head, q): (usize, &Matrix)| {
            let scores = q.matmul(&k[head / group].transpose()).affine(scale, 0.0);
            scores.add(&mask).log_softmax().exp().matmul(&v[head / group])
        };
        let heads: Vec<Matrix> = q.iter().enumerate().map(attend).collect();
        self.linear(&Matrix::concat(&heads), &format!("{name}.o_proj"))
    }

    /// Computes the log-probs `[T, V]` after each token of a row.
    fn forward(&self, ids: &[u32]) -> Matrix {
        let embed = self.get("model.embed_tokens.weight").unwrap();
        let mut x = embed.select(ids);
        for layer in 0..self.config.layers.len() {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            let h = self.norm(&x, &name("input_layernorm"));
            x = x.add(&self.attention(&h, &name("self_attn")));
            let h = self.norm(&x, &name("post_attention_layernorm"));
            let gate = self.linear(&h, &name("mlp.gate_proj"));
            let gate = gate.mul(&gate.affine(-1.0, 0.0).exp().affine(1.0, 1.0).recip());
            let act = gate.mul(&self.linear(&h, &name("mlp.up_proj")));
            x = x.add(&self.linear(&act, &name("mlp.down_proj")));
        }
        let head = self.get("lm_head.weight").unwrap_or(embed);
        self.norm(&x, "model.norm").matmul(&head.transpose()).log_softmax()
    }

    /// Computes the log-probs of the next tokens of a row: `[T - 1, 1]`.
    pub(super) fn next(&self, row: &[u32]) -> Matrix {
        self.forward(&row[..row.len() - 1]).pick(&row[1..])
    }

    /// Computes the gradients of the negative mean log-prob of every next token, by the weights in the order of their
    /// names.
    pub(super) fn gradients(&self, rows: &[Vec<u32>]) -> Vec<Vec<f64>> {
        let next: usize = rows.iter().map(|row| row.len() - 1).sum();
        let losses = rows.iter().map(|row| self.next(row).sum().affine(-1.0 / next as f64, 0.0));
        let loss = losses.reduce(|sum, loss| sum.add(&loss)).unwrap();
        loss.gradients(&self.weights.values().collect::<Vec<_>>())
    }
}

/// Trains without fused operations. Returns the log-probs of every next token afterwards.
fn train_slowly(model: &Model, rows: &[Vec<u32>]) -> Vec<f32> {
    let mut slow = Slow::new(model);
    let zeros = |weight: &Matrix| vec![(0.0, 0.0); weight.values().len()];
    let mut moments: Vec<_> = slow.weights.values().map(zeros).collect();
    for step in 1..=STEPS {
        let gradients = slow.gradients(rows);
        plain_adamw(&mut slow, step, &gradients, &mut moments);
    }
    let logps = rows.iter().flat_map(|row| slow.next(row).values().to_vec());
    logps.map(|logp| logp as f32).collect()
}

/// Takes one step of plain AdamW on every weight, after clipping.
fn plain_adamw(
    slow: &mut Slow<'_>,
    step: u64,
    grads: &[Vec<f64>],
    moments: &mut [Vec<(f64, f64)>],
) {
    let squares: f64 = grads.iter().flatten().map(|g| g * g).sum();
    let scale = (1.0 / (squares.sqrt() + 1e-6)).min(1.0);
    let AdamW { lr, beta1, beta2, eps, weight_decay } = ADAMW;
    for ((weight, grads), moments) in slow.weights.values_mut().zip(grads).zip(moments) {
        let mut values = weight.values().to_vec();
        for ((value, grad), (m, v)) in values.iter_mut().zip(grads).zip(moments) {
            let grad = grad * scale;
            *m = beta1 * *m + (1.0 - beta1) * grad;
            *v = beta2 * *v + (1.0 - beta2) * grad * grad;
            let (m, v) =
                (*m / (1.0 - beta1.powi(step as i32)), *v / (1.0 - beta2.powi(step as i32)));
            *value = *value * (1.0 - lr * weight_decay) - lr * m / (v.sqrt() + eps);
        }
        *weight = Matrix::new(values, [weight.rows(), weight.columns()]);
    }
}

/// Trains with the library. Returns the log-probs of every next token afterwards.
fn train_fused(model: &Model, rows: &[Vec<u32>]) -> Vec<f32> {
    let inputs: Vec<Vec<u32>> = rows.iter().map(|row| row[..row.len() - 1].to_vec()).collect();
    let targets: Vec<u32> = rows.iter().flat_map(|row| row[1..].iter().copied()).collect();
    let dlogp = vec![-1.0 / targets.len() as f32; targets.len()];
    let elements = model.weights.vars().iter().map(|(_, var)| var.elem_count());
    let mut moments: Vec<_> = elements.map(|n| (vec![0.0; n], vec![0.0; n])).collect();
    let packed = pack(&inputs);
    for step in 1..=STEPS {
        let gradients = gradients_of(model, &packed, &targets, &dlogp);
        let scale = (1.0 / (gradients.norm(&Cpu::default()).unwrap() + 1e-6)).min(1.0) as f32;
        let vars = model.weights.vars().iter().zip(gradients.sums().unwrap());
        for (((_, var), grad), (m, v)) in vars.zip(&mut moments) {
            var.update(|values| adamw_step(&ADAMW, step, scale, values, grad, m, v));
        }
    }
    let (mut pool, even) = (Pool::default(), vec![1.0; targets.len()]);
    let context = Context::Packed(Packing::from_offsets(&packed.offsets));
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

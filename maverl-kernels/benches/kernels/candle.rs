//! Each fused operation in candle's plain operations, with its autograd.
//!
//! `candle_x` is the forward pass alone; `candle_x_bwd` is the forward pass, the sum of what it gives times a gradient, and
//! the backward pass, so it stands beside `x` and `x_bwd` together.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use criterion::Criterion;

use super::{SHAPES, Shape, random, time};

/// A composition: what it is called, the elements of its work, what it reads, and the shape of what it gives.
struct Composed<'f> {
    name: &'f str,
    work: usize,
    vars: &'f [Var],
    dy: &'f Tensor,
}

impl Composed<'_> {
    fn time(&self, c: &mut Criterion, shape: &Shape, forward: impl Fn(&[Var]) -> Result<Tensor>) {
        let Self { name, work, vars, dy } = *self;
        time(c, shape, &format!("candle_{name}"), work, || drop(forward(vars).expect("runs")));
        let both = || (forward(vars)? * dy)?.sum_all()?.backward();
        time(c, shape, &format!("candle_{name}_bwd"), work, || drop(both().expect("runs")));
    }
}

fn tensor(seed: u64, shape: &[usize]) -> Tensor {
    let values = random(seed, shape.iter().product());
    Tensor::from_vec(values, shape, &Device::Cpu).expect("as many values as the shape has")
}

fn vars<const N: usize>(shapes: [&[usize]; N]) -> [Var; N] {
    let mut seed = 10;
    shapes.map(|shape| {
        seed += 1;
        Var::from_tensor(&tensor(seed, shape)).expect("a tensor on the CPU")
    })
}

pub(super) fn compositions(c: &mut Criterion) {
    for shape in &SHAPES {
        product(c, shape);
        elementwise(c, shape);
        rope(c, shape);
        embedding(c, shape);
        attention(c, shape);
        head(c, shape);
        adamw(c, shape);
    }
}

/// `y = x w^T`, the counterpart of `matmul_nt`, `matmul_nn` and `matmul_tn`.
fn product(c: &mut Criterion, shape: &Shape) {
    let Shape { n, d, ff, .. } = *shape;
    let (vars, dy) = (vars([&[n, d], &[ff, d]]), tensor(1, &[n, ff]));
    let composed = Composed { name: "matmul", work: n * d * ff, vars: &vars, dy: &dy };
    composed.time(c, shape, |vars| vars[0].matmul(&vars[1].t()?));
}

fn elementwise(c: &mut Criterion, shape: &Shape) {
    let Shape { n, d, ff, .. } = *shape;
    let (rows, dy) = (vars([&[n, d], &[d]]), tensor(1, &[n, d]));
    let composed = Composed { name: "rms_norm", work: n * d, vars: &rows, dy: &dy };
    composed.time(c, shape, |vars| {
        let inverse = (vars[0].sqr()?.mean_keepdim(D::Minus1)? + 1e-6)?.sqrt()?.recip()?;
        vars[0].broadcast_mul(&inverse)?.broadcast_mul(&vars[1])
    });
    let (rows, dy) = (vars([&[n, ff], &[n, ff]]), tensor(1, &[n, ff]));
    let composed = Composed { name: "swiglu", work: n * ff, vars: &rows, dy: &dy };
    composed.time(c, shape, |vars| vars[0].silu()? * vars[1].as_tensor());
}

fn rope(c: &mut Criterion, shape: &Shape) {
    let Shape { n, d, heads, row, .. } = *shape;
    let dims = [n / row, heads.q, row, heads.dim];
    let (x, dy) = (vars([&dims]), tensor(1, &dims));
    let (cos, sin) = (tensor(2, &[row, heads.dim / 2]), tensor(3, &[row, heads.dim / 2]));
    let composed = Composed { name: "rope", work: n * d, vars: &x, dy: &dy };
    composed.time(c, shape, |vars| {
        let half = heads.dim / 2;
        let (low, high) = (vars[0].narrow(3, 0, half)?, vars[0].narrow(3, half, half)?);
        let first = (low.broadcast_mul(&cos)? - high.broadcast_mul(&sin)?)?;
        let second = (high.broadcast_mul(&cos)? + low.broadcast_mul(&sin)?)?;
        Tensor::cat(&[first, second], 3)
    });
}

/// The counterpart of `gather` and `scatter_add`.
fn embedding(c: &mut Criterion, shape: &Shape) {
    let Shape { n, d, vocab, .. } = *shape;
    let (table, dy) = (vars([&[vocab, d]]), tensor(1, &[n, d]));
    let ids = Tensor::from_iter((0..n).map(|i| (i * i % vocab) as u32), &Device::Cpu);
    let ids = ids.expect("a tensor on the CPU");
    let composed = Composed { name: "embedding", work: n * d, vars: &table, dy: &dy };
    composed.time(c, shape, |vars| vars[0].index_select(&ids, 0));
}

fn attention(c: &mut Criterion, shape: &Shape) {
    let Shape { n, d, heads, row, .. } = *shape;
    let (rows, group) = (n / row, heads.q / heads.kv);
    let [q, kv] = [heads.q, heads.kv].map(|heads_of| [rows, heads_of, row, heads.dim]);
    let (qkv, dy) = (vars([&q, &kv, &kv]), tensor(1, &q));
    let hidden = |at: usize| if at % row > at / row { f32::NEG_INFINITY } else { 0.0 };
    let mask = Tensor::from_iter((0..row * row).map(hidden), &Device::Cpu)
        .and_then(|mask| mask.reshape((row, row)))
        .expect("a square mask");
    let composed = Composed { name: "attention", work: n * d * row, vars: &qkv, dy: &dy };
    composed.time(c, shape, |vars| {
        let scores = vars[0].matmul(&repeat_heads(&vars[1], group)?.t()?)?;
        let scores = (scores / (heads.dim as f64).sqrt())?.broadcast_add(&mask)?;
        log_softmax(&scores)?.exp()?.matmul(&repeat_heads(&vars[2], group)?)
    });
}

/// Repeats each key head for the query heads that share it.
fn repeat_heads(x: &Tensor, group: usize) -> Result<Tensor> {
    let (rows, heads, row, dim) = x.dims4()?;
    x.unsqueeze(2)?.expand((rows, heads, group, row, dim))?.reshape((rows, heads * group, row, dim))
}

/// Log-probs of targets through all logits, the counterpart of `head_logprobs` and `head_loss`.
fn head(c: &mut Criterion, shape: &Shape) {
    let Shape { n, d, vocab, .. } = *shape;
    let (hw, dy) = (vars([&[n, d], &[vocab, d]]), tensor(1, &[n, 1]));
    let targets = Tensor::from_iter((0..n).map(|i| (i % vocab) as u32), &Device::Cpu)
        .and_then(|targets| targets.unsqueeze(1))
        .expect("a column");
    let composed = Composed { name: "head", work: n * d * vocab, vars: &hw, dy: &dy };
    composed
        .time(c, shape, |vars| log_softmax(&vars[0].matmul(&vars[1].t()?)?)?.gather(&targets, 1));
}

fn log_softmax(x: &Tensor) -> Result<Tensor> {
    let x = x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())?;
    x.broadcast_sub(&x.exp()?.sum_keepdim(D::Minus1)?.log()?)
}

/// The counterpart of `sum_of_squares` and `adamw_step`.
fn adamw(c: &mut Criterion, shape: &Shape) {
    let Shape { n, d, .. } = *shape;
    let [mut p, g, mut m, mut v] = [1, 2, 3, 4].map(|seed| tensor(seed, &[n, d]));
    v = v.sqr().expect("runs");
    time(c, shape, "candle_adamw", n * d, || {
        [p, m, v] = adamw_step([&p, &g, &m, &v]).expect("runs");
    });
}

/// Returns the parameters and the two moments after a step.
fn adamw_step([p, g, m, v]: [&Tensor; 4]) -> Result<[Tensor; 3]> {
    let norm = g.sqr()?.sum_all()?.sqrt()?.to_dtype(DType::F64)?.to_scalar::<f64>()?;
    let g = (g * (1.0 / (norm + 1e-6)).min(1.0))?;
    let m = ((m * 0.9)? + (&g * 0.1)?)?;
    let v = ((v * 0.999)? + (g.sqr()? * 0.001)?)?;
    let change = ((&m / 0.41)? / ((&v / 0.005)?.sqrt()? + 1e-8)?)?;
    Ok([((p * (1.0 - 1e-5))? - (change * 1e-3)?)?, m, v])
}

//! Differentiable operations of a transformer on packed rows, over the kernels of `maverl-kernels`.
//!
//! Activations are `[N, D]`: the tokens of all rows one after the other, without padding. Every operation here has a
//! backward pass; the ready-made fused operations of candle have none and would cut the gradient without a word.

mod gather;
mod logprobs;
mod lora;

pub use gather::{embed, pick};
pub use logprobs::token_logprobs;
pub use lora::{Dropout, Lora, lora_linear};

use std::sync::Arc;

use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, Device, Layout, Result, Shape, Storage, Tensor,
    bail,
};
use maverl_kernels::attention::{
    Blocks, Heads, Segment, attention, attention_bwd, attention_cached,
};
use maverl_kernels::rope::{RopeTable, rope, rope_bwd};
use maverl_kernels::{matmul, mlp, norm};

/// The f32 values of a contiguous tensor's storage.
fn floats<'a>(storage: &'a CpuStorage, layout: &Layout, op: &'static str) -> Result<&'a [f32]> {
    let CpuStorage::F32(values) = storage else {
        bail!("{op}: f32 is needed, got {:?}", storage_dtype(storage))
    };
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&values[start..end]),
        None => bail!("{op}: a contiguous tensor is needed, got {layout:?}"),
    }
}

fn storage_dtype(storage: &CpuStorage) -> candle_core::DType {
    use candle_core::backend::BackendStorage;
    storage.dtype()
}

/// Calls `f` with the values of a CPU tensor, copied only if it is not contiguous.
pub fn with_values<R>(tensor: &Tensor, f: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => Ok(f(floats(storage, layout, "with_values")?)),
        _ => bail!("with_values: a CPU tensor is needed"),
    }
}

/// Calls `f` with the values of several CPU tensors, copied only where they are not contiguous.
fn with_all<const N: usize, R>(
    tensors: [&Tensor; N],
    f: impl FnOnce([&[f32]; N]) -> R,
) -> Result<R> {
    let tensors = tensors.iter().map(|t| t.contiguous()).collect::<Result<Vec<Tensor>>>()?;
    let guards: Vec<_> = tensors.iter().map(Tensor::storage_and_layout).collect();
    let mut values: [&[f32]; N] = [&[]; N];
    for (values, (storage, layout)) in values.iter_mut().zip(&guards) {
        let Storage::Cpu(storage) = &**storage else { bail!("with_all: a CPU tensor is needed") };
        *values = floats(storage, layout, "with_all")?;
    }
    Ok(f(values))
}

/// A tensor over a buffer.
pub fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::from_vec(values, shape.into(), &Device::Cpu)
}

/// The gradient of an argument, if anything asks for it.
fn tracked(argument: &Tensor, gradient: Vec<f32>) -> Result<Option<Tensor>> {
    argument.track_op().then(|| tensor(gradient, argument.shape())).transpose()
}

fn stored(values: Vec<f32>, shape: impl Into<Shape>) -> (CpuStorage, Shape) {
    (CpuStorage::F32(values), shape.into())
}

/// Returns `y [N, O] = x [N, I] wᵀ`, with `w [O, I]` as checkpoints store it.
pub fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    x.apply_op2(w, Linear)
}

/// Returns `y [N, O] = x [N, I] wᵀ + b [O]`.
pub fn linear_bias(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    match b {
        None => linear(x, w),
        Some(b) => x.apply_op3(w, b, Linear),
    }
}

struct Linear;

impl Linear {
    fn dims(x: &Shape, w: &Shape) -> Result<(usize, usize, usize)> {
        let ((n, i), (o, wi)) = (x.dims2()?, w.dims2()?);
        if i != wi {
            bail!("linear: x is [{n}, {i}] and w is [{o}, {wi}]");
        }
        Ok((n, i, o))
    }

    /// dx = dy w, dw = dyᵀ x; a frozen weight's gradient is never built.
    fn grads(x: &Tensor, w: &Tensor, dy: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (n, i, o) = Self::dims(x.shape(), w.shape())?;
        let dx = if x.track_op() {
            let mut dx = vec![0.0; n * i];
            with_values(dy, |dy| with_values(w, |w| matmul::matmul_nn(dy, w, &mut dx, n, i, o)))??;
            Some(tensor(dx, (n, i))?)
        } else {
            None
        };
        let dw = if w.track_op() {
            let mut dw = vec![0.0; o * i];
            with_values(dy, |dy| {
                with_values(x, |x| matmul::matmul_tn_acc(dy, x, &mut dw, o, i, n))
            })??;
            Some(tensor(dw, (o, i))?)
        } else {
            None
        };
        Ok((dx, dw))
    }
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        xl: &Layout,
        w: &CpuStorage,
        wl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (n, i, o) = Self::dims(xl.shape(), wl.shape())?;
        let mut y = vec![0.0; n * o];
        matmul::matmul_nt(floats(x, xl, "linear")?, floats(w, wl, "linear")?, &mut y, n, o, i);
        Ok(stored(y, (n, o)))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        Self::grads(x, w, dy)
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear_bias"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        xl: &Layout,
        w: &CpuStorage,
        wl: &Layout,
        b: &CpuStorage,
        bl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (y, shape) = CustomOp2::cpu_fwd(self, x, xl, w, wl)?;
        let CpuStorage::F32(mut y) = y else { bail!("linear_bias: f32 is needed") };
        let b = floats(b, bl, "linear_bias")?;
        for row in y.chunks_exact_mut(b.len()) {
            row.iter_mut().zip(b).for_each(|(y, b)| *y += b);
        }
        Ok(stored(y, shape))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        b: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (dx, dw) = Self::grads(x, w, dy)?;
        let db = if b.track_op() { Some(dy.sum(0)?) } else { None };
        Ok((dx, dw, db))
    }
}

/// Returns `y [N, D] = x / rms(x) * w [D]` (Zhang & Sennrich, 2019).
pub fn rms_norm(x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
    x.apply_op2(w, RmsNorm { eps })
}

struct RmsNorm {
    eps: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        xl: &Layout,
        w: &CpuStorage,
        wl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let x = floats(x, xl, "rms_norm")?;
        let mut y = vec![0.0; x.len()];
        norm::rms_norm(x, floats(w, wl, "rms_norm")?, self.eps, &mut y);
        Ok(stored(y, xl.shape()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (mut dx, mut dw) = (vec![0.0; x.elem_count()], vec![0.0; w.elem_count()]);
        with_values(x, |x| {
            with_values(w, |w| {
                with_values(dy, |dy| norm::rms_norm_bwd(x, w, self.eps, dy, &mut dx, &mut dw))
            })
        })???;
        Ok((tracked(x, dx)?, tracked(w, dw)?))
    }
}

/// Rotates the heads of `x [N, H * head_dim]` by their positions `[N]` (Su et al., 2021; halves rotated as in Hugging Face).
pub fn rotary(
    x: &Tensor,
    positions: &Arc<[u32]>,
    heads: usize,
    table: &Arc<RopeTable>,
) -> Result<Tensor> {
    x.apply_op1(Rotary { positions: Arc::clone(positions), heads, table: Arc::clone(table) })
}

struct Rotary {
    positions: Arc<[u32]>,
    heads: usize,
    table: Arc<RopeTable>,
}

impl CustomOp1 for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn cpu_fwd(&self, x: &CpuStorage, xl: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = floats(x, xl, "rotary")?;
        let mut y = vec![0.0; x.len()];
        rope(x, &self.positions, self.heads, &self.table, &mut y);
        Ok(stored(y, xl.shape()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let mut dx = vec![0.0; x.elem_count()];
        with_values(dy, |dy| rope_bwd(dy, &self.positions, self.heads, &self.table, &mut dx))?;
        Ok(Some(tensor(dx, x.shape())?))
    }
}

/// Causal grouped-query attention within each packed row: `q [N, Hq * dim]`, `k` and `v` `[N, Hkv * dim]`; row `r` is
/// the tokens `offsets[r]..offsets[r + 1]`.
pub fn attend(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    offsets: &Arc<[usize]>,
    heads: Heads,
) -> Result<Tensor> {
    q.apply_op3(k, v, Attention { offsets: Arc::clone(offsets), heads })
}

struct Attention {
    offsets: Arc<[usize]>,
    heads: Heads,
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        ql: &Layout,
        k: &CpuStorage,
        kl: &Layout,
        v: &CpuStorage,
        vl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let q = floats(q, ql, "attention")?;
        let mut out = vec![0.0; q.len()];
        let (k, v) = (floats(k, kl, "attention")?, floats(v, vl, "attention")?);
        attention(q, k, v, &self.offsets, self.heads, &mut out);
        Ok(stored(out, ql.shape()))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        out: &Tensor,
        dout: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let mut dq = vec![0.0; q.elem_count()];
        let (mut dk, mut dv) = (vec![0.0; k.elem_count()], vec![0.0; v.elem_count()]);
        let [q_, k_, v_, out, dout] = [q, k, v, out, dout].map(|t| with_values(t, <[f32]>::to_vec));
        let (offsets, heads) = (&self.offsets, self.heads);
        attention_bwd(&q_?, &k_?, &v_?, &out?, &dout?, offsets, heads, &mut dq, &mut dk, &mut dv);
        Ok((tracked(q, dq)?, tracked(k, dk)?, tracked(v, dv)?))
    }
}

/// The same for new tokens on top of cached ones, without a gradient.
pub fn attend_cached(
    q: &Tensor,
    blocks: Blocks<'_>,
    segments: &[Segment<'_>],
    heads: Heads,
) -> Result<Tensor> {
    let mut out = vec![0.0; q.elem_count()];
    with_values(q, |q| attention_cached(q, blocks, segments, heads, &mut out))?;
    tensor(out, q.shape())
}

/// Returns `silu(gate) * up` (Shazeer, 2020), elementwise.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.apply_op2(up, Swiglu)
}

struct Swiglu;

impl CustomOp2 for Swiglu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gl: &Layout,
        up: &CpuStorage,
        ul: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let gate = floats(gate, gl, "swiglu")?;
        let mut out = vec![0.0; gate.len()];
        mlp::swiglu(gate, floats(up, ul, "swiglu")?, &mut out);
        Ok(stored(out, gl.shape()))
    }

    fn bwd(
        &self,
        gate: &Tensor,
        up: &Tensor,
        _: &Tensor,
        dout: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (mut dgate, mut dup) = (vec![0.0; gate.elem_count()], vec![0.0; up.elem_count()]);
        with_values(gate, |gate| {
            with_values(up, |up| {
                with_values(dout, |dout| mlp::swiglu_bwd(gate, up, dout, &mut dgate, &mut dup))
            })
        })???;
        Ok((tracked(gate, dgate)?, tracked(up, dup)?))
    }
}

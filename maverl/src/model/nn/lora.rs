//! A frozen linear map with a trained low-rank correction, as one operation (LoRA: Hu et al., 2021, arXiv:2106.09685).

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};
use maverl_kernels::matmul;
use maverl_kernels::sample::{mix, uniform};
use rayon::prelude::*;

use super::{floats, stored, tensor, with_all, with_values};

/// The correction of one linear map: `scale · dropout(x) Aᵀ Bᵀ`.
#[derive(Debug, Clone)]
pub struct Lora {
    /// `[r, I]`.
    pub a: Tensor,
    /// `[O, r]`.
    pub b: Tensor,
    /// `alpha / r`, or `alpha / sqrt(r)` with rslora.
    pub scale: f32,
    /// What is dropped of `x` on its way into `A`; the frozen map sees all of it.
    pub dropout: Option<Dropout>,
}

/// Inverted dropout whose mask is a function of counters: of a key for each token, the place in the model, and the
/// column. The same keys give the same mask in every batch and in every order.
#[derive(Debug, Clone)]
pub struct Dropout {
    /// The share of numbers that become 0; the others are divided by one minus it.
    pub p: f32,
    /// Which linear map of the model this is.
    pub place: u64,
    /// One for each token, `[N]`.
    pub keys: Arc<[u64]>,
}

impl Dropout {
    /// Drops numbers of `x [N, width]`.
    fn apply(&self, x: &mut [f32], width: usize) {
        let (p, keep) = (f64::from(self.p), 1.0 / (1.0 - self.p));
        x.par_chunks_mut(width).zip(&self.keys[..]).for_each(|(row, key)| {
            let seed = mix(*key, self.place);
            for (column, x) in row.iter_mut().enumerate() {
                *x = if uniform(seed, column as u64) < p { 0.0 } else { *x * keep };
            }
        });
    }
}

/// Returns `y [N, O] = x [N, I] wᵀ + bias [O] + scale · dropout(x) Aᵀ Bᵀ`.
///
/// Gradients flow to `x`, `A` and `B`. That of `w` or `bias` is never built: they are no arguments of the operation, and
/// must not be variables.
pub fn lora_linear(x: &Tensor, w: &Tensor, bias: Option<&Tensor>, lora: &Lora) -> Result<Tensor> {
    if w.track_op() || bias.is_some_and(Tensor::track_op) {
        bail!("lora_linear: the weights under an adapter are frozen");
    }
    let Lora { a, b, scale, dropout } = lora;
    let op = LoraLinear {
        w: w.clone(),
        bias: bias.cloned(),
        scale: *scale,
        dropout: dropout.clone().filter(|dropout| dropout.p > 0.0),
    };
    x.apply_op3(a, b, op)
}

struct LoraLinear {
    w: Tensor,
    bias: Option<Tensor>,
    scale: f32,
    dropout: Option<Dropout>,
}

/// The sizes of an operation.
#[derive(Clone, Copy)]
struct Dims {
    n: usize,
    i: usize,
    r: usize,
    o: usize,
}

impl LoraLinear {
    fn dims(&self, x: &Shape, a: &Shape, b: &Shape) -> Result<Dims> {
        let ((n, i), (r, ai), (o, br)) = (x.dims2()?, a.dims2()?, b.dims2()?);
        if self.w.dims() != [o, i] || (ai, br) != (i, r) {
            bail!("lora_linear: x is {x:?}, w {:?}, A {a:?} and B {b:?}", self.w.shape());
        }
        if self.dropout.as_ref().is_some_and(|dropout| dropout.keys.len() != n) {
            bail!("lora_linear: dropout needs a key for each of {n} tokens");
        }
        Ok(Dims { n, i, r, o })
    }

    /// What `A` is given.
    fn kept<'x>(&self, x: &'x [f32], width: usize) -> Cow<'x, [f32]> {
        let Some(dropout) = &self.dropout else { return Cow::Borrowed(x) };
        let mut x = x.to_vec();
        dropout.apply(&mut x, width);
        Cow::Owned(x)
    }

    /// `scale · kept Aᵀ`, `[N, r]`.
    fn low(&self, kept: &[f32], a: &[f32], dims: Dims) -> Vec<f32> {
        let mut low = vec![0.0; dims.n * dims.r];
        matmul::matmul_nt(kept, a, &mut low, dims.n, dims.r, dims.i);
        low.iter_mut().for_each(|low| *low *= self.scale);
        low
    }

    /// The gradients of x (if it is asked for), A and B.
    fn grads(
        &self,
        x: &[f32],
        a: &[f32],
        b: &[f32],
        dy: &[f32],
        dims: Dims,
        dx: Option<&mut [f32]>,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        let Dims { n, i, r, o } = dims;
        let kept = self.kept(x, i);
        let mut db = vec![0.0; o * r];
        matmul::matmul_tn_acc(dy, &self.low(&kept, a, dims), &mut db, o, r, n);
        let mut dlow = vec![0.0; n * r];
        matmul::matmul_nn(dy, b, &mut dlow, n, r, o);
        dlow.iter_mut().for_each(|dlow| *dlow *= self.scale);
        let mut da = vec![0.0; r * i];
        matmul::matmul_tn_acc(&dlow, &kept, &mut da, r, i, n);
        if let Some(dx) = dx {
            with_values(&self.w, |w| matmul::matmul_nn(dy, w, dx, n, i, o))?;
            let mut through = vec![0.0; n * i];
            matmul::matmul_nn(&dlow, a, &mut through, n, i, r);
            if let Some(dropout) = &self.dropout {
                dropout.apply(&mut through, i);
            }
            dx.iter_mut().zip(&through).for_each(|(dx, through)| *dx += through);
        }
        Ok((da, db))
    }
}

impl CustomOp3 for LoraLinear {
    fn name(&self) -> &'static str {
        "lora_linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        xl: &Layout,
        a: &CpuStorage,
        al: &Layout,
        b: &CpuStorage,
        bl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let dims = self.dims(xl.shape(), al.shape(), bl.shape())?;
        let Dims { n, i, r, o } = dims;
        let (x, a) = (floats(x, xl, "lora_linear")?, floats(a, al, "lora_linear")?);
        let mut y = vec![0.0; n * o];
        matmul::matmul_nt(
            &self.low(&self.kept(x, i), a, dims),
            floats(b, bl, "lora_linear")?,
            &mut y,
            n,
            o,
            r,
        );
        let mut base = vec![0.0; n * o];
        with_values(&self.w, |w| matmul::matmul_nt(x, w, &mut base, n, o, i))?;
        if let Some(bias) = &self.bias {
            with_values(bias, |bias| {
                for row in base.chunks_exact_mut(o) {
                    row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
                }
            })?;
        }
        y.iter_mut().zip(&base).for_each(|(y, base)| *y += base);
        Ok(stored(y, (n, o)))
    }

    fn bwd(
        &self,
        x: &Tensor,
        a: &Tensor,
        b: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let dims = self.dims(x.shape(), a.shape(), b.shape())?;
        let mut dx = x.track_op().then(|| vec![0.0; dims.n * dims.i]);
        let (da, db) = with_all([x, a, b, dy], |[x, a, b, dy]| {
            self.grads(x, a, b, dy, dims, dx.as_deref_mut())
        })??;
        let dx = dx.map(|dx| tensor(dx, (dims.n, dims.i))).transpose()?;
        Ok((dx, Some(tensor(da, (dims.r, dims.i))?), Some(tensor(db, (dims.o, dims.r))?)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use candle_core::Var;

    use super::*;

    const N: usize = 5;
    const I: usize = 12;
    const R: usize = 3;
    const O: usize = 9;
    const SCALE: f32 = 0.7;

    fn random(seed: u64, shape: (usize, usize)) -> Var {
        let n = (shape.0 * shape.1) as u64;
        let values = (0..n).map(|i| uniform(seed, i) as f32 - 0.5).collect();
        Var::from_tensor(&tensor(values, shape).unwrap()).unwrap()
    }

    fn wide(tensor: &Tensor) -> Vec<f64> {
        let values = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        values.into_iter().map(f64::from).collect()
    }

    /// `Σ c ∘ y` from the formula, in f64.
    fn reference([x, a, b]: [&[f64]; 3], w: &[f64], mask: &[f64], c: &[f64]) -> f64 {
        let mut sum = 0.0;
        for t in 0..N {
            let low = |r: usize| -> f64 {
                (0..I).map(|i| x[t * I + i] * mask[t * I + i] * a[r * I + i]).sum()
            };
            let low: Vec<f64> = (0..R).map(low).collect();
            for o in 0..O {
                let base: f64 = (0..I).map(|i| x[t * I + i] * w[o * I + i]).sum();
                let more: f64 = (0..R).map(|r| low[r] * b[o * R + r]).sum();
                sum += c[t * O + o] * (base + f64::from(SCALE) * more);
            }
        }
        sum
    }

    fn central_differences(at: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        const H: f64 = 1e-4;
        let moved = |i: usize, h: f64| {
            let mut at = at.to_vec();
            at[i] += h;
            f(&at)
        };
        (0..at.len()).map(|i| (moved(i, H) - moved(i, -H)) / (2.0 * H)).collect()
    }

    #[test]
    fn gradients_agree_with_central_differences_with_and_without_dropout() {
        for p in [0.0, 0.4] {
            let (x, w, c) = (random(1, (N, I)), random(2, (O, I)), random(3, (N, O)));
            let (a, b) = (random(4, (R, I)), random(5, (O, R)));
            let dropout = Dropout { p, place: 3, keys: (0..N as u64).collect() };
            let mut mask = vec![1.0; N * I];
            dropout.apply(&mut mask, I);
            let mask: Vec<f64> = mask.into_iter().map(f64::from).collect();
            let lora = Lora {
                a: a.as_tensor().clone(),
                b: b.as_tensor().clone(),
                scale: SCALE,
                dropout: Some(dropout),
            };
            let y = lora_linear(&x, &w.as_detached_tensor(), None, &lora).unwrap();
            let loss = (y * c.as_detached_tensor()).unwrap().sum_all().unwrap();
            let [wx, wa, wb] = [&x, &a, &b].map(|t| wide(t));
            let (ww, wc) = (wide(&w), wide(&c));
            let expected = reference([&wx, &wa, &wb], &ww, &mask, &wc);
            assert!((f64::from(loss.to_scalar::<f32>().unwrap()) - expected).abs() < 1e-5);
            let grads = loss.backward().unwrap();
            let of = |x: &[f64], a: &[f64], b: &[f64]| reference([x, a, b], &ww, &mask, &wc);
            let checks = [
                (&x, central_differences(&wx, |x| of(x, &wa, &wb))),
                (&a, central_differences(&wa, |a| of(&wx, a, &wb))),
                (&b, central_differences(&wb, |b| of(&wx, &wa, b))),
            ];
            for (var, expected) in checks {
                for (ours, expected) in wide(grads.get(var).unwrap()).iter().zip(&expected) {
                    assert!((ours - expected).abs() < 1e-5, "{ours} is not {expected}");
                }
            }
            assert!(grads.get(&w).is_none());
        }
    }

    #[test]
    fn dropout_drops_its_share_and_keeps_the_mean() {
        let dropout = Dropout { p: 0.3, place: 1, keys: (0..100).collect() };
        let mut x = vec![1.0; 100 * 200];
        dropout.apply(&mut x, 200);
        let dropped = x.iter().filter(|x| **x == 0.0).count() as f64 / x.len() as f64;
        let mean = x.iter().sum::<f32>() / x.len() as f32;
        assert!((dropped - 0.3).abs() < 0.02 && (mean - 1.0).abs() < 0.03, "{dropped}, {mean}");
    }

    #[test]
    fn a_variable_under_an_adapter_is_refused() {
        let (x, w) = (random(1, (N, I)), random(2, (O, I)));
        let lora = Lora {
            a: random(4, (R, I)).as_detached_tensor(),
            b: random(5, (O, R)).as_detached_tensor(),
            scale: SCALE,
            dropout: None,
        };
        let error = lora_linear(&x, &w, None, &lora).unwrap_err().to_string();
        assert!(error.contains("frozen"), "{error}");
        let narrow = random(2, (O, I - 1)).as_detached_tensor();
        assert!(lora_linear(&x, &narrow, None, &lora).is_err());
    }
}

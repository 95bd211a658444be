//! Gated delta rule and causal convolutions (Yang et al., 2024, arXiv:2412.06464), token after token. Shapes: `V` value heads, `k`
//! width of a key, `v` width of a value, `C` channels.

use candle_core::{D, Result, Tensor};
use maverl_kernels::recurrent::{DeltaHeads, Span};

/// Constant added to the sum of squares of queries and keys.
const EPS: f64 = 1e-6;

/// Returns the tokens that each result of a convolution depends on, by taps, the oldest first. Tokens before the start of a
/// sequence are the one after the last.
pub(super) fn sources(spans: &[Span], kernel: usize) -> Vec<Vec<usize>> {
    let tokens = spans.last().map_or(0, |span| span.tokens.end);
    let mut before = vec![tokens; tokens];
    for span in spans {
        let last = span.before.map_or(tokens, |before| spans[before].tokens.end - 1);
        before[span.tokens.start] = last;
        (span.tokens.start + 1..span.tokens.end).for_each(|token| before[token] = token - 1);
    }
    let mut taps = vec![(0..tokens).collect::<Vec<_>>()];
    while taps.len() < kernel {
        let last = &taps[taps.len() - 1];
        taps.push(last.iter().map(|&t| before.get(t).copied().unwrap_or(tokens)).collect());
    }
    taps.reverse();
    taps
}

/// Convolution of channels: weights `[C, kernel]` and bias `[C]`.
pub(super) struct ChannelConv {
    pub(super) weight: Tensor,
    pub(super) bias: Option<Tensor>,
}

impl ChannelConv {
    /// Returns the weights `[1, C]` of a tap.
    fn tap(&self, index: usize) -> Result<Tensor> {
        self.weight.narrow(1, index, 1)?.t()?.contiguous()
    }

    /// Computes `y [N, C]` of the inputs `[N, C]` of each tap.
    pub(super) fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let mut y = inputs[0].broadcast_mul(&self.tap(0)?)?;
        for (index, x) in inputs.iter().enumerate().skip(1) {
            y = (y + x.broadcast_mul(&self.tap(index)?)?)?;
        }
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
    }

    /// Computes the gradients of the inputs of each tap, and of the weights `[C, kernel]`.
    pub(super) fn backward(&self, inputs: &[Tensor], dy: &Tensor) -> Result<(Vec<Tensor>, Tensor)> {
        let (mut dinputs, mut taps) = (Vec::new(), Vec::new());
        for (index, x) in inputs.iter().enumerate() {
            dinputs.push(dy.broadcast_mul(&self.tap(index)?)?);
            taps.push((dy * x)?.sum(0)?);
        }
        Ok((dinputs, Tensor::stack(&taps, 1)?))
    }
}

/// Splits rows `[N, mixed_width]` into queries, keys and values `[N, heads, width]`.
pub(super) fn split(mixed: &Tensor, of: DeltaHeads) -> Result<[Tensor; 3]> {
    let (n, keys) = (mixed.dim(0)?, of.keys_width());
    let heads = |start, heads, dim| mixed.narrow(1, start, heads * dim)?.reshape((n, heads, dim));
    let q = heads(0, of.keys, of.key_dim)?;
    let k = heads(keys, of.keys, of.key_dim)?;
    Ok([q, k, heads(2 * keys, of.values, of.value_dim)?])
}

/// Joins what [`split`] splits.
pub(super) fn join(parts: [Tensor; 3]) -> Result<Tensor> {
    let [q, k, v] = parts.map(|part| part.flatten_from(1));
    Tensor::cat(&[q?, k?, v?], 1)
}

/// Returns `1 / √(Σ x² + 10⁻⁶)` of each head.
fn inverse_norm(x: &Tensor) -> Result<Tensor> {
    (x.sqr()?.sum_keepdim(D::Minus1)? + EPS)?.sqrt()?.recip()
}

/// Normalizes each head of `x`, and multiplies it by a factor.
fn normalize(x: &Tensor, factor: f64) -> Result<Tensor> {
    x.broadcast_mul(&(inverse_norm(x)? * factor)?)
}

/// Computes the gradient of [`normalize`].
fn normalize_back(x: &Tensor, factor: f64, dy: &Tensor) -> Result<Tensor> {
    let r = inverse_norm(x)?;
    let unit = x.broadcast_mul(&r)?;
    let along = (&unit * dy)?.sum_keepdim(D::Minus1)?;
    (dy - unit.broadcast_mul(&along)?)?.broadcast_mul(&(r * factor)?)
}

/// Factor of normalized queries.
fn query_factor(of: DeltaHeads) -> f64 {
    (of.key_dim as f64).sqrt().recip()
}

/// Normalizes queries and keys of `mixed [N, mixed_width]`.
pub(super) fn normalize_keys(mixed: &Tensor, of: DeltaHeads) -> Result<Tensor> {
    let [q, k, v] = split(mixed, of)?;
    join([normalize(&q, query_factor(of))?, normalize(&k, 1.0)?, v])
}

/// Computes the gradient of [`normalize_keys`].
pub(super) fn normalize_keys_back(mixed: &Tensor, of: DeltaHeads, dy: &Tensor) -> Result<Tensor> {
    let ([q, k, _], [dq, dk, dv]) = (split(mixed, of)?, split(dy, of)?);
    join([normalize_back(&q, query_factor(of), &dq)?, normalize_back(&k, 1.0, &dk)?, dv])
}

/// Computes `ln(1 + eˣ)`.
fn softplus(x: &Tensor) -> Result<Tensor> {
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}

/// Computes the logarithm of the decay, `−e^a_log softplus(a + dt_bias)`, of `a [N, V]` and weights `[V]`.
pub(super) fn log_decay(a: &Tensor, [a_log, dt_bias]: [&Tensor; 2]) -> Result<Tensor> {
    softplus(&a.broadcast_add(dt_bias)?)?.broadcast_mul(&a_log.exp()?.neg()?)
}

/// Computes the gradients of [`log_decay`] by `a`, `a_log` and `dt_bias`.
pub(super) fn log_decay_back(
    a: &Tensor,
    weights: [&Tensor; 2],
    dg: &Tensor,
) -> Result<[Tensor; 3]> {
    let [a_log, dt_bias] = weights;
    let slope = super::gates::sigmoid(&a.broadcast_add(dt_bias)?)?;
    let da = (dg * slope)?.broadcast_mul(&a_log.exp()?.neg()?)?;
    let da_log = (dg * log_decay(a, weights)?)?.sum(0)?;
    let ddt_bias = da.sum(0)?;
    Ok([da, da_log, ddt_bias])
}

/// Inputs of the rule for some tokens: queries and keys `[N, V, k]`, values `[N, V, v]`, decay and beta `[N, V]`.
pub(super) struct Inputs {
    pub(super) q: Tensor,
    pub(super) k: Tensor,
    pub(super) v: Tensor,
    pub(super) decay: Tensor,
    pub(super) beta: Tensor,
}

/// Inputs of one token: queries and keys `[V, 1, k]`, values `[V, 1, v]`, decay and beta `[V, 1, 1]`.
struct Token {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
}

/// Repeats the key heads `[N, keys, k]` for the value heads that read them.
fn repeat(x: &Tensor, of: DeltaHeads) -> Result<Tensor> {
    let (n, group) = (x.dim(0)?, of.values / of.keys);
    let wide = x.unsqueeze(2)?.broadcast_as((n, of.keys, group, of.key_dim))?;
    wide.reshape((n, of.values, of.key_dim))
}

/// Sums what [`repeat`] repeats.
fn sum_groups(x: &Tensor, of: DeltaHeads) -> Result<Tensor> {
    x.reshape((x.dim(0)?, of.keys, of.values / of.keys, of.key_dim))?.sum(2)
}

impl Inputs {
    /// Splits normalized queries, keys and values.
    pub(super) fn new(mixed: &Tensor, gates: [&Tensor; 2], of: DeltaHeads) -> Result<Self> {
        let [q, k, v] = split(mixed, of)?;
        let [decay, beta] = gates.map(Clone::clone);
        Ok(Self { q: repeat(&q, of)?, k: repeat(&k, of)?, v, decay, beta })
    }

    fn token(&self, at: usize) -> Result<Token> {
        let row = |x: &Tensor| x.narrow(0, at, 1)?.squeeze(0)?.unsqueeze(1);
        let gate = |x: &Tensor| row(x)?.unsqueeze(2);
        let [q, k, v] = [row(&self.q)?, row(&self.k)?, row(&self.v)?];
        Ok(Token { q, k, v, decay: gate(&self.decay)?, beta: gate(&self.beta)? })
    }

    /// Returns the state `[V, k, v]` after a token.
    ///
    /// ```text
    /// Sₜ = αₜ Sₜ₋₁ + kₜ uₜᵀ,   uₜ = βₜ (vₜ − αₜ Sₜ₋₁ᵀ kₜ)
    /// ```
    fn advance(&self, at: usize, state: &Tensor) -> Result<Tensor> {
        let Token { k, v, decay, beta, .. } = self.token(at)?;
        let state = state.broadcast_mul(&decay)?;
        let u = (v - k.matmul(&state)?)?.broadcast_mul(&beta)?;
        state + k.transpose(1, 2)?.contiguous()?.matmul(&u)?
    }

    /// Computes the results `[V v]` of some tokens, `oₜ = Sₜᵀ qₜ`, and the state after them.
    pub(super) fn run(
        &self,
        tokens: std::ops::Range<usize>,
        mut state: Tensor,
        out: &mut Vec<Tensor>,
    ) -> Result<Tensor> {
        for at in tokens {
            state = self.advance(at, &state)?;
            out.push(self.token(at)?.q.matmul(&state)?.flatten_all()?);
        }
        Ok(state)
    }

    /// Computes the gradients of the inputs of some tokens from `dout [N, V, v]`, the state before them and the gradient of the
    /// state after them, from the last token down. Returns the gradient of the state before them. `found` gets those of queries,
    /// keys, values, logarithms of the decay, and beta, of each token.
    ///
    /// ```text
    /// G ← G + qₜ doₜᵀ,   dqₜ = Sₜ doₜ,   r = vₜ − αₜ Sₜ₋₁ᵀ kₜ,   u = βₜ r
    /// du = Gᵀ kₜ,   dvₜ = βₜ du,   dβₜ = du · r,   dkₜ = G u − βₜ αₜ Sₜ₋₁ du
    /// G' = G − βₜ kₜ duᵀ,   dgₜ = ⟨αₜ Sₜ₋₁, G'⟩,   G ← αₜ G'
    /// ```
    pub(super) fn run_back(
        &self,
        tokens: std::ops::Range<usize>,
        (before, mut gradient): (Tensor, Tensor),
        dout: &Tensor,
        found: &mut [Option<[Tensor; 5]>],
    ) -> Result<Tensor> {
        let mut states = vec![before];
        for at in tokens.clone() {
            let next = self.advance(at, &states[at - tokens.start])?;
            states.push(next);
        }
        for at in tokens.clone().rev() {
            let Token { q, k, v, decay, beta } = self.token(at)?;
            let dout = dout.narrow(0, at, 1)?.squeeze(0)?.unsqueeze(1)?;
            let [up, down] = [&k, &q].map(|x| x.transpose(1, 2)?.contiguous());
            let (up, down) = (up?, down?);
            let after = &states[at - tokens.start + 1];
            let faded = states[at - tokens.start].broadcast_mul(&decay)?;
            gradient = (gradient + down.matmul(&dout)?)?;
            let dq = dout.matmul(&after.transpose(1, 2)?.contiguous()?)?;
            let rest = (v - k.matmul(&faded)?)?;
            let u = rest.broadcast_mul(&beta)?;
            let du = k.matmul(&gradient)?;
            let dv = du.broadcast_mul(&beta)?;
            let dbeta = (&du * &rest)?.sum(D::Minus1)?;
            let dk = (u.matmul(&gradient.transpose(1, 2)?.contiguous()?)?
                - dv.matmul(&faded.transpose(1, 2)?.contiguous()?)?)?;
            gradient = (gradient - up.matmul(&dv)?)?;
            let dg = (&faded * &gradient)?.sum((1, 2))?;
            gradient = gradient.broadcast_mul(&decay)?;
            let [dq, dk, dv] = [dq, dk, dv].map(|x| x.squeeze(1));
            found[at] = Some([dq?, dk?, dv?, dg, dbeta.squeeze(1)?]);
        }
        Ok(gradient)
    }
}

/// Returns the gradients of `mixed [N, mixed_width]`, of the logarithms of the decay and of beta, from those of each token.
pub(super) fn gather_back(found: Vec<Option<[Tensor; 5]>>, of: DeltaHeads) -> Result<[Tensor; 3]> {
    let found: Vec<[Tensor; 5]> = found.into_iter().flatten().collect();
    let all =
        |index: usize| Tensor::stack(&found.iter().map(|of| &of[index]).collect::<Vec<_>>(), 0);
    let [dq, dk] = [sum_groups(&all(0)?, of)?, sum_groups(&all(1)?, of)?];
    Ok([join([dq, dk, all(2)?])?, all(3)?, all(4)?])
}

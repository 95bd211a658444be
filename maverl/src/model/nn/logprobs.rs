//! The head of a model and the log-probabilities under it, as one operation.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};
use maverl_kernels::logprob;

use super::{floats, stored, tensor, with_all};

/// Log-probability and entropy of targets under `softmax(h wᵀ / temperature)`, without keeping `[M, V]` logits.
///
/// `h [M, D]`, `w [V, D]`, `targets [M]`, `inv_temperature [M]`; returns `[2, M]`: log-probs, then entropies in nats.
pub fn token_logprobs(
    h: &Tensor,
    w: &Tensor,
    targets: Arc<[u32]>,
    inv_temperature: Arc<[f32]>,
) -> Result<Tensor> {
    h.apply_op2(w, TokenLogprobs { targets, inv_temperature })
}

struct TokenLogprobs {
    targets: Arc<[u32]>,
    inv_temperature: Arc<[f32]>,
}

impl CustomOp2 for TokenLogprobs {
    fn name(&self) -> &'static str {
        "token_logprobs"
    }

    fn cpu_fwd(
        &self,
        h: &CpuStorage,
        hl: &Layout,
        w: &CpuStorage,
        wl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let ((m, d), (vocab, _)) = (hl.shape().dims2()?, wl.shape().dims2()?);
        if let Some(id) = self.targets.iter().find(|&&id| id as usize >= vocab) {
            bail!("token_logprobs: token id {id} in a vocabulary of {vocab}");
        }
        let mut out = vec![0.0; 2 * m];
        let (logp, entropy) = out.split_at_mut(m);
        let (h, w) = (floats(h, hl, "token_logprobs")?, floats(w, wl, "token_logprobs")?);
        logprob::linear_logprob(h, w, &self.targets, &self.inv_temperature, d, logp, entropy);
        Ok(stored(out, (2, m)))
    }

    fn bwd(
        &self,
        h: &Tensor,
        w: &Tensor,
        _: &Tensor,
        dout: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (m, d) = h.dims2()?;
        let mut dh = vec![0.0; m * d];
        // The gradient of a frozen head is never built.
        let mut dw = w.track_op().then(|| vec![0.0; w.elem_count()]);
        with_all([h, w, dout], |[h, w, dout]| {
            let (dlogp, dentropy) = dout.split_at(m);
            let (targets, inv_t) = (&self.targets, &self.inv_temperature);
            let dw = dw.as_deref_mut();
            logprob::linear_logprob_bwd(h, w, targets, inv_t, d, dlogp, dentropy, &mut dh, dw);
        })?;
        let dw = dw.map(|dw| tensor(dw, w.shape())).transpose()?;
        Ok((Some(tensor(dh, (m, d))?), dw))
    }
}

//! AdamW on the parameters of one model, in place, with its state.

use maverl_kernels::adamw::{AdamW, adamw_step};

use crate::model::save::Entry;
use crate::model::weights::Shards;
use crate::model::{Gradients, ModelError, ModelErrorKind, Params};
use crate::runtime::OptimOptions;

/// Moments of parameters, and the number of steps.
pub(crate) struct Optimizer {
    options: OptimOptions,
    params: Params,
    /// Moments, in arrays with the places of the parameters.
    m: Vec<f32>,
    v: Vec<f32>,
    pub(crate) step: u64,
}

impl Optimizer {
    /// Creates zero moments.
    pub(crate) fn new(options: OptimOptions, params: Params) -> Self {
        let [m, v] = [0; 2].map(|_| vec![0.0; params.elements()]);
        Self { options, params, m, v, step: 0 }
    }

    /// Takes one step. `norm` is the norm of all gradients that are clipped together.
    pub(crate) fn apply(
        &mut self,
        gradients: &Gradients<'_>,
        lr: f64,
        norm: f64,
    ) -> Result<(), ModelError> {
        let grad = gradients.all()?;
        if grad.len() != self.m.len() {
            return Err(ModelError::new(ModelErrorKind::Argument, "these weights are not trained"));
        }
        self.step += 1;
        let OptimOptions { betas: (beta1, beta2), eps, weight_decay, grad_clip } = self.options;
        let adamw = AdamW { lr, beta1, beta2, eps, weight_decay };
        let scale = (grad_clip / (norm + 1e-6)).min(1.0) as f32;
        let Self { params, m, v, step, .. } = self;
        params.update(|values| adamw_step(&adamw, *step, scale, values, grad, m, v));
        Ok(())
    }

    /// Returns the moments for writing.
    pub(crate) fn entries(&self) -> Vec<Entry<'_>> {
        let both = self.params.vars().iter().flat_map(|(name, var)| {
            let (m, v) = (&self.m[var.range()], &self.v[var.range()]);
            [("m", m), ("v", v)]
                .map(|(kind, of)| Entry::slice(format!("{kind}.{name}"), var.dims(), of))
        });
        both.collect()
    }

    /// Restores the moments and the number of steps.
    pub(crate) fn restore(&mut self, saved: &Shards, step: u64) -> Result<(), ModelError> {
        self.step = step;
        for (name, var) in self.params.vars() {
            saved.fill(&format!("m.{name}"), var.dims(), &mut self.m[var.range()])?;
            saved.fill(&format!("v.{name}"), var.dims(), &mut self.v[var.range()])?;
        }
        Ok(())
    }
}

/// Encodes two counters as four f32, which hold 24 bits each exactly.
pub(crate) fn halves(a: u64, b: u64) -> Vec<f32> {
    [a >> 24, a & 0xff_ffff, b >> 24, b & 0xff_ffff].iter().map(|&half| half as f32).collect()
}

/// Decodes the counters of [`halves`].
pub(crate) fn whole(halves: &[f32]) -> (u64, u64) {
    let at = |i: usize| halves.get(i).map_or(0, |&half| half as u64);
    (at(0) << 24 | at(1), at(2) << 24 | at(3))
}

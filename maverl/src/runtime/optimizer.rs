//! AdamW on the variables of one model, in place, with its state.

use maverl_kernels::adamw::{AdamW, adamw_step};

use crate::model::save::Entry;
use crate::model::weights::Shards;
use crate::model::{Gradients, ModelError, Tensor};
use crate::plan::OptimPlan;

/// Moments of variables, and the number of steps.
pub(crate) struct Optimizer {
    plan: OptimPlan,
    moments: Vec<(Vec<f32>, Vec<f32>)>,
    pub(crate) step: u64,
}

impl Optimizer {
    /// Creates zero moments.
    pub(crate) fn new(plan: OptimPlan, vars: &[(String, Tensor)]) -> Self {
        let zeros = |var: &Tensor| vec![0.0; var.elem_count()];
        let moments = vars.iter().map(|(_, var)| (zeros(var), zeros(var))).collect();
        Self { plan, moments, step: 0 }
    }

    /// Takes one step. `norm` is the norm of all gradients that are clipped together.
    pub(crate) fn apply(
        &mut self,
        vars: &[(String, Tensor)],
        gradients: &Gradients<'_>,
        lr: f64,
        norm: f64,
    ) -> Result<(), ModelError> {
        let sums = gradients.sums()?;
        self.step += 1;
        let OptimPlan { betas: (beta1, beta2), eps, weight_decay, grad_clip, .. } = self.plan;
        let adamw = AdamW { lr, beta1, beta2, eps, weight_decay };
        let scale = (grad_clip / (norm + 1e-6)).min(1.0) as f32;
        for (((_, var), grad), (m, v)) in vars.iter().zip(sums).zip(&mut self.moments) {
            var.update(|values| adamw_step(&adamw, self.step, scale, values, grad, m, v));
        }
        Ok(())
    }

    /// Returns the moments for writing.
    pub(crate) fn entries<'a>(&'a self, vars: &'a [(String, Tensor)]) -> Vec<Entry<'a>> {
        let both = vars.iter().zip(&self.moments).flat_map(|((name, var), (m, v))| {
            let entry = |kind, moment| Entry::slice(format!("{kind}.{name}"), var.dims(), moment);
            [entry("m", m.as_slice()), entry("v", v.as_slice())]
        });
        both.collect()
    }

    /// Restores the moments and the number of steps.
    pub(crate) fn restore(
        &mut self,
        vars: &[(String, Tensor)],
        saved: &Shards,
        step: u64,
    ) -> Result<(), ModelError> {
        self.step = step;
        for ((name, _), (m, v)) in vars.iter().zip(&mut self.moments) {
            *m = saved.values(&format!("m.{name}"))?;
            *v = saved.values(&format!("v.{name}"))?;
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

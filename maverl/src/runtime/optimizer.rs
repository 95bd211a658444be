//! AdamW on the variables of one model, in place, and what it remembers of them.

use std::cell::RefCell;

use candle_core::{CpuStorage, InplaceOp1, Layout, Var, bail};
use maverl_kernels::adamw::{AdamW, adamw_step};

use crate::model::save::Entry;
use crate::model::weights::Shards;
use crate::model::{Gradients, ModelError};
use crate::plan::OptimPlan;

/// Moments of variables, and how many steps they have seen.
pub(crate) struct Optimizer {
    plan: OptimPlan,
    moments: Vec<(Vec<f32>, Vec<f32>)>,
    pub(crate) step: u64,
}

impl Optimizer {
    /// Nothing remembered.
    pub(crate) fn new(plan: OptimPlan, vars: &[(String, Var)]) -> Self {
        let zeros = |var: &Var| vec![0.0; var.elem_count()];
        let moments = vars.iter().map(|(_, var)| (zeros(var), zeros(var))).collect();
        Self { plan, moments, step: 0 }
    }

    /// One step; `norm` is that of all gradients which are clipped together.
    pub(crate) fn apply(
        &mut self,
        vars: &[(String, Var)],
        gradients: &Gradients<'_>,
        lr: f64,
        norm: f64,
    ) -> Result<(), ModelError> {
        let sums = gradients.sums()?;
        self.step += 1;
        let OptimPlan { betas: (beta1, beta2), eps, weight_decay, grad_clip, .. } = self.plan;
        let adamw = AdamW { lr, beta1, beta2, eps, weight_decay };
        let scale = (grad_clip / (norm + 1e-6)).min(1.0) as f32;
        for (((_, var), grad), moments) in vars.iter().zip(sums).zip(&mut self.moments) {
            let step = self.step;
            var.inplace_op1(&Step { adamw, step, scale, grad, moments: RefCell::new(moments) })?;
        }
        Ok(())
    }

    /// The moments, to be written.
    pub(crate) fn entries<'a>(&'a self, vars: &'a [(String, Var)]) -> Vec<Entry<'a>> {
        let both = vars.iter().zip(&self.moments).flat_map(|((name, var), (m, v))| {
            let entry = |kind, moment| Entry::slice(format!("{kind}.{name}"), var.dims(), moment);
            [entry("m", m.as_slice()), entry("v", v.as_slice())]
        });
        both.collect()
    }

    /// Takes the moments back from where they were written, and the step they had seen.
    pub(crate) fn restore(
        &mut self,
        vars: &[(String, Var)],
        saved: &Shards,
        step: u64,
    ) -> Result<(), ModelError> {
        self.step = step;
        for ((name, _), (m, v)) in vars.iter().zip(&mut self.moments) {
            *m = values(saved, &format!("m.{name}"))?;
            *v = values(saved, &format!("v.{name}"))?;
        }
        Ok(())
    }
}

/// The numbers of a saved tensor.
pub(crate) fn values(saved: &Shards, name: &str) -> Result<Vec<f32>, ModelError> {
    Ok(saved.tensor(name)?.flatten_all()?.to_vec1()?)
}

/// Two counters as four f32 that hold 24 bits each exactly.
pub(crate) fn halves(a: u64, b: u64) -> Vec<f32> {
    [a >> 24, a & 0xff_ffff, b >> 24, b & 0xff_ffff].iter().map(|&half| half as f32).collect()
}

/// The counters that [`halves`] made.
pub(crate) fn whole(halves: &[f32]) -> (u64, u64) {
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

//! AdamW on the parameters of one model, in place, with its state.

use std::borrow::Cow;

use crate::model::ops::{Cpu, Ops};
use crate::model::save::Entry;
use crate::model::weights::Shards;
use crate::model::{Gradients, ModelError, ModelErrorKind, Params};
use crate::runtime::OptimOptions;

/// Moments of parameters, and the number of steps.
pub(crate) struct Optimizer<O: Ops = Cpu> {
    options: OptimOptions,
    ops: O,
    params: Params<O>,
    /// Moments, in arrays with the places of the parameters.
    m: O::Sums,
    v: O::Sums,
    /// Array of zeros for the gradients of the next step, if there is one already.
    zeros: Option<O::Sums>,
    pub(crate) step: u64,
}

/// Moments in host memory, in arrays with the places of the parameters.
pub(crate) struct Moments<'a, O: Ops> {
    params: &'a Params<O>,
    both: [Cow<'a, [f32]>; 2],
}

impl<O: Ops> Optimizer<O> {
    /// Creates zero moments.
    pub(crate) fn new(
        ops: &O,
        options: OptimOptions,
        params: Params<O>,
    ) -> Result<Self, ModelError> {
        let (m, v) = (ops.sums(params.elements())?, ops.sums(params.elements())?);
        Ok(Self { options, ops: ops.clone(), params, m, v, zeros: None, step: 0 })
    }

    /// Creates gradients of zeros for the optimized parameters.
    pub(crate) fn gradients<'p>(
        &mut self,
        params: &'p Params<O>,
    ) -> Result<Gradients<'p, O>, ModelError> {
        match self.zeros.take().filter(|_| params.elements() == self.params.elements()) {
            Some(zeros) => Ok(Gradients::over(params, zeros)),
            None => Gradients::on(&self.ops, params),
        }
    }

    /// Takes one step. `norm` is the norm of all gradients that are clipped together.
    pub(crate) fn apply(
        &mut self,
        gradients: Gradients<'_, O>,
        lr: f64,
        norm: f64,
    ) -> Result<(), ModelError> {
        let elements = gradients.elements();
        let mut grad = gradients.into_all()?;
        if elements != self.params.elements() {
            return Err(ModelError::new(ModelErrorKind::Argument, "these weights are not trained"));
        }
        self.step += 1;
        let (adamw, scale) = self.options.step(lr, norm);
        let Self { ops, params, m, v, step, .. } = self;
        ops.adamw(&adamw, (*step, scale), &mut params.write(), &mut grad, [m, v])?;
        self.zeros = self.ops.reuse(grad);
        Ok(())
    }

    /// Reads the moments.
    pub(crate) fn moments(&self) -> Result<Moments<'_, O>, ModelError> {
        let both = [self.ops.read_sums(&self.m)?, self.ops.read_sums(&self.v)?];
        Ok(Moments { params: &self.params, both })
    }

    /// Restores the moments and the number of steps.
    pub(crate) fn restore(&mut self, saved: &Shards, step: u64) -> Result<(), ModelError> {
        self.step = step;
        let read = |kind: &str| {
            let mut values = vec![0.0; self.params.elements()];
            for (name, var) in self.params.vars() {
                saved.fill(&format!("{kind}.{name}"), var.dims(), &mut values[var.range()])?;
            }
            self.ops.sums_of(values)
        };
        let (m, v) = (read("m")?, read("v")?);
        (self.m, self.v) = (m, v);
        Ok(())
    }
}

impl<O: Ops> Moments<'_, O> {
    /// Returns the moments for writing.
    pub(crate) fn entries(&self) -> Vec<Entry<'_>> {
        let [m, v] = &self.both;
        let both = self.params.vars().iter().flat_map(|(name, var)| {
            [("m", &m[var.range()]), ("v", &v[var.range()])]
                .map(|(kind, of)| Entry::slice(format!("{kind}.{name}"), var.dims(), of))
        });
        both.collect()
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

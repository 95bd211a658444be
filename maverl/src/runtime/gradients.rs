//! Gradients of one optimizer step, added up over micro-batches in f32.

use candle_core::Var;
use candle_core::backprop::GradStore;
use maverl_kernels::adamw::sum_of_squares;

use crate::model::{Model, ModelError, nn};

/// One sum for each variable that a policy may change.
pub(crate) struct Gradients<'m> {
    vars: &'m [(String, Var)],
    sums: Vec<Vec<f32>>,
    reached: Vec<bool>,
}

impl<'m> Gradients<'m> {
    /// Zeros.
    pub(crate) fn new(model: &'m Model) -> Self {
        let vars = model.trainable();
        let sums = vars.iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
        Self { vars, sums, reached: vec![false; vars.len()] }
    }

    /// Adds what a part of a backward pass found, and frees it.
    pub(crate) fn take(&mut self, found: &mut GradStore) -> candle_core::Result<()> {
        for (((_, var), sum), reached) in
            self.vars.iter().zip(&mut self.sums).zip(&mut self.reached)
        {
            if let Some(gradient) = found.remove(var) {
                nn::with_values(&gradient, |gradient| {
                    sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
                })?;
                *reached = true;
            }
        }
        Ok(())
    }

    /// The sums, in the order of the model's variables.
    ///
    /// # Errors
    ///
    /// If a variable got no gradient (MO-1).
    pub(crate) fn sums(&self) -> Result<&[Vec<f32>], ModelError> {
        match self.vars.iter().zip(&self.reached).find(|(_, reached)| !**reached) {
            Some(((name, _), _)) => Err(ModelError(format!("`{name}` got no gradient (MO-1)"))),
            None => Ok(&self.sums),
        }
    }

    /// The norm of all of them together.
    pub(crate) fn norm(&self) -> f64 {
        self.sums.iter().map(|sum| sum_of_squares(sum)).sum::<f64>().sqrt()
    }
}

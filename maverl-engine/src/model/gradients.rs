//! Gradients of one optimizer step, summed over micro-batches in f32.

use maverl_kernels::adamw::sum_of_squares;

use crate::model::values::Tensor;
use crate::model::{ModelError, ModelErrorKind};

/// Sums of gradients, one for each trainable variable.
pub struct Gradients<'m> {
    vars: &'m [(String, Tensor)],
    sums: Vec<Vec<f32>>,
    reached: Vec<bool>,
}

impl<'m> Gradients<'m> {
    /// Creates zeros for variables.
    pub fn new(vars: &'m [(String, Tensor)]) -> Self {
        let sums = vars.iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
        Self { vars, sums, reached: vec![false; vars.len()] }
    }

    /// Returns the gradient sum of the variable at `slot`, or `None` for a frozen one.
    pub fn of(&mut self, slot: Option<usize>) -> Option<&mut [f32]> {
        let slot = slot?;
        self.reached[slot] = true;
        Some(&mut self.sums[slot])
    }

    /// Returns the sums, in the order of the variables.
    ///
    /// # Errors
    ///
    /// If a variable got no gradient (MO-1).
    pub fn sums(&self) -> Result<&[Vec<f32>], ModelError> {
        match self.vars.iter().zip(&self.reached).find(|(_, reached)| !**reached) {
            Some(((name, _), _)) => Err(ModelError::new(
                ModelErrorKind::Numeric,
                format!("`{name}` got no gradient (MO-1)"),
            )),
            None => Ok(&self.sums),
        }
    }

    /// Returns the norm of all sums together.
    pub fn norm(&self) -> f64 {
        self.sums.iter().map(|sum| sum_of_squares(sum)).sum::<f64>().sqrt()
    }
}

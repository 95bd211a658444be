//! Gradients of one optimizer step, added up over micro-batches in f32.

use maverl_kernels::adamw::sum_of_squares;

use crate::model::ModelError;
use crate::model::values::Tensor;

/// One sum for each variable that an update may change.
pub struct Gradients<'m> {
    vars: &'m [(String, Tensor)],
    sums: Vec<Vec<f32>>,
    reached: Vec<bool>,
}

impl<'m> Gradients<'m> {
    /// Zeros for variables.
    pub fn new(vars: &'m [(String, Tensor)]) -> Self {
        let sums = vars.iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
        Self { vars, sums, reached: vec![false; vars.len()] }
    }

    /// Where the gradient of the variable at `slot` is added up; none for a frozen one.
    pub fn of(&mut self, slot: Option<usize>) -> Option<&mut [f32]> {
        let slot = slot?;
        self.reached[slot] = true;
        Some(&mut self.sums[slot])
    }

    /// The sums, in the order of the variables.
    ///
    /// # Errors
    ///
    /// If a variable got no gradient (MO-1).
    pub fn sums(&self) -> Result<&[Vec<f32>], ModelError> {
        match self.vars.iter().zip(&self.reached).find(|(_, reached)| !**reached) {
            Some(((name, _), _)) => Err(ModelError(format!("`{name}` got no gradient (MO-1)"))),
            None => Ok(&self.sums),
        }
    }

    /// The norm of all of them together.
    pub fn norm(&self) -> f64 {
        self.sums.iter().map(|sum| sum_of_squares(sum)).sum::<f64>().sqrt()
    }
}

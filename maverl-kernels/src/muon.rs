//! Muon: momentum of a matrix, whose singular values are made about equal.

use crate::adamw::sum_of_squares;
use crate::matmul::Precision;

/// Coefficients of a step of the iteration: `X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X`.
const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];

/// Steps of the iteration.
const STEPS: usize = 5;

/// Constant added to the norm of the momentum.
const EPS: f64 = 1e-7;

/// Factor of a direction, after which the root mean square of an update is about that of AdamW.
const SCALE: f64 = 0.2;

/// Constants of a Muon update ([Liu et al., 2025], Algorithm 1).
///
/// [Liu et al., 2025]: https://arxiv.org/abs/2502.16982
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Muon {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the momentum.
    pub momentum: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// Updates a matrix `[rows, columns]` and its momentum `m` in place. Returns the sum of the squares of the update before the
/// learning rate.
///
/// ```text
/// g = scale · grad,   m ← β m + g
/// X = g + β m,  X ← X / (‖X‖ + 1e-7)                              Nesterov momentum
/// five times  A = X Xᵀ,  X ← 3.4445 X + (−4.775 A + 2.0315 A²) X   Xᵀ X from the right, if there are more rows than columns
/// p ← p (1 − lr λ) − lr · 0.2 √max(rows, columns) · X
/// ```
///
/// The iteration of Newton and Schulz brings the singular values of `X` to about 1. Products are in f32, with the order of sums of
/// [`matmul`](crate::matmul), so the bits do not depend on the number of threads.
///
/// # Panics
///
/// If the lengths differ from `rows · columns`.
pub fn muon_step(
    cfg: &Muon,
    grad_scale: f32,
    param: &mut [f32],
    grad: &[f32],
    m: &mut [f32],
    (rows, columns): (usize, usize),
) -> f64 {
    let n = rows * columns;
    for (name, len) in [("param", param.len()), ("grad", grad.len()), ("m", m.len())] {
        assert_eq!(len, n, "muon_step: {name} has {len} elements, not {rows} x {columns}");
    }
    let beta = cfg.momentum as f32;
    let mut direction = vec![0.0; n];
    for ((to, m), grad) in direction.iter_mut().zip(m).zip(grad) {
        let grad = grad_scale * grad;
        *m = beta * *m + grad;
        *to = grad + beta * *m;
    }
    let direction = orthogonalized(direction, (rows, columns));
    let scale = SCALE * (rows.max(columns) as f64).sqrt();
    let keep = (1.0 - cfg.lr * cfg.weight_decay) as f32;
    let rate = (cfg.lr * scale) as f32;
    for (param, direction) in param.iter_mut().zip(&direction) {
        *param = keep * *param - rate * direction;
    }
    scale * scale * sum_of_squares(&direction)
}

/// Returns a matrix `[rows, columns]` with the same singular vectors, and singular values of about 1.
pub fn orthogonalized(mut x: Vec<f32>, (rows, columns): (usize, usize)) -> Vec<f32> {
    let inverse = (1.0 / (sum_of_squares(&x).sqrt() + EPS)) as f32;
    x.iter_mut().for_each(|x| *x *= inverse);
    let [a, b, c] = COEFFICIENTS;
    let (set, k) = (Precision::F32.set(), rows.min(columns));
    let (mut gram, mut squared) = (vec![0.0; k * k], vec![0.0; k * k]);
    let mut next = vec![0.0; x.len()];
    for _ in 0..STEPS {
        if rows <= columns {
            set.nt(&x, &x, &mut gram, rows, rows, columns);
        } else {
            set.tn(&x, &x, &mut gram, columns, columns, rows);
        }
        set.nn(&gram, &gram, &mut squared, k, k, k);
        for (gram, squared) in gram.iter_mut().zip(&squared) {
            *gram = b * *gram + c * squared;
        }
        if rows <= columns {
            set.nn(&gram, &x, &mut next, rows, columns, rows);
        } else {
            set.nn(&x, &gram, &mut next, rows, columns, columns);
        }
        x.iter_mut().zip(&next).for_each(|(x, next)| *x = a * *x + next);
    }
    x
}

#[cfg(test)]
mod tests;

//! Mixers: the value of a team from the values of its agents.

mod turns;

pub use turns::{MixedTurn, SeatValues, mixed_turns};

use maverl_kernels::sample::{derive_seed, uniform_number};

/// Function that combines the values of agents into the value of the team.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixing {
    /// Sum of the values, `V = Σ Vᵢ`: VDN, [1706.05296](https://arxiv.org/abs/1706.05296).
    Sum,
    /// Monotone network of QMIX.
    Monotone(Monotone),
}

/// Network over the agents' values. Its weights are nonnegative functions of the state `z`.
///
/// ```text
/// W₁ = |A₁ z + a₁|  [S, E]     b₁ = A₂ z + a₂  [E]     w₂ = |A₃ z + a₃|  [E]
/// b₂ = w₄ · relu(A₄ z + a₄) / E + a₅
/// V  = w₂ · elu(V W₁ + b₁) / E + b₂
/// ```
///
/// QMIX, [1803.11485](https://arxiv.org/abs/1803.11485) §4, with means over hidden units in place of sums: the same
/// functions, but one learning rate suits any width. No weight is negative, so `∂V/∂Vᵢ ≥ 0`. At initialization the
/// output is close to the sum of the values.
#[derive(Debug, Clone, PartialEq)]
pub struct Monotone {
    seats: usize,
    state: usize,
    width: usize,
    /// Parameters A₁, a₁, A₂, a₂, A₃, a₃, A₄, a₄, w₄, a₅.
    params: Vec<f32>,
}

/// Intermediate results of a forward pass, kept for the backward pass.
struct MixerPass {
    /// Weights `W₁` before the absolute value, `[S, E]`.
    w1: Vec<f64>,
    /// Hidden units before the elu, `[E]`.
    sums: Vec<f64>,
    /// Weights `w₂` before the absolute value, `[E]`.
    w2: Vec<f64>,
    /// Hidden units of `b₂` before the relu, `[E]`.
    hidden: Vec<f64>,
    total: f64,
}

impl Mixing {
    /// Returns the value of the team from the values of its seats `[S]`.
    pub fn total(&self, values: &[f64], state: &[f64]) -> f64 {
        match self {
            Self::Sum => values.iter().sum(),
            Self::Monotone(network) => network.forward(values, state).total,
        }
    }

    /// Returns the derivatives `[S]` of the team's value by the values of its seats. Adds the derivatives by the
    /// parameters, times `by`, to `gradient`.
    pub fn backward(
        &self,
        values: &[f64],
        state: &[f64],
        by: f64,
        gradient: &mut [f64],
    ) -> Vec<f64> {
        match self {
            Self::Sum => vec![1.0; values.len()],
            Self::Monotone(network) => network.backward(values, state, by, gradient),
        }
    }

    /// Returns the parameters.
    pub fn params(&self) -> &[f32] {
        match self {
            Self::Sum => &[],
            Self::Monotone(network) => &network.params,
        }
    }

    /// Returns the parameters for modification.
    pub fn params_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Sum => &mut [],
            Self::Monotone(network) => &mut network.params,
        }
    }
}

impl Monotone {
    /// Creates the network from a seed, for `seats` seats, `state` state features and `width` hidden units.
    pub fn new(seats: usize, state: usize, width: usize, seed: u64) -> Self {
        let spread = 0.1 / (state as f64).sqrt().max(1.0);
        let mut params = Vec::new();
        let linear =
            [(seats * width, 1.0, 0.1), (width, 0.0, 0.0), (width, 1.0, 0.1), (width, 0.0, 0.0)];
        for (rows, middle, around) in linear {
            draw_block(&mut params, seed, rows * state, 0.0, spread);
            draw_block(&mut params, seed, rows, middle, around);
        }
        draw_block(&mut params, seed, width, 0.0, 0.1);
        draw_block(&mut params, seed, 1, 0.0, 0.0);
        Self { seats, state, width, params }
    }

    /// Replaces the parameters, in the order of [`Mixing::params`]; `None` if their number differs.
    pub fn with_params(mut self, params: Vec<f32>) -> Option<Self> {
        (params.len() == self.params.len()).then(|| {
            self.params = params;
            self
        })
    }

    /// Returns the number of state features.
    pub fn state(&self) -> usize {
        self.state
    }

    /// Returns the number of rows of each block that is linear in the state. A block has parameters `[rows, state]`,
    /// then `[rows]`.
    fn blocks(&self) -> [usize; 4] {
        [self.seats * self.width, self.width, self.width, self.width]
    }

    /// Returns the offset of block `index`.
    fn start(&self, index: usize) -> usize {
        self.blocks()[..index].iter().map(|rows| rows * (self.state + 1)).sum()
    }

    /// Computes `A z + a` of a block.
    fn linear(&self, index: usize, state: &[f64]) -> Vec<f64> {
        let (rows, start) = (self.blocks()[index], self.start(index));
        let (matrix, rest) = self.params[start..].split_at(rows * self.state);
        let mut out = Vec::with_capacity(rows);
        for (row, bias) in matrix.chunks_exact(self.state).zip(rest) {
            let dot: f64 = row.iter().zip(state).map(|(a, z)| f64::from(*a) * z).sum();
            out.push(dot + f64::from(*bias));
        }
        out
    }

    /// Computes the backward pass of [`Monotone::linear`].
    fn linear_backward(&self, index: usize, state: &[f64], dout: &[f64], gradient: &mut [f64]) {
        let (rows, start) = (self.blocks()[index], self.start(index));
        let (matrix, rest) = gradient[start..].split_at_mut(rows * self.state);
        for ((row, bias), d) in matrix.chunks_exact_mut(self.state).zip(rest).zip(dout) {
            row.iter_mut().zip(state).for_each(|(a, z)| *a += d * z);
            *bias += d;
        }
    }

    fn forward(&self, values: &[f64], state: &[f64]) -> MixerPass {
        assert!(values.len() == self.seats && state.len() == self.state, "mixer: shapes");
        let (w1, w2) = (self.linear(0, state), self.linear(2, state));
        let mut sums = self.linear(1, state);
        for (row, value) in w1.chunks_exact(self.width).zip(values) {
            sums.iter_mut().zip(row).for_each(|(sum, w)| *sum += w.abs() * value);
        }
        let hidden = self.linear(3, state);
        let last = &self.params[self.start(4)..];
        let bias: f64 = hidden.iter().zip(last).map(|(h, w)| h.max(0.0) * f64::from(*w)).sum();
        let out: f64 = sums.iter().zip(&w2).map(|(sum, w)| elu(*sum) * w.abs()).sum();
        let total = (out + bias) / self.width as f64 + f64::from(last[self.width]);
        MixerPass { w1, sums, w2, hidden, total }
    }

    fn backward(&self, values: &[f64], state: &[f64], by: f64, gradient: &mut [f64]) -> Vec<f64> {
        let MixerPass { w1, sums, w2, hidden, .. } = self.forward(values, state);
        let share = 1.0 / self.width as f64;
        // Derivatives of the team's value by the inputs of the hidden units.
        let dsums: Vec<f64> =
            sums.iter().zip(&w2).map(|(s, w)| share * w.abs() * elu_slope(*s)).collect();
        let (mut grads, mut dw1) = (Vec::with_capacity(self.seats), Vec::with_capacity(w1.len()));
        for (row, value) in w1.chunks_exact(self.width).zip(values) {
            grads.push(row.iter().zip(&dsums).map(|(w, d)| w.abs() * d).sum::<f64>());
            dw1.extend(row.iter().zip(&dsums).map(|(w, d)| by * d * value * sign(*w)));
        }
        let dw2: Vec<f64> =
            sums.iter().zip(&w2).map(|(s, w)| by * share * elu(*s) * sign(*w)).collect();
        let db1: Vec<f64> = dsums.iter().map(|d| by * d).collect();
        let last = self.start(4);
        let dhidden: Vec<f64> = hidden
            .iter()
            .zip(&self.params[last..])
            .map(|(h, w)| if *h > 0.0 { by * share * f64::from(*w) } else { 0.0 })
            .collect();
        for (index, dout) in [dw1, db1, dw2, dhidden].iter().enumerate() {
            self.linear_backward(index, state, dout, gradient);
        }
        for (d, h) in gradient[last..].iter_mut().zip(&hidden) {
            *d += by * share * h.max(0.0);
        }
        gradient[last + self.width] += by;
        grads
    }
}

/// Appends `n` parameters that are drawn within `spread` of `middle`.
fn draw_block(params: &mut Vec<f32>, seed: u64, n: usize, middle: f64, spread: f64) {
    let seed = derive_seed(seed, params.len() as u64);
    let draws = (0..n).map(|i| 2.0 * uniform_number(seed, i as u64) - 1.0);
    params.extend(draws.map(|draw| (middle + spread * draw) as f32));
}

fn elu(x: f64) -> f64 {
    if x > 0.0 { x } else { libm::expm1(x) }
}

fn elu_slope(x: f64) -> f64 {
    if x > 0.0 { 1.0 } else { libm::exp(x) }
}

fn sign(x: f64) -> f64 {
    if x < 0.0 { -1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::assert_close;
    use crate::config::Credit;

    fn numbers(seed: u64, n: usize) -> Vec<f64> {
        (0..n as u64).map(|i| 4.0 * uniform_number(seed, i) - 2.0).collect()
    }

    /// Creates a network with parameters far from their initialization.
    fn wild(seats: usize, state: usize, width: usize, seed: u64) -> Monotone {
        let network = Monotone::new(seats, state, width, seed);
        let params = numbers(seed ^ 9, network.params.len());
        network.with_params(params.iter().map(|&x| x as f32).collect()).unwrap()
    }

    /// Returns the network of marl.md 8.4. Its weights do not depend on the state; w₂ is halved.
    fn golden() -> Mixing {
        let network = Monotone::new(2, 1, 2, 0);
        let params = [
            &[0.0; 4][..],
            &[1.0, 0.5, 0.25, 2.0],
            &[0.0; 2],
            &[0.1, -0.2],
            &[0.0; 2],
            &[1.4, 0.6],
            &[0.0; 6],
            &[0.05],
        ];
        Mixing::Monotone(network.with_params(params.concat()).unwrap())
    }

    #[test]
    fn a_mixer_agrees_with_the_reference() {
        let (mixing, state) = (golden(), [0.0]);
        let values = [0.5, -1.0];
        assert_close("marl.md 8.4, Q_tot", &[mixing.total(&values, &state)], &[0.0376822], 1e-6);
        let grads = mixing.backward(&values, &state, 1.0, &mut [0.0; 23]);
        assert_close("marl.md 8.4, dQ_tot/dq", &grads, &[0.721341, 0.260364], 1e-6);
        let turn = MixedTurn {
            before: vec![0.2, values[1]],
            after: values.to_vec(),
            state: state.to_vec(),
            ..MixedTurn::default()
        };
        let difference = turn.advantage(&mixing, Credit::Difference);
        assert_close("marl.md 8.4, difference", &[difference], &[0.215945], 1e-5);
    }

    #[test]
    fn no_agent_can_lower_the_value_of_the_team() {
        for seed in 0..200 {
            let mixing = Mixing::Monotone(wild(4, 6, 5, seed));
            let (values, state) = (numbers(seed + 1000, 4), numbers(seed + 2000, 6));
            let mut unused = vec![0.0; mixing.params().len()];
            let grads = mixing.backward(&values, &state, 0.0, &mut unused);
            assert!(grads.iter().all(|&grad| grad >= 0.0), "seed {seed}: {grads:?}");
            for seat in 0..4 {
                let mut more = values.clone();
                more[seat] += 0.7;
                assert!(mixing.total(&more, &state) >= mixing.total(&values, &state));
            }
        }
    }

    #[test]
    fn gradients_agree_with_central_differences() {
        for seed in 0..5 {
            let network = wild(3, 4, 5, seed);
            let mixing = Mixing::Monotone(network.clone());
            let (values, state) = (numbers(seed + 50, 3), numbers(seed + 60, 4));
            let mut gradient = vec![0.0; network.params.len()];
            let grads = mixing.backward(&values, &state, 1.0, &mut gradient);
            for (seat, grad) in grads.iter().enumerate() {
                let at = |x: f64| {
                    let mut values = values.clone();
                    values[seat] = x;
                    mixing.total(&values, &state)
                };
                let want = (at(values[seat] + 1e-5) - at(values[seat] - 1e-5)) / 2e-5;
                assert!((grad - want).abs() < 1e-6, "seat {seat}: {grad} is not {want}");
            }
            for (i, got) in gradient.iter().enumerate() {
                // Parameters are f32, so the difference is divided by the actual step.
                let moved = |by: f32| {
                    let mut params = network.params.clone();
                    params[i] += by;
                    let at = f64::from(params[i]);
                    let mixing = Mixing::Monotone(network.clone().with_params(params).unwrap());
                    (at, mixing.total(&values, &state))
                };
                let ((high, above), (low, below)) = (moved(1e-3), moved(-1e-3));
                let want = (above - below) / (high - low);
                assert!((got - want).abs() < 1e-3 * want.abs().max(1.0), "{i}: {got}, {want}");
            }
        }
    }

    #[test]
    fn a_new_network_is_near_the_sum_and_equal_seeds_make_equal_ones() {
        let network = Monotone::new(3, 8, 32, 5);
        assert_eq!(network, Monotone::new(3, 8, 32, 5));
        let values = [0.2, 0.5, 0.3];
        let total = Mixing::Monotone(network).total(&values, &numbers(3, 8));
        assert!((total - 1.0).abs() < 0.3, "{total}");
    }
}

//! Rotary position embedding in the rotate-half convention of Hugging Face.

use std::sync::{Arc, PoisonError, RwLock};

use pulp::Simd;

use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Cosines and sines by position and frequency.
///
/// They are computed when a position is first used, because a model may allow far longer sequences than it ever gets.
#[derive(Debug)]
pub struct RopeTable {
    inv_freq: Vec<f32>,
    /// Elements of a head.
    head_dim: usize,
    /// Factor of cosines and sines.
    factor: f32,
    max_positions: usize,
    /// Table of the first positions: up to the last one used, rounded up to a power of two.
    rows: RwLock<Arc<RopeRows>>,
}

/// Cosines and sines, both `[positions, half]`.
#[derive(Debug, Default)]
struct RopeRows {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// Creates the table of positions `0..max_positions`; `inv_freq` has half a head's dimension. Angles are `f32`
    /// products, as in Hugging Face.
    pub fn new(inv_freq: &[f32], max_positions: usize) -> Self {
        let (inv_freq, head_dim) = (inv_freq.to_vec(), 2 * inv_freq.len());
        Self { inv_freq, head_dim, factor: 1.0, max_positions, rows: RwLock::default() }
    }

    /// Returns the table of heads of `head_dim` elements, of which the first `2 * inv_freq.len()` are rotated.
    ///
    /// # Panics
    ///
    /// If the frequencies are those of more elements.
    #[must_use]
    pub fn with_head_dim(self, head_dim: usize) -> Self {
        let rotated = 2 * self.inv_freq.len();
        assert!(rotated <= head_dim, "rope: {rotated} rotated elements of a head of {head_dim}");
        Self { head_dim, ..self }
    }

    /// Returns the table with cosines and sines multiplied by a factor (YaRN, arXiv:2309.00071, section 3.4).
    #[must_use]
    pub fn with_factor(self, factor: f32) -> Self {
        Self { factor, ..self }
    }

    /// Returns the dimension of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Returns the number of positions of the table.
    pub fn max_positions(&self) -> usize {
        self.max_positions
    }

    /// Returns the cosines and sines of the first `positions`, each `[positions, head_dim / 2]`.
    ///
    /// # Panics
    ///
    /// If the table has fewer positions.
    #[cfg(feature = "cuda")]
    pub(crate) fn first_rows(&self, positions: usize) -> [Vec<f32>; 2] {
        let have = self.max_positions;
        assert!(positions <= have, "rope: {positions} positions of a table of {have}");
        let (rows, len) = (self.table_rows(positions), positions * self.inv_freq.len());
        [rows.cos[..len].to_vec(), rows.sin[..len].to_vec()]
    }

    /// Returns the rows of at least the first `positions`, which must be in the table.
    fn table_rows(&self, positions: usize) -> Arc<RopeRows> {
        let needed = positions * self.inv_freq.len();
        let rows = Arc::clone(&self.rows.read().unwrap_or_else(PoisonError::into_inner));
        if rows.cos.len() >= needed {
            return rows;
        }
        let end = positions.next_power_of_two().min(self.max_positions);
        let angles = (0..end).flat_map(|p| self.inv_freq.iter().map(move |f| p as f32 * f));
        let rows = Arc::new(RopeRows {
            cos: angles.clone().map(|angle| libm::cosf(angle) * self.factor).collect(),
            sin: angles.map(|angle| libm::sinf(angle) * self.factor).collect(),
        });
        let mut held = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        if held.cos.len() < rows.cos.len() {
            *held = Arc::clone(&rows);
        }
        rows
    }
}

/// Rotates each head of each token by its position, in place: `x` is `[n, heads * head_dim]`, `positions [n]`.
///
/// ```text
/// (a, b) = halves of a head:   (a, b) ← (a cos θ − b sin θ, b cos θ + a sin θ)
/// ```
///
/// If the table rotates only the first elements of a head, these are halved, and the others stay.
///
/// # Panics
///
/// If the lengths differ from the shapes, or a position is not in the table.
pub fn apply_rope(x: &mut [f32], positions: &[u32], heads: usize, table: &RopeTable) {
    rotate_heads("rope", x, positions, heads, table, 1.0);
}

/// Computes the gradient of [`apply_rope`] in place: the rotation by the negative angle, with the same factor.
///
/// # Panics
///
/// Under the same conditions as [`apply_rope`].
pub fn rope_bwd(dx: &mut [f32], positions: &[u32], heads: usize, table: &RopeTable) {
    rotate_heads("rope_bwd", dx, positions, heads, table, -1.0);
}

fn rotate_heads(
    name: &str,
    x: &mut [f32],
    positions: &[u32],
    heads: usize,
    table: &RopeTable,
    sign: f32,
) {
    let (n, head_dim, half) = (positions.len(), table.head_dim(), table.inv_freq.len());
    let width = heads * head_dim;
    assert!(width * half > 0, "{name}: no heads, or a table of no frequencies");
    assert_eq!(x.len(), n * width, "{name}: x has {} elements, not [{n}, {width}]", x.len());
    let table = &*checked_rows(name, positions, table);
    par::for_each_part(x, width, |start, x| {
        let positions = &positions[start / width..];
        lanes::run_kernel(Rotate { x, positions, width, head_dim, half, table, sign });
    });
}

/// Tokens of [`rotate_heads`].
struct Rotate<'a> {
    /// Heads of some tokens, `[.., width]`.
    x: &'a mut [f32],
    /// Positions, at least as many as tokens.
    positions: &'a [u32],
    width: usize,
    head_dim: usize,
    half: usize,
    table: &'a RopeRows,
    sign: f32,
}

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { x, positions, width, head_dim, half, table, sign } = self;
        let sign = lanes.splat(sign);
        for (x, &position) in x.chunks_exact_mut(width).zip(positions) {
            let at = position as usize * half..(position as usize + 1) * half;
            let (cos, sin) = (&table.cos[at.clone()], &table.sin[at]);
            for x in x.chunks_exact_mut(head_dim) {
                let (a, b) = x[..2 * half].split_at_mut(half);
                lanes.map_lanes(
                    [cos, sin],
                    [a, b],
                    #[inline(always)]
                    |[cos, sin], [a, b]| {
                        let sin = lanes.mul(sign, sin);
                        let turned = lanes.sub(lanes.mul(a, cos), lanes.mul(b, sin));
                        [turned, lanes.add(lanes.mul(b, cos), lanes.mul(a, sin))]
                    },
                );
            }
        }
    }
}

/// Returns the table's rows of some positions, after asserting that the table has them.
fn checked_rows(name: &str, positions: &[u32], table: &RopeTable) -> Arc<RopeRows> {
    let most = positions.iter().max().map_or(0, |&p| p as usize + 1);
    let have = table.max_positions();
    assert!(most <= have, "{name}: position {} of a table of {have}", most.saturating_sub(1));
    table.table_rows(most)
}

#[cfg(test)]
mod tests;

//! Attention of each token to all tokens of its text.

use maverl_kernels::matmul::Precision;
use maverl_kernels::run_alone;
use rayon::prelude::*;

use super::rows::softmax_rows;

/// Shape of an attention without a mask.
#[derive(Debug, Clone, Copy)]
pub(super) struct FullAttention {
    /// Number of heads.
    pub(super) heads: usize,
    /// Numbers of all heads of a token, D.
    pub(super) width: usize,
}

/// Queries, keys or values of a text, `[L, D]`.
type TextStates<'a> = [&'a [f32]; 3];

impl FullAttention {
    /// Computes `softmax(q kᵀ / √d) v` of each head, for `q`, `k` and `v` `[N, D]` of texts of some lengths. Each head of a text is
    /// a task of its own.
    pub(super) fn forward(self, qkv: TextStates<'_>, lengths: &[usize]) -> Vec<f32> {
        let mut tasks = Vec::with_capacity(lengths.len() * self.heads);
        let mut first = 0;
        for &length in lengths.iter().filter(|length| **length > 0) {
            tasks.extend((0..self.heads).map(|head| (first, length, head)));
            first += length;
        }
        // [L, d] each
        let parts: Vec<Vec<f32>> = tasks
            .par_iter()
            .map(|&(first, length, head)| run_alone(|| self.head(qkv, first, length, head)))
            .collect();
        let (d, mut out) = (self.width / self.heads, vec![0.0; first * self.width]);
        for ((first, _, head), part) in tasks.into_iter().zip(parts) {
            for (row, numbers) in part.chunks_exact(d).enumerate() {
                let start = (first + row) * self.width + head * d;
                out[start..start + d].copy_from_slice(numbers);
            }
        }
        out
    }

    /// Computes one head of the text of `length` tokens that begins at the token `first`.
    fn head(self, qkv: TextStates<'_>, first: usize, length: usize, head: usize) -> Vec<f32> {
        let d = self.width / self.heads;
        // 1. [L, d] each
        let [q, k, v] = qkv.map(|states| {
            let tokens = states[first * self.width..].chunks_exact(self.width).take(length);
            tokens.flat_map(|token| &token[head * d..(head + 1) * d]).copied().collect::<Vec<_>>()
        });
        // 2. [L, L]
        let mut scores = vec![0.0; length * length];
        Precision::F32.set().nt(&q, &k, &mut scores, length, length, d);
        softmax_rows(&mut scores, length, 1.0 / (d as f32).sqrt());
        // 3. [L, d]
        let mut out = vec![0.0; length * d];
        Precision::F32.set().nn(&scores, &v, &mut out, length, d, length);
        out
    }
}

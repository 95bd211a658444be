//! Aggregation of token losses.

use crate::config::Aggregation;

/// Computes the weight of each token for rows of `lengths` tokens packed one after another: `[N]`, with `N` the sum of
/// lengths. The weighted sum of token losses is the aggregate over the whole batch.
///
/// ```text
/// token_mean      w = 1 / N                            DAPO, BNPO
/// sequence_mean   w = 1 / (rows · length of the row)   GRPO
/// sequence_sum    w = 1 / rows                         LUSPO, where the ratio is of the sequence
/// constant        w = 1 / (rows · longest)             Dr. GRPO
/// ```
///
/// `longest` is the maximum length of a reply: a number of the configuration, not of the batch.
pub fn token_weights(lengths: &[usize], aggregation: Aggregation, longest: usize) -> Vec<f32> {
    let rows = lengths.len() as f64;
    let tokens = lengths.iter().sum::<usize>() as f64;
    let weight = |length: usize| match aggregation {
        Aggregation::TokenMean => 1.0 / tokens,
        Aggregation::SequenceMean => 1.0 / (rows * length as f64),
        Aggregation::SequenceSum => 1.0 / rows,
        Aggregation::Constant => 1.0 / (rows * longest as f64),
    };
    lengths.iter().flat_map(|&length| std::iter::repeat_n(weight(length) as f32, length)).collect()
}

//! Aggregation of token losses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Aggregation of token losses to one number; every count is a true count of the whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Sum over tokens, over the number of tokens.
    #[default]
    TokenMean,
    /// Mean over each row's tokens, then over rows.
    SequenceMean,
    /// Sum over each row's tokens, then mean over rows.
    SequenceSum,
    /// Sum over tokens, over the tokens there would be if every reply were as long as it may be.
    Constant,
}

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
    let weights = lengths.iter().flat_map(|&length| {
        let weight = match aggregation {
            Aggregation::TokenMean => 1.0 / tokens,
            Aggregation::SequenceMean => 1.0 / (rows * length as f64),
            Aggregation::SequenceSum => 1.0 / rows,
            Aggregation::Constant => 1.0 / (rows * longest as f64),
        };
        std::iter::repeat_n(weight as f32, length)
    });
    weights.collect()
}

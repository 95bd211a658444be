//! Batches of critics: texts, and the targets of their values.

use crate::runtime::peers::mix_word;

/// Input of a critic. It has a value at each of the last `places` tokens, before the token that follows. With a head of
/// log-probs, those are the tokens that are predicted, and a token before them is needed.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueText {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Number of values, at least one.
    pub places: usize,
}

/// Training target of the values of a text. All fields are `[places]`.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueTarget {
    /// Regression to returns.
    Returns {
        /// Values before the update, from which advantages were computed.
        old: Vec<f32>,
        /// Returns that the values are regressed to.
        returns: Vec<f32>,
    },
    /// Gradient of a loss by each value.
    Slopes(Vec<f32>),
}

/// One text of a critic's batch.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueRow {
    /// Input of the critic.
    pub text: ValueText,
    /// Target of its values.
    pub aim: ValueTarget,
}

/// Rows of one update of a critic.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueBatch {
    /// Rows. Their order fixes every sum.
    pub rows: Vec<ValueRow>,
    /// Optimizer steps per epoch.
    pub minibatches: usize,
    /// Number of passes over the rows.
    pub epochs: usize,
    /// Learning rate, with the schedule applied.
    pub lr: f64,
}

impl ValueRow {
    /// Adds what ranks compute themselves to a hash.
    fn mixed_into(&self, hash: u64) -> u64 {
        let [old, targets] = match &self.aim {
            ValueTarget::Returns { old, returns } => [old.as_slice(), returns],
            ValueTarget::Slopes(slopes) => [&[][..], slopes],
        };
        let numbers = old.iter().chain(targets).map(|number| number.to_bits());
        let words = self.text.ids.iter().copied().chain(numbers);
        words.fold(hash, |hash, word| mix_word(hash, u64::from(word)))
    }
}

impl ValueBatch {
    /// Computes a hash of everything that weights depend on and that ranks compute themselves.
    pub(crate) fn checksum(&self) -> u64 {
        self.rows.iter().fold(mix_word(0, self.lr.to_bits()), |hash, row| row.mixed_into(hash))
    }
}

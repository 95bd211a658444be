//! Batches of rows: the inputs of updates.

use std::fmt;
use std::sync::Arc;

use crate::loss::{Aggregation, LossOptions, PreferenceOptions, Surrogate};

/// A training row: a prompt and its completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Prompt tokens; never trained on.
    pub prompt: Vec<u32>,
    /// Tokens of the reply (in SFT, of the target text). Every token is trained on.
    pub completion: Vec<u32>,
    /// Log-probs at rollout, one per completion token; empty in SFT.
    pub logprobs: Vec<f32>,
    /// Advantage of each completion token; empty in SFT.
    pub advantages: Vec<f32>,
    /// Temperature of the log-probs (1 for a greedy reply).
    pub temperature: f32,
    /// Weight of each token, in addition to [`Batch::aggregation`]; empty means 1 each.
    pub weights: Vec<f32>,
    /// Coefficients of the loss.
    pub loss: LossOptions,
}

impl Default for Row {
    /// Returns a row without tokens, at temperature 1.
    fn default() -> Self {
        Self {
            prompt: Vec::new(),
            completion: Vec::new(),
            logprobs: Vec::new(),
            advantages: Vec::new(),
            temperature: 1.0,
            weights: Vec::new(),
            loss: LossOptions::default(),
        }
    }
}

/// Training objective of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    /// Clipped surrogate on advantages, with KL and entropy terms.
    PolicyGradient,
    /// Negative log-likelihood of the completions.
    Supervised,
    /// Pairs of completions, the better one first.
    Preference(PreferenceOptions),
}

impl Objective {
    /// Returns the number of consecutive rows that form one unit.
    pub const fn rows(self) -> usize {
        match self {
            Self::PolicyGradient | Self::Supervised => 1,
            Self::Preference(_) => 2,
        }
    }
}

/// Rows of one update of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Rows. Their order fixes every sum.
    pub rows: Vec<Row>,
    /// Training objective.
    pub objective: Objective,
    /// Surrogate of policy gradients in place of those of the rows' [`LossOptions`].
    pub surrogate: Option<CustomSurrogate>,
    /// Optimizer steps an epoch is split into.
    pub minibatches: usize,
    /// Number of passes over the rows.
    pub epochs: usize,
    /// Aggregation of token losses.
    pub aggregation: Aggregation,
    /// Maximum length of a completion, the divisor of [`Aggregation::Constant`].
    pub longest: usize,
    /// Mean KL to the sampling policy above which no further epoch starts; 0 disables it.
    pub early_stop_kl: f64,
    /// Learning rate, with the schedule applied.
    pub lr: f64,
}

impl Default for Batch {
    /// Returns a batch of policy gradients without rows, for one optimizer step with learning rate 1e-6.
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            objective: Objective::PolicyGradient,
            surrogate: None,
            minibatches: 1,
            epochs: 1,
            aggregation: Aggregation::TokenMean,
            longest: 1,
            early_stop_kl: 0.0,
            lr: 1e-6,
        }
    }
}

/// A surrogate of another crate. Two are equal if they are the same value.
#[derive(Clone)]
pub struct CustomSurrogate {
    /// Name in messages.
    pub name: String,
    /// The surrogate.
    pub value: Arc<dyn Surrogate>,
}

impl fmt::Debug for CustomSurrogate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomSurrogate").field(&self.name).finish()
    }
}

impl PartialEq for CustomSurrogate {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.value, &other.value)
    }
}

/// Input of a critic. It has a value at each of the last `places` tokens, before the token that follows.
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

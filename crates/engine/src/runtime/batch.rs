//! Batches of rows: the inputs of updates.

mod values;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::files::ModelError;
use crate::loss::{
    Aggregation, DistillOptions, LossOptions, PreferenceOptions, Selection, Surrogate,
};
use crate::message::Routes;
use crate::runtime::peers::mix_word;

pub use values::{ValueBatch, ValueRow, ValueTarget, ValueText};

/// A training row: a prompt and its completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Prompt tokens; never trained on.
    pub prompt: Vec<u32>,
    /// Tokens of the reply (in SFT, of the target text). Every token is trained on.
    pub completion: Vec<u32>,
    /// Tokens that the model reads, if the completion has any tokens as targets: `completion[t]` is predicted after `inputs[t]`.
    /// Empty if the model reads prompt and completion.
    pub inputs: Vec<u32>,
    /// Log-probs at rollout, one per completion token; empty in SFT.
    pub logprobs: Vec<f32>,
    /// Log-probs of the sampler, where a correction has put those of the trainer into `logprobs`; else empty.
    pub sampler: Vec<f32>,
    /// Advantage of each completion token; empty in SFT.
    pub advantages: Vec<f32>,
    /// Temperature of the log-probs (1 for a greedy reply).
    pub temperature: f32,
    /// Weight of each token, in addition to [`Batch::aggregation`]; empty means 1 each.
    pub weights: Vec<f32>,
    /// True if the row is not trained on, and no aggregation counts it.
    pub skipped: bool,
    /// Set if the completion is an observation: text that the environment wrote, in a batch of policy gradients. Such rows follow all
    /// others. They have no log-probs and advantages, and no statistic of the others counts them, as if they were skipped.
    pub observation: Option<ObservedText>,
    /// Coefficients of the loss.
    pub loss: LossOptions,
    /// Experts of all tokens but the last, as the sampler chose them, in place of those that the routers choose now.
    pub routes: Option<Routes>,
    /// Distributions of a teacher, whose [divergence](crate::loss::teacher_divergence) is a part of the loss of policy gradients.
    pub teacher: Option<TeacherTokens>,
}

/// Place and coefficient of an observation, whose negative log-likelihood is a part of the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservedText {
    /// Coefficient of the mean over the tokens of all observations of the minibatch.
    pub coef: f32,
    /// Index of the row in whose prompt it is. Both are in one minibatch, which is not trained on if all its other rows are skipped.
    pub row: usize,
}

/// Tokens in the place of each of the `T` completion tokens of a row, over which a policy is compared with a teacher: the `k` most
/// probable ones of one of the two.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TeacherTokens {
    /// Token ids, `[T, k]`.
    pub ids: Vec<u32>,
    /// Their log-probs under the teacher, at the temperature of the row, `[T, k]`.
    pub logprobs: Vec<f32>,
    /// Coefficient of the divergence.
    pub coef: f32,
}

impl Default for Row {
    /// Returns a row without tokens, at temperature 1.
    fn default() -> Self {
        Self {
            prompt: Vec::new(),
            completion: Vec::new(),
            inputs: Vec::new(),
            logprobs: Vec::new(),
            sampler: Vec::new(),
            advantages: Vec::new(),
            temperature: 1.0,
            weights: Vec::new(),
            skipped: false,
            observation: None,
            loss: LossOptions::default(),
            routes: None,
            teacher: None,
        }
    }
}

impl Row {
    /// Returns an error if the parts of a row do not fit together.
    pub(super) fn check(&self, index: usize, objective: Objective) -> Result<(), ModelError> {
        let n = self.completion.len();
        let what = if n == 0 || self.prompt.is_empty() && self.inputs.is_empty() {
            "has no prompt or no completion".to_owned()
        } else if !self.inputs.is_empty() && self.inputs.len() != n {
            format!("has {} input tokens for {n} targets", self.inputs.len())
        } else if !(self.temperature.is_finite() && self.temperature > 0.0) {
            format!("has temperature {}; a greedy row is scored at 1", self.temperature)
        } else if !self.weights.is_empty() && self.weights.len() != n {
            format!("has {} weights for {n} completion tokens", self.weights.len())
        } else if objective == Objective::PolicyGradient
            && self.observation.is_none()
            && (self.logprobs.len() != n || self.advantages.len() != n)
        {
            let (logprobs, advantages) = (self.logprobs.len(), self.advantages.len());
            format!(
                "has {logprobs} log-probs and {advantages} advantages for {n} completion tokens"
            )
        } else if let Some(what) = self.teacher.as_ref().and_then(|of| of.problem(n)) {
            what
        } else if self.teacher.is_some() && self.observation.is_some() {
            "is an observation and has a teacher".to_owned()
        } else {
            return Ok(());
        };
        Err(ModelError::wrong_argument(format!("row {index} {what}")))
    }
}

impl TeacherTokens {
    /// Returns what does not fit a completion of `n` tokens.
    fn problem(&self, n: usize) -> Option<String> {
        let [ids, logprobs] = [self.ids.len(), self.logprobs.len()];
        let fits = ids == logprobs && ids > 0 && ids.is_multiple_of(n);
        (!fits).then(|| {
            format!(
                "has {ids} tokens of a teacher and {logprobs} log-probs for {n} completion tokens"
            )
        })
    }
}

/// Training objective of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Objective {
    /// Clipped surrogate on advantages, with KL and entropy terms.
    PolicyGradient,
    /// Negative log-likelihood of the completions.
    Supervised,
    /// Pairs of completions, the better one first; or replies with a label, if the loss
    /// [labels replies](crate::loss::PairLoss::labels_replies).
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
    /// Numbers of rows of the better and of the worse reply of each pair, where a reply is several turns, each a row.
    /// Empty if each reply is one row. If the loss labels replies, one of the two may be 0: a good reply alone, or a bad one.
    pub pairs: Vec<[usize; 2]>,
    /// Surrogate of policy gradients in place of those of the rows' [`LossOptions`].
    pub surrogate: Option<CustomSurrogate>,
    /// Selection of the tokens of each minibatch; of policy gradients only.
    pub selection: Selection,
    /// Divergence of rows with a teacher.
    pub distill: DistillOptions,
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
    /// Coefficient of the loss that balances the load of experts, for models with experts; 0 disables it.
    pub router_aux_coef: f64,
    /// Learning rate, with the schedule applied.
    pub lr: f64,
    /// True if [`UpdateStats::columns`](super::UpdateStats::columns) is wanted. No weight depends on it.
    pub record_tokens: bool,
}

impl Default for Batch {
    /// Returns a batch of policy gradients without rows, for one optimizer step with learning rate 1e-6.
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            objective: Objective::PolicyGradient,
            pairs: Vec::new(),
            surrogate: None,
            selection: Selection::None,
            distill: DistillOptions::default(),
            minibatches: 1,
            epochs: 1,
            aggregation: Aggregation::TokenMean,
            longest: 1,
            early_stop_kl: 0.0,
            router_aux_coef: 0.0,
            lr: 1e-6,
            record_tokens: false,
        }
    }
}

impl Row {
    /// Adds what ranks compute themselves to a hash.
    fn mixed_into(&self, hash: u64) -> u64 {
        let ids = [&self.prompt, &self.completion, &self.inputs].into_iter().flatten().copied();
        let numbers = [&self.logprobs, &self.advantages, &self.weights].into_iter().flatten();
        let experts = self.routes.iter().flat_map(|routes| routes.experts());
        let words = ids.chain(numbers.map(|number| number.to_bits()));
        let words = words.chain(experts.map(|&expert| u32::from(expert)));
        let taught = self.teacher.iter().flat_map(|teacher| {
            teacher.ids.iter().copied().chain(teacher.logprobs.iter().map(|logp| logp.to_bits()))
        });
        let coefs = self.observation.map(|of| of.coef).into_iter();
        let coefs = coefs.chain(self.teacher.as_ref().map(|teacher| teacher.coef));
        let lengths = [self.prompt.len(), self.completion.len(), usize::from(self.skipped)];
        let words = words.chain(taught).chain(coefs.map(f32::to_bits)).map(u64::from);
        words.chain(lengths.map(|length| length as u64)).fold(hash, mix_word)
    }
}

impl Batch {
    /// Computes a hash of everything that weights depend on and that ranks compute themselves.
    pub(super) fn checksum(&self) -> u64 {
        let sizes = self.pairs.iter().flatten().map(|&rows| rows as u64);
        let DistillOptions { divergence, beta, tail } = self.distill;
        let options = [self.lr.to_bits(), divergence as u64, beta.to_bits(), u64::from(tail)];
        let hash = options.into_iter().chain(sizes).fold(0, mix_word);
        self.rows.iter().fold(hash, |hash, row| row.mixed_into(hash))
    }

    /// Returns the rows that are trained on.
    pub fn trained_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.skipped)
    }

    /// Returns the surrogate of a row.
    pub(super) fn surrogate_of<'s>(&'s self, row: &'s Row) -> &'s dyn Surrogate {
        let declared = self.surrogate.as_ref().map(|declared| &*declared.value);
        declared.unwrap_or(&row.loss.surrogate)
    }

    /// Returns the number of rows of each unit: a row, or a pair of replies. Minibatches consist of whole units.
    pub(super) fn units(&self) -> Vec<usize> {
        match self.objective {
            Objective::Preference(_) => self.pair_sizes().iter().map(|[a, b]| a + b).collect(),
            Objective::PolicyGradient | Objective::Supervised => vec![1; self.rows.len()],
        }
    }

    /// Returns the numbers of rows of the two replies of each pair.
    fn pair_sizes(&self) -> Cow<'_, [[usize; 2]]> {
        if self.pairs.is_empty() {
            Cow::Owned(vec![[1, 1]; self.rows.len() / 2])
        } else {
            Cow::Borrowed(&self.pairs)
        }
    }

    /// Returns the numbers of rows of the two replies of each pair of a minibatch, in the order of its rows.
    pub(super) fn pairs_of(&self, part: usize) -> Vec<[usize; 2]> {
        self.pair_sizes().iter().skip(part).step_by(self.minibatches).copied().collect()
    }

    /// Returns the rows of a minibatch: units `part`, `part + minibatches`, and so on, and the observations in their prompts. `rows`
    /// are those of the batch.
    pub(super) fn minibatch<'r>(&self, rows: &'r [Row], part: usize) -> Vec<&'r Row> {
        let mut rest = rows;
        let mut own = Vec::new();
        for (index, rows) in self.units().into_iter().enumerate() {
            let (unit, after) = rest.split_at(rows);
            let place = unit.first().and_then(|row| row.observation).map_or(index, |of| of.row);
            if place % self.minibatches == part {
                own.extend(unit);
            }
            rest = after;
        }
        own
    }

    /// Returns the number of the first row of an observation, if there may be none or another row follows.
    fn misplaced_observation(&self) -> Option<usize> {
        let is_one = |row: &Row| row.observation.is_some();
        let first = self.rows.iter().position(is_one)?;
        let follows = |row: &Row| row.observation.is_some_and(|of| of.row < first);
        let last = self.rows[first..].iter().all(|row| follows(row) && row.skipped);
        (self.objective != Objective::PolicyGradient || !last).then_some(first)
    }

    /// Returns an error if the rows do not fit the objective.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let rows = self.rows.len();
        let sum: usize = self.pairs.iter().flatten().sum();
        let single =
            matches!(self.objective, Objective::Preference(of) if of.loss.labels_replies());
        let empty = if single {
            self.pairs.contains(&[0, 0])
        } else {
            self.pairs.iter().flatten().any(|&rows| rows == 0)
        };
        let paired = self.objective.rows() == 2 && sum == rows && !empty;
        let what = if self.minibatches == 0 || self.epochs == 0 {
            let (minibatches, epochs) = (self.minibatches, self.epochs);
            format!(
                "a batch has {minibatches} minibatches and {epochs} epochs; both are at least 1"
            )
        } else if self.pairs.is_empty() && !rows.is_multiple_of(self.objective.rows()) {
            format!("{rows} rows are not pairs")
        } else if !self.pairs.is_empty() && !paired {
            format!(
                "`pairs` has {sum} rows for a batch of {rows}; each reply of a pair has at least one"
            )
        } else if let Some(index) = self.misplaced_observation() {
            format!(
                "row {index} is an observation, and not a skipped row at the end of a batch of policy gradients"
            )
        } else if let Some(index) = self.rows.iter().position(|row| row.teacher.is_some())
            && self.objective != Objective::PolicyGradient
        {
            format!("row {index} has a teacher, which only policy gradients train on")
        } else if let Some(index) = self.rows.iter().position(|row| !row.inputs.is_empty())
            && matches!(self.objective, Objective::Preference(_))
        {
            format!("row {index} has input tokens, which replies with a preference do not have")
        } else {
            let mut rows = self.rows.iter().enumerate();
            return rows.try_for_each(|(index, row)| row.check(index, self.objective));
        };
        Err(ModelError::wrong_argument(what))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let (prompt, completion) = (vec![1, 2], vec![3, 4, 5]);
        let numbers = vec![-1.0; 3];
        Row { prompt, completion, logprobs: numbers.clone(), advantages: numbers, ..Row::default() }
    }

    fn refused(change: impl Fn(&mut Batch)) -> String {
        let mut batch = Batch { rows: vec![row(), row()], ..Batch::default() };
        assert!(batch.check().is_ok());
        change(&mut batch);
        batch.check().err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn rows_that_do_not_fit_together_are_refused_with_their_number() {
        let found = refused(|batch| batch.rows[1].advantages.truncate(2));
        assert_eq!(found, "row 1 has 3 log-probs and 2 advantages for 3 completion tokens");
        let found = refused(|batch| batch.rows[0].weights = vec![1.0]);
        assert_eq!(found, "row 0 has 1 weights for 3 completion tokens");
        let found = refused(|batch| batch.rows[0].prompt.clear());
        assert_eq!(found, "row 0 has no prompt or no completion");
        let found = refused(|batch| batch.rows[0].inputs = vec![1, 2]);
        assert_eq!(found, "row 0 has 2 input tokens for 3 targets");
        let found = refused(|batch| batch.rows[0].temperature = 0.0);
        assert!(found.starts_with("row 0 has temperature 0; "), "{found}");
        let teacher = TeacherTokens { ids: vec![1; 6], logprobs: vec![-1.0; 6], coef: 1.0 };
        let short = TeacherTokens { ids: vec![1; 4], ..teacher.clone() };
        let found = refused(|batch| batch.rows[1].teacher = Some(short.clone()));
        assert_eq!(
            found,
            "row 1 has 4 tokens of a teacher and 6 log-probs for 3 completion tokens"
        );
        let found = refused(|batch| {
            batch.objective = Objective::Supervised;
            batch.rows[1].teacher = Some(teacher.clone());
        });
        assert_eq!(found, "row 1 has a teacher, which only policy gradients train on");
        let observed = Row { observation: Some(ObservedText { coef: 0.1, row: 0 }), ..row() };
        let misplaced = "row 0 is an observation, and not a skipped row at the end of a batch of policy gradients";
        let found = refused(|batch| batch.rows[0] = Row { skipped: true, ..observed.clone() });
        assert_eq!(found, misplaced, "another row follows it");
        let found = refused(|batch| batch.rows[1] = observed.clone());
        assert_eq!(found, misplaced.replace('0', "1"), "it is not skipped");
        let found = refused(|batch| {
            let teacher = Some(teacher.clone());
            batch.rows[1] = Row { skipped: true, teacher, ..observed.clone() };
        });
        assert_eq!(found, "row 1 is an observation and has a teacher");
        let found = refused(|batch| {
            batch.objective = Objective::Preference(PreferenceOptions::default());
            batch.rows[0].inputs = vec![1, 2, 3];
        });
        assert_eq!(found, "row 0 has input tokens, which replies with a preference do not have");
        let found = refused(|batch| batch.epochs = 0);
        assert!(found.contains("0 epochs"), "{found}");
        let found = refused(|batch| {
            batch.objective = Objective::Preference(PreferenceOptions::default());
            batch.rows.pop();
        });
        assert_eq!(found, "1 rows are not pairs");
        let found = refused(|batch| {
            batch.objective = Objective::Preference(PreferenceOptions::default());
            batch.pairs = vec![[1, 2]];
        });
        assert!(found.starts_with("`pairs` has 3 rows for a batch of 2; "), "{found}");
        let found = refused(|batch| {
            batch.objective = Objective::Preference(PreferenceOptions::default());
            batch.pairs = vec![[2, 0]];
        });
        assert!(found.ends_with("each reply of a pair has at least one"), "{found}");
        let found = refused(|batch| batch.pairs = vec![[1, 1]]);
        assert!(found.starts_with("`pairs` has 2 rows"), "{found}");
    }

    #[test]
    fn minibatches_have_whole_pairs() {
        let numbered = |id| Row { completion: vec![id], ..row() };
        let batch = Batch {
            rows: (0..7).map(numbered).collect(),
            objective: Objective::Preference(PreferenceOptions::default()),
            pairs: vec![[1, 1], [2, 1], [1, 1]],
            minibatches: 2,
            ..Batch::default()
        };
        let ids = |part| -> Vec<u32> {
            batch.minibatch(&batch.rows, part).iter().map(|row| row.completion[0]).collect()
        };
        assert_eq!((ids(0), batch.pairs_of(0)), (vec![0, 1, 5, 6], vec![[1, 1], [1, 1]]));
        assert_eq!((ids(1), batch.pairs_of(1)), (vec![2, 3, 4], vec![[2, 1]]));
    }

    #[test]
    fn supervised_rows_need_no_log_probs() {
        let rows = vec![Row { logprobs: Vec::new(), advantages: Vec::new(), ..row() }];
        let batch = Batch { rows, objective: Objective::Supervised, ..Batch::default() };
        assert!(batch.check().is_ok());
    }
}

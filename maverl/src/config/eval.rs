//! Evaluations: their tasks, and the steps at which they run.

use std::num::{NonZeroU32, NonZeroUsize};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::GROUP;
use super::{Preset, TaskConfig};
use crate::settings::{self, Settings};

/// `[eval]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct EvalConfig {
    /// Steps between evaluations on the validation split; 0 disables them.
    pub every: u64,
    /// Split of evaluations during training.
    #[setting(default = "validation")]
    pub split: String,
    /// Split of the evaluations before and after training, and of `maverl eval`.
    #[setting(default = "test")]
    pub test_split: String,
    /// File of held-out tasks, in place of the splits of the training data; a row without a split belongs to every split.
    #[setting(example = "\"questions.jsonl\"")]
    pub data: Option<String>,
    /// Maximum number of tasks of an evaluation.
    #[setting(default = 512)]
    pub tasks: NonZeroUsize,
    /// Episodes per task, n: gives avg@n, and pass@k for k = 1, 2, 4 and so on up to n.
    #[setting(default = 1, range = 1..=GROUP)]
    pub samples: NonZeroU32,
    /// Temperature of all agents in evaluations, instead of that in their `sampling`; 0 is greedy.
    #[serde(serialize_with = "settings::shortest_decimal")]
    #[setting(range = 0.0.., example = "0.0")]
    pub temperature: Option<f32>,
    /// Evaluate before and after training.
    #[setting(default = true)]
    pub before_and_after: bool,
}

/// Split of the rows of a file that name none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unsplit {
    /// `train`, `validation` or `test`, by a hash of the id.
    #[default]
    Hashed,
    /// Every split: such rows are of each split that is asked for.
    Every,
}

impl EvalConfig {
    /// When training evaluates. Demonstrations are no tasks: supervised training does only where [`EvalConfig::data`] names
    /// some. A verifier is evaluated on labeled replies, without episodes.
    #[must_use]
    pub fn used(&self, preset: Preset) -> Self {
        let without = preset.is_supervised() && (self.data.is_none() || preset == Preset::Verifier);
        Self {
            every: if without { 0 } else { self.every },
            before_and_after: self.before_and_after && !without,
            ..self.clone()
        }
    }

    /// Where held-out tasks come from: the evaluation's own file, or that of the training data. Of a split, the first
    /// [`EvalConfig::tasks`].
    pub fn held_out(&self, task: &TaskConfig) -> TaskConfig {
        let limit = Some(self.tasks);
        match self.own_data(task) {
            // Another file of the same rows, as a data set's test set is.
            Some(data) => TaskConfig {
                data: data.to_owned(),
                limit,
                keys: task.keys.clone(),
                ids: task.ids,
                max_mib: task.max_mib,
                max_row_mib: task.max_row_mib,
                environment: task.environment.clone(),
                unsplit: Unsplit::Every,
                ..TaskConfig::default()
            },
            None => TaskConfig { limit, ..task.clone() },
        }
    }

    /// Returns the file of held-out tasks if it is another than that of the training data, which has its own splits.
    pub fn own_data(&self, task: &TaskConfig) -> Option<&str> {
        self.data.as_deref().filter(|data| !task.mixture.is_empty() || *data != task.data)
    }
}

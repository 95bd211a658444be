//! Values of the options of `maverl collect`.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};

use crate::number;
use maverl::collect::{Kind, Pattern};
use maverl::trajectory::Seat;

/// Key of a file of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DataArg {
    /// The training data.
    #[value(name = "task.data")]
    Task,
    /// The file of evaluations.
    #[value(name = "eval.data")]
    Eval,
}

/// Format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatArg {
    /// One JSON object a line.
    Jsonl,
    /// Parquet, compressed with zstd.
    #[cfg(feature = "parquet")]
    Parquet,
}

/// Choice of rows.
#[derive(Args)]
pub(super) struct ChoiceArgs {
    /// `sft`: replies of solved episodes only.
    #[arg(long)]
    pub(super) solved: bool,
    /// `sft`: replies of turns with at least this reward only.
    #[arg(long, value_name = "R", value_parser = number::finite, allow_negative_numbers = true)]
    pub(super) min_reward: Option<f64>,
    /// Replies of this seat only (`search/verifier`, `debate/debater#2`); can be repeated.
    #[arg(long = "seat", value_name = "SEAT", value_parser = seat)]
    pub(super) seats: Vec<Seat>,
    /// No replies that were truncated.
    #[arg(long)]
    pub(super) no_truncated: bool,
    /// No replies that were malformed.
    #[arg(long)]
    pub(super) no_errors: bool,
    /// No replies of more sampled tokens.
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    pub(super) max_tokens: Option<NonZeroUsize>,
    /// Replies that match this regular expression only; can be repeated.
    #[arg(long = "match", value_name = "REGEX")]
    pub(super) matches: Vec<Pattern>,
    /// No replies that match this regular expression; can be repeated.
    #[arg(long = "no-match", value_name = "REGEX")]
    pub(super) no_matches: Vec<Pattern>,
    /// Removal of duplicates; `near` compares replies of a seat to a task (MinHash of five words, 0.8).
    #[arg(long, value_name = "KIND", default_value = "exact")]
    pub(super) dedup: DedupArg,
    /// `verifier`: at most so many rows of a task with each label.
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    pub(super) balance: Option<NonZeroUsize>,
    /// `verifier`: label a turn as right if its part of the reward of this name is above 0, such as `own` of a debate. [default:
    /// the episode is solved]
    #[arg(long, value_name = "PART")]
    pub(super) label: Option<String>,
    /// `preference`: minimum difference of the rewards of a pair.
    #[arg(long, value_name = "R", default_value_t = 0.5, value_parser = number::seconds)]
    pub(super) margin: f64,
    /// `preference`: maximum number of pairs of a prompt.
    #[arg(long, value_name = "N", default_value = "4", value_parser = number::from_1)]
    pub(super) pairs: NonZeroUsize,
    /// Share of the tasks whose rows go to a test split, from 0 to 1. A task is in one split, by its question.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = number::share)]
    pub(super) test_share: f32,
}

/// Kind of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum KindArg {
    /// Prompt and reply as `messages`.
    Sft,
    /// `prompt`, `chosen`, `rejected`: replies of a seat to equal prompts.
    Preference,
    /// `prompt`, `completion`, `label`, `score`.
    Verifier,
    /// `prompt`, `completions`, `labels`: the turns of an episode as steps.
    Steps,
}

impl KindArg {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Sft => Kind::Sft,
            Self::Preference => Kind::Preference,
            Self::Verifier => Kind::Verifier,
            Self::Steps => Kind::Steps,
        }
    }
}

/// Removal of duplicates.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum DedupArg {
    /// Keep them.
    None,
    /// Of equal rows, keep the first.
    Exact,
    /// Of nearly equal rows, keep the first.
    Near,
}

/// Steps of a run.
#[derive(Debug, Clone)]
pub(super) struct Steps(pub(super) Vec<u64>);

impl std::str::FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        number::ranges(text, "steps").map(Self)
    }
}

fn seat(text: &str) -> Result<Seat, String> {
    Seat::try_from(text.to_owned())
}

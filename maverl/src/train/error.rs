//! Errors that end a run.

use std::error::Error;
use std::path::PathBuf;

use crate::data::DataError;
use crate::dist::RankError;
use crate::files::ModelError;
use crate::rollout::RolloutError;
use crate::run_dir::RunDirError;
use crate::runtime::RuntimeError;
use crate::text::TokenizerError;
use crate::train::progress::commands::resume_command;

/// Error that ended a run. Written files stay, and `--resume` continues from the last checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A file of the run could not be written, read or trusted.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// A model could not be loaded, run, updated or saved.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The ranks could not be connected, or one was lost. Written files stay.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// This rank was asked to stop before all ranks had joined.
    #[error(
        "rank {rank} was asked to stop before all {size} ranks had joined; the run has not begun"
    )]
    StoppedJoining {
        /// This rank.
        rank: usize,
        /// Number of ranks.
        size: usize,
    },
    /// The team could not be built.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// Tasks or demonstrations could not be loaded.
    #[error(transparent)]
    Data(#[from] DataError),
    /// An orchestra cannot read a task of an evaluation, or an environment cannot judge it.
    #[error("{reader}: {problem}")]
    Tasks {
        /// Kind and name of the declaration.
        reader: String,
        /// Description of the problem, with the file and row of the task.
        problem: String,
    },
    /// The rows of a verifier cannot be trained on.
    #[error("the rows of a verifier, `{data}`: {problem}")]
    Verifier {
        /// The file.
        data: String,
        /// Description of the problem and its remedy.
        problem: String,
    },
    /// A row of conversations does not fit the model or its chat template.
    #[error("{location}: {source}")]
    Demonstration {
        /// File and line of the row.
        location: String,
        /// Error of the demonstration.
        source: DemonstrationError,
    },
    /// The transcript of an episode cannot be an input of a critic.
    #[error("policy `{policy}`: a transcript for its critic: {source}")]
    Transcript {
        /// Name of the policy.
        policy: String,
        /// Error of the tokenizer.
        source: TokenizerError,
    },
    /// The hint of a teacher cannot be rendered.
    #[error("teacher `{teacher}`: its hint for task `{task}`: {source}")]
    Hint {
        /// Name of the teacher.
        teacher: String,
        /// Id of the task.
        task: String,
        /// Error of the template or the tokenizer.
        source: TokenizerError,
    },
    /// The tokenizer of a policy could not be written into the run directory.
    #[error("policy `{policy}`: its tokenizer: {source}")]
    Tokenizer {
        /// Name of the policy.
        policy: String,
        /// Error of the tokenizer.
        source: TokenizerError,
    },
    /// A turn was selected for training and cannot be trained on.
    #[error("{turn} cannot be trained on: {reason}")]
    Untrainable {
        /// Turn, with its seat, task and episode.
        turn: String,
        /// Reason.
        reason: &'static str,
    },
    /// The mixer of a checkpoint could not be saved or loaded.
    #[error("mixer: {source}")]
    Mixer {
        /// Error of the file.
        source: ModelError,
    },
    /// The CUDA C++ kernel of the run's estimator does not compile.
    #[error(
        "the kernel `{file}` of the estimator `{estimator}` does not compile for {arch}; the test \
         `maverl::testing::same_advantages` runs it without a GPU. The compiler's log:\n\n{log}"
    )]
    Kernel {
        /// Name of the estimator.
        estimator: String,
        /// File of the kernel, as it was written in the attribute.
        file: &'static str,
        /// Architecture that was compiled for.
        arch: String,
        /// Log of the compiler.
        log: String,
    },
    /// The CUDA C++ kernel of the run's estimator gives other advantages than its Rust function.
    #[error(
        "the kernel `{file}` of the estimator `{estimator}` differs from its Rust function on {device}: step `{step}`, \
         {difference}. They may differ by 1e-5 of the largest advantage of a step; the test \
         `maverl::testing::same_advantages` compares them without a GPU"
    )]
    KernelDiffers {
        /// Name of the estimator.
        estimator: String,
        /// File of the kernel, as it was written in the attribute.
        file: &'static str,
        /// Name of the device.
        device: String,
        /// Name of the generated step.
        step: &'static str,
        /// Place of the first different advantage, and both values.
        difference: String,
    },
    /// A device failed to compute advantages.
    #[error("{device} failed to compute advantages: {reason}")]
    Estimators {
        /// Name of the device.
        device: String,
        /// Error of the device.
        reason: String,
    },
    /// An estimator gave an advantage that is no finite number.
    #[error(
        "step {step}: the estimator `{estimator}` gave {found:e} for {row}; an advantage is a finite number"
    )]
    NotFinite {
        /// Name of the estimator: `group`, `critic`, `mixer`, or that of a declared one.
        estimator: String,
        /// Number of the step, from 1.
        step: u64,
        /// Row: its number, and its task, episode, turn and seat.
        row: String,
        /// The advantage.
        found: f64,
    },
    /// A sink refused an episode.
    #[error("a sink of episodes failed at {}: {source}", stage(*step))]
    Sink {
        /// Number of the step, from 1; 0 for an evaluation.
        step: u64,
        /// Error of the sink.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Too many episodes failed for reasons that are not the policy's.
    #[error(
        "{unscored} of {episodes} episodes could not be scored ({kinds}), more than `rollout.max_unscored` = {allowed} \
         allows:\n  {}", messages.join("\n  ")
    )]
    Unscored {
        /// Number of unscored episodes.
        unscored: usize,
        /// Number of all episodes.
        episodes: usize,
        /// Allowed share.
        allowed: f64,
        /// Number of faults of each kind.
        kinds: String,
        /// First messages.
        messages: Vec<String>,
    },
    /// No episode was scored, for reasons that are not the policy's.
    #[error(
        "not one of {episodes} episodes {of} could be scored ({kinds}):\n  {}", messages.join("\n  ")
    )]
    NoneScored {
        /// Number of episodes.
        episodes: usize,
        /// Description of the episodes, as "of step 3".
        of: String,
        /// Number of faults of each kind.
        kinds: String,
        /// First messages.
        messages: Vec<String>,
    },
    /// The scored episodes of a step have no turn that can be trained on.
    #[error(
        "step {step} has {episodes} scored episodes and no turn to train on; the orchestra must ask an agent whose \
         policy is trained"
    )]
    NoSamples {
        /// Number of the step.
        step: u64,
        /// Number of scored episodes.
        episodes: usize,
    },
    /// Every task has weight 0 in the curriculum.
    #[error(
        "step {step} has no task to play: all tasks of a component are in pools of `task.curriculum` with weight 0; give \
         these pools a weight, or add tasks"
    )]
    NoTasks {
        /// Number of the step.
        step: u64,
    },
    /// Too many consecutive flat steps.
    #[error(
        "{steps} steps in a row in which every group has one reward: there is nothing to learn from. Tasks that are \
         neither always nor never solved help, as do a larger `task.group_size` or `sampling.temperature`. To wait \
         longer, go on with `{} --set algorithm.max_flat_steps={}`", resume_command(dir), 2 * steps.max(&1)
    )]
    Flat {
        /// Number of consecutive flat steps.
        steps: u64,
        /// The run directory.
        dir: PathBuf,
    },
    /// The run has no such training episode.
    #[error("`{}` has no training episode `{name}`: {found}", run.display())]
    NoEpisode {
        /// The run.
        run: PathBuf,
        /// Requested name.
        name: String,
        /// Existing names.
        found: String,
    },
    /// A resumed run has completed more steps than requested.
    #[error("`{}` has gone to step {done} and `steps` is {steps}; give at least {done}", dir.display())]
    StepsBehind {
        /// The run.
        dir: PathBuf,
        /// Completed steps.
        done: u64,
        /// Requested steps.
        steps: u64,
    },
}

/// Kind of an error, for programs that treat kinds differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Files of the run: the disk, a damaged file, or settings that a resumed run may not change.
    Files,
    /// A model, its threads, or its memory.
    Model,
    /// An environment, an endpoint, an estimator, or a declaration that the registry lacks.
    Team,
    /// Tasks, demonstrations or pairs of replies.
    Data,
    /// Episodes that could not be scored.
    Unscored,
    /// Nothing to learn from.
    NoSignal,
    /// A request that the run cannot fulfill, such as an episode that it does not have.
    Request,
    /// A sink of the caller.
    Sink,
    /// Another rank, or the connection between ranks.
    Ranks,
}

impl TrainError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::RunDir(_) => ErrorKind::Files,
            Self::Runtime(_)
            | Self::Transcript { .. }
            | Self::Tokenizer { .. }
            | Self::Mixer { .. }
            | Self::Estimators { .. } => ErrorKind::Model,
            Self::Untrainable { .. }
            | Self::Hint { .. }
            | Self::Rollout(_)
            | Self::Kernel { .. }
            | Self::KernelDiffers { .. }
            | Self::NotFinite { .. } => ErrorKind::Team,
            Self::Data(_)
            | Self::Tasks { .. }
            | Self::Demonstration { .. }
            | Self::Verifier { .. } => ErrorKind::Data,
            Self::Unscored { .. } | Self::NoneScored { .. } => ErrorKind::Unscored,
            Self::NoSamples { .. } | Self::NoTasks { .. } | Self::Flat { .. } => {
                ErrorKind::NoSignal
            }
            Self::NoEpisode { .. } | Self::StepsBehind { .. } => ErrorKind::Request,
            Self::Sink { .. } => ErrorKind::Sink,
            Self::Rank(_) | Self::StoppedJoining { .. } => ErrorKind::Ranks,
        }
    }

    /// Returns true for an error of the ranks or of their connection; false for one of their run, which another run of the
    /// same ranks need not have.
    pub(crate) fn is_of_ranks(&self) -> bool {
        matches!(self, Self::Rank(error) if !matches!(error, RankError::Ended { .. }))
    }
}

/// Reason that a row of conversations cannot be trained on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemonstrationError {
    /// The conversation cannot be rendered or encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The row is longer than the context.
    #[error(
        "the row has {tokens} tokens, and the context of the model is {context}; shorten it, or set `task.overlong = \"drop\"` \
         or `\"truncate\"`"
    )]
    Overlong {
        /// Number of tokens of the row.
        tokens: usize,
        /// Longest sequence of the model.
        context: usize,
    },
    /// Every row is longer than the context.
    #[error(
        "every row of the file is longer than the context of the model; `task.overlong` leaves none"
    )]
    NoneLeft,
}

/// Formats the place of an episode: a step, or an evaluation.
fn stage(step: u64) -> String {
    if step == 0 { "an evaluation".to_owned() } else { format!("step {step}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_error_says_its_kind_and_keeps_its_sources() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let file = RunDirError::Io { action: "write", path: "a".into(), source: full() };
        let sink = TrainError::Sink { step: 3, source: Box::new(full()) };
        let mixer = TrainError::Mixer {
            source: ModelError::new(crate::files::ModelErrorKind::Invalid, "no `params`"),
        };
        for (error, kind, root) in [
            (TrainError::RunDir(file), ErrorKind::Files, full().to_string()),
            (sink, ErrorKind::Sink, full().to_string()),
            (mixer, ErrorKind::Model, "no `params`".to_owned()),
        ] {
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(&root), "{error}");
            assert_eq!(error.source().unwrap().to_string(), root);
        }
        let error = TrainError::Demonstration {
            location: "shown.jsonl:2".to_owned(),
            source: DemonstrationError::Overlong { tokens: 9, context: 8 },
        };
        let expected = "shown.jsonl:2: the row has 9 tokens, and the context of the model is 8; shorten it, or set \
                        `task.overlong = \"drop\"` or `\"truncate\"`";
        assert_eq!(error.to_string(), expected);
        assert!(error.source().unwrap().is::<DemonstrationError>());
    }
}

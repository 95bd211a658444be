//! Errors that end a run.

use std::path::PathBuf;

use super::resume_command;
use crate::data::DataError;
use crate::rollout::RolloutError;
use crate::run_dir::RunDirError;
use crate::runtime::RuntimeError;

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
    /// The team could not be built.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// Tasks or demonstrations could not be loaded.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A demonstration does not fit the model's chat template.
    #[error("demonstration {number} of `{data}`: {reason}")]
    Demonstration {
        /// Number of the demonstration, from 1, in the order of the file.
        number: usize,
        /// The file.
        data: String,
        /// Description of the error.
        reason: String,
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

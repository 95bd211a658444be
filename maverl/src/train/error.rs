//! Why a run stopped.

use std::path::PathBuf;

use super::resume_command;
use crate::data::DataError;
use crate::rollout::RolloutError;
use crate::run_dir::RunDirError;
use crate::runtime::RuntimeError;

/// Why a run stopped. What was written before stays, and `--resume` goes on from the last checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A file of the run could not be written, read or trusted.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// A model could not be loaded, run, updated or saved.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The team could not be made.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// Tasks or demonstrations could not be loaded.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A demonstration cannot be rendered as the model's chat template wants it.
    #[error("demonstration {number} of `{data}`: {reason}")]
    Demonstration {
        /// From 1, in the order of the file.
        number: usize,
        /// The file.
        data: String,
        /// What happened.
        reason: String,
    },
    /// Too many episodes failed for reasons that are not the policy's.
    #[error(
        "{unscored} of {episodes} episodes could not be scored ({kinds}), more than `rollout.max_unscored` = {allowed} \
         allows:\n  {}", messages.join("\n  ")
    )]
    Unscored {
        /// How many.
        unscored: usize,
        /// Of how many.
        episodes: usize,
        /// The share that is allowed.
        allowed: f64,
        /// How many of each kind.
        kinds: String,
        /// The first messages.
        messages: Vec<String>,
    },
    /// Not one episode was scored, for reasons that are not the policy's.
    #[error(
        "not one of {episodes} episodes {of} could be scored ({kinds}):\n  {}", messages.join("\n  ")
    )]
    NoneScored {
        /// How many there are.
        episodes: usize,
        /// Which they are, as "of step 3".
        of: String,
        /// How many of each kind.
        kinds: String,
        /// The first messages.
        messages: Vec<String>,
    },
    /// The scored episodes of a step have no turn that can be trained on.
    #[error(
        "step {step} has {episodes} scored episodes and no turn to train on; the orchestra must ask an agent whose \
         policy is trained"
    )]
    NoSamples {
        /// Which.
        step: u64,
        /// Scored episodes.
        episodes: usize,
    },
    /// Nothing to learn from, again and again.
    #[error(
        "{steps} steps in a row in which every group has one reward: there is nothing to learn from. Tasks that are \
         neither always nor never solved help, as do a larger `task.group_size` or `sampling.temperature`. To wait \
         longer, go on with `{} --set algorithm.max_flat_steps={}`", resume_command(dir), 2 * steps.max(&1)
    )]
    Flat {
        /// How many.
        steps: u64,
        /// The run directory.
        dir: PathBuf,
    },
    /// A run has no such training episode.
    #[error("`{}` has no training episode `{name}`: {found}", run.display())]
    NoEpisode {
        /// The run.
        run: PathBuf,
        /// What was asked for.
        name: String,
        /// What there is instead.
        found: String,
    },
    /// A resumed run has done more steps than it is to do.
    #[error("`{}` has gone to step {done} and `steps` is {steps}; give at least {done}", dir.display())]
    StepsBehind {
        /// The run.
        dir: PathBuf,
        /// Steps done.
        done: u64,
        /// Steps to do.
        steps: u64,
    },
}

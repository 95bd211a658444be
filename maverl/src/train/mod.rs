//! Training: the loop over steps, and all files of a run.
//!
//! ```text
//! Episodes ─► Samples ─► Advantages ─► Batches ─► Update      one step: `step.rs`
//!  step/players          learner                  learner
//! checkpoints, evaluations, metrics, resuming after a crash   the loop of a run: `run.rs`
//! a stored episode again, with the weights of its step        `replay.rs`
//! ```
//!
//! `step/players.rs` runs episodes and uses no algorithm, `learner.rs` updates policies and plays no episode, `step.rs`
//! connects them. `training.rs` puts them together for a plan, and `run.rs` depends on neither. No file here uses one that
//! uses it.
//!
//! - `progress`: messages, displays, interruption, and commands that a user types to go on;
//! - `record`: what is recorded of a step: metrics, times, samples;
//! - `run`: the loop over steps, its files, and the trait `Trainable` of what it repeats;
//! - `ranks`: the processes that train together;
//! - `learner`: samples, advantages, batches, critics, mixer, updates;
//! - `step`: a step of reinforcement learning; `supervised`: steps of other kinds;
//! - `ahead`: batches that are played while earlier ones are trained on;
//! - `training`: the data and inference servers of a plan; `replay`: stored episodes.

mod ahead;
mod error;
mod held_out;
mod learner;
mod options;
mod progress;
mod ranks;
mod record;
mod replay;
mod run;
mod step;
mod supervised;
mod training;

pub use crate::checkpoint::Which;
pub use crate::dist::{Launch, Machine, RankError};
pub use error::{DemonstrationError, ErrorKind, TrainError};
#[doc(hidden)]
pub use held_out::play_for_data;
pub use held_out::{Weights, eval, play};
pub(crate) use learner::state::{VERIFIER, VerifierRecord};
pub use options::Options;
#[doc(hidden)]
pub use progress::Silent;
#[doc(hidden)]
pub use progress::commands::resume_command;
#[doc(hidden)]
pub use progress::commands::{COMMANDS, features, own_name, program, quote_word, rename_program};
#[doc(hidden)]
pub use progress::display::stderr;
#[doc(hidden)]
pub use progress::heartbeat::Beat;
pub use progress::interrupt::Interrupt;
pub(crate) use progress::interrupt::Signals;
#[doc(hidden)]
pub use progress::tell;
pub use progress::{Progress, StepLine, silent};
pub use replay::{RecordedEpisode, ReplayOptions, ReplayScope, replay};
pub use run::summary::{Evaluation, Report, RunSummary, SplitScore};
pub use step::sink::{EndedEpisode, EpisodeSink, SinkError};
#[doc(hidden)]
pub use step::unscored::report;
pub(crate) use supervised::verifier::verifier_tasks;
pub use training::train;

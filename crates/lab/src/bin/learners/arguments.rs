//! Arguments of the program.

use std::path::PathBuf;

use clap::Parser;

/// Trains presets, and reports the improvement of each on held-out tasks.
#[derive(Parser)]
pub(super) struct LearnerArguments {
    /// Presets, by their `algorithm.name`; all if omitted.
    pub(super) presets: Vec<String>,
    /// Runs of each preset.
    #[arg(long, default_value_t = 3)]
    pub(super) seeds: u64,
    /// Maximum training time of a run in seconds, evaluations excluded.
    #[arg(long, default_value_t = 60.0)]
    pub(super) seconds: f64,
    /// Held-out tasks.
    #[arg(long, default_value_t = 600)]
    pub(super) tasks: usize,
    /// Maximum number of steps of a run.
    #[arg(long, default_value_t = 60)]
    pub(super) steps: u64,
    /// Directory of the runs and the table; existing runs are replaced.
    #[arg(long, default_value = "runs/learners")]
    pub(super) out: PathBuf,
    /// Additional setting of every run, such as `models.tiny.optim.lr=1e-3`.
    #[arg(long)]
    pub(super) set: Vec<String>,
}

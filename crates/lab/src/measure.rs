//! Common parts of examples that train many runs: runs with a time limit, tasks solved before and after, and the
//! confidence interval of the difference.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use maverl::checkpoint::Which;
use maverl::eval::{EvalSpec, Interval, paired_interval};
use maverl::plan::Plan;
use maverl::registry::Registry;
use maverl::run_dir::RunLocation;
use maverl::train::{Options, Weights, silent};
use maverl::trajectory::Episode;
use maverl::{Purpose, Sources, check};

/// Score of each task, by source and id.
#[derive(Clone, Default)]
pub struct TaskScores(BTreeMap<(String, String), f64>);

impl TaskScores {
    /// Returns the scores of episodes, one per task; unscored ones are left out.
    pub fn from_episodes(episodes: &[Episode]) -> Self {
        let scored = episodes.iter().filter_map(|episode| {
            let key = (episode.task.source.clone(), episode.task.id.clone());
            Some((key, f64::from(episode.score()?.solved)))
        });
        Self(scored.collect())
    }

    /// Returns the number of tasks.
    pub fn task_count(&self) -> usize {
        self.0.len()
    }

    /// Returns the mean score.
    pub fn mean(&self) -> f64 {
        self.0.values().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// Returns the gain of each task, in the order of the tasks.
    pub fn task_gains(&self, after: &Self) -> Vec<f64> {
        self.0.iter().filter_map(|(task, before)| Some(after.0.get(task)? - before)).collect()
    }
}

/// A successful run.
pub struct TrainedRun {
    /// Completed steps.
    pub steps: u64,
    /// Duration of the steps.
    pub seconds: f64,
    /// Scores of the starting weights on the test split.
    pub before: TaskScores,
    /// Scores of the last weights on the test split.
    pub after: TaskScores,
}

impl TrainedRun {
    /// Returns the mean gain with its 95 % interval over pairs: the difficulty of a task cancels.
    pub fn mean_gain(&self) -> Interval {
        paired_interval(&self.before.task_gains(&self.after))
    }
}

/// Returns the plan of a configuration with settings, or every problem with it.
///
/// # Errors
///
/// The problems, one per line.
pub fn resolve_plan(sources: &Sources, registry: &Registry) -> Result<Plan> {
    check(sources, registry, Purpose::Train).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow!(problems.join("\n"))
    })
}

/// Evaluates a plan's team on the test split.
///
/// # Errors
///
/// See [`maverl::train::TrainError`].
pub async fn evaluate_test_split(
    plan: &Plan,
    registry: &Registry,
    weights: &Weights,
) -> Result<TaskScores> {
    let spec = EvalSpec {
        split: plan.config.eval.test_split.clone(),
        samples: 1,
        temperature: None,
        ask: None,
    };
    Ok(TaskScores::from_episodes(
        &maverl::train::play(plan, registry, weights, &spec, &silent()).await?,
    ))
}

/// Trains into a directory, which is replaced, until the time limit or the last step, and returns the scores before and
/// after.
///
/// # Errors
///
/// If the run fails, or another number of tasks was scored after it than before.
pub async fn train_until(
    plan: &Plan,
    registry: &Registry,
    dir: &Path,
    seconds: f64,
    before: TaskScores,
) -> Result<TrainedRun> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    let options = Options::new(RunLocation::New(dir.to_owned()));
    let (interrupt, start) = (options.interrupt.clone(), Instant::now());
    let timer = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        interrupt.raise();
    });
    let report = maverl::train(plan, registry, options).await;
    timer.abort();
    let (steps, seconds) = (report?.summary.steps, start.elapsed().as_secs_f64());
    let after =
        evaluate_test_split(plan, registry, &Weights::Run(dir.to_owned(), Which::Last)).await?;
    if before.task_count() != after.task_count() {
        bail!("{} tasks were scored before and {} after", before.task_count(), after.task_count());
    }
    Ok(TrainedRun { steps, seconds, before, after })
}

/// Returns the result of a run, with a panic as an error.
///
/// # Errors
///
/// Those of the run, and its panic.
pub fn catch_panic<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(anyhow!("it panicked: {}", text.unwrap_or_default()))
    })
}

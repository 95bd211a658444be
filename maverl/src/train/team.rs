//! A team with its policies and tasks, ready for training and evaluation.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::algo::is_greedy;
use crate::checkpoint::{Checkpoint, Draft};
use crate::config::{EvalConfig, Preset, TaskConfig};
use crate::data::{self, Bounds, Demonstration, PreferencePair, Sampler};
use crate::eval::EvalSpec;
use crate::model::ModelError;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::rollout::{EpisodeRequest, Rollout, RolloutError, episode_seed};
use crate::run_dir::disk::hash_bytes;
use crate::run_dir::{HELD_OUT, Origin, Provenance, RunDirError};
use crate::runtime::{Policy, Runtime, RuntimeError};
use crate::task::Task;
use crate::train::course::{Stepped, Trainable};
use crate::train::mixer::Mixer;
use crate::train::state::AlgorithmState;
use crate::train::{Progress, TrainError, measure, step, supervised, unscored};
use crate::trajectory::{Episode, Seat};

/// File of the mixer in a checkpoint.
const MIXER: &str = "mixer.safetensors";
/// File of the algorithm's state in a checkpoint.
const MEMORY: &str = "algorithm.json";
/// Interval at which the number of sampled tokens is reported.
const TICK: Duration = Duration::from_millis(500);
/// Number of tasks that the environment validates before the run.
const NOTED: usize = 1000;

/// Purpose of a team.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Needs<'s> {
    /// Training, with these evaluations.
    Training(&'s EvalConfig),
    /// Evaluation of one held-out split.
    Split(&'s str),
    /// Training on given episodes.
    Nothing,
}

/// A team with its policies and tasks.
pub(super) struct Team<'p> {
    pub(super) plan: &'p Plan,
    /// Policies in the plan's order.
    pub(super) policies: Vec<Policy>,
    rollout: Rollout,
    /// Plan and rollout with the policies of the two trained seats swapped, if steps swap them.
    swapped: Option<(Plan, Rollout)>,
    pub(super) state: AlgorithmState,
    dataset: Dataset,
    pub(super) sampler: Sampler,
    /// Held-out tasks by split.
    held_out: BTreeMap<String, Vec<Task>>,
    /// Mixer of the agents' values; none before its first use.
    pub(super) mixer: Cell<Option<Mixer>>,
    /// Receiver of progress.
    pub(super) progress: Arc<dyn Progress>,
}

/// Data of the training steps.
enum Dataset {
    /// Tasks to run.
    Tasks(Vec<Task>),
    /// Replies to imitate.
    Demonstrations(Vec<Demonstration>),
    /// Pairs of replies, of which one is better.
    Preferences(Vec<PreferencePair>),
}

/// Assignment of policies to seats in a step.
#[derive(Clone, Copy)]
pub(super) struct Assignment<'t> {
    pub(super) plan: &'t Plan,
    pub(super) rollout: &'t Rollout,
}

impl<'p> Team<'p> {
    /// Loads the tasks, then starts the environment and builds the team.
    pub(super) fn start(
        plan: &'p Plan,
        registry: &Registry,
        runtime: &Runtime,
        needs: Needs<'_>,
        progress: &Arc<dyn Progress>,
    ) -> Result<Self, TrainError> {
        let dataset = match needs {
            Needs::Split(_) | Needs::Nothing => Dataset::Tasks(Vec::new()),
            Needs::Training(_) => Dataset::read(plan)?,
        };
        let sampler = match &dataset {
            Dataset::Tasks(tasks) => Sampler::new(&plan.task, plan.seed, tasks),
            Dataset::Demonstrations(rows) => Sampler::plain(&plan.task, plan.seed, rows.len()),
            Dataset::Preferences(pairs) => Sampler::plain(&plan.task, plan.seed, pairs.len()),
        };
        let held_out = needs
            .splits()
            .into_iter()
            .map(|split| Ok((split.to_owned(), held_out(plan, split)?)))
            .collect::<Result<_, TrainError>>()?;
        let policies = runtime.policies().to_vec();
        let rollout = Rollout::start(plan, registry, &policies)?;
        let swapped = (plan.algorithm.swap_every > 0).then(|| {
            let swapped = plan.with_swapped_policies();
            let rollout = rollout.with_plan(&swapped, &policies);
            (swapped, rollout)
        });
        let state = AlgorithmState::default();
        let mixer = Cell::default();
        Ok(Self {
            plan,
            policies,
            rollout,
            swapped,
            state,
            dataset,
            sampler,
            held_out,
            mixer,
            progress: Arc::clone(progress),
        })
    }

    /// Returns the origin of a run of this team.
    pub(super) async fn origin(&self, given: String) -> Result<Origin, TrainError> {
        let mut data = BTreeMap::new();
        data.insert(self.plan.task.split.clone(), self.dataset.hash());
        for (split, tasks) in &self.held_out {
            data.insert(format!("{HELD_OUT}{split}"), hash(tasks));
        }
        let mut weights = BTreeMap::new();
        for policy in &self.policies {
            weights.insert(policy.name().to_owned(), policy.fingerprint().await?);
        }
        let threads = match self.plan.runtime.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads => threads,
        };
        let provenance = Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data,
            weights,
            device: device(),
            threads,
        };
        let base = absolute(&self.plan.base)?;
        Ok(Origin { given, config: self.plan.config.clone(), base, provenance })
    }

    /// Returns the environment's message about the data, whatever split is used.
    pub(super) fn note(&self) -> Result<Option<String>, TrainError> {
        if !matches!(self.dataset, Dataset::Tasks(_)) {
            return Ok(None);
        }
        let config = TaskConfig { limit: NonZeroUsize::new(NOTED), ..self.plan.task.clone() };
        let tasks = data::load(&config, data::ALL, &self.plan.base)?;
        let name = || self.plan.environment.name.clone();
        let note = self.rollout.runner().environment.report(&tasks);
        Ok(note.map_err(|error| RolloutError::Environment { name: name(), error })?)
    }

    /// Returns the name that the environment gives to the share of solved episodes.
    pub(super) fn measure(&self) -> String {
        self.rollout.runner().environment.measure().to_owned()
    }

    /// Returns every seat that is called in training; empty for supervised training.
    pub(super) fn asked(&self) -> Vec<Seat> {
        match self.dataset {
            Dataset::Tasks(_) => self.plan.members(),
            Dataset::Demonstrations(_) | Dataset::Preferences(_) => Vec::new(),
        }
    }

    /// Returns the assignment of step `step`, counted from 0.
    pub(super) fn assignment(&self, step: u64) -> Assignment<'_> {
        let turn = step.checked_div(self.plan.algorithm.swap_every).unwrap_or(0);
        match &self.swapped {
            Some((plan, rollout)) if turn % 2 == 1 => Assignment { plan, rollout },
            _ => Assignment { plan: self.plan, rollout: &self.rollout },
        }
    }

    /// Returns the rollout with which a training episode of step `step`, counted from 0, was run.
    pub(super) fn rollout_of(&self, step: u64, episode: &Episode) -> Rollout {
        let Assignment { plan, rollout } = self.assignment(step);
        match is_greedy(plan, episode) {
            true => rollout.at_temperature(plan, &self.policies, 0.0),
            false => rollout.clone(),
        }
    }

    /// Runs the episodes of these indices on each task.
    pub(super) async fn play<'t>(
        &self,
        rollout: &Rollout,
        stage: &str,
        step: u64,
        tasks: impl IntoIterator<Item = &'t Task>,
        indices: Range<u32>,
    ) -> Result<Vec<Episode>, TrainError> {
        let request = |task: &Task, index| EpisodeRequest {
            task: task.clone(),
            index,
            seed: episode_seed(self.plan.seed, stage, step, task, index),
        };
        let requests: Vec<EpisodeRequest> = tasks
            .into_iter()
            .flat_map(|task| indices.clone().map(move |i| request(task, i)))
            .collect();
        self.progress.play(&playing(stage, step), requests.len() as u64);
        let sampled = || self.policies.iter().map(|policy| policy.work().decoded).sum::<u64>();
        let (before, ended) = (sampled(), Cell::new(0));
        let tell = || self.progress.played(ended.get(), sampled() - before);
        let collecting = rollout.collect(requests, |_| {
            ended.set(ended.get() + 1);
            tell();
        });
        let episodes = with_ticks(collecting, tell).await;
        unscored::check(&episodes, self.plan.rollout.max_unscored)?;
        Ok(episodes)
    }

    /// Runs held-out tasks. Seeds do not depend on the step, so that evaluations of one run compare weights on equal
    /// draws.
    pub(super) async fn perform(&self, spec: &EvalSpec) -> Result<Vec<Episode>, TrainError> {
        let rollout = match spec.temperature {
            None => self.rollout.clone(),
            Some(temperature) => {
                self.rollout.at_temperature(self.plan, &self.policies, temperature)
            }
        };
        let tasks = self.held_out.get(&spec.split).map(Vec::as_slice).unwrap_or_default();
        let stage = format!("eval/{}", spec.split);
        self.play(&rollout, &stage, 0, tasks, 0..spec.samples).await
    }
}

impl Trainable for Team<'_> {
    async fn step(&mut self, step: u64) -> Result<Stepped, TrainError> {
        let mut done = match &self.dataset {
            Dataset::Tasks(tasks) => {
                let mut state = self.state.clone();
                let done = step::step(self, tasks, step, &mut state).await?;
                self.state = state;
                done
            }
            Dataset::Demonstrations(shown) => supervised::imitate(self, shown, step).await?,
            Dataset::Preferences(pairs) => supervised::prefer(self, pairs, step).await?,
        };
        // The plan already warns if all groups are of one.
        let expected = self.plan.task.group_size.get() == 1;
        let warning = measure::singletons(&done.metrics).filter(|_| !expected);
        done.warnings_once.extend(warning.map(|warning| ("singletons", warning)));
        Ok(done)
    }

    async fn evaluate(&self, spec: &EvalSpec) -> Result<Vec<Episode>, TrainError> {
        self.perform(spec).await
    }

    async fn save(&self, draft: &Draft) -> Result<(), TrainError> {
        for policy in &self.policies {
            policy.save(&draft.policy(policy.name())?).await?;
        }
        let mixer = self.mixer.take();
        let saved = mixer.as_ref().map_or(Ok(()), |mixer| mixer.save(&draft.file(MIXER)));
        self.mixer.set(mixer);
        saved.map_err(mixer_failed)?;
        match self.state == AlgorithmState::default() {
            true => Ok(()),
            false => Ok(draft.write(MEMORY, &self.state)?),
        }
    }

    async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        for policy in &self.policies {
            policy.load(&checkpoint.policy(policy.name())?).await?;
        }
        self.state = checkpoint.read(MEMORY)?.unwrap_or_default();
        let mixer = Mixer::load(self.plan, &checkpoint.path().join(MIXER));
        self.mixer.set(mixer.map_err(mixer_failed)?);
        Ok(())
    }
}

impl Needs<'_> {
    fn splits(&self) -> Vec<&str> {
        match self {
            Self::Split(split) => vec![split],
            Self::Nothing => Vec::new(),
            Self::Training(eval) => {
                let test = eval.before_and_after.then_some(eval.test_split.as_str());
                let validation = (eval.every > 0).then_some(eval.split.as_str());
                test.into_iter().chain(validation).collect()
            }
        }
    }
}

impl Dataset {
    /// Reads the training data of a plan.
    fn read(plan: &Plan) -> Result<Self, TrainError> {
        let (file, bounds) = (plan.base.join(&plan.task.data), Bounds::from(&plan.task));
        Ok(match plan.algorithm.preset {
            Preset::Sft => Self::Demonstrations(data::demonstrations(&file, bounds)?),
            Preset::Dpo => Self::Preferences(data::preferences(&file, bounds)?),
            _ => Self::Tasks(data::load(&plan.task, &plan.task.split, &plan.base)?),
        })
    }

    fn hash(&self) -> String {
        match self {
            Self::Tasks(tasks) => hash(tasks),
            Self::Demonstrations(rows) => {
                let rows: Vec<_> = rows.iter().map(|row| (&row.prompt, &row.reply)).collect();
                hash(&rows)
            }
            Self::Preferences(pairs) => {
                let parts = |pair: &PreferencePair| {
                    serde_json::json!([pair.prompt, pair.chosen, pair.rejected])
                };
                hash(&pairs.iter().map(parts).collect::<Vec<_>>())
            }
        }
    }
}

/// Returns the name of the running episodes for the progress display.
fn playing(stage: &str, step: u64) -> String {
    match stage.strip_prefix("eval/") {
        Some(split) => format!("evaluating on `{split}`"),
        None => format!("step {}", step + 1),
    }
}

/// Awaits a future, and calls `tick` at intervals meanwhile.
async fn with_ticks<T>(future: impl Future<Output = T>, tick: impl Fn()) -> T {
    let (mut future, mut ticks) = (pin!(future), tokio::time::interval(TICK));
    loop {
        tokio::select! {
            biased;
            output = &mut future => return output,
            _ = ticks.tick() => tick(),
        }
    }
}

fn mixer_failed(error: ModelError) -> RuntimeError {
    RuntimeError::Model { worker: "mixer".to_owned(), message: error.0 }
}

/// Returns the tasks of a held-out split: the first `eval.tasks` of the evaluation's data, or of the training data's.
fn held_out(plan: &Plan, split: &str) -> Result<Vec<Task>, TrainError> {
    Ok(data::load(&plan.eval.held_out(&plan.task), split, &plan.base)?)
}

fn hash<T: serde::Serialize>(rows: &[T]) -> String {
    hash_bytes(&serde_json::to_vec(rows).expect("tasks and messages have string keys"))
}

/// Returns the device with the vector instructions in use, as in `cpu x86_64 linux, avx2`.
fn device() -> String {
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    let simd = maverl_kernels::simd::select()
        .map_or_else(|error| error.to_string(), |path| path.to_string());
    format!("cpu {arch} {os}, {simd}")
}

fn absolute(base: &Path) -> Result<std::path::PathBuf, RunDirError> {
    let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
    std::path::absolute(base).map_err(|source| RunDirError::Io {
        action: "find",
        path: base.to_owned(),
        source,
    })
}

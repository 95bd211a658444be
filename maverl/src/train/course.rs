//! The course of a run: evaluations, steps, checkpoints, and how a run that was cut off at any point goes on.
//!
//! ```text
//! checkpoint 0 ─► before ─► { step ─► rollouts ─► validation ─► row ─► checkpoint } × steps ─► after ─► summary
//! ```
//!
//! What a step does is [`Work`]'s business. A checkpoint is written after the row of its step and knows how long each file
//! was, so going on from it repeats exactly what came after. Everything else is written whole and can be written again.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::checkpoint::{Best, Checkpoint, Checkpoints, Draft, TrainerState, Which};
use crate::config::{CheckpointConfig, EvalConfig};
use crate::eval::{EvalReport, EvalSpec};
use crate::metrics::{Metrics, by_seat};
use crate::run_dir::disk::{read_json, write_json};
use crate::run_dir::{Journal, Origin, Place, RunDir, RunDirError, STEP_SECONDS, write_rollouts};
use crate::train::{Evaluation, Interrupt, Progress, Report, Score, StepLine, Summary, TrainError};
use crate::trajectory::Episode;

/// What is learned in a run. The course of the run does not depend on it.
pub(super) trait Work {
    /// Does step `step`, from 0. The same step on the same weights does the same.
    async fn step(&mut self, step: u64) -> Result<Stepped, TrainError>;
    /// Plays held-out tasks. The same evaluation of the same weights gives the same report.
    async fn evaluate(&self, spec: &EvalSpec) -> Result<EvalReport, TrainError>;
    /// Saves every policy.
    async fn save(&self, draft: &Draft) -> Result<(), TrainError>;
    /// Loads every policy.
    async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError>;
}

/// What a step did.
#[derive(Debug, Default)]
pub(super) struct Stepped {
    /// What was played.
    pub(super) episodes: Vec<Episode>,
    /// Its numbers.
    pub(super) metrics: Metrics,
    /// Its times.
    pub(super) timing: Metrics,
    /// No group had spread, and nothing was updated.
    pub(super) flat: bool,
    /// What the user should look at.
    pub(super) warnings: Vec<String>,
}

/// The settings of a course.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) seed: u64,
    pub(super) steps: u64,
    pub(super) max_flat_steps: u64,
    pub(super) eval: EvalConfig,
    pub(super) checkpoint: CheckpointConfig,
}

/// A run under way.
pub(super) struct Course<W> {
    settings: Settings,
    work: W,
    dir: RunDir,
    checkpoints: Checkpoints,
    journal: Journal,
    state: TrainerState,
    /// The step of the newest checkpoint.
    saved: u64,
    progress: Arc<dyn Progress>,
    interrupt: Interrupt,
    /// When the time that no row accounts for yet began.
    clock: Instant,
}

/// A run that can begin or go on, or one with nothing left to do.
pub(super) enum Opened<W> {
    Ready(Box<Course<W>>),
    Complete(Report),
}

impl<W: Work> Course<W> {
    /// Makes the run directory, or opens it and returns to its last checkpoint.
    pub(super) async fn open(
        place: &Place,
        origin: &Origin,
        settings: Settings,
        work: W,
        progress: Arc<dyn Progress>,
        interrupt: Interrupt,
    ) -> Result<Opened<W>, TrainError> {
        let dir = match place {
            Place::Next { parent, stem } => RunDir::create_next(parent, stem, origin)?,
            Place::New(path) => RunDir::create(path, origin)?,
            Place::Resume(path) => RunDir::open(path)?,
        };
        dir.compare(origin)?;
        let checkpoints = Checkpoints::of(dir.path());
        let checkpoint = last(&dir, &checkpoints)?;
        let fresh = TrainerState { seed: settings.seed, ..TrainerState::default() };
        let state = checkpoint.as_ref().map_or(fresh, |checkpoint| checkpoint.state.clone());
        let (done, steps) = (state.step, settings.steps);
        if done > steps {
            return Err(TrainError::StepsBehind { dir: dir.path().to_owned(), done, steps });
        }
        if let Some(summary) = complete(&dir, steps)? {
            let dir = dir.path().to_owned();
            return Ok(Opened::Complete(Report { dir, summary, interrupted: false }));
        }
        // From here on the run is ours: the journal is locked.
        let journal = Journal::open(dir.path(), &state.files)?;
        dir.reopen(&origin.config, done)?;
        checkpoints.rewind(&state)?;
        let clock = Instant::now();
        let mut course = Self {
            settings,
            work,
            dir,
            checkpoints,
            journal,
            state,
            saved: done,
            progress,
            interrupt,
            clock,
        };
        match checkpoint {
            Some(checkpoint) => course.work.load(&checkpoint).await?,
            None => course.save().await?,
        }
        Ok(Opened::Ready(Box::new(course)))
    }

    /// Does what is left of the run.
    pub(super) async fn run(mut self) -> Result<Report, TrainError> {
        self.progress.note(&format!("run directory: {}", self.dir.path().display()));
        if self.state.step == 0 && self.settings.eval.before_and_after {
            match self.evaluation("before").await? {
                Some(before) => self.row(0, &evaluation_metrics(&before), &Metrics::default())?,
                None => return self.finish(),
            }
        }
        self.progress.begin(self.state.step, self.settings.steps);
        let steps = self.steps().await;
        self.progress.end();
        steps?;
        let evaluate = self.settings.eval.before_and_after && !self.interrupt.raised();
        if evaluate && let Some(after) = self.evaluation("after").await? {
            self.row(self.state.step, &evaluation_metrics(&after), &Metrics::default())?;
        }
        self.finish()
    }

    /// Does the steps that are left, or those until the run is asked to stop.
    async fn steps(&mut self) -> Result<(), TrainError> {
        self.clock = Instant::now();
        while self.state.step < self.settings.steps && !self.interrupt.raised() {
            self.step().await?;
        }
        if self.saved < self.state.step { self.save().await } else { Ok(()) }
    }

    async fn step(&mut self) -> Result<(), TrainError> {
        let mut done = self.work.step(self.state.step).await?;
        let step = self.state.step + 1;
        write_rollouts(&self.dir.rollouts(step), &done.episodes)?;
        for (seat, totals) in by_seat(&done.episodes) {
            self.state.agents.entry(seat).or_default().add(&totals);
        }
        self.state.flat_steps = if done.flat { self.state.flat_steps + 1 } else { 0 };
        done.metrics.set("group/flat_steps", self.state.flat_steps as f64);
        if done.flat {
            done.warnings
                .push(format!("step {step}: every group has one reward; nothing was updated"));
        }
        self.state.step = step;
        let improved = self.validate(&mut done).await?;
        let line = self.line(&done);
        self.progress.step(&line);
        done.warnings.iter().for_each(|warning| self.progress.warn(warning));
        done.timing.set(STEP_SECONDS, line.seconds);
        self.row(step, &done.metrics, &done.timing)?;
        let checkpoint = &self.settings.checkpoint;
        let due = checkpoint.every > 0 && step.is_multiple_of(checkpoint.every);
        if due || (improved && checkpoint.best) {
            self.save().await?;
        }
        if done.flat && self.state.flat_steps >= self.settings.max_flat_steps {
            return Err(TrainError::Flat { steps: self.state.flat_steps });
        }
        Ok(())
    }

    /// Plays the validation split if it is due; says whether it went better than ever.
    async fn validate(&mut self, done: &mut Stepped) -> Result<bool, TrainError> {
        let (step, eval) = (self.state.step, &self.settings.eval);
        if eval.every == 0 || !step.is_multiple_of(eval.every) {
            return Ok(false);
        }
        let start = Instant::now();
        let report = self.work.evaluate(&EvalSpec::new(eval, &eval.split)).await?;
        let exact_match = report.exact_match();
        done.metrics.extend(report.metrics(&eval.split));
        done.warnings.extend(report.left_out());
        done.timing.set("time/eval_s", start.elapsed().as_secs_f64());
        let improved = self.state.best.is_none_or(|best| exact_match > best.exact_match);
        if improved {
            self.state.best = Some(Best { step, exact_match });
        }
        Ok(improved)
    }

    /// The evaluation before or after training: read, if it was already made. `None` if the run is asked to stop.
    async fn evaluation(&self, name: &str) -> Result<Option<Evaluation>, TrainError> {
        let path = self.dir.evaluation(name);
        if path.exists() {
            return Ok(Some(read_json(&path)?));
        }
        let eval = &self.settings.eval;
        self.progress.note(&format!("evaluating on `{}` {name} training", eval.test_split));
        let sampled = EvalSpec::new(eval, &eval.test_split);
        let greedy = EvalSpec { samples: 1, temperature: Some(0.0), ..sampled.clone() };
        let both = async {
            let sampled = self.work.evaluate(&sampled).await?;
            let greedy = self.work.evaluate(&greedy).await?;
            Ok::<_, TrainError>(Evaluation { sampled, greedy })
        };
        let Some(evaluation) = self.interrupt.or(both).await.transpose()? else { return Ok(None) };
        write_json(&path, &evaluation)?;
        let score = Score::from(&evaluation);
        let (sampled, greedy) = (score.exact_match, score.greedy);
        self.progress
            .note(&format!("exact match {name} training: {sampled:.3}, greedy {greedy:.3}"));
        let reports = [&evaluation.sampled, &evaluation.greedy].into_iter();
        reports.filter_map(EvalReport::left_out).for_each(|what| self.progress.warn(&what));
        Ok(Some(evaluation))
    }

    async fn save(&mut self) -> Result<(), TrainError> {
        self.state.files = self.journal.sync()?;
        let draft = self.checkpoints.begin(self.state.step)?;
        self.work.save(&draft).await?;
        draft.commit(&self.state)?;
        let CheckpointConfig { keep, best, .. } = self.settings.checkpoint;
        self.checkpoints.prune(&self.state, keep.get(), best)?;
        self.saved = self.state.step;
        Ok(())
    }

    fn row(&mut self, step: u64, metrics: &Metrics, timing: &Metrics) -> Result<(), RunDirError> {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64());
        self.journal.append(step, metrics, timing, now)
    }

    /// The step for people. Its seconds are those since the last, evaluations left out.
    fn line(&mut self, done: &Stepped) -> StepLine {
        let evaluating = done.timing.get("time/eval_s").unwrap_or(0.0);
        let seconds = (self.clock.elapsed().as_secs_f64() - evaluating).max(0.0);
        self.clock = Instant::now();
        StepLine {
            step: self.state.step,
            steps: self.settings.steps,
            score: done.metrics.get("rollout/score_mean"),
            solved: done.metrics.get("rollout/solved"),
            tokens: by_seat(&done.episodes).values().map(|totals| totals.completion_tokens).sum(),
            seconds,
        }
    }

    /// Writes the summary and seals the directory.
    fn finish(self) -> Result<Report, TrainError> {
        let score = |name: &str| -> Result<Option<Score>, RunDirError> {
            let path = self.dir.evaluation(name);
            if !path.exists() {
                return Ok(None);
            }
            Ok(Some(Score::from(&read_json::<Evaluation>(&path)?)))
        };
        let (before, after) = (score("before")?, score("after")?);
        let done = self.state.step == self.settings.steps;
        let summary = Summary {
            complete: done && (after.is_some() || !self.settings.eval.before_and_after),
            steps: self.state.step,
            seed: self.state.seed,
            before,
            after,
            best: self.state.best,
            train_seconds: self.journal.seconds()?,
            agents: self
                .state
                .agents
                .iter()
                .map(|(seat, totals)| (seat.clone(), totals.summary()))
                .collect(),
        };
        write_json(&self.dir.summary(), &summary)?;
        self.dir.seal()?;
        Ok(Report { dir: self.dir.path().to_owned(), interrupted: !summary.complete, summary })
    }
}

/// The newest checkpoint; `None` if the run was cut off before its first.
fn last(dir: &RunDir, checkpoints: &Checkpoints) -> Result<Option<Checkpoint>, RunDirError> {
    // Rows without any checkpoint are not that: checkpoint 0 is older than the first row.
    if checkpoints.steps()?.is_empty() && !dir.has_rows() {
        return Ok(None);
    }
    checkpoints.open(Which::Last).map(Some)
}

/// The summary, if there is nothing left to do.
fn complete(dir: &RunDir, steps: u64) -> Result<Option<Summary>, RunDirError> {
    if !dir.summary().exists() {
        return Ok(None);
    }
    let summary: Summary = read_json(&dir.summary())?;
    Ok(Some(summary).filter(|summary| summary.complete && summary.steps == steps))
}

fn evaluation_metrics(evaluation: &Evaluation) -> Metrics {
    let split = &evaluation.sampled.split;
    let mut metrics = evaluation.sampled.metrics(split);
    metrics.set(format!("eval/{split}/greedy_exact_match"), evaluation.greedy.exact_match());
    metrics
}

#[cfg(test)]
mod tests;

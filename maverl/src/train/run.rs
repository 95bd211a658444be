//! The loop of a run: evaluations, steps, checkpoints, and resuming after an interruption at any point.
//!
//! ```text
//! checkpoint 0 ─► before ─► { rollouts ─► update ─► validation ─► row ─► checkpoint } × steps ─► after ─► summary
//! ```
//!
//! [`Trainable`] implements the step. A checkpoint is written after the row of its step and records the length of each
//! growing file, so a resumed run repeats exactly what followed. The rollouts of a step grow under a name of their own
//! until all are there; all other files are written whole. Both can be written again.

pub(super) mod evaluations;
mod pending;
pub(super) mod rows;
mod saving;
pub(super) mod summary;
pub(super) mod trainable;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::IntoMap;
use crate::checkpoint::{Checkpoints, Draft, TrainerState};
use crate::config::{CheckpointConfig, EvalConfig, RecordConfig};
use crate::metrics::{Metrics, UNREPORTED, by_seat, unreported_warning};
use crate::run_dir::disk::{read_json, write_json};
use crate::run_dir::{
    Journal, Missing, Origin, RunDir, RunDirError, RunLocation, STEP_SECONDS, SpanRow, TRAIN,
    WorkerSample,
};
use crate::train::error::TrainError;
use crate::train::progress::commands::resume_command;
use crate::train::progress::interrupt::Interrupt;
use crate::train::progress::{Progress, StepLine};
use crate::train::record::spans::{self, Span};
use crate::train::run::evaluations::HeldOutEvaluator;
use crate::train::run::pending::PendingCheckpoint;
use crate::train::run::summary::{Evaluation, Report, RunSummary, SplitScore};
use crate::train::run::trainable::{Stepped, Trainable};
use crate::trajectory::Seat;

/// Settings of a run.
#[derive(Debug, Clone)]
pub(super) struct RunSettings {
    pub(super) seed: u64,
    pub(super) steps: u64,
    pub(super) max_flat_steps: u64,
    pub(super) eval: EvalConfig,
    /// Names of the parts of the reward that `[rewards]` has.
    pub(super) rewards: Vec<String>,
    pub(super) checkpoint: CheckpointConfig,
    pub(super) record: RecordConfig,
    /// Episodes of a step whose texts are in the TensorBoard file.
    pub(super) texts: usize,
    /// Every seat of the team.
    pub(super) seats: Vec<Seat>,
    /// Name that the environment gives to the share of solved episodes.
    pub(super) measure: String,
    /// Files that may be missing in a run directory that is opened.
    pub(super) missing: Missing,
    /// The plan in numbers.
    pub(super) plan: serde_json::Value,
    /// Tokenizer of each policy, as JSON.
    pub(super) tokenizers: BTreeMap<String, String>,
}

/// A run in progress.
pub(super) struct Run<W> {
    /// Checkpoint that is written beside the run. It is dropped first: the journal has the lock of the directory.
    pending: PendingCheckpoint,
    settings: RunSettings,
    work: W,
    dir: RunDir,
    checkpoints: Checkpoints,
    journal: Journal,
    state: TrainerState,
    /// Step of the newest checkpoint.
    saved: u64,
    /// Checkpoints that lack episodes which are still played, the oldest first.
    drafts: VecDeque<(Draft, TrainerState)>,
    /// True while steps serve only the episodes in flight of the newest checkpoint, because the run goes no further.
    ends: bool,
    progress: Arc<dyn Progress>,
    interrupt: Interrupt,
    /// Start of the time that no row includes yet.
    clock: Instant,
    /// Parts of that time.
    spans: Vec<Span>,
}

/// A run that can start or resume, or one that is complete.
pub(super) enum Opened<W> {
    Ready(Box<Run<W>>),
    Complete(Box<Report>),
}

impl<W: Trainable> Run<W> {
    /// Creates the run directory, or opens it and returns to its last checkpoint.
    pub(super) async fn open(
        place: &RunLocation,
        origin: &Origin,
        settings: RunSettings,
        mut work: W,
        progress: Arc<dyn Progress>,
        interrupt: Interrupt,
    ) -> Result<Opened<W>, TrainError> {
        let mut dir = place.directory(origin)?;
        dir.compare(origin)?;
        let checkpoints = Checkpoints::of(dir.path());
        let checkpoint = pending::last(&dir, &checkpoints)?;
        let fresh = TrainerState { seed: settings.seed, ..TrainerState::default() };
        let mut state = checkpoint.as_ref().map_or(fresh, |checkpoint| checkpoint.state.clone());
        goes_on(&dir, &state, &settings)?;
        if let Some(summary) = complete(&dir, settings.steps)? {
            verify(&mut dir, &state, settings.missing, &*progress)?;
            let dir = dir.path().to_owned();
            return Ok(Opened::Complete(Box::new(Report { dir, summary, interrupted: false })));
        }
        // The journal holds the lock on the run from here on.
        let journal = Journal::open(dir.path(), &state.files);
        let mut journal = journal.map_err(|error| checkpoints.with_remedy(state.step, error))?;
        verify(&mut dir, &state, settings.missing, &*progress)?;
        evaluations::compare(&dir, &settings.eval, &mut state, &*progress)?;
        // The origin changes last: a run that is killed before has returned to its checkpoint with the settings that it had.
        dir.return_to(state.step, settings.steps > state.step)?;
        checkpoints.rewind(&state)?;
        journal.cut_to_checkpoint()?;
        dir.change_origin(origin)?;
        dir.write_plan(&settings.plan)?;
        dir.write_tokenizers(&settings.tokenizers)?;
        work.open_in(dir.path())?;
        progress.opened(dir.path());
        interrupt.goes_on_with(resume_command(dir.path()));
        let (saved, clock) = (state.step, Instant::now());
        let mut run = Self {
            settings,
            work,
            dir,
            checkpoints,
            journal,
            state,
            saved,
            drafts: VecDeque::new(),
            ends: false,
            pending: PendingCheckpoint::default(),
            progress,
            interrupt,
            clock,
            spans: Vec::new(),
        };
        match checkpoint {
            Some(checkpoint) => run.load(&checkpoint).await?,
            None => run.save_start().await?,
        }
        Ok(Opened::Ready(Box::new(run)))
    }

    /// Completes the run.
    pub(super) async fn run(mut self) -> Result<Report, TrainError> {
        self.progress.note(&format!("run directory: {}", self.dir.path().display()));
        let done = self.run_whole().await;
        let done = self.settle_checkpoint(done);
        self.progress.end();
        done?;
        self.finish()
    }

    /// Runs everything that remains, until the run is asked to stop.
    async fn run_whole(&mut self) -> Result<(), TrainError> {
        if self.state.step == 0 && self.settings.eval.before_and_after {
            match self.evaluator().evaluate("before").await? {
                Some(before) => self.row(0, &evaluations::metrics(&before), &Metrics::default())?,
                None => return Ok(()),
            }
        }
        self.progress.begin(self.state.step, self.settings.steps);
        self.steps().await?;
        if self.interrupt.is_raised() {
            return Ok(());
        }
        if self.settings.eval.before_and_after {
            let Some(after) = self.evaluator().evaluate("after").await? else { return Ok(()) };
            self.row(self.state.step, &evaluations::metrics(&after), &Metrics::default())?;
        }
        Ok(())
    }

    /// Runs the remaining steps, until the run is asked to stop, or stops because all its groups were flat.
    async fn steps(&mut self) -> Result<(), TrainError> {
        (self.clock, self.spans) = (Instant::now(), Vec::new());
        let (steps, mut flat) = (self.settings.steps, None);
        while flat.is_none() && self.state.step < steps && !self.interrupt.is_raised() {
            self.interrupt.stopping_means(self.stopping());
            flat = self.step().await?.then(|| too_flat(&self.dir, &self.state));
        }
        self.end_steps().await?;
        flat.map_or_else(|| self.pending.wait(), Err)
    }

    /// Runs a step. Returns true if it is the last one of a run that stops because all its groups were flat.
    async fn step(&mut self) -> Result<bool, TrainError> {
        self.pending.error_so_far()?;
        let step = self.state.step + 1;
        let mut rollouts = self.dir.begin_rollouts(step)?;
        let mut done = self.work.step(self.state.step, &mut rollouts).await?;
        let places = self.dir.list_rollouts(step, rollouts)?;
        self.record(step, &done)?;
        rows::index(&mut self.journal, (TRAIN, step), &done.episodes, &places)?;
        for (seat, totals) in by_seat(&done.episodes) {
            self.state.agents.entry(seat).or_default().add(&totals);
        }
        self.state.flat_steps = if done.flat { self.state.flat_steps + 1 } else { 0 };
        done.metrics.set("group/flat_steps", self.state.flat_steps as f64);
        if done.flat {
            done.warnings
                .push(format!("step {step}: every group has one reward; no policy was updated"));
        }
        let crashes = self.state.warned.crashes.warning(&done.episodes);
        done.warnings_once.extend(crashes.map(|warning| ("crashes", warning)));
        done.warnings_once
            .extend(unreported_warning(&done.episodes).map(|warning| (UNREPORTED, warning)));
        for (name, warning) in std::mem::take(&mut done.warnings_once) {
            if self.state.warned.others.insert(name.to_owned()) {
                done.warnings.push(warning);
            }
        }
        done.warnings.extend(self.state.warned.malformed.warning(&done.episodes));
        self.state.step = step;
        let validating = Instant::now();
        let improved = self.evaluator().validate(&mut done).await?;
        self.spans.append(&mut done.spans);
        if done.timing.get("time/eval_s").is_some() {
            self.spans.push(Span::since("validation", validating));
        }
        self.spans(step, std::mem::take(&mut done.workers))?;
        let line = self.line(&done);
        self.progress.step(&line);
        rows::warn(&mut self.journal, &*self.progress, step, &done.warnings)?;
        done.timing.set(STEP_SECONDS, line.seconds);
        self.row(step, &done.metrics, &done.timing)?;
        rows::show(&mut self.journal, step, &done.episodes, self.settings.texts)?;
        let checkpoint = &self.settings.checkpoint;
        let due = checkpoint.every > 0 && step.is_multiple_of(checkpoint.every);
        let flat = done.flat && self.state.flat_steps >= self.settings.max_flat_steps;
        if !self.ends && (due || flat || (improved && checkpoint.best)) {
            self.save().await?;
        }
        self.complete_checkpoints(step).await?;
        Ok(flat)
    }

    /// Writes the records of a step.
    fn record(&mut self, step: u64, done: &Stepped) -> Result<(), RunDirError> {
        let record = &self.settings.record;
        if let Some(samples) = done.samples.as_ref().filter(|_| record.samples) {
            self.dir.write_samples(step, samples)?;
        }
        if let Some(tokens) = &done.tokens {
            self.dir.write_tokens(step, tokens)?;
        }
        if record.clock && !done.clock.is_empty() {
            self.dir.write_clock(step, &done.clock)
        } else {
            Ok(())
        }
    }

    /// Appends the times of the parts of a step.
    fn spans(
        &mut self,
        step: u64,
        samples: BTreeMap<String, Vec<WorkerSample>>,
    ) -> Result<(), RunDirError> {
        let spans = std::mem::take(&mut self.spans);
        let row = spans::row(step, spans, [self.clock, Instant::now()]);
        let row = SpanRow { samples, ..row };
        if self.settings.record.clock { self.journal.append_spans(&row) } else { Ok(()) }
    }

    /// Returns what evaluates.
    fn evaluator(&mut self) -> HeldOutEvaluator<'_, W> {
        let Self { settings, work, dir, journal, state, progress, interrupt, .. } = self;
        let RunSettings { eval, rewards, measure, record, .. } = settings;
        let records_episodes = record.evaluations;
        let progress = &**progress;
        HeldOutEvaluator {
            work,
            dir,
            journal,
            state,
            eval,
            rewards,
            records_episodes,
            measure,
            progress,
            interrupt,
        }
    }

    fn row(&mut self, step: u64, metrics: &Metrics, timing: &Metrics) -> Result<(), RunDirError> {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64());
        self.journal.append(step, metrics, timing, now)
    }

    /// Returns the summary of the step for people. Its seconds are those since the last step, evaluations excluded.
    fn line(&mut self, done: &Stepped) -> StepLine {
        let evaluating = done.timing.get("time/eval_s").unwrap_or(0.0);
        let seconds = (self.clock.elapsed().as_secs_f64() - evaluating).max(0.0);
        self.clock = Instant::now();
        let losses = done.metrics.iter().filter(|(name, _)| name.ends_with("/loss"));
        let losses: Vec<f64> = losses.map(|(_, loss)| loss).collect();
        let supervised = done.episodes.is_empty() && !losses.is_empty();
        StepLine {
            step: self.state.step,
            steps: self.settings.steps,
            score: done.metrics.get("rollout/score_mean"),
            solved: done.metrics.get("rollout/solved"),
            loss: supervised.then(|| losses.iter().sum::<f64>() / losses.len() as f64),
            tokens: by_seat(&done.episodes).values().map(|totals| totals.completion_tokens).sum(),
            seconds,
        }
    }

    /// Writes the summary and seals the directory.
    fn finish(mut self) -> Result<Report, TrainError> {
        let growing = self.journal.sync()?;
        let before = self.dir.read_evaluation::<Evaluation>("before")?;
        let after = self.dir.read_evaluation::<Evaluation>("after")?;
        let [before, after] = [before, after].map(|found| found.as_ref().map(SplitScore::from));
        let done = self.state.step == self.settings.steps;
        let mut agents = self.state.agents.clone();
        // Seats that were never called are in the table too.
        for seat in &self.settings.seats {
            agents.entry(seat.clone()).or_default();
        }
        let summary = RunSummary {
            complete: done && (after.is_some() || !self.settings.eval.before_and_after),
            steps: self.state.step,
            seed: self.state.seed,
            measure: self.settings.measure.clone(),
            before,
            after,
            best: self.state.best,
            train_seconds: self.journal.seconds()?,
            agents: agents.into_iter().map(|(seat, totals)| (seat, totals.summary())).into_map(),
        };
        write_json(&self.dir.summary(), &summary)?;
        self.dir.remove_progress()?;
        self.dir.seal(growing, self.settings.missing)?;
        Ok(Report { dir: self.dir.path().to_owned(), interrupted: !summary.complete, summary })
    }
}

/// Fails if the run has more steps than requested, or stopped because all its groups were flat.
fn goes_on(dir: &RunDir, state: &TrainerState, settings: &RunSettings) -> Result<(), TrainError> {
    let (done, steps) = (state.step, settings.steps);
    if done > steps {
        return Err(TrainError::StepsBehind { dir: dir.path().to_owned(), done, steps });
    }
    let flat = state.flat_steps > 0 && state.flat_steps >= settings.max_flat_steps;
    if flat && done < steps { Err(too_flat(dir, state)) } else { Ok(()) }
}

fn too_flat(dir: &RunDir, state: &TrainerState) -> TrainError {
    TrainError::Flat { steps: state.flat_steps, dir: dir.path().to_owned() }
}

/// Fails if files of the run directory have changed.
fn verify(
    dir: &mut RunDir,
    state: &TrainerState,
    missing: Missing,
    progress: &dyn Progress,
) -> Result<(), RunDirError> {
    let gone = dir.verify(state.step, missing)?;
    if let Some(first) = gone.first() {
        progress.warn(&format!(
            "{} files of episodes are gone, `{}` first; the run goes on without them",
            gone.len(),
            first.display()
        ));
    }
    Ok(())
}

/// Returns the summary if the run is complete.
fn complete(dir: &RunDir, steps: u64) -> Result<Option<RunSummary>, RunDirError> {
    if !dir.summary().exists() {
        return Ok(None);
    }
    let summary: RunSummary = read_json(&dir.summary())?;
    Ok(Some(summary).filter(|summary| summary.complete && summary.steps == steps))
}

#[cfg(test)]
mod tests;

//! Evaluations during a run: before and after training, and validations between steps.

use std::time::Instant;

use sha2::{Digest as _, Sha256};

use crate::checkpoint::{Best, TrainerState};
use crate::config::EvalConfig;
use crate::eval::{EvalReport, EvalSpec};
use crate::metrics::{Metrics, UNREPORTED, unreported_warning};
use crate::run_dir::{EpisodePosition, Journal, RunDir, RunDirError, places, read_rollouts};
use crate::train::error::TrainError;
use crate::train::progress::Progress;
use crate::train::progress::interrupt::Interrupt;
use crate::train::run::rows;
use crate::train::run::summary::{Evaluation, SplitScore};
use crate::train::run::trainable::{Stepped, Trainable};
use crate::train::step::unscored;
use crate::trajectory::Episode;

/// Parts of a run that an evaluation uses.
pub(crate) struct HeldOutEvaluator<'r, W> {
    pub(crate) work: &'r W,
    pub(crate) dir: &'r mut RunDir,
    pub(crate) journal: &'r mut Journal,
    pub(crate) state: &'r mut TrainerState,
    pub(crate) eval: &'r EvalConfig,
    /// Names of the parts of the reward that `[rewards]` has.
    pub(crate) rewards: &'r [String],
    /// True if episodes are recorded.
    pub(crate) records_episodes: bool,
    /// Name that the environment gives to the share of solved episodes.
    pub(crate) measure: &'r str,
    pub(crate) progress: &'r dyn Progress,
    pub(crate) interrupt: &'r Interrupt,
}

impl<W: Trainable> HeldOutEvaluator<'_, W> {
    /// Evaluates on the validation split if this is due; returns true if the result is the best so far.
    pub(crate) async fn validate(self, done: &mut Stepped) -> Result<bool, TrainError> {
        let (state, eval) = (self.state, self.eval);
        let step = state.step;
        if eval.every == 0 || !step.is_multiple_of(eval.every) {
            return Ok(false);
        }
        let start = Instant::now();
        let spec = EvalSpec::new(eval, &eval.split);
        let episodes = self.work.evaluate(&spec).await?;
        let report = unscored::report(&spec, self.rewards, &episodes)?;
        let name = format!("step-{step:06}");
        if self.records_episodes {
            let places = self.dir.write_evaluation_episodes(&name, &episodes)?;
            rows::index(self.journal, ("validation", step), &episodes, &places)?;
        }
        self.dir.write_validation(&name, &report)?;
        let exact_match = report.exact_match();
        done.metrics.extend(report.metrics(&spec.split));
        done.warnings.extend(report.left_out());
        done.warnings.extend(state.warned.malformed.warning(&episodes));
        done.timing.set("time/eval_s", start.elapsed().as_secs_f64());
        let improved = state.best.is_none_or(|best| exact_match > best.exact_match);
        if improved {
            state.best = Some(Best { step, exact_match });
            state.best_settings = Some(validation_settings(eval));
        }
        Ok(improved)
    }

    /// Returns the evaluation before or after training, read from its file if it exists. `None` if the run is asked to
    /// stop.
    pub(crate) async fn evaluate(mut self, name: &str) -> Result<Option<Evaluation>, TrainError> {
        if let Some(evaluation) = self.dir.read_evaluation(name)? {
            return self.append_evaluation(name, evaluation).map(Some);
        }
        let eval = self.eval;
        let gives_up = self.work.may_give_up();
        let end = if gives_up { "stopping" } else { "finishing" };
        self.interrupt.stopping_means(format!("{end} the evaluation"));
        self.progress.note(&format!("evaluating on `{}` {name} training", eval.test_split));
        let sampled = EvalSpec::new(eval, &eval.test_split);
        let greedy = EvalSpec { samples: 1, temperature: Some(0.0), ..sampled.clone() };
        let both = async {
            let episodes = self.work.evaluate(&sampled).await?;
            let greedily = self.work.evaluate(&greedy).await?;
            Ok::<_, TrainError>((episodes, greedily))
        };
        let both = if gives_up { self.interrupt.or(both).await } else { Some(both.await) };
        let Some((episodes, greedily)) = both.transpose()? else { return Ok(None) };
        let evaluation = Evaluation {
            sampled: unscored::report(&sampled, self.rewards, &episodes)?,
            greedy: unscored::report(&greedy, self.rewards, &greedily)?,
        };
        let greedy_name = format!("{name}-greedy");
        let mut recorded = Vec::new();
        if self.records_episodes {
            for (stage, episodes) in [(name, &episodes), (&*greedy_name, &greedily)] {
                let places = self.dir.write_evaluation_episodes(stage, episodes)?;
                recorded.push((stage, episodes, places));
            }
        }
        self.dir.write_evaluation(name, &evaluation)?;
        for (stage, episodes, places) in recorded {
            self.index(stage, episodes, &places)?;
        }
        let SplitScore { exact_match, greedy, .. } = SplitScore::from(&evaluation);
        let measure = self.measure;
        self.progress
            .note(&format!("{measure} {name} training: {exact_match:.3}, greedy {greedy:.3}"));
        self.evaluation_warnings(&evaluation, &episodes)?;
        Ok(Some(evaluation))
    }

    /// Appends again what was recorded of an evaluation after the last checkpoint, and cut off when the run was resumed.
    fn append_evaluation(
        &mut self,
        name: &str,
        evaluation: Evaluation,
    ) -> Result<Evaluation, TrainError> {
        let mut sampled = Vec::new();
        for stage in [name.to_owned(), format!("{name}-greedy")] {
            let path = self.dir.evaluation_episodes(&stage);
            // The episodes may have been removed, see `Missing`.
            if path.is_file() {
                let episodes = read_rollouts(&path)?;
                let places = places(&path, &episodes)?;
                self.index(&stage, &episodes, &places)?;
                if stage == name {
                    sampled = episodes;
                }
            }
        }
        self.evaluation_warnings(&evaluation, &sampled)?;
        Ok(evaluation)
    }

    fn evaluation_warnings(
        &mut self,
        evaluation: &Evaluation,
        episodes: &[Episode],
    ) -> Result<(), RunDirError> {
        let reports = [&evaluation.sampled, &evaluation.greedy].into_iter();
        let left_out = reports.filter_map(EvalReport::left_out);
        let malformed = self.state.warned.malformed.warning(episodes);
        let others = &mut self.state.warned.others;
        let unreported =
            unreported_warning(episodes).filter(|_| others.insert(UNREPORTED.to_owned()));
        let warnings: Vec<String> = left_out.chain(malformed).chain(unreported).collect();
        rows::warn(self.journal, self.progress, self.state.step, &warnings)
    }

    fn index(
        &mut self,
        stage: &str,
        episodes: &[Episode],
        places: &[EpisodePosition],
    ) -> Result<(), RunDirError> {
        rows::index(self.journal, (stage, self.state.step), episodes, places)
    }
}

/// Returns the metrics of an evaluation before or after training.
pub(crate) fn metrics(evaluation: &Evaluation) -> Metrics {
    let split = &evaluation.sampled.split;
    let mut metrics = evaluation.sampled.metrics(split);
    metrics.set(format!("eval/{split}/greedy_exact_match"), evaluation.greedy.exact_match());
    metrics
}

/// Returns a hash of what a validation plays.
fn validation_settings(eval: &EvalConfig) -> u64 {
    let EvalConfig { data, tasks, samples, temperature, split, .. } = eval;
    let played = serde_json::json!([data, tasks, samples, temperature, split]);
    let digest = Sha256::digest(played.to_string());
    digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

/// Reports the evaluations of a resumed run that cannot be compared, because their tasks have changed. The best checkpoint by another
/// validation is forgotten, also if a run that was resumed with these settings was killed before its next checkpoint.
pub(crate) fn compare(
    dir: &RunDir,
    now: &EvalConfig,
    state: &mut TrainerState,
    progress: &dyn Progress,
) -> Result<(), RunDirError> {
    let then = dir.origin()?.config.eval;
    let has_before = dir.read_evaluation::<Evaluation>("before")?.is_some();
    let [before, after] = [&then, now]
        .map(|eval| (&eval.data, eval.tasks, eval.samples, eval.temperature.map(f32::to_bits)));
    let differ = before != after;
    if has_before && (differ || then.test_split != now.test_split) {
        progress.warn(
            "`eval` was changed: the evaluation after training plays otherwise than the one before it",
        );
    }
    let is_other = match state.best_settings {
        Some(settings) => settings != validation_settings(now),
        None => differ || then.split != now.split,
    };
    if state.best.is_some() && is_other {
        progress.warn("`eval` was changed: the best checkpoint is chosen among new validations");
        (state.best, state.best_settings) = (None, None);
    }
    Ok(())
}

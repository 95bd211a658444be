//! One step of the training of a verifier, and its evaluation on tasks that it was not trained on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::config::{HeadKind, VerifierLabels, VerifierLoss};
use crate::data::{self, DataError, LabeledReply};
use crate::metrics::Metrics;
use crate::net::reply_odds;
use crate::plan::Plan;
use crate::rng::SplitMix64;
use crate::run_dir::disk::hash_bytes;
use crate::runtime::{Policy, ValueBatch, ValueRow, ValueStats, ValueTarget, ValueText};
use crate::train::error::TrainError;
use crate::train::learner::Learner;
use crate::train::learner::batches::StepPlan;
use crate::train::learner::state::VerifierRecord;
use crate::train::record::measure::{UpdateMeter, critic_norm};
use crate::train::record::spans::Span;
use crate::train::run::trainable::Stepped;
use crate::train::step::players::Players;
use crate::train::supervised::fitting::fitting;
use crate::train::supervised::units::{Logits, TextUnit, text, unit, units};
use crate::verifier::{Calibration, Leaks, Probed, auc_interval, leaks, probes, statistics};

/// Salt of the split of the tasks.
const VALIDATION: u64 = 0x0076_616c_6964;
/// Texts whose logits are asked for at once.
const AT_ONCE: usize = 256;
/// Difference of the AUC to the best probe under which a run warns.
const MARGIN: f64 = 0.05;

/// Rows of a verifier's run by split. No task is in two of them.
pub(crate) struct VerifierData {
    /// Rows that are trained on.
    train: Vec<LabeledReply>,
    /// Units of the loss, as indices of those rows. A step takes some of them.
    pub(crate) units: Vec<Vec<usize>>,
    /// Rows that the calibration is fitted to.
    validation: Vec<LabeledReply>,
    /// Held-out rows; empty without `eval.data`.
    test: Vec<LabeledReply>,
    /// Warning about held-out questions.
    warning: Option<String>,
}

impl VerifierData {
    /// Reads the rows of a plan, and refuses held-out tasks that are trained on.
    pub(crate) fn read(plan: &Plan, policies: &[Policy]) -> Result<Self, TrainError> {
        let test = match &plan.config.eval.data {
            Some(held_out) => {
                let mut rows = Vec::new();
                for name in held_out.names() {
                    let place = data::data_place(name, &plan.base);
                    let (task, split) = (&plan.config.task, &plan.config.eval.test_split);
                    rows.extend(data::labeled_held_out(&place, task, split)?);
                }
                rows
            }
            None => Vec::new(),
        };
        let test = if test.is_empty() { test } else { fit_rows(plan, policies, test)? };
        let (validation, train) = divide_rows(fit_rows(plan, policies, rows(plan)?)?, plan);
        let units = units(&train, plan.algorithm.verifier.loss);
        let mut data = Self { train, units, validation, test, warning: None };
        data.warning = data.check(plan).map_err(|problem| data_problem(plan, problem))?;
        Ok(data)
    }

    /// Returns the hash of all rows.
    pub(crate) fn hash(&self) -> String {
        let rows = [&self.train, &self.validation, &self.test].map(|rows| {
            rows.iter()
                .map(|row| (&row.prompt, &row.reply, row.label, row.score))
                .collect::<Vec<_>>()
        });
        hash_bytes(&serde_json::to_vec(&rows).expect("messages have string keys"))
    }

    /// Refuses rows that cannot be trained on. Returns a warning about held-out questions that are nearly those of others.
    fn check(&self, plan: &Plan) -> Result<Option<String>, String> {
        if let Some(wrong) = data::label_problem(&self.train) {
            return Err(wrong.to_owned());
        }
        if self.units.is_empty() {
            let message = "no prompt has a right and a wrong reply, which `algorithm.verifier.loss = \"pairs\"` compares; \
                           collect more samples of each task, or take another loss";
            return Err(message.to_owned());
        }
        if plan.algorithm.verifier.labels == VerifierLabels::Soft
            && let Some(wrong) = data::score_problem(self.train.iter().chain(&self.validation))
        {
            return Err(wrong);
        }
        let seen = [question_texts(&self.train), question_texts(&self.validation)].concat();
        let Leaks { same, near } = leaks(&seen, &question_texts(&self.test));
        if let Some(first) = same.first() {
            return Err(format!(
                "{} held-out questions are trained on, such as {first}; split by task, as `maverl collect --test-share` does",
                same.len()
            ));
        }
        let Some(first) = near.first() else { return Ok(None) };
        let n = near.len();
        let told = format!(
            "{n} held-out questions share 13 words in a row with one that is trained on: {first}"
        );
        if plan.algorithm.verifier.allow_near {
            Ok(Some(told))
        } else {
            Err(format!("{told}; take other tasks, or set `algorithm.verifier.allow_near = true`"))
        }
    }

    /// Returns the rows of a unit.
    fn unit_rows(&self, unit: usize) -> Vec<&LabeledReply> {
        self.units[unit].iter().map(|i| &self.train[*i]).collect()
    }
}

/// Leaves out rows that are too long, if the plan says so.
fn fit_rows(
    plan: &Plan,
    policies: &[Policy],
    rows: Vec<LabeledReply>,
) -> Result<Vec<LabeledReply>, TrainError> {
    fitting(plan, policies, rows, |row| row.row_texts(plan.algorithm.verifier.head))
}

fn data_problem(plan: &Plan, problem: String) -> TrainError {
    TrainError::Verifier { data: plan.config.task.data.clone(), problem }
}

fn question_texts(rows: &[LabeledReply]) -> Vec<(String, String)> {
    rows.iter().map(|row| (row.task.clone(), row.prompt_text())).collect()
}

/// Reads the rows that a plan trains on and calibrates with.
fn rows(plan: &Plan) -> Result<Vec<LabeledReply>, DataError> {
    data::labeled(&data::data_place(&plan.config.task.data, &plan.base), &plan.config.task)
}

/// Returns the keys of the questions that the verifier of a plan is trained on.
pub(crate) fn verifier_tasks(plan: &Plan) -> Result<BTreeSet<String>, DataError> {
    let (_, train) = divide_rows(rows(plan)?, plan);
    Ok(train.into_iter().map(|row| row.task).collect())
}

/// Returns the validation rows and those that are trained on: by the splits that rows name, or else by a draw of tasks. All rows
/// of a task are in one of them.
fn divide_rows(rows: Vec<LabeledReply>, plan: &Plan) -> (Vec<LabeledReply>, Vec<LabeledReply>) {
    let marked: Vec<&LabeledReply> = rows.iter().filter(|row| row.validates).collect();
    let held_out = if marked.is_empty() {
        let mut tasks = tasks_of(rows.iter());
        let mut rng = SplitMix64::new(plan.config.seed ^ VALIDATION);
        rng.shuffle(&mut tasks);
        tasks.truncate((tasks.len() as f64 * plan.algorithm.verifier.validation) as usize);
        tasks
    } else {
        tasks_of(marked)
    };
    let held_out: BTreeSet<String> = held_out.into_iter().collect();
    rows.into_iter().partition(|row| held_out.contains(&row.task))
}

/// Returns the tasks of rows, sorted.
fn tasks_of<'r>(rows: impl IntoIterator<Item = &'r LabeledReply>) -> Vec<String> {
    let tasks: BTreeSet<&String> = rows.into_iter().map(|row| &row.task).collect();
    tasks.into_iter().cloned().collect()
}

/// Runs a step on `task.tasks_per_step` units of the loss: rows, or pairs.
pub(crate) async fn verify(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &mut Learner,
    data: &VerifierData,
) -> Result<Stepped, TrainError> {
    let StepPlan { plan, step, .. } = *at;
    let meter = UpdateMeter::start(&[], BTreeMap::new());
    players.progress().work(&format!("step {}: learning", step + 1));
    let policy = policy(plan, learner)?;
    let units = players.sampler.step(step).into_iter();
    let rows: Vec<Vec<&LabeledReply>> = units.map(|unit| data.unit_rows(unit)).collect();
    let began = Instant::now();
    let (mut metrics, likelihood) = learn(at, &policy, &rows).await?;
    let mut spans = vec![Span::since("update", began).of_policy(policy.name())];
    let mut warnings = Vec::new();
    let [evaluates, saves] = [plan.config.eval.every, plan.config.checkpoint.every]
        .map(|every| every > 0 && (step + 1).is_multiple_of(every));
    let evaluation = evaluates || step + 1 == plan.config.steps;
    if evaluation || saves {
        players.progress().work(&format!("step {}: evaluation of the verifier", step + 1));
        let began = Instant::now();
        let head = (plan.algorithm.verifier.head, likelihood);
        let (found, record) = evaluate(&policy, head, data).await?;
        // A checkpoint early in a run has a verifier that has learnt little yet.
        warnings.extend(shortcut(&found).filter(|_| evaluation));
        metrics.extend(found);
        learner.verifier = Some(record);
        spans.push(Span::since("evaluation", began));
    }
    let timing = meter.stop(&[], &BTreeMap::new());
    let warnings_once = data.warning.iter().map(|warning| ("leaks", warning.clone())).collect();
    Ok(Stepped { metrics, timing, spans, warnings, warnings_once, ..Stepped::default() })
}

/// Returns the policy whose model is the verifier's trunk.
fn policy(plan: &Plan, learner: &Learner) -> Result<Policy, TrainError> {
    let mut trained = plan.policies.iter().enumerate().filter(|(_, policy)| policy.trained);
    match (trained.next(), trained.next()) {
        (Some((index, _)), None) => Ok(learner.policies()[index].clone()),
        _ => Err(data_problem(
            plan,
            "the team has several trained policies; a verifier is trained on the model of one"
                .to_owned(),
        )),
    }
}

/// Trains on units of rows: `algorithm.epochs` passes in `algorithm.minibatches` optimizer steps. Returns the weight and bias of a
/// head of log-probs too.
async fn learn(
    at: &StepPlan<'_>,
    policy: &Policy,
    rows: &[Vec<&LabeledReply>],
) -> Result<(Metrics, Option<[f32; 2]>), TrainError> {
    let StepPlan { plan, step, .. } = *at;
    let settings = &plan.algorithm.verifier;
    let units = rows.iter().map(|rows| unit(policy, rows, settings));
    let units: Vec<TextUnit> = units.collect::<Result<_, _>>()?;
    let rate = at.rates.and_then(|rates| rates.get("verifier/lr"));
    let rate = rate.unwrap_or_else(|| settings.optim().rate(step, plan.config.steps));
    let (mut loss, mut judged, mut steps) = (0.0, (0, 0), 0.0);
    let mut all = ValueStats::default();
    for epoch in 0..plan.algorithm.epochs {
        for part in 0..plan.algorithm.minibatches {
            let part = units.iter().skip(part).step_by(plan.algorithm.minibatches);
            let units: Vec<&TextUnit> = part.collect();
            if units.is_empty() {
                continue;
            }
            let texts: Vec<ValueText> =
                units.iter().flat_map(|unit| unit.texts.iter().cloned()).collect();
            let mut values = policy.values(texts).await?.into_iter();
            let weight = 1.0 / units.len() as f64;
            let mut batch = Vec::new();
            for unit in units {
                let values: Vec<Vec<f32>> = values.by_ref().take(unit.texts.len()).collect();
                let found = unit.loss(&values);
                loss += weight * found.value;
                if epoch == 0 {
                    judged = (judged.0 + found.judged.0, judged.1 + found.judged.1);
                }
                for (text, slopes) in unit.texts.iter().zip(found.slopes) {
                    let slopes = slopes.iter().map(|slope| (weight * slope) as f32).collect();
                    batch.push(ValueRow { text: text.clone(), aim: ValueTarget::Slopes(slopes) });
                }
            }
            let batch = ValueBatch { rows: batch, minibatches: 1, epochs: 1, lr: rate };
            let stats = policy.update_critic(batch).await?;
            all = ValueStats {
                grad_norm: all.grad_norm + stats.grad_norm,
                optimizer_steps: all.optimizer_steps + stats.optimizer_steps,
                skipped_steps: all.skipped_steps + stats.skipped_steps,
                ..stats
            };
            steps += 1.0;
        }
    }
    let mut metrics = Metrics::default();
    metrics.set("verifier/lr", rate);
    metrics.set("verifier/loss", loss / f64::max(steps, 1.0));
    metrics.set("verifier/accuracy", judged.1 as f64 / judged.0.max(1) as f64);
    all.grad_norm /= all.optimizer_steps.max(1) as f64;
    metrics.extend(critic_norm("verifier", &all));
    metrics.set("verifier/rows", rows.iter().map(Vec::len).sum::<usize>() as f64);
    Ok((metrics, all.likelihood))
}

/// Computes the logit of each row at its scored token, or the log-odds of its reply.
async fn logits(
    policy: &Policy,
    (head, likelihood): (HeadKind, Option<[f32; 2]>),
    rows: &[LabeledReply],
) -> Result<Vec<f64>, TrainError> {
    let mut logits: Vec<f64> = Vec::new();
    for rows in rows.chunks(AT_ONCE) {
        let texts: Vec<ValueText> = rows
            .iter()
            .map(|row| text(policy, row, (head, VerifierLoss::Last)))
            .collect::<Result<_, _>>()?;
        let values = policy.values(texts).await?;
        logits.extend(values.iter().flat_map(|values| Logits::from(head).of(values)));
    }
    if let Some(head) = likelihood {
        logits.iter_mut().for_each(|logit| *logit = reply_odds(*logit, head));
    }
    Ok(logits)
}

/// Fits the calibration to the validation rows, and computes the statistics of each split.
async fn evaluate(
    policy: &Policy,
    head: (HeadKind, Option<[f32; 2]>),
    data: &VerifierData,
) -> Result<(Metrics, VerifierRecord), TrainError> {
    let mut metrics = Metrics::default();
    let found = logits(policy, head, &data.validation).await?;
    let labels = labels(&data.validation);
    let calibration = Calibration::fit(&found, &labels);
    let Calibration { temperature, offset } = calibration;
    metrics.set("verifier/temperature", temperature);
    metrics.set("verifier/offset", offset);
    split(&mut metrics, "validation", (&found, &labels), calibration);
    if !data.test.is_empty() {
        let found = logits(policy, head, &data.test).await?;
        let labels = self::labels(&data.test);
        split(&mut metrics, "test", (&found, &labels), calibration);
        let tasks = tasks_of(&data.test);
        let places = data.test.iter().map(|row| tasks.binary_search(&row.task));
        let places: Vec<usize> = places.map(Result::unwrap_or_default).collect();
        if let Some([low, high]) = auc_interval(&found, &labels, &places) {
            metrics.set("verifier/test/auc_low", low);
            metrics.set("verifier/test/auc_high", high);
        }
        let [trained, tested] = [&data.train, &data.test]
            .map(|rows| rows.iter().map(LabeledReply::reply_text).collect::<Vec<_>>());
        let probed = (probed_replies(&data.train, &trained), probed_replies(&data.test, &tested));
        for (name, area) in probes(&probed.0, &probed.1) {
            metrics.set(format!("verifier/probe/{name}"), area);
        }
    }
    let tasks = tasks_of(&data.train).into_iter().collect();
    Ok((metrics, VerifierRecord { temperature, offset, tasks }))
}

/// Adds the statistics of a split; nothing without right and wrong rows.
fn split(metrics: &mut Metrics, name: &str, (logits, labels): (&[f64], &[bool]), at: Calibration) {
    let Some(scaled) = statistics(logits, labels, at) else { return };
    for (quantity, value) in scaled.named_values() {
        metrics.set(format!("verifier/{name}/{quantity}"), value);
    }
    if let Some(plain) = statistics(logits, labels, Calibration::NONE) {
        metrics.set(format!("verifier/{name}/ece_unscaled"), plain.ece);
    }
    let mean = logits.iter().map(|logit| at.probability(*logit)).sum::<f64>();
    metrics.set(format!("verifier/{name}/mean"), mean / logits.len() as f64);
}

fn labels(rows: &[LabeledReply]) -> Vec<bool> {
    rows.iter().map(|row| row.label).collect()
}

fn probed_replies<'r>(rows: &'r [LabeledReply], replies: &'r [String]) -> Vec<Probed<'r>> {
    rows.iter()
        .zip(replies)
        .map(|(row, reply)| Probed {
            reply,
            policy: &row.policy,
            place: &row.place,
            label: row.label,
        })
        .collect()
}

/// Returns a warning if a verifier is hardly better than a probe that knows no question.
fn shortcut(metrics: &Metrics) -> Option<String> {
    let area = metrics.get("verifier/test/auc")?;
    let (name, best) = ["length", "policy", "place", "format", "completion"]
        .into_iter()
        .filter_map(|name| Some((name, metrics.get(&format!("verifier/probe/{name}"))?)))
        .max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (area < best + MARGIN).then(|| {
        format!(
            "the held-out AUC of the verifier is {area:.3}, and {best:.3} of the probe `{name}`, which does not verify: \
             labels follow a shortcut in the data"
        )
    })
}

//! One step of supervised training: replies are given, and every trained policy is trained on them.

pub(super) mod fitting;
pub(super) mod units;
pub(super) mod verifier;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::algo::loss::LossOptions;
use crate::config::{OverlongText, TrainOn};
use crate::data::{Demonstration, PreferenceRow, Text};
use crate::plan::{AlgorithmPlan, Plan, SeatPlan};
use crate::runtime::{Batch, Objective, Policy, Row};
use crate::text::{ChatInput, Continuation, Tokenizer};
use crate::train::error::{DemonstrationError, TrainError};
use crate::train::learner::Learner;
use crate::train::learner::batches::StepPlan;
use crate::train::record::measure::UpdateMeter;
use crate::train::record::spans::Span;
use crate::train::run::trainable::Stepped;
use crate::train::step::players::Players;

/// Runs a step on `task.tasks_per_step` demonstrations.
pub(super) async fn imitate(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &Learner,
    shown: &[Demonstration],
) -> Result<Stepped, TrainError> {
    learn(at, players, learner, (Objective::Supervised, Vec::new()), |line| {
        let shown = &shown[line.number];
        (&shown.location, demonstration_rows(line, shown, &at.plan.algorithm))
    })
    .await
}

/// Runs a step on `task.tasks_per_step` pairs of replies, or replies with a label.
pub(super) async fn prefer(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &Learner,
    pairs: &[PreferenceRow],
) -> Result<Stepped, TrainError> {
    let objective = Objective::Preference(at.plan.algorithm.preference);
    let chosen = players.sampler.step(at.step).into_iter();
    let sizes: Vec<[usize; 2]> = chosen.map(|number| pairs[number].sizes()).collect();
    learn(at, players, learner, (objective, sizes), |line| {
        let pair = &pairs[line.number];
        (&pair.location, line.pair_rows(pair))
    })
    .await
}

/// Runs a step of self-play on `task.tasks_per_step` demonstrations: each is the better reply of a pair, and the worse
/// one is that of the opponent, the policy at the start of the iteration. SPIN,
/// [2401.01335](https://arxiv.org/abs/2401.01335) algorithm 1.
pub(super) async fn self_play(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &mut Learner,
    shown: &[Demonstration],
) -> Result<Stepped, TrainError> {
    players.progress().work(&format!("step {}: the opponent's replies", at.step + 1));
    let mut rejected: BTreeMap<usize, Vec<Vec<u32>>> = BTreeMap::new();
    for (policy, seat) in trained_policies(at.plan) {
        let trunk = learner.policies()[policy].clone();
        let line = Line::new(at.plan, policy, &trunk, seat);
        let sampling = Arc::new(seat.sampling.clone());
        let replies = learner.opponent(at, policy, &sampling, |step| {
            let numbers = players.sampler.step(step).into_iter();
            numbers.map(|number| line.prompt(&shown[number])).collect()
        });
        rejected.insert(policy, replies.await?);
    }
    let objective = Objective::Preference(at.plan.algorithm.preference);
    learn(at, players, learner, (objective, Vec::new()), |line| {
        let shown = &shown[line.number];
        let rejected = &rejected[&line.policy][line.place];
        (&shown.location, line.opposed_rows(shown, rejected))
    })
    .await
}

/// A line of the step's data that a policy is trained on.
struct Line<'t> {
    policy: usize,
    tokenizer: &'t Tokenizer,
    /// Longest sequence of the model.
    context: usize,
    overlong: OverlongText,
    /// Position in the step.
    place: usize,
    /// Position in the file.
    number: usize,
    loss: LossOptions,
}

impl<'t> Line<'t> {
    fn new(plan: &Plan, policy: usize, trunk: &'t Policy, seat: &SeatPlan) -> Self {
        Self {
            policy,
            tokenizer: trunk.tokenizer(),
            context: trunk.context(),
            overlong: plan.config.task.overlong,
            place: 0,
            number: 0,
            loss: seat.loss.options(),
        }
    }

    /// Returns the row of a conversation's last message, a reply: its prompt, and the reply with the end of turn of the
    /// template.
    fn reply(&self, chat: &ChatInput) -> Result<Row, DemonstrationError> {
        self.row(&self.tokenizer.reply(chat)?)
    }

    /// Returns the rows of the better and the worse reply of a pair, or of its one reply.
    fn pair_rows(&self, pair: &PreferenceRow) -> Result<Vec<Row>, DemonstrationError> {
        let rows = pair.conversations().into_iter().map(|chat| self.reply(&chat));
        self.fit(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the rows of a demonstration and of the opponent's reply to its prompt.
    fn opposed_rows(
        &self,
        shown: &Demonstration,
        rejected: &[u32],
    ) -> Result<Vec<Row>, DemonstrationError> {
        let chosen = self.fit_one(self.reply(&shown.chat)?)?;
        Ok(vec![chosen.clone(), Row { completion: rejected.to_vec(), ..chosen }])
    }

    /// Returns the prompt of a demonstration.
    fn prompt(&self, shown: &Demonstration) -> Result<Vec<u32>, TrainError> {
        let row = self.reply(&shown.chat).and_then(|row| self.fit_one(row));
        row.map(|row| row.prompt).map_err(|source| wrong(&shown.location, source))
    }

    fn fit_one(&self, row: Row) -> Result<Row, DemonstrationError> {
        Ok(self.fit(vec![row])?.remove(0))
    }

    fn row(&self, divided: &Continuation) -> Result<Row, DemonstrationError> {
        let (prompt, completion) = self.tokenizer.encode_parts(divided)?;
        Ok(Row { prompt, completion, loss: self.loss.clone(), ..Row::default() })
    }

    /// Cuts rows with one prompt that are longer than the context, or refuses them. See [`OverlongText::Truncate`].
    fn fit(&self, mut rows: Vec<Row>) -> Result<Vec<Row>, DemonstrationError> {
        let longest = rows.iter().map(|row| row.prompt.len() + row.completion.len()).max();
        match longest {
            Some(tokens) if tokens > self.context => match self.overlong {
                OverlongText::Truncate => {}
                _ => return Err(DemonstrationError::Overlong { tokens, context: self.context }),
            },
            _ => return Ok(rows),
        }
        // The first token of a row follows none, so a prompt has at least one.
        let room = self.context.saturating_sub(1);
        rows.iter_mut().for_each(|row| row.completion.truncate(room));
        let reply = rows.iter().map(|row| row.completion.len()).max().unwrap_or_default();
        for row in &mut rows {
            let cut = row.prompt.len().saturating_sub(self.context - reply);
            row.prompt.drain(..cut);
        }
        Ok(rows)
    }
}

/// Returns the trained policies, each with its first seat.
fn trained_policies(plan: &Plan) -> impl Iterator<Item = (usize, &SeatPlan)> {
    let policies = plan.policies.iter().enumerate().filter(|(_, policy)| policy.trained);
    policies.filter_map(|(policy, _)| {
        Some((policy, plan.seats.iter().find(|seat| seat.policy == policy)?))
    })
}

fn wrong(location: &str, source: DemonstrationError) -> TrainError {
    TrainError::Demonstration { location: location.to_owned(), source }
}

/// Updates every trained policy with the rows of the step's lines of the file. `rows` returns the place of a line and its rows, and
/// `pairs` has the numbers of better and of worse replies of each line, or nothing if these are one each.
async fn learn<'d>(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &Learner,
    (objective, pairs): (Objective, Vec<[usize; 2]>),
    rows: impl Fn(&Line<'_>) -> (&'d str, Result<Vec<Row>, DemonstrationError>),
) -> Result<Stepped, TrainError> {
    let StepPlan { plan, step, .. } = *at;
    let meter = UpdateMeter::start(&[], BTreeMap::new());
    players.progress().work(&format!("step {}: learning", step + 1));
    learner.begin(at).await?;
    let chosen = players.sampler.step(step);
    let mut batches = Vec::new();
    for (policy, seat) in trained_policies(plan) {
        let trunk = &learner.policies()[policy];
        let mut all = Vec::new();
        for (place, &number) in chosen.iter().enumerate() {
            let line = Line { place, number, ..Line::new(plan, policy, trunk, seat) };
            let (location, rows) = rows(&line);
            all.extend(rows.map_err(|source| wrong(location, source))?);
        }
        // Conversations without replies give a world model no rows.
        if !all.is_empty() {
            let lr = plan.policies[policy].optim.rate(step, plan.config.steps);
            let batch = batch(plan, policy, objective, all, lr);
            batches.push((policy, Batch { pairs: pairs.clone(), ..batch }));
        }
    }
    let began = Instant::now();
    let updated = learner.update_together(plan, batches, Vec::new()).await?;
    let mut spans = vec![Span::since("update", began)];
    spans.extend(updated.spans);
    let timing = meter.stop(&[], &BTreeMap::new());
    Ok(Stepped { metrics: updated.metrics, timing, spans, ..Stepped::default() })
}

fn batch(plan: &Plan, policy: usize, objective: Objective, rows: Vec<Row>, lr: f64) -> Batch {
    Batch {
        rows,
        objective,
        minibatches: plan.algorithm.minibatches,
        epochs: plan.algorithm.epochs,
        aggregation: plan.algorithm.aggregation,
        longest: plan.longest_reply(policy),
        router_aux_coef: plan.algorithm.router_aux_coef,
        lr,
        ..Batch::default()
    }
}

/// Returns the rows of a demonstration: its replies, the messages that answer replies, or both.
fn demonstration_rows(
    line: &Line<'_>,
    shown: &Demonstration,
    algorithm: &AlgorithmPlan,
) -> Result<Vec<Row>, DemonstrationError> {
    let mut rows = Vec::new();
    for text in shown.row_texts(algorithm.train_on).texts {
        let (mut row, is_reply) = match &text {
            Text::Observation(chat) => (line.row(&line.tokenizer.observation(chat)?)?, false),
            Text::Reply(chat) | Text::Judged(chat) => (line.reply(chat)?, true),
        };
        row = line.fit_one(row)?;
        if let TrainOn::All(plan) = algorithm.train_on {
            let weight = plan.observation_weight as f32;
            let weight = if is_reply { 1.0 - weight } else { weight };
            row.weights = vec![weight; row.completion.len()];
        }
        rows.push(row);
    }
    Ok(rows)
}

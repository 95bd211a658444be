//! One step of supervised training: replies are given, and every trained policy is trained on them.

pub(super) mod fitting;
pub(super) mod units;
pub(super) mod verifier;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::algo::loss::LossOptions;
use crate::config::{OverlongText, TrainOn};
use crate::data::{Demonstration, PreferencePair, Text};
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
    let algorithm = &at.plan.algorithm;
    let rows = |line: &Line<'_>| demonstration_rows(line, &shown[line.number], algorithm);
    let location = |number: usize| shown[number].location.clone();
    learn(at, players, learner, (Objective::Supervised, &location), rows).await
}

/// Runs a step on `task.tasks_per_step` pairs of replies.
pub(super) async fn prefer(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &Learner,
    pairs: &[PreferencePair],
) -> Result<Stepped, TrainError> {
    let rows = |line: &Line<'_>| {
        let [chosen, rejected] = pairs[line.number].conversations();
        line.fit(vec![line.reply(&chosen)?, line.reply(&rejected)?])
    };
    let location = |number: usize| pairs[number].location.clone();
    let objective = Objective::Preference(at.plan.algorithm.preference);
    learn(at, players, learner, (objective, &location), rows).await
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
        let prompt = |number: usize| {
            let line = Line::new(at.plan, policy, &trunk, seat);
            let rows = line.reply(&shown[number].chat).and_then(|row| line.fit(vec![row]));
            let location = shown[number].location.clone();
            rows.map(|mut rows| rows.remove(0).prompt).map_err(|source| wrong(location, source))
        };
        let prompts = |step| players.sampler.step(step).into_iter().map(prompt).collect();
        let sampling = Arc::new(seat.sampling.clone());
        rejected.insert(policy, learner.opponent(at, policy, &sampling, prompts).await?);
    }
    let rows = |line: &Line<'_>| {
        let chosen = line.fit(vec![line.reply(&shown[line.number].chat)?])?.remove(0);
        let completion = rejected[&line.policy][line.place].clone();
        Ok(vec![chosen.clone(), Row { completion, ..chosen }])
    };
    let location = |number: usize| shown[number].location.clone();
    let objective = Objective::Preference(at.plan.algorithm.preference);
    learn(at, players, learner, (objective, &location), rows).await
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

    fn row(&self, divided: &Continuation) -> Result<Row, DemonstrationError> {
        let (prompt, completion) = self.tokenizer.encode_parts(divided)?;
        Ok(Row { prompt, completion, loss: self.loss, ..Row::default() })
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
    let seat = |policy| plan.seats.iter().find(|seat| seat.policy == policy);
    policies.filter_map(move |(policy, _)| Some((policy, seat(policy)?)))
}

fn wrong(location: String, source: DemonstrationError) -> TrainError {
    TrainError::Demonstration { location, source }
}

/// Updates every trained policy with the rows of the step's lines of the file.
async fn learn(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &Learner,
    (objective, location): (Objective, &dyn Fn(usize) -> String),
    rows: impl Fn(&Line<'_>) -> Result<Vec<Row>, DemonstrationError>,
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
            all.extend(rows(&line).map_err(|source| wrong(location(number), source))?);
        }
        // Conversations without replies give a world model no rows.
        if !all.is_empty() {
            let lr = plan.policies[policy].optim.rate(step, plan.config.steps);
            batches.push((policy, batch(plan, policy, objective, all, lr)));
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
        row = line.fit(vec![row])?.remove(0);
        if let TrainOn::All(plan) = algorithm.train_on {
            let weight = plan.observation_weight as f32;
            let weight = if is_reply { 1.0 - weight } else { weight };
            row.weights = vec![weight; row.completion.len()];
        }
        rows.push(row);
    }
    Ok(rows)
}

//! One step of supervised training: replies are given, and every trained policy is trained on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::algo::loss::LossOptions;
use crate::algo::lr;
use crate::config::TrainOn;
use crate::data::{Demonstration, PreferencePair};
use crate::model::{Rendered, Tokenizer};
use crate::plan::{AlgorithmPlan, Plan, SeatPlan};
use crate::runtime::{Batch, Objective, Row, Sampling};
use crate::train::batches::StepPlan;
use crate::train::error::{DemonstrationError, TrainError};
use crate::train::learner::Learner;
use crate::train::measure::Meter;
use crate::train::players::Players;
use crate::train::spans::Span;
use crate::train::trainable::Stepped;
use crate::trajectory::{Message, Role};

/// Runs a step on `task.tasks_per_step` demonstrations.
pub(super) async fn imitate(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &Learner,
    shown: &[Demonstration],
) -> Result<Stepped, TrainError> {
    let algorithm = &at.plan.algorithm;
    let rows = |line: &Line<'_>| {
        demonstration_rows(line.tokenizer, &shown[line.number], algorithm, line.loss)
    };
    learn(at, players, learner, Objective::Supervised, rows).await
}

/// Runs a step on `task.tasks_per_step` pairs of replies.
pub(super) async fn prefer(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &Learner,
    pairs: &[PreferencePair],
) -> Result<Stepped, TrainError> {
    let rows = |&Line { tokenizer, number, loss, .. }: &Line<'_>| {
        let PreferencePair { prompt, chosen, rejected } = &pairs[number];
        Ok(vec![row(tokenizer, prompt, chosen, loss)?, row(tokenizer, prompt, rejected, loss)?])
    };
    let objective = Objective::Preference((&at.plan.algorithm.preference).into());
    learn(at, players, learner, objective, rows).await
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
    for (policy, seat) in trained(at.plan) {
        let tokenizer = Arc::clone(learner.policies()[policy].tokenizer());
        let prompt = |number: usize| {
            let Demonstration { prompt, reply } = &shown[number];
            let row = row(&tokenizer, prompt, reply, LossOptions::from(&seat.loss));
            row.map(|row| row.prompt).map_err(|source| wrong(at.plan, number, source))
        };
        let prompts = |step| players.sampler.step(step).into_iter().map(prompt).collect();
        let sampling = Arc::new(Sampling::from(&seat.sampling));
        rejected.insert(policy, learner.opponent(at, policy, &sampling, prompts).await?);
    }
    let rows = |line: &Line<'_>| {
        let Demonstration { prompt, reply } = &shown[line.number];
        let chosen = row(line.tokenizer, prompt, reply, line.loss)?;
        let completion = rejected[&line.policy][line.place].clone();
        Ok(vec![chosen.clone(), Row { completion, ..chosen }])
    };
    let objective = Objective::Preference((&at.plan.algorithm.preference).into());
    learn(at, players, learner, objective, rows).await
}

/// A line of the step's data that a policy is trained on.
struct Line<'t> {
    policy: usize,
    tokenizer: &'t Tokenizer,
    /// Position in the step.
    place: usize,
    /// Position in the file.
    number: usize,
    loss: LossOptions,
}

/// Returns the trained policies, each with its first seat.
fn trained(plan: &Plan) -> impl Iterator<Item = (usize, &SeatPlan)> {
    let policies = plan.policies.iter().enumerate().filter(|(_, policy)| policy.trained);
    let seat = |policy| plan.seats.iter().find(|seat| seat.policy == policy);
    policies.filter_map(move |(policy, _)| Some((policy, seat(policy)?)))
}

fn wrong(plan: &Plan, number: usize, source: DemonstrationError) -> TrainError {
    TrainError::Demonstration { number: number + 1, data: plan.task.data.clone(), source }
}

/// Updates every trained policy with the rows of the step's lines of the file.
async fn learn(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &Learner,
    objective: Objective,
    rows: impl Fn(&Line<'_>) -> Result<Vec<Row>, DemonstrationError>,
) -> Result<Stepped, TrainError> {
    let StepPlan { plan, step, .. } = *at;
    let meter = Meter::start(&[], BTreeMap::new());
    players.progress().work(&format!("step {}: learning", step + 1));
    learner.begin(at).await?;
    let chosen = players.sampler.step(step);
    let mut batches = Vec::new();
    for (policy, seat) in trained(plan) {
        let (tokenizer, loss) =
            (&**learner.policies()[policy].tokenizer(), LossOptions::from(&seat.loss));
        let mut all = Vec::new();
        for (place, &number) in chosen.iter().enumerate() {
            let line = Line { policy, tokenizer, place, number, loss };
            all.extend(rows(&line).map_err(|source| wrong(plan, number, source))?);
        }
        // Conversations without replies give a world model no rows.
        if !all.is_empty() {
            let lr = lr(step, plan.steps, &plan.policies[policy].optim);
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
        aggregation: plan.algorithm.aggregation.into(),
        longest: plan.longest_reply(policy),
        lr,
        ..Batch::default()
    }
}

/// Returns the rows of a demonstration: its reply, the user's messages after earlier replies, or both.
fn demonstration_rows(
    tokenizer: &Tokenizer,
    shown: &Demonstration,
    algorithm: &AlgorithmPlan,
    loss: LossOptions,
) -> Result<Vec<Row>, DemonstrationError> {
    let mut rows = Vec::new();
    if algorithm.train_on != TrainOn::Observations {
        rows.push(row(tokenizer, &shown.prompt, &shown.reply, loss)?);
    }
    let replies = rows.len();
    if algorithm.train_on != TrainOn::Assistant {
        for at in shown.observations() {
            rows.push(observation(tokenizer, &shown.prompt[..=at], loss)?);
        }
    }
    if let TrainOn::All(plan) = algorithm.train_on {
        let weight = plan.observation_weight as f32;
        for (i, row) in rows.iter_mut().enumerate() {
            let weight = if i < replies { 1.0 - weight } else { weight };
            row.weights = vec![weight; row.completion.len()];
        }
    }
    Ok(rows)
}

/// Returns the row of a reply: the rendered prompt, and the reply with the end of turn of the template.
fn row(
    tokenizer: &Tokenizer,
    prompt: &[Message],
    reply: &str,
    loss: LossOptions,
) -> Result<Row, DemonstrationError> {
    let open = render(tokenizer, prompt, true)?;
    let reply = Message { role: Role::Assistant, content: reply.to_owned() };
    let whole = render(tokenizer, &[prompt, &[reply]].concat(), false)?;
    continued(tokenizer, &whole, open.text().len(), open.text(), loss)
}

/// Returns the row of a user's last message. Its role header is part of the prompt.
fn observation(
    tokenizer: &Tokenizer,
    said: &[Message],
    loss: LossOptions,
) -> Result<Row, DemonstrationError> {
    let (last, before) = said.split_last().ok_or(DemonstrationError::Empty)?;
    let given = render(tokenizer, before, false)?;
    let whole = render(tokenizer, said, false)?;
    let after = whole.text().get(given.text().len()..).unwrap_or_default();
    let header = after
        .find(last.content.trim())
        .ok_or(DemonstrationError::Changed { what: "what is said" })?;
    continued(tokenizer, &whole, given.text().len() + header, given.text(), loss)
}

fn render(
    tokenizer: &Tokenizer,
    messages: &[Message],
    open: bool,
) -> Result<Rendered, DemonstrationError> {
    Ok(tokenizer.render(messages, open)?)
}

/// Returns a row whose prompt is `whole` up to `at`, and whose completion is the rest up to the end of the turn.
/// `whole` must begin with `start`.
fn continued(
    tokenizer: &Tokenizer,
    whole: &Rendered,
    at: usize,
    start: &str,
    loss: LossOptions,
) -> Result<Row, DemonstrationError> {
    if !whole.text().starts_with(start) {
        return Err(DemonstrationError::Changed { what: "the prompt when the reply is appended" });
    }
    let mut completion = tokenizer.encode_rendered(&whole.after(at))?;
    // Text of the template after the stop id belongs to the next turn.
    if let Some(end) = completion.iter().position(|id| tokenizer.stop_ids().contains(id)) {
        completion.truncate(end + 1);
    }
    if completion.is_empty() {
        return Err(DemonstrationError::Nothing);
    }
    Ok(Row {
        prompt: tokenizer.encode_rendered(&whole.before(at))?,
        completion,
        loss,
        ..Row::default()
    })
}

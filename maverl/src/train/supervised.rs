//! One step of supervised training: replies are given, and every trained policy is trained on them.

use std::collections::BTreeMap;

use crate::algo::loss::LossOptions;
use crate::algo::lr;
use crate::config::TrainOn;
use crate::data::{Demonstration, PreferencePair};
use crate::model::{Rendered, Tokenizer};
use crate::plan::{AlgorithmPlan, Plan};
use crate::runtime::{Batch, Objective, Row};
use crate::train::batches::StepPlan;
use crate::train::error::{DemonstrationError, TrainError};
use crate::train::learner::Learner;
use crate::train::measure::Meter;
use crate::train::players::Players;
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
    let rows = |tokenizer: &Tokenizer, i: usize, loss| {
        demonstration_rows(tokenizer, &shown[i], algorithm, loss)
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
    let rows = |tokenizer: &Tokenizer, i: usize, loss| {
        let PreferencePair { prompt, chosen, rejected } = &pairs[i];
        Ok(vec![row(tokenizer, prompt, chosen, loss)?, row(tokenizer, prompt, rejected, loss)?])
    };
    let objective = Objective::Preference((&at.plan.algorithm.preference).into());
    learn(at, players, learner, objective, rows).await
}

/// Updates every trained policy with the rows of the step's lines of the file.
async fn learn(
    StepPlan { plan, step, .. }: &StepPlan<'_>,
    players: &Players,
    learner: &Learner,
    objective: Objective,
    rows: impl Fn(&Tokenizer, usize, LossOptions) -> Result<Vec<Row>, DemonstrationError>,
) -> Result<Stepped, TrainError> {
    let meter = Meter::start(&[], BTreeMap::new());
    players.progress().work(&format!("step {}: learning", step + 1));
    let chosen = players.sampler.step(*step);
    let mut batches = Vec::new();
    for (policy, planned) in plan.policies.iter().enumerate().filter(|(_, policy)| policy.trained) {
        let Some(seat) = plan.seats.iter().find(|seat| seat.policy == policy) else { continue };
        let tokenizer = learner.policies()[policy].tokenizer();
        let mut all = Vec::new();
        for &i in &chosen {
            let data = plan.task.data.clone();
            let found = rows(tokenizer, i, LossOptions::from(&seat.loss))
                .map_err(|source| TrainError::Demonstration { number: i + 1, data, source })?;
            all.extend(found);
        }
        // Conversations without replies give a world model no rows.
        if !all.is_empty() {
            let lr = lr(*step, plan.steps, &planned.optim);
            batches.push((policy, batch(plan, policy, objective, all, lr)));
        }
    }
    let metrics = learner.update_together(plan, batches, Vec::new()).await?;
    let timing = meter.stop(&[], BTreeMap::new());
    Ok(Stepped { metrics, timing, ..Stepped::default() })
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
    if algorithm.train_on == TrainOn::All {
        let weight = algorithm.observation_weight as f32;
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

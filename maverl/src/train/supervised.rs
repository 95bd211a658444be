//! One step of supervised training: replies are given, and every trained policy is trained on them.

use std::time::{Duration, Instant};

use crate::algo::lr;
use crate::config::TrainOn;
use crate::data::{Demonstration, PreferencePair};
use crate::model::{Rendered, Tokenizer};
use crate::plan::{AlgorithmPlan, LossPlan, Plan};
use crate::runtime::{Batch, Objective, Row};
use crate::train::course::Stepped;
use crate::train::learn::update;
use crate::train::team::Team;
use crate::train::{TrainError, measure};
use crate::trajectory::{Message, Role};

/// Runs step `step`, counted from 0, on `task.tasks_per_step` demonstrations.
pub(super) async fn imitate(
    team: &Team<'_>,
    shown: &[Demonstration],
    step: u64,
) -> Result<Stepped, TrainError> {
    let algorithm = &team.plan.algorithm;
    let rows = |tokenizer: &Tokenizer, i: usize, loss| {
        demonstration_rows(tokenizer, &shown[i], algorithm, loss)
    };
    learn(team, step, Objective::Supervised, rows).await
}

/// Runs step `step`, counted from 0, on `task.tasks_per_step` pairs of replies.
pub(super) async fn prefer(
    team: &Team<'_>,
    pairs: &[PreferencePair],
    step: u64,
) -> Result<Stepped, TrainError> {
    let rows = |tokenizer: &Tokenizer, i: usize, loss| {
        let PreferencePair { prompt, chosen, rejected } = &pairs[i];
        Ok(vec![row(tokenizer, prompt, chosen, loss)?, row(tokenizer, prompt, rejected, loss)?])
    };
    learn(team, step, Objective::Preference(team.plan.algorithm.preference), rows).await
}

/// Updates every trained policy with the rows of the step's lines of the file.
async fn learn(
    team: &Team<'_>,
    step: u64,
    objective: Objective,
    rows: impl Fn(&Tokenizer, usize, LossPlan) -> Result<Vec<Row>, String>,
) -> Result<Stepped, TrainError> {
    let plan = team.plan;
    let start = Instant::now();
    team.progress.work(&format!("step {}: learning", step + 1));
    let chosen = team.sampler.step(step);
    let mut batches = Vec::new();
    for (policy, planned) in plan.policies.iter().enumerate().filter(|(_, policy)| policy.trained) {
        let Some(seat) = plan.seats.iter().find(|seat| seat.policy == policy) else { continue };
        let tokenizer = team.policies[policy].tokenizer();
        let mut all = Vec::new();
        for &i in &chosen {
            let data = plan.task.data.clone();
            let found = rows(tokenizer, i, seat.loss)
                .map_err(|reason| TrainError::Demonstration { number: i + 1, data, reason })?;
            all.extend(found);
        }
        // Conversations without replies give a world model no rows.
        if !all.is_empty() {
            let lr = lr(step, plan.steps, &planned.optim);
            batches.push((policy, batch(plan, policy, objective, all, lr)));
        }
    }
    let metrics = update(team, batches, Vec::new()).await?;
    let timing = measure::timing(&[], Duration::ZERO, start.elapsed());
    Ok(Stepped { metrics, timing, ..Stepped::default() })
}

fn batch(plan: &Plan, policy: usize, objective: Objective, rows: Vec<Row>, lr: f64) -> Batch {
    Batch {
        rows,
        objective,
        surrogate: None,
        minibatches: plan.algorithm.minibatches,
        epochs: plan.algorithm.epochs,
        aggregation: plan.algorithm.aggregation,
        longest: plan.longest_reply(policy),
        early_stop_kl: 0.0,
        lr,
    }
}

/// Returns the rows of a demonstration: its reply, the user's messages after earlier replies, or both.
fn demonstration_rows(
    tokenizer: &Tokenizer,
    shown: &Demonstration,
    algorithm: &AlgorithmPlan,
    loss: LossPlan,
) -> Result<Vec<Row>, String> {
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
    loss: LossPlan,
) -> Result<Row, String> {
    let open = render(tokenizer, prompt, true)?;
    let reply = Message { role: Role::Assistant, content: reply.to_owned() };
    let whole = render(tokenizer, &[prompt, &[reply]].concat(), false)?;
    continued(tokenizer, &whole, open.text().len(), open.text(), loss)
}

/// Returns the row of a user's last message. Its role header is part of the prompt.
fn observation(tokenizer: &Tokenizer, said: &[Message], loss: LossPlan) -> Result<Row, String> {
    let (last, before) = said.split_last().ok_or("nothing is said")?;
    let given = render(tokenizer, before, false)?;
    let whole = render(tokenizer, said, false)?;
    let after = whole.text().get(given.text().len()..).unwrap_or_default();
    let header = after.find(last.content.trim()).ok_or("the chat template changes what is said")?;
    continued(tokenizer, &whole, given.text().len() + header, given.text(), loss)
}

fn render(tokenizer: &Tokenizer, messages: &[Message], open: bool) -> Result<Rendered, String> {
    tokenizer.render(messages, open).map_err(|error| error.to_string())
}

/// Returns a row whose prompt is `whole` up to `at`, and whose completion is the rest up to the end of the turn.
/// `whole` must begin with `start`.
fn continued(
    tokenizer: &Tokenizer,
    whole: &Rendered,
    at: usize,
    start: &str,
    loss: LossPlan,
) -> Result<Row, String> {
    if !whole.text().starts_with(start) {
        return Err("the chat template changes the prompt when the reply is appended".to_owned());
    }
    let encode = |text: &Rendered| tokenizer.encode_rendered(text).map_err(|e| e.to_string());
    let mut completion = encode(&whole.after(at))?;
    // Text of the template after the stop id belongs to the next turn.
    if let Some(end) = completion.iter().position(|id| tokenizer.stop_ids().contains(id)) {
        completion.truncate(end + 1);
    }
    if completion.is_empty() {
        return Err("there is nothing to learn in it".to_owned());
    }
    Ok(Row {
        prompt: encode(&whole.before(at))?,
        completion,
        logprobs: Vec::new(),
        advantages: Vec::new(),
        temperature: 1.0,
        weights: Vec::new(),
        loss,
    })
}

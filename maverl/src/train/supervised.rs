//! One step of supervised training: replies are given, and every trained policy learns to say them.

use std::time::{Duration, Instant};

use crate::algo::lr;
use crate::data::Demonstration;
use crate::model::{Rendered, Tokenizer};
use crate::plan::{LossPlan, Plan};
use crate::runtime::{Batch, Objective, Row};
use crate::train::course::Stepped;
use crate::train::learn::update;
use crate::train::team::Team;
use crate::train::{TrainError, measure};
use crate::trajectory::{Message, Role};

/// Does step `step`, from 0, on `task.tasks_per_step` demonstrations.
pub(super) async fn step(
    team: &Team<'_>,
    demonstrations: &[Demonstration],
    step: u64,
) -> Result<Stepped, TrainError> {
    let plan = team.plan;
    let start = Instant::now();
    let chosen = team.sampler.step(step);
    let mut batches = Vec::new();
    for (policy, planned) in plan.policies.iter().enumerate().filter(|(_, policy)| policy.trained) {
        let Some(seat) = plan.seats.iter().find(|seat| seat.policy == policy) else { continue };
        let tokenizer = team.policies[policy].tokenizer();
        let row = |&i: &usize| {
            let data = plan.task.data.clone();
            row(tokenizer, &demonstrations[i], seat.loss)
                .map_err(|reason| TrainError::Demonstration { number: i + 1, data, reason })
        };
        let rows = chosen.iter().map(row).collect::<Result<_, _>>()?;
        batches.push((policy, batch(plan, policy, rows, lr(step, plan.steps, &planned.optim))));
    }
    let metrics = update(team, batches, Vec::new()).await?;
    let timing = measure::timing(&[], Duration::ZERO, start.elapsed());
    Ok(Stepped { metrics, timing, ..Stepped::default() })
}

fn batch(plan: &Plan, policy: usize, rows: Vec<Row>, lr: f64) -> Batch {
    Batch {
        rows,
        objective: Objective::Supervised,
        minibatches: plan.algorithm.minibatches,
        epochs: plan.algorithm.epochs,
        aggregation: plan.algorithm.aggregation,
        longest: plan.longest_reply(policy),
        target_kl: 0.0,
        lr,
    }
}

/// The prompt as the model would be given it, and the reply as the template ends it.
fn row(tokenizer: &Tokenizer, shown: &Demonstration, loss: LossPlan) -> Result<Row, String> {
    let render =
        |messages: &[Message], open| tokenizer.render(messages, open).map_err(|e| e.to_string());
    let encode = |text: &Rendered| tokenizer.encode_rendered(text).map_err(|e| e.to_string());
    let prompt = render(&shown.prompt, true)?;
    let reply = Message { role: Role::Assistant, content: shown.reply.clone() };
    let whole = render(&[shown.prompt.as_slice(), &[reply]].concat(), false)?;
    if !whole.text().starts_with(prompt.text()) {
        return Err("the chat template changes the prompt when the reply is appended".to_owned());
    }
    let mut completion = encode(&whole.after(prompt.text().len()))?;
    // What the template writes after the stop id is the next turn's business.
    if let Some(end) = completion.iter().position(|id| tokenizer.stop_ids().contains(id)) {
        completion.truncate(end + 1);
    }
    Ok(Row {
        prompt: encode(&prompt)?,
        completion,
        logprobs: Vec::new(),
        advantages: Vec::new(),
        temperature: 1.0,
        loss,
    })
}

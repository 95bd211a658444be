//! Preference pairs: replies of one seat to equal prompts, of which one has a higher reward.

use std::collections::BTreeMap;

use serde_json::json;

use crate::collect::example::{CollectedExample, CollectedTask};
use crate::collect::rows::{Row, reply, row};
use crate::trajectory::Role;

/// A prompt of a seat: task, seat, roles and texts of the messages, tools.
type PairPrompt = (CollectedTask, String, Vec<(Role, String)>, String);

/// A reply with the mean reward of the turns that gave it.
struct PairReply<'e> {
    first: &'e CollectedExample<'e>,
    sum: f64,
    count: u32,
}

impl PairReply<'_> {
    fn reward(&self) -> f64 {
        self.sum / f64::from(self.count)
    }
}

/// Returns the pairs of each prompt: the best reply with the worst, the second with the second to last, and so on, while
/// the rewards differ by the margin. Equal replies count once, with their mean reward.
pub(super) fn pairs(examples: &[&CollectedExample<'_>], margin: f64, most: usize) -> Vec<Row> {
    let mut order: Vec<PairPrompt> = Vec::new();
    let mut prompts: BTreeMap<PairPrompt, Vec<PairReply<'_>>> = BTreeMap::new();
    for example in examples {
        let prompt = prompt(example);
        let replies = prompts.entry(prompt.clone()).or_insert_with(|| {
            order.push(prompt);
            Vec::new()
        });
        let text = example.turn.reply.trim();
        match replies.iter_mut().find(|reply| reply.first.turn.reply.trim() == text) {
            Some(reply) => {
                reply.sum += example.reward;
                reply.count += 1;
            }
            None => replies.push(PairReply { first: example, sum: example.reward, count: 1 }),
        }
    }
    let mut rows = Vec::new();
    for prompt in order {
        let Some(mut replies) = prompts.remove(&prompt) else { continue };
        // The sort is stable, so equal rewards stay in the order of the episodes.
        replies.sort_by(|a, b| b.reward().total_cmp(&a.reward()));
        let halves = replies.iter().zip(replies.iter().rev()).take((replies.len() / 2).min(most));
        let apart = halves.take_while(|(best, worst)| best.reward() - worst.reward() >= margin);
        rows.extend(apart.map(|(best, worst)| pair(best, worst)));
    }
    rows
}

fn pair(best: &PairReply<'_>, worst: &PairReply<'_>) -> Row {
    let (chosen, rejected) = (&best.first.turn.reply, &worst.first.turn.reply);
    let columns = json!({
        "prompt": best.first.prompt(),
        "chosen": [reply(chosen)],
        "rejected": [reply(rejected)],
        "score_chosen": best.reward(),
        "score_rejected": worst.reward(),
    });
    let mut row = row(best.first, columns, format!("{chosen}\n{rejected}"), None);
    row.columns["maverl"]["rejected"] = worst.first.origin();
    row.asked |= worst.first.of.asked.is_some();
    row
}

fn prompt(example: &CollectedExample<'_>) -> PairPrompt {
    let turn = example.turn;
    let messages = example.prompt().into_iter();
    let messages = messages.map(|message| (message.role, message.content.trim().to_owned()));
    let tools = serde_json::Value::from(turn.tools.clone()).to_string();
    (example.task(), turn.seat.to_string(), messages.collect(), tools)
}

//! Rows for process rewards: the turns of an episode as steps.

use std::collections::BTreeMap;

use serde_json::json;

use crate::collect::example::{CollectedExample, CollectedTask};
use crate::collect::rows::{Row, row};

/// Episodes that begin with the same replies: how many, and how many of them are solved.
type Prefixes<'e> = BTreeMap<(CollectedTask, Vec<&'e str>), (u32, u32)>;

/// Returns a row for each episode all of whose turns were kept. The score of a step is the share of solved episodes among
/// those of its task that begin with the same replies; it is right from a half on.
pub(super) fn steps(kept: &[&CollectedExample<'_>], all: &[CollectedExample<'_>]) -> Vec<Row> {
    let mut prefixes = Prefixes::new();
    for episode in all.chunk_by(same_example) {
        for key in reply_prefixes(&episode[0], &replies(episode.iter())) {
            let (count, solved) = prefixes.entry(key).or_default();
            *count += 1;
            *solved += u32::from(episode[0].solved);
        }
    }
    let episodes = kept.chunk_by(|a, b| same_example(a, b));
    let whole = episodes.filter(|episode| episode.len() == episode[0].of.episode.turns.len());
    whole.map(|episode| steps_of(episode, &prefixes)).collect()
}

/// Returns the keys of the beginnings of an episode's replies.
fn reply_prefixes<'e>(
    first: &CollectedExample<'_>,
    replies: &[&'e str],
) -> Vec<(CollectedTask, Vec<&'e str>)> {
    (1..=replies.len()).map(|n| (first.task(), replies[..n].to_vec())).collect()
}

fn steps_of(episode: &[&CollectedExample<'_>], prefixes: &Prefixes<'_>) -> Row {
    let first = episode[0];
    let replies = replies(episode.iter().copied());
    let tallies = reply_prefixes(first, &replies).into_iter();
    let tallies = tallies.map(|key| prefixes.get(&key).copied().unwrap_or_default());
    let tallies: Vec<(u32, u32)> = tallies.collect();
    let scores = tallies.iter().map(|&(all, solved)| f64::from(solved) / f64::from(all.max(1)));
    let scores: Vec<f64> = scores.collect();
    let columns = json!({
        "prompt": first.of.episode.task.question,
        "completions": replies,
        "labels": scores.iter().map(|score| *score >= 0.5).collect::<Vec<_>>(),
        "scores": scores,
        "counts": tallies.iter().map(|(count, _)| *count).collect::<Vec<_>>(),
        "seats": episode.iter().map(|turn| turn.turn.seat.to_string()).collect::<Vec<_>>(),
    });
    let mut row = row(first, columns, replies.join("\n"), Some(first.solved));
    if let Some(columns) = row.columns.as_object_mut() {
        columns.remove("tools");
    }
    row
}

fn same_example(a: &CollectedExample<'_>, b: &CollectedExample<'_>) -> bool {
    std::ptr::eq(a.of, b.of)
}

fn replies<'e>(turns: impl Iterator<Item = &'e CollectedExample<'e>>) -> Vec<&'e str> {
    turns.map(|turn| turn.turn.reply.as_str()).collect()
}

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
        let replies = replies(episode.iter());
        for n in 1..=replies.len() {
            let key = (episode[0].task(), replies[..n].to_vec());
            let (count, solved) = prefixes.entry(key).or_default();
            *count += 1;
            *solved += u32::from(episode[0].solved);
        }
    }
    let episodes = kept.chunk_by(|a, b| same_example(a, b));
    let whole =
        |episode: &&[&CollectedExample<'_>]| episode.len() == episode[0].of.episode.turns.len();
    episodes.filter(whole).map(|episode| steps_of(episode, &prefixes)).collect()
}

fn steps_of(episode: &[&CollectedExample<'_>], prefixes: &Prefixes<'_>) -> Row {
    let first = episode[0];
    let replies = replies(episode.iter().copied());
    let tally = |n: usize| {
        let key = (first.task(), replies[..n].to_vec());
        prefixes.get(&key).copied().unwrap_or_default()
    };
    let tallies: Vec<(u32, u32)> = (1..=replies.len()).map(tally).collect();
    let share = |(count, solved): &(u32, u32)| f64::from(*solved) / f64::from((*count).max(1));
    let scores: Vec<f64> = tallies.iter().map(share).collect();
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

//! Turns that were given the same prompt, or nearly, against each other.

use std::collections::BTreeMap;

use maverl_kernels::advantage::RaggedRows;

use super::RowIds;
use crate::credit::{Rewarded, dense};

/// Returns the similarity of two sequences, from 0 to 1.
///
/// ```text
/// s = 2 · matches / (length of a + length of b)
/// ```
///
/// Matches are those of Ratcliff and Obershelp: the longest run that both have, and the same again on either side of it;
/// of equally long runs the first. That is `SequenceMatcher.ratio` of Python's difflib without its heuristics.
pub fn similarity(a: &[u32], b: &[u32]) -> f64 {
    let both = a.len() + b.len();
    if both == 0 {
        return 1.0;
    }
    let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, &id) in b.iter().enumerate() {
        places.entry(id).or_default().push(at);
    }
    let (mut matches, mut open) = (0, vec![([0, a.len()], [0, b.len()])]);
    while let Some(([a_from, a_to], [b_from, b_to])) = open.pop() {
        let (i, j, run) = longest_run(a, &places, [a_from, a_to], [b_from, b_to]);
        if run > 0 {
            matches += run;
            open.push(([a_from, i], [b_from, j]));
            open.push(([i + run, a_to], [j + run, b_to]));
        }
    }
    2.0 * matches as f64 / both as f64
}

/// Where the longest run within both spans begins, and how long it is.
fn longest_run(
    a: &[u32],
    places: &BTreeMap<u32, Vec<usize>>,
    [a_from, a_to]: [usize; 2],
    [b_from, b_to]: [usize; 2],
) -> (usize, usize, usize) {
    let mut best = (a_from, b_from, 0);
    // Lengths of the runs that end at the last token of `a`, by where they end in `b`.
    let mut ending: BTreeMap<usize, usize> = BTreeMap::new();
    for (i, id) in a.iter().enumerate().take(a_to).skip(a_from) {
        let mut now = BTreeMap::new();
        let here = places.get(id).map_or(&[][..], Vec::as_slice);
        for &j in here.iter().filter(|j| (b_from..b_to).contains(j)) {
            let before = j.checked_sub(1).and_then(|j| ending.get(&j)).copied().unwrap_or(0);
            let run = before + 1;
            now.insert(j, run);
            if run > best.2 {
                best = (i + 1 - run, j + 1 - run, run);
            }
        }
        ending = now;
    }
    best
}

/// Rows of one seat on one task, by what their turns were given: those whose prompts are at least so similar to that of
/// the first of a group are in it.
pub(super) fn groups(step: &Rewarded<'_>, least: f64) -> RowIds {
    let unit = (0..step.len()).collect();
    if least >= 1.0 {
        let keys = (0..step.len()).map(|row| (step.tasks[row], step.seats[row], step.prompts[row]));
        return RowIds { unit, group: dense(keys) };
    }
    let mut groups = 0;
    let mut firsts: BTreeMap<_, Vec<(&[u32], usize)>> = BTreeMap::new();
    let group = (0..step.len()).map(|row| {
        let prompt = step.prompts[row];
        let firsts = firsts.entry((step.tasks[row], step.seats[row])).or_default();
        let found = firsts.iter().find(|(first, _)| are_similar(first, prompt, least));
        found.map(|(_, group)| *group).unwrap_or_else(|| {
            firsts.push((prompt, groups));
            groups += 1;
            groups - 1
        })
    });
    let group = group.collect();
    RowIds { unit, group }
}

/// Returns true if the similarity of two sequences is at least so high.
fn are_similar(a: &[u32], b: &[u32], least: f64) -> bool {
    // No run is longer than the shorter of both, which often decides.
    let most = 2.0 * a.len().min(b.len()) as f64 / (a.len() + b.len()).max(1) as f64;
    most >= least && similarity(a, b) >= least
}

/// The discounted rewards from each row's turn on. A turn earns its own parts, the last turn what the episode earns.
pub(super) fn returns(step: &Rewarded<'_>, gamma: f64) -> Vec<f64> {
    let (mut rewards, mut lengths) = (Vec::new(), Vec::with_capacity(step.len()));
    for row in 0..step.len() {
        let parts = &step.turn_parts[step.episodes[row]];
        let own = parts[step.turns[row]];
        rewards.extend_from_slice(parts);
        if let Some(last) = rewards.last_mut() {
            *last += step.earned[row] - own;
        }
        lengths.push(parts.len());
    }
    let found = step.returns(&rewards, &RaggedRows::from_lengths(&lengths), gamma);
    let (mut first, mut returns) = (0, Vec::with_capacity(step.len()));
    for (turn, length) in step.turns.iter().zip(lengths) {
        returns.push(found[first + turn]);
        first += length;
    }
    returns
}

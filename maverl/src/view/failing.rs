//! Replies of a seat at which episodes are lost, beside those of the solved episodes that they leave there.

use std::collections::{BTreeMap, BTreeSet};

use super::change::Change;
use super::index::counts::Played;
use super::parting::{Kind, Parted, read_turns};
use super::replies::last_line;
use super::run::Run;
use crate::run_dir::Texts;

/// Number of pairs of replies that are quoted.
const QUOTED: usize = 2;
/// Shortest word that counts as copied or not, in characters.
const WORD: usize = 3;
/// Difference of two shares from which on they are told.
const APART: f64 = 0.3;

/// A reply, as far as it is told.
#[derive(Debug, Clone, Default, PartialEq)]
struct Reply {
    line: String,
    /// True if it has a word that its prompt lacks.
    coined: bool,
}

impl Reply {
    fn new(prompt: &[String], reply: &str) -> Self {
        let known: BTreeSet<&str> = prompt.iter().flat_map(|text| words(text)).collect();
        let coined = words(reply).any(|word| !known.contains(word));
        Self { line: last_line(reply), coined }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !c.is_alphanumeric());
    parts.filter(|word| word.chars().count() >= WORD)
}

/// Says what the seat replied that the largest part of a fall of the score is about: in the episodes that are lost there,
/// and in the solved ones that they leave. `None` if the score did not fall beyond chance, or that part is about no seat.
pub(super) fn told(
    run: &Run,
    played: &[Played],
    parted: &[Parted],
    change: &Change,
) -> Option<String> {
    let falls = change.by < 0.0 && !change.is_chance();
    let most = change.terms.iter().filter(|_| falls).min_by(|a, b| a.by.total_cmp(&b.by))?;
    let is_left = most.by < 0.0 && most.cause.kind == Kind::Left;
    let seat = most.cause.seat.as_ref().filter(|_| is_left)?;
    let its = parted.iter().enumerate().filter(|(_, (cause, _))| *cause == most.cause);
    let pairs: Vec<(usize, usize, usize)> =
        its.filter_map(|(i, (_, at))| at.map(|(other, turn)| (i, other, turn))).collect();
    let mut wanted: BTreeMap<(usize, usize), Reply> = BTreeMap::new();
    for (i, other, turn) in &pairs {
        wanted.extend([((*i, *turn), Reply::default()), ((*other, *turn), Reply::default())]);
    }
    let read: BTreeSet<usize> = wanted.keys().map(|(i, _)| *i).collect();
    let episodes: Vec<(usize, &Played)> = read.into_iter().map(|i| (i, &played[i])).collect();
    read_turns(run, &episodes, |i, texts| {
        if let Texts::Turn { turn, prompt, reply, .. } = texts
            && let Some(place) = wanted.get_mut(&(i, turn))
        {
            *place = Reply::new(&prompt, &reply);
        }
    });
    let of = |i: usize, turn: usize| wanted.get(&(i, turn)).cloned().unwrap_or_default();
    let pairs: Vec<[Reply; 2]> =
        pairs.iter().map(|(i, other, turn)| [of(*i, *turn), of(*other, *turn)]).collect();
    compared(seat, &pairs)
}

/// Says how replies that lose an episode are unlike those of solved ones; `None` without any.
fn compared(seat: &str, pairs: &[[Reply; 2]]) -> Option<String> {
    let n = pairs.len();
    let mut counts: BTreeMap<[&str; 2], usize> = BTreeMap::new();
    for [lost, kept] in pairs {
        *counts.entry([&lost.line, &kept.line]).or_default() += 1;
    }
    let mut ranked: Vec<([&str; 2], usize)> = counts.into_iter().collect();
    ranked.sort_by(|(a, x), (b, y)| y.cmp(x).then(a.cmp(b)));
    let quoted = ranked.iter().take(QUOTED).map(|([lost, kept], n)| {
        let times = if *n > 1 { format!(" ({n} times)") } else { String::new() };
        format!("“{lost}” where the solved one has “{kept}”{times}")
    });
    let quoted = quoted.collect::<Vec<_>>().join("; ");
    let coined = [0, 1].map(|side: usize| pairs.iter().filter(|pair| pair[side].coined).count());
    let apart = coined[0] as f64 - coined[1] as f64 > APART * n as f64;
    let copied = match apart {
        true => format!(
            " {} of its {n} replies there have a word that is not in the prompt; so have {} of the {n} in the solved episodes.",
            coined[0], coined[1]
        ),
        false => String::new(),
    };
    (n > 0).then(|| format!("How {seat} failed: {quoted}.{copied}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_lose_are_quoted_beside_those_of_solved_episodes() {
        let prompt = ["Who made Magmak? Write <search>..</search>.".to_owned()];
        let of = |lost: &str, kept: &str| [lost, kept].map(|reply| Reply::new(&prompt, reply));
        let twice = of("I search.\n<search>Magmek</search>", "<search>Magmak</search>");
        let pairs = [of("<search>made</search>", "<search>Magmak</search>"), twice.clone(), twice];
        let text = compared("s/a", &pairs).unwrap_or_default();
        assert_eq!(
            text,
            "How s/a failed: “<search>Magmek</search>” where the solved one has “<search>Magmak</search>” (2 times); \
             “<search>made</search>” where the solved one has “<search>Magmak</search>”. \
             2 of its 3 replies there have a word that is not in the prompt; so have 0 of the 3 in the solved episodes."
        );
        let alike = compared("s/a", &[of("<search>made</search>", "<search>Who</search>")]);
        assert!(alike.is_some_and(|text| !text.contains("not in the prompt")), "both are copied");
        assert_eq!(compared("s/a", &[]), None);
    }
}

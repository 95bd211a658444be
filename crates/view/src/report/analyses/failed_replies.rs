//! Replies of a seat at which episodes are lost, and those of the solved episodes that they diverge from there.

use std::collections::{BTreeMap, BTreeSet};

use maverl::run_dir::Texts;

use super::change::ScoreChange;
use super::divergence::{CauseKind, DivergencePlace};
use super::last_lines::last_line;
use crate::compact::{collect_into, sort_by};
use crate::report::reading::files::RunFiles;
use crate::report::rows::index::counts::Played;
use crate::report::rows::texts::read_turns;

/// Number of pairs of replies that are quoted.
const QUOTED: usize = 2;
/// Shortest word that counts as copied or not, in characters.
const WORD: usize = 3;
/// Difference of two shares from which on they are named.
const APART: f64 = 0.3;

/// The part of a reply that is described.
#[derive(Debug, Clone, Default, PartialEq)]
struct ReplyLine {
    line: String,
    /// First word of it that its prompt lacks.
    coined: Option<String>,
}

/// Description of the replies of a seat that lose episodes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FailedReplies {
    /// End of a clause on the lost episodes.
    pub(crate) evidence: String,
    /// Sentences with quoted replies.
    pub(crate) text: String,
}

impl ReplyLine {
    fn new(prompt: &[String], reply: &str) -> Self {
        let known: BTreeSet<&str> = collect_into(prompt.iter().flat_map(|text| long_words(text)));
        let coined = long_words(reply).find(|word| !known.contains(word));
        Self { line: last_line(reply), coined: coined.map(str::to_owned) }
    }
}

fn long_words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !c.is_alphanumeric());
    parts.filter(|word| word.chars().count() >= WORD)
}

/// Describes what the seat replied that a fall of the score comes from: in the episodes that are lost there, and in the
/// solved ones that they diverge from. `None` if the score did not fall beyond chance, or not by replies of a seat.
pub(crate) fn failed_replies(
    run: &RunFiles,
    played: &[Played],
    divergences: &[DivergencePlace],
    change: &ScoreChange,
) -> Option<FailedReplies> {
    let falls = change.by < 0.0 && change.cause.is_some();
    let most =
        change.leading_term().filter(|most| falls && most.cause.kind == CauseKind::Diverged)?;
    let seat = most.cause.seat.as_ref()?;
    let its = divergences.iter().enumerate().filter(|(_, (cause, _))| *cause == most.cause);
    let pairs: Vec<(usize, usize, usize)> =
        its.filter_map(|(i, (_, at))| at.map(|(other, turn)| (i, other, turn))).collect();
    let mut wanted: BTreeMap<(usize, usize), ReplyLine> = BTreeMap::new();
    for (i, other, turn) in &pairs {
        wanted
            .extend([((*i, *turn), ReplyLine::default()), ((*other, *turn), ReplyLine::default())]);
    }
    let read: BTreeSet<usize> = collect_into(wanted.keys().map(|(i, _)| *i));
    let episodes: Vec<(usize, &Played)> = read.into_iter().map(|i| (i, &played[i])).collect();
    read_turns(run, &episodes, |i, texts| {
        if let Texts::Turn { turn, prompt, reply, .. } = texts
            && let Some(wanted) = wanted.get_mut(&(i, turn))
        {
            *wanted = ReplyLine::new(&prompt, &reply);
        }
    });
    let pairs = pairs.iter().map(|(i, other, turn)| {
        [i, other].map(|i| wanted.get(&(*i, *turn)).cloned().unwrap_or_default())
    });
    compare_replies(seat, &pairs.collect::<Vec<_>>())
}

/// Says how replies that lose an episode are unlike those of solved ones; `None` without any.
fn compare_replies(seat: &str, pairs: &[[ReplyLine; 2]]) -> Option<FailedReplies> {
    let n = pairs.len();
    let mut counts: BTreeMap<[&str; 2], usize> = BTreeMap::new();
    for [lost, solved] in pairs {
        *counts.entry([&lost.line, &solved.line]).or_default() += 1;
    }
    let mut ranked: Vec<([&str; 2], usize)> = counts.into_iter().collect();
    sort_by(&mut ranked, |(a, x), (b, y)| y.cmp(x).then(a.cmp(b)));
    let quoted = ranked.iter().take(QUOTED).map(|([lost, solved], n)| {
        let times = if *n > 1 { format!(" ({n} times)") } else { String::new() };
        format!("“{lost}” where the solved one has “{solved}”{times}")
    });
    let quoted: Vec<String> = quoted.collect();
    let [lost_words, solved_words] = [0, 1].map(|side| {
        pairs.iter().filter_map(move |pair| pair[side].coined.as_deref()).collect::<Vec<_>>()
    });
    let (lost, solved) = (lost_words.len(), solved_words.len());
    let first = quoted.first()?;
    let mut text = format!("How {seat} failed: {}.", quoted.join("; "));
    let mut evidence = format!(", with {first}");
    if let Some(word) =
        lost_words.first().filter(|_| (lost as f64 - solved as f64) > APART * n as f64)
    {
        text += &format!(
            " {lost} of its {n} replies there have a word that is not in the prompt; so have {solved} of the {n} replies of solved episodes that they are compared with."
        );
        evidence = format!(
            ", with a word that is not in its prompt in {lost} of {n} replies, such as “{word}”"
        );
    }
    Some(FailedReplies { evidence, text })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn replies_that_lose_are_quoted_beside_those_of_solved_episodes() {
        let prompt = ["Who made Magmak? Write <search>..</search>.".to_owned()];
        let of =
            |lost: &str, solved: &str| [lost, solved].map(|reply| ReplyLine::new(&prompt, reply));
        let twice = of("I search.\n<search>Magmek</search>", "<search>Magmak</search>");
        let pairs = [of("<search>made</search>", "<search>Magmak</search>"), twice.clone(), twice];
        let failure = compare_replies("s/a", &pairs).unwrap();
        assert_eq!(
            failure.evidence,
            ", with a word that is not in its prompt in 2 of 3 replies, such as “Magmek”"
        );
        assert_eq!(
            failure.text,
            "How s/a failed: “<search>Magmek</search>” where the solved one has “<search>Magmak</search>” (2 times); \
             “<search>made</search>” where the solved one has “<search>Magmak</search>”. \
             2 of its 3 replies there have a word that is not in the prompt; so have 0 of the 3 replies of solved episodes that they are compared with."
        );
        let alike =
            compare_replies("s/a", &[of("<search>made</search>", "<search>Who</search>")]).unwrap();
        assert!(!alike.text.contains("not in the prompt"), "both are copied");
        let quoted =
            ", with “<search>made</search>” where the solved one has “<search>Who</search>”";
        assert_eq!(alike.evidence, quoted);
        assert_eq!(compare_replies("s/a", &[]), None);
    }
}

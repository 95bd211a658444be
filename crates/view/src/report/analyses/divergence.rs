//! Replies at which unsolved episodes diverge from the solved ones of their task: those after which no solved episode of the
//! task goes on in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use maverl::run_dir::Texts;
use serde::Serialize;
use serde_json::Value;

use crate::compact::{collect_into, sort_by};
use crate::report::reading::files::RunFiles;
use crate::report::rows::index::counts::Played;
use crate::report::rows::texts::read_turns;

/// Maximum number of episodes whose replies are compared.
const EPISODES: usize = 640;

/// Difference of an unsolved episode from the solved ones of its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CauseKind {
    /// The task is solved.
    Solved,
    /// A reply of the seat is malformed.
    Malformed,
    /// A reply of the seat is truncated.
    Truncated,
    /// The episode diverges from the solved ones of its task at a reply of the seat.
    #[serde(rename = "left")]
    Diverged,
    /// After replies equal to those of a solved episode, the environment gave something else.
    #[serde(rename = "given")]
    OtherObservation,
    /// All turns are equal to those of a solved episode.
    #[serde(rename = "alike")]
    EqualTurns,
    /// No episode of the task is solved.
    #[serde(rename = "never")]
    NeverSolved,
    /// The first replies of all episodes of the task differ.
    #[serde(rename = "unlike")]
    DistinctReplies,
    /// The replies were not compared.
    #[serde(rename = "unread")]
    NotCompared,
}

/// CauseKind of the difference, and the seat that it is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Cause {
    pub(crate) kind: CauseKind,
    pub(crate) seat: Option<String>,
}

impl Cause {
    pub(crate) fn new(kind: CauseKind, seat: Option<&str>) -> Self {
        Self { kind, seat: seat.map(str::to_owned) }
    }

    /// Describes where the score is lost, in a few words.
    pub(crate) fn short_text(&self) -> String {
        let seat = self.seat.as_deref().unwrap_or_default();
        match self.kind {
            CauseKind::Solved => "solved tasks of other scores".to_owned(),
            CauseKind::Malformed => format!("malformed replies of {seat}"),
            CauseKind::Truncated => format!("truncated replies of {seat}"),
            CauseKind::Diverged => format!("lost by {seat}"),
            CauseKind::OtherObservation | CauseKind::EqualTurns => {
                "lost after equal replies".to_owned()
            }
            CauseKind::NeverSolved => "tasks that no episode solved".to_owned(),
            CauseKind::DistinctReplies => "tasks whose first replies all differ".to_owned(),
            CauseKind::NotCompared => "not compared".to_owned(),
        }
    }

    /// Describes the episodes with this cause.
    pub(crate) fn text(&self) -> String {
        let seat = self.seat.as_deref().unwrap_or_default();
        match self.kind {
            CauseKind::Solved => "solved".to_owned(),
            CauseKind::Malformed => format!("unsolved, a reply of {seat} is malformed"),
            CauseKind::Truncated => format!("unsolved, a reply of {seat} is truncated"),
            CauseKind::Diverged => format!("unsolved, lost by a reply of {seat}"),
            CauseKind::OtherObservation => {
                "unsolved, other observations after equal replies".to_owned()
            }
            CauseKind::EqualTurns => {
                "unsolved, all turns equal to those of a solved one".to_owned()
            }
            CauseKind::NeverSolved => "unsolved, of tasks that no episode solved".to_owned(),
            CauseKind::DistinctReplies => {
                "unsolved, of tasks whose first replies all differ".to_owned()
            }
            CauseKind::NotCompared => "unsolved, not compared".to_owned(),
        }
    }
}

/// Seat and hashes of a turn, by which turns are compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TurnKey {
    seat: String,
    prompt: u64,
    reply: u64,
}

impl TurnKey {
    pub(crate) fn new(seat: String, prompt: &[String], reply: &str) -> Self {
        let (prompt, reply) = (hash_value(prompt), hash_value(reply));
        Self { seat, prompt, reply }
    }
}

/// Cause of an episode, and the index of the solved episode that it diverges from, with the index of the turn at which it does.
pub(crate) type DivergencePlace = (Cause, Option<(usize, usize)>);

/// Returns the cause of each episode, and where it diverges from a solved one.
pub(crate) fn loss_causes(run: &RunFiles, played: &[Played]) -> Vec<DivergencePlace> {
    let mut tasks: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    for (i, one) in played.iter().enumerate() {
        tasks.entry((one.location.step, one.task)).or_default().push(i);
    }
    // Only tasks that some episodes solve and others do not are read, whole ones up to the limit.
    let mut room = EPISODES;
    let mut chosen: Vec<usize> = Vec::new();
    for its in tasks.values().filter(|its| is_mixed(its, played)).take_while(|its| {
        let fits = its.len() <= room;
        room -= its.len().min(room);
        fits
    }) {
        chosen.extend(its);
    }
    let episodes: Vec<(usize, &Played)> = chosen.iter().map(|&i| (i, &played[i])).collect();
    let mut turns_of: BTreeMap<usize, Vec<TurnKey>> = BTreeMap::new();
    read_turns(run, &episodes, |i, texts| {
        if let Texts::Turn { seat, prompt, reply, .. } = texts {
            turns_of.entry(i).or_default().push(TurnKey::new(seat.to_string(), &prompt, &reply));
        }
    });
    let mut found = vec![(Cause::new(CauseKind::Solved, None), None); played.len()];
    for its in tasks.values() {
        for (i, cause) in of_task(played, its, &turns_of) {
            found[i] = cause;
        }
    }
    found
}

/// Returns true if some of the episodes are solved and others are not.
fn is_mixed(its: &[usize], played: &[Played]) -> bool {
    (1..its.len()).contains(&its.iter().filter(|i| played[**i].solved).count())
}

/// Returns the hash of a value.
fn hash_value(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns the causes of the unsolved episodes of a task.
fn of_task(
    played: &[Played],
    its: &[usize],
    turns_of: &BTreeMap<usize, Vec<TurnKey>>,
) -> Vec<(usize, DivergencePlace)> {
    let (solved, unsolved): (Vec<usize>, Vec<usize>) =
        its.iter().copied().partition(|i| played[*i].solved);
    let firsts: BTreeSet<Option<&TurnKey>> =
        collect_into(its.iter().map(|i| turns_of.get(i).and_then(|turns| turns.first())));
    let causes = unsolved.into_iter().map(|i| {
        let known = known_cause(&played[i], !solved.is_empty()).map(|cause| (cause, None));
        let found = known.unwrap_or_else(|| {
            compare_with_solved(i, &solved, turns_of, firsts.len() == its.len())
        });
        (i, found)
    });
    causes.collect()
}

/// Returns the cause of an unsolved episode that is known without a comparison.
fn known_cause(one: &Played, is_ever_solved: bool) -> Option<Cause> {
    if let Some(seat) = &one.malformed {
        return Some(Cause::new(CauseKind::Malformed, Some(seat)));
    }
    if let Some(seat) = &one.truncated {
        return Some(Cause::new(CauseKind::Truncated, Some(seat)));
    }
    (!is_ever_solved).then(|| Cause::new(CauseKind::NeverSolved, None))
}

/// Returns the cause of an unsolved episode, and where it diverges from the solved one with which it has most in common: the
/// first of several. `all_differ` is true if all episodes of the task have different first turns.
fn compare_with_solved(
    i: usize,
    solved: &[usize],
    turns_of: &BTreeMap<usize, Vec<TurnKey>>,
    all_differ: bool,
) -> DivergencePlace {
    let not_compared = (Cause::new(CauseKind::NotCompared, None), None);
    let Some(turns) = turns_of.get(&i) else { return not_compared };
    let others = solved.iter().filter_map(|other| Some((*other, turns_of.get(other)?)));
    let diverged = others.map(|(other, of)| (find_divergence(turns, of), other));
    let last = diverged.max_by_key(|((depth, _), other)| (*depth, std::cmp::Reverse(*other)));
    let Some(((depth, cause), other)) = last else { return not_compared };
    let distinct = depth <= 1 && all_differ;
    let cause = if distinct { Cause::new(CauseKind::DistinctReplies, None) } else { cause };
    (cause, Some((other, depth / 2)))
}

/// Returns where an episode diverges from another one, and what is different there: twice the number of common turns, and one
/// more if the next prompts are equal, too.
fn find_divergence(one: &[TurnKey], other: &[TurnKey]) -> (usize, Cause) {
    for (k, (a, b)) in one.iter().zip(other).enumerate() {
        if (&a.seat, a.prompt) != (&b.seat, b.prompt) {
            return (2 * k, Cause::new(CauseKind::OtherObservation, None));
        }
        if a.reply != b.reply {
            return (2 * k + 1, Cause::new(CauseKind::Diverged, Some(&a.seat)));
        }
    }
    let kind =
        if one.len() == other.len() { CauseKind::EqualTurns } else { CauseKind::OtherObservation };
    (2 * one.len().min(other.len()), Cause::new(kind, None))
}

fn count_causes(causes: &[Cause], kinds: &[CauseKind]) -> usize {
    causes.iter().filter(|cause| kinds.contains(&cause.kind)).count()
}

/// Describes which agent loses most of the tasks of some episodes, that none stands out, or that it cannot be known, with
/// the numbers.
pub(crate) fn loss_summary(causes: &[Cause]) -> Value {
    let mut seats: BTreeMap<&str, usize> = BTreeMap::new();
    for seat in causes.iter().filter_map(|cause| cause.seat.as_deref()) {
        *seats.entry(seat).or_default() += 1;
    }
    let unsolved = causes.len() - count_causes(causes, &[CauseKind::Solved]);
    let unknown = count_causes(
        causes,
        &[CauseKind::NeverSolved, CauseKind::DistinctReplies, CauseKind::NotCompared],
    );
    let mut ranked: Vec<(&str, usize)> = seats.iter().map(|(seat, n)| (*seat, *n)).collect();
    sort_by(&mut ranked, |(a, x), (b, y)| y.cmp(x).then(a.cmp(b)));
    let seat = find_bottleneck(&ranked, unsolved - unknown);
    let verdict = match seat {
        _ if unsolved == 0 => "Quality: every task is solved.".to_owned(),
        Some(seat) if 2 * unknown > unsolved => {
            format!("Quality: {seat} is the bottleneck where it can be told.")
        }
        Some(seat) => format!("Quality: {seat} is the bottleneck."),
        None if 2 * unknown > unsolved => format!(
            "Quality: cannot be told, as {unknown} of {unsolved} unsolved episodes have no solved one to compare with."
        ),
        None => "Quality: no agent stands out.".to_owned(),
    };
    let others = [
        ("of tasks that no episode solved", &[CauseKind::NeverSolved][..]),
        ("of tasks whose first replies all differ", &[CauseKind::DistinctReplies]),
        ("after equal replies", &[CauseKind::OtherObservation, CauseKind::EqualTurns]),
        ("not compared", &[CauseKind::NotCompared]),
    ];
    let others = others.map(|(name, kinds)| (name, count_causes(causes, kinds)));
    let others: Vec<(&str, usize)> = others.into_iter().filter(|(_, n)| *n > 0).collect();
    let lost = ranked.iter().map(|(seat, n)| format!("{n} lost by {seat}"));
    let parts: Vec<String> =
        lost.chain(others.iter().map(|(name, n)| format!("{n} {name}"))).collect();
    let numbers =
        format!(" {unsolved} of {} episodes are unsolved: {}.", causes.len(), parts.join(", "));
    let text = if unsolved == 0 { verdict } else { verdict + &numbers };
    object!({
        "episodes": causes.len(), "unsolved": unsolved, "seats": seats, "others": others, "seat": seat, "text": text,
    })
}

/// Returns the seat that loses more episodes than the next one beyond chance, if seats lose at least half of those of which
/// it is known.
fn find_bottleneck<'s>(ranked: &[(&'s str, usize)], comparable: usize) -> Option<&'s str> {
    let (seat, first) = *ranked.first()?;
    let second = ranked.get(1).map_or(0, |(_, n)| *n);
    let named: usize = ranked.iter().map(|(_, n)| n).sum();
    // Two standard deviations of the difference of two counts of a Poisson distribution.
    let apart = (first - second) as f64 > 2.0 * ((first + second) as f64).sqrt();
    (apart && 2 * named >= comparable).then_some(seat)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::report::rows::index::location::RowLocation;

    fn played(n: u32, solved: bool) -> Played {
        let location = RowLocation { stage: 0, step: 1, frame: 0, at: n, n };
        let score = f64::from(solved);
        Played { location, task: 0, score, solved, malformed: None, truncated: None }
    }

    /// Returns turns from their seats, prompts and replies.
    fn turns(of: &[(&str, &str, &str)]) -> Vec<TurnKey> {
        let turn = |(seat, prompt, reply): &(&str, &str, &str)| {
            TurnKey::new((*seat).to_owned(), &[(*prompt).to_owned()], reply)
        };
        of.iter().map(turn).collect()
    }

    #[test]
    fn an_unsolved_episode_diverges_from_the_solved_one_with_which_it_has_most_in_common() {
        let all = [played(0, true), played(1, true), played(2, false), played(3, false)];
        let search = |query| ("t/searcher", "who?", query);
        let turns_of = BTreeMap::from([
            (0, turns(&[search("Peru"), ("t/answerer", "doc", "Lima")])),
            (1, turns(&[search("Lima"), ("t/answerer", "city", "Lima")])),
            (2, turns(&[search("Peru"), ("t/answerer", "doc", "Quito")])),
            (3, turns(&[search("Peru"), ("t/answerer", "another doc", "Lima")])),
        ]);
        let found = of_task(&all, &[0, 1, 2, 3], &turns_of);
        let diverged = Cause::new(CauseKind::Diverged, Some("t/answerer"));
        assert_eq!(
            found,
            [
                (2, (diverged, Some((0, 1)))),
                (3, (Cause::new(CauseKind::OtherObservation, None), Some((0, 1))))
            ]
        );
        // Alone, both unsolved ones diverge from the other solved one at their first reply; all first replies differ then.
        let found = of_task(&all, &[1, 2], &turns_of);
        assert_eq!(found, [(2, (Cause::new(CauseKind::DistinctReplies, None), Some((1, 0))))]);
        let found = of_task(&all, &[1, 2, 3], &turns_of);
        assert_eq!(
            found[0],
            (2, (Cause::new(CauseKind::Diverged, Some("t/searcher")), Some((1, 0))))
        );
        assert_eq!(
            of_task(&all, &[2], &turns_of),
            [(2, (Cause::new(CauseKind::NeverSolved, None), None))]
        );
        let unread = of_task(&all, &[0, 2], &BTreeMap::new());
        assert_eq!(unread[0].1.0, Cause::new(CauseKind::NotCompared, None));
        let malformed = Played { malformed: Some("t/searcher".into()), ..played(2, false) };
        let found = of_task(&[all[0].clone(), malformed], &[0, 1], &turns_of);
        assert_eq!(found[0].1.0, Cause::new(CauseKind::Malformed, Some("t/searcher")));
        let same = BTreeMap::from([(0, turns_of[&0].clone()), (2, turns_of[&0].clone())]);
        assert_eq!(of_task(&all, &[0, 2], &same)[0].1.0, Cause::new(CauseKind::EqualTurns, None));
    }

    #[test]
    fn a_seat_is_the_bottleneck_only_beyond_chance() {
        let of = |counts: &[(CauseKind, Option<&str>, usize)]| {
            let causes =
                counts.iter().flat_map(|(kind, seat, n)| vec![Cause::new(*kind, *seat); *n]);
            loss_summary(&causes.collect::<Vec<_>>())
        };
        let near = of(&[
            (CauseKind::Diverged, Some("s/a"), 9),
            (CauseKind::Diverged, Some("s/b"), 8),
            (CauseKind::Solved, None, 100),
        ]);
        assert_eq!((&near["episodes"], &near["unsolved"]), (&json!(117), &json!(17)));
        assert_eq!(
            near["text"],
            "Quality: no agent stands out. 17 of 117 episodes are unsolved: 9 lost by s/a, 8 lost by s/b."
        );
        let far = of(&[
            (CauseKind::Diverged, Some("s/a"), 28),
            (CauseKind::Malformed, Some("s/a"), 3),
            (CauseKind::Diverged, Some("s/b"), 10),
        ]);
        assert_eq!(
            (&far["seats"], &far["seat"]),
            (&json!({ "s/a": 31, "s/b": 10 }), &json!("s/a"))
        );
        assert_eq!(
            far["text"],
            "Quality: s/a is the bottleneck. 41 of 41 episodes are unsolved: 31 lost by s/a, 10 lost by s/b."
        );
        let never =
            of(&[(CauseKind::Diverged, Some("s/a"), 40), (CauseKind::NeverSolved, None, 200)]);
        assert_eq!(
            never["text"],
            "Quality: s/a is the bottleneck where it can be told. 240 of 240 episodes are unsolved: 40 lost by s/a, \
             200 of tasks that no episode solved."
        );
        assert_eq!(never["others"], json!([["of tasks that no episode solved", 200]]));
        let both = [
            (CauseKind::Diverged, Some("s/a"), 4),
            (CauseKind::Diverged, Some("s/b"), 4),
            (CauseKind::NeverSolved, None, 20),
        ];
        assert_eq!(
            of(&both)["text"],
            "Quality: cannot be told, as 20 of 28 unsolved episodes have no solved one to compare with. \
             28 of 28 episodes are unsolved: 4 lost by s/a, 4 lost by s/b, 20 of tasks that no episode solved."
        );
        assert_eq!(of(&[(CauseKind::Solved, None, 3)])["text"], "Quality: every task is solved.");
    }
}

//! The change of the mean score from one step to the next, as a sum of exact terms.
//!
//! With the sources of the tasks, their shares w of the episodes and their mean scores m, the change is
//! `Σ (w' − w) (m − mean) + Σ w' (m' − m)`: other shares of the sources, and other scores of equal sources. A source that
//! is new counts with the mean of the step before as m, so that its own term is `w' (m' − mean)`. The second sum is split
//! by the cause of each episode: with any constant c, `m = c − Σ (loss of the episodes of a cause) / n`, where the
//! loss of an episode is c minus its score. Here c is the mean score of solved episodes.

mod sentence;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use self::sentence::{answered, cause, parts, told};
use crate::compact::collected;
use crate::compact::sort;
use crate::report::analyses::divergence::{Cause, Kind};
use maverl::eval::student;

/// An episode, as far as the change depends on it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct One {
    pub(crate) n: u32,
    pub(crate) task: u32,
    pub(crate) source: String,
    pub(crate) score: f64,
    pub(crate) cause: Cause,
    /// Number of the solved episode that it leaves.
    pub(crate) beside: Option<u32>,
}

/// Number of episodes, and their mean score.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Part {
    pub(crate) episodes: usize,
    pub(crate) score: f64,
}

/// A source of tasks in both steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Source {
    pub(crate) source: String,
    pub(crate) now: Part,
    pub(crate) before: Part,
    /// Number of its tasks now and before.
    pub(crate) tasks: [usize; 2],
    /// Part of the change that comes from its other share of the episodes.
    pub(crate) mix: f64,
    /// Part of the change that comes from its other score.
    pub(crate) within: f64,
}

/// The episodes of a cause, of sources that both steps have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Term {
    pub(crate) cause: Cause,
    pub(crate) text: String,
    /// Number of episodes now and before.
    pub(crate) episodes: [usize; 2],
    /// Number of those before, with the shares that the sources have now.
    pub(crate) weighted: f64,
    /// Part of the change that comes from them.
    pub(crate) by: f64,
    /// An episode of this step, and the solved one that it leaves.
    pub(crate) example: Option<(u32, Option<u32>)>,
}

/// The change of the mean score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Change {
    pub(crate) now: f64,
    pub(crate) before: f64,
    pub(crate) by: f64,
    /// 95 % interval of the change with other tasks of the same kind; `None` for a step of one task.
    pub(crate) interval: Option<[f64; 2]>,
    /// Sum over the sources: other shares.
    pub(crate) mix: f64,
    /// Sum over sources that the step before did not have.
    pub(crate) new: f64,
    pub(crate) sources: Vec<Source>,
    /// Terms of sources that both steps have, the largest first.
    pub(crate) terms: Vec<Term>,
    /// Clause with the cause; `None` within chance, or without a change to two decimals.
    pub(crate) cause: Option<String>,
    /// Sentence with the change and its cause.
    pub(crate) answer: String,
    /// Sentence with the parts of the change; empty without a cause.
    pub(crate) parts: String,
    /// Sentences on it, the largest part first.
    pub(crate) text: Vec<String>,
}

/// Task and score of an episode.
pub(crate) type Scored = (u32, f64);

impl Change {
    /// True if other tasks of the same kinds are reason enough for the change.
    pub(crate) fn is_chance(&self) -> bool {
        self.interval.is_some_and(has_zero)
    }

    /// Returns a part as far as it goes the way of the change.
    fn along(&self, part: f64) -> f64 {
        if self.by < 0.0 { -part } else { part }
    }

    /// Returns the part of the change from other scores of equal sources.
    fn within(&self) -> f64 {
        self.terms.iter().map(|term| term.by).sum()
    }

    /// Returns the largest term, unless another mix of tasks or new sources explain more than all terms.
    pub(crate) fn leading(&self) -> Option<&Term> {
        let most =
            self.terms.iter().max_by(|a, b| self.along(a.by).total_cmp(&self.along(b.by)))?;
        let others = self.along(self.mix).max(self.along(self.new));
        (self.along(self.within()) >= others && self.along(most.by) > 0.0).then_some(most)
    }

    /// Adds evidence to the cause. `named` is the number of the step before.
    pub(crate) fn add_evidence(&mut self, evidence: &str, named: u32) {
        if let Some(cause) = &mut self.cause {
            cause.push_str(evidence);
        }
        self.answer = answered(self, named);
    }
}

/// Returns true if an interval has 0.
pub(crate) fn has_zero([low, high]: [f64; 2]) -> bool {
    low <= 0.0 && high >= 0.0
}

/// Returns the mean of scores; 0 without any.
fn mean<'o>(of: impl Iterator<Item = &'o One>) -> Part {
    let (episodes, sum) = of.fold((0, 0.0), |(n, sum), one| (n + 1, sum + one.score));
    Part { episodes, score: sum / f64::max(episodes as f64, 1.0) }
}

/// Returns the variance of the mean score over tasks, of which all episodes of a task are drawn together, and the
/// degrees of freedom.
fn variance(of: &[Scored]) -> Option<(f64, f64)> {
    let mean = of.iter().map(|(_, score)| score).sum::<f64>() / of.len() as f64;
    let mut tasks: BTreeMap<u32, f64> = BTreeMap::new();
    for (task, score) in of {
        *tasks.entry(*task).or_default() += score - mean;
    }
    let free = tasks.len().checked_sub(1).filter(|free| *free > 0)? as f64;
    let squares: f64 = tasks.values().map(|sum| sum * sum).sum();
    Some((squares * (free + 1.0) / free / (of.len() as f64).powi(2), free))
}

/// Returns the 95 % interval of a change of the mean score by Welch's t; `None` for a step of one task.
pub(crate) fn interval(now: &[Scored], before: &[Scored], by: f64) -> Option<[f64; 2]> {
    let ((a, a_free), (b, b_free)) = (variance(now)?, variance(before)?);
    let both = a + b;
    if both <= 0.0 {
        return Some([by, by]);
    }
    let free = both * both / (a * a / a_free + b * b / b_free);
    let half = student((free as usize).max(1)) * both.sqrt();
    half.is_finite().then_some([by - half, by + half])
}

/// Returns the change from the episodes of a step to those of a later one; `None` if one has no episode.
pub(crate) fn change(now: &[One], before: &[One], named: u32) -> Option<Change> {
    if now.is_empty() || before.is_empty() {
        return None;
    }
    let (all, old) = (mean(now.iter()), mean(before.iter()));
    let names: BTreeSet<&str> = collected(now.iter().chain(before).map(|one| one.source.as_str()));
    let share = |part: Part, whole: Part| part.episodes as f64 / whole.episodes as f64;
    let of_source = |name: &&str| {
        let part = |of: &[One]| mean(of.iter().filter(|one| one.source == **name));
        let (is, was) = (part(now), part(before));
        let usual = if was.episodes > 0 { was.score } else { old.score };
        let tasks = |of: &[One]| {
            let its = of.iter().filter(|one| one.source == **name).map(|one| one.task);
            collected::<BTreeSet<u32>, u32>(its).len()
        };
        Source {
            source: (*name).to_owned(),
            now: is,
            before: was,
            tasks: [tasks(now), tasks(before)],
            mix: (share(is, all) - share(was, old)) * (usual - old.score),
            within: share(is, all) * (is.score - usual),
        }
    };
    let sources: Vec<Source> = names.iter().map(of_source).collect();
    let new = sources.iter().filter(|of| of.before.episodes == 0).map(|of| of.within).sum();
    let by = all.score - old.score;
    let scored = |of: &[One]| of.iter().map(|one| (one.task, one.score)).collect::<Vec<Scored>>();
    let mut change = Change {
        now: all.score,
        before: old.score,
        by,
        interval: interval(&scored(now), &scored(before), by),
        mix: sources.iter().map(|of| of.mix).sum(),
        new,
        terms: terms(now, before, &sources),
        sources,
        cause: None,
        answer: String::new(),
        parts: String::new(),
        text: Vec::new(),
    };
    change.cause = cause(&change, named);
    change.answer = answered(&change, named);
    change.parts = parts(&change);
    change.text = told(&change, named);
    Some(change)
}

/// Splits what sources that both steps have add to the change by the cause of each episode.
fn terms(now: &[One], before: &[One], sources: &[Source]) -> Vec<Term> {
    let solved = mean(now.iter().chain(before).filter(|one| one.cause.kind == Kind::Solved));
    let largest = || now.iter().chain(before).map(|one| one.score).fold(f64::MIN, f64::max);
    let full = if solved.episodes > 0 { solved.score } else { largest() };
    let both = sources.iter().filter(|of| of.now.episodes > 0 && of.before.episodes > 0);
    let both: BTreeMap<&str, &Source> = collected(both.map(|of| (of.source.as_str(), of)));
    let mut sums: BTreeMap<&Cause, ([usize; 2], f64, f64)> = BTreeMap::new();
    for (side, one) in now.iter().map(|one| (0, one)).chain(before.iter().map(|one| (1, one))) {
        let Some(source) = both.get(one.source.as_str()) else { continue };
        let loss = (full - one.score) / now.len() as f64;
        let (episodes, weighted, by) = sums.entry(&one.cause).or_default();
        episodes[side] += 1;
        // Episodes of the step before count as many as those of this step.
        let weight = source.now.episodes as f64 / source.before.episodes as f64;
        *weighted += if side == 0 { 0.0 } else { weight };
        *by += if side == 0 { -loss } else { loss * weight };
    }
    let example = |cause: &Cause| {
        let its: Vec<&One> = now.iter().filter(|one| one.cause == *cause).collect();
        let of_task = |task: u32| its.iter().filter(|one| one.task == task).count();
        // The first of the task that has most of them.
        let of = its.iter().max_by_key(|one| (of_task(one.task), std::cmp::Reverse(one.n)))?;
        Some((of.n, of.beside))
    };
    let term = |(cause, (episodes, weighted, by)): (&Cause, ([usize; 2], f64, f64))| Term {
        cause: cause.clone(),
        text: cause.text(),
        episodes,
        weighted,
        by,
        example: example(cause),
    };
    let mut terms: Vec<Term> = sums.into_iter().map(term).collect();
    sort(&mut terms, |a, b| b.by.abs().total_cmp(&a.by.abs()));
    terms
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::sentence::signed;
    use super::*;

    /// Returns an episode of a task of a source.
    fn one(task: u32, source: &str, score: f64, kind: Kind, seat: Option<&str>) -> One {
        let (n, source) = (task, source.to_owned());
        One { n, task, source, score, cause: Cause::new(kind, seat), beside: None }
    }

    /// Returns episodes of tasks from `first` on, of which all before `solved` are solved.
    fn episodes(first: u32, n: u32, source: &str, solved: u32, kind: Kind) -> Vec<One> {
        let of = |i: u32| match i < solved {
            true => one(first + i, source, 1.0, Kind::Solved, None),
            false => one(first + i, source, 0.0, kind, Some("t/a")),
        };
        (0..n).map(of).collect()
    }

    /// Asserts that the terms add up to the change.
    fn adds_up(change: &Change) {
        let terms: f64 = change.terms.iter().map(|term| term.by).sum();
        let sum = change.mix + change.new + terms;
        let size = change.now.abs().max(change.before.abs()).max(1.0);
        assert!((sum - change.by).abs() <= 1e-9 * size, "{sum}: {change:?}");
        assert!((change.now - change.before - change.by).abs() <= 1e-12 * size);
    }

    #[test]
    fn equal_kinds_answered_worse_are_told_with_the_seat_that_lost_most() {
        let before = [episodes(0, 40, "a", 36, Kind::Left), episodes(40, 40, "b", 36, Kind::Left)];
        let mut now =
            [episodes(100, 20, "a", 16, Kind::Left), episodes(120, 60, "b", 30, Kind::Left)]
                .concat();
        now[79].cause = Cause::new(Kind::Never, None);
        let change = change(&now, &before.concat(), 7).unwrap();
        adds_up(&change);
        assert!((change.by + 0.325).abs() < 1e-12 && change.mix.abs() < 1e-12);
        assert_eq!(change.terms[0].cause, Cause::new(Kind::Left, Some("t/a")));
        assert_eq!(change.terms[0].episodes, [33, 8]);
        assert_eq!(
            change.text[0],
            "Equal kinds of tasks were answered worse: −0.325 of −0.325 (“b” 0.500, 0.900 in step 7; “a” 0.800, 0.900 in step 7)."
        );
        let lost = "comes from 33 episodes (8 in step 7): unsolved, lost by a reply of t/a.";
        assert_eq!(change.text[1], format!("Of this, {} {lost}", signed(change.terms[0].by)));
        let [low, high] = change.interval.unwrap();
        assert!(low < change.by && change.by < high && high < 0.0);
        assert_eq!(
            change.answer,
            "The score fell by 0.33 from step 7: t/a lost 33 of 80 episodes (8 of 80 in step 7), mostly of “b”."
        );
        assert_eq!(
            change.parts,
            "In parts: −0.31 lost by t/a, −0.01 tasks that no episode solved, −0.01 rounding."
        );
        // A source has 20 episodes of 80 instead of 40, and 60 instead of 40; before, 4 of each are unsolved.
        assert_eq!((change.terms[0].weighted, change.sources[1].tasks), (8.0, [60, 40]));
    }

    #[test]
    fn harder_kinds_of_tasks_and_new_ones_are_told_apart() {
        let of = |easy: u32, hard: u32, first: u32| {
            [
                episodes(first, easy, "easy", easy, Kind::Left),
                episodes(first + 500, hard, "hard", 0, Kind::Never),
            ]
            .concat()
        };
        let mixed = change(&of(20, 80, 1000), &of(80, 20, 0), 1).unwrap();
        adds_up(&mixed);
        assert!((mixed.mix + 0.6).abs() < 1e-12 && mixed.new == 0.0);
        assert_eq!(mixed.text[0], "The tasks drawn were of harder kinds: −0.600 of −0.600.");
        let shares = "has 80.0 % of the episodes, 20.0 % in step 1, where it scored 0.000.";
        assert!(mixed.text[1].ends_with(shares), "{:?}", mixed.text);
        let start = "The score fell by 0.60 from step 1: tasks of harder kinds were drawn; “hard” ";
        assert_eq!(mixed.answer, format!("{start}{shares}"));
        assert_eq!(mixed.parts, "In parts: −0.60 another mix of tasks.");
        let new = change(&of(50, 50, 1000), &of(80, 0, 0), 1).unwrap();
        adds_up(&new);
        assert_eq!(
            new.text,
            [
                "Tasks of new sources: −0.500 of −0.500.",
                "New are 50 episodes of “hard”; they score 0.000."
            ]
        );
        let start =
            "The score fell by 0.50 from step 1: new sources of tasks: 50 episodes of “hard”, ";
        assert_eq!(new.answer, format!("{start}which score 0.000."));
        let gone = change(&of(0, 40, 1000), &of(20, 20, 0), 1).unwrap();
        adds_up(&gone);
        assert_eq!((gone.mix, gone.new, gone.sources[0].tasks), (-0.5, 0.0, [0, 20]));
    }

    #[test]
    fn a_change_within_its_interval_is_chance() {
        let (now, before) =
            (episodes(50, 10, "a", 5, Kind::Left), episodes(0, 10, "a", 6, Kind::Left));
        let found = change(&now, &before, 1).unwrap();
        adds_up(&found);
        assert!(
            found.text.len() == 1 && found.text[0].starts_with("Other tasks of the same kinds are"),
            "{found:?}"
        );
        assert_eq!(found.answer, "The score fell by 0.10 from step 1, which is within chance.");
        assert_eq!((found.cause.as_deref(), found.parts.as_str()), (None, ""));
        // All episodes of a task are drawn together: 10 of one task say as much as one.
        let same =
            |of: &[One]| of.iter().map(|one| One { task: 0, ..one.clone() }).collect::<Vec<_>>();
        assert_eq!(change(&same(&now), &before, 1).unwrap().interval, None);
        let doubled = |of: &[One]| [of, of].concat();
        let twice = change(&doubled(&now), &doubled(&before), 1).unwrap();
        assert_eq!(twice.interval, found.interval);
        // Welch's interval of two means of 10 values, 17.99 degrees of freedom, of which 17 are whole: t = 2.109816.
        let half = 2.109_816 * f64::sqrt(0.25 / 9.0 + 0.24 / 9.0);
        let [low, high] = found.interval.unwrap();
        assert!((low - (-0.1 - half)).abs() < 1e-9 && (high - (-0.1 + half)).abs() < 1e-9);
    }

    #[test]
    fn terms_of_any_scores_add_up_and_a_first_step_has_none() {
        assert_eq!(change(&episodes(0, 4, "a", 2, Kind::Left), &[], 0), None);
        assert_eq!(change(&[], &episodes(0, 4, "a", 2, Kind::Left), 0), None);
        let kinds = [Kind::Solved, Kind::Malformed, Kind::Left, Kind::Never, Kind::Unread];
        let mut state = 1_u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for round in 0..200 {
            let scale = [1.0, 1e-9, 1e9, -3.0, 0.0][round % 5];
            let mut step = |n: u64| -> Vec<One> {
                let mut any = || {
                    let source = ["a", "b", "c", ""][draw(4) as usize];
                    let score = scale * (draw(9) as f64 - 4.0);
                    one(draw(5) as u32, source, score, kinds[draw(5) as usize], Some("x/y"))
                };
                (0..n).map(|_| any()).collect()
            };
            let (now, before) = (step(1 + round as u64 % 7), step(9));
            let found = change(&now, &before, 3).unwrap();
            adds_up(&found);
            assert!(!found.text.is_empty());
            assert!(found.interval.is_none_or(|[low, high]| low <= high));
        }
    }
}

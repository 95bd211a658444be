//! The change of the mean score from one step to the next, as a sum of exact terms.
//!
//! With the sources of the tasks, their shares w of the episodes and their mean scores m, the change is
//! `Σ (w' − w) (m − mean) + Σ w' (m' − m)`: other shares of the sources, and other scores of equal sources. A source that
//! is new counts with the mean of the step before as m, so that its own term is `w' (m' − mean)`. The second sum is split
//! by the cause of each episode: with any constant c, `m = c − Σ (loss of the episodes of a cause) / n`, where the
//! loss of an episode is c minus its score. Here c is the mean score of solved episodes.

mod sentence;
mod terms;

use std::collections::BTreeSet;

use self::sentence::{answer_change, explain_change, name_cause, named_parts};
pub(crate) use self::terms::{ScoreChange, ScoredEpisode, has_zero, score_interval};
use self::terms::{ScoredShare, SourceChange, change_terms, mean_score};
use crate::compact::collect_into;

/// Returns the change from the episodes of a step to those of a later one; `None` if one has no episode.
pub(crate) fn score_change(
    now: &[ScoredEpisode],
    before: &[ScoredEpisode],
    named: u32,
) -> Option<ScoreChange> {
    if now.is_empty() || before.is_empty() {
        return None;
    }
    let (all, old) = (mean_score(now.iter()), mean_score(before.iter()));
    let names: BTreeSet<&str> =
        collect_into(now.iter().chain(before).map(|one| one.source.as_str()));
    let sources: Vec<SourceChange> =
        names.into_iter().map(|name| source_change(name, [now, before], [all, old])).collect();
    let new = sources.iter().filter(|of| of.before.episodes == 0).map(|of| of.within).sum();
    let by = all.score - old.score;
    let [new_scores, old_scores] =
        [now, before].map(|of| of.iter().map(|one| (one.task, one.score)).collect::<Vec<_>>());
    let mut change = ScoreChange {
        now: all.score,
        before: old.score,
        by,
        interval: score_interval(&new_scores, &old_scores, by),
        mix: sources.iter().map(|of| of.mix).sum(),
        new,
        terms: change_terms(now, before, &sources),
        sources,
        cause: None,
        answer: String::new(),
        parts: String::new(),
        text: Vec::new(),
    };
    change.cause = name_cause(&change, named);
    change.answer = answer_change(&change, named);
    change.parts = named_parts(&change);
    change.text = explain_change(&change, named);
    Some(change)
}

/// Returns what a source adds to a change, from the episodes of both steps and their means.
fn source_change(
    name: &str,
    [now, before]: [&[ScoredEpisode]; 2],
    [all, old]: [ScoredShare; 2],
) -> SourceChange {
    let [is, was] = [now, before].map(|of| mean_score(of.iter().filter(|one| one.source == name)));
    let [is_share, was_share] =
        [(is, all), (was, old)].map(|(part, whole)| part.episodes as f64 / whole.episodes as f64);
    let usual = if was.episodes > 0 { was.score } else { old.score };
    SourceChange {
        source: name.to_owned(),
        now: is,
        before: was,
        tasks: [count_tasks(now, name), count_tasks(before, name)],
        mix: (is_share - was_share) * (usual - old.score),
        within: is_share * (is.score - usual),
    }
}

/// Returns the number of tasks of a source.
fn count_tasks(episodes: &[ScoredEpisode], source: &str) -> usize {
    let its = episodes.iter().filter(|one| one.source == source).map(|one| one.task);
    collect_into::<BTreeSet<u32>, u32>(its).len()
}

/// Adds evidence to the cause of a change. `named` is the number of the step before.
pub(crate) fn add_evidence(change: &mut ScoreChange, evidence: &str, named: u32) {
    if let Some(cause) = &mut change.cause {
        cause.push_str(evidence);
    }
    change.answer = answer_change(change, named);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::sentence::signed_number;
    use super::*;
    use crate::report::analyses::divergence::{Cause, CauseKind};

    /// Returns an episode of a task of a source.
    fn one(
        task: u32,
        source: &str,
        score: f64,
        kind: CauseKind,
        seat: Option<&str>,
    ) -> ScoredEpisode {
        let (n, source) = (task, source.to_owned());
        ScoredEpisode { n, task, source, score, cause: Cause::new(kind, seat), solved: None }
    }

    /// Returns episodes of tasks from `first` on, of which all before `solved` are solved.
    fn episodes(
        first: u32,
        n: u32,
        source: &str,
        solved: u32,
        kind: CauseKind,
    ) -> Vec<ScoredEpisode> {
        let of = |i: u32| {
            if i < solved {
                one(first + i, source, 1.0, CauseKind::Solved, None)
            } else {
                one(first + i, source, 0.0, kind, Some("t/a"))
            }
        };
        (0..n).map(of).collect()
    }

    /// Asserts that the terms add up to the change.
    fn adds_up(change: &ScoreChange) {
        let terms: f64 = change.terms.iter().map(|term| term.by).sum();
        let sum = change.mix + change.new + terms;
        let size = change.now.abs().max(change.before.abs()).max(1.0);
        assert!((sum - change.by).abs() <= 1e-9 * size, "{sum}: {change:?}");
        assert!((change.now - change.before - change.by).abs() <= 1e-12 * size);
    }

    #[test]
    fn equal_kinds_answered_worse_are_told_with_the_seat_that_lost_most() {
        let before = [
            episodes(0, 40, "a", 36, CauseKind::Diverged),
            episodes(40, 40, "b", 36, CauseKind::Diverged),
        ];
        let mut now = [
            episodes(100, 20, "a", 16, CauseKind::Diverged),
            episodes(120, 60, "b", 30, CauseKind::Diverged),
        ]
        .concat();
        now[79].cause = Cause::new(CauseKind::NeverSolved, None);
        let change = score_change(&now, &before.concat(), 7).unwrap();
        adds_up(&change);
        assert!((change.by + 0.325).abs() < 1e-12 && change.mix.abs() < 1e-12);
        assert_eq!(change.terms[0].cause, Cause::new(CauseKind::Diverged, Some("t/a")));
        assert_eq!(change.terms[0].episodes, [33, 8]);
        assert_eq!(
            change.text[0],
            "Equal kinds of tasks were answered worse: −0.325 of −0.325 (“b” 0.500, 0.900 in step 7; “a” 0.800, 0.900 in step 7)."
        );
        let lost = "comes from 33 episodes (8 in step 7): unsolved, lost by a reply of t/a.";
        assert_eq!(
            change.text[1],
            format!("Of this, {} {lost}", signed_number(change.terms[0].by))
        );
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
                episodes(first, easy, "easy", easy, CauseKind::Diverged),
                episodes(first + 500, hard, "hard", 0, CauseKind::NeverSolved),
            ]
            .concat()
        };
        let mixed = score_change(&of(20, 80, 1000), &of(80, 20, 0), 1).unwrap();
        adds_up(&mixed);
        assert!((mixed.mix + 0.6).abs() < 1e-12 && mixed.new == 0.0);
        assert_eq!(mixed.text[0], "The tasks drawn were of harder kinds: −0.600 of −0.600.");
        let shares = "has 80.0 % of the episodes, 20.0 % in step 1, where it scored 0.000.";
        assert!(mixed.text[1].ends_with(shares), "{:?}", mixed.text);
        let start = "The score fell by 0.60 from step 1: tasks of harder kinds were drawn; “hard” ";
        assert_eq!(mixed.answer, format!("{start}{shares}"));
        assert_eq!(mixed.parts, "In parts: −0.60 another mix of tasks.");
        let new = score_change(&of(50, 50, 1000), &of(80, 0, 0), 1).unwrap();
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
        let gone = score_change(&of(0, 40, 1000), &of(20, 20, 0), 1).unwrap();
        adds_up(&gone);
        assert_eq!((gone.mix, gone.new, gone.sources[0].tasks), (-0.5, 0.0, [0, 20]));
    }

    #[test]
    fn a_change_within_its_interval_is_chance() {
        let (now, before) = (
            episodes(50, 10, "a", 5, CauseKind::Diverged),
            episodes(0, 10, "a", 6, CauseKind::Diverged),
        );
        let found = score_change(&now, &before, 1).unwrap();
        adds_up(&found);
        assert!(
            found.text.len() == 1 && found.text[0].starts_with("Other tasks of the same kinds are"),
            "{found:?}"
        );
        assert_eq!(found.answer, "The score fell by 0.10 from step 1, which is within chance.");
        assert_eq!((found.cause.as_deref(), found.parts.as_str()), (None, ""));
        // All episodes of a task are drawn together: 10 of one task say as much as one.
        let same = |of: &[ScoredEpisode]| {
            of.iter().map(|one| ScoredEpisode { task: 0, ..one.clone() }).collect::<Vec<_>>()
        };
        assert_eq!(score_change(&same(&now), &before, 1).unwrap().interval, None);
        let doubled = |of: &[ScoredEpisode]| [of, of].concat();
        let twice = score_change(&doubled(&now), &doubled(&before), 1).unwrap();
        assert_eq!(twice.interval, found.interval);
        // Welch's interval of two means of 10 values, 17.99 degrees of freedom, of which 17 are whole: t = 2.109816.
        let half = 2.109_816 * f64::sqrt(0.25 / 9.0 + 0.24 / 9.0);
        let [low, high] = found.interval.unwrap();
        assert!((low - (-0.1 - half)).abs() < 1e-9 && (high - (-0.1 + half)).abs() < 1e-9);
    }

    #[test]
    fn terms_of_any_scores_add_up_and_a_first_step_has_none() {
        assert_eq!(score_change(&episodes(0, 4, "a", 2, CauseKind::Diverged), &[], 0), None);
        assert_eq!(score_change(&[], &episodes(0, 4, "a", 2, CauseKind::Diverged), 0), None);
        let kinds = [
            CauseKind::Solved,
            CauseKind::Malformed,
            CauseKind::Diverged,
            CauseKind::NeverSolved,
            CauseKind::NotCompared,
        ];
        let mut state = 1_u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for round in 0..200 {
            let scale = [1.0, 1e-9, 1e9, -3.0, 0.0][round % 5];
            let mut step = |n: u64| -> Vec<ScoredEpisode> {
                let mut any = || {
                    let source = ["a", "b", "c", ""][draw(4) as usize];
                    let score = scale * (draw(9) as f64 - 4.0);
                    one(draw(5) as u32, source, score, kinds[draw(5) as usize], Some("x/y"))
                };
                (0..n).map(|_| any()).collect()
            };
            let (now, before) = (step(1 + round as u64 % 7), step(9));
            let found = score_change(&now, &before, 3).unwrap();
            adds_up(&found);
            assert!(!found.text.is_empty());
            assert!(found.interval.is_none_or(|[low, high]| low <= high));
        }
    }
}

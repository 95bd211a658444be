//! Comparison of teams on the same questions, at equal numbers of sampled tokens.
//!
//! The unit is the task, as everywhere in [`super`]. All compared systems have played the same tasks. A difference is
//! the mean of the differences per task, and its interval keeps the pairs: the difficulty that a task has for all systems
//! cancels. The interval is a percentile bootstrap over tasks. With few tasks, whose resamples vary too little, it is that
//! of Student's t.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::interval::{Interval, are_equal, over_runs, share};
use crate::IntoMap;
use crate::ballot::{Ballot, Ties};
use crate::rng::SplitMix64;
use crate::table::{Table, paragraphs};
use crate::trajectory::Episode;

/// Number of bootstrap resamples of an interval.
const RESAMPLES: usize = 10_000;
/// Seed of the resamples: equal comparisons have equal intervals.
const SEED: u64 = 20_260_211;

/// Number of tasks from which the bootstrap has its coverage: with 3, 5 and 10 tasks it contains the truth in 55, 71 and
/// 92 of 100 cases.
const ENOUGH: usize = 20;

/// Returns the mean of differences, one per task, with its 95 % interval.
///
/// ```text
/// n ≥ 20    percentiles of the means of tasks drawn with replacement
/// n < 20    d̄ ± t · s / √n      t: quantile of Student's distribution, n - 1 degrees of freedom
/// ```
///
/// The spread is unknown if there is one task alone or if all differences are equal; so is the interval then. Of 20 tasks, one
/// in 20 of which differs in truth, all are equal in 36 of 100 cases. Without a task, everything is NaN.
pub fn paired_interval(differences: &[f64]) -> Interval {
    let n = differences.len();
    if n < ENOUGH || are_equal(differences) {
        return over_runs(differences).unwrap_or(Interval::unknown_interval(f64::NAN));
    }
    let mut draw = SplitMix64::new(SEED);
    let mut means = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        means.push((0..n).map(|_| differences[draw.index(n)]).sum::<f64>() / n as f64);
    }
    means.sort_by(f64::total_cmp);
    let (low, high) = (means[RESAMPLES / 40], means[RESAMPLES - 1 - RESAMPLES / 40]);
    Interval { mean: differences.iter().sum::<f64>() / n as f64, low, high }
}

/// A compared system: its name and its outcome per task.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedSystem {
    /// Name in the table.
    pub name: String,
    /// Episodes per task.
    samples: u32,
    /// Outcome by source and id; tasks without a scored episode are left out.
    tasks: BTreeMap<(String, String), TaskOutcome>,
    /// Number of turns without token counts: those of endpoints.
    uncounted: u64,
}

/// Outcome of one task.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct TaskOutcome {
    /// Number of results that `solved` is the mean of.
    results: f64,
    solved: f64,
    reward: f64,
    sampled: f64,
    read: f64,
}

impl ComparedSystem {
    /// Returns a system whose episodes count separately: the outcome of a task is the mean of its scored episodes.
    pub fn mean(name: impl Into<String>, samples: u32, episodes: &[Episode]) -> Self {
        Self::new(name.into(), samples, episodes, |scored| {
            TaskOutcome::sum_of(scored).over(scored.len() as f64)
        })
    }

    /// Returns a system that votes: the episodes of a task are samples, and the most frequent answer is the answer. Of
    /// several leading answers, the first in order of the samples wins. The system's tokens are those of all samples.
    pub fn vote(name: impl Into<String>, samples: u32, episodes: &[Episode]) -> Self {
        Self::new(name.into(), samples, episodes, |scored| {
            let answers = scored.iter().filter_map(|episode| episode.answer.as_deref());
            let winner = answers.collect::<Ballot>().winner(Ties::First, 0);
            // A sample without an answer is scored as such. The score is that of the first sample with the winning
            // answer.
            let chosen = scored.iter().find(|episode| episode.answer == winner).or(scored.first());
            let spent = TaskOutcome::sum_of(scored);
            let went = TaskOutcome::sum_of(chosen.map_or(&[][..], std::slice::from_ref));
            TaskOutcome { sampled: spent.sampled, read: spent.read, ..went }
        })
    }

    fn new(
        name: String,
        samples: u32,
        episodes: &[Episode],
        went: impl Fn(&[&Episode]) -> TaskOutcome,
    ) -> Self {
        let mut scored: BTreeMap<(String, String), Vec<&Episode>> = BTreeMap::new();
        for episode in episodes.iter().filter(|episode| episode.score().is_some()) {
            let key = (episode.task.source.clone(), episode.task.id.clone());
            scored.entry(key).or_default().push(episode);
        }
        let turns = scored.values().flatten().flat_map(|episode| &episode.turns);
        Self {
            name,
            samples,
            uncounted: turns.filter(|turn| turn.tokens.is_none()).count() as u64,
            tasks: scored.into_iter().map(|(key, episodes)| (key, went(&episodes))).into_map(),
        }
    }

    /// Returns sampled tokens per question: the mean over tasks.
    pub fn sampled_tokens(&self) -> f64 {
        self.tasks.values().map(|went| went.sampled).sum::<f64>() / self.tasks.len().max(1) as f64
    }
}

impl TaskOutcome {
    /// Returns the sums over some episodes.
    fn sum_of(episodes: &[&Episode]) -> Self {
        let mut sum = Self { results: episodes.len() as f64, ..Self::default() };
        for episode in episodes {
            if let Some(score) = episode.score() {
                sum.solved += f64::from(score.solved);
                sum.reward += score.reward;
            }
            for tokens in episode.turns.iter().filter_map(|turn| turn.tokens.as_ref()) {
                sum.sampled += tokens.completion.len() as f64;
                sum.read += tokens.prompt.len() as f64;
            }
        }
        sum
    }

    fn over(self, n: f64) -> Self {
        let Self { results, solved, reward, sampled, read } = self;
        let [solved, reward, sampled, read] = [solved, reward, sampled, read].map(|sum| sum / n);
        Self { results, solved, reward, sampled, read }
    }
}

/// Results of all systems on the same tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Split that was evaluated.
    pub split: String,
    /// Number of tasks for which every system has a scored episode; only these are compared.
    pub tasks: u64,
    /// Number of tasks for which some system has no scored episode.
    pub left_out: u64,
    /// Systems in the given order. The others are compared with the first.
    pub sides: Vec<Side>,
}

/// Results of one system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Side {
    /// Name of the system.
    pub name: String,
    /// Episodes per task.
    pub samples: u32,
    /// Share of solved tasks.
    pub solved: Interval,
    /// Mean reward of the score.
    pub score_mean: f64,
    /// Solved share of the first system minus that of this one: the mean of the differences per task. `None` for the
    /// first itself.
    pub first_ahead: Option<Interval>,
    /// Sampled tokens per question, on average.
    pub sampled_tokens: f64,
    /// Prompt tokens per question, on average.
    pub prompt_tokens: f64,
    /// Number of turns without token counts (those of endpoints), which are in neither.
    pub uncounted_turns: u64,
}

impl Side {
    /// Returns the results of a system on some tasks, compared with no other; `None` without a task.
    fn of(system: &ComparedSystem, keys: &[&(String, String)]) -> Option<Self> {
        let went: Vec<TaskOutcome> = keys.iter().map(|key| system.tasks[*key]).collect();
        let solved: Vec<f64> = went.iter().map(|went| went.solved).collect();
        let results: f64 = went.iter().map(|went| went.results).sum();
        let n = went.len() as f64;
        Some(Self {
            name: system.name.clone(),
            samples: system.samples,
            solved: share(&solved, results as u64)?,
            score_mean: went.iter().map(|went| went.reward).sum::<f64>() / n,
            first_ahead: None,
            sampled_tokens: went.iter().map(|went| went.sampled).sum::<f64>() / n,
            prompt_tokens: went.iter().map(|went| went.read).sum::<f64>() / n,
            uncounted_turns: system.uncounted,
        })
    }
}

impl Comparison {
    /// Compares the first system with the others; `None` if no task was scored for all of them.
    pub fn of(split: impl Into<String>, entrants: &[ComparedSystem]) -> Option<Self> {
        let (first, others) = entrants.split_first()?;
        let mut keys: Vec<_> = first.tasks.keys().collect();
        keys.retain(|key| others.iter().all(|entrant| entrant.tasks.contains_key(*key)));
        let all: BTreeSet<_> = entrants.iter().flat_map(|entrant| entrant.tasks.keys()).collect();
        let mut sides = vec![Side::of(first, &keys)?];
        for other in others {
            let differences =
                keys.iter().map(|key| first.tasks[*key].solved - other.tasks[*key].solved);
            let first_ahead = Some(paired_interval(&differences.collect::<Vec<f64>>()));
            sides.push(Side { first_ahead, ..Side::of(other, &keys)? });
        }
        Some(Self {
            split: split.into(),
            tasks: keys.len() as u64,
            left_out: (all.len() - keys.len()) as u64,
            sides,
        })
    }

    /// Renders the comparison as a table of at most `width` columns, with notes below it.
    pub fn table(&self, width: usize) -> String {
        let Some(first) = self.sides.first() else { return String::new() };
        let ahead = format!("{} ahead by (95 %)", first.name);
        let mut table = Table::with_frame([
            "",
            "samples",
            "solved (95 %)",
            "score",
            &ahead,
            "tokens a question",
            "and of prompts",
        ]);
        for side in &self.sides {
            let ahead = side.first_ahead.map_or("-".to_owned(), |ahead| signed_text(&ahead));
            table.row([
                side.name.clone(),
                side.samples.to_string(),
                side.solved.to_string(),
                format!("{:.3}", side.score_mean),
                ahead,
                format!("{:.1}", side.sampled_tokens),
                format!("{:.1}", side.prompt_tokens),
            ]);
        }
        let mut notes = String::new();
        if self.left_out > 0 {
            notes += &format!(
                "{} tasks that somebody could not be scored on are left out\n",
                self.left_out
            );
        }
        for side in self.sides.iter().filter(|side| side.uncounted_turns > 0) {
            let Side { name, uncounted_turns: turns, .. } = side;
            notes += &format!(
                "the tokens of {turns} turns of endpoints are not counted for the {name}\n"
            );
        }
        let (tasks, split, table) = (self.tasks, &self.split, table.draw(width));
        format!("{tasks} tasks of `{split}`\n{table}\n{}", paragraphs(&notes, width))
    }
}

/// Formats a difference with its interval.
fn signed_text(difference: &Interval) -> String {
    let Interval { mean, low, high } = difference;
    if difference.is_known() {
        format!("{mean:+.3} ({low:+.3} to {high:+.3})")
    } else {
        format!("{mean:+.3} (unknown)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::run_dir::tests::episode;
    use crate::trajectory::{Fault, FaultKind, Outcome};

    /// Episodes of a task, each with its answer and whether it is correct.
    fn said(id: &str, answers: &[(Option<&str>, bool)]) -> Vec<Episode> {
        let one = |(index, (answer, solved)): (usize, &(Option<&str>, bool))| Episode {
            answer: answer.map(str::to_owned),
            ..episode(id, index as u32, *solved, 2)
        };
        answers.iter().enumerate().map(one).collect()
    }

    #[test]
    #[ignore = "second tier: takes ten seconds"]
    fn the_interval_of_differences_covers_the_truth_95_times_in_100() {
        // A gain of 0.1 on tasks that are otherwise equal for both.
        let mut draw = SplitMix64::new(3);
        let covered = (0..300).filter(|_| {
            let differences: Vec<f64> = (0..200)
                .map(|_| match draw.index(20) {
                    0..=2 => 1.0,
                    3 => -1.0,
                    _ => 0.0,
                })
                .collect();
            let estimate = paired_interval(&differences);
            (estimate.low..=estimate.high).contains(&0.1)
        });
        let coverage = covered.count() as f64 / 300.0;
        assert!((0.91..=0.98).contains(&coverage), "{coverage}");
        assert!(paired_interval(&[]).mean.is_nan());
    }

    /// Draws the differences of some tasks: 1 with probability 0.16, -1 with 0.07, else 0. Their mean is 0.09.
    fn few(tasks: usize, draw: &mut SplitMix64) -> Vec<f64> {
        let one = |draw: &mut SplitMix64| match draw.index(100) {
            0..=15 => 1.0,
            16..=22 => -1.0,
            _ => 0.0,
        };
        (0..tasks).map(|_| one(draw)).collect()
    }

    #[test]
    fn the_interval_of_few_tasks_is_students_and_seldom_leaves_the_truth_out() {
        let mut draw = SplitMix64::new(5);
        for tasks in [2, 3, 5, 8, 10, 15, 19] {
            let trials = 2000;
            let missed = (0..trials).filter(|_| {
                let Interval { low, high, .. } = paired_interval(&few(tasks, &mut draw));
                low > 0.09 || high < 0.09
            });
            let missed = missed.count() as f64 / f64::from(trials);
            // 0.05 for normal differences; most of these are 0.
            assert!(missed <= 0.08, "{tasks} tasks: {missed}");
        }
        // d̄ = 1/3, s = 0.57735, t = 4.302653: 1/3 ± 1.434218.
        let Interval { mean, low, high } = paired_interval(&[1.0, 0.0, 0.0]);
        assert!((mean - 1.0 / 3.0).abs() < 1e-12);
        assert!((low + 1.100_884).abs() < 1e-5 && (high - 1.767_551).abs() < 1e-5, "{low} {high}");
        // From 20 tasks on it is the bootstrap's, which stays within the differences.
        let many = [&[1.0; 3][..], &[0.0; 17]].concat();
        assert!(paired_interval(&many).low >= 0.0 && paired_interval(&many[..19]).low < 0.0);
    }

    #[test]
    fn an_interval_without_a_spread_is_unknown() {
        for differences in [&[0.5][..], &[0.0; 2], &[1.0; 3], &[-0.25; 19], &[0.0; 20], &[1.0; 60]]
        {
            let interval = paired_interval(differences);
            assert_eq!(interval.mean, differences[0]);
            assert!(!interval.is_known(), "{differences:?}: {interval}");
            assert!(interval.to_string().ends_with(" (unknown)"), "{interval}");
        }
        assert!(paired_interval(&[&[0.0; 19][..], &[0.5]].concat()).is_known());
        // Equal up to rounding: 3/5 - 2/5 is not 1/5.
        let rounded = [0.6 - 0.4, 0.2 - 0.0, 0.8 - 0.6];
        assert!(rounded[0] != rounded[1] && !paired_interval(&rounded).is_known());
        assert!(paired_interval(&[0.2, 0.2 + 1e-6]).is_known());
        let one = ComparedSystem::mean("one", 1, &said("a", &[(Some("1"), true)]));
        let other = ComparedSystem::mean("other", 1, &said("a", &[(Some("2"), false)]));
        let comparison = Comparison::of("test", &[one, other]).unwrap();
        assert!(comparison.table(200).contains("+1.000 (unknown)"), "{}", comparison.table(200));
        let text = serde_json::to_string(&comparison).unwrap();
        assert!(text.contains(r#""first_ahead":{"mean":1.0,"low":null,"high":null}"#), "{text}");
        let read: Comparison = serde_json::from_str(&text).unwrap();
        assert!(!read.sides[1].first_ahead.unwrap().is_known());
    }

    #[test]
    fn an_interval_moves_and_turns_with_the_differences() {
        let mut draw = SplitMix64::new(9);
        for tasks in [2, 3, 7, 19, 20, 21, 60] {
            let differences = [few(tasks - 1, &mut draw), vec![0.5]].concat();
            let of = |change: fn(f64) -> f64| {
                paired_interval(&differences.iter().map(|&d| change(d)).collect::<Vec<_>>())
            };
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9 || (a.is_nan() && b.is_nan());
            let Interval { mean, low, high } = of(|d| d);
            let turned = of(|d| -d);
            assert!(near(turned.low, -high) && near(turned.high, -low), "{tasks}: {turned}");
            let moved = of(|d| 0.25 + d);
            assert!(near(moved.mean, mean + 0.25) && near(moved.low, low + 0.25), "{tasks}");
            let scaled = of(|d| 0.5 * d);
            assert!(near(scaled.high, 0.5 * high), "{tasks}: {scaled}");
            assert!(low.is_nan() || (low <= mean && mean <= high), "{tasks}");
        }
    }

    #[test]
    fn the_interval_of_a_share_counts_the_results_that_it_is_the_mean_of() {
        // Two scored episodes of each task: one is right, or in the first task both. Six more are unscored.
        let unscored = |mut episode: Episode| {
            episode.outcome = Outcome::Unscored(Fault::new(FaultKind::Worker, "gone"));
            episode
        };
        let task = |i: usize, samples: usize| {
            let mut scored = said(&format!("t{i:02}"), &vec![(Some("1"), i == 0); samples]);
            scored[0] = said(&format!("t{i:02}"), &[(Some("1"), true)]).remove(0);
            let rest = scored.split_off(2);
            scored.into_iter().chain(rest.into_iter().map(unscored)).collect::<Vec<_>>()
        };
        let all = |samples| (0..10).flat_map(|i| task(i, samples)).collect::<Vec<_>>();
        let solved = |system| Comparison::of("test", &[system]).unwrap().sides[0].solved;
        let twice = solved(ComparedSystem::mean("twice", 2, &all(2)));
        assert_eq!(solved(ComparedSystem::mean("mostly unscored", 8, &all(8))), twice);
        // The result of a vote is one, whatever the number of votes.
        let votes = |n: usize| {
            let task =
                |i: usize| said(&format!("t{i:02}"), &vec![(Some("1"), i.is_multiple_of(2)); n]);
            solved(ComparedSystem::vote(
                "vote",
                n as u32,
                &(0..10).flat_map(task).collect::<Vec<_>>(),
            ))
        };
        assert_eq!(votes(8), votes(1));
    }

    #[test]
    fn a_task_goes_as_its_episodes_in_the_mean() {
        let right = (Some("42"), true);
        let episodes = [said("a", &[right, (None, false)]), said("b", &[right, right])].concat();
        let team = ComparedSystem::mean("team", 2, &episodes);
        let comparison = Comparison::of("test", std::slice::from_ref(&team)).unwrap();
        let side = &comparison.sides[0];
        assert_eq!((side.solved.mean, side.score_mean, side.first_ahead), (0.75, 0.75, None));
        // Two turns of two tokens after three.
        assert_eq!(
            (team.sampled_tokens(), side.sampled_tokens, side.prompt_tokens),
            (4.0, 4.0, 6.0)
        );
    }

    #[test]
    fn the_answer_of_the_most_is_scored_and_all_tokens_are_paid() {
        let episodes = [
            said("a", &[(Some("41"), false), (Some("42"), true), (Some("84/2"), true)]),
            said("b", &[(Some("7"), false), (None, false), (Some("8"), true)]),
            said("c", &[(None, false), (None, false), (None, false)]),
        ];
        let votes = ComparedSystem::vote("vote", 3, &episodes.concat());
        let comparison = Comparison::of("test", &[votes]).unwrap();
        let side = &comparison.sides[0];
        assert!((side.solved.mean - 1.0 / 3.0).abs() < 1e-12, "{side:?}");
        assert_eq!(side.sampled_tokens, 12.0);
    }

    #[test]
    fn only_what_all_were_scored_on_is_compared() {
        let mut broken = said("b", &[(Some("1"), true)]);
        broken[0].outcome = Outcome::Unscored(Fault::new(FaultKind::Worker, "gone"));
        let both = [said("a", &[(Some("1"), true)]), said("b", &[(Some("1"), true)])].concat();
        let more = said("c", &[(Some("1"), true)]);
        let team = ComparedSystem::mean("team", 1, &[&both[..], &more].concat());
        let other = [said("a", &[(Some("2"), false)]), broken, more].concat();
        let other = ComparedSystem::mean("other", 1, &other);
        let comparison = Comparison::of("test", &[team.clone(), other]).unwrap();
        assert_eq!((comparison.tasks, comparison.left_out), (2, 1));
        assert_eq!(comparison.sides[1].first_ahead.unwrap().mean, 0.5);
        let table = comparison.table(80);
        assert!(table.contains("team ahead by") && table.contains("1 tasks that"), "{table}");
        let text = serde_json::to_string(&comparison).unwrap();
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), comparison);
        assert_eq!(Comparison::of("test", &[team, ComparedSystem::mean("none", 1, &[])]), None);
    }

    #[test]
    fn tokens_of_endpoints_are_said_to_be_missing() {
        let mut episodes = said("a", &[(Some("1"), true)]);
        episodes[0].turns[0].tokens = None;
        let comparison =
            Comparison::of("test", &[ComparedSystem::mean("team", 1, &episodes)]).unwrap();
        assert_eq!(comparison.sides[0].uncounted_turns, 1);
        assert!(comparison.table(80).contains("1 turns of endpoints are not counted for the team"));
    }
}

//! Comparing a team with others on the same questions, and with what else its tokens could have bought.
//!
//! The unit is the task, as everywhere in [`super`]. Who is compared has played the same tasks, so a difference is the mean
//! of the tasks' differences, and its interval a percentile bootstrap over tasks that keeps the pairs: what makes a task easy
//! for everybody is in neither end.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Interval, share};
use crate::ballot::{Ballot, Ties};
use crate::rng::SplitMix64;
use crate::table::{Table, paragraphs};
use crate::trajectory::{Episode, Turn};

/// Samples of tasks that an interval is drawn from.
const RESAMPLES: usize = 10_000;
/// From which they are drawn: equal comparisons have equal intervals.
const SEED: u64 = 20_260_211;

/// The mean of differences, one a task, with its 95 % interval: percentiles of the means of tasks drawn with replacement.
/// Without a task everything is NaN.
pub fn paired(differences: &[f64]) -> Interval {
    let n = differences.len();
    if n == 0 {
        return Interval { mean: f64::NAN, low: f64::NAN, high: f64::NAN };
    }
    let mean = |sum: f64| sum / n as f64;
    let mut draw = SplitMix64::new(SEED);
    let mut means: Vec<f64> =
        (0..RESAMPLES).map(|_| mean((0..n).map(|_| differences[draw.index(n)]).sum())).collect();
    means.sort_by(f64::total_cmp);
    let (low, high) = (means[RESAMPLES / 40], means[RESAMPLES - 1 - RESAMPLES / 40]);
    Interval { mean: mean(differences.iter().sum()), low, high }
}

/// Someone who is compared: a name, and how each task went.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// What the table calls it.
    pub name: String,
    /// Episodes a task.
    samples: u32,
    /// By source and id; tasks without a scored episode are left out.
    tasks: BTreeMap<(String, String), TaskOutcome>,
    /// Turns whose tokens nobody counted: those of endpoints.
    uncounted: u64,
}

/// How a task went.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct TaskOutcome {
    solved: f64,
    reward: f64,
    sampled: f64,
    read: f64,
}

impl System {
    /// Who answers in every episode by itself: a task went as its scored episodes did in the mean.
    pub fn mean(name: impl Into<String>, samples: u32, episodes: &[Episode]) -> Self {
        Self::new(name.into(), samples, episodes, |scored| {
            let sum = scored.iter().fold(TaskOutcome::default(), |sum, episode| sum.plus(episode));
            sum.over(scored.len() as f64)
        })
    }

    /// Who votes: the episodes of a task are samples, and the answer of the most is the answer. Of several leaders the one
    /// that was named first wins. Its tokens are those of all samples.
    pub fn vote(name: impl Into<String>, samples: u32, episodes: &[Episode]) -> Self {
        Self::new(name.into(), samples, episodes, |scored| {
            let answers = scored.iter().filter_map(|episode| episode.answer.as_deref());
            let winner = answers.collect::<Ballot>().winner(Ties::First, 0);
            // An episode without an answer is scored as such, and the first of those that named the winner as all of them.
            let chosen = scored.iter().find(|episode| episode.answer == winner).or(scored.first());
            let spent =
                scored.iter().fold(TaskOutcome::default(), |sum, episode| sum.plus(episode));
            let went = chosen
                .map_or(TaskOutcome::default(), |episode| TaskOutcome::default().plus(episode));
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
        let uncounted = |turn: &&Turn| turn.tokens.is_none();
        let turns = scored.values().flatten().flat_map(|episode| &episode.turns);
        Self {
            name,
            samples,
            uncounted: turns.filter(uncounted).count() as u64,
            tasks: scored.into_iter().map(|(key, episodes)| (key, went(&episodes))).collect(),
        }
    }

    /// Tokens sampled for a question: the mean over tasks.
    pub fn sampled(&self) -> f64 {
        self.tasks.values().map(|went| went.sampled).sum::<f64>() / self.tasks.len().max(1) as f64
    }
}

impl TaskOutcome {
    fn plus(self, episode: &Episode) -> Self {
        let tokens = || episode.turns.iter().filter_map(|turn| turn.tokens.as_ref());
        let (solved, reward) = episode
            .score()
            .map_or((0.0, 0.0), |score| (f64::from(u8::from(score.solved)), score.reward));
        Self {
            solved: self.solved + solved,
            reward: self.reward + reward,
            sampled: self.sampled + tokens().map(|t| t.completion.len() as f64).sum::<f64>(),
            read: self.read + tokens().map(|t| t.prompt.len() as f64).sum::<f64>(),
        }
    }

    fn over(self, n: f64) -> Self {
        let Self { solved, reward, sampled, read } = self;
        Self { solved: solved / n, reward: reward / n, sampled: sampled / n, read: read / n }
    }
}

/// How everybody did on the same tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The split that was played.
    pub split: String,
    /// Tasks that everybody has a scored episode of; only these are compared.
    pub tasks: u64,
    /// Tasks that somebody has none of.
    pub left_out: u64,
    /// In the order they were given; the first is what the others are compared with.
    pub sides: Vec<Side>,
}

/// How one of them did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// What it is.
    pub name: String,
    /// Episodes a task.
    pub samples: u32,
    /// The share of solved tasks.
    pub solved: Interval,
    /// Mean reward of the score.
    pub score_mean: f64,
    /// How much more the first one solves: the mean of the tasks' differences. `None` for the first itself.
    pub first_ahead: Option<Interval>,
    /// Tokens sampled for a question, in the mean.
    pub sampled_tokens: f64,
    /// Tokens of the prompts of a question, in the mean.
    pub prompt_tokens: f64,
    /// Turns whose tokens nobody counted, those of endpoints, are in neither.
    pub uncounted_turns: u64,
}

impl Comparison {
    /// The comparison of the first with the others; `None` where no task was scored for all of them.
    pub fn of(split: impl Into<String>, entrants: &[System]) -> Option<Self> {
        let (first, others) = entrants.split_first()?;
        let shared = |key: &&(String, String)| others.iter().all(|e| e.tasks.contains_key(*key));
        let keys: Vec<_> = first.tasks.keys().filter(shared).collect();
        let all: BTreeSet<_> = entrants.iter().flat_map(|entrant| entrant.tasks.keys()).collect();
        let side = |(place, entrant): (usize, &System)| {
            let went: Vec<TaskOutcome> = keys.iter().map(|key| entrant.tasks[*key]).collect();
            let differences: Vec<f64> = (keys.iter().zip(&went))
                .map(|(key, went)| first.tasks[*key].solved - went.solved)
                .collect();
            let mean =
                |of: fn(&TaskOutcome) -> f64| went.iter().map(of).sum::<f64>() / went.len() as f64;
            let solved: Vec<f64> = went.iter().map(|went| went.solved).collect();
            Some(Side {
                name: entrant.name.clone(),
                samples: entrant.samples,
                solved: share(&solved, (went.len() * entrant.samples as usize) as u64)?,
                score_mean: mean(|went| went.reward),
                first_ahead: (place > 0).then(|| paired(&differences)),
                sampled_tokens: mean(|went| went.sampled),
                prompt_tokens: mean(|went| went.read),
                uncounted_turns: entrant.uncounted,
            })
        };
        Some(Self {
            split: split.into(),
            tasks: keys.len() as u64,
            left_out: (all.len() - keys.len()) as u64,
            sides: entrants.iter().enumerate().map(side).collect::<Option<_>>()?,
        })
    }

    /// The comparison as a table of at most so many columns, and what is to be known beside it.
    pub fn table(&self, width: usize) -> String {
        let Some(first) = self.sides.first() else { return String::new() };
        let ahead = format!("{} ahead by (95 %)", first.name);
        let mut table = Table::framed([
            "",
            "samples",
            "solved (95 %)",
            "score",
            &ahead,
            "tokens a question",
            "and of prompts",
        ]);
        for side in &self.sides {
            let ahead = side.first_ahead.map_or("-".to_owned(), |Interval { mean, low, high }| {
                format!("{mean:+.3} ({low:+.3} to {high:+.3})")
            });
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::run_dir::tests::episode;
    use crate::trajectory::{Fault, FaultKind, Outcome};

    /// Episodes of a task: what each answered, and whether that is right.
    fn said(id: &str, answers: &[(Option<&str>, bool)]) -> Vec<Episode> {
        let one = |(index, (answer, solved)): (usize, &(Option<&str>, bool))| Episode {
            answer: answer.map(str::to_owned),
            ..episode(id, index as u32, *solved, 2)
        };
        answers.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_interval_of_differences_covers_the_truth_95_times_in_100() {
        // A gain of 0.1 on tasks that are otherwise solved, or not, by both alike.
        let mut draw = SplitMix64::new(3);
        let covered = (0..300).filter(|_| {
            let differences: Vec<f64> = (0..200)
                .map(|_| match draw.index(20) {
                    0..=2 => 1.0,
                    3 => -1.0,
                    _ => 0.0,
                })
                .collect();
            let estimate = paired(&differences);
            (estimate.low..=estimate.high).contains(&0.1)
        });
        let coverage = covered.count() as f64 / 300.0;
        assert!((0.91..=0.98).contains(&coverage), "{coverage}");
        assert!(paired(&[]).mean.is_nan());
    }

    #[test]
    fn a_task_goes_as_its_episodes_in_the_mean() {
        let right = (Some("42"), true);
        let episodes = [said("a", &[right, (None, false)]), said("b", &[right, right])].concat();
        let team = System::mean("team", 2, &episodes);
        let comparison = Comparison::of("test", std::slice::from_ref(&team)).unwrap();
        let side = &comparison.sides[0];
        assert_eq!((side.solved.mean, side.score_mean, side.first_ahead), (0.75, 0.75, None));
        // Two turns of two tokens after three.
        assert_eq!((team.sampled(), side.sampled_tokens, side.prompt_tokens), (4.0, 4.0, 6.0));
    }

    #[test]
    fn the_answer_of_the_most_is_scored_and_all_tokens_are_paid() {
        let episodes = [
            said("a", &[(Some("41"), false), (Some("42"), true), (Some("84/2"), true)]),
            said("b", &[(Some("7"), false), (None, false), (Some("8"), true)]),
            said("c", &[(None, false), (None, false), (None, false)]),
        ];
        let votes = System::vote("vote", 3, &episodes.concat());
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
        let team = System::mean("team", 1, &both);
        let other = [said("a", &[(Some("2"), false)]), broken].concat();
        let other = System::mean("other", 1, &other);
        let comparison = Comparison::of("test", &[team.clone(), other]).unwrap();
        assert_eq!((comparison.tasks, comparison.left_out), (1, 1));
        assert_eq!(comparison.sides[1].first_ahead.unwrap().mean, 1.0);
        let table = comparison.table(80);
        assert!(table.contains("team ahead by") && table.contains("1 tasks that"), "{table}");
        let text = serde_json::to_string(&comparison).unwrap();
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), comparison);
        assert_eq!(Comparison::of("test", &[team, System::mean("none", 1, &[])]), None);
    }

    #[test]
    fn tokens_of_endpoints_are_said_to_be_missing() {
        let mut episodes = said("a", &[(Some("1"), true)]);
        episodes[0].turns[0].tokens = None;
        let comparison = Comparison::of("test", &[System::mean("team", 1, &episodes)]).unwrap();
        assert_eq!(comparison.sides[0].uncounted_turns, 1);
        assert!(comparison.table(80).contains("1 turns of endpoints are not counted for the team"));
    }
}

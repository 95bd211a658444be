//! Games in which the credit of every turn is known: the mean of the estimated credit is the exact one.
//!
//! A turn says one of four words. Who has read a word says one that depends on it. Exact values are sums over all words of all
//! turns, with their probabilities.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};

use maverl_kernels::sample::derive_seed;

use super::*;
use crate::algo::advantage::{EmaBaseline, GroupComparison, rewarded_step};
use crate::algo::testing::plan;
use crate::algo::{Sample, average_plays, baselines, samples};
use crate::config::{
    AdvantagePlan, BranchConfig, ContinuationsPlan, CounterfactualPlan, GroupBaseline, GroupBy,
    GroupPlan,
};
use crate::credit::CPU;
use crate::env::{EnvError, Environment, Session};
use crate::orchestra::Team;
use crate::rollout::Rollout;
use crate::rollout::testing::{Critic, Flow, Speaker, Talker, line, runner, task};
use crate::task::Score;

const WORDS: [&str; 4] = ["left", "right", "up", "down"];
/// Words by the random number of a request, before what was read is added.
const DRAWN: [usize; 8] = [0, 0, 0, 0, 1, 1, 2, 3];
/// Seats of the games, in the order of their turns.
const SEATS: [&str; 3] = ["t/speaker", "t/critic#0", "t/critic#1"];
/// Played episodes of a game.
const EPISODES: u32 = 600;

/// A game: the number of its turns, those whose word a turn reads, and the reward of all words.
struct Game {
    turns: usize,
    reads: fn(usize) -> Option<usize>,
    reward: fn(&[usize]) -> f64,
}

fn is(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// Only the first turn counts, which the second one reads.
const FIRST: Game = Game { turns: 2, reads: before, reward: |words| is(words[0] == 0) };
/// Only the last turn counts.
const LAST: Game = Game { turns: 2, reads: before, reward: |words| is(words[1] == 0) };
/// The mean of separate successes.
const SEPARATE: Game = Game {
    turns: 3,
    reads: |_| None,
    reward: |words| {
        words.iter().enumerate().map(|(turn, word)| is(*word == turn)).sum::<f64>() / 3.0
    },
};
/// Both must say the same, unseen.
const MATCH: Game = Game { turns: 2, reads: |_| None, reward: |words| is(words[0] == words[1]) };
/// Each must say the word after that of the turn before, which it reads.
const COPY: Game = Game {
    turns: 3,
    reads: before,
    reward: |words| is(words[1] == (words[0] + 1) % 4 && words[2] == (words[1] + 1) % 4),
};

fn before(turn: usize) -> Option<usize> {
    turn.checked_sub(1)
}

/// Pays the number that is the answer.
struct Paid;

impl Environment for Paid {
    async fn score(&self, _: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let reward = answer.and_then(|answer| answer.parse().ok()).unwrap_or(f64::NAN);
        Ok(Score { reward, ..Score::binary(reward == 1.0) })
    }
}

fn word(text: &str) -> usize {
    WORDS.iter().position(|word| *word == text).unwrap()
}

/// Says a drawn word, shifted by the word that it has read.
fn talker() -> Talker {
    let say = |ask: &crate::orchestra::Ask, _: &[crate::trajectory::Message]| {
        let read = ask.prompt.user.strip_prefix("said ").map_or(0, word);
        format!("<w>{}</w>", WORDS[(DRAWN[(ask.seed % 8) as usize] + read) % 4])
    };
    Talker { say, yields: |ask| ask.seed % 2 }
}

/// Asks seat after seat.
async fn words(game: &Game, team: &Team<Flow>) -> Result<Vec<usize>, crate::AskError> {
    let mut words: Vec<usize> = Vec::new();
    for turn in 0..game.turns {
        let read = (game.reads)(turn).map(|of| format!("said {}", WORDS[words[of]]));
        let input = line(read.as_deref().unwrap_or("go"));
        let said = match turn {
            0 => team.ask::<Speaker>(&input).await?,
            _ => team.seat::<Critic>(turn - 1).ask(&input).await?,
        };
        words.push(word(&said.0));
    }
    Ok(words)
}

impl Game {
    fn rollout(&'static self) -> Rollout {
        let flow = Flow::new(move |_, team| {
            Box::pin(async move {
                let words = words(self, team).await?;
                Ok(Some((self.reward)(&words).to_string()))
            })
        });
        let mut runner = runner(flow, talker());
        runner.environment = Arc::new(Paid);
        Rollout::new(runner, NonZeroUsize::new(64).unwrap())
    }

    /// Plan of the game by an estimator, with branches of three other replies at each turn.
    fn plan(&self, advantage: AdvantagePlan) -> Plan {
        let seats: Vec<(&str, bool)> =
            SEATS[..self.turns].iter().map(|&seat| (seat, true)).collect();
        let mut plan = plan(&seats);
        plan.algorithm.advantage = advantage;
        plan.config = plan.config.with(|config| {
            config.task.group_size = NonZeroU32::MIN;
            config.rollout.branch = Some(BranchConfig::default());
        });
        plan
    }

    /// Plays episodes and their branches.
    async fn play(&'static self, plan: &Plan) -> Vec<Episode> {
        let rollout = self.rollout();
        let request = |n: u32| EpisodeRequest {
            task: task(&format!("p{n}")),
            index: 0,
            seed: derive_seed(7, u64::from(n)),
        };
        let mut episodes = rollout.collect((0..EPISODES).map(request).collect(), |_| ()).await;
        let planned = branches(plan, &episodes);
        let requests: Vec<BegunRequest> =
            planned.into_iter().map(|branch| super::request(&episodes, branch)).collect();
        let mut found: Vec<Option<Episode>> = vec![None; requests.len()];
        let mut playing = rollout.play_from(requests);
        while let Some((place, episode)) = playing.next().await {
            found[place] = Some(episode);
        }
        episodes.extend(found.into_iter().flatten());
        assert!(episodes.iter().all(|episode| episode.score().is_some()));
        episodes
    }

    /// Value of a state: the mean reward after these words.
    fn value(&self, words: &[usize]) -> f64 {
        if words.len() == self.turns {
            return (self.reward)(words);
        }
        let read = (self.reads)(words.len()).map_or(0, |of| words[of]);
        let after = DRAWN.iter().map(|drawn| self.value(&[words, &[(drawn + read) % 4]].concat()));
        after.sum::<f64>() / DRAWN.len() as f64
    }
}

/// Returns the words of an episode.
fn said(episode: &Episode) -> Vec<usize> {
    let text = |reply: &str| reply.trim_start_matches("<w>").trim_end_matches("</w>").to_owned();
    episode.turns.iter().map(|turn| word(&text(&turn.reply))).collect()
}

/// Returns the rows of a step with their credit.
fn credits(plan: &Plan, episodes: &[Episode]) -> Vec<(Sample, f64)> {
    let mut rows = samples(episodes, plan);
    average_plays(plan, episodes, &mut rows);
    baselines(plan, episodes, &mut rows, &mut EmaBaseline::default(), &CPU);
    let comparison = GroupComparison::from(&plan.algorithm.advantage);
    let step = rewarded_step(episodes, &rows, None, comparison.by);
    let values = comparison.compare(&step.view()).values;
    rows.into_iter().zip(values).collect()
}

/// Words up to a turn, the turn, and its credit.
type TurnCredit = (Vec<usize>, usize, f64);

fn up_to_turn(episodes: &[Episode], rows: &[(Sample, f64)]) -> Vec<TurnCredit> {
    let credit = |(row, credit): &(Sample, f64)| {
        (said(&episodes[row.episode])[..=row.turn].to_vec(), row.turn, *credit)
    };
    rows.iter().map(credit).collect()
}

impl Game {
    /// Asserts that the mean credit of each turn, for the words up to it, is within four standard errors of the exact one: the
    /// difference of the values of the states after and before the turn.
    fn compare(&self, name: &str, found: &[TurnCredit]) {
        let mut cells: BTreeMap<(&[usize], usize), Vec<f64>> = BTreeMap::new();
        for (words, turn, credit) in found {
            cells.entry((words, *turn)).or_default().push(*credit);
        }
        let (mut worst, mut compared) = (0.0_f64, 0);
        for ((words, turn), credits) in cells.into_iter().filter(|(_, it)| it.len() >= 40) {
            let exact = self.value(words) - self.value(&words[..turn]);
            let n = credits.len() as f64;
            let mean = credits.iter().sum::<f64>() / n;
            let variance = credits.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / (n - 1.0);
            // Rare rewards may be in none of the credits of a cell, which then have no variance.
            let error = ((variance + 1.0 / n) / n).sqrt();
            let distance = (mean - exact).abs() / error;
            assert!(
                distance <= 4.0,
                "{name}, turn {turn} of {words:?}: {mean}, not {exact} ± {error}, of {n}"
            );
            (worst, compared) = (worst.max(distance), compared + 1);
        }
        assert!(compared > self.turns);
        println!("{name}: {compared} means of credit, at most {worst:.2} standard errors away");
    }
}

const GAMES: [(&str, &Game); 5] = [
    ("first", &FIRST),
    ("last", &LAST),
    ("separate", &SEPARATE),
    ("match", &MATCH),
    ("copy", &COPY),
];

#[tokio::test]
async fn the_mean_of_the_counterfactual_credit_is_the_exact_one() {
    for (name, game) in GAMES {
        let plan = game.plan(AdvantagePlan::Counterfactual(CounterfactualPlan::default()));
        let episodes = game.play(&plan).await;
        let found = credits(&plan, &episodes);
        let found = up_to_turn(&episodes, &found);
        game.compare(name, &found);
        if name == "first" {
            let of_dummy = found.iter().filter(|(_, turn, _)| *turn == 1);
            assert!(of_dummy.clone().count() > 0);
            assert!(
                of_dummy.into_iter().all(|(.., credit)| *credit == 0.0),
                "nothing depends on it"
            );
        }
    }
}

#[tokio::test]
async fn the_mean_of_the_differences_of_state_values_is_the_exact_one() {
    for (name, game) in GAMES {
        let plan = game.plan(AdvantagePlan::Continuations(ContinuationsPlan::default()));
        let episodes = game.play(&plan).await;
        let found = credits(&plan, &episodes);
        game.compare(name, &up_to_turn(&episodes, &found));
    }
}

#[tokio::test]
async fn the_mean_advantage_of_a_reply_among_its_siblings_is_the_exact_one() {
    for (name, game) in GAMES {
        let plan = game.plan(AdvantagePlan::Group(GroupPlan {
            by: GroupBy::Branch,
            baseline: GroupBaseline::LeaveOneOut,
            normalize_std: false,
            ..GroupPlan::default()
        }));
        let episodes = game.play(&plan).await;
        let found = credits(&plan, &episodes);
        let rows = EPISODES as usize * game.turns * 4;
        assert_eq!(found.len(), rows, "four replies at each turn");
        // One reply of each branch: replies at one branch depend on each other.
        let is_own = |(row, _): &&(Sample, f64)| {
            let number = episodes[row.episode].branch.as_ref().map_or(0, |at| at.alternative);
            let task: u32 = row.task.id.trim_start_matches('p').parse().unwrap();
            task % 4 == number
        };
        let found: Vec<(Sample, f64)> = found.iter().filter(is_own).cloned().collect();
        game.compare(name, &up_to_turn(&episodes, &found));
    }
}

#[tokio::test]
async fn the_reward_of_the_team_credits_a_turn_that_nothing_depends_on() {
    let game: &'static Game = &FIRST;
    let mut plan = game.plan(AdvantagePlan::Group(GroupPlan {
        by: GroupBy::TaskSeat,
        normalize_std: false,
        ..GroupPlan::default()
    }));
    plan.config = plan.config.with(|config| config.rollout.branch = None);
    let mut episodes = game.play(&plan).await;
    episodes.iter_mut().for_each(|episode| episode.task = task("p"));
    let found = credits(&plan, &episodes);
    let of_dummy = found.iter().filter(|(row, _)| row.turn == 1);
    let mean =
        of_dummy.clone().map(|(_, credit)| credit.abs()).sum::<f64>() / of_dummy.count() as f64;
    println!("mean |A| of the turn that nothing depends on: {mean:.3}");
    assert!(mean > 0.4, "{mean}");
}

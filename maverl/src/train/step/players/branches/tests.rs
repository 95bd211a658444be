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
    AdvantagePlan, BranchConfig, BranchKeep, ContinuationsPlan, CounterfactualPlan, GroupBaseline,
    GroupBy, GroupPlan, ShapleyPlan,
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
        let mut planned = branches(plan, &episodes);
        while !planned.is_empty() {
            let begun: Vec<&Episode> = episodes.iter().collect();
            let requests: Vec<BegunRequest> =
                planned.into_iter().map(|branch| super::request(&begun, branch)).collect();
            let mut found: Vec<Option<Episode>> = vec![None; requests.len()];
            let mut playing = rollout.play_from(requests);
            while let Some((place, episode)) = playing.next().await {
                found[place] = Some(episode);
            }
            episodes.extend(found.into_iter().flatten());
            planned = further_branches(plan, &episodes, &[]);
        }
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
        let exact = |words: &[usize], turn: usize| self.value(words) - self.value(&words[..turn]);
        self.compare_with(name, found, 40, exact);
    }

    /// Asserts that the mean credit of each turn, for some words, is within four standard errors of the exact one, if there are
    /// `least` of them.
    fn compare_with(
        &self,
        name: &str,
        found: &[TurnCredit],
        least: usize,
        exact: impl Fn(&[usize], usize) -> f64,
    ) {
        let mut cells: BTreeMap<(&[usize], usize), Vec<f64>> = BTreeMap::new();
        for (words, turn, credit) in found {
            cells.entry((words, *turn)).or_default().push(*credit);
        }
        let (mut worst, mut compared) = (0.0_f64, 0);
        for ((words, turn), credits) in cells.into_iter().filter(|(_, it)| it.len() >= least) {
            let exact = exact(words, turn);
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

/// Numbers that the turns of an episode have drawn.
fn drawn(game: &Game, words: &[usize]) -> Vec<usize> {
    let of_turn = |turn: usize| {
        let read = (game.reads)(turn).map_or(0, |of| words[of]);
        (words[turn] + 4 - read) % 4
    };
    (0..words.len()).map(of_turn).collect()
}

impl Game {
    /// Mean reward where the turns of `there` have drawn these numbers, and the others any.
    fn coalition_value(&self, numbers: &[usize], there: &[bool], words: &[usize]) -> f64 {
        let turn = words.len();
        if turn == self.turns {
            return (self.reward)(words);
        }
        let read = (self.reads)(turn).map_or(0, |of| words[of]);
        let draws = if there[turn] { vec![numbers[turn]] } else { DRAWN.to_vec() };
        let after = draws.iter().map(|number| {
            self.coalition_value(numbers, there, &[words, &[(number + read) % 4]].concat())
        });
        after.sum::<f64>() / draws.len() as f64
    }

    /// Shapley value of a turn by its definition: over all subsets of the other turns.
    fn shapley_value(&self, words: &[usize], turn: usize) -> f64 {
        let numbers = drawn(self, words);
        let value = |set: usize| {
            let there: Vec<bool> = (0..self.turns).map(|at| (set >> at) & 1 == 1).collect();
            self.coalition_value(&numbers, &there, &[])
        };
        let factorial = |n: usize| (1..=n).product::<usize>() as f64;
        let without = (0..1_usize << self.turns).filter(|&set| (set >> turn) & 1 == 0);
        let share = |set: usize| {
            let size = set.count_ones() as usize;
            let weight = factorial(size) * factorial(self.turns - size - 1) / factorial(self.turns);
            weight * (value(set | (1 << turn)) - value(set))
        };
        without.map(share).sum()
    }
}

#[tokio::test]
async fn the_mean_of_the_shapley_credit_is_the_exact_one() {
    for (name, game) in GAMES {
        let plan = game.plan(AdvantagePlan::Shapley(ShapleyPlan::default()));
        let episodes = game.play(&plan).await;
        let rows = credits(&plan, &episodes);
        assert_eq!(rows.len(), EPISODES as usize * game.turns);
        let found: Vec<TurnCredit> = rows
            .iter()
            .map(|(row, credit)| (said(&episodes[row.episode]), row.turn, *credit))
            .collect();
        game.compare_with(name, &found, 30, |words, turn| game.shapley_value(words, turn));
        let nobody = |branch: &&Episode| {
            branch.branch.as_ref().is_some_and(|point| point.drawn.len() == game.turns)
        };
        for played in episodes.iter().filter(|episode| episode.branch.is_none()) {
            let own = rows.iter().filter(|(row, _)| row.task.id == played.task.id);
            let sum: f64 = own.map(|(_, credit)| credit).sum();
            let others = episodes.iter().filter(nobody);
            let others = others.filter(|branch| branch.task.id == played.task.id);
            let others: Vec<f64> = others.map(|it| it.score().unwrap().reward).collect();
            assert_eq!(others.len(), 3);
            let want = played.score().unwrap().reward - others.iter().sum::<f64>() / 3.0;
            assert!((sum - want).abs() < 1e-12, "{name}: {sum}, not {want}");
        }
        if name == "first" {
            let of_dummy = rows.iter().filter(|(row, _)| row.turn == 1);
            assert!(of_dummy.clone().all(|(_, credit)| *credit == 0.0), "nothing depends on it");
        }
    }
}

/// Each must say the word after that of the turn before, which it reads.
const COPY_TWO: Game =
    Game { turns: 2, reads: before, reward: |words| is(words[1] == (words[0] + 1) % 4) };

impl Game {
    /// Mean rewards after a word of a turn and over all of its words, given the word that the turn has read.
    fn reply_values(&self, turn: usize, read: Option<usize>, word: usize) -> (f64, f64) {
        let (mut with, mut all) = ((0.0, 0.0), (0.0, 0.0));
        for numbers in 0..DRAWN.len().pow(self.turns as u32) {
            let mut words: Vec<usize> = Vec::new();
            for at in 0..self.turns {
                let number = DRAWN[numbers / DRAWN.len().pow(at as u32) % DRAWN.len()];
                words.push((number + (self.reads)(at).map_or(0, |of| words[of])) % 4);
            }
            if (self.reads)(turn).map(|of| words[of]) != read {
                continue;
            }
            let reward = (self.reward)(&words);
            all = (all.0 + reward, all.1 + 1.0);
            if words[turn] == word {
                with = (with.0 + reward, with.1 + 1.0);
            }
        }
        (with.0 / with.1, all.0 / all.1)
    }
}

/// A plan whose estimator compares the replies at branches with the mean of the others.
fn siblings(game: &Game, keep: BranchKeep) -> Plan {
    let mut plan = game.plan(AdvantagePlan::Group(GroupPlan {
        by: GroupBy::Branch,
        baseline: GroupBaseline::LeaveOneOut,
        normalize_std: false,
        ..GroupPlan::default()
    }));
    // All combinations of three replies are fewer than half of those of four.
    let width = NonZeroU32::new(if keep == BranchKeep::All { 3 } else { 4 }).unwrap();
    plan.config = plan.config.with(|config| {
        config.rollout.branch = Some(BranchConfig { keep, width, ..BranchConfig::default() });
    });
    plan
}

#[tokio::test]
async fn the_mean_advantage_of_a_reply_in_joint_actions_is_the_exact_one() {
    // In a game of three turns that read, the prompt of a turn does not say the words of all turns before it.
    for (name, game, replies) in [
        ("first", &FIRST, 0),
        ("last", &LAST, 0),
        ("separate", &SEPARATE, 9),
        ("match", &MATCH, 6),
        ("copy two", &COPY_TWO, 0),
    ] {
        let game: &'static Game = game;
        let plan = siblings(game, BranchKeep::All);
        let episodes = game.play(&plan).await;
        let plays = 3_usize.pow(game.turns as u32);
        assert_eq!(episodes.len(), EPISODES as usize * plays, "{name}: all combinations");
        let rows = credits(&plan, &episodes);
        if replies > 0 {
            assert_eq!(rows.len(), EPISODES as usize * replies, "{name}: three replies of each");
        }
        let mut found: Vec<TurnCredit> = Vec::new();
        for (row, credit) in &rows {
            let episode = &episodes[row.episode];
            let numbers = episode.branch.as_ref().map_or(&[][..], |point| point.drawn.as_slice());
            let own = &episode.turns[row.turn].seat;
            let number = numbers.iter().find(|(seat, _)| seat == own).map_or(0, |(_, n)| *n);
            let task: u32 = row.task.id.trim_start_matches('p').parse().unwrap();
            // One reply of each turn, which others replied to as they did: other rows depend on it.
            if number == task % 3 && numbers.iter().all(|(seat, _)| seat == own) {
                let words = said(episode);
                let read = (game.reads)(row.turn).map(|of| words[of]);
                let key = read.into_iter().chain([words[row.turn]]).collect();
                found.push((key, row.turn, *credit));
            }
        }
        game.compare_with(name, &found, 40, |key, turn| {
            let read = (key.len() > 1).then(|| key[0]);
            let (with, all) = game.reply_values(turn, read, key[key.len() - 1]);
            with - all
        });
    }
}

#[tokio::test]
async fn the_best_reply_of_each_turn_goes_on() {
    let game: &'static Game = &SEPARATE;
    let plan = siblings(game, BranchKeep::Best);
    let episodes = game.play(&plan).await;
    assert_eq!(episodes.len(), EPISODES as usize * (1 + 3 * game.turns));
    let reward = |episode: &Episode| episode.score().unwrap().reward;
    let (mut first, mut last) = (0.0, 0.0);
    for played in episodes.iter().filter(|episode| episode.branch.is_none()) {
        let of_task: Vec<&Episode> =
            episodes.iter().filter(|episode| episode.task.id == played.task.id).collect();
        let mut play = played;
        for turn in 0..game.turns {
            let at = &play.turns[turn].path;
            let others = of_task.iter().filter(|other| {
                other.branch.as_ref().is_some_and(|it| it.of == play.index && it.at == *at)
            });
            let others: Vec<&Episode> = others.copied().collect();
            assert_eq!(others.len(), 3, "turn {turn}");
            for other in &others {
                assert_eq!(other.turns[..turn], play.turns[..turn], "it begins like the best");
                let after = other.branch.as_ref().unwrap().after.as_deref();
                assert_eq!(after, play.branch.as_ref());
            }
            let better = others.iter().filter(|other| reward(other) > reward(play));
            let best =
                better.max_by(|a, b| reward(a).total_cmp(&reward(b)).then(b.index.cmp(&a.index)));
            play = best.copied().unwrap_or(play);
        }
        (first, last) = (first + reward(played), last + reward(play));
    }
    let (first, last) = (first / f64::from(EPISODES), last / f64::from(EPISODES));
    println!("mean reward of the played episodes {first:.3}, after the best replies {last:.3}");
    assert!(last > first + 0.2, "{first} {last}");
    let rows: Vec<Sample> = credits(&plan, &episodes).into_iter().map(|(row, _)| row).collect();
    let step = rewarded_step(&episodes, &rows, None, GroupBy::Branch);
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    step.branches.iter().flatten().for_each(|&id| *sizes.entry(id).or_default() += 1);
    assert_eq!(sizes.len(), EPISODES as usize * game.turns, "a branch at each turn");
    assert!(sizes.values().all(|&size| size == 4));
}

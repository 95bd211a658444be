#![allow(clippy::unwrap_used)]

use serde_json::Value;

use super::*;
use crate::algo::advantage::{EmaBaseline, GroupComparison, advantages, baselines, rewarded_step};
use crate::algo::samples;
use crate::algo::testing::{
    assert_close, branch_point, episode, learning, matrix, numbers, plan, turn,
};
use crate::config::{
    AdvantagePlan, BranchConfig, ContinuationsPlan, CounterfactualPlan, GroupBaseline, GroupPlan,
};
use crate::credit::{CPU, GroupBy, RewardedStep};
use crate::trajectory::{RewardOf, RewardPart, Seat};

/// Branches at a turn: rewards by reply, then play. The first reply is number `first`.
type Replies<'r> = (u32, u32, &'r [Vec<f64>]);

/// Returns an episode of so many turns of one seat with its branches.
fn branched(turns: u32, reward: f64, branches: &[Replies<'_>]) -> Vec<Episode> {
    let all = || (0..turns).map(|at| turn("t/a", at)).collect::<Vec<_>>();
    let mut episodes = vec![episode("p", 0, reward, all())];
    for &(at, first, replies) in branches {
        for (alternative, plays) in (first..).zip(replies) {
            for (continuation, &reward) in (0..).zip(plays) {
                // The played episode is the first play of reply 0.
                if (alternative, continuation) == (0, 0) {
                    continue;
                }
                let index = episodes.len() as u32;
                let at = TurnPath(vec![at]);
                let branch = branch_point(0, at, (alternative, continuation));
                episodes
                    .push(Episode { branch: Some(branch), ..episode("p", index, reward, all()) });
            }
        }
    }
    episodes
}

/// Returns the credit of each played turn.
fn credit(advantage: AdvantagePlan, episodes: &[Episode]) -> Vec<f64> {
    let mut plan = plan(&[("t/a", true)]);
    plan.algorithm.advantage = advantage;
    let mut rows = samples(episodes, &plan);
    baselines(&plan, episodes, &mut rows, &mut EmaBaseline::default(), &CPU);
    rows.iter().map(|row| row.reward - row.baseline).collect()
}

fn counterfactual(otherwise: Unbranched) -> AdvantagePlan {
    AdvantagePlan::Counterfactual(CounterfactualPlan { otherwise })
}

fn continuations(otherwise: Unbranched) -> AdvantagePlan {
    AdvantagePlan::Continuations(ContinuationsPlan { otherwise })
}

/// Returns rewards as those of replies with one play each.
fn one_play(rewards: &[f64]) -> Vec<Vec<f64>> {
    rewards.iter().map(|&reward| vec![reward]).collect()
}

#[test]
fn the_counterfactual_advantages_are_the_recorded_ones() {
    let case = learning("credit/counterfactual");
    let played = numbers(&case["inputs"]["played"]);
    let others = matrix(&case["inputs"]["resampled"]);
    let want = numbers(&case["outputs"]["advantages"]);
    for ((reward, others), want) in played.into_iter().zip(others).zip(want) {
        let episodes = branched(1, reward, &[(0, 1, &one_play(&others))]);
        let found = credit(counterfactual(Unbranched::Zero), &episodes);
        assert_close("counterfactual", &found, &[want], 1e-12);
    }
}

#[test]
fn the_advantages_of_continuations_are_the_recorded_ones() {
    let case = learning("credit/continuations");
    let plays: Vec<_> =
        matrix(&case["inputs"]["continuations"]).iter().map(|plays| one_play(plays)).collect();
    let reward = case["inputs"]["reward"].as_f64().unwrap();
    let branches: Vec<Replies<'_>> =
        (0..).zip(&plays).map(|(at, plays)| (at, 1, plays.as_slice())).collect();
    let episodes = branched(plays.len() as u32, reward, &branches);
    let found = credit(continuations(Unbranched::Zero), &episodes);
    assert_close("continuations", &found, &numbers(&case["outputs"]["advantages"]), 1e-12);
    let values = numbers(&case["outputs"]["values"]);
    assert_close("their sum", &[found.iter().sum()], &[reward - values[0]], 1e-12);
}

#[test]
fn every_reply_counts_once_whatever_its_number_of_plays() {
    let case = learning("credit/subtree_mean");
    let trees = case["inputs"]["leaves"].as_array().unwrap();
    let means = case["outputs"]["alternatives"].as_array().unwrap();
    let nodes = numbers(&case["outputs"]["node"]);
    for ((leaves, want), node) in trees.iter().map(matrix).zip(means).zip(nodes) {
        let found: Vec<f64> = leaves.iter().filter_map(|plays| mean(plays)).collect();
        assert_close("alternatives", &found, &numbers(want), 1e-12);
        assert_close("node", &[subtree_mean(&leaves).unwrap()], &[node], 1e-12);
        let episodes = branched(1, 0.0, &[(0, 1, &leaves)]);
        let found = credit(counterfactual(Unbranched::Zero), &episodes);
        assert_close("credit", &found, &[-node], 1e-12);
    }
}

/// A plan whose estimator compares the replies at a branch with the mean of the others.
fn siblings() -> Plan {
    let mut plan = plan(&[("t/a", true)]);
    plan.algorithm.advantage = AdvantagePlan::Group(GroupPlan {
        by: GroupBy::Branch,
        baseline: GroupBaseline::LeaveOneOut,
        normalize_std: false,
        ..GroupPlan::default()
    });
    plan
}

/// Returns the advantages of the rows of episodes, compared by branch.
fn compared(episodes: &[Episode]) -> (Vec<Sample>, Vec<f64>) {
    let plan = siblings();
    let mut rows = samples(episodes, &plan);
    average_plays(&plan, episodes, &mut rows);
    let comparison = GroupComparison::from(&plan.algorithm.advantage);
    let step = rewarded_step(episodes, &rows, None, comparison.by);
    let values = comparison.compare(&step.view()).values;
    (rows, values)
}

#[test]
fn the_advantages_of_siblings_are_the_recorded_ones() {
    let case = learning("credit/siblings");
    let means = matrix(&case["inputs"]["subtree_means"]);
    for (means, want) in means.iter().zip(matrix(&case["outputs"]["advantages"])) {
        let episodes = branched(1, means[0], &[(0, 0, &one_play(means))]);
        let (_, found) = compared(&episodes);
        assert_close("siblings", &found, &want, 1e-12);
    }
}

#[test]
fn a_reply_at_a_branch_is_one_row_with_the_mean_reward_of_its_plays() {
    let replies = [vec![1.0, 0.0], vec![0.0, 0.0], vec![1.0, 1.0]];
    let episodes = branched(2, 1.0, &[(1, 0, &replies)]);
    let (rows, advantages) = compared(&episodes);
    let places: Vec<(usize, f64)> = rows.iter().map(|row| (row.turn, row.reward)).collect();
    assert_eq!(places, [(0, 1.0), (1, 0.5), (1, 0.0), (1, 1.0)]);
    // The first turn has no branch, and no other turn to be compared with.
    assert_close("advantages", &advantages, &[0.0, 0.0, -0.75, 0.75], 1e-12);
}

/// Returns an episode of two turns of different seats, and its branches with all combinations of three replies of each.
fn joint(rewards: &[Vec<f64>]) -> Vec<Episode> {
    let seats = ["t/a", "t/b"];
    let mut episodes = Vec::new();
    for (first, rewards) in (0..).zip(rewards) {
        for (second, reward) in (0..).zip(rewards) {
            let mut turns: Vec<_> = (0..).zip(seats).map(|(at, seat)| turn(seat, at)).collect();
            for (turn, number) in turns.iter_mut().zip([first, second]) {
                turn.tokens.as_mut().unwrap().seed = number;
            }
            let drawn = seats.iter().zip([first, second]).filter(|(_, number)| *number > 0);
            let drawn: Vec<(Seat, u32)> =
                drawn.map(|(seat, number)| (Seat::only(*seat), number as u32)).collect();
            let index = episodes.len() as u32;
            let mut play = episode("p", index, *reward, turns);
            if let Some((seat, _)) = drawn.first() {
                let at = TurnPath(vec![u32::from(seat.agent == "t/b")]);
                play.branch = Some(BranchPoint { drawn, ..branch_point(0, at, (index, 0)) });
            }
            episodes.push(play);
        }
    }
    episodes
}

#[test]
fn the_returns_and_advantages_of_joint_actions_are_the_recorded_ones() {
    let case = learning("credit/cross");
    let episodes = joint(&matrix(&case["inputs"]["joint_rewards"]));
    let mut plan = plan(&[("t/a", true), ("t/b", true)]);
    plan.algorithm.advantage = AdvantagePlan::Group(GroupPlan {
        by: GroupBy::Branch,
        normalize_std: false,
        ..GroupPlan::default()
    });
    plan.config = plan.config.with(|config| {
        let keep = BranchKeep::All;
        config.rollout.branch = Some(BranchConfig { keep, ..BranchConfig::default() });
    });
    let mut rows = samples(&episodes, &plan);
    average_plays(&plan, &episodes, &mut rows);
    let comparison = GroupComparison::from(&plan.algorithm.advantage);
    let values = comparison.compare(&rewarded_step(&episodes, &rows, None, comparison.by).view());
    for seat in 0..2 {
        let of_seat = |values: Vec<f64>| {
            let own = rows.iter().zip(values).filter(|(row, _)| row.seat == seat);
            own.map(|(_, value)| value).collect::<Vec<_>>()
        };
        let returns = of_seat(rows.iter().map(|row| row.reward).collect());
        assert_close("returns", &returns, &matrix(&case["outputs"]["returns"])[seat], 1e-12);
        let advantages = of_seat(values.values.clone());
        let want = &matrix(&case["outputs"]["advantages"])[seat];
        assert_close("advantages", &advantages, want, 1e-12);
    }
}

#[test]
fn aligned_joint_actions_are_the_episodes_of_a_task() {
    let case = learning("credit/aligned");
    let rewards = matrix(&case["inputs"]["joint_rewards"]);
    let turns = || vec![turn("t/a", 0), turn("t/b", 1)];
    let episodes: Vec<Episode> =
        (0..3).map(|at| episode("p", at as u32, rewards[at][at], turns())).collect();
    let mut plan = plan(&[("t/a", true), ("t/b", true)]);
    plan.algorithm.advantage =
        AdvantagePlan::Group(GroupPlan { normalize_std: false, ..GroupPlan::default() });
    let rows = samples(&episodes, &plan);
    let found = advantages(&episodes, &rows, &plan.algorithm, &CPU);
    for (seat, want) in matrix(&case["outputs"]["advantages"]).into_iter().enumerate() {
        let own = rows.iter().zip(&found.values).filter(|(row, _)| row.seat == seat);
        let own: Vec<f64> = own.map(|(_, value)| *value).collect();
        assert_close("aligned", &own, &want, 1e-12);
    }
}

#[test]
fn seats_may_have_groups_of_their_own() {
    let case = learning("credit/hierarchical");
    let proposed = numbers(&case["inputs"]["proposer"]);
    let solved = matrix(&case["inputs"]["solver"]);
    let mut episodes = Vec::new();
    for (index, (own, solvers)) in (0..).zip(proposed.iter().zip(&solved)) {
        let mut turns = vec![turn("pair/proposer", 0)];
        turns.extend((1..).zip(solvers).map(|(at, _)| turn("pair/solver", at)));
        let mut played = episode("p", index, 0.0, turns);
        for (turn, &value) in std::iter::once(own).chain(solvers).enumerate() {
            let of = RewardOf::Turn(turn);
            played.rewards.push(RewardPart { name: "own".to_owned(), value, of });
        }
        episodes.push(played);
    }
    let mut plan = plan(&[("pair/proposer", true), ("pair/solver", true)]);
    let by_seat = [("pair/solver".to_owned(), GroupBy::EpisodeSeat)].into();
    plan.algorithm.advantage =
        AdvantagePlan::Group(GroupPlan { by_seat, normalize_std: false, ..GroupPlan::default() });
    let rows = samples(&episodes, &plan);
    let found = advantages(&episodes, &rows, &plan.algorithm, &CPU);
    let of_seat = |seat| {
        let own = rows.iter().zip(&found.values).filter(|(row, _)| row.seat == seat);
        own.map(|(_, value)| *value).collect::<Vec<f64>>()
    };
    assert_close("proposer", &of_seat(0), &numbers(&case["outputs"]["proposer"]), 1e-12);
    let want = matrix(&case["outputs"]["solver"]).concat();
    assert_close("solver", &of_seat(1), &want, 1e-12);
    assert_eq!(found.groups.count, 4);
}

#[test]
fn turns_without_branches_are_compared_with_the_played_turns_of_their_seat() {
    let one = vec![vec![0.0], vec![1.0]];
    let mut episodes = branched(1, 1.0, &[(0, 1, &one)]);
    episodes.push(episode("p", 1, 0.0, vec![turn("t/a", 0)]));
    for kind in [counterfactual as fn(_) -> _, continuations] {
        assert_eq!(credit(kind(Unbranched::Group), &episodes), [0.5, -0.5]);
        assert_eq!(credit(kind(Unbranched::Zero), &episodes), [0.5, 0.0]);
    }
}

#[test]
fn a_state_without_a_value_gives_no_difference() {
    // The second turn has branches, the third has none: the second has no value after it.
    let one = vec![vec![0.25]];
    let episodes = branched(3, 1.0, &[(0, 1, &one), (1, 1, &one)]);
    let found = credit(continuations(Unbranched::Zero), &episodes);
    assert_eq!(found, [0.0, 0.0, 0.0]);
    let found = credit(counterfactual(Unbranched::Zero), &episodes);
    assert_eq!(found, [0.75, 0.75, 0.0]);
}

#[test]
fn groups_are_the_recorded_ones() {
    for (by, name) in [
        (GroupBy::TaskTurn, "task"),
        (GroupBy::TaskSeat, "task_seat"),
        (GroupBy::TaskSeatTurn, "task_seat_turn"),
    ] {
        let case = learning(&format!("credit/groups/{name}"));
        let rows = case["inputs"]["rows"].as_array().unwrap();
        let id = |row: &Value, key: &str| row[key].as_u64().unwrap() as usize;
        let mut step = RewardedStep {
            rewards: numbers(&case["inputs"]["rewards"]),
            tasks: rows.iter().map(|row| id(row, "task")).collect(),
            episodes: rows.iter().map(|row| 10 * id(row, "task") + id(row, "episode")).collect(),
            seats: rows.iter().map(|row| usize::from(row["seat"] == "b")).collect(),
            turns: rows.iter().map(|row| id(row, "turn")).collect(),
            ..RewardedStep::default()
        };
        (step.units, step.groups) = step.view().ids(by);
        let group = GroupPlan { by, normalize_std: false, ..GroupPlan::default() };
        let found = GroupComparison::from(&group).compare(&step.view());
        let want: Vec<usize> =
            numbers(&case["outputs"]["groups"]).into_iter().map(|group| group as usize).collect();
        assert_eq!(step.groups, want, "{name}");
        assert_close(name, &found.values, &numbers(&case["outputs"]["advantages"]), 1e-12);
    }
}

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::*;
use crate::algo::testing::{branch_point, episode, plan, turn};
use crate::config::{
    AdvantagePlan, ContinuationsPlan, CounterfactualPlan, GroupBy, GroupPlan, ShapleyPlan,
};
use crate::trajectory::{Fault, FaultKind, Outcome};

fn branched(advantage: AdvantagePlan, config: BranchConfig) -> Plan {
    let mut plan = plan(&[("t/a", true), ("t/b", true), ("t/frozen", false)]);
    plan.algorithm.advantage = advantage;
    plan.config = plan.config.with(|written| {
        written.rollout.branch = Some(config);
        written.task.group_size = NonZeroU32::new(2).unwrap();
    });
    plan
}

fn config(width: u32, continuations: u32) -> BranchConfig {
    BranchConfig {
        width: NonZeroU32::new(width).unwrap(),
        continuations: NonZeroU32::new(continuations).unwrap(),
        ..BranchConfig::default()
    }
}

fn counterfactual() -> AdvantagePlan {
    AdvantagePlan::Counterfactual(CounterfactualPlan::default())
}

/// Two episodes of a task: a, frozen, b, a.
fn played() -> Vec<Episode> {
    let turns = || vec![turn("t/a", 0), turn("t/frozen", 1), turn("t/b", 2), turn("t/a", 3)];
    (0..2).map(|index| episode("p", index, 1.0, turns())).collect()
}

/// Episode, turn, alternative and continuation of each branch.
fn places(planned: &[PlannedBranch]) -> Vec<(u32, u32, u32, u32)> {
    let place = |branch: &PlannedBranch| {
        let BranchPoint { of, at, alternative, continuation, .. } = &branch.point;
        (*of, at.0[0], *alternative, *continuation)
    };
    planned.iter().map(place).collect()
}

#[test]
fn every_turn_of_a_trained_seat_gets_as_many_branches_as_there_are_other_replies() {
    let plan = branched(counterfactual(), config(3, 1));
    let found = places(&branches(&plan, &played()));
    let turns: Vec<(u32, u32)> = found.iter().map(|&(of, turn, ..)| (of, turn)).collect();
    let each = [(0, 0), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)];
    assert_eq!(turns, each.iter().flat_map(|&turn| [turn; 2]).collect::<Vec<_>>());
    assert_eq!(&found[..2], [(0, 0, 1, 0), (0, 0, 2, 0)]);
}

#[test]
fn the_played_reply_gets_further_plays_if_there_are_several() {
    let plan = branched(counterfactual(), BranchConfig { at: BranchTurns::Last, ..config(2, 2) });
    let found = places(&branches(&plan, &played()[..1]));
    let at = |turn| [(0, turn, 0, 1), (0, turn, 1, 0), (0, turn, 1, 1)];
    assert_eq!(found, [at(2), at(3)].concat());
}

#[test]
fn values_of_states_need_branches_at_the_next_turn_too_whoever_takes_it() {
    let config = BranchConfig { seats: vec!["t/a".to_owned()], ..config(3, 1) };
    let plan = branched(AdvantagePlan::Continuations(ContinuationsPlan::default()), config);
    let found = places(&branches(&plan, &played()[..1]));
    let turns: BTreeSet<u32> = found.iter().map(|&(_, turn, ..)| turn).collect();
    assert_eq!(turns, BTreeSet::from([0, 1, 3]), "those of `t/a`, and the one after its first");
    assert!(found.iter().all(|&(_, _, alternative, _)| alternative > 0), "{found:?}");
}

#[test]
fn turns_are_chosen_by_seat_and_place() {
    let chosen = |at, seats: &[&str]| {
        let seats = seats.iter().map(|&seat| seat.to_owned()).collect();
        let plan = branched(counterfactual(), BranchConfig { at, seats, ..config(2, 1) });
        let found = places(&branches(&plan, &played()[..1]));
        found.into_iter().map(|(_, turn, ..)| turn).collect::<Vec<u32>>()
    };
    assert_eq!(chosen(BranchTurns::First, &[]), [0, 2]);
    assert_eq!(chosen(BranchTurns::Last, &["t/a"]), [3]);
    assert_eq!(chosen(BranchTurns::Every, &["t/b"]), [2]);
    let random = chosen(BranchTurns::Random, &["t/a"]);
    assert!(random == [0] || random == [3], "{random:?}");
}

#[test]
fn a_larger_budget_adds_branches_and_changes_none() {
    let all = |turns| {
        let plan = branched(counterfactual(), BranchConfig { turns, ..config(3, 2) });
        branches(&plan, &played())
    };
    let whole = all(0);
    let mut before: Vec<PlannedBranch> = Vec::new();
    for budget in [1, 10, 20, 40, 80, 1_000] {
        let found = all(budget);
        assert!(before.iter().all(|branch| found.contains(branch)), "{budget}");
        assert!(found.iter().all(|branch| whole.contains(branch)), "{budget}");
        before = found;
    }
    assert_eq!(before, whole);
    assert!(all(1).is_empty());
    let sampled = |branch: &PlannedBranch| {
        let left = 4 - u64::from(branch.point.at.0[0]);
        left - u64::from(branch.point.alternative == 0)
    };
    let spent: u64 = all(20).iter().map(sampled).sum();
    assert!((1..=20).contains(&spent), "{spent}");
    let indices: BTreeSet<u32> = whole.iter().map(|branch| branch.index).collect();
    assert_eq!(indices.len(), whole.len());
    assert!(indices.iter().all(|&index| index >= 2), "those of the group are below");
}

#[test]
fn unscored_episodes_branches_and_masked_turns_get_no_branches() {
    let plan = branched(counterfactual(), config(2, 1));
    let mut episodes = played();
    episodes[0].outcome = Outcome::Unscored(Fault::new(FaultKind::Worker, "gone"));
    episodes[1].turns[0].masked = true;
    episodes[1].turns[2].tokens = None;
    let mut branch = played().remove(0);
    branch.branch = Some(branch_point(1, TurnPath(vec![0]), (1, 0)));
    episodes.push(branch);
    assert_eq!(places(&branches(&plan, &episodes)), [(1, 3, 1, 0)]);
    let group = |by| AdvantagePlan::Group(GroupPlan { by, ..GroupPlan::default() });
    let plan = branched(group(GroupBy::TaskSeat), config(2, 1));
    assert!(branches(&plan, &played()).is_empty(), "nothing compares branches");
    let plan = branched(group(GroupBy::Branch), config(2, 1));
    assert_eq!(branches(&plan, &played()).len(), 6);
}

fn shapley() -> AdvantagePlan {
    AdvantagePlan::Shapley(ShapleyPlan::default())
}

fn replies() -> AdvantagePlan {
    AdvantagePlan::Group(GroupPlan { by: GroupBy::Branch, ..GroupPlan::default() })
}

/// Drawn seats of each branch, in short.
fn drawn(planned: &[PlannedBranch]) -> Vec<String> {
    let one = |(seat, number): &(Seat, u32)| format!("{}{number}", &seat.agent[2..]);
    let all = |branch: &PlannedBranch| branch.point.drawn.iter().map(one).collect::<String>();
    planned.iter().map(all).collect()
}

#[test]
fn every_coalition_but_that_of_all_seats_gets_a_branch_for_each_number() {
    let plan = branched(shapley(), config(3, 1));
    let found = branches(&plan, &played()[..1]);
    assert_eq!(drawn(&found), ["a1", "a2", "a1b1", "a2b2", "b1", "b2"]);
    let places = places(&found);
    let at: Vec<u32> = places.iter().map(|place| place.1).collect();
    assert_eq!(at, [0, 0, 0, 0, 2, 2], "the first turn of an absent seat");
    let mut without = played();
    without[0].turns.retain(|turn| turn.seat.agent != "t/b");
    let found = branches(&plan, &without[..1]);
    assert_eq!(drawn(&found), ["a1", "a2", "a1b1", "a2b2"], "`t/b` was not asked");
}

#[test]
fn a_budget_gives_whole_episodes_their_coalitions() {
    let at = |turns| {
        let plan = branched(shapley(), BranchConfig { turns, ..config(2, 1) });
        branches(&plan, &played())
    };
    let (whole, some) = (at(0), at(10));
    assert_eq!((whole.len(), some.len()), (6, 3), "4 + 4 + 2 turns of each episode");
    assert!(some.iter().all(|branch| whole.contains(branch)));
    assert!(at(9).is_empty());
}

#[test]
fn more_than_four_seats_have_random_orders() {
    assert_eq!(orders(3, 8, 1).len(), 6);
    let four: BTreeSet<Vec<usize>> = orders(4, 8, 1).into_iter().collect();
    assert_eq!(four.len(), 24, "each once");
    let five = orders(5, 8, 1);
    assert_eq!(five.len(), 8);
    for order in &five {
        let seats: BTreeSet<usize> = order.iter().copied().collect();
        assert_eq!(seats, (0..5).collect());
    }
    assert_eq!(five, orders(5, 8, 1));
    assert_ne!(five, orders(5, 8, 2));
    let more = orders(5, 16, 1);
    assert_eq!(more[..8], five, "more of them change none");
    assert_eq!(absent_seats(&[2, 0, 1], 1), [0, 1]);
}

#[test]
fn all_replies_of_each_seat_are_played_with_all_of_the_others() {
    let plan = branched(replies(), BranchConfig { keep: BranchKeep::All, ..config(3, 1) });
    let found = branches(&plan, &played()[..1]);
    assert_eq!(drawn(&found), ["a1", "a2", "b1", "a1b1", "a2b1", "b2", "a1b2", "a2b2"]);
    assert!(further_branches(&plan, &played(), &[]).is_empty());
}

#[test]
fn the_next_branches_begin_after_the_best_reply() {
    let plan = branched(replies(), BranchConfig { keep: BranchKeep::Best, ..config(3, 1) });
    let mut episodes = played();
    episodes.truncate(1);
    let first = branches(&plan, &episodes);
    assert_eq!(places(&first), [(0, 0, 1, 0), (0, 0, 2, 0)]);
    let rewards = [0.5, 3.0];
    for (branch, reward) in first.iter().zip(rewards) {
        let turns = episodes[0].turns.clone();
        let play = episode("p", branch.index, reward, turns);
        episodes.push(Episode { branch: Some(branch.point.clone()), ..play });
    }
    let second = further_branches(&plan, &episodes, &[]);
    let best = first[1].index;
    assert_eq!(places(&second), [(best, 2, 1, 0), (best, 2, 2, 0)]);
    let after = second[0].point.after.as_deref();
    assert_eq!((after, second[0].episode), (Some(&first[1].point), 2));
    // The played reply goes on if no other is better.
    episodes[1].outcome = episodes[0].outcome.clone();
    episodes[2].outcome = Outcome::Unscored(Fault::new(FaultKind::Worker, "gone"));
    let second = further_branches(&plan, &episodes, &[]);
    assert_eq!(places(&second), [(0, 2, 1, 0), (0, 2, 2, 0)]);
    assert_eq!(second[0].index, first[1].index + 1);
}

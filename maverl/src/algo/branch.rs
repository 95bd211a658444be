//! Choice of the turns of played episodes that get branches, and of their branches.

mod best;
mod drawn;
mod rows;

pub(super) use drawn::{absent_seats, orders};
pub(super) use rows::{PromptReplies, branch_rows};

use std::collections::{BTreeMap, BTreeSet};

use maverl_kernels::sample::derive_seed;

use crate::algo::TaskKey;
use crate::config::{BranchConfig, BranchKeep, BranchTurns, BranchUse, KnownBaseline};
use crate::plan::Plan;
use crate::trajectory::{BranchPoint, Episode, Seat, Turn, TurnPath};

/// Counter of the random order in which turns get branches.
const ORDER: u64 = 1;
/// Counter of the random turn of a seat.
const CHOICE: u64 = 2;

/// A branch to play.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedBranch {
    /// Index of the episode that it begins like, in the step's episodes.
    pub(crate) episode: usize,
    /// Index of the branch among the episodes of its task.
    pub(crate) index: u32,
    /// Place at which it leaves that episode.
    pub(crate) point: BranchPoint,
}

/// Returns the branches of the played episodes of a step, in the order of tasks, episodes, turns and alternatives; none if the
/// estimator compares no branches.
///
/// The branches of a turn and their indices depend on the episodes of its task alone: a larger budget adds branches, and changes
/// none. Unscored episodes have none.
pub(crate) fn branches(plan: &Plan, episodes: &[Episode]) -> Vec<PlannedBranch> {
    let Some(purpose) = plan.algorithm.advantage.branches() else { return Vec::new() };
    let config = plan.config.rollout.branch.clone().unwrap_or_default();
    let seats = branched_seats(plan);
    let permutations = match plan.algorithm.advantage.baseline() {
        KnownBaseline::Shapley { permutations, .. } => permutations,
        _ => 0,
    };
    let of_task = TaskBranches { config: &config, purpose, permutations, seats: &seats, episodes };
    let mut tasks: BTreeMap<TaskKey, [Vec<usize>; 2]> = BTreeMap::new();
    for (index, episode) in episodes.iter().enumerate() {
        let of_task = tasks.entry(TaskKey::of(episode)).or_default();
        let same_kind = &mut of_task[usize::from(episode.branch.is_some())];
        // A task that was drawn twice in a step has equal episodes, whose branches are equal too.
        if !same_kind.iter().any(|&other| episodes[other].index == episode.index) {
            same_kind.push(index);
        }
    }
    let group = plan.config.task.group_size.get();
    let chosen = tasks.into_values().flat_map(|[played, branches]| match config.keep {
        BranchKeep::Best => of_task.after_best(&played, &branches, group),
        _ => of_task.plan(&played, group),
    });
    chosen.collect()
}

/// Returns the branches that begin after the best replies of the branches that were played; none if branches begin after the replies
/// of played episodes alone. Their indices of episodes count the played ones, then the branches.
pub(crate) fn further_branches(
    plan: &Plan,
    played: &[Episode],
    branches_so_far: &[Episode],
) -> Vec<PlannedBranch> {
    let config = plan.config.rollout.branch.as_ref();
    match config.map_or_else(BranchKeep::default, |config| config.keep) {
        BranchKeep::Best => branches(plan, &[played, branches_so_far].concat()),
        BranchKeep::Played | BranchKeep::All => Vec::new(),
    }
}

/// Returns the reward of the turn of a path in an episode; `None` without the turn, or if it is not scored.
pub(super) fn reward_at(play: &Episode, path: &TurnPath) -> Option<f64> {
    let turn = play.turns.iter().position(|turn| turn.path == *path)?;
    play.turn_reward(turn)
}

/// Returns the trained seats at whose turns branches begin.
pub(super) fn branched_seats(plan: &Plan) -> Vec<Seat> {
    let names = plan.config.rollout.branch.iter().flat_map(|config| &config.seats);
    let named: Vec<Seat> = names.filter_map(|name| Seat::try_from(name.clone()).ok()).collect();
    let trained = plan.seats.iter().filter(|seat| seat.trained).map(|seat| &seat.seat);
    let chosen = trained.filter(|seat| named.is_empty() || named.iter().any(|it| it.covers(seat)));
    chosen.cloned().collect()
}

/// Choice of the branches of one task.
struct TaskBranches<'a> {
    config: &'a BranchConfig,
    purpose: BranchUse,
    /// Number of random orders of the seats.
    permutations: u32,
    seats: &'a [Seat],
    episodes: &'a [Episode],
}

/// A turn: the index of its episode, and its own in the episode.
type TurnPlace = (usize, usize);

impl TaskBranches<'_> {
    /// Returns the branches within the budget of the task, whose played episodes are `members`. Indices begin at `first`.
    fn plan(&self, members: &[usize], first: u32) -> Vec<PlannedBranch> {
        if self.purpose == BranchUse::Coalitions || self.config.keep == BranchKeep::All {
            return self.plan_drawn(members, first);
        }
        let mut turns: Vec<TurnPlace> = Vec::new();
        for &episode in members.iter().filter(|&&at| self.episodes[at].score().is_some()) {
            turns.extend(
                self.turns(&self.episodes[episode]).into_iter().map(|turn| (episode, turn)),
            );
        }
        let kept = self.within_budget(&turns);
        let mut places: Vec<TurnPlace> =
            turns.iter().flat_map(|&turn| self.branch_places(turn)).collect();
        places.sort_unstable();
        places.dedup();
        let mut planned = Vec::new();
        let mut index = first;
        for place in places {
            for point in self.points(place) {
                if kept.contains(&place) {
                    planned.push(PlannedBranch { episode: place.0, index, point });
                }
                index += 1;
            }
        }
        planned
    }

    /// Returns the indices of the turns of an episode whose advantages come from branches.
    fn turns(&self, episode: &Episode) -> Vec<usize> {
        let mut chosen: Vec<usize> = Vec::new();
        for seat in self.seats {
            let own = turns_of_seat(episode, seat);
            match self.config.at {
                BranchTurns::Every => chosen.extend(own),
                BranchTurns::First => chosen.extend(own.first()),
                BranchTurns::Last => chosen.extend(own.last()),
                BranchTurns::Random => chosen.extend(random_turn(episode, &own)),
            }
        }
        chosen.sort_unstable();
        chosen
    }

    /// Returns the places at which the advantage of a turn needs branches: its own, and that of the next turn if values of states
    /// are compared.
    fn branch_places(&self, (episode, turn): TurnPlace) -> Vec<TurnPlace> {
        let next = (episode, turn + 1);
        let has_next = turn + 1 < self.episodes[episode].turns.len();
        match self.purpose {
            BranchUse::States if has_next => vec![(episode, turn), next],
            _ => vec![(episode, turn)],
        }
    }

    /// Returns the places with branches: those of turns in a random order, up to the first that would exceed the budget.
    fn within_budget(&self, turns: &[TurnPlace]) -> BTreeSet<TurnPlace> {
        let mut order: Vec<TurnPlace> = turns.to_vec();
        if self.config.turns > 0 {
            order.sort_by_key(|&place| (self.random_number(place), place));
        }
        let (mut kept, mut spent) = (BTreeSet::new(), 0);
        for turn in order {
            let mut added = self.branch_places(turn);
            added.retain(|place| !kept.contains(place));
            spent += added.iter().map(|&place| self.cost(place)).sum::<u64>();
            if self.config.turns > 0 && spent > self.config.turns {
                break;
            }
            kept.extend(added);
        }
        kept
    }

    /// Returns the branches at a place.
    fn points(&self, (episode, turn): TurnPlace) -> Vec<BranchPoint> {
        let episode = &self.episodes[episode];
        let (of, at) = (episode.index, &episode.turns[turn].path);
        let after = episode.branch.clone().map(Box::new);
        let numbers = self.numbers().into_iter();
        numbers
            .map(|(alternative, continuation)| BranchPoint {
                of,
                at: at.clone(),
                alternative,
                continuation,
                after: after.clone(),
                drawn: Vec::new(),
            })
            .collect()
    }

    /// Returns the numbers of alternatives and continuations of the branches at a place. The played episode is continuation 0 of
    /// alternative 0; the value of a state is that of sampled replies alone.
    fn numbers(&self) -> Vec<(u32, u32)> {
        let (width, continuations) = (self.config.width.get(), self.config.continuations.get());
        let first = u32::from(self.purpose == BranchUse::States);
        let all = (first..width)
            .flat_map(|alternative| (0..continuations).map(move |n| (alternative, n)));
        all.filter(|numbers| *numbers != (0, 0)).collect()
    }

    /// Returns the number of turns that the branches at a place sample, if they have as many as the played episode.
    fn cost(&self, (episode, turn): TurnPlace) -> u64 {
        let left = self.episodes[episode].turns.len() - turn;
        let cost = |&(alternative, _): &(u32, u32)| left as u64 - u64::from(alternative == 0);
        self.numbers().iter().map(cost).sum()
    }

    /// Returns the number that decides when a turn gets branches.
    fn random_number(&self, (episode, turn): TurnPlace) -> u64 {
        let episode = &self.episodes[episode];
        derive_seed(episode.turns[turn].path.seed(episode.seed), ORDER)
    }
}

/// Returns one of the turns of a seat.
fn random_turn(episode: &Episode, own: &[usize]) -> Option<usize> {
    let first = &episode.turns[*own.first()?];
    let random = derive_seed(first.path.seed(episode.seed), CHOICE);
    Some(own[(random % own.len() as u64) as usize])
}

/// Returns the indices of the turns of a seat that may be trained on.
fn turns_of_seat(episode: &Episode, seat: &Seat) -> Vec<usize> {
    let is_row = |turn: &Turn| turn.seat == *seat && turn.tokens.is_some() && !turn.masked;
    (0..episode.turns.len()).filter(|&at| is_row(&episode.turns[at])).collect()
}

#[cfg(test)]
mod tests;

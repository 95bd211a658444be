//! Branches in which whole seats have other random numbers: coalitions of seats that keep theirs (Shapley values), and replies of
//! each seat with all replies of the others (joint actions).

use std::collections::BTreeSet;

use maverl_kernels::sample::derive_seed;

use crate::algo::branch::{ORDER, PlannedBranch, TaskBranches};
use crate::config::BranchUse;
use crate::trajectory::{BranchPoint, Episode, Seat};

/// Counter of the random orders of seats.
const SEAT_ORDER: u64 = 3;
/// Most seats of which all orders are taken.
const ALL_ORDERS: usize = 4;

impl TaskBranches<'_> {
    /// Returns the branches of the episodes `members` in which seats are drawn: of as many episodes, in a random order, as the
    /// budget allows. Indices begin at `first`.
    pub(super) fn plan_drawn(&self, members: &[usize], first: u32) -> Vec<PlannedBranch> {
        let scored = members.iter().copied().filter(|&at| self.episodes[at].score().is_some());
        let points: Vec<(usize, Vec<BranchPoint>)> =
            scored.map(|at| (at, self.drawn_points(&self.episodes[at]))).collect();
        let kept = self.episodes_within_budget(&points);
        let (mut planned, mut index) = (Vec::new(), first);
        for (episode, points) in points {
            for point in points {
                if kept.contains(&episode) {
                    planned.push(PlannedBranch { episode, index, point });
                }
                index += 1;
            }
        }
        planned
    }

    /// Returns the episodes that get their branches.
    fn episodes_within_budget(&self, points: &[(usize, Vec<BranchPoint>)]) -> BTreeSet<usize> {
        let budget = self.config.turns;
        let mut order: Vec<&(usize, Vec<BranchPoint>)> = points.iter().collect();
        if budget > 0 {
            order.sort_by_key(|(at, _)| (derive_seed(self.episodes[*at].seed, ORDER), *at));
        }
        let (mut kept, mut spent) = (BTreeSet::new(), 0);
        for (at, points) in order {
            let turns = &self.episodes[*at].turns;
            let left = |point: &BranchPoint| turns.iter().filter(|it| it.path >= point.at).count();
            spent += points.iter().map(left).sum::<usize>() as u64;
            if budget > 0 && spent > budget {
                break;
            }
            kept.insert(*at);
        }
        kept
    }

    /// Returns the branches of an episode.
    fn drawn_points(&self, episode: &Episode) -> Vec<BranchPoint> {
        let drawn = match self.purpose {
            BranchUse::Coalitions => self.absences(episode.seed),
            _ => self.combinations(episode),
        };
        let points = drawn.into_iter().filter_map(|(alternative, drawn)| {
            let is_drawn = |seat: &Seat| drawn.iter().any(|(of, _)| of == seat);
            let first = episode.turns.iter().find(|turn| is_drawn(&turn.seat))?;
            let (of, at) = (episode.index, first.path.clone());
            Some(BranchPoint { of, at, alternative, continuation: 0, after: None, drawn })
        });
        points.collect()
    }

    /// Returns the absent seats of each coalition of an episode with a seed, with each number that they may have.
    fn absences(&self, seed: u64) -> Vec<Drawn> {
        let orders = orders(self.seats.len(), self.permutations, seed);
        let mut drawn = Vec::new();
        for absent in coalitions(&orders) {
            for number in 1..self.config.width.get() {
                let seats = absent.iter().map(|&seat| (self.seats[seat].clone(), number));
                drawn.push((number, seats.collect()));
            }
        }
        drawn
    }

    /// Returns each combination of the replies of the seats of an episode, but for the played one.
    fn combinations(&self, episode: &Episode) -> Vec<Drawn> {
        let width = self.config.width.get();
        let asked = |seat: &&Seat| episode.turns.iter().any(|turn| turn.seat == **seat);
        let seats: Vec<&Seat> = self.seats.iter().filter(asked).collect();
        let count = width.saturating_pow(seats.len() as u32);
        (1..count).map(|number| (number, replies(&seats, width, number))).collect()
    }
}

/// Number of a branch, and the seats that are drawn in it with their numbers.
type Drawn = (u32, Vec<(Seat, u32)>);

/// Returns the numbers of the replies of seats in a combination: the digits of its number. 0 is the played reply.
fn replies(seats: &[&Seat], width: u32, number: u32) -> Vec<(Seat, u32)> {
    let mut rest = number;
    let digits = seats.iter().map(|&seat| {
        let digit = rest % width;
        rest /= width;
        (seat.clone(), digit)
    });
    digits.filter(|(_, digit)| *digit > 0).collect()
}

/// Returns the orders of a number of seats over which their marginal contributions are averaged: all of them for up to four seats,
/// or else random ones of an episode with a seed.
pub(in crate::algo) fn orders(seats: usize, permutations: u32, seed: u64) -> Vec<Vec<usize>> {
    if seats > ALL_ORDERS {
        let seed = derive_seed(seed, SEAT_ORDER);
        let order = |number: u32| random_order(seats, derive_seed(seed, u64::from(number)));
        return (0..permutations).map(order).collect();
    }
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for seat in 0..seats {
        let with = |order: &Vec<usize>| (0..=seat).map(|at| inserted(order, at, seat)).collect();
        orders = orders.iter().flat_map::<Vec<Vec<usize>>, _>(with).collect();
    }
    orders
}

/// Returns an order with one seat more, at a place.
fn inserted(order: &[usize], at: usize, seat: usize) -> Vec<usize> {
    [&order[..at], &[seat], &order[at..]].concat()
}

/// Returns a random order of seats (Fisher-Yates).
fn random_order(seats: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..seats).collect();
    for last in (1..seats).rev() {
        let at = derive_seed(seed, last as u64) % (last as u64 + 1);
        order.swap(last, at as usize);
    }
    order
}

/// Returns the seats of an order that are absent while its first ones are there, sorted.
pub(in crate::algo) fn absent_seats(order: &[usize], there: usize) -> Vec<usize> {
    let mut absent = order[there..].to_vec();
    absent.sort_unstable();
    absent
}

/// Returns the absent seats of every coalition whose value the orders need, but for that of all seats.
fn coalitions(orders: &[Vec<usize>]) -> BTreeSet<Vec<usize>> {
    let of_order = |order: &Vec<usize>| {
        (0..order.len()).map(|there| absent_seats(order, there)).collect::<Vec<_>>()
    };
    orders.iter().flat_map(of_order).collect()
}

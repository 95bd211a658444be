//! Branches: episodes that begin with recorded turns of another episode.

use maverl_kernels::sample::derive_seed;
use serde::{Deserialize, Serialize};

use super::{Episode, Seat, Turn, TurnPath};

/// Counter that separates the random numbers of branches from those of other episodes.
const BRANCH: u64 = 0x6272_616e_6368;

/// Place of a branch: the turn at which it leaves the episode that it begins like.
///
/// Turns before that one have the recorded replies. Alternative 0 also has the recorded reply of that one. All other turns
/// are sampled, with random numbers of their own:
///
/// ```text
/// s = derive(derive(seed of turn `at`, "branch"), alternative)
/// turn `at`      seed derive(s, 0): all continuations of an alternative have the same reply
/// later turns    seed of their path in an episode with the seed derive(s, 1 + continuation)
/// ```
///
/// So a branch depends on its episode, `at`, `alternative` and `continuation`, and on no other branch.
///
/// If it begins like a branch, turns with a recorded reply have the seeds that they have there.
///
/// If seats are drawn, what decides is not the turn but the seat: a turn of a drawn seat has the seed of its path in an episode
/// with the seed `derive(derive(seed of the episode, "branch"), number)`, and a turn of another seat has that of the episode. So
/// a seat with the same number and the same prompt has the same reply in every branch. `at` is the first turn of a drawn seat.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BranchPoint {
    /// Index of the episode that it begins like, among those of the task.
    pub of: u32,
    /// Path of the turn.
    pub at: TurnPath,
    /// Number of the reply at the turn; 0 is the recorded one.
    pub alternative: u32,
    /// Number of the branch among those with this reply.
    pub continuation: u32,
    /// Place of the branch that it begins like; `None` if it begins like a played episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Box<BranchPoint>>,
    /// Seats with other random numbers than in the episode, wherever they are asked, and the numbers of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn: Vec<(Seat, u32)>,
}

impl BranchPoint {
    /// Returns true if the turn of a path has the recorded reply.
    pub fn recalls(&self, path: &TurnPath) -> bool {
        *path < self.at || (*path == self.at && self.alternative == 0)
    }

    /// Returns the seed of the request of a turn of a seat, in a branch of an episode with a seed.
    fn seed(&self, episode: u64, path: &TurnPath, seat: &Seat) -> u64 {
        if self.recalls(path) {
            return request_seed(episode, self.after.as_deref(), path, seat);
        }
        if !self.drawn.is_empty() {
            let number = self.drawn.iter().find(|(drawn, _)| drawn == seat);
            let of_number = |(_, number): &(Seat, u32)| {
                derive_seed(derive_seed(episode, BRANCH), u64::from(*number))
            };
            return path.seed(number.map_or(episode, of_number));
        }
        let at = derive_seed(self.at.seed(episode), BRANCH);
        let alternative = derive_seed(at, u64::from(self.alternative));
        if *path == self.at {
            return derive_seed(alternative, 0);
        }
        path.seed(derive_seed(alternative, 1 + u64::from(self.continuation)))
    }
}

/// Returns the seed of the request of a turn of a seat, in an episode with a seed.
pub(crate) fn request_seed(
    episode: u64,
    branch: Option<&BranchPoint>,
    path: &TurnPath,
    seat: &Seat,
) -> u64 {
    branch.map_or_else(|| path.seed(episode), |branch| branch.seed(episode, path, seat))
}

impl Episode {
    /// Returns true if the turn of a path has a recorded reply of another episode.
    pub fn recalls(&self, path: &TurnPath) -> bool {
        self.branch.as_ref().is_some_and(|branch| branch.recalls(path))
    }

    /// Returns true if the request of a turn has the random numbers that it has in the played episode of the task.
    pub(crate) fn repeats(&self, turn: &Turn) -> bool {
        let Turn { path, seat, .. } = turn;
        let own = request_seed(self.seed, self.branch.as_ref(), path, seat);
        self.branch.is_some() && (self.recalls(path) || own == path.seed(self.seed))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn point(at: &[u32], alternative: u32, continuation: u32) -> BranchPoint {
        let (after, drawn) = (None, Vec::new());
        BranchPoint { of: 0, at: TurnPath(at.to_vec()), alternative, continuation, after, drawn }
    }

    /// Seed of the turn of a path of a seat in an episode with the seed 5.
    fn seed(branch: &BranchPoint, path: &TurnPath, seat: &str) -> u64 {
        request_seed(5, Some(branch), path, &Seat::only(seat))
    }

    #[test]
    fn turns_before_the_branch_have_the_seeds_of_the_episode_and_later_ones_their_own() {
        let path = |step| TurnPath(vec![step]);
        let branch = point(&[1], 2, 0);
        assert_eq!(seed(&branch, &path(0), "a"), path(0).seed(5));
        let played = point(&[1], 0, 0);
        assert_eq!(seed(&played, &path(1), "a"), path(1).seed(5));
        let mut seeds = BTreeSet::new();
        for (at, alternative, continuation, turn) in [
            (1, 1, 0, 1),
            (1, 2, 0, 1),
            (1, 0, 0, 2),
            (1, 0, 1, 2),
            (1, 1, 0, 2),
            (1, 1, 1, 2),
            (0, 1, 0, 2),
            (0, 1, 0, 1),
            (0, 1, 0, 0),
        ] {
            let branch = point(&[at], alternative, continuation);
            seeds.insert(seed(&branch, &path(turn), "a"));
            seeds.insert(path(turn).seed(5));
        }
        assert_eq!(seeds.len(), 9 + 3, "no two of them are equal");
    }

    #[test]
    fn continuations_of_an_alternative_have_its_reply() {
        let at = TurnPath(vec![3, 1]);
        let of = |continuation| seed(&point(&[3, 1], 1, continuation), &at, "a");
        assert_eq!(of(0), of(1));
    }

    #[test]
    fn a_branch_of_a_branch_has_its_random_numbers_before_the_turn() {
        let path = |step| TurnPath(vec![step]);
        let first = point(&[1], 2, 0);
        let second = BranchPoint { after: Some(Box::new(first.clone())), ..point(&[2], 1, 0) };
        for at in [0, 1] {
            assert_eq!(seed(&second, &path(at), "a"), seed(&first, &path(at), "a"));
        }
        for at in [2, 3] {
            assert_ne!(seed(&second, &path(at), "a"), seed(&first, &path(at), "a"));
        }
    }

    #[test]
    fn the_random_numbers_of_a_drawn_seat_depend_on_its_number_alone() {
        let path = |step| TurnPath(vec![step]);
        let of = |drawn: &[(&str, u32)]| {
            let drawn = drawn.iter().map(|&(seat, number)| (Seat::only(seat), number)).collect();
            BranchPoint { drawn, ..point(&[1], 7, 0) }
        };
        let (one, both) = (of(&[("b", 2)]), of(&[("b", 2), ("c", 1)]));
        for (at, seat) in [(0, "a"), (2, "a")] {
            assert_eq!(seed(&both, &path(at), seat), path(at).seed(5), "it is not drawn");
        }
        assert_eq!(seed(&one, &path(2), "c"), path(2).seed(5));
        assert_ne!(seed(&both, &path(2), "c"), path(2).seed(5));
        assert_eq!(seed(&one, &path(1), "b"), seed(&both, &path(1), "b"));
        assert_ne!(seed(&one, &path(1), "b"), seed(&of(&[("b", 1)]), &path(1), "b"));
        let written = serde_json::to_string(&point(&[1], 2, 0)).unwrap_or_default();
        assert!(!written.contains("drawn") && !written.contains("after"), "{written}");
    }
}

//! Branches: episodes that begin with recorded turns of another episode.

use maverl_kernels::sample::derive_seed;
use serde::{Deserialize, Serialize};

use super::{Episode, TurnPath};

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
}

impl BranchPoint {
    /// Returns true if the turn of a path has the recorded reply.
    pub fn recalls(&self, path: &TurnPath) -> bool {
        *path < self.at || (*path == self.at && self.alternative == 0)
    }

    /// Returns the seed of the request of a turn, in a branch of an episode with a seed.
    fn seed(&self, episode: u64, path: &TurnPath) -> u64 {
        if self.recalls(path) {
            return path.seed(episode);
        }
        let at = derive_seed(self.at.seed(episode), BRANCH);
        let alternative = derive_seed(at, u64::from(self.alternative));
        if *path == self.at {
            return derive_seed(alternative, 0);
        }
        path.seed(derive_seed(alternative, 1 + u64::from(self.continuation)))
    }
}

/// Returns the seed of the request of a turn, in an episode with a seed.
pub(crate) fn request_seed(episode: u64, branch: Option<&BranchPoint>, path: &TurnPath) -> u64 {
    branch.map_or_else(|| path.seed(episode), |branch| branch.seed(episode, path))
}

impl Episode {
    /// Returns true if the turn of a path has a recorded reply of another episode.
    pub fn recalls(&self, path: &TurnPath) -> bool {
        self.branch.as_ref().is_some_and(|branch| branch.recalls(path))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn point(at: &[u32], alternative: u32, continuation: u32) -> BranchPoint {
        BranchPoint { of: 0, at: TurnPath(at.to_vec()), alternative, continuation }
    }

    #[test]
    fn turns_before_the_branch_have_the_seeds_of_the_episode_and_later_ones_their_own() {
        let path = |step| TurnPath(vec![step]);
        let branch = point(&[1], 2, 0);
        assert_eq!(request_seed(5, Some(&branch), &path(0)), path(0).seed(5));
        let played = point(&[1], 0, 0);
        assert_eq!(request_seed(5, Some(&played), &path(1)), path(1).seed(5));
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
            seeds.insert(request_seed(5, Some(&branch), &path(turn)));
            seeds.insert(path(turn).seed(5));
        }
        assert_eq!(seeds.len(), 9 + 3, "no two of them are equal");
    }

    #[test]
    fn continuations_of_an_alternative_have_its_reply() {
        let at = TurnPath(vec![3, 1]);
        let of = |continuation| request_seed(9, Some(&point(&[3, 1], 1, continuation)), &at);
        assert_eq!(of(0), of(1));
    }
}

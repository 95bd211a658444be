//! Paths of the calls of an episode.
//!
//! Calls that overlap in time are a burst. A burst of one call has the path `[burst]`, so a program that asks one thing at a
//! time has the paths of an orchestra; several calls have `[burst, rank]`. The rank depends on what was asked, never on
//! which call came or ended first. A program that knows better gives a path with each call.

use std::collections::{BTreeMap, BTreeSet};

use super::history::Hash;
use maverl::trajectory::TurnPath;

/// Maximum number of parts of a path.
const DEEPEST: usize = 16;

/// Place of a call in its burst: number of messages, seat, digest, number among equal calls.
pub(super) type Rank = (usize, usize, Hash, u32);

/// Paths of the calls so far.
#[derive(Default)]
pub(super) struct TurnOrder {
    in_flight: usize,
    /// Index of the current burst, once one of its calls is recorded.
    burst: Option<u32>,
    /// Recorded calls of the current burst.
    recorded: BTreeMap<Rank, TurnPath>,
    /// Index of the next burst.
    next: u32,
    /// True if calls have paths of their own; none before the first call.
    given: Option<bool>,
    paths: BTreeSet<TurnPath>,
    /// Number of actions since the last call.
    acts: u32,
    /// Number of calls of bursts of several.
    pub(super) raced: usize,
}

impl TurnOrder {
    /// Begins a call, with the path that it gives.
    pub(super) fn begin(&mut self, path: Option<&TurnPath>) -> Result<(), String> {
        if *self.given.get_or_insert(path.is_some()) != path.is_some() {
            return Err("calls of an episode all have a path, or none has".to_owned());
        }
        if let Some(path) = path {
            let mut paths = self.paths.iter();
            if let Some(taken) =
                paths.find(|other| path.0.starts_with(&other.0) || other.0.starts_with(&path.0))
            {
                return Err(format!("the path {path} does not go with {taken}, which is taken"));
            }
            self.paths.insert(path.clone());
        }
        if self.in_flight == 0 {
            self.burst = None;
            self.recorded.clear();
        }
        self.in_flight += 1;
        self.acts = 0;
        Ok(())
    }

    /// Ends a call, recorded or not. A path that was not used may be given again.
    pub(super) fn end(&mut self, unused: Option<&TurnPath>) {
        self.in_flight -= 1;
        if let Some(path) = unused {
            self.paths.remove(path);
        }
    }

    /// Records a call of the current burst. Returns its path, and the new paths of recorded calls.
    pub(super) fn record(&mut self, rank: Rank) -> (TurnPath, BTreeMap<TurnPath, TurnPath>) {
        let next = &mut self.next;
        let burst = *self.burst.get_or_insert_with(|| {
            *next += 1;
            *next - 1
        });
        self.recorded.insert(rank, TurnPath::default());
        let several = self.recorded.len() > 1;
        self.raced += match self.recorded.len() {
            1 => 0,
            2 => 2,
            _ => 1,
        };
        let (mut renamed, mut own) = (BTreeMap::new(), TurnPath::default());
        for (at, (other, path)) in (0..).zip(&mut self.recorded) {
            let new = TurnPath(if several { vec![burst, at] } else { vec![burst] });
            if *other == rank {
                own = new.clone();
            } else if *path != new {
                renamed.insert(path.clone(), new.clone());
            }
            *path = new;
        }
        (own, renamed)
    }

    /// Records a call with a path of its own.
    pub(super) fn record_given(&mut self, path: &TurnPath) {
        self.next = self.next.max(path.0.first().map_or(0, |first| first + 1));
    }

    /// Returns the place of an action that begins now: the path of the next call, and the number of the action.
    pub(super) fn next_act(&mut self) -> (TurnPath, u32) {
        self.acts += 1;
        (TurnPath(vec![self.next]), self.acts - 1)
    }
}

/// Reads a path such as `0.2.1`.
pub(super) fn path(text: &str) -> Result<TurnPath, String> {
    let parts: Option<Vec<u32>> = text
        .split('.')
        .map(|part| part.parse().ok().filter(|n| *n < u32::MAX && part.len() < 10))
        .collect();
    match parts {
        Some(parts) if parts.len() <= DEEPEST => Ok(TurnPath(parts)),
        _ => {
            let text: String = text.chars().take(80).collect();
            Err(format!("{text:?} is no path; write numbers with dots, such as `0.2.1`"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn rank(depth: usize) -> Rank {
        (depth, 0, [0; 32], 0)
    }

    fn at(parts: &[u32]) -> TurnPath {
        TurnPath(parts.to_vec())
    }

    #[test]
    fn calls_one_after_another_have_the_paths_of_an_orchestra() {
        let mut order = TurnOrder::default();
        for expected in 0..3 {
            assert_eq!(order.next_act(), (at(&[expected]), 0));
            assert_eq!(order.next_act(), (at(&[expected]), 1));
            order.begin(None).unwrap();
            assert_eq!(order.record(rank(1)), (at(&[expected]), BTreeMap::new()));
            order.end(None);
        }
        assert_eq!(order.raced, 0);
    }

    #[test]
    fn calls_that_overlap_are_ranked_by_what_they_ask() {
        for depths in [[1, 2, 3], [3, 1, 2], [2, 3, 1]] {
            let mut order = TurnOrder::default();
            let mut paths = BTreeMap::new();
            (0..3).for_each(|_| order.begin(None).unwrap());
            for depth in depths {
                let (path, renamed) = order.record(rank(depth));
                for known in paths.values_mut() {
                    *known = renamed.get(known).unwrap_or(known).clone();
                }
                paths.insert(depth, path);
                order.end(None);
            }
            let found: Vec<&TurnPath> = paths.values().collect();
            assert_eq!(found, [&at(&[0, 0]), &at(&[0, 1]), &at(&[0, 2])], "{depths:?}");
            assert_eq!(order.raced, 3);
            order.begin(None).unwrap();
            assert_eq!(order.record(rank(1)).0, at(&[1]));
        }
    }

    #[test]
    fn a_call_that_was_cancelled_leaves_no_gap() {
        let mut order = TurnOrder::default();
        order.begin(None).unwrap();
        order.end(None);
        order.begin(None).unwrap();
        assert_eq!(order.record(rank(1)).0, at(&[0]));
    }

    #[test]
    fn paths_that_are_given_are_unique_and_for_all_calls() {
        let mut order = TurnOrder::default();
        order.begin(Some(&at(&[1]))).unwrap();
        for wrong in [&[1][..], &[1, 0]] {
            assert!(order.begin(Some(&at(wrong))).unwrap_err().contains("taken"), "{wrong:?}");
        }
        assert!(order.begin(None).unwrap_err().contains("or none has"));
        order.record_given(&at(&[1]));
        assert_eq!(order.next_act().0, at(&[2]));
        order.begin(Some(&at(&[2, 0]))).unwrap();
        order.end(Some(&at(&[2, 0])));
        order.begin(Some(&at(&[2, 0]))).unwrap();
    }

    #[test]
    fn a_path_is_numbers_with_dots() {
        assert_eq!(path("0.2.1"), Ok(at(&[0, 2, 1])));
        for wrong in ["", "a", "0.", "-1", "4294967295", "99999999999", &"0.".repeat(20)] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }
}

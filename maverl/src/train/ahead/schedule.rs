//! Schedule of versions: which weights play the episodes of which step. A function of the step's number, not of time.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Versions of a run of `steps` steps. Version `v` is the weights after `v` steps. Step `s`, from 1, trains version
/// `s - 1` to `s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Number of steps that the weights of a step's episodes are behind those that it trains.
    pub(super) staleness: u64,
    pub(super) steps: u64,
}

impl Schedule {
    /// Returns the steps whose batches are issued before a step at the latest, the step itself first. Those that were not issued
    /// before are played by version `step - 1`. So version `max(0, s − 1 − k)` plays step `s`.
    pub(super) fn issued(self, step: u64) -> impl Iterator<Item = u64> {
        std::iter::once(step).chain(self.in_flight(step))
    }

    /// Returns the steps whose batches are in flight while a step is updated.
    pub(super) fn in_flight(self, step: u64) -> RangeInclusive<u64> {
        step + 1..=(step + self.staleness).min(self.steps)
    }

    /// Returns the versions that exist while a step is updated: that of each batch in flight by `version`, and the one that
    /// is trained.
    pub(super) fn live(self, step: u64, version: impl Fn(u64) -> u64) -> BTreeSet<u64> {
        self.in_flight(step).map(version).chain([step - 1]).collect()
    }

    /// Returns the place of a version among those that are kept at once, or of a batch among those that are played at once.
    pub(super) fn place(self, number: u64) -> usize {
        (number % (self.staleness + 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;

    /// Returns the version that plays each step.
    fn versions(schedule: Schedule) -> BTreeMap<u64, u64> {
        let mut versions = BTreeMap::new();
        for step in 1..=schedule.steps {
            schedule.issued(step).for_each(|batch| _ = versions.entry(batch).or_insert(step - 1));
        }
        versions
    }

    /// Returns played version, versions and batches in flight of each step.
    fn rows(staleness: u64, steps: u64) -> Vec<(u64, Vec<u64>, Vec<u64>)> {
        let schedule = Schedule { staleness, steps };
        let versions = versions(schedule);
        let row = |step| {
            let live = schedule.live(step, |batch| versions[&batch]);
            (versions[&step], live.into_iter().collect(), schedule.in_flight(step).collect())
        };
        (1..=steps).map(row).collect()
    }

    #[test]
    fn the_episodes_of_a_step_are_played_by_the_weights_of_a_fixed_number_of_steps_before() {
        assert_eq!(rows(0, 2), [(0, vec![0], vec![]), (1, vec![1], vec![])]);
        let expected = [
            (0, vec![0], vec![2, 3]),
            (0, vec![0, 1], vec![3, 4]),
            (0, vec![1, 2], vec![4, 5]),
            (1, vec![2, 3], vec![5]),
            (2, vec![4], vec![]),
        ];
        assert_eq!(rows(2, 5), expected);
    }

    #[test]
    fn versions_that_are_played_at_once_have_places_of_their_own() {
        for staleness in 0..6 {
            let schedule = Schedule { staleness, steps: 30 };
            let versions = versions(schedule);
            for step in 1..=30 {
                let played: BTreeSet<u64> =
                    schedule.issued(step).map(|batch| versions[&batch]).collect();
                let places: BTreeSet<usize> = played.iter().map(|v| schedule.place(*v)).collect();
                assert_eq!(places.len(), played.len(), "{staleness}, step {step}");
            }
        }
    }

    #[test]
    fn the_schedules_are_those_of_the_recorded_cases() {
        let Some(root) = std::env::var_os("MAVERL_TEST_DATA") else {
            return println!("skipped: MAVERL_TEST_DATA is not set");
        };
        let file = std::path::Path::new(&root).join("spec/learning_golden.json");
        let Ok(text) = std::fs::read(&file) else {
            return println!("skipped: there is no {}", file.display());
        };
        let golden: Value = serde_json::from_slice(&text).unwrap();
        let cases = golden["cases"].as_array().unwrap().iter();
        let cases =
            cases.filter(|case| case["name"].as_str().unwrap().starts_with("async/schedule/"));
        let mut checked = 0;
        for case in cases {
            let number = |of: &Value| of.as_u64().unwrap();
            let numbers = |of: &Value| -> Vec<u64> { serde_json::from_value(of.clone()).unwrap() };
            let [staleness, steps] = ["staleness", "steps"].map(|key| number(&case["inputs"][key]));
            let expected = case["outputs"]["steps"].as_array().unwrap().iter().map(|step| {
                let played = number(&step["plays_with"]);
                assert_eq!(number(&step["step"]) - 1 - played, number(&step["staleness"]));
                (played, numbers(&step["live"]), numbers(&step["in_flight"]))
            });
            assert_eq!(rows(staleness, steps), expected.collect::<Vec<_>>(), "{}", case["name"]);
            checked += 1;
        }
        assert!(checked > 0, "no recorded schedule");
    }
}

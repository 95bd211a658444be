//! Schedule of versions: which weights play the episodes of which step. A function of the step's number, not of time.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::rollout::TurnSchedule;

/// Versions of a run of `steps` steps. Version `v` is the weights after `v` steps. Step `s`, from 1, trains version
/// `s - 1` to `s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Number of steps that the weights of a step's episodes are behind those that it trains.
    pub(super) staleness: u64,
    pub(super) steps: u64,
    /// Number of turns after which an episode goes on with the next version; 0 if it has one version.
    pub(super) turns: u64,
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

    /// Returns the versions of the turns of a batch that begins with version `first`; `None` if its episodes have one version.
    pub(super) fn turns_of(self, batch: u64, first: u64) -> Option<TurnSchedule> {
        let Self { turns, .. } = self;
        (turns > 0).then_some(TurnSchedule { first, last: batch - 1, turns })
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
    use crate::trajectory::TurnPath;

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
        let schedule = Schedule { staleness, steps, turns: 0 };
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
            let schedule = Schedule { staleness, steps: 30, turns: 0 };
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
    fn a_turn_is_sampled_by_a_version_that_lives_until_its_step() {
        for (staleness, turns) in [(1, 1), (3, 1), (3, 2), (5, 4)] {
            let schedule = Schedule { staleness, steps: 30, turns };
            for (batch, first) in versions(schedule) {
                let of_turns = schedule.turns_of(batch, first).unwrap();
                let played = (0..40).map(|turn| of_turns.version(&TurnPath(vec![turn])));
                let played: BTreeSet<u64> = played.collect();
                let expected: BTreeSet<u64> = (first..batch).collect();
                assert_eq!(played, expected, "staleness {staleness}, {batch}");
                // As many versions as there are places, so that none is overwritten while the batch is played.
                assert!(played.len() as u64 <= staleness + 1);
            }
        }
        let one = Schedule { staleness: 3, steps: 30, turns: 0 };
        assert_eq!(one.turns_of(9, 5), None);
    }

    /// Returns the recorded cases of a name, or prints why there are none.
    fn recorded(name: &str) -> Option<Vec<Value>> {
        let Some(root) = std::env::var_os("MAVERL_TEST_DATA") else {
            println!("skipped: MAVERL_TEST_DATA is not set");
            return None;
        };
        let file = std::path::Path::new(&root).join("spec/learning_golden.json");
        let Ok(text) = std::fs::read(&file) else {
            println!("skipped: there is no {}", file.display());
            return None;
        };
        let golden: Value = serde_json::from_slice(&text).unwrap();
        let cases = golden["cases"].as_array().unwrap().iter();
        let cases: Vec<Value> = cases
            .filter(|case| case["name"].as_str().unwrap().starts_with(name))
            .cloned()
            .collect();
        assert!(!cases.is_empty(), "no case is called {name}");
        Some(cases)
    }

    fn number(of: &Value) -> u64 {
        of.as_u64().unwrap()
    }

    #[test]
    fn turns_have_the_recorded_versions_up_to_the_one_that_their_step_trains() {
        for case in recorded("async/advance_turns").unwrap_or_default() {
            let [staleness, turns] =
                ["staleness", "advance_turns"].map(|key| number(&case["inputs"][key]));
            let schedule = Schedule { staleness, steps: 30, turns };
            let groups = case["inputs"]["groups"].as_array().unwrap();
            for (group, expected) in
                groups.iter().zip(case["outputs"]["groups"].as_array().unwrap())
            {
                let (step, first) = (number(&group["step"]), number(&expected["first"]));
                assert_eq!(versions(schedule)[&step], first);
                let of_turns = schedule.turns_of(step, first).unwrap();
                for episode in expected["versions"].as_array().unwrap() {
                    for (turn, version) in (0..).zip(episode.as_array().unwrap()) {
                        let found = of_turns.version(&TurnPath(vec![turn]));
                        assert_eq!(
                            found,
                            number(version).min(step - 1),
                            "step {step}, turn {turn}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_schedules_are_those_of_the_recorded_cases() {
        for case in recorded("async/schedule/").unwrap_or_default() {
            let numbers = |of: &Value| -> Vec<u64> { serde_json::from_value(of.clone()).unwrap() };
            let [staleness, steps] = ["staleness", "steps"].map(|key| number(&case["inputs"][key]));
            let expected = case["outputs"]["steps"].as_array().unwrap().iter().map(|step| {
                let played = number(&step["plays_with"]);
                assert_eq!(number(&step["step"]) - 1 - played, number(&step["staleness"]));
                (played, numbers(&step["live"]), numbers(&step["in_flight"]))
            });
            assert_eq!(rows(staleness, steps), expected.collect::<Vec<_>>(), "{}", case["name"]);
        }
    }
}

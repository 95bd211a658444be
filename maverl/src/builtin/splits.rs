//! Splits of generated tasks.

use crate::task::Task;

/// Returns the tasks of each split, `(name, rounds)`, numbered within it. `round` generates one task of each kind.
pub(super) fn number_splits(
    splits: &[(&'static str, usize)],
    mut round: impl FnMut() -> Vec<Task>,
) -> Vec<(&'static str, Vec<Task>)> {
    let mut numbered = Vec::new();
    for &(split, rounds) in splits {
        let tasks = (0..rounds).flat_map(|_| round()).enumerate();
        let tasks = tasks.map(|(n, task)| Task { id: format!("{split}-{n:04}"), ..task });
        numbered.push((split, tasks.collect()));
    }
    numbered
}

/// Asserts that generated problems are deterministic, have the sizes of their splits, and are unique.
#[cfg(test)]
pub(super) fn assert_splits(
    problems: fn() -> Vec<(&'static str, Vec<Task>)>,
    sizes: &[(&str, usize)],
) {
    let splits = problems();
    assert_eq!(splits, problems());
    let found: Vec<(&str, usize)> =
        splits.iter().map(|(split, tasks)| (*split, tasks.len())).collect();
    assert_eq!(found, sizes);
    let mut asked = std::collections::BTreeSet::new();
    for task in splits.iter().flat_map(|(_, tasks)| tasks) {
        assert!(asked.insert(&task.question), "{}", task.question);
    }
}

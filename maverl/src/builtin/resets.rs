//! Tasks of environments that begin an episode from a seed and describe the task themselves, such as games.

use serde_json::{Map, Value};

use super::splits::number_splits;
use crate::task::Task;

/// Name of this data.
pub const NAME: &str = "builtin:resets";
/// Splits, and the number of their tasks.
const SPLITS: [(&str, usize); 3] = [("train", 800), ("validation", 100), ("test", 100)];
/// Question of tasks that have none of their own.
pub(crate) const QUESTION: &str = "Act until the episode ends.";

/// Returns the tasks by split; `data.seed` numbers them from 0.
pub fn tasks() -> Vec<(&'static str, Vec<Task>)> {
    let mut seed = 0_u64;
    number_splits(&SPLITS, || {
        let data = Map::from_iter([("seed".to_owned(), Value::from(seed))]);
        seed += 1;
        let (id, source) = (String::new(), "resets".to_owned());
        vec![Task { id, source, question: QUESTION.to_owned(), data }]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_has_a_seed_of_its_own() {
        let tasks: Vec<Task> = tasks().into_iter().flat_map(|(_, tasks)| tasks).collect();
        let seeds = tasks.iter().map(|task| task.data["seed"].as_u64().unwrap_or_default());
        assert_eq!(seeds.collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
        assert_eq!((tasks[0].id.as_str(), tasks[999].id.as_str()), ("train-0000", "test-0099"));
    }
}

//! Small functions to be written in Python, in three levels of difficulty.
//!
//! The level is the number of operations on the argument: one, two, or an operation on every item of a list. Each task
//! has public tests, which its question shows, hidden tests, and a solution that passes both.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::splits::number_splits;
use crate::rng::SplitMix64;
use crate::task::Task;

/// Name of the data source in a configuration.
pub const NAME: &str = "builtin:code";
/// Splits of the shipped tasks, with the number of tasks of each level.
pub const SPLITS: [(&str, usize); 3] = [("train", 200), ("validation", 30), ("test", 70)];
/// Levels of difficulty.
pub const LEVELS: [u32; 3] = [1, 2, 3];

const SEED: u64 = 43;
/// Arguments of tests; the first two are public.
const NUMBERS: [i64; 7] = [3, 10, 0, 1, -4, 25, 100];
const LISTS: [&[i64]; 6] = [&[1, 2, 3], &[4], &[], &[5, 0, -2], &[10, 20, 30, 40], &[7, 7]];
const PUBLIC: usize = 2;

/// Returns the shipped tasks by split.
pub fn problems() -> Vec<(&'static str, Vec<Task>)> {
    invent(SEED)
}

/// Generates tasks from a seed, by split, with levels mixed. `data` of a task holds `entry_point`, `tests`,
/// `public_tests`, `solution` and `level`.
pub fn invent(seed: u64) -> Vec<(&'static str, Vec<Task>)> {
    let mut draw = SplitMix64::new(seed);
    let mut asked = BTreeSet::new();
    number_splits(&SPLITS, || LEVELS.map(|level| fresh(level, &mut asked, &mut draw)).into())
}

/// Generates a task that has not been asked.
fn fresh(level: u32, asked: &mut BTreeSet<String>, draw: &mut SplitMix64) -> Task {
    loop {
        let steps: Vec<Step> =
            (0..if level == 1 { 1 } else { 2 }).map(|_| Step::draw(draw)).collect();
        let task = match level {
            3 => on_lists(&steps, draw),
            _ => on_numbers(&steps, level),
        };
        if asked.insert(task.question.clone()) {
            return task;
        }
    }
}

/// An operation on a number.
#[derive(Clone, Copy)]
struct Step {
    sign: char,
    by: i64,
}

impl Step {
    fn draw(draw: &mut SplitMix64) -> Self {
        Self { sign: draw.pick(&['+', '-', '*']), by: 2 + draw.index(198) as i64 }
    }

    fn of(self, x: i64) -> i64 {
        match self.sign {
            '+' => x + self.by,
            '-' => x - self.by,
            _ => x * self.by,
        }
    }

    fn step_words(self) -> String {
        match self.sign {
            '+' => format!("plus {}", self.by),
            '-' => format!("minus {}", self.by),
            _ => format!("times {}", self.by),
        }
    }
}

/// Applies steps one after the other.
fn value(steps: &[Step], x: i64) -> i64 {
    steps.iter().fold(x, |x, step| step.of(x))
}

fn words_of_steps(steps: &[Step]) -> String {
    steps.iter().map(|step| step.step_words()).collect::<Vec<_>>().join(", then ")
}

fn expression(steps: &[Step]) -> String {
    steps.iter().fold("x".to_owned(), |inner, step| match inner.as_str() {
        "x" => format!("x {} {}", step.sign, step.by),
        _ => format!("({inner}) {} {}", step.sign, step.by),
    })
}

fn on_numbers(steps: &[Step], level: u32) -> Task {
    let wanted = format!("x {}", words_of_steps(steps));
    let tests = NUMBERS.map(|x| (json!(x), json!(value(steps, x))));
    let solution = format!("def f(x):\n    return {}", expression(steps));
    task(&format!("f(x) that returns {wanted}"), &tests, &solution, level)
}

/// Generates a task on lists: every item is changed, or the changed items are added up, counted above a bound, or the
/// largest is taken.
fn on_lists(steps: &[Step], draw: &mut SplitMix64) -> Task {
    let (each, terms) = (words_of_steps(steps), format!("{} for x in xs", expression(steps)));
    let bound = draw.index(200) as i64;
    let kind = draw.index(3);
    let (what, code) = match kind {
        0 => (format!("the list of x {each} for every x in xs"), format!("[{terms}]")),
        1 => (format!("the sum of x {each} over every x in xs"), format!("sum({terms})")),
        _ => (
            format!("how many x in xs have x {each} above {bound}"),
            format!("sum({} > {bound} for x in xs)", expression(steps)),
        ),
    };
    let tests = LISTS.map(|items| (json!(items), result_on_list(items, steps, (kind, bound))));
    let solution = format!("def f(xs):\n    return {code}");
    task(&format!("f(xs) that returns {what}"), &tests, &solution, 3)
}

fn result_on_list(items: &[i64], steps: &[Step], (kind, bound): (usize, i64)) -> Value {
    let changed: Vec<i64> = items.iter().map(|x| value(steps, *x)).collect();
    match kind {
        0 => json!(changed),
        1 => json!(changed.iter().sum::<i64>()),
        _ => json!(changed.iter().filter(|x| **x > bound).count()),
    }
}

/// Creates the task of a function. Its first tests are public and are shown in the question.
fn task(wanted: &str, tests: &[(Value, Value)], solution: &str, level: u32) -> Task {
    let (public, hidden) = tests.split_at(PUBLIC);
    let shown: Vec<String> = public.iter().map(|(x, y)| format!("f({x}) is {y}.")).collect();
    let question = format!("Write a Python function {wanted}. {}", shown.join(" "));
    let data = Map::from_iter([
        ("entry_point".to_owned(), json!("f")),
        ("tests".to_owned(), test_calls(hidden)),
        ("public_tests".to_owned(), test_calls(public)),
        ("solution".to_owned(), json!(solution)),
        ("level".to_owned(), json!(level)),
    ]);
    Task { id: String::new(), source: format!("code/level_{level}"), question, data }
}

/// Returns tests as data of a task.
fn test_calls(tests: &[(Value, Value)]) -> Value {
    tests.iter().map(|(x, y)| json!({"arguments": [x], "expected": y})).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_split_is_the_same_each_time_and_shares_no_question() {
        let sizes = SPLITS.map(|(split, per_level)| (split, per_level * LEVELS.len()));
        crate::builtin::splits::assert_splits(problems, &sizes);
    }

    #[test]
    fn hidden_tests_are_not_the_public_ones() {
        for task in problems().into_iter().flat_map(|(_, tasks)| tasks) {
            let tests = |key: &str| task.data[key].as_array().unwrap().clone();
            assert!(tests("tests").len() >= 4 && tests("public_tests").len() == PUBLIC);
            for test in tests("tests") {
                assert!(!tests("public_tests").contains(&test));
            }
        }
    }
}

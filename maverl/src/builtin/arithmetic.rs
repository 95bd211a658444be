//! Word problems of arithmetic and algebra with whole answers, in four levels of difficulty.
//!
//! The level is the number of steps to the answer; the first level has small numbers, up to twenty. Each task has its
//! solution, one line per step. No question is in two splits.

use std::collections::BTreeSet;

use serde_json::{Map, json};

use super::splits::number_splits;
use crate::rng::SplitMix64;
use crate::task::Task;

/// Name of the data source in a configuration.
pub const NAME: &str = "builtin:arithmetic";
/// Splits of the shipped problems, with the number of tasks of each level.
pub const SPLITS: [(&str, usize); 3] = [("train", 1000), ("validation", 100), ("test", 250)];
/// Levels of difficulty.
pub const LEVELS: [u32; 4] = [1, 2, 3, 4];

const SEED: u64 = 41;
const NAMES: [&str; 8] = ["Ada", "Ben", "Eva", "Ivo", "Leo", "Mia", "Noa", "Sam"];
const THINGS: [&str; 8] =
    ["apples", "books", "coins", "cards", "pens", "shells", "stamps", "tickets"];

/// Returns the shipped problems by split.
pub fn problems() -> Vec<(&'static str, Vec<Task>)> {
    invent(SEED)
}

/// Generates problems from a seed, by split, with levels mixed. `data` of a task holds `answers`, `solution` and
/// `level`.
pub fn invent(seed: u64) -> Vec<(&'static str, Vec<Task>)> {
    let mut draw = SplitMix64::new(seed);
    let mut asked = BTreeSet::new();
    number_splits(&SPLITS, || LEVELS.map(|level| fresh(level, &mut asked, &mut draw)).into())
}

/// Generates a problem that has not been asked.
fn fresh(level: u32, asked: &mut BTreeSet<String>, draw: &mut SplitMix64) -> Task {
    loop {
        let problem = if draw.gen_bool(0.25) { equation(level, draw) } else { story(level, draw) };
        if asked.insert(problem.question.clone()) {
            return problem.task(level);
        }
    }
}

struct ArithmeticProblem {
    question: String,
    steps: Vec<String>,
    answer: i64,
}

impl ArithmeticProblem {
    fn task(self, level: u32) -> Task {
        let Self { question, steps, answer } = self;
        let data = Map::from_iter([
            ("answers".to_owned(), json!([answer.to_string()])),
            ("solution".to_owned(), json!(format!("{}\n#### {answer}", steps.join("\n")))),
            ("level".to_owned(), json!(level)),
        ]);
        Task { id: String::new(), source: format!("arithmetic/level_{level}"), question, data }
    }
}

/// Generates a story: a person has things, and gets, gives, multiplies or shares them, one step per level.
fn story(level: u32, draw: &mut SplitMix64) -> ArithmeticProblem {
    let (name, things) = (draw.pick(&NAMES), draw.pick(&THINGS));
    let (most, most_added) = if level == 1 { (20, 20) } else { (99, 60) };
    let mut has = draw.between(5, most);
    let mut question = format!("{name} has {has} {things}.");
    let mut steps = Vec::new();
    for _ in 0..level {
        let before = has;
        let (text, sign, by) = match draw.index(4) {
            0 if before > 2 => {
                let by = draw.between(1, before - 1);
                (format!("{name} gives away {by}."), '-', by)
            }
            1 if before < 200 => {
                let by = draw.between(2, 5);
                let text =
                    format!("Now {name} gets so many more that there are {by} times as many.");
                (text, '*', by)
            }
            2 => match (2..=9).find(|by| before % by == 0 && before > *by) {
                Some(by) => (
                    format!(
                        "{name} shares all with friends, so that each of {by} people has as many."
                    ),
                    '/',
                    by,
                ),
                None => (format!("{name} finds 1 more."), '+', 1),
            },
            _ => {
                let by = draw.between(2, most_added);
                (format!("{name} gets {by} more."), '+', by)
            }
        };
        has = match sign {
            '-' => before - by,
            '*' => before * by,
            '/' => before / by,
            _ => before + by,
        };
        question = format!("{question} {text}");
        steps.push(format!("{before} {sign} {by} = {has}"));
    }
    let question = format!("{question} How many {things} does {name} have now?");
    ArithmeticProblem { question, steps, answer: has }
}

/// Generates an equation of one unknown; each level adds one operation.
fn equation(level: u32, draw: &mut SplitMix64) -> ArithmeticProblem {
    let (most, most_added) = if level == 1 { (20, 20) } else { (40, 50) };
    let x = draw.between(2, most);
    let (mut left, mut value) = ("x".to_owned(), x);
    let mut undone = Vec::new();
    for depth in 0..level {
        let before = value;
        let inner = left.clone();
        if depth % 2 == 0 {
            let by = draw.between(2, most_added);
            (left, value) = (format!("{inner} + {by}"), before + by);
            undone.push(format!("{inner} = {value} - {by} = {before}"));
        } else {
            let by = draw.between(2, 6);
            (left, value) = (format!("{by}({inner})"), before * by);
            undone.push(format!("{inner} = {value} / {by} = {before}"));
        }
    }
    undone.reverse();
    let question = format!("Solve {left} = {value} for x.");
    ArithmeticProblem { question, steps: undone, answer: x }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_split_is_the_same_each_time_and_shares_no_question() {
        let sizes = SPLITS.map(|(split, per_level)| (split, per_level * LEVELS.len()));
        crate::builtin::splits::assert_splits(problems, &sizes);
        assert_ne!(invent(1)[0].1[0].question, invent(2)[0].1[0].question);
    }

    #[test]
    fn every_step_of_every_solution_is_true_and_leads_to_the_answer() {
        for task in problems().into_iter().flat_map(|(_, tasks)| tasks) {
            let solution = task.data["solution"].as_str().unwrap();
            let (steps, answer) = solution.split_once("\n#### ").unwrap();
            assert_eq!(task.data["answers"][0], answer);
            assert_eq!(steps.lines().count() as u64, task.data["level"].as_u64().unwrap());
            for step in steps.lines() {
                let (before, value) = step.rsplit_once(" = ").unwrap();
                let words: Vec<&str> = before.split(' ').collect();
                let [.., a, sign, b] = words.as_slice() else { panic!("{step}") };
                let (a, b): (i64, i64) = (a.parse().unwrap(), b.parse().unwrap());
                let result = match *sign {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    _ if a % b == 0 => a / b,
                    _ => panic!("{step}"),
                };
                assert_eq!(result.to_string(), value, "{step}");
            }
            assert!(steps.ends_with(&format!("= {answer}")), "{solution}");
        }
    }
}

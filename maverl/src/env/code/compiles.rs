//! Compiles the Python of tasks before any program is judged by it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use maverl_sandbox::{ExamTest, ProgramLimits};
use serde::{Deserialize, Serialize};

use super::judge::Judge;
use super::problem::{Problem, Tests};
use crate::env::EnvError;
use crate::task::Task;

/// Script that compiles all texts in one process.
const COMPILES: &str = include_str!("compiles.py");
/// Number of tasks that a message names.
const SHOWN: usize = 5;

/// Python text of a task.
#[derive(Debug, Serialize)]
struct ProgramText<'a> {
    /// Index of the task.
    task: usize,
    kind: &'static str,
    source: &'a str,
    /// Function that the tests call.
    entry: &'a str,
}

/// Rejects tasks whose tests can never run. Returns a warning if there are too many tasks to compile.
///
/// # Errors
///
/// The number of such tasks and the first of them, or that there is no sandbox.
pub(super) fn compile(
    judge: &Judge,
    tasks: &[Task],
    problems: &[Problem],
) -> Result<Option<String>, EnvError> {
    let texts: Vec<ProgramText<'_>> = (0..)
        .zip(tasks.iter().zip(problems))
        .flat_map(|(at, (task, problem))| texts(at, task, problem))
        .collect();
    if texts.is_empty() {
        return Ok(None);
    }
    let time = Duration::from_secs(60);
    let limits =
        ProgramLimits { wall: time, cpu: time, memory: 4 << 30, ..ProgramLimits::default() };
    let input = serde_json::to_vec(&texts).map_err(compiler_error)?;
    let output = judge.sandbox().run(COMPILES, &input, &limits).map_err(compiler_error)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let lines = said.lines().map_while(|line| serde_json::from_str::<ProgramLine>(line).ok());
    let (mut bad, mut hopeless) = (BTreeMap::new(), BTreeMap::new());
    for ProgramLine(at, what, broken) in lines {
        let of = if broken { &mut bad } else { &mut hopeless };
        of.entry(at).or_insert(what);
    }
    let all = tasks.len();
    if !bad.is_empty() {
        let (n, named) = (bad.len(), named(tasks, &bad));
        return Err(EnvError(format!("{n} of {all} tasks have tests that cannot be run: {named}")));
    }
    let (n, named) = (hopeless.len(), named(tasks, &hopeless));
    let hopeless = format!(
        "the tests of {n} of {all} tasks use names that nothing defines, so that no program can pass them: {named}"
    );
    let ending = output.ending;
    let unseen = format!("the tests of the tasks could not all be looked at: the look {ending}");
    let warnings = [(n > 0, hopeless), (!output.succeeded(), unseen)];
    let warnings = warnings.into_iter().filter_map(|(due, warning)| due.then_some(warning));
    Ok(Some(warnings.collect::<Vec<_>>().join("; ")).filter(|warning| !warning.is_empty()))
}

fn compiler_error(error: impl Display) -> EnvError {
    EnvError(format!("the tests of the tasks: {error}"))
}

/// Index of a task, the problem with its tests, and whether they cannot be run at all.
#[derive(Deserialize)]
struct ProgramLine(usize, String, bool);

/// Lists the first of some tasks, each with its problem.
fn named(tasks: &[Task], said: &BTreeMap<usize, String>) -> String {
    let named = said.iter().take(SHOWN);
    let named = named.filter_map(|(at, what)| Some(EnvError::of_task(tasks.get(*at)?, what).0));
    let named = named.collect::<Vec<_>>().join("; ");
    let more = said.len().saturating_sub(SHOWN);
    if more > 0 { format!("{named}; and {more} more") } else { named }
}

/// Returns the Python texts of a task: those that its row states, not those derived from its question.
fn texts<'a>(at: usize, task: &Task, problem: &'a Problem) -> Vec<ProgramText<'a>> {
    let entry = problem.entry.as_deref().unwrap_or_default();
    let mut texts: Vec<(&'static str, &str)> = Vec::new();
    if !problem.setup.is_empty() {
        texts.push(("setup", &problem.setup));
    }
    let public = task.data.contains_key("public_tests").then_some(&problem.public);
    for tests in [Some(&problem.hidden), public].into_iter().flatten() {
        match tests {
            Tests::Calls(tests) => texts.extend(tests.iter().filter_map(|test| match test {
                ExamTest::Check { check } => Some(("test", check.as_str())),
                ExamTest::Code { code } => Some(("tests", code.as_str())),
                ExamTest::Call { .. } => None,
            })),
            Tests::Program(code) => texts.push(("code", code)),
            Tests::Streams(_) | Tests::Answers(_) => {}
        }
    }
    let texts = texts.into_iter();
    texts.map(|(kind, source)| ProgramText { task: at, kind, source, entry }).collect()
}

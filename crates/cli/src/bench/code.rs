//! Programs in the sandbox of the code environment.

use std::num::NonZeroUsize;
use std::time::Instant;

use maverl::builtin::code::problems;
use maverl::env::code::{Judge, Problem};
use maverl_sandbox::{ProgramLimits, Sandbox, SandboxError};
use rayon::prelude::*;

use super::report::Figure;
use super::setup::Setup;
use crate::{Failure, tell};

/// Number of programs of a measurement.
const PROGRAMS: usize = 64;
/// A program that reads its input, and its input.
const PROGRAM: &str = "print(sum(map(int, input().split())))";
const INPUT: &[u8] = b"1 2 39\n";

/// Measures milliseconds of a program: of one that reads its input, of solutions of the built-in tasks with their tests one
/// after another, and of these on all threads at once. Without a sandbox, there is nothing to measure, which is said.
pub(super) fn code(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let judge = match Judge::new("python3", false, ProgramLimits::default(), true) {
        Ok(judge) => judge,
        Err(error) => {
            tell(format_args!("`code` is not measured: {error}"));
            return Ok(Vec::new());
        }
    };
    let solved = solved_problems();
    let judged = |(problem, solution): &(Problem, String)| pass_tests(&judge, problem, solution);
    Ok(vec![
        time_programs("a program with an input", setup.repeats, || {
            (0..PROGRAMS).try_for_each(|_| run_program(judge.sandbox()))
        })?,
        time_programs("a function and its tests", setup.repeats, || {
            solved.iter().try_for_each(judged)
        })?,
        time_programs("functions on all threads", setup.repeats, || {
            solved.par_iter().try_for_each(judged)
        })?,
    ])
}

/// Returns the first built-in tasks with their solutions.
fn solved_problems() -> Vec<(Problem, String)> {
    let tasks = problems().into_iter().flat_map(|(_, tasks)| tasks);
    let solved = tasks.filter_map(|task| {
        let solution = task.data.get("solution")?.as_str()?.to_owned();
        Some((Problem::read(&task).ok()?, solution))
    });
    solved.take(PROGRAMS).collect()
}

fn run_program(sandbox: &Sandbox) -> Result<(), Failure> {
    let output =
        sandbox.run(PROGRAM, INPUT, &ProgramLimits::default()).map_err(|error| failure(&error))?;
    if output.stdout == b"42\n" {
        return Ok(());
    }
    Err(Failure(format!("the measured program {}", output.ending)))
}

fn pass_tests(judge: &Judge, problem: &Problem, solution: &str) -> Result<(), Failure> {
    let verdict = judge.judge(problem, solution).map_err(|error| failure(&error))?;
    if verdict.passed() { Ok(()) } else { Err(Failure(verdict.text())) }
}

/// Times [`PROGRAMS`] programs in each repeat after the first, which is not counted.
fn time_programs(
    what: &str,
    repeats: NonZeroUsize,
    mut work: impl FnMut() -> Result<(), Failure>,
) -> Result<Figure, Failure> {
    let mut milliseconds = Vec::with_capacity(repeats.get());
    for repeat in 0..=repeats.get() {
        let start = Instant::now();
        work()?;
        if repeat > 0 {
            milliseconds.push(1e3 * start.elapsed().as_secs_f64() / PROGRAMS as f64);
        }
    }
    Ok(Figure::new(what, "ms/program", milliseconds))
}

fn failure(error: &SandboxError) -> Failure {
    Failure(error.to_string())
}

//! Runs programs of replies and says what came of it.

use std::ops::RangeInclusive;
use std::time::Duration;

use maverl_sandbox::{Ending, Exam, Limits, Output, Report, Sandbox, SandboxError};

use super::problem::{Problem, Stream, Tests};
use super::reply::{fenced, program};
use crate::env::math::{self, AnswerVerdict as Equality};

/// Characters of a traceback that are shown: its end.
const SHOWN: usize = 600;

/// Seconds that a program may be given.
pub(crate) const SECONDS: RangeInclusive<f64> = 0.01..=3600.0;

/// A sandbox, and what programs may use in it.
#[derive(Debug)]
pub struct Judge {
    sandbox: Sandbox,
    limits: Limits,
    /// Whether every test is run, so that the share of those passed is known; else the first failure ends it.
    every: bool,
}

/// Why a program has the verdict it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It passes every test.
    Passed,
    /// The reply has no program, and no answer.
    Nothing,
    /// It does not define what it should, or does not even compile.
    Undefined,
    /// It gives something else than a test expects, or raises an exception.
    Wrong,
    /// It used up its time, or another of its limits.
    Limit,
}

impl Reason {
    /// In words, without any quotation of a test.
    pub fn text(self) -> &'static str {
        match self {
            Self::Passed => "it passes every test",
            Self::Nothing => "there is no program",
            Self::Undefined => "it does not define what is called",
            Self::Wrong => "it fails a test",
            Self::Limit => "it runs out of time, or of another limit",
        }
    }
}

/// What came of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeVerdict {
    /// Why.
    pub reason: Reason,
    /// Points reached.
    pub points: u32,
    /// Points there were.
    pub of: u32,
    /// What went wrong first. It may quote a test: only for those who may see the tests.
    pub detail: String,
}

impl CodeVerdict {
    /// Whether everything is right.
    pub fn passed(&self) -> bool {
        self.reason == Reason::Passed
    }

    /// Share of points; 1 only if everything is right.
    pub fn share(&self) -> f64 {
        if self.of == 0 { 0.0 } else { f64::from(self.points) / f64::from(self.of) }
    }

    /// In words, which may quote a test.
    pub fn text(&self) -> String {
        match (self.reason, self.detail.as_str()) {
            (reason, "") => reason.text().to_owned(),
            // It says what is not there.
            (Reason::Nothing, detail) => detail.to_owned(),
            (reason, detail) => format!("{}: {detail}", reason.text()),
        }
    }

    fn failed(reason: Reason, points: u32, of: u32, detail: impl Into<String>) -> Self {
        Self { reason, points, of, detail: detail.into() }
    }

    fn right(of: u32) -> Self {
        Self { reason: Reason::Passed, points: of, of, detail: String::new() }
    }
}

impl Judge {
    /// A judge that uses an interpreter with these limits for each program. With `every`, all tests are run even after
    /// one has failed.
    ///
    /// # Errors
    ///
    /// If there is no sandbox; see [`Sandbox::new`].
    pub fn new(
        python: &str,
        strict: bool,
        limits: Limits,
        every: bool,
    ) -> Result<Self, SandboxError> {
        Ok(Self { sandbox: Sandbox::new(python, strict)?, limits, every })
    }

    /// The sandbox.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Judges a reply by the hidden tests of a problem. Blocks until its programs are over.
    ///
    /// # Errors
    ///
    /// If the sandbox fails, or the task's own tests do; never for what the reply does.
    pub fn judge(&self, problem: &Problem, reply: &str) -> Result<CodeVerdict, SandboxError> {
        self.by(&problem.hidden, problem, reply)
    }

    /// Judges a reply by the public tests: what may be told.
    ///
    /// # Errors
    ///
    /// As [`Judge::judge`].
    pub fn attempt(&self, problem: &Problem, reply: &str) -> Result<CodeVerdict, SandboxError> {
        self.by(&problem.public, problem, reply)
    }

    fn by(
        &self,
        tests: &Tests,
        problem: &Problem,
        reply: &str,
    ) -> Result<CodeVerdict, SandboxError> {
        let of = tests.len() as u32;
        let Some(program) = program(reply) else {
            return Ok(CodeVerdict::failed(Reason::Nothing, 0, of, Reason::Nothing.text()));
        };
        let source = problem.source(program);
        match tests {
            Tests::Calls(tests) => {
                let entry = problem.entry.as_deref().unwrap_or_default();
                let exam = Exam { source: &source, entry, setup: &problem.setup, tests };
                Ok(examined(self.sandbox.examine(&exam, &self.limits)?))
            }
            Tests::Streams(streams) => self.streams(&source, streams),
            Tests::Answers(answers) => self.answer(reply, answers),
            Tests::Program(code) => {
                let output = self.sandbox.run(code, b"", &self.limits)?;
                match last_line(&output) {
                    Some(truth) if output.succeeded() => self.answer(reply, &[truth]),
                    _ => Err(SandboxError::Tests(format!("its `code` {}", output.ending))),
                }
            }
        }
    }

    fn streams(&self, source: &str, streams: &[Stream]) -> Result<CodeVerdict, SandboxError> {
        let of = streams.len() as u32;
        let (mut points, mut failure) = (0, None);
        for (number, stream) in (1..).zip(streams) {
            let output = self.sandbox.run(source, stream.input.as_bytes(), &self.limits)?;
            let text = String::from_utf8_lossy(&output.stdout);
            if output.succeeded() && same_lines(&text, &stream.output) {
                points += 1;
                continue;
            }
            let detail = format!("test {number} of {of}: {}", what_went_wrong(&output, stream));
            failure.get_or_insert((reason(output.ending), detail));
            if !self.every {
                break;
            }
        }
        Ok(match failure {
            Some((reason, detail)) => CodeVerdict::failed(reason, points, of, detail),
            None => CodeVerdict::right(of),
        })
    }

    /// The answer of a reply: what its fenced program writes last, or else what the reply marks, or else what the whole
    /// reply writes last as a program.
    fn answer(&self, reply: &str, truths: &[String]) -> Result<CodeVerdict, SandboxError> {
        let nothing = |detail: &str| Ok(CodeVerdict::failed(Reason::Nothing, 0, 1, detail));
        let said = reply.rsplit_once("</think>").map_or(reply, |(_, said)| said);
        let block = fenced(said);
        let marked = if block.is_none() { math::extract(reply) } else { None };
        let answer = if let Some(marked) = marked {
            marked.to_owned()
        } else {
            let output = self.sandbox.run(&called(block.unwrap_or(said)), b"", &self.limits)?;
            if block.is_none() && !compiles(&output) {
                return nothing("there is no program, and no answer is marked");
            }
            if !output.succeeded() {
                let detail = format!("it {}\n{}", output.ending, tail(&output.stderr));
                return Ok(CodeVerdict::failed(reason(output.ending), 0, 1, detail));
            }
            match last_line(&output) {
                Some(answer) => answer,
                None => return nothing("the program writes no answer"),
            }
        };
        let right = truths
            .iter()
            .any(|truth| math::compare(&answer, math::reference(truth)) == Equality::Equal);
        let wrong =
            || CodeVerdict::failed(Reason::Wrong, 0, 1, format!("the answer is {answer:?}"));
        Ok(if right { CodeVerdict::right(1) } else { wrong() })
    }
}

fn examined(report: Report) -> CodeVerdict {
    let Some(failure) = report.failure else { return CodeVerdict::right(report.of) };
    let limit = ["the candidate ", "the tests "].iter().any(|who| failure.text.starts_with(who));
    let reason = match failure.test {
        _ if limit => Reason::Limit,
        None => Reason::Undefined,
        Some(_) => Reason::Wrong,
    };
    let detail = match failure.test {
        Some(test) => format!("test {}: {}", test + 1, failure.text),
        None => failure.text,
    };
    CodeVerdict::failed(reason, report.points, report.of, detail)
}

/// A program that gives its answer by a function, as program-aided solutions do, is made to write it.
fn called(program: &str) -> String {
    let named = ["solution", "simple_math_problem"];
    let defined = named.iter().find(|name| program.contains(&format!("def {name}():")));
    match defined {
        Some(name) if !program.contains("print(") => format!("{program}\nprint({name}())\n"),
        _ => program.to_owned(),
    }
}

/// Whether what was run is a program at all; words mostly are none.
fn compiles(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim_end().lines().next_back().unwrap_or_default();
    let kinds = ["SyntaxError", "IndentationError", "TabError"];
    output.succeeded() || !kinds.iter().any(|kind| last.starts_with(kind))
}

fn reason(ending: Ending) -> Reason {
    match ending {
        Ending::Exited(_) | Ending::Signal(_) => Reason::Wrong,
        Ending::WallLimit | Ending::CpuLimit | Ending::OutputLimit => Reason::Limit,
    }
}

/// Whether two outputs are the same but for blanks at the ends of lines and empty lines at the end.
fn same_lines(a: &str, b: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
    };
    lines(a) == lines(b)
}

fn what_went_wrong(output: &Output, stream: &Stream) -> String {
    if output.succeeded() {
        let found = tail(&output.stdout);
        let (input, wanted) = (stream.input.trim_end(), stream.output.trim_end());
        return format!("for the input\n{input}\nit writes\n{found}\nand must write\n{wanted}");
    }
    format!("it {}\n{}", output.ending, tail(&output.stderr))
}

/// The last line that is not blank.
fn last_line(output: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// The end of a text, not to flood a prompt.
fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end();
    let skipped = text.chars().count().saturating_sub(SHOWN);
    let kept: String = text.chars().skip(skipped).collect();
    if skipped > 0 { format!("...{kept}") } else { kept }
}

/// Limits of programs by the two numbers that a configuration gives.
pub(super) fn limits(seconds: f64, memory_mib: u64) -> Limits {
    let time = Duration::from_secs_f64(seconds);
    Limits { wall: time, cpu: time, memory: memory_mib << 20, ..Limits::default() }
}

//! Runs programs of replies and judges their results.

use maverl_answers::AnswerVerdict;
use maverl_sandbox::{Ending, Exam, ExamReport, Output, ProgramLimits, Sandbox, SandboxError};

use super::problem::{Problem, Stream, Tests};
use super::reply::{fenced, program};
use super::tolerance::near_lines;

/// Number of characters shown of the end of a traceback.
const SHOWN: usize = 600;

/// A sandbox, and the resources that programs may use in it.
#[derive(Debug)]
pub struct Judge {
    sandbox: Sandbox,
    limits: ProgramLimits,
    /// True if every test is run, so that the share of passed tests is known; otherwise the first failure ends the run.
    every: bool,
}

/// Reason for the verdict on a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The program passes every test.
    Passed,
    /// The reply has neither a program nor an answer.
    Nothing,
    /// The program does not define the required name, or does not compile.
    Undefined,
    /// A result differs from the expected one, or the program raises an exception.
    Wrong,
    /// The program exceeded its time or another limit.
    Limit,
}

impl Reason {
    /// Returns the description without any quotation of a test.
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

/// Verdict on a program.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeVerdict {
    /// Reason for the verdict.
    pub reason: Reason,
    /// Points reached.
    pub points: u32,
    /// Maximum number of points.
    pub of: u32,
    /// First failure. It may quote a test, so it is only for readers who may see the tests.
    pub detail: String,
}

impl CodeVerdict {
    /// Returns true if all points are reached.
    pub fn passed(&self) -> bool {
        self.reason == Reason::Passed
    }

    /// Returns the share of points; 1 only if all are reached.
    pub fn share(&self) -> f64 {
        if self.of == 0 { 0.0 } else { f64::from(self.points) / f64::from(self.of) }
    }

    /// Returns the description, which may quote a test.
    pub fn text(&self) -> String {
        match (self.reason, self.detail.as_str()) {
            (reason, "") => reason.text().to_owned(),
            // The detail names what is missing.
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
    /// Creates a judge that runs each program with an interpreter and these limits. With `every`, all tests are run
    /// even after a failure.
    ///
    /// # Errors
    ///
    /// If there is no sandbox; see [`Sandbox::new`].
    pub fn new(
        python: &str,
        strict: bool,
        limits: ProgramLimits,
        every: bool,
    ) -> Result<Self, SandboxError> {
        Ok(Self { sandbox: Sandbox::new(python, strict)?, limits, every })
    }

    /// Returns the sandbox.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Judges a reply by the hidden tests of a problem. Blocks until its programs end.
    ///
    /// # Errors
    ///
    /// If the sandbox or the task's own tests fail; never because of the reply.
    pub fn judge(&self, problem: &Problem, reply: &str) -> Result<CodeVerdict, SandboxError> {
        self.by(&problem.hidden, problem, reply)
    }

    /// Judges a reply by the public tests, whose results may be shown.
    ///
    /// # Errors
    ///
    /// Same as [`Judge::judge`].
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
                let exam = Exam {
                    source: &source,
                    entry,
                    setup: &problem.setup,
                    preamble: problem.preamble,
                    tests,
                    tolerance: problem.tolerance,
                };
                Ok(examined(self.sandbox.examine(&exam, &self.limits)?))
            }
            Tests::Streams(streams) => self.streams(problem, &source, streams),
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

    fn streams(
        &self,
        problem: &Problem,
        source: &str,
        streams: &[Stream],
    ) -> Result<CodeVerdict, SandboxError> {
        let of = streams.len() as u32;
        let (mut points, mut failure) = (0, None);
        for (number, stream) in (1..).zip(streams) {
            // What is longer than expected is wrong in any case.
            let room = self.limits.output.max(2 * stream.output.len());
            let limits = ProgramLimits { output: room, ..self.limits };
            let input = stream.input.as_bytes();
            let output = self.sandbox.run_after(problem.preamble, source, input, &limits)?;
            let text = String::from_utf8_lossy(&output.stdout);
            let is_right = match problem.tolerance {
                Some(tolerance) => near_lines(&text, &stream.output, tolerance),
                None => same_lines(&text, &stream.output),
            };
            if output.succeeded() && is_right {
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

    /// Judges the answer of a reply: the last output of its fenced program, else the marked answer, else the last
    /// output of the whole reply as a program.
    fn answer(&self, reply: &str, truths: &[String]) -> Result<CodeVerdict, SandboxError> {
        let said = reply.rsplit_once("</think>").map_or(reply, |(_, said)| said);
        let block = fenced(said);
        let marked = if block.is_none() { maverl_answers::marked_answer(reply) } else { None };
        let answer = if let Some(marked) = marked {
            marked.to_owned()
        } else {
            let output = self.sandbox.run(&called(block.unwrap_or(said)), b"", &self.limits)?;
            if block.is_none() && !compiles(&output) {
                let detail = "there is no program, and no answer is marked";
                return Ok(CodeVerdict::failed(Reason::Nothing, 0, 1, detail));
            }
            if !output.succeeded() {
                let detail = format!("it {}\n{}", output.ending, tail(&output.stderr));
                return Ok(CodeVerdict::failed(reason(output.ending), 0, 1, detail));
            }
            match last_line(&output) {
                Some(answer) => answer,
                None => {
                    let detail = "the program writes no answer";
                    return Ok(CodeVerdict::failed(Reason::Nothing, 0, 1, detail));
                }
            }
        };
        let truths: Vec<&str> = truths.iter().map(String::as_str).collect();
        let right = maverl_answers::judge_answer(&answer, &truths).verdict == AnswerVerdict::Equal;
        Ok(if right {
            CodeVerdict::right(1)
        } else {
            CodeVerdict::failed(Reason::Wrong, 0, 1, format!("the answer is {answer:?}"))
        })
    }
}

fn examined(report: ExamReport) -> CodeVerdict {
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

/// Makes a program that returns its answer from a function, as program-aided solutions do, print it.
fn called(program: &str) -> String {
    let named = ["solution", "simple_math_problem"];
    let defined = named.iter().find(|name| program.contains(&format!("def {name}():")));
    match defined {
        Some(name) if !program.contains("print(") => format!("{program}\nprint({name}())\n"),
        _ => program.to_owned(),
    }
}

/// Returns true if the executed text is a program at all; prose rarely is.
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

/// Returns true if two outputs are equal except for trailing blanks of lines and trailing empty lines.
fn same_lines(a: &str, b: &str) -> bool {
    let [a, b] = [a, b].map(|text| text.trim_end().lines().map(str::trim_end));
    a.eq(b)
}

fn what_went_wrong(output: &Output, stream: &Stream) -> String {
    if output.succeeded() {
        let found = tail(&output.stdout);
        let (input, wanted) = (stream.input.trim_end(), stream.output.trim_end());
        return format!("for the input\n{input}\nit writes\n{found}\nand must write\n{wanted}");
    }
    format!("it {}\n{}", output.ending, tail(&output.stderr))
}

/// Returns the last line that is not blank.
fn last_line(output: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// Returns the end of a text, to keep prompts short.
fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end();
    let skipped = text.chars().count().saturating_sub(SHOWN);
    let kept: String = text.chars().skip(skipped).collect();
    if skipped > 0 { format!("...{kept}") } else { kept }
}

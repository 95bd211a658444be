//! What a candidate is asked, and what came of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Ending, Output, SandboxError};

/// A candidate and its tests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exam<'a> {
    /// The program that defines the candidate.
    pub source: &'a str,
    /// The function to be tested; a method, if the program has a class `Solution`.
    pub entry: &'a str,
    /// Code of the task that tests may use; runs beside the tests, never beside the candidate.
    pub setup: &'a str,
    /// The tests, in order.
    pub tests: &'a [Test],
}

/// A test of a candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Test {
    /// Code that defines `check(candidate)`, as HumanEval has it: a point for every assertion in it, and one for its end.
    Check {
        /// The code.
        check: String,
    },
    /// Statements that raise if the candidate is wrong, as MBPP has them; a point.
    Code {
        /// The statements, which know the candidate by its name and as `candidate`.
        code: String,
    },
    /// A call and what it must return, tuples and lists being one; a point.
    Call {
        /// The arguments, by position.
        arguments: Vec<Value>,
        /// The value.
        expected: Value,
        /// Another value that will do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alternative: Option<Value>,
    },
}

/// What came of an [`Exam`].
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Points reached.
    pub points: u32,
    /// Points there were; at least one for each test.
    pub of: u32,
    /// The first thing that went wrong: which test, and what it was. May quote what a test expects: only for those who
    /// may know the tests.
    pub failure: Option<Failure>,
}

/// The first thing that went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The test, from 0; `None` if the candidate was not even defined.
    pub test: Option<usize>,
    /// The error's kind and text.
    pub text: String,
}

impl Report {
    /// Whether every point was reached.
    pub fn passed(&self) -> bool {
        self.failure.is_none()
    }

    /// Reads what the tests' process said, in the light of how both processes ended.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // there is nothing to read
    pub(crate) fn read(
        exam: &Exam<'_>,
        tests: &Output,
        candidate: &Output,
    ) -> Result<Self, SandboxError> {
        let said = String::from_utf8_lossy(&tests.stdout);
        // A last line that was cut off is no line.
        let lines: Vec<Line> =
            said.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
        let mut report = Self { points: 0, of: 0, failure: None };
        let (mut done, mut ended) = (0, false);
        for line in lines {
            match line {
                Line::Undefined { undefined } => report.fail(None, undefined),
                Line::Test { points, of, text } => {
                    report.points += points;
                    report.of += of;
                    if points < of {
                        report.fail(Some(done), text);
                    }
                    done += 1;
                }
                Line::Broken { broken } => return Err(SandboxError::Tests(broken)),
                Line::End { .. } => ended = true,
            }
        }
        if !ended {
            // Nothing but what the candidate sent can end the tests' process early.
            report.fail(Some(done), format!("the tests {}", tests.ending));
        }
        report.of += exam.tests.len().saturating_sub(done) as u32;
        let gone = |failure: &&mut Failure| {
            failure.text.starts_with("Gone") || failure.text.starts_with("the tests ")
        };
        if let Some(failure) = report.failure.as_mut().filter(gone)
            && limited(candidate.ending)
        {
            failure.text = format!("the candidate {}", candidate.ending);
        }
        Ok(report)
    }

    fn fail(&mut self, test: Option<usize>, text: String) {
        self.failure.get_or_insert(Failure { test, text });
    }
}

/// Whether a program was ended for using too much.
fn limited(ending: Ending) -> bool {
    matches!(ending, Ending::CpuLimit | Ending::OutputLimit | Ending::WallLimit)
}

/// A line of what the tests' process says.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Test {
        points: u32,
        of: u32,
        text: String,
    },
    Undefined {
        undefined: String,
    },
    Broken {
        broken: String,
    },
    End {
        #[serde(rename = "end")]
        _end: bool,
    },
}

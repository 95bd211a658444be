//! Tests of a candidate, and their results.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Ending, Output, SandboxError};

/// A candidate and its tests.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Exam<'a> {
    /// Program that defines the candidate.
    pub source: &'a str,
    /// Function under test; a method, if the program has a class `Solution`.
    pub entry: &'a str,
    /// Code of the task that tests may use; runs in the tests' process, never in the candidate's.
    pub setup: &'a str,
    /// Code that runs before the program if that reads names which nothing defines.
    pub preamble: &'a str,
    /// Tests in order.
    pub tests: &'a [ExamTest],
    /// Difference by which a returned number that is not whole may miss the expected one: as a share of it if that is
    /// above 1. `None` wants equality.
    pub tolerance: Option<f64>,
}

impl Exam<'_> {
    /// Returns the seed of the tests' and the candidate's `random`. It depends on the tests, and not on the program.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // there is nothing to seed
    pub(crate) fn random_seed(&self) -> serde_json::Result<u64> {
        Ok(hash_seed(&serde_json::to_vec(&(self.entry, self.setup, self.tests))?))
    }
}

/// Returns the hash of bytes (FNV-1a, 64 bits), as a seed.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) fn hash_seed(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A test of a candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExamTest {
    /// Code that defines `check(candidate)`, as in HumanEval: one point for every assertion in it, and one for its end.
    Check {
        /// The code.
        check: String,
    },
    /// Statements that raise if the candidate is wrong, as in MBPP; one point.
    Code {
        /// Statements, which can use the candidate by its name and as `candidate`.
        code: String,
    },
    /// A call and its expected value, where tuples equal lists; one point.
    Call {
        /// Positional arguments.
        arguments: Vec<Value>,
        /// Expected value.
        expected: Value,
        /// Another accepted value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alternative: Option<Value>,
    },
}

/// Result of an [`Exam`].
#[derive(Debug, Clone, PartialEq)]
pub struct ExamReport {
    /// Points reached.
    pub points: u32,
    /// Maximum number of points; at least one for each test.
    pub of: u32,
    /// First failure: the test and its error. May quote expected values, so it is only for readers who may see the
    /// tests.
    pub failure: Option<ExamFailure>,
}

/// First failure of an exam.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExamFailure {
    /// Index of the test, from 0; `None` if defining the candidate failed.
    pub test: Option<usize>,
    /// Kind and text of the error.
    pub text: String,
}

impl ExamReport {
    /// Returns true if every point was reached.
    pub fn passed(&self) -> bool {
        self.failure.is_none()
    }

    /// Reads the output of the tests' process, considering the endings of both processes.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // there is nothing to read
    pub(crate) fn from_outputs(
        exam: &Exam<'_>,
        tests: &Output,
        candidate: &Output,
    ) -> Result<Self, SandboxError> {
        let said = String::from_utf8_lossy(&tests.stdout);
        // A truncated last line is ignored.
        let lines: Vec<OutputLine> =
            said.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
        let mut report = Self { points: 0, of: 0, failure: None };
        let (mut done, mut ended) = (0, false);
        for line in lines {
            match line {
                OutputLine::Undefined { undefined } => report.record_failure(None, undefined),
                OutputLine::Test { points, of, text } => {
                    report.points += points;
                    report.of += of;
                    if points < of {
                        report.record_failure(Some(done), text);
                    }
                    done += 1;
                }
                OutputLine::Broken { broken } => return Err(SandboxError::Tests(broken)),
                OutputLine::End { .. } => ended = true,
            }
        }
        if !ended {
            // Only the candidate's replies can end the tests' process early.
            report.record_failure(Some(done), format!("the tests {}", tests.ending));
        }
        report.of += exam.tests.len().saturating_sub(done) as u32;
        let gone = report.failure.as_mut().filter(|failure| {
            failure.text.starts_with("Gone") || failure.text.starts_with("the tests ")
        });
        if let Some(failure) = gone
            && exceeded_limit(candidate.ending)
        {
            failure.text = format!("the candidate {}", candidate.ending);
        }
        Ok(report)
    }

    fn record_failure(&mut self, test: Option<usize>, text: String) {
        self.failure.get_or_insert(ExamFailure { test, text });
    }
}

/// Returns true if a program was killed for exceeding a limit.
fn exceeded_limit(ending: Ending) -> bool {
    matches!(ending, Ending::CpuLimit | Ending::OutputLimit | Ending::WallLimit)
}

/// Line of the tests' process's output.
#[derive(Deserialize)]
#[serde(untagged)]
enum OutputLine {
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

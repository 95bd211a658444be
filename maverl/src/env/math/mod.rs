//! Mathematics: when two answers say the same, where a reply has its answer, and the environment that judges by both.
//!
//! An answer is read into a value (a number, a tuple, a set, an interval, a matrix, a relation, words). Numbers are exact:
//! rationals, roots, `π` and variables have a normal form that decides. Where functions are left in it, values at drawn
//! points do, and where those say neither, the verdict is [`Verdict::Undecided`], which no reward counts as right.
//! Work is counted, not timed, so a verdict is the same on every machine.

mod answer;
mod calculate;
mod environment;
mod exact;
mod expression;
mod function;
mod numeric;
mod read;
mod token;
mod value;

pub use answer::{extract, last_number};
pub use calculate::calculate;
pub use environment::{MathEnvironment, reference};

use self::exact::{Stop, Work};
use self::value::Answer;

/// Longest answer in bytes that is read.
const MAX_BYTES: usize = 2000;

/// Whether an answer is the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They say the same.
    Equal,
    /// They do not.
    Unequal,
    /// It cannot be told, or not within the budget; counts as wrong.
    Undecided,
}

impl From<bool> for Verdict {
    fn from(equal: bool) -> Self {
        if equal { Self::Equal } else { Self::Unequal }
    }
}

impl Verdict {
    /// Of two parts that must both be equal.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unequal, _) | (_, Self::Unequal) => Self::Unequal,
            (Self::Equal, Self::Equal) => Self::Equal,
            _ => Self::Undecided,
        }
    }
}

/// Whether an answer says what the reference says. Units, signs of money and the name before `=` may be left out.
///
/// ```
/// use maverl::env::math::{Verdict, compare};
///
/// assert_eq!(compare("\\frac{\\sqrt{8}}{4}", "1/\\sqrt2"), Verdict::Equal);
/// assert_eq!(compare("3.14159", "\\pi"), Verdict::Unequal);
/// ```
pub fn compare(answer: &str, reference: &str) -> Verdict {
    judge(answer, reference).0
}

/// The verdict, and the work it took.
fn judge(answer: &str, reference: &str) -> (Verdict, u64) {
    let mut work = Work::new();
    let (answer, reference) = (answer.trim(), reference.trim());
    if answer.len().max(reference.len()) > MAX_BYTES || answer.is_empty() || reference.is_empty() {
        let same = answer == reference && !answer.is_empty();
        return (if same { Verdict::Equal } else { Verdict::Undecided }, 0);
    }
    if answer == reference {
        return (Verdict::Equal, 0);
    }
    let read = |text: &str, work: &mut Work| Answer::read(text, work);
    let verdict = match (read(answer, &mut work), read(reference, &mut work)) {
        (Ok(answer), Ok(reference)) => value::compare(&answer, &reference, &mut work),
        (Err(Stop::Meaningless), Err(Stop::Meaningless)) => Ok(spelled(answer, reference)),
        // What has no value is not what has one.
        (Err(Stop::Meaningless), Ok(_)) | (Ok(_), Err(Stop::Meaningless)) => Ok(Verdict::Unequal),
        (Err(stop), _) | (_, Err(stop)) => Err(stop),
    };
    (verdict.unwrap_or(Verdict::Undecided), work.spent())
}

/// Two texts that are nothing known: equal if only white space and capitals differ.
fn spelled(a: &str, b: &str) -> Verdict {
    let letters = |text: &str| -> String {
        text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect()
    };
    if letters(a) == letters(b) { Verdict::Equal } else { Verdict::Undecided }
}

#[cfg(test)]
mod tests;

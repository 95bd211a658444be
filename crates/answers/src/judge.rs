//! Mathematics: equality of answers, extraction of the answer from a reply, and the environment that judges by both.
//!
//! An answer is parsed into a value (a number, a tuple, a set, a set of reals, a matrix, a relation, a named result,
//! digits in a base, words). Numbers are exact: rationals, roots, `π` and variables have a normal form that decides
//! equality. If functions remain in it, values at sampled points decide. If those do not decide either, the verdict is
//! [`AnswerVerdict::Undecided`], which no reward counts as correct. The budget counts operations instead of time, so a
//! verdict is the same on every machine.
//!
//! ```text
//!  text ─► tokens (token, command, unicode) ─► Answer (read) ─► AnswerVerdict (compare)
//!                    choice, list, equation, inequality, reals, unit, based, name
//!                    expression, call, factorial ─► exact ─► numeric
//! ```

mod answer;
mod based;
mod brackets;
mod calculate;
mod call;
mod choice;
mod command;
mod compare;
mod environment;
mod equation;
mod exact;
mod expression;
mod factorial;
mod function;
mod inequality;
mod list;
mod name;
mod numeric;
mod rational;
mod read;
mod reals;
mod token;
mod unicode;
mod unit;
mod value;

#[doc(hidden)]
pub use answer::{extract, last_number, whole, without_tokens};
#[doc(hidden)]
pub use calculate::calculate;
pub use environment::MathEnvironment;
#[doc(hidden)]
pub use environment::{answer, reference};

use self::exact::{Stop, Work};
use self::unit::Unit;
use self::value::{Answer, Value};

/// Maximum length in bytes of an answer that is parsed.
const MAX_BYTES: usize = 2000;

/// Verdict on an answer and a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerVerdict {
    /// Both have the same value.
    Equal,
    /// Their values differ.
    Unequal,
    /// Equality could not be decided, or not within the budget; counts as wrong.
    Undecided,
}

impl From<bool> for AnswerVerdict {
    fn from(equal: bool) -> Self {
        if equal { Self::Equal } else { Self::Unequal }
    }
}

impl AnswerVerdict {
    /// Combines the verdicts on two parts that must both be equal.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unequal, _) | (_, Self::Unequal) => Self::Unequal,
            (Self::Equal, Self::Equal) => Self::Equal,
            _ => Self::Undecided,
        }
    }
}

/// Compares an answer with a reference. Units, currency signs and the name before `=` may be omitted.
///
/// ```
/// use maverl::env::math::{AnswerVerdict, compare};
///
/// assert_eq!(compare("\\frac{\\sqrt{8}}{4}", "1/\\sqrt2"), AnswerVerdict::Equal);
/// assert_eq!(compare("3.14159", "\\pi"), AnswerVerdict::Unequal);
/// ```
pub fn compare(answer: &str, reference: &str) -> AnswerVerdict {
    judge(answer, reference).0
}

/// Returns true if a reference can be parsed. An unreadable reference matches only identical text.
///
/// ```
/// use maverl::env::math::is_readable;
///
/// assert!(is_readable("\\frac{1}{2}"));
/// assert!(!is_readable("\\frac{1}{"));
/// ```
#[doc(hidden)]
pub fn is_readable(reference: &str) -> bool {
    let reference = reference.trim();
    let read = || Answer::read(reference, Reading::Plain, &mut Work::new());
    !reference.is_empty() && reference.len() <= MAX_BYTES && read().is_ok()
}

/// Returns the verdict, and the number of operations used.
fn judge(answer: &str, reference: &str) -> (AnswerVerdict, u64) {
    let mut work = Work::new();
    let (answer, reference) = (answer.trim(), reference.trim());
    if answer.len().max(reference.len()) > MAX_BYTES || answer.is_empty() || reference.is_empty() {
        let same = answer == reference && !answer.is_empty();
        return (if same { AnswerVerdict::Equal } else { AnswerVerdict::Undecided }, 0);
    }
    if answer == reference {
        return (AnswerVerdict::Equal, 0);
    }
    let verdict = verdict(answer, reference, &mut work).unwrap_or(AnswerVerdict::Undecided);
    (verdict, work.spent())
}

/// Returns the verdict on the plain readings of both, else on their alternative readings.
fn verdict(answer: &str, reference: &str, work: &mut Work) -> Result<AnswerVerdict, Stop> {
    let (said, truth) =
        (Answer::read(answer, Reading::Plain, work), Answer::read(reference, Reading::Plain, work));
    let plain = match (&said, &truth) {
        (Ok(said), Ok(truth)) => compare::answers(said, truth, work)?,
        (Err(Stop::Meaningless), Err(Stop::Meaningless)) => spelled(answer, reference),
        // An expression without a value differs from one with a value.
        (Err(Stop::Meaningless), Ok(_)) => AnswerVerdict::Unequal,
        (Ok(_), Err(Stop::Meaningless)) => AnswerVerdict::Undecided,
        (Err(stop), _) | (_, Err(stop)) => return Err(*stop),
    };
    let Ok(truth) = truth else { return Ok(plain) };
    if plain == AnswerVerdict::Equal {
        return Ok(plain);
    }
    let readings = [
        (Reading::Lists, has_thousands(answer)),
        (Reading::Spaced, has_thousands(answer) && has_spaced_commas(answer)),
        (Reading::Units, truth.unit.is_known() || is_spaced_letter(answer) && is_plain(&truth)),
    ];
    for (reading, _) in readings.into_iter().filter(|(_, possible)| *possible) {
        if let Ok(said) = Answer::read(answer, reading, work)
            && compare::answers(&said, &truth, work)? == AnswerVerdict::Equal
        {
            return Ok(AnswerVerdict::Equal);
        }
    }
    let Ok(said) = said else { return Ok(plain) };
    // A reference that may be a list is read as one if the answer is a list, in the order as written.
    if has_thousands(reference)
        && let (Value::Set(items), Ok(truth)) =
            (&said.value, Answer::read(reference, Reading::Lists, work))
        && let Value::Set(truth) = &truth.value
        && compare::in_order(items, truth, work)? == AnswerVerdict::Equal
    {
        return Ok(AnswerVerdict::Equal);
    }
    if said.unit.is_known()
        && let Ok(truth) = Answer::read(reference, Reading::Units, work)
        && truth.unit.is_known()
    {
        return compare::answers(&said, &truth, work);
    }
    Ok(plain)
}

/// Rules for ambiguous notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// `1,234` is a number outside of brackets and two numbers inside; `12 m` is a product.
    Plain,
    /// `1,234` is two numbers.
    Lists,
    /// `1,234` is a number inside brackets too, if other commas are followed by spaces.
    Spaced,
    /// `12 m` is a length.
    Units,
}

/// Returns true if a comma may separate thousands, and nothing else shows that it does.
fn has_thousands(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let after = |at: usize| digits(&text[at + 1..]) == 3;
    let before = |at: usize| text[..at].ends_with(|c: char| c.is_ascii_digit());
    text.match_indices(',').any(|(at, _)| before(at) && after(at))
}

fn has_spaced_commas(text: &str) -> bool {
    text.contains(", ")
}

/// Returns true if the last letter may be a unit: `12 m`, but not `12m`.
fn is_spaced_letter(text: &str) -> bool {
    let text = text.trim_matches(['$', '.', ' ']);
    let Some((before, unit)) = text.rsplit_once(' ') else { return false };
    let letters = unit.bytes().take_while(u8::is_ascii_alphabetic).count();
    letters == 1 && before.ends_with(|c: char| c.is_ascii_digit() || c == '}')
}

/// Returns true for a number without unit.
fn is_plain(answer: &Answer) -> bool {
    answer.number().is_some() && answer.unit == Unit::default()
}

/// Compares two unparsed texts: equal if they differ only in white space and case.
fn spelled(a: &str, b: &str) -> AnswerVerdict {
    let letters = |text: &str| -> String {
        text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect()
    };
    if letters(a) == letters(b) { AnswerVerdict::Equal } else { AnswerVerdict::Undecided }
}

#[cfg(test)]
mod tests;

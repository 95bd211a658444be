//! Mathematical answers: where a reply gives one, and equality with a reference.
//!
//! An answer is parsed into a value (a number, a tuple, a set, a set of reals, a matrix, a relation, a named result,
//! digits in a base, words). Numbers are exact: rationals, roots, `π` and variables have a normal form that decides
//! equality. If functions remain in it, values at sampled points decide. If those do not decide either, the verdict is
//! [`AnswerVerdict::Undecided`], which no reward counts as correct. The budget counts operations instead of time, so a
//! verdict is the same on every machine.
//!
//! ```
//! use maverl_answers::{AnswerVerdict, answer_or_guess, judge_answer};
//!
//! let given = answer_or_guess("Both halves are equal, so it is \\boxed{\\frac{1}{2}}.", false).unwrap_or_default();
//! assert_eq!(given, "\\frac{1}{2}");
//! assert_eq!(judge_answer(given, &["0.5", "50\\%"]).verdict, AnswerVerdict::Equal);
//! ```
//!
//! Each file uses only files of the lines above it, or files to its left:
//!
//! ```text
//!  data        verdict  work  reading  token  function  draw
//!  arithmetic  rational ─► exact ─► factorial, numeric ─► reals
//!  texts       unicode, unit, lexer ─► number, command ─► tokens ─► brackets, quantity, choice, based
//!  values      parser ─► expression ─► name ─► value ─► equality
//!  answers     inequality ─► list, equation ─► read ─► calculate, judge
//!  replies     reply (used by judge)
//! ```
#![allow(clippy::disallowed_methods)] // values at sampled points decide with bounds of their errors

mod based;
mod brackets;
mod calculate;
mod choice;
mod command;
mod draw;
mod equality;
mod equation;
mod exact;
mod expression;
mod factorial;
mod function;
mod inequality;
mod judge;
mod lexer;
mod list;
mod name;
mod number;
mod numeric;
mod parser;
mod quantity;
mod rational;
mod read;
mod reading;
mod reals;
mod reply;
mod token;
mod tokens;
mod unicode;
mod unit;
mod value;
mod verdict;
mod work;

pub use calculate::calculate_exactly;
pub use judge::{Judgment, compare_answers, is_readable, judge_answer};
pub use reply::{
    answer_or_guess, last_number, marked_answer, reference_answer, whole_reply, without_tokens,
};
pub use verdict::AnswerVerdict;

#[cfg(test)]
mod tests;

//! Token of an answer, in LaTeX or plain text.

use num_rational::BigRational;

/// Token of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MathToken {
    /// An unsigned number, and its digits as written.
    Number { value: BigRational, digits: String },
    /// A letter that stands for a number.
    Letter(char),
    /// A word or a LaTeX command without its backslash.
    Word(String),
    /// The text in `\text{..}` and similar commands.
    Text(String),
    /// Any other character, including LaTeX's named symbols. `$` is a currency sign, never a delimiter.
    Symbol(char),
    /// The end of a row of a matrix.
    Row,
}

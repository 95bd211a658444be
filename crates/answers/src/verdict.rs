//! Verdict of a comparison.

/// Verdict on an answer and a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Returns the verdict as a word: `equal`, `unequal`, `undecided`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Unequal => "unequal",
            Self::Undecided => "undecided",
        }
    }

    /// Combines the verdicts on two parts that must both be equal.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unequal, _) | (_, Self::Unequal) => Self::Unequal,
            (Self::Equal, Self::Equal) => Self::Equal,
            _ => Self::Undecided,
        }
    }
}

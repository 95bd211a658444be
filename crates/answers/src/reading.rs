//! Ways to read a notation that means two things.

/// Rules for ambiguous notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotationReading {
    /// `1,234` is a number outside of brackets and two numbers inside; `12 m` is a product.
    Plain,
    /// `1,234` is two numbers.
    Lists,
    /// `1,234` is a number inside brackets too, if other commas are followed by spaces.
    Spaced,
    /// `12 m` is a length.
    Units,
}

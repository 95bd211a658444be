//! Rational numbers: sums, products, and what they cost.

use num_rational::BigRational;

/// Adds. Integers, which most factors are, need no common divisor.
pub(crate) fn add_rationals(x: &BigRational, y: &BigRational) -> BigRational {
    if x.is_integer() && y.is_integer() {
        BigRational::from_integer(x.numer() + y.numer())
    } else {
        x + y
    }
}

/// Multiplies. Integers, which most factors are, need no common divisor.
pub(crate) fn multiply_rationals(x: &BigRational, y: &BigRational) -> BigRational {
    if x.is_integer() && y.is_integer() {
        BigRational::from_integer(x.numer() * y.numer())
    } else {
        x * y
    }
}

/// Returns the length of a number in bits.
pub(crate) fn bit_length(x: &BigRational) -> u64 {
    x.numer().bits() + x.denom().bits()
}

/// Returns the operations that one with a number counts as.
pub(crate) fn operation_cost(x: &BigRational) -> u64 {
    1 + bit_length(x) / 64
}

//! Rational numbers: sums, products, and what they cost.

use num_rational::BigRational;

/// Adds. Integers, which most factors are, need no common divisor.
pub(crate) fn add(x: &BigRational, y: &BigRational) -> BigRational {
    if x.is_integer() && y.is_integer() {
        BigRational::from_integer(x.numer() + y.numer())
    } else {
        x + y
    }
}

/// Multiplies. Integers, which most factors are, need no common divisor.
pub(crate) fn multiply(x: &BigRational, y: &BigRational) -> BigRational {
    if x.is_integer() && y.is_integer() {
        BigRational::from_integer(x.numer() * y.numer())
    } else {
        x * y
    }
}

/// Returns the length of a number in bits.
pub(crate) fn bits(x: &BigRational) -> u64 {
    x.numer().bits() + x.denom().bits()
}

/// Returns the operations that one with a number counts as.
pub(crate) fn cost(x: &BigRational) -> u64 {
    1 + bits(x) / 64
}

//! Names inside expressions, and functions that are exact on rationals.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive};

use super::exact::{Expr, Stop, Work};

/// Largest number whose factorial is computed.
const MAX_FACTORIAL: u32 = 300;

/// Functions of one argument.
pub(super) const FUNCTIONS: [&str; 16] = [
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "ln", "log", "lg", "exp",
];
/// Words for powers of a thousand, and their number of zeros.
pub(super) const MAGNITUDES: [(&str, u32); 5] =
    [("hundred", 2), ("thousand", 3), ("million", 6), ("billion", 9), ("trillion", 12)];

pub(super) fn is_function(word: &str) -> bool {
    FUNCTIONS.contains(&word)
}

/// Returns true for words inside an expression that are not units.
pub(super) fn is_known(word: &str) -> bool {
    is_function(word)
        || MAGNITUDES.iter().any(|(name, _)| *name == word)
        || matches!(
            word,
            "frac"
                | "sqrt"
                | "abs"
                | "binom"
                | "lfloor"
                | "rfloor"
                | "lceil"
                | "rceil"
                | "over"
                | "choose"
        )
        || GREEK.iter().any(|(name, _)| *name == word)
}

/// Returns true if a factor may begin with a word.
pub(super) fn begins_factor(word: &str) -> bool {
    is_known(word) && !matches!(word, "rfloor" | "rceil" | "over" | "choose")
}

/// Letters by name.
pub(super) const GREEK: [(&str, char); 18] = [
    ("alpha", 'α'),
    ("beta", 'β'),
    ("gamma", 'γ'),
    ("delta", 'δ'),
    ("theta", 'θ'),
    ("lambda", 'λ'),
    ("mu", 'μ'),
    ("omega", 'ω'),
    ("phi", 'φ'),
    ("varphi", 'φ'),
    ("rho", 'ρ'),
    ("sigma", 'σ'),
    ("epsilon", 'ε'),
    ("varepsilon", 'ε'),
    ("tau", 'τ'),
    ("kappa", 'κ'),
    ("psi", 'ψ'),
    ("xi", 'ξ'),
];

pub(super) fn absolute(value: Expr) -> Expr {
    match value.rational() {
        Some(value) => value.abs().into(),
        None => Expr::call("abs", vec![value]),
    }
}

fn natural(value: &Expr) -> Option<u32> {
    value.rational().filter(BigRational::is_integer)?.to_integer().to_u32()
}

pub(super) fn factorial(value: &Expr, work: &mut Work) -> Result<Expr, Stop> {
    let n = natural(value).ok_or(Stop::Meaningless)?;
    if n > MAX_FACTORIAL {
        return Err(Stop::Budget);
    }
    work.spend(u64::from(n) * 8)?;
    Ok(BigRational::from_integer((1..=n).map(BigInt::from).product()).into())
}

pub(super) fn binomial(n: &Expr, k: &Expr, work: &mut Work) -> Result<Expr, Stop> {
    let (n, k) = (natural(n).ok_or(Stop::Meaningless)?, natural(k).ok_or(Stop::Meaningless)?);
    if n > MAX_FACTORIAL {
        return Err(Stop::Budget);
    }
    if k > n {
        return Ok(Expr::integer(0));
    }
    work.spend(u64::from(n) * 8)?;
    let product = (0..k.min(n - k)).fold(BigInt::one(), |product, i| product * (n - i) / (i + 1));
    Ok(BigRational::from_integer(product).into())
}

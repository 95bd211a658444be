//! Names that expressions may have: functions, magnitudes, Greek letters.

/// Functions of one argument.
pub(crate) const FUNCTIONS: [&str; 19] = [
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "arcsinh", "arccosh", "arctanh", "ln", "log", "lg", "exp",
];
/// Functions of several whole numbers.
pub(crate) const DIVISORS: [&str; 2] = ["gcd", "lcm"];
/// Functions with their inverse, which the exponent -1 denotes.
pub(crate) const INVERSES: [(&str, &str); 6] = [
    ("sin", "arcsin"),
    ("cos", "arccos"),
    ("tan", "arctan"),
    ("sinh", "arcsinh"),
    ("cosh", "arccosh"),
    ("tanh", "arctanh"),
];
/// Words for powers of a thousand, and their number of zeros.
pub(crate) const MAGNITUDES: [(&str, u32); 5] =
    [("hundred", 2), ("thousand", 3), ("million", 6), ("billion", 9), ("trillion", 12)];

pub(crate) fn is_function(word: &str) -> bool {
    FUNCTIONS.contains(&word)
}

/// Returns true for functions of one or several arguments.
pub(crate) fn is_applied(word: &str) -> bool {
    is_function(word) || DIVISORS.contains(&word)
}

/// Returns true for words inside an expression that are not units.
pub(crate) fn is_known(word: &str) -> bool {
    is_applied(word)
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
pub(crate) fn begins_factor(word: &str) -> bool {
    is_known(word) && !matches!(word, "rfloor" | "rceil" | "over" | "choose")
}

/// Letters by name.
pub(crate) const GREEK: [(&str, char); 18] = [
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

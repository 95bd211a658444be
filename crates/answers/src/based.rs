//! Digits in a base: `1021_4`, `FF_{16}`, `4210 \text{ base } 5`.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Pow, Zero};

use crate::brackets::{inside_brackets, strip_braces};
use crate::token::MathToken;

/// Names of bases, from two.
const NAMES: &str =
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen";

/// A number with an explicit base.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Based {
    /// Digits as written, with sign and point, without leading zeros.
    pub(crate) digits: String,
    pub(crate) base: u32,
    pub(crate) value: BigRational,
}

impl Based {
    /// Reads digits with their base. Returns `None` if the tokens are something else or if a digit is invalid in the
    /// base.
    pub(crate) fn read_tokens(tokens: &[MathToken]) -> Option<Self> {
        let (negative, tokens) = match tokens {
            [MathToken::Symbol('-'), rest @ ..] => (true, rest),
            _ => (false, tokens),
        };
        let at = tokens.iter().position(|token| {
            *token == MathToken::Symbol('_')
                || matches!(token, MathToken::Text(word) | MathToken::Word(word) if is_base(word))
        })?;
        let (digits, base) = tokens.split_at(at);
        // `(base 5)` and `in base 5`
        let digits = match digits {
            [rest @ .., MathToken::Symbol('(')] if base.last() == Some(&MathToken::Symbol(')')) => {
                rest
            }
            [rest @ .., MathToken::Word(word)] if word == "in" => rest,
            _ => digits,
        };
        let digits = spelled_digits(digits)?;
        let base = base_of(base)?;
        // Letters alone are digits if there are several; `S_{32}` is a member of a sequence.
        let plain = digits.chars().any(|c| c.is_ascii_digit());
        let value = digits_value(&digits, base).filter(|_| plain || digits.len() > 1)?;
        let sign = if negative { "-" } else { "" };
        let trimmed = digits.trim_start_matches('0');
        let trimmed = if trimmed.is_empty() { "0" } else { trimmed };
        let value = if negative { -value } else { value };
        Some(Self { digits: format!("{sign}{trimmed}"), base, value })
    }
}

/// Returns true for `base`, `in base` and `base 5`.
fn is_base(word: &str) -> bool {
    let word = word.trim_start_matches('(').to_lowercase();
    word.split(' ').any(|word| word == "base")
}

/// Returns the digits that the tokens spell.
fn spelled_digits(tokens: &[MathToken]) -> Option<String> {
    let tokens = strip_braces(tokens);
    let tokens = inside_brackets(tokens, '(', ')').unwrap_or(tokens);
    let mut digits = String::new();
    for token in strip_braces(tokens) {
        match token {
            MathToken::Number { digits: more, .. } if !more.contains('(') => digits.push_str(more),
            MathToken::Letter(letter) if letter.is_ascii_uppercase() => digits.push(*letter),
            MathToken::Word(word) | MathToken::Text(word)
                if word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()) =>
            {
                digits.push_str(word);
            }
            _ => return None,
        }
    }
    (!digits.is_empty()).then_some(digits)
}

/// Returns the base that the tokens name: `_4`, `_{\text{four}}`, `base 4`.
fn base_of(tokens: &[MathToken]) -> Option<u32> {
    let mut base = None;
    for token in tokens {
        let found = match token {
            MathToken::Symbol('_' | '{' | '}' | '(' | ')') => continue,
            MathToken::Number { digits, .. } => digits.parse().ok(),
            MathToken::Word(text) | MathToken::Text(text) => {
                let text = text.trim_matches(['(', ')']).to_lowercase();
                let mut words = text.split(' ').filter(|word| !matches!(*word, "base" | "in"));
                match (words.next(), words.next()) {
                    (None, _) => continue,
                    (Some(word), None) => named_base(word).or_else(|| word.parse().ok()),
                    _ => None,
                }
            }
            _ => None,
        };
        if base.replace(found?).is_some() {
            return None;
        }
    }
    base.filter(|base| (2..=36).contains(base))
}

fn named_base(word: &str) -> Option<u32> {
    NAMES.split(' ').position(|name| name == word).map(|at| at as u32 + 2)
}

fn digits_value(digits: &str, base: u32) -> Option<BigRational> {
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let mut value = BigInt::zero();
    for digit in whole.chars().chain(decimals.chars()) {
        value = value * base + digit.to_digit(base)?;
    }
    Some(BigRational::new(value, Pow::pow(BigInt::from(base), decimals.len())))
}

//! Digits in a base: `1021_4`, `FF_{16}`, `4210 \text{ base } 5`.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Pow, Zero};

use crate::brackets::{inside, ungrouped};
use crate::token::Token;

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
    pub(crate) fn read(tokens: &[Token]) -> Option<Self> {
        let (negative, tokens) = match tokens {
            [Token::Symbol('-'), rest @ ..] => (true, rest),
            _ => (false, tokens),
        };
        let at = tokens.iter().position(|token| {
            *token == Token::Symbol('_')
                || matches!(token, Token::Text(word) | Token::Word(word) if is_base(word))
        })?;
        let (digits, base) = tokens.split_at(at);
        // `(base 5)` and `in base 5`
        let digits = match digits {
            [rest @ .., Token::Symbol('(')] if base.last() == Some(&Token::Symbol(')')) => rest,
            [rest @ .., Token::Word(word)] if word == "in" => rest,
            _ => digits,
        };
        let digits = written(digits)?;
        let base = base_of(base)?;
        // Letters alone are digits if there are several; `S_{32}` is a member of a sequence.
        let plain = digits.chars().any(|c| c.is_ascii_digit());
        let value = value(&digits, base).filter(|_| plain || digits.len() > 1)?;
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
fn written(tokens: &[Token]) -> Option<String> {
    let tokens = ungrouped(tokens);
    let tokens = inside(tokens, '(', ')').unwrap_or(tokens);
    let mut digits = String::new();
    for token in ungrouped(tokens) {
        match token {
            Token::Number { digits: more, .. } if !more.contains('(') => digits.push_str(more),
            Token::Letter(letter) if letter.is_ascii_uppercase() => digits.push(*letter),
            Token::Word(word) | Token::Text(word)
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
fn base_of(tokens: &[Token]) -> Option<u32> {
    let mut base = None;
    for token in tokens {
        let found = match token {
            Token::Symbol('_' | '{' | '}' | '(' | ')') => continue,
            Token::Number { digits, .. } => digits.parse().ok(),
            Token::Word(text) | Token::Text(text) => {
                let text = text.trim_matches(['(', ')']).to_lowercase();
                let mut words = text.split(' ').filter(|word| !matches!(*word, "base" | "in"));
                match (words.next(), words.next()) {
                    (None, _) => continue,
                    (Some(word), None) => named(word).or_else(|| word.parse().ok()),
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

fn named(word: &str) -> Option<u32> {
    NAMES.split(' ').position(|name| name == word).map(|at| at as u32 + 2)
}

fn value(digits: &str, base: u32) -> Option<BigRational> {
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let mut value = BigInt::zero();
    for digit in whole.chars().chain(decimals.chars()) {
        value = value * base + digit.to_digit(base)?;
    }
    Some(BigRational::new(value, Pow::pow(BigInt::from(base), decimals.len())))
}

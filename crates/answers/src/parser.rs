//! Position in the tokens of an expression, its numbers and its variables.

use num_rational::BigRational;
use num_traits::Zero;

use crate::exact::{Atom, ExactExpr};
use crate::function::begins_factor;
use crate::token::MathToken;
use crate::work::{Stop, WorkBudget};

/// Deepest nesting of an expression.
const MAX_DEPTH: u32 = 40;
/// First of the private-use characters that stand for letters with a subscript.
const SUBSCRIPTED: u32 = 0xf_0000;
/// Range of numeric subscripts; letter subscripts come after them.
const LETTERS: u32 = 1000;

/// Position in the tokens of an expression.
pub(crate) struct ExpressionParser<'w> {
    pub(crate) tokens: Vec<MathToken>,
    pub(crate) at: usize,
    pub(crate) depth: u32,
    pub(crate) work: &'w mut WorkBudget,
    /// True inside the argument of a function, where degrees are angles.
    pub(crate) angles: bool,
    /// True inside of bars, where the next bar closes.
    pub(crate) bars: bool,
}

impl<'w> ExpressionParser<'w> {
    pub(crate) fn new(tokens: &[MathToken], work: &'w mut WorkBudget) -> Self {
        Self { tokens: tokens.to_vec(), at: 0, depth: 0, work, angles: false, bars: false }
    }

    pub(crate) fn peek(&self) -> Option<&MathToken> {
        self.tokens.get(self.at)
    }

    pub(crate) fn symbol(&self) -> char {
        match self.peek() {
            Some(MathToken::Symbol(symbol)) => *symbol,
            _ => '\0',
        }
    }

    pub(crate) fn take(&mut self, symbol: char) -> bool {
        let found = self.symbol() == symbol;
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, symbol: char) -> Result<(), Stop> {
        self.take(symbol).then_some(()).ok_or(Stop::Meaningless)
    }

    pub(crate) fn parse_nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Stop::Budget);
        }
        self.work.spend(4)?;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Returns true if a factor without a multiplication sign follows. A number does not count: `2 3` is meaningless.
    pub(crate) fn begins_factor(&self) -> bool {
        match self.peek() {
            Some(MathToken::Letter(_)) => true,
            Some(MathToken::Word(word)) => begins_factor(word),
            Some(MathToken::Symbol('(' | '[' | '{' | '∞')) => true,
            Some(MathToken::Symbol('|')) => !self.bars,
            Some(MathToken::Number { .. }) => {
                // After a letter, a bracket or a root, as in `\sqrt{2}3`.
                self.at > 0 && !matches!(self.tokens[self.at - 1], MathToken::Number { .. })
            }
            _ => false,
        }
    }

    /// Reads Python's `**`.
    pub(crate) fn at_double_star(&self) -> bool {
        let pair = self.tokens.get(self.at..self.at + 2);
        matches!(pair, Some([MathToken::Symbol('*'), MathToken::Symbol('*')]))
    }

    pub(crate) fn read_degrees(&mut self, value: &ExactExpr) -> Result<ExactExpr, Stop> {
        if !self.angles {
            return Err(Stop::Meaningless);
        }
        let pi = ExactExpr::atom(Atom::Name('π'));
        value.times(&pi, self.work)?.over(&ExactExpr::integer(180), self.work)
    }

    /// Returns the variable of a letter with its subscript: `x_1` and `x_{1}` are the same variable, and differ from
    /// `x`.
    pub(crate) fn read_variable(&mut self, letter: char) -> Result<ExactExpr, Stop> {
        if !self.take('_') {
            return Ok(ExactExpr::atom(Atom::Name(letter)));
        }
        let braced = self.take('{');
        let below = match self.peek() {
            Some(MathToken::Number { digits, .. }) => digits.parse().ok().filter(|n| *n < LETTERS),
            Some(MathToken::Letter(below)) => letter_index(*below).map(|place| LETTERS + place),
            _ => None,
        };
        self.at += 1;
        let own =
            letter_index(letter).zip(below).map(|(place, below)| place * (LETTERS + 52) + below);
        let own = own.and_then(|own| char::from_u32(SUBSCRIPTED + own)).ok_or(Stop::Meaningless)?;
        if braced {
            self.expect('}')?;
        }
        Ok(ExactExpr::atom(Atom::Name(own)))
    }

    /// Reads a number, with the fraction of a mixed number: `1\frac{4}{5}`, `7 3/4`.
    pub(crate) fn read_mixed_number(
        &mut self,
        value: BigRational,
        digits: &str,
    ) -> Result<BigRational, Stop> {
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(value);
        }
        let start = self.at;
        let plain = self.tokens.get(start..start + 3);
        if let Some(
            [
                MathToken::Number { value: n, digits: above },
                MathToken::Symbol('/'),
                MathToken::Number { value: d, .. },
            ],
        ) = plain
            && !d.is_zero()
            && !above.is_empty()
        {
            let sum = value + n / d;
            self.at += 3;
            return Ok(sum);
        }
        if self.peek() != Some(&MathToken::Word("frac".to_owned())) {
            return Ok(value);
        }
        let mut numbers = Vec::new();
        self.at += 1;
        for _ in 0..2 {
            self.single_digit();
            let braced = self.take('{');
            let Some(MathToken::Number { value, .. }) = self.peek() else { break };
            numbers.push(value.clone());
            self.at += 1;
            if braced && !self.take('}') {
                break;
            }
        }
        match numbers.as_slice() {
            [above, below] if !below.is_zero() && self.at > start => Ok(value + above / below),
            _ => {
                self.at = start;
                Ok(value)
            }
        }
    }

    /// Cuts a number after its first digit, which alone is the argument in `\frac12`.
    pub(crate) fn single_digit(&mut self) {
        let Some(MathToken::Number { digits, .. }) = self.peek() else { return };
        if digits.len() < 2 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return;
        }
        let (first, rest) = digits.split_at(1);
        let both = [whole_number(first), whole_number(rest)];
        self.tokens.splice(self.at..=self.at, both);
    }
}

/// Returns the index of a letter among those that may have a subscript.
fn letter_index(letter: char) -> Option<u32> {
    match letter {
        'a'..='z' => Some(letter as u32 - 'a' as u32),
        'A'..='Z' => Some(letter as u32 - 'A' as u32 + 26),
        _ => None,
    }
}

/// Returns the token of an integer.
fn whole_number(digits: &str) -> MathToken {
    MathToken::Number {
        value: BigRational::from_integer(digits.parse().unwrap_or_default()),
        digits: digits.to_owned(),
    }
}

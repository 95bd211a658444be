//! Tokens as expressions: recursive descent with a bound on depth.

use num_rational::BigRational;
use num_traits::Zero;

use super::exact::{Atom, Expr, Stop, Work};
use super::factorial::{binomial, double_factorial, factorial};
use super::function::{absolute, begins_factor};
use super::token::Token;

/// Deepest nesting of an expression.
const MAX_DEPTH: u32 = 40;
/// First of the private-use characters that stand for letters with a subscript.
const SUBSCRIPTED: u32 = 0xf_0000;
/// Range of numeric subscripts; letter subscripts come after them.
const LETTERS: u32 = 1000;

/// Reads all of the tokens as one expression.
pub(super) fn expression(tokens: &[Token], work: &mut Work) -> Result<Expr, Stop> {
    let mut parser =
        Parser { tokens: tokens.to_vec(), at: 0, depth: 0, work, angles: false, bars: false };
    let expr = parser.sum()?;
    match parser.at == parser.tokens.len() {
        true => Ok(expr),
        false => Err(Stop::Meaningless),
    }
}

pub(super) struct Parser<'w> {
    pub(super) tokens: Vec<Token>,
    pub(super) at: usize,
    depth: u32,
    pub(super) work: &'w mut Work,
    /// True inside the argument of a function, where degrees are angles.
    pub(super) angles: bool,
    /// True inside of bars, where the next bar closes.
    bars: bool,
}

impl Parser<'_> {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    pub(super) fn symbol(&self) -> char {
        match self.peek() {
            Some(Token::Symbol(symbol)) => *symbol,
            _ => '\0',
        }
    }

    pub(super) fn take(&mut self, symbol: char) -> bool {
        let found = self.symbol() == symbol;
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: char) -> Result<(), Stop> {
        self.take(symbol).then_some(()).ok_or(Stop::Meaningless)
    }

    pub(super) fn nested<T>(
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

    pub(super) fn sum(&mut self) -> Result<Expr, Stop> {
        self.nested(|parser| {
            let mut sum = parser.product()?;
            loop {
                if parser.take('+') {
                    let term = parser.product()?;
                    sum = sum.plus(&term, parser.work)?;
                } else if parser.take('-') {
                    let term = parser.product()?;
                    sum = sum.minus(&term, parser.work)?;
                } else {
                    return parser.divided(sum);
                }
            }
        })
    }

    /// Reads TeX's infix fractions, which divide the whole group: `{65 \over 9}`, `{5 \choose 2}`.
    fn divided(&mut self, above: Expr) -> Result<Expr, Stop> {
        let name = match self.peek() {
            Some(Token::Word(word)) if matches!(word.as_str(), "over" | "choose") => word.clone(),
            _ => return Ok(above),
        };
        self.at += 1;
        let below = self.sum()?;
        match name.as_str() {
            "over" => above.over(&below, self.work),
            _ => binomial(&above, &below, self.work),
        }
    }

    fn product(&mut self) -> Result<Expr, Stop> {
        let mut product = self.signed()?;
        loop {
            if self.take('*') {
                let factor = self.signed()?;
                product = product.times(&factor, self.work)?;
            } else if self.take('/') || self.take('÷') {
                let factor = self.signed()?;
                product = product.over(&factor, self.work)?;
            } else if self.begins_factor() {
                let factor = self.powered()?;
                product = product.times(&factor, self.work)?;
            } else {
                return Ok(product);
            }
        }
    }

    /// Returns true if a factor without a multiplication sign follows. A number does not count: `2 3` is meaningless.
    fn begins_factor(&self) -> bool {
        match self.peek() {
            Some(Token::Letter(_)) => true,
            Some(Token::Word(word)) => begins_factor(word),
            Some(Token::Symbol('(' | '[' | '{' | '∞')) => true,
            Some(Token::Symbol('|')) => !self.bars,
            Some(Token::Number { .. }) => {
                // After a letter, a bracket or a root, as in `\sqrt{2}3`.
                self.at > 0 && !matches!(self.tokens[self.at - 1], Token::Number { .. })
            }
            _ => false,
        }
    }

    pub(super) fn signed(&mut self) -> Result<Expr, Stop> {
        if self.take('-') {
            return Ok(self.nested(Self::signed)?.negated());
        }
        if self.take('+') {
            return self.nested(Self::signed);
        }
        self.powered()
    }

    pub(super) fn powered(&mut self) -> Result<Expr, Stop> {
        let mut base = self.base()?;
        loop {
            if self.take('!') {
                base = match self.take('!') {
                    true => double_factorial(&base, self.work)?,
                    false => factorial(&base, self.work)?,
                };
            } else if self.take('°') {
                base = self.degrees(&base)?;
            } else if self.take('%') {
                base = base.over(&Expr::integer(100), self.work)?;
            } else if self.starred() {
                self.at += 2;
                let exponent = self.nested(Self::exponent)?;
                base = base.power(&exponent, self.work)?;
            } else if self.take('^') {
                if self.symbol() == '°' {
                    continue;
                }
                let group = self.tokens.get(self.at..self.at + 3);
                if matches!(
                    group,
                    Some([Token::Symbol('{'), Token::Symbol('°'), Token::Symbol('}')])
                ) {
                    self.at += 3;
                    base = self.degrees(&base)?;
                    continue;
                }
                let exponent = self.nested(Self::exponent)?;
                base = base.power(&exponent, self.work)?;
            } else {
                return Ok(base);
            }
        }
    }

    /// Reads Python's `**`.
    fn starred(&self) -> bool {
        let pair = self.tokens.get(self.at..self.at + 2);
        matches!(pair, Some([Token::Symbol('*'), Token::Symbol('*')]))
    }

    fn degrees(&mut self, value: &Expr) -> Result<Expr, Stop> {
        if !self.angles {
            return Err(Stop::Meaningless);
        }
        let pi = Expr::atom(Atom::Name('π'));
        value.times(&pi, self.work)?.over(&Expr::integer(180), self.work)
    }

    pub(super) fn exponent(&mut self) -> Result<Expr, Stop> {
        if self.take('-') {
            return Ok(self.nested(Self::exponent)?.negated());
        }
        let base = self.base()?;
        if self.take('^') {
            let exponent = self.nested(Self::exponent)?;
            return base.power(&exponent, self.work);
        }
        Ok(base)
    }

    pub(super) fn base(&mut self) -> Result<Expr, Stop> {
        self.work.spend(1)?;
        let token = self.peek().cloned().ok_or(Stop::Meaningless)?;
        self.at += 1;
        match token {
            Token::Number { value, digits } => Ok(self.mixed(value, &digits)?.into()),
            Token::Letter('i') => Ok(Expr::imaginary_unit()),
            Token::Letter(letter) => self.variable(letter),
            Token::Symbol('∞') => Ok(Expr::atom(Atom::Name('∞'))),
            Token::Symbol('(') => self.closed(')'),
            Token::Symbol('[') => self.closed(']'),
            Token::Symbol('{') => self.closed('}'),
            Token::Symbol('|') => {
                let outer = std::mem::replace(&mut self.bars, true);
                let inside = self.closed('|');
                self.bars = outer;
                Ok(absolute(inside?))
            }
            Token::Word(word) => self.word(&word),
            _ => Err(Stop::Meaningless),
        }
    }

    /// Returns the variable of a letter with its subscript: `x_1` and `x_{1}` are the same variable, and differ from
    /// `x`.
    pub(super) fn variable(&mut self, letter: char) -> Result<Expr, Stop> {
        if !self.take('_') {
            return Ok(Expr::atom(Atom::Name(letter)));
        }
        let braced = self.take('{');
        let below = match self.peek() {
            Some(Token::Number { digits, .. }) => digits.parse().ok().filter(|n| *n < LETTERS),
            Some(Token::Letter(below)) => place(*below).map(|place| LETTERS + place),
            _ => None,
        };
        self.at += 1;
        let own = place(letter).zip(below).map(|(place, below)| place * (LETTERS + 52) + below);
        let own = own.and_then(|own| char::from_u32(SUBSCRIPTED + own)).ok_or(Stop::Meaningless)?;
        if braced {
            self.expect('}')?;
        }
        Ok(Expr::atom(Atom::Name(own)))
    }

    pub(super) fn closed(&mut self, close: char) -> Result<Expr, Stop> {
        let expr = self.sum()?;
        self.expect(close)?;
        Ok(expr)
    }

    /// Reads a number, with the fraction of a mixed number: `1\frac{4}{5}`, `7 3/4`.
    fn mixed(&mut self, value: BigRational, digits: &str) -> Result<BigRational, Stop> {
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(value);
        }
        let start = self.at;
        let plain = self.tokens.get(start..start + 3);
        if let Some(
            [
                Token::Number { value: n, digits: above },
                Token::Symbol('/'),
                Token::Number { value: d, .. },
            ],
        ) = plain
            && !d.is_zero()
            && !above.is_empty()
        {
            let sum = value + n / d;
            self.at += 3;
            return Ok(sum);
        }
        if self.peek() != Some(&Token::Word("frac".to_owned())) {
            return Ok(value);
        }
        let mut numbers = Vec::new();
        self.at += 1;
        for _ in 0..2 {
            self.single_digit();
            let braced = self.take('{');
            let Some(Token::Number { value, .. }) = self.peek() else { break };
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
    pub(super) fn single_digit(&mut self) {
        let Some(Token::Number { digits, .. }) = self.peek() else { return };
        if digits.len() < 2 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return;
        }
        let (first, rest) = digits.split_at(1);
        let number = |digits: &str| Token::Number {
            value: BigRational::from_integer(digits.parse().unwrap_or_default()),
            digits: digits.to_owned(),
        };
        let both = [number(first), number(rest)];
        self.tokens.splice(self.at..=self.at, both);
    }
}

/// Returns the index of a letter among those that may have a subscript.
fn place(letter: char) -> Option<u32> {
    match letter {
        'a'..='z' => Some(letter as u32 - 'a' as u32),
        'A'..='Z' => Some(letter as u32 - 'A' as u32 + 26),
        _ => None,
    }
}

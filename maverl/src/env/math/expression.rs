//! Tokens as expressions: recursive descent with a bound on depth.

use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};

use super::exact::{Atom, Expr, Stop, Work};
use super::function::{
    FUNCTIONS, GREEK, MAGNITUDES, absolute, binomial, factorial, is_function, is_known,
};
use super::token::Token;

/// Deepest nesting of an expression.
const MAX_DEPTH: u32 = 40;

/// The expression that all of the tokens are.
pub(super) fn expression(tokens: &[Token], work: &mut Work) -> Result<Expr, Stop> {
    let mut parser = Parser { tokens: tokens.to_vec(), at: 0, depth: 0, work, angles: false };
    let expr = parser.sum()?;
    match parser.at == parser.tokens.len() {
        true => Ok(expr),
        false => Err(Stop::Meaningless),
    }
}

struct Parser<'w> {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    work: &'w mut Work,
    /// Inside the argument of a function, where degrees are angles.
    angles: bool,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn symbol(&self) -> char {
        match self.peek() {
            Some(Token::Symbol(symbol)) => *symbol,
            _ => '\0',
        }
    }

    fn take(&mut self, symbol: char) -> bool {
        let found = self.symbol() == symbol;
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: char) -> Result<(), Stop> {
        self.take(symbol).then_some(()).ok_or(Stop::Meaningless)
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Stop>) -> Result<T, Stop> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Stop::Budget);
        }
        self.work.spend(4)?;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn sum(&mut self) -> Result<Expr, Stop> {
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
                    return Ok(sum);
                }
            }
        })
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

    /// Whether a factor comes that is not written with a sign of multiplication. A number is none: `2 3` means nothing.
    fn begins_factor(&self) -> bool {
        match self.peek() {
            Some(Token::Letter(_)) => true,
            Some(Token::Word(word)) => is_known(word) && !word.starts_with('r'),
            Some(Token::Symbol('(' | '[' | '{' | '∞')) => true,
            Some(Token::Number { .. }) => {
                // After a letter, a bracket or a root, as in `\sqrt{2}3`.
                self.at > 0 && !matches!(self.tokens[self.at - 1], Token::Number { .. })
            }
            _ => false,
        }
    }

    fn signed(&mut self) -> Result<Expr, Stop> {
        if self.take('-') {
            return Ok(self.nested(Self::signed)?.negated());
        }
        if self.take('+') {
            return self.nested(Self::signed);
        }
        self.powered()
    }

    fn powered(&mut self) -> Result<Expr, Stop> {
        let mut base = self.base()?;
        loop {
            if self.take('!') {
                base = factorial(&base, self.work)?;
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

    /// Python's `**`.
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

    fn exponent(&mut self) -> Result<Expr, Stop> {
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

    fn base(&mut self) -> Result<Expr, Stop> {
        self.work.spend(1)?;
        let token = self.peek().cloned().ok_or(Stop::Meaningless)?;
        self.at += 1;
        match token {
            Token::Number { value, digits } => Ok(self.mixed(value, &digits)?.into()),
            Token::Letter('i') => Ok(Expr::imaginary_unit()),
            Token::Letter(letter) => {
                self.no_subscript()?;
                Ok(Expr::atom(Atom::Name(letter)))
            }
            Token::Symbol('∞') => Ok(Expr::atom(Atom::Name('∞'))),
            Token::Symbol('(') => self.closed(')'),
            Token::Symbol('[') => self.closed(']'),
            Token::Symbol('{') => self.closed('}'),
            Token::Symbol('|') => Ok(absolute(self.closed('|')?)),
            Token::Word(word) => self.word(&word),
            _ => Err(Stop::Meaningless),
        }
    }

    /// Variables with subscripts are told apart by no rule here.
    fn no_subscript(&self) -> Result<(), Stop> {
        if self.symbol() == '_' { Err(Stop::Meaningless) } else { Ok(()) }
    }

    fn closed(&mut self, close: char) -> Result<Expr, Stop> {
        let expr = self.sum()?;
        self.expect(close)?;
        Ok(expr)
    }

    /// A number, with the fraction after it if it is a mixed one: `1\frac{4}{5}`, `7 3/4`.
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

    /// Cuts a number after its first digit: that alone is the argument in `\frac12`.
    fn single_digit(&mut self) {
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

    /// The argument of a command: a group or a single token.
    fn argument(&mut self) -> Result<Expr, Stop> {
        self.single_digit();
        self.nested(Self::base)
    }

    fn word(&mut self, word: &str) -> Result<Expr, Stop> {
        if let Some((_, zeros)) = MAGNITUDES.iter().find(|(name, _)| *name == word) {
            return Ok(Expr::integer(10_i64.pow(*zeros)));
        }
        if let Some((_, letter)) = GREEK.iter().find(|(name, _)| *name == word) {
            self.no_subscript()?;
            return Ok(Expr::atom(Atom::Name(*letter)));
        }
        match word {
            "frac" => {
                let above = self.argument()?;
                let below = self.argument()?;
                above.over(&below, self.work)
            }
            "sqrt" => self.root(),
            "abs" => Ok(absolute(self.argument()?)),
            "binom" => {
                let (n, k) = (self.argument()?, self.argument()?);
                binomial(&n, &k, self.work)
            }
            "lfloor" => self.rounded("rfloor", "floor"),
            "lceil" => self.rounded("rceil", "ceil"),
            _ if is_function(word) => self.function(word),
            _ => Err(Stop::Meaningless),
        }
    }

    fn root(&mut self) -> Result<Expr, Stop> {
        let degree = match self.take('[') {
            true => self.closed(']')?,
            false => Expr::integer(2),
        };
        let inside = self.argument()?;
        match degree
            .rational()
            .filter(BigRational::is_integer)
            .and_then(|d| d.to_integer().to_u32())
        {
            Some(degree) if degree >= 2 => inside.root(degree, self.work),
            _ => Err(Stop::Meaningless),
        }
    }

    fn rounded(&mut self, close: &str, name: &'static str) -> Result<Expr, Stop> {
        let inside = self.sum()?;
        if self.peek() != Some(&Token::Word(close.to_owned())) {
            return Err(Stop::Meaningless);
        }
        self.at += 1;
        Ok(match (inside.rational(), name) {
            (Some(value), "floor") => value.floor().into(),
            (Some(value), _) => value.ceil().into(),
            (None, _) => Expr::call(name, vec![inside]),
        })
    }

    fn function(&mut self, name: &str) -> Result<Expr, Stop> {
        let base = match name == "log" && self.take('_') {
            true => Some(self.argument()?),
            false => None,
        };
        let power = match self.take('^') {
            true => Some(self.nested(Self::exponent)?),
            false => None,
        };
        let outer = std::mem::replace(&mut self.angles, true);
        let argument = self.nested(Self::applied);
        self.angles = outer;
        let argument = argument?;
        let e = || Expr::atom(Atom::Name('e'));
        let value = match (name, base) {
            ("exp", _) => e().power(&argument, self.work)?,
            ("ln", _) => Expr::call("log", vec![argument, e()]),
            ("log", Some(base)) => Expr::call("log", vec![argument, base]),
            ("log" | "lg", _) => Expr::call("log", vec![argument, Expr::integer(10)]),
            _ => {
                let name = FUNCTIONS.iter().find(|f| **f == name).ok_or(Stop::Meaningless)?;
                Expr::call(name, vec![argument])
            }
        };
        match power {
            // `\sin^{-1}` is the inverse to some and the reciprocal to others.
            Some(power) if power == Expr::integer(-1) => Err(Stop::Meaningless),
            Some(power) => value.power(&power, self.work),
            None => Ok(value),
        }
    }

    /// What a function is applied to: a bracket, or factors up to the next sign or function.
    fn applied(&mut self) -> Result<Expr, Stop> {
        if matches!(self.symbol(), '(' | '{' | '[') {
            return self.base();
        }
        let mut argument = self.signed()?;
        loop {
            let goes_on = match self.peek() {
                Some(Token::Letter(_)) => true,
                Some(Token::Word(word)) => {
                    !is_function(word) && is_known(word) && !word.starts_with('r')
                }
                _ => false,
            };
            if goes_on {
                let factor = self.powered()?;
                argument = argument.times(&factor, self.work)?;
            } else if self.take('/') {
                let factor = self.powered()?;
                argument = argument.over(&factor, self.work)?;
            } else {
                return Ok(argument);
            }
        }
    }
}

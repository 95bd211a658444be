//! Tokens as expressions: recursive descent with a bound on depth.

use num_rational::BigRational;
use num_traits::ToPrimitive;

use crate::exact::{Atom, Expr, absolute};
use crate::factorial::{binomial, divisor, double_factorial, factorial};
use crate::function::{
    DIVISORS, FUNCTIONS, GREEK, INVERSES, MAGNITUDES, begins_factor, is_function,
};
use crate::parser::Parser;
use crate::token::Token;
use crate::work::{Stop, Work};

/// Reads all of the tokens as one expression.
pub(crate) fn expression(tokens: &[Token], work: &mut Work) -> Result<Expr, Stop> {
    let mut parser = Parser::new(tokens, work);
    let expr = parser.sum()?;
    if parser.at == parser.tokens.len() { Ok(expr) } else { Err(Stop::Meaningless) }
}

impl Parser<'_> {
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
                base = if self.take('!') {
                    double_factorial(&base, self.work)?
                } else {
                    factorial(&base, self.work)?
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

    fn closed(&mut self, close: char) -> Result<Expr, Stop> {
        let expr = self.sum()?;
        self.expect(close)?;
        Ok(expr)
    }

    /// Returns the argument of a command: a group or a single token.
    fn argument(&mut self) -> Result<Expr, Stop> {
        self.single_digit();
        self.nested(Self::base)
    }

    fn word(&mut self, word: &str) -> Result<Expr, Stop> {
        if let Some((_, zeros)) = MAGNITUDES.iter().find(|(name, _)| *name == word) {
            return Ok(Expr::integer(10_i64.pow(*zeros)));
        }
        if let Some((_, letter)) = GREEK.iter().find(|(name, _)| *name == word) {
            return self.variable(*letter);
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
            _ => match DIVISORS.iter().find(|name| **name == word) {
                Some(name) => {
                    let arguments = self.arguments()?;
                    divisor(name, arguments, self.work)
                }
                None => Err(Stop::Meaningless),
            },
        }
    }

    /// Reads at least two arguments in brackets.
    fn arguments(&mut self) -> Result<Vec<Expr>, Stop> {
        let brackets = [('(', ')'), ('[', ']'), ('{', '}'), ('⦃', '⦄')];
        let open = self.symbol();
        let pair = brackets.iter().find(|pair| pair.0 == open).ok_or(Stop::Meaningless)?;
        self.at += 1;
        let mut arguments = vec![self.sum()?];
        while self.take(',') {
            arguments.push(self.sum()?);
        }
        if arguments.len() > 1 && self.take(pair.1) {
            Ok(arguments)
        } else {
            Err(Stop::Meaningless)
        }
    }

    fn root(&mut self) -> Result<Expr, Stop> {
        let degree = if self.take('[') { self.closed(']')? } else { Expr::integer(2) };
        // All digits are under the root, also without braces: \sqrt13 never means \sqrt{1} times 3.
        let inside = self.nested(Self::base)?;
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
        let base = if name == "log" && self.take('_') { Some(self.argument()?) } else { None };
        let power = if self.take('^') { Some(self.nested(Self::exponent)?) } else { None };
        let outer = std::mem::replace(&mut self.angles, true);
        let argument = self.nested(Self::applied);
        self.angles = outer;
        let argument = argument?;
        let e = || Expr::atom(Atom::Name('e'));
        let inverse = power == Some(Expr::integer(-1));
        let value = match (name, base) {
            // `\sin^{-1}` is the inverse, and never the reciprocal.
            _ if inverse => {
                let (_, inverse) =
                    INVERSES.iter().find(|(of, _)| *of == name).ok_or(Stop::Meaningless)?;
                return Ok(Expr::call(inverse, vec![argument]));
            }
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
            Some(power) => value.power(&power, self.work),
            None => Ok(value),
        }
    }

    /// Returns the argument of a function: a bracket, or the factors up to the next sign or function.
    fn applied(&mut self) -> Result<Expr, Stop> {
        if matches!(self.symbol(), '(' | '{' | '[') {
            return self.base();
        }
        let mut argument = self.signed()?;
        loop {
            let goes_on = match self.peek() {
                Some(Token::Letter(_)) => true,
                Some(Token::Word(word)) => !is_function(word) && begins_factor(word),
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

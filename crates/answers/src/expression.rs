//! Tokens as expressions: recursive descent with a bound on depth.

use num_rational::BigRational;
use num_traits::ToPrimitive;

use crate::exact::{Atom, ExactExpr, absolute_value};
use crate::factorial::{common_divisor, compute_binomial, compute_factorial, double_factorial};
use crate::function::{
    DIVISORS, FUNCTIONS, GREEK, INVERSES, MAGNITUDES, begins_factor, is_function,
};
use crate::parser::ExpressionParser;
use crate::token::MathToken;
use crate::work::{Stop, WorkBudget};

/// Reads all of the tokens as one expression.
pub(crate) fn read_expression(
    tokens: &[MathToken],
    work: &mut WorkBudget,
) -> Result<ExactExpr, Stop> {
    let mut parser = ExpressionParser::new(tokens, work);
    let expr = parser.read_sum()?;
    if parser.at == parser.tokens.len() { Ok(expr) } else { Err(Stop::Meaningless) }
}

impl ExpressionParser<'_> {
    fn read_sum(&mut self) -> Result<ExactExpr, Stop> {
        self.parse_nested(|parser| {
            let mut sum = parser.read_product()?;
            loop {
                if parser.take('+') {
                    let term = parser.read_product()?;
                    sum = sum.plus(&term, parser.work)?;
                } else if parser.take('-') {
                    let term = parser.read_product()?;
                    sum = sum.minus(&term, parser.work)?;
                } else {
                    return parser.read_infix_fraction(sum);
                }
            }
        })
    }

    /// Reads TeX's infix fractions, which divide the whole group: `{65 \over 9}`, `{5 \choose 2}`.
    fn read_infix_fraction(&mut self, above: ExactExpr) -> Result<ExactExpr, Stop> {
        let name = match self.peek() {
            Some(MathToken::Word(word)) if matches!(word.as_str(), "over" | "choose") => {
                word.clone()
            }
            _ => return Ok(above),
        };
        self.at += 1;
        let below = self.read_sum()?;
        match name.as_str() {
            "over" => above.over(&below, self.work),
            _ => compute_binomial(&above, &below, self.work),
        }
    }

    fn read_product(&mut self) -> Result<ExactExpr, Stop> {
        let mut product = self.read_signed()?;
        loop {
            if self.take('*') {
                let factor = self.read_signed()?;
                product = product.times(&factor, self.work)?;
            } else if self.take('/') || self.take('÷') {
                let factor = self.read_signed()?;
                product = product.over(&factor, self.work)?;
            } else if self.begins_factor() {
                let factor = self.read_powered()?;
                product = product.times(&factor, self.work)?;
            } else {
                return Ok(product);
            }
        }
    }

    fn read_signed(&mut self) -> Result<ExactExpr, Stop> {
        if self.take('-') {
            return Ok(self.parse_nested(Self::read_signed)?.negate());
        }
        if self.take('+') {
            return self.parse_nested(Self::read_signed);
        }
        self.read_powered()
    }

    fn read_powered(&mut self) -> Result<ExactExpr, Stop> {
        let mut base = self.read_base()?;
        loop {
            if self.take('!') {
                base = if self.take('!') {
                    double_factorial(&base, self.work)?
                } else {
                    compute_factorial(&base, self.work)?
                };
            } else if self.take('°') {
                base = self.read_degrees(&base)?;
            } else if self.take('%') {
                base = base.over(&ExactExpr::integer(100), self.work)?;
            } else if self.at_double_star() {
                self.at += 2;
                let exponent = self.parse_nested(Self::read_exponent)?;
                base = base.power(&exponent, self.work)?;
            } else if self.take('^') {
                if self.symbol() == '°' {
                    continue;
                }
                let group = self.tokens.get(self.at..self.at + 3);
                if matches!(
                    group,
                    Some([MathToken::Symbol('{'), MathToken::Symbol('°'), MathToken::Symbol('}')])
                ) {
                    self.at += 3;
                    base = self.read_degrees(&base)?;
                    continue;
                }
                let exponent = self.parse_nested(Self::read_exponent)?;
                base = base.power(&exponent, self.work)?;
            } else {
                return Ok(base);
            }
        }
    }

    fn read_exponent(&mut self) -> Result<ExactExpr, Stop> {
        if self.take('-') {
            return Ok(self.parse_nested(Self::read_exponent)?.negate());
        }
        let base = self.read_base()?;
        if self.take('^') {
            let exponent = self.parse_nested(Self::read_exponent)?;
            return base.power(&exponent, self.work);
        }
        Ok(base)
    }

    fn read_base(&mut self) -> Result<ExactExpr, Stop> {
        self.work.spend(1)?;
        let token = self.peek().cloned().ok_or(Stop::Meaningless)?;
        self.at += 1;
        match token {
            MathToken::Number { value, digits } => {
                Ok(self.read_mixed_number(value, &digits)?.into())
            }
            MathToken::Letter('i') => Ok(ExactExpr::imaginary_unit()),
            MathToken::Letter(letter) => self.read_variable(letter),
            MathToken::Symbol('∞') => Ok(ExactExpr::atom(Atom::Name('∞'))),
            MathToken::Symbol('(') => self.read_closed(')'),
            MathToken::Symbol('[') => self.read_closed(']'),
            MathToken::Symbol('{') => self.read_closed('}'),
            MathToken::Symbol('|') => {
                let outer = std::mem::replace(&mut self.bars, true);
                let inside = self.read_closed('|');
                self.bars = outer;
                Ok(absolute_value(inside?))
            }
            MathToken::Word(word) => self.read_word(&word),
            _ => Err(Stop::Meaningless),
        }
    }

    fn read_closed(&mut self, close: char) -> Result<ExactExpr, Stop> {
        let expr = self.read_sum()?;
        self.expect(close)?;
        Ok(expr)
    }

    /// Returns the argument of a command: a group or a single token.
    fn read_argument(&mut self) -> Result<ExactExpr, Stop> {
        self.single_digit();
        self.parse_nested(Self::read_base)
    }

    fn read_word(&mut self, word: &str) -> Result<ExactExpr, Stop> {
        if let Some((_, zeros)) = MAGNITUDES.iter().find(|(name, _)| *name == word) {
            return Ok(ExactExpr::integer(10_i64.pow(*zeros)));
        }
        if let Some((_, letter)) = GREEK.iter().find(|(name, _)| *name == word) {
            return self.read_variable(*letter);
        }
        match word {
            "frac" => {
                let above = self.read_argument()?;
                let below = self.read_argument()?;
                above.over(&below, self.work)
            }
            "sqrt" => self.read_root(),
            "abs" => Ok(absolute_value(self.read_argument()?)),
            "binom" => {
                let (n, k) = (self.read_argument()?, self.read_argument()?);
                compute_binomial(&n, &k, self.work)
            }
            "lfloor" => self.read_rounded("rfloor", "floor"),
            "lceil" => self.read_rounded("rceil", "ceil"),
            _ if is_function(word) => self.read_function(word),
            _ => match DIVISORS.iter().find(|name| **name == word) {
                Some(name) => {
                    let arguments = self.read_arguments()?;
                    common_divisor(name, arguments, self.work)
                }
                None => Err(Stop::Meaningless),
            },
        }
    }

    /// Reads at least two arguments in brackets.
    fn read_arguments(&mut self) -> Result<Vec<ExactExpr>, Stop> {
        let brackets = [('(', ')'), ('[', ']'), ('{', '}'), ('⦃', '⦄')];
        let open = self.symbol();
        let pair = brackets.iter().find(|pair| pair.0 == open).ok_or(Stop::Meaningless)?;
        self.at += 1;
        let mut arguments = vec![self.read_sum()?];
        while self.take(',') {
            arguments.push(self.read_sum()?);
        }
        if arguments.len() > 1 && self.take(pair.1) {
            Ok(arguments)
        } else {
            Err(Stop::Meaningless)
        }
    }

    fn read_root(&mut self) -> Result<ExactExpr, Stop> {
        let degree = if self.take('[') { self.read_closed(']')? } else { ExactExpr::integer(2) };
        // All digits are under the root, also without braces: \sqrt13 never means \sqrt{1} times 3.
        let inside = self.parse_nested(Self::read_base)?;
        match degree
            .rational()
            .filter(BigRational::is_integer)
            .and_then(|d| d.to_integer().to_u32())
        {
            Some(degree) if degree >= 2 => inside.root(degree, self.work),
            _ => Err(Stop::Meaningless),
        }
    }

    fn read_rounded(&mut self, close: &str, name: &'static str) -> Result<ExactExpr, Stop> {
        let inside = self.read_sum()?;
        if self.peek() != Some(&MathToken::Word(close.to_owned())) {
            return Err(Stop::Meaningless);
        }
        self.at += 1;
        Ok(match (inside.rational(), name) {
            (Some(value), "floor") => value.floor().into(),
            (Some(value), _) => value.ceil().into(),
            (None, _) => ExactExpr::call(name, vec![inside]),
        })
    }

    fn read_function(&mut self, name: &str) -> Result<ExactExpr, Stop> {
        let base = if name == "log" && self.take('_') { Some(self.read_argument()?) } else { None };
        let power =
            if self.take('^') { Some(self.parse_nested(Self::read_exponent)?) } else { None };
        let outer = std::mem::replace(&mut self.angles, true);
        let argument = self.parse_nested(Self::read_applied);
        self.angles = outer;
        let argument = argument?;
        let e = ExactExpr::atom(Atom::Name('e'));
        let inverse = power == Some(ExactExpr::integer(-1));
        let value = match (name, base) {
            // `\sin^{-1}` is the inverse, and never the reciprocal.
            _ if inverse => {
                let (_, inverse) =
                    INVERSES.iter().find(|(of, _)| *of == name).ok_or(Stop::Meaningless)?;
                return Ok(ExactExpr::call(inverse, vec![argument]));
            }
            ("exp", _) => e.power(&argument, self.work)?,
            ("ln", _) => ExactExpr::call("log", vec![argument, e]),
            ("log", Some(base)) => ExactExpr::call("log", vec![argument, base]),
            ("log" | "lg", _) => ExactExpr::call("log", vec![argument, ExactExpr::integer(10)]),
            _ => {
                let name = FUNCTIONS.iter().find(|f| **f == name).ok_or(Stop::Meaningless)?;
                ExactExpr::call(name, vec![argument])
            }
        };
        let Some(power) = power else { return Ok(value) };
        value.power(&power, self.work)
    }

    /// Returns the argument of a function: a bracket, or the factors up to the next sign or function.
    fn read_applied(&mut self) -> Result<ExactExpr, Stop> {
        if matches!(self.symbol(), '(' | '{' | '[') {
            return self.read_base();
        }
        let mut argument = self.read_signed()?;
        loop {
            let goes_on = match self.peek() {
                Some(MathToken::Letter(_)) => true,
                Some(MathToken::Word(word)) => !is_function(word) && begins_factor(word),
                _ => false,
            };
            if goes_on {
                let factor = self.read_powered()?;
                argument = argument.times(&factor, self.work)?;
            } else if self.take('/') {
                let factor = self.read_powered()?;
                argument = argument.over(&factor, self.work)?;
            } else {
                return Ok(argument);
            }
        }
    }
}

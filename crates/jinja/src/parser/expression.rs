//! Parser of expressions, with Jinja's operator precedence.

use super::{Parsed, Parser};
use crate::ast::{Arguments, Comparison, Expr, Operator, Postfix};
use crate::lexer::TokenKind;
use crate::value::Value;

/// Maximum number of consecutive conditions without `else`: `a if b if c`.
const CONDITIONS: usize = 16;

impl Parser {
    /// Parses expressions between commas; without a comma, the expression itself. With `conditions`, each may be
    /// `a if b else c`.
    pub(super) fn tuple(&mut self, conditions: bool) -> Parsed<Expr> {
        let mut items = Vec::new();
        loop {
            if !items.is_empty() && self.ends_tuple() {
                return Ok(Expr::Tuple(items));
            }
            items.push(if conditions { self.expression()? } else { self.operators()? });
            if !self.take_sign(",") {
                return Ok(match (items.len(), items.pop()) {
                    (1, Some(only)) => only,
                    (_, last) => Expr::Tuple(items.into_iter().chain(last).collect()),
                });
            }
        }
    }

    fn ends_tuple(&self) -> bool {
        matches!(self.peek(), TokenKind::PrintEnd | TokenKind::TagEnd | TokenKind::End)
            || self.is_sign(")")
    }

    /// Parses `a`, or `a if b else c`.
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        let mut value = self.operators()?;
        for _ in 0..CONDITIONS {
            if !self.take_name("if") {
                return Ok(value);
            }
            let condition = self.operators()?;
            let mut other = None;
            if self.take_name("else") {
                other = Some(self.nested(Self::expression)?);
            }
            value = Expr::If(Box::new((value, condition, other)));
        }
        self.error(format!("more than {CONDITIONS} conditions behind each other"))
    }

    /// Parses operands with operators between them. What waits for its last operand is in a list, ordered by
    /// precedence.
    fn operators(&mut self) -> Parsed<Expr> {
        let mut waiting: Vec<Waiting> = Vec::new();
        loop {
            let negations = self.count(|parser| parser.take_name("not"));
            if negations > 0 {
                waiting.push(Waiting::Not(negations));
            }
            let mut operand = self.unary()?;
            let next = self.operator();
            let rank = next.map_or(0, rank_of);
            while let Some(last) = waiting.pop_if(|last| last.rank() > rank) {
                operand = last.finish(operand);
            }
            let Some(next) = next else { return Ok(operand) };
            self.next();
            if next == Operator::Compare(Comparison::NotIn) {
                self.next();
            }
            match waiting.last_mut() {
                Some(Waiting::Chain(_, others, last)) if rank_of(*last) == rank => {
                    others.push((*last, operand));
                    *last = next;
                }
                _ => waiting.push(Waiting::Chain(operand, Vec::new(), next)),
            }
        }
    }

    /// Returns the operator that follows.
    fn operator(&self) -> Option<Operator> {
        Some(match self.peek() {
            TokenKind::Name(name) => match &**name {
                "or" => Operator::Or,
                "and" => Operator::And,
                "in" => Operator::Compare(Comparison::In),
                "not" if self.follows_in() => Operator::Compare(Comparison::NotIn),
                _ => return None,
            },
            TokenKind::Sign(sign) => match *sign {
                "==" => Operator::Compare(Comparison::Equal),
                "!=" => Operator::Compare(Comparison::NotEqual),
                "<" => Operator::Compare(Comparison::Less),
                "<=" => Operator::Compare(Comparison::LessOrEqual),
                ">" => Operator::Compare(Comparison::Greater),
                ">=" => Operator::Compare(Comparison::GreaterOrEqual),
                "+" => Operator::Add,
                "-" => Operator::Subtract,
                "~" => Operator::Concat,
                "*" => Operator::Multiply,
                "%" => Operator::Modulo,
                _ => return None,
            },
            _ => return None,
        })
    }

    fn follows_in(&self) -> bool {
        let next = self.tokens.get(self.at + 1);
        matches!(next.map(|next| &next.kind), Some(TokenKind::Name(name)) if &**name == "in")
    }

    /// Returns how often `take` takes a token.
    fn count(&mut self, take: impl Fn(&mut Self) -> bool) -> usize {
        let mut times = 0;
        while take(self) {
            times += 1;
        }
        times
    }

    /// Parses an operand with its signs, attributes, calls, filters and tests.
    fn unary(&mut self) -> Parsed<Expr> {
        let signs = self.count(|parser| parser.take_sign("-"));
        let operand = self.primary()?;
        let parts = self.attributes()?;
        let mut operand = postfix(operand, parts);
        if signs > 0 {
            operand = Expr::Negative(signs, Box::new(operand));
        }
        let mut parts = Vec::new();
        loop {
            if self.take_sign("|") {
                parts.push(self.filter()?);
            } else if self.take_name("is") {
                parts.push(self.test()?);
            } else if self.is_sign("(") {
                parts.push(self.call()?);
            } else {
                return Ok(postfix(operand, parts));
            }
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let value = match self.peek() {
            TokenKind::Name(_) => return self.variable(),
            TokenKind::Int(number) => Value::Int(*number),
            TokenKind::Float(number) => Value::Float(*number),
            TokenKind::Str(_) => {
                let mut text = String::new();
                while matches!(self.peek(), TokenKind::Str(_)) {
                    if let TokenKind::Str(part) = self.next() {
                        text.push_str(&part);
                    }
                }
                return Ok(Expr::Constant(Value::str(text)));
            }
            TokenKind::Sign("(") => {
                self.next();
                if self.take_sign(")") {
                    return Ok(Expr::Tuple(Vec::new()));
                }
                let inside = self.nested(|parser| parser.tuple(true))?;
                self.expect_sign(")")?;
                return Ok(inside);
            }
            TokenKind::Sign("[") => {
                self.next();
                return Ok(Expr::List(self.items("]", Self::expression)?));
            }
            TokenKind::Sign("{") => {
                self.next();
                let entry = |parser: &mut Self| {
                    let key = parser.expression()?;
                    parser.expect_sign(":")?;
                    Ok((key, parser.expression()?))
                };
                return Ok(Expr::Dict(self.items("}", entry)?));
            }
            _ => return self.unexpected("a value"),
        };
        self.next();
        Ok(Expr::Constant(value))
    }

    fn variable(&mut self) -> Parsed<Expr> {
        let name = self.name()?;
        Ok(match &*name {
            "true" | "True" => Expr::Constant(Value::Bool(true)),
            "false" | "False" => Expr::Constant(Value::Bool(false)),
            "none" | "None" => Expr::Constant(Value::None),
            _ => Expr::Name(name),
        })
    }

    /// Parses parts between commas up to a closing bracket, and the bracket.
    fn items<T>(&mut self, end: &str, item: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        loop {
            if self.take_sign(end) {
                return Ok(items);
            }
            if !items.is_empty() {
                self.expect_sign(",")?;
                if self.take_sign(end) {
                    return Ok(items);
                }
            }
            items.push(self.nested(&item)?);
        }
    }

    /// Parses attributes, items and calls after an operand.
    fn attributes(&mut self) -> Parsed<Vec<Postfix>> {
        let mut parts = Vec::new();
        loop {
            if self.take_sign(".") {
                parts.push(match self.peek() {
                    TokenKind::Int(index) => {
                        let index = Value::Int(*index);
                        self.next();
                        Postfix::Item(Expr::Constant(index))
                    }
                    _ => Postfix::Attribute(self.name()?),
                });
            } else if self.take_sign("[") {
                parts.push(self.nested(Self::subscript)?);
                self.expect_sign("]")?;
            } else if self.is_sign("(") {
                parts.push(self.call()?);
            } else {
                return Ok(parts);
            }
        }
    }

    /// Parses an item, or a slice `a:b:c`.
    fn subscript(&mut self) -> Parsed<Postfix> {
        let mut bounds = [None, None, None];
        let mut colons = 0;
        loop {
            if self.take_sign(":") {
                colons += 1;
                if colons > 2 {
                    return self.unexpected("`]`");
                }
            } else if self.is_sign("]") {
                break;
            } else if bounds[colons].is_none() {
                bounds[colons] = Some(self.expression()?);
            } else {
                return self.unexpected("`]`");
            }
        }
        match bounds {
            [Some(item), None, None] if colons == 0 => Ok(Postfix::Item(item)),
            [None, None, None] if colons == 0 => self.unexpected("an item"),
            bounds => Ok(Postfix::Slice(Box::new(bounds))),
        }
    }

    fn call(&mut self) -> Parsed<Postfix> {
        let line = self.line();
        Ok(Postfix::Call(line, self.arguments()?))
    }

    fn arguments(&mut self) -> Parsed<Arguments> {
        self.expect_sign("(")?;
        let mut arguments = Arguments::default();
        let mut first = true;
        while !self.take_sign(")") {
            if !std::mem::take(&mut first) {
                self.expect_sign(",")?;
                if self.take_sign(")") {
                    break;
                }
            }
            self.nested(|parser| parser.argument(&mut arguments))?;
        }
        Ok(arguments)
    }

    fn argument(&mut self, arguments: &mut Arguments) -> Parsed<()> {
        if self.take_sign("*") {
            arguments.items = Some(Box::new(self.expression()?));
        } else if self.names_argument() {
            let name = self.name()?;
            self.expect_sign("=")?;
            arguments.named.push((name, self.expression()?));
        } else if !arguments.named.is_empty() {
            return self.unexpected("an argument with a name, after one that has one");
        } else {
            arguments.positional.push(self.expression()?);
        }
        Ok(())
    }

    fn names_argument(&self) -> bool {
        let next = self.tokens.get(self.at + 1).map(|next| &next.kind);
        matches!(self.peek(), TokenKind::Name(_)) && matches!(next, Some(TokenKind::Sign("=")))
    }

    /// Parses a filter after its `|`.
    fn filter(&mut self) -> Parsed<Postfix> {
        let name = self.name()?;
        let arguments = if self.is_sign("(") { self.arguments()? } else { Arguments::default() };
        Ok(Postfix::Filter(name, arguments))
    }

    /// Parses a test after its `is`.
    fn test(&mut self) -> Parsed<Postfix> {
        let fails = self.take_name("not");
        let name = self.name()?;
        let mut arguments = Arguments::default();
        let operand = match self.peek() {
            TokenKind::Name(name) => {
                !matches!(&**name, "else" | "or" | "and" | "if" | "in" | "not")
            }
            TokenKind::Str(_) | TokenKind::Int(_) | TokenKind::Float(_) => true,
            TokenKind::Sign(sign) => matches!(*sign, "[" | "{"),
            _ => false,
        };
        if self.is_sign("(") {
            arguments = self.arguments()?;
        } else if self.is_name("is") {
            return self.error("tests cannot follow each other; put the first in brackets");
        } else if operand {
            let operand = self.primary()?;
            let parts = self.attributes()?;
            arguments.positional.push(postfix(operand, parts));
        }
        Ok(Postfix::Test(name, arguments, fails))
    }
}

/// Operators whose last operand is not parsed yet.
enum Waiting {
    Not(usize),
    /// First operand, the others with the operators before them, and the last operator.
    Chain(Expr, Vec<(Operator, Expr)>, Operator),
}

impl Waiting {
    fn rank(&self) -> u32 {
        match self {
            Self::Not(_) => 3,
            Self::Chain(_, _, operator) => rank_of(*operator),
        }
    }

    /// Completes the expression.
    fn finish(self, operand: Expr) -> Expr {
        match self {
            Self::Not(times) => Expr::Not(times, Box::new(operand)),
            Self::Chain(first, mut others, last) => {
                others.push((last, operand));
                Expr::Chain(Box::new(first), others)
            }
        }
    }
}

/// Returns the precedence of an operator: higher ones bind closer. `not` is 3.
fn rank_of(operator: Operator) -> u32 {
    match operator {
        Operator::Or => 1,
        Operator::And => 2,
        Operator::Compare(_) => 4,
        Operator::Add | Operator::Subtract => 5,
        Operator::Concat => 6,
        Operator::Multiply | Operator::Modulo => 7,
    }
}

fn postfix(operand: Expr, parts: Vec<Postfix>) -> Expr {
    if parts.is_empty() { operand } else { Expr::Postfix(Box::new(operand), parts) }
}

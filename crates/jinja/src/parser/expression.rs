//! Parser of expressions, with Jinja's operator precedence.

use std::sync::Arc;

use super::{Parsed, Parser};
use crate::ast::{Arguments, Comparison, Expr, Operator, Postfix, Sign};
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
            items.push(if conditions { self.expression()? } else { self.or()? });
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
        let mut value = self.or()?;
        for _ in 0..CONDITIONS {
            if !self.take_name("if") {
                return Ok(value);
            }
            let condition = self.or()?;
            let other = match self.take_name("else") {
                true => Some(self.nested(Self::expression)?),
                false => None,
            };
            value = Expr::If(Box::new((value, condition, other)));
        }
        self.error(format!("more than {CONDITIONS} conditions behind each other"))
    }

    fn or(&mut self) -> Parsed<Expr> {
        let mut operands = vec![self.and()?];
        while self.take_name("or") {
            operands.push(self.and()?);
        }
        Ok(only(operands, Expr::Or))
    }

    fn and(&mut self) -> Parsed<Expr> {
        let mut operands = vec![self.not()?];
        while self.take_name("and") {
            operands.push(self.not()?);
        }
        Ok(only(operands, Expr::And))
    }

    fn not(&mut self) -> Parsed<Expr> {
        let mut signs = Vec::new();
        while self.take_name("not") {
            signs.push(Sign::Not);
        }
        let operand = self.comparison()?;
        Ok(signed(signs, operand))
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let first = self.chain(0)?;
        let mut others = Vec::new();
        loop {
            let comparison = match self.peek() {
                TokenKind::Sign("==") => Comparison::Equal,
                TokenKind::Sign("!=") => Comparison::NotEqual,
                TokenKind::Sign("<") => Comparison::Less,
                TokenKind::Sign("<=") => Comparison::LessOrEqual,
                TokenKind::Sign(">") => Comparison::Greater,
                TokenKind::Sign(">=") => Comparison::GreaterOrEqual,
                TokenKind::Name(name) if &**name == "in" => Comparison::In,
                TokenKind::Name(name) if &**name == "not" && self.follows_in() => {
                    self.next();
                    Comparison::NotIn
                }
                _ if others.is_empty() => return Ok(first),
                _ => return Ok(Expr::Compare(Box::new(first), others)),
            };
            self.next();
            others.push((comparison, self.chain(0)?));
        }
    }

    fn follows_in(&self) -> bool {
        let next = self.tokens.get(self.at + 1);
        matches!(next.map(|next| &next.kind), Some(TokenKind::Name(name)) if &**name == "in")
    }

    /// Parses operands between operators of one precedence: sums, concatenations, products, powers.
    fn chain(&mut self, rank: usize) -> Parsed<Expr> {
        const RANKS: [&[(&str, Operator)]; 4] = [
            &[("+", Operator::Add), ("-", Operator::Subtract)],
            &[],
            &[
                ("*", Operator::Multiply),
                ("//", Operator::FloorDivide),
                ("/", Operator::Divide),
                ("%", Operator::Modulo),
            ],
            &[("**", Operator::Power)],
        ];
        let Some(operators) = RANKS.get(rank) else { return self.unary(true) };
        let first = self.chain(rank + 1)?;
        if operators.is_empty() {
            let mut parts = vec![first];
            while self.take_sign("~") {
                parts.push(self.chain(rank + 1)?);
            }
            return Ok(only(parts, Expr::Concat));
        }
        let mut others = Vec::new();
        while let Some((sign, operator)) = operators.iter().find(|(sign, _)| self.is_sign(sign)) {
            self.expect_sign(sign)?;
            others.push((*operator, self.chain(rank + 1)?));
        }
        Ok(if others.is_empty() { first } else { Expr::Chain(Box::new(first), others) })
    }

    /// Parses an operand with its signs, attributes and calls, and with filters and tests if `filters` is set.
    fn unary(&mut self, filters: bool) -> Parsed<Expr> {
        let mut signs = Vec::new();
        loop {
            if self.take_sign("-") {
                signs.push(Sign::Minus);
            } else if self.take_sign("+") {
                signs.push(Sign::Plus);
            } else {
                break;
            }
        }
        let operand = self.primary()?;
        let parts = self.attributes()?;
        let operand = signed(signs, postfix(operand, parts));
        let mut parts = Vec::new();
        loop {
            if !filters {
                break;
            } else if self.take_sign("|") {
                parts.push(self.filter()?);
            } else if self.take_name("is") {
                parts.push(self.test()?);
            } else if self.is_sign("(") {
                parts.push(self.call()?);
            } else {
                break;
            }
        }
        Ok(postfix(operand, parts))
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
        self.speaks_of_loop |= &*name == "loop";
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
        } else if self.take_sign("**") {
            arguments.entries = Some(Box::new(self.expression()?));
        } else if self.names_argument() {
            let name = self.name()?;
            self.expect_sign("=")?;
            arguments.named.push((name, self.expression()?));
        } else if !arguments.named.is_empty() || arguments.entries.is_some() {
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
    pub(super) fn filter(&mut self) -> Parsed<Postfix> {
        let name = self.dotted()?;
        let arguments = if self.is_sign("(") { self.arguments()? } else { Arguments::default() };
        Ok(Postfix::Filter(name, arguments))
    }

    /// Parses a test after its `is`.
    fn test(&mut self) -> Parsed<Postfix> {
        let fails = self.take_name("not");
        let name = self.dotted()?;
        let mut arguments = Arguments::default();
        let operand = match self.peek() {
            TokenKind::Name(name) => {
                !matches!(&**name, "else" | "or" | "and" | "if" | "in" | "not" | "recursive")
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

    fn dotted(&mut self) -> Parsed<Arc<str>> {
        let mut name = self.name()?;
        while self.take_sign(".") {
            name = format!("{name}.{}", self.name()?).into();
        }
        Ok(name)
    }
}

/// Returns the only operand, or combines several.
fn only(mut operands: Vec<Expr>, together: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
    match (operands.len(), operands.pop()) {
        (1, Some(only)) => only,
        (_, last) => together(operands.into_iter().chain(last).collect()),
    }
}

fn signed(mut signs: Vec<Sign>, operand: Expr) -> Expr {
    signs.reverse();
    if signs.is_empty() { operand } else { Expr::Signs(signs, Box::new(operand)) }
}

fn postfix(operand: Expr, parts: Vec<Postfix>) -> Expr {
    if parts.is_empty() { operand } else { Expr::Postfix(Box::new(operand), parts) }
}

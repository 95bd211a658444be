//! Parser of expressions, with Jinja's operator precedence.

use super::{Parsed, TemplateParser};
use crate::ast::{ArgumentList, ComparisonOperator, Operator, Postfix, TemplateExpr};
use crate::lexer::TokenKind;
use crate::value::TemplateValue;

/// Maximum number of consecutive conditions without `else`: `a if b if c`.
const CONDITIONS: usize = 16;

impl TemplateParser {
    /// Parses expressions between commas; without a comma, the expression itself. With `conditions`, each may be
    /// `a if b else c`.
    pub(super) fn parse_tuple(&mut self, conditions: bool) -> Parsed<TemplateExpr> {
        let mut items = Vec::new();
        loop {
            if !items.is_empty() && self.ends_tuple() {
                return Ok(TemplateExpr::Tuple(items));
            }
            items.push(if conditions { self.parse_expression()? } else { self.parse_operators()? });
            if !self.take_sign(",") {
                return Ok(match (items.len(), items.pop()) {
                    (1, Some(only)) => only,
                    (_, last) => TemplateExpr::Tuple(items.into_iter().chain(last).collect()),
                });
            }
        }
    }

    fn ends_tuple(&self) -> bool {
        matches!(self.peek(), TokenKind::PrintEnd | TokenKind::TagEnd | TokenKind::End)
            || self.is_sign(")")
    }

    /// Parses `a`, or `a if b else c`.
    pub(super) fn parse_expression(&mut self) -> Parsed<TemplateExpr> {
        let mut value = self.parse_operators()?;
        for _ in 0..CONDITIONS {
            if !self.take_name("if") {
                return Ok(value);
            }
            let condition = self.parse_operators()?;
            let mut other = None;
            if self.take_name("else") {
                other = Some(self.parse_nested(Self::parse_expression)?);
            }
            value = TemplateExpr::If(Box::new((value, condition, other)));
        }
        self.error(format!("more than {CONDITIONS} conditions behind each other"))
    }

    /// Parses operands with operators between them. What waits for its last operand is in a list, ordered by
    /// precedence.
    fn parse_operators(&mut self) -> Parsed<TemplateExpr> {
        let mut waiting: Vec<WaitingOperator> = Vec::new();
        loop {
            let negations = self.count_taken(|parser| parser.take_name("not"));
            if negations > 0 {
                waiting.push(WaitingOperator::Not(negations));
            }
            let mut operand = self.parse_unary()?;
            let next = self.next_operator();
            let rank = next.map_or(0, rank_of);
            while let Some(last) = waiting.pop_if(|last| last.rank() > rank) {
                operand = last.finish(operand);
            }
            let Some(next) = next else { return Ok(operand) };
            self.next();
            if next == Operator::Compare(ComparisonOperator::NotIn) {
                self.next();
            }
            match waiting.last_mut() {
                Some(WaitingOperator::Chain(_, others, last)) if rank_of(*last) == rank => {
                    others.push((*last, operand));
                    *last = next;
                }
                _ => waiting.push(WaitingOperator::Chain(operand, Vec::new(), next)),
            }
        }
    }

    /// Returns the operator that follows.
    fn next_operator(&self) -> Option<Operator> {
        Some(match self.peek() {
            TokenKind::Name(name) => match &**name {
                "or" => Operator::Or,
                "and" => Operator::And,
                "in" => Operator::Compare(ComparisonOperator::In),
                "not" if self.follows_in() => Operator::Compare(ComparisonOperator::NotIn),
                _ => return None,
            },
            TokenKind::Sign(sign) => match *sign {
                "==" => Operator::Compare(ComparisonOperator::Equal),
                "!=" => Operator::Compare(ComparisonOperator::NotEqual),
                "<" => Operator::Compare(ComparisonOperator::Less),
                "<=" => Operator::Compare(ComparisonOperator::LessOrEqual),
                ">" => Operator::Compare(ComparisonOperator::Greater),
                ">=" => Operator::Compare(ComparisonOperator::GreaterOrEqual),
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
    fn count_taken(&mut self, take: impl Fn(&mut Self) -> bool) -> usize {
        let mut times = 0;
        while take(self) {
            times += 1;
        }
        times
    }

    /// Parses an operand with its signs, attributes, calls, filters and tests.
    fn parse_unary(&mut self) -> Parsed<TemplateExpr> {
        let signs = self.count_taken(|parser| parser.take_sign("-"));
        let operand = self.parse_primary()?;
        let parts = self.parse_attributes()?;
        let mut operand = with_postfix(operand, parts);
        if signs > 0 {
            operand = TemplateExpr::Negative(signs, Box::new(operand));
        }
        let mut parts = Vec::new();
        loop {
            if self.take_sign("|") {
                parts.push(self.parse_filter()?);
            } else if self.take_name("is") {
                parts.push(self.parse_test()?);
            } else if self.is_sign("(") {
                parts.push(self.parse_call()?);
            } else {
                return Ok(with_postfix(operand, parts));
            }
        }
    }

    fn parse_primary(&mut self) -> Parsed<TemplateExpr> {
        let value = match self.peek() {
            TokenKind::Name(_) => return self.parse_variable(),
            TokenKind::Int(number) => TemplateValue::Int(*number),
            TokenKind::Float(number) => TemplateValue::Float(*number),
            TokenKind::Str(_) => {
                let mut text = String::new();
                while matches!(self.peek(), TokenKind::Str(_)) {
                    if let TokenKind::Str(part) = self.next() {
                        text.push_str(&part);
                    }
                }
                return Ok(TemplateExpr::Constant(TemplateValue::str(text)));
            }
            TokenKind::Sign("(") => {
                self.next();
                if self.take_sign(")") {
                    return Ok(TemplateExpr::Tuple(Vec::new()));
                }
                let inside = self.parse_nested(|parser| parser.parse_tuple(true))?;
                self.expect_sign(")")?;
                return Ok(inside);
            }
            TokenKind::Sign("[") => {
                self.next();
                return Ok(TemplateExpr::List(self.parse_items("]", Self::parse_expression)?));
            }
            TokenKind::Sign("{") => {
                self.next();
                return Ok(TemplateExpr::Dict(self.parse_items("}", Self::parse_entry)?));
            }
            _ => return self.unexpected_token("a value"),
        };
        self.next();
        Ok(TemplateExpr::Constant(value))
    }

    /// Parses `key: value`.
    fn parse_entry(&mut self) -> Parsed<(TemplateExpr, TemplateExpr)> {
        let key = self.parse_expression()?;
        self.expect_sign(":")?;
        Ok((key, self.parse_expression()?))
    }

    fn parse_variable(&mut self) -> Parsed<TemplateExpr> {
        let name = self.parse_name()?;
        Ok(match &*name {
            "true" | "True" => TemplateExpr::Constant(TemplateValue::Bool(true)),
            "false" | "False" => TemplateExpr::Constant(TemplateValue::Bool(false)),
            "none" | "None" => TemplateExpr::Constant(TemplateValue::None),
            _ => TemplateExpr::Name(name),
        })
    }

    /// Parses parts between commas up to a closing bracket, and the bracket.
    fn parse_items<T>(
        &mut self,
        end: &str,
        item: impl Fn(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
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
            items.push(self.parse_nested(&item)?);
        }
    }

    /// Parses attributes, items and calls after an operand.
    fn parse_attributes(&mut self) -> Parsed<Vec<Postfix>> {
        let mut parts = Vec::new();
        loop {
            if self.take_sign(".") {
                parts.push(match self.peek() {
                    TokenKind::Int(index) => {
                        let index = TemplateValue::Int(*index);
                        self.next();
                        Postfix::Item(TemplateExpr::Constant(index))
                    }
                    _ => Postfix::Attribute(self.parse_name()?),
                });
            } else if self.take_sign("[") {
                parts.push(self.parse_nested(Self::parse_subscript)?);
                self.expect_sign("]")?;
            } else if self.is_sign("(") {
                parts.push(self.parse_call()?);
            } else {
                return Ok(parts);
            }
        }
    }

    /// Parses an item, or a slice `a:b:c`.
    fn parse_subscript(&mut self) -> Parsed<Postfix> {
        let mut bounds = [None, None, None];
        let mut colons = 0;
        loop {
            if self.take_sign(":") {
                colons += 1;
                if colons > 2 {
                    return self.unexpected_token("`]`");
                }
            } else if self.is_sign("]") {
                break;
            } else if bounds[colons].is_none() {
                bounds[colons] = Some(self.parse_expression()?);
            } else {
                return self.unexpected_token("`]`");
            }
        }
        match bounds {
            [Some(item), None, None] if colons == 0 => Ok(Postfix::Item(item)),
            [None, None, None] if colons == 0 => self.unexpected_token("an item"),
            bounds => Ok(Postfix::Slice(Box::new(bounds))),
        }
    }

    fn parse_call(&mut self) -> Parsed<Postfix> {
        let line = self.line();
        Ok(Postfix::Call(line, self.parse_arguments()?))
    }

    fn parse_arguments(&mut self) -> Parsed<ArgumentList> {
        self.expect_sign("(")?;
        let mut arguments = ArgumentList::default();
        let mut first = true;
        while !self.take_sign(")") {
            if !std::mem::take(&mut first) {
                self.expect_sign(",")?;
                if self.take_sign(")") {
                    break;
                }
            }
            self.parse_nested(|parser| parser.parse_argument(&mut arguments))?;
        }
        Ok(arguments)
    }

    fn parse_argument(&mut self, arguments: &mut ArgumentList) -> Parsed<()> {
        if self.take_sign("*") {
            arguments.items = Some(Box::new(self.parse_expression()?));
        } else if self.names_argument() {
            let name = self.parse_name()?;
            self.expect_sign("=")?;
            arguments.named.push((name, self.parse_expression()?));
        } else if !arguments.named.is_empty() {
            return self.unexpected_token("an argument with a name, after one that has one");
        } else {
            arguments.positional.push(self.parse_expression()?);
        }
        Ok(())
    }

    fn names_argument(&self) -> bool {
        let next = self.tokens.get(self.at + 1).map(|next| &next.kind);
        matches!(self.peek(), TokenKind::Name(_)) && matches!(next, Some(TokenKind::Sign("=")))
    }

    /// Parses a filter after its `|`.
    fn parse_filter(&mut self) -> Parsed<Postfix> {
        let name = self.parse_name()?;
        let arguments =
            if self.is_sign("(") { self.parse_arguments()? } else { ArgumentList::default() };
        Ok(Postfix::Filter(name, arguments))
    }

    /// Parses a test after its `is`.
    fn parse_test(&mut self) -> Parsed<Postfix> {
        let fails = self.take_name("not");
        let name = self.parse_name()?;
        let mut arguments = ArgumentList::default();
        let operand = match self.peek() {
            TokenKind::Name(name) => {
                !matches!(&**name, "else" | "or" | "and" | "if" | "in" | "not")
            }
            TokenKind::Str(_) | TokenKind::Int(_) | TokenKind::Float(_) => true,
            TokenKind::Sign(sign) => matches!(*sign, "[" | "{"),
            _ => false,
        };
        if self.is_sign("(") {
            arguments = self.parse_arguments()?;
        } else if self.is_name("is") {
            return self.error("tests cannot follow each other; put the first in brackets");
        } else if operand {
            let operand = self.parse_primary()?;
            let parts = self.parse_attributes()?;
            arguments.positional.push(with_postfix(operand, parts));
        }
        Ok(Postfix::Test(name, arguments, fails))
    }
}

/// Operators whose last operand is not parsed yet.
enum WaitingOperator {
    Not(usize),
    /// First operand, the others with the operators before them, and the last operator.
    Chain(TemplateExpr, Vec<(Operator, TemplateExpr)>, Operator),
}

impl WaitingOperator {
    fn rank(&self) -> u32 {
        match self {
            Self::Not(_) => 3,
            Self::Chain(_, _, operator) => rank_of(*operator),
        }
    }

    /// Completes the expression.
    fn finish(self, operand: TemplateExpr) -> TemplateExpr {
        match self {
            Self::Not(times) => TemplateExpr::Not(times, Box::new(operand)),
            Self::Chain(first, mut others, last) => {
                others.push((last, operand));
                TemplateExpr::Chain(Box::new(first), others)
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

fn with_postfix(operand: TemplateExpr, parts: Vec<Postfix>) -> TemplateExpr {
    if parts.is_empty() { operand } else { TemplateExpr::Postfix(Box::new(operand), parts) }
}

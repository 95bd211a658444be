//! Parser of statements. Expressions are in [`expression`].

mod expression;

use std::sync::Arc;

use crate::Error;
use crate::ast::{
    AssignTarget, For, Macro, Postfix, Statement, StatementKind, TemplateBlock, TemplateExpr,
};
use crate::lexer::{TemplateToken, TokenKind, split_tokens, syntax_error};

/// Maximum size of a template in bytes. The largest published ones have about 20 KB.
const LARGEST: usize = 256 << 10;

/// Maximum nesting of blocks and brackets.
const NESTING: u32 = 100;

/// Parses a template.
///
/// # Errors
///
/// The first syntax error, with its line.
pub(crate) fn parse_template(source: &str) -> Result<TemplateBlock, Error> {
    if source.len() > LARGEST {
        let found = source.len();
        return Err(syntax_error(1, format!("{found} bytes; at most {LARGEST} are supported")));
    }
    let tokens = split_tokens(source)?;
    let mut parser = TemplateParser { tokens, at: 0, nesting: 0, loops: 0 };
    let (block, _) = parser.parse_block(&[])?;
    Ok(block)
}

struct TemplateParser {
    tokens: Vec<TemplateToken>,
    at: usize,
    nesting: u32,
    /// Number of loops around the statement within its macro.
    loops: usize,
}

/// Tags that begin a statement.
const TAGS: &[&str] =
    &["set", "if", "for", "macro", "call", "break", "continue", "generation", "raw"];

type Parsed<T> = Result<T, Error>;

impl TemplateParser {
    fn peek(&self) -> &TokenKind {
        &self.tokens[self.at].kind
    }

    fn line(&self) -> u32 {
        self.tokens[self.at].line
    }

    /// Takes a token; the last one stays.
    fn next(&mut self) -> TokenKind {
        let last = self.tokens.len() - 1;
        let kind = std::mem::replace(&mut self.tokens[self.at].kind, TokenKind::End);
        self.at = (self.at + 1).min(last);
        kind
    }

    fn error<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(syntax_error(self.line(), message))
    }

    /// Returns the error of a name or an operator that does not exist, with those that do.
    fn unknown_name<T>(&self, what: &str, name: &str, remedy: String) -> Parsed<T> {
        let reason = format!("there is no {what} `{name:.60}`");
        Err(Error { line: self.line(), reason, remedy: Some(remedy) })
    }

    /// Returns the error of an unexpected token.
    fn unexpected_token<T>(&self, expected: &str) -> Parsed<T> {
        if let TokenKind::Sign(sign @ ("/" | "//" | "**")) = self.peek() {
            return self.unknown_name(
                "operator",
                sign,
                "there are `+`, `-`, `*`, `%`, `~`".to_owned(),
            );
        }
        let found = match self.peek() {
            TokenKind::Text(_) | TokenKind::Print | TokenKind::Tag => "the end of the tag".into(),
            TokenKind::PrintEnd => "`}}`".to_owned(),
            TokenKind::TagEnd => "`%}`".to_owned(),
            TokenKind::Name(name) => format!("`{name:.60}`"),
            TokenKind::Int(number) => format!("`{number}`"),
            TokenKind::Float(number) => format!("`{number}`"),
            TokenKind::Str(text) => format!("{text:.60?}"),
            TokenKind::Sign(sign) => format!("`{sign}`"),
            TokenKind::End => "the end of the template".to_owned(),
        };
        self.error(format!("found {found}, expected {expected}"))
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), TokenKind::Name(found) if &**found == name)
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), TokenKind::Sign(found) if *found == sign)
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.next();
        }
        found
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let found = self.is_sign(sign);
        if found {
            self.next();
        }
        found
    }

    fn expect_name(&mut self, name: &str) -> Parsed<()> {
        if self.take_name(name) { Ok(()) } else { self.unexpected_token(&format!("`{name}`")) }
    }

    fn expect_sign(&mut self, sign: &str) -> Parsed<()> {
        if self.take_sign(sign) { Ok(()) } else { self.unexpected_token(&format!("`{sign}`")) }
    }

    fn tag_end(&mut self) -> Parsed<()> {
        match self.peek() {
            TokenKind::TagEnd => {
                self.next();
                Ok(())
            }
            _ => self.unexpected_token("`%}`"),
        }
    }

    fn parse_name(&mut self) -> Parsed<Arc<str>> {
        match self.peek() {
            TokenKind::Name(_) => match self.next() {
                TokenKind::Name(name) => Ok(name),
                _ => self.unexpected_token("a name"),
            },
            _ => self.unexpected_token("a name"),
        }
    }

    /// Parses with `parse` one bracket or block deeper.
    fn parse_nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting >= NESTING {
            return self
                .error(format!("more than {NESTING} blocks and brackets within each other"));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    /// Parses statements up to a tag named in `ends`, and returns that name; without `ends`, up to the end of the
    /// template.
    fn parse_block(&mut self, ends: &[&'static str]) -> Parsed<(TemplateBlock, &'static str)> {
        let mut block = Vec::new();
        loop {
            let line = self.line();
            let kind = match self.peek() {
                TokenKind::End if ends.is_empty() => return Ok((block, "")),
                TokenKind::End => {
                    let ends = ends.join(" %}` or `{% ");
                    return self.error(format!("`{{% {ends} %}}` is missing"));
                }
                TokenKind::Text(_) => match self.next() {
                    TokenKind::Text(text) => StatementKind::Text(text),
                    _ => continue,
                },
                TokenKind::Print => {
                    self.next();
                    let value = self.parse_tuple(true)?;
                    match self.peek() {
                        TokenKind::PrintEnd => drop(self.next()),
                        _ => return self.unexpected_token("`}}`"),
                    }
                    StatementKind::Print(value)
                }
                _ => {
                    self.next();
                    if let Some(end) = ends.iter().find(|end| self.is_name(end)) {
                        self.next();
                        return Ok((block, end));
                    }
                    self.parse_nested(|parser| parser.parse_statement(ends))?
                }
            };
            block.push(Statement { line, kind });
        }
    }

    /// Parses a block up to an end tag, and the rest of that tag.
    fn parse_body(&mut self, end: &'static str) -> Parsed<TemplateBlock> {
        self.tag_end()?;
        let (block, _) = self.parse_block(&[end])?;
        self.tag_end()?;
        Ok(block)
    }

    fn parse_statement(&mut self, ends: &[&'static str]) -> Parsed<StatementKind> {
        let line = self.line();
        let name = self.parse_name()?;
        let kind = match &*name {
            "set" => return self.parse_set(),
            "if" => return self.parse_condition(),
            "for" => return self.loop_over(),
            "macro" => return self.macro_definition(),
            "call" => return self.call_block(line),
            "generation" => {
                return Ok(StatementKind::Generation(self.parse_body("endgeneration")?));
            }
            "break" | "continue" if self.loops == 0 => {
                return self.error(format!("`{name}` is outside of a loop"));
            }
            "break" => StatementKind::Break,
            "continue" => StatementKind::Continue,
            _ => {
                let tags = [ends, TAGS].concat().join("`, `");
                return self.unknown_name("tag", &name, format!("there are `{tags}`"));
            }
        };
        self.tag_end()?;
        Ok(kind)
    }

    fn parse_set(&mut self) -> Parsed<StatementKind> {
        let target = self.parse_target(true)?;
        if self.take_sign("=") {
            let value = self.parse_tuple(true)?;
            self.tag_end()?;
            return Ok(StatementKind::Set(target, value));
        }
        Ok(StatementKind::SetBlock(target, self.macro_body("endset")?))
    }

    fn parse_condition(&mut self) -> Parsed<StatementKind> {
        let mut branches = Vec::new();
        loop {
            let condition = self.parse_tuple(false)?;
            self.tag_end()?;
            let (block, end) = self.parse_block(&["elif", "else", "endif"])?;
            branches.push((condition, block));
            match end {
                "elif" => {}
                "else" => return Ok(StatementKind::If(branches, self.parse_body("endif")?)),
                _ => {
                    self.tag_end()?;
                    return Ok(StatementKind::If(branches, Vec::new()));
                }
            }
        }
    }

    fn loop_over(&mut self) -> Parsed<StatementKind> {
        let target = self.parse_target(false)?;
        self.expect_name("in")?;
        let items = self.parse_tuple(false)?;
        let condition = if self.take_name("if") { Some(self.parse_expression()?) } else { None };
        self.tag_end()?;
        self.loops += 1;
        let (body, end) = self.parse_block(&["else", "endfor"])?;
        self.loops -= 1;
        let otherwise = match end {
            "else" => self.parse_body("endfor")?,
            _ => {
                self.tag_end()?;
                Vec::new()
            }
        };
        Ok(StatementKind::For(For { target, items, condition, body, otherwise }))
    }

    fn macro_definition(&mut self) -> Parsed<StatementKind> {
        let name = self.parse_name()?;
        self.expect_sign("(")?;
        let parameters = self.parse_parameters()?;
        let body = self.macro_body("endmacro")?;
        Ok(StatementKind::Macro(Arc::new(Macro { name, parameters, body })))
    }

    /// Parses a block that no `break` leaves.
    fn macro_body(&mut self, end: &'static str) -> Parsed<TemplateBlock> {
        let loops = std::mem::replace(&mut self.loops, 0);
        let body = self.parse_body(end);
        self.loops = loops;
        body
    }

    /// Parses parameters: `a, b=1)`.
    fn parse_parameters(&mut self) -> Parsed<Vec<(Arc<str>, Option<TemplateExpr>)>> {
        let mut parameters: Vec<(Arc<str>, Option<TemplateExpr>)> = Vec::new();
        while !self.take_sign(")") {
            if !parameters.is_empty() {
                self.expect_sign(",")?;
                if self.take_sign(")") {
                    break;
                }
            }
            let name = self.parse_name()?;
            let default = if self.take_sign("=") { Some(self.parse_expression()?) } else { None };
            if default.is_none() && parameters.iter().any(|(_, default)| default.is_some()) {
                return self
                    .error(format!("`{name}` has no default, but a parameter before it has"));
            }
            parameters.push((name, default));
        }
        Ok(parameters)
    }

    fn call_block(&mut self, line: u32) -> Parsed<StatementKind> {
        let parameters = if self.take_sign("(") { self.parse_parameters()? } else { Vec::new() };
        let call = self.parse_expression()?;
        let is_call = matches!(&call, TemplateExpr::Postfix(_, parts) if matches!(parts.last(), Some(Postfix::Call(..))));
        if !is_call {
            return Err(syntax_error(line, "`call` expects a call"));
        }
        let body = self.macro_body("endcall")?;
        let name = "caller".into();
        Ok(StatementKind::Call(call, Arc::new(Macro { name, parameters, body })))
    }

    /// Parses a target: names, tuples of names, and attributes of namespaces if `attributes` is set.
    fn parse_target(&mut self, attributes: bool) -> Parsed<AssignTarget> {
        let mut targets = vec![self.single_target(attributes)?];
        let mut tuple = false;
        while self.take_sign(",") {
            tuple = true;
            if !matches!(self.peek(), TokenKind::Name(_)) && !self.is_sign("(")
                || self.is_name("in")
            {
                break;
            }
            targets.push(self.single_target(attributes)?);
        }
        match targets.pop() {
            Some(only) if !tuple => Ok(only),
            last => Ok(AssignTarget::Tuple(targets.into_iter().chain(last).collect())),
        }
    }

    fn single_target(&mut self, attributes: bool) -> Parsed<AssignTarget> {
        if self.take_sign("(") {
            let target = self.parse_nested(|parser| parser.parse_target(attributes))?;
            self.expect_sign(")")?;
            return Ok(target);
        }
        let name = self.parse_name()?;
        if matches!(&*name, "true" | "false" | "none" | "True" | "False" | "None") {
            return self.error(format!("`{name}` cannot be assigned to"));
        }
        if attributes && self.take_sign(".") {
            return Ok(AssignTarget::Attribute(name, self.parse_name()?));
        }
        Ok(AssignTarget::Name(name))
    }
}

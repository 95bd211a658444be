//! Parser of statements. Expressions are in [`expression`].

mod expression;
mod target;

use std::sync::Arc;

use super::SyntaxError;
use super::ast::{Block, Expr, For, Kind, Macro, Postfix, Statement};
use super::lexer::{Token, TokenKind, tokens};

/// Maximum size of a template in bytes. The largest published ones have about 20 KB.
const LARGEST: usize = 256 << 10;

/// Maximum nesting of blocks and brackets.
const NESTING: u32 = 100;

/// Parses a template.
///
/// # Errors
///
/// The first syntax error, with its line.
pub(crate) fn parse(source: &str) -> Result<Block, SyntaxError> {
    if source.len() > LARGEST {
        let message = format!("{} bytes; at most {LARGEST} are supported", source.len());
        return Err(SyntaxError { line: 1, message });
    }
    let tokens = tokens(source)?;
    let mut parser = Parser { tokens, at: 0, nesting: 0, loops: 0, speaks_of_loop: false };
    let (block, _) = parser.block(&[])?;
    Ok(block)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    nesting: u32,
    /// Number of loops around the statement within its macro.
    loops: usize,
    /// True if the name `loop` was used.
    speaks_of_loop: bool,
}

type Parsed<T> = Result<T, SyntaxError>;

impl Parser {
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
        Err(SyntaxError { line: self.line(), message: message.into() })
    }

    /// Returns the error of an unexpected token.
    fn unexpected<T>(&self, expected: &str) -> Parsed<T> {
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
        if self.take_name(name) { Ok(()) } else { self.unexpected(&format!("`{name}`")) }
    }

    fn expect_sign(&mut self, sign: &str) -> Parsed<()> {
        if self.take_sign(sign) { Ok(()) } else { self.unexpected(&format!("`{sign}`")) }
    }

    fn tag_end(&mut self) -> Parsed<()> {
        match self.peek() {
            TokenKind::TagEnd => {
                self.next();
                Ok(())
            }
            _ => self.unexpected("`%}`"),
        }
    }

    fn name(&mut self) -> Parsed<Arc<str>> {
        match self.peek() {
            TokenKind::Name(_) => match self.next() {
                TokenKind::Name(name) => Ok(name),
                _ => self.unexpected("a name"),
            },
            _ => self.unexpected("a name"),
        }
    }

    /// Parses with `parse` one bracket or block deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
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
    fn block(&mut self, ends: &[&'static str]) -> Parsed<(Block, &'static str)> {
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
                    TokenKind::Text(text) => Kind::Text(text),
                    _ => continue,
                },
                TokenKind::Print => {
                    self.next();
                    let value = self.tuple(true)?;
                    match self.peek() {
                        TokenKind::PrintEnd => drop(self.next()),
                        _ => return self.unexpected("`}}`"),
                    }
                    Kind::Print(value)
                }
                _ => {
                    self.next();
                    if let Some(end) = ends.iter().find(|end| self.is_name(end)) {
                        self.next();
                        return Ok((block, end));
                    }
                    self.nested(|parser| parser.statement(ends))?
                }
            };
            block.push(Statement { line, kind });
        }
    }

    /// Parses a block up to an end tag, and the rest of that tag.
    fn body(&mut self, end: &'static str) -> Parsed<Block> {
        self.tag_end()?;
        let (block, _) = self.block(&[end])?;
        self.tag_end()?;
        Ok(block)
    }

    fn statement(&mut self, ends: &[&'static str]) -> Parsed<Kind> {
        let line = self.line();
        let name = self.name()?;
        let kind = match &*name {
            "set" => return self.set(),
            "if" => return self.condition(),
            "for" => return self.loop_over(),
            "macro" => return self.macro_definition(),
            "call" => return self.call_block(line),
            "with" => return self.with(),
            "filter" => {
                let filters = self.filters()?;
                return Ok(Kind::Filter(filters, self.body("endfilter")?));
            }
            "generation" => return Ok(Kind::With(Vec::new(), self.body("endgeneration")?)),
            "block" => {
                self.name()?;
                let _ = self.take_name("scoped");
                self.tag_end()?;
                let (block, _) = self.block(&["endblock"])?;
                if !matches!(self.peek(), TokenKind::TagEnd) {
                    self.name()?;
                }
                Kind::With(Vec::new(), block)
            }
            "print" => Kind::Print(self.tuple(true)?),
            "break" | "continue" if self.loops == 0 => {
                return self.error(format!("`{name}` is outside of a loop"));
            }
            "break" => Kind::Break,
            "continue" => Kind::Continue,
            "include" => self.other("include"),
            "import" | "from" => self.other("import"),
            "extends" => self.other("extends"),
            "autoescape" => return self.error("`autoescape` is not supported"),
            _ if ends.is_empty() => return self.error(format!("there is no tag `{name:.60}`")),
            _ => {
                let ends = ends.join("`, `");
                return self.error(format!("there is no tag `{name:.60}`, or `{ends}` is missing"));
            }
        };
        self.tag_end()?;
        Ok(kind)
    }

    /// Parses a statement that reads another template. There are no other templates, so it fails when executed.
    fn other(&mut self, name: &'static str) -> Kind {
        while !matches!(self.peek(), TokenKind::TagEnd | TokenKind::End) {
            self.next();
        }
        Kind::Other(name)
    }

    fn set(&mut self) -> Parsed<Kind> {
        let target = self.target(true)?;
        if self.take_sign("=") {
            let value = self.tuple(true)?;
            self.tag_end()?;
            return Ok(Kind::Set(target, value));
        }
        let filters = if self.take_sign("|") { self.filters()? } else { Vec::new() };
        Ok(Kind::SetBlock(target, filters, self.body("endset")?))
    }

    /// Parses filters without a value, one after the other.
    fn filters(&mut self) -> Parsed<Vec<Postfix>> {
        let mut filters = vec![self.filter()?];
        while self.take_sign("|") {
            filters.push(self.filter()?);
        }
        Ok(filters)
    }

    fn condition(&mut self) -> Parsed<Kind> {
        let mut branches = Vec::new();
        loop {
            let condition = self.tuple(false)?;
            self.tag_end()?;
            let (block, end) = self.block(&["elif", "else", "endif"])?;
            branches.push((condition, block));
            match end {
                "elif" => {}
                "else" => return Ok(Kind::If(branches, self.body("endif")?)),
                _ => {
                    self.tag_end()?;
                    return Ok(Kind::If(branches, Vec::new()));
                }
            }
        }
    }

    fn loop_over(&mut self) -> Parsed<Kind> {
        let target = self.target(false)?;
        self.expect_name("in")?;
        let items = self.tuple(false)?;
        let condition = if self.take_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.take_name("recursive");
        self.tag_end()?;
        let outside = std::mem::replace(&mut self.speaks_of_loop, false);
        self.loops += 1;
        let (body, end) = self.block(&["else", "endfor"])?;
        self.loops -= 1;
        let uses_loop = std::mem::replace(&mut self.speaks_of_loop, outside);
        // A macro within an inner loop may use this loop's `loop`.
        self.speaks_of_loop |= uses_loop;
        let otherwise = match end {
            "else" => self.body("endfor")?,
            _ => {
                self.tag_end()?;
                Vec::new()
            }
        };
        let uses_loop = uses_loop || recursive;
        Ok(Kind::For(Arc::new(For {
            target,
            items,
            condition,
            recursive,
            uses_loop,
            body,
            otherwise,
        })))
    }

    fn macro_definition(&mut self) -> Parsed<Kind> {
        let name = self.name()?;
        self.expect_sign("(")?;
        let parameters = self.parameters()?;
        let body = self.macro_body("endmacro")?;
        Ok(Kind::Macro(Arc::new(Macro { name, parameters, body })))
    }

    fn macro_body(&mut self, end: &'static str) -> Parsed<Block> {
        let loops = std::mem::replace(&mut self.loops, 0);
        let body = self.body(end);
        self.loops = loops;
        body
    }

    /// Parses parameters: `a, b=1)`.
    fn parameters(&mut self) -> Parsed<Vec<(Arc<str>, Option<Expr>)>> {
        let mut parameters: Vec<(Arc<str>, Option<Expr>)> = Vec::new();
        while !self.take_sign(")") {
            if !parameters.is_empty() {
                self.expect_sign(",")?;
                if self.take_sign(")") {
                    break;
                }
            }
            let name = self.name()?;
            let default = if self.take_sign("=") { Some(self.expression()?) } else { None };
            if default.is_none() && parameters.iter().any(|(_, default)| default.is_some()) {
                return self
                    .error(format!("`{name}` has no default, but a parameter before it has"));
            }
            parameters.push((name, default));
        }
        Ok(parameters)
    }

    fn call_block(&mut self, line: u32) -> Parsed<Kind> {
        let parameters = if self.take_sign("(") { self.parameters()? } else { Vec::new() };
        let call = self.expression()?;
        let calls = |expr: &Expr| matches!(expr, Expr::Postfix(_, parts) if matches!(parts.last(), Some(Postfix::Call(..))));
        if !calls(&call) {
            return Err(SyntaxError { line, message: "`call` expects a call".to_owned() });
        }
        let body = self.macro_body("endcall")?;
        let name = "caller".into();
        Ok(Kind::Call(call, Arc::new(Macro { name, parameters, body })))
    }

    fn with(&mut self) -> Parsed<Kind> {
        let mut values = Vec::new();
        while !matches!(self.peek(), TokenKind::TagEnd) {
            if !values.is_empty() {
                self.expect_sign(",")?;
            }
            let target = self.target(false)?;
            self.expect_sign("=")?;
            values.push((target, self.expression()?));
        }
        Ok(Kind::With(values, self.body("endwith")?))
    }
}

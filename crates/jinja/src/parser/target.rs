//! Targets of assignments.

use super::{Parsed, Parser};
use crate::ast::Target;
use crate::lexer::TokenKind;

impl Parser {
    /// Parses a target: names, tuples of names, and attributes of namespaces if `attributes` is set.
    pub(super) fn target(&mut self, attributes: bool) -> Parsed<Target> {
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
            last => Ok(Target::Tuple(targets.into_iter().chain(last).collect())),
        }
    }

    fn single_target(&mut self, attributes: bool) -> Parsed<Target> {
        if self.take_sign("(") {
            let target = self.nested(|parser| parser.target(attributes))?;
            self.expect_sign(")")?;
            return Ok(target);
        }
        let name = self.name()?;
        if matches!(&*name, "true" | "false" | "none" | "True" | "False" | "None") {
            return self.error(format!("`{name}` cannot be assigned to"));
        }
        if attributes && self.take_sign(".") {
            return Ok(Target::Attribute(name, self.name()?));
        }
        Ok(Target::Name(name))
    }
}

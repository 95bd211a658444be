//! Evaluation of expressions.

use std::sync::Arc;

use super::Interpreter;
use crate::access;
use crate::arguments::CallArguments;
use crate::ast::{Arguments, Expr, Operator, Postfix};
use crate::meter::{Outcome, refused};
use crate::methods;
use crate::operators::{compare, operate, sign, slice};
use crate::print::{self, Out};
use crate::value::{Missing, Value, set};

/// Functions that every template can call.
const FUNCTIONS: &[&str] =
    &["cycler", "dict", "joiner", "namespace", "raise_exception", "range", "strftime_now"];

impl Interpreter<'_> {
    /// Evaluates an expression.
    pub(super) fn evaluate(&mut self, expr: &Expr) -> Outcome<Value> {
        self.meter.step()?;
        match expr {
            Expr::Constant(value) => Ok(value.clone()),
            Expr::Name(name) => self.variable(name),
            other => self.nested(|this| this.composed(other)),
        }
    }

    fn composed(&mut self, expr: &Expr) -> Outcome<Value> {
        match expr {
            Expr::Constant(_) | Expr::Name(_) => self.evaluate(expr),
            Expr::List(items) => Value::list(self.all(items)?),
            Expr::Tuple(items) => Value::tuple(self.all(items)?),
            Expr::Dict(entries) => {
                let mut values = Vec::new();
                for (key, value) in entries {
                    let (key, value) = (self.evaluate(key)?, self.evaluate(value)?);
                    set(&mut values, key, value, self.meter)?;
                }
                Value::dict(values)
            }
            Expr::Signs(signs, operand) => {
                let operand = self.evaluate(operand)?;
                signs.iter().try_fold(operand, |value, sign_| sign(*sign_, &value))
            }
            Expr::Chain(first, others) => self.chain(first, others),
            Expr::Compare(first, others) => {
                let mut left = self.evaluate(first)?;
                for (comparison, right) in others {
                    let right = self.evaluate(right)?;
                    if !compare(*comparison, &left, &right, self.meter)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            Expr::Concat(parts) => self.concat(parts),
            Expr::And(operands) => self.first(operands, false),
            Expr::Or(operands) => self.first(operands, true),
            Expr::If(parts) => {
                let (value, condition, other) = &**parts;
                if self.evaluate(condition)?.is_true() {
                    return self.evaluate(value);
                }
                match other {
                    Some(other) => self.evaluate(other),
                    None => Ok(Value::Undefined(Missing::Else)),
                }
            }
            Expr::Postfix(operand, parts) => self.parts(operand, parts, None),
        }
    }

    pub(super) fn variable(&mut self, name: &Arc<str>) -> Outcome<Value> {
        let mut at = self.scope;
        loop {
            self.meter.step()?;
            let scope = &self.scopes[at];
            if let Some(value) = scope.variables.get(name) {
                return Ok(value.clone());
            }
            if at == 0 {
                break;
            }
            at = scope.around;
        }
        let function = FUNCTIONS.iter().find(|function| **function == &**name);
        let missing = || Value::Undefined(Missing::Name(Arc::clone(name)));
        Ok(function.map_or_else(missing, |function| Value::Function(function)))
    }

    fn all(&mut self, items: &[Expr]) -> Outcome<Vec<Value>> {
        self.meter.product(items.len(), size_of::<Value>())?;
        items.iter().map(|item| self.evaluate(item)).collect()
    }

    /// Returns the first operand whose truth equals `wanted`; else the last.
    fn first(&mut self, operands: &[Expr], wanted: bool) -> Outcome<Value> {
        let mut value = Value::None;
        for operand in operands {
            value = self.evaluate(operand)?;
            if value.is_true() == wanted {
                break;
            }
        }
        Ok(value)
    }

    fn chain(&mut self, first: &Expr, others: &[(Operator, Expr)]) -> Outcome<Value> {
        let mut left = self.evaluate(first)?;
        let texts = others.iter().all(|(operator, _)| *operator == Operator::Add);
        if !texts || others.len() == 1 || left.as_str().is_none() {
            for (operator, right) in others {
                let right = self.evaluate(right)?;
                left = operate(*operator, &left, &right, self.meter)?;
            }
            return Ok(left);
        }
        // A chain of text additions is copied once, not once per operator.
        let mut out = Out::new(self.meter);
        print::write(&mut out, &left)?;
        for (_, right) in others {
            match self.evaluate(right)? {
                Value::Str(text) => out.push(&text)?,
                other => {
                    left = Value::str(out.text);
                    return operate(Operator::Add, &left, &other, self.meter);
                }
            }
        }
        Ok(Value::str(out.text))
    }

    fn concat(&mut self, parts: &[Expr]) -> Outcome<Value> {
        let mut out = Out::new(self.meter);
        for part in parts {
            let part = self.evaluate(part)?;
            print::write(&mut out, &part)?;
        }
        Ok(Value::str(out.text))
    }

    /// Applies the suffixes of an operand. If the last one is a call, it gets `caller`.
    pub(super) fn parts(
        &mut self,
        operand: &Expr,
        parts: &[Postfix],
        mut caller: Option<Value>,
    ) -> Outcome<Value> {
        let mut value = self.evaluate(operand)?;
        let mut at = 0;
        while let Some(part) = parts.get(at) {
            at += 1;
            self.meter.step()?;
            value = match (part, parts.get(at)) {
                // A method call does not create a method value first.
                (Postfix::Attribute(name), Some(Postfix::Call(line, arguments)))
                    if methods::has(&value, name)
                        && !matches!(value, Value::Loop(_) | Value::Cycler(_)) =>
                {
                    at += 1;
                    let given = self.given(arguments)?;
                    self.line = *line;
                    methods::call(&value, name, given, self.meter)?
                }
                (Postfix::Call(line, arguments), next) => {
                    let mut given = self.given(arguments)?;
                    if let Some(caller) = caller.take().filter(|_| next.is_none()) {
                        given.named.push(("caller".into(), caller));
                    }
                    let outside = std::mem::replace(&mut self.line, *line);
                    let result = self.nested(|this| this.call(&value, given))?;
                    self.line = outside;
                    result
                }
                (part, _) => self.postfix(&value, part)?,
            };
        }
        Ok(value)
    }

    /// Applies an attribute, an item, a filter or a test.
    pub(super) fn postfix(&mut self, value: &Value, part: &Postfix) -> Outcome<Value> {
        match part {
            Postfix::Attribute(name) => self.attribute(value, name),
            Postfix::Item(key) => {
                let key = self.evaluate(key)?;
                match (value, &key) {
                    (Value::Namespace(_), Value::Str(name)) => self.attribute(value, name),
                    _ => access::item(value, &key, self.meter),
                }
            }
            Postfix::Slice(bounds) => {
                let mut numbers = [None; 3];
                for (number, bound) in numbers.iter_mut().zip(bounds.iter()) {
                    let Some(bound) = bound else { continue };
                    *number = match self.evaluate(bound)? {
                        Value::None => None,
                        value => match value.as_int() {
                            Some(number) => Some(number),
                            None => return refused("slice indices must be integers or None"),
                        },
                    };
                }
                slice(value, numbers, self.meter)
            }
            Postfix::Filter(name, arguments) => {
                let given = self.given(arguments)?;
                self.nested(|this| this.filter(name, value, given))
            }
            Postfix::Test(name, arguments, fails) => {
                let given = self.given(arguments)?;
                let holds = self.test(name, value, given)?;
                Ok(Value::Bool(holds != *fails))
            }
            Postfix::Call(_, arguments) => {
                let given = self.given(arguments)?;
                self.nested(|this| this.call(value, given))
            }
        }
    }

    fn attribute(&mut self, value: &Value, name: &Arc<str>) -> Outcome<Value> {
        let missing = |kind| Value::Undefined(Missing::Of(kind, Arc::clone(name)));
        match value {
            Value::Namespace(at) => {
                let found = self.namespaces[*at].get(name).cloned();
                Ok(found.unwrap_or_else(|| missing("namespace")))
            }
            Value::Cycler(at) if &**name == "current" => {
                let (items, next) = &self.cyclers[*at];
                Ok(items.items[*next].clone())
            }
            Value::Macro(closure) if &**name == "name" => {
                Ok(Value::Str(Arc::clone(&closure.code.name)))
            }
            value => access::attribute(value, name, self.meter),
        }
    }

    /// Evaluates arguments.
    pub(super) fn given(&mut self, arguments: &Arguments) -> Outcome<CallArguments> {
        let mut given =
            CallArguments { positional: self.all(&arguments.positional)?, named: Vec::new() };
        if let Some(items) = &arguments.items {
            let items = self.evaluate(items)?.items(self.meter)?;
            self.meter.product(items.items.len(), size_of::<Value>())?;
            given.positional.extend(items.items.iter().cloned());
        }
        for (name, value) in &arguments.named {
            self.meter.bytes(2 * size_of::<Value>())?;
            given.named.push((Arc::clone(name), self.evaluate(value)?));
        }
        if let Some(entries) = &arguments.entries {
            let entries = self.evaluate(entries)?;
            let Value::Dict(dict) = &entries else {
                return refused(format!("'{}' is no mapping of arguments", entries.kind()));
            };
            self.meter.product(dict.entries.len(), 2 * size_of::<Value>())?;
            for (key, value) in &dict.entries {
                let Value::Str(name) = key else { return refused("keywords must be strings") };
                given.named.push((Arc::clone(name), value.clone()));
            }
        }
        Ok(given)
    }
}

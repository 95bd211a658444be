//! Evaluation of expressions.

use std::sync::Arc;

use super::Interpreter;
use crate::arguments::CallArguments;
use crate::ast::{Arguments, Expr, Operator, Postfix};
use crate::meter::{Meter, Outcome, refused, unknown};
use crate::methods::{self, has_method};
use crate::operators::{compare, negate, operate, slice};
use crate::predicates;
use crate::print::{self, Out};
use crate::value::{Loop, Missing, Value, check_hashable, set_entry};

/// Functions that every template can call.
pub(super) const FUNCTIONS: &[&str] =
    &["dict", "namespace", "raise_exception", "range", "strftime_now"];

/// Attributes of `loop`.
const OF_LOOPS: &[&str] = &[
    "first",
    "index",
    "index0",
    "last",
    "length",
    "nextitem",
    "previtem",
    "revindex",
    "revindex0",
];

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
                    set_entry(&mut values, key, value, self.meter)?;
                }
                Value::dict(values)
            }
            Expr::Negative(times, operand) => {
                let operand = self.evaluate(operand)?;
                (0..*times).try_fold(operand, |value, _| negate(&value))
            }
            Expr::Not(times, operand) => {
                let holds = self.evaluate(operand)?.is_true();
                Ok(Value::Bool(holds != (times % 2 == 1)))
            }
            Expr::Chain(first, others) => self.chain(first, others),
            Expr::If(parts) => {
                let (value, condition, other) = &**parts;
                if self.evaluate(condition)?.is_true() {
                    return self.evaluate(value);
                }
                match other {
                    Some(other) => self.evaluate(other),
                    None => Ok(Value::Undefined(Missing::Of("if", "else".into()))),
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
        if FUNCTIONS.contains(&&**name) {
            return Ok(Value::Function(Arc::clone(name)));
        }
        Ok(Value::Undefined(Missing::Name(Arc::clone(name))))
    }

    fn all(&mut self, items: &[Expr]) -> Outcome<Vec<Value>> {
        self.meter.product(items.len(), size_of::<Value>())?;
        items.iter().map(|item| self.evaluate(item)).collect()
    }

    /// Applies operators of one precedence. `or` and `and` end with the first operand that decides; a comparison chain
    /// ends with the first comparison that fails.
    fn chain(&mut self, first: &Expr, others: &[(Operator, Expr)]) -> Outcome<Value> {
        let mut left = self.evaluate(first)?;
        if let Some((Operator::Concat, _)) = others.first() {
            return self.concat(&left, others);
        }
        let last = others.len() - 1;
        for (at, (operator, right)) in others.iter().enumerate() {
            match operator {
                Operator::Or if left.is_true() => return Ok(left),
                Operator::And if !left.is_true() => return Ok(left),
                Operator::Or | Operator::And => left = self.evaluate(right)?,
                Operator::Compare(comparison) => {
                    let right = self.evaluate(right)?;
                    let holds = compare(*comparison, &left, &right, self.meter)?;
                    if !holds || at == last {
                        return Ok(Value::Bool(holds));
                    }
                    left = right;
                }
                operator => {
                    let right = self.evaluate(right)?;
                    left = operate(*operator, &left, &right, self.meter)?;
                }
            }
        }
        Ok(left)
    }

    fn concat(&mut self, first: &Value, others: &[(Operator, Expr)]) -> Outcome<Value> {
        let mut out = Out::new(self.meter);
        print::write(&mut out, first)?;
        for (_, part) in others {
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
            let next = parts.get(at);
            value = match (part, next) {
                (Postfix::Attribute(name), Some(Postfix::Call(line, arguments)))
                    if self.calls_method(&value, name)? =>
                {
                    at += 1;
                    let given = self.given(arguments)?;
                    self.line = *line;
                    methods::call_method(&value, name, given, self.meter)?
                }
                (Postfix::Call(line, arguments), None) => {
                    self.called(&value, *line, arguments, caller.take())?
                }
                (part, _) => self.suffixed(&value, part)?,
            };
        }
        Ok(value)
    }

    /// Calls a value.
    fn called(
        &mut self,
        value: &Value,
        line: u32,
        arguments: &Arguments,
        caller: Option<Value>,
    ) -> Outcome<Value> {
        let mut given = self.given(arguments)?;
        given.named.extend(caller.map(|caller| ("caller".into(), caller)));
        let outside = std::mem::replace(&mut self.line, line);
        let result = self.nested(|this| this.call(value, given))?;
        self.line = outside;
        Ok(result)
    }

    /// Returns true if the call of an attribute is that of a method.
    fn calls_method(&self, value: &Value, name: &Arc<str>) -> Outcome<bool> {
        Ok(match value {
            Value::Dict(dict) => {
                has_method(value, name) || dict.get_text(name, self.meter)?.is_none()
            }
            Value::Namespace(_) | Value::Loop(_) => false,
            _ => true,
        })
    }

    /// Applies an attribute, an item, a filter or a test.
    fn suffixed(&mut self, value: &Value, part: &Postfix) -> Outcome<Value> {
        match part {
            Postfix::Attribute(name) => self.attribute(value, name),
            Postfix::Item(key) => {
                let key = self.evaluate(key)?;
                match (value, &key) {
                    (Value::Namespace(_), Value::Str(name)) => self.attribute(value, name),
                    _ => item(value, &key, self.meter),
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
            Postfix::Test(name, arguments, negated) => {
                let given = self.given(arguments)?;
                Ok(Value::Bool(predicates::holds(name, value, given, self.meter)? != *negated))
            }
            Postfix::Call(line, arguments) => self.called(value, *line, arguments, None),
        }
    }

    /// Evaluates `value.name`: an attribute, or else an item.
    fn attribute(&mut self, value: &Value, name: &Arc<str>) -> Outcome<Value> {
        let found = match value {
            Value::Undefined(missing) => return Err(missing.failure()),
            Value::Namespace(at) => self.namespaces[*at].get(name).cloned(),
            Value::Loop(state) if OF_LOOPS.contains(&&**name) => loop_attribute(state, name),
            Value::Loop(_) => return unknown("attribute of loops", name, OF_LOOPS),
            value if has_method(value, name) => Some(Value::Function(Arc::clone(name))),
            Value::Dict(dict) => dict.get_text(name, self.meter)?.cloned(),
            _ => None,
        };
        Ok(found.unwrap_or_else(|| value.missing(name)))
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
        Ok(given)
    }
}

/// Evaluates `value[key]`.
fn item(value: &Value, key: &Value, meter: &Meter) -> Outcome<Value> {
    let found = match value {
        Value::Undefined(missing) => return Err(missing.failure()),
        Value::Dict(_) if check_hashable(key).is_err() => None,
        Value::Dict(dict) => dict.get(key, meter)?.cloned(),
        Value::List(list) => {
            let index = key.as_int().and_then(|at| index_of(at, list.items.len()));
            index.map(|at| list.items[at].clone())
        }
        Value::Str(text) => {
            meter.work(text.len())?;
            let index = key.as_int().and_then(|at| index_of(at, text.chars().count()));
            index.and_then(|at| text.chars().nth(at)).map(Value::char)
        }
        _ => None,
    };
    Ok(found.unwrap_or_else(|| match key {
        Value::Str(name) => value.missing(name),
        Value::Int(at) => value.missing(&at.to_string().into()),
        key => value.missing(&key.kind().into()),
    }))
}

/// Returns an index counted from the beginning, or from the end if negative.
fn index_of(at: i128, length: usize) -> Option<usize> {
    let at = if at < 0 { at.checked_add(length as i128)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// Evaluates the attribute path of a filter: `name.0.key`.
pub(super) fn item_at_path(value: &Value, path: &Value, meter: &Meter) -> Outcome<Value> {
    let Value::Str(path) = path else { return item(value, path, meter) };
    let mut value = value.clone();
    for part in path.split('.') {
        let key = part.parse().map_or_else(|_| Value::str(part), Value::Int);
        value = item(&value, &key, meter)?;
    }
    Ok(value)
}

fn loop_attribute(state: &Loop, name: &str) -> Option<Value> {
    let (index, items) = (state.index, &state.items.items);
    let number = match name {
        "index" => index + 1,
        "index0" => index,
        "revindex" => items.len() - index,
        "revindex0" => items.len() - index - 1,
        "length" => items.len(),
        "first" => return Some(Value::Bool(index == 0)),
        "last" => return Some(Value::Bool(index + 1 == items.len())),
        "previtem" => return items.get(index.checked_sub(1)?).cloned(),
        "nextitem" => return items.get(index + 1).cloned(),
        _ => return None,
    };
    Some(Value::Int(number as i128))
}

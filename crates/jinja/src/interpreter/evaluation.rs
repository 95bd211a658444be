//! Evaluation of expressions.

use std::sync::Arc;

use super::Interpreter;
use crate::arguments::CallArguments;
use crate::ast::{ArgumentList, Operator, Postfix, TemplateExpr};
use crate::meter::{RenderMeter, RenderResult, refuse_operation, unknown_name};
use crate::methods::{self, has_method};
use crate::operators::{apply_operator, compare_values, negate_number, slice_value};
use crate::predicates;
use crate::print::{self, MeteredText};
use crate::value::{Loop, MissingValue, TemplateValue, check_hashable, set_entry};

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
    pub(super) fn evaluate(&mut self, expr: &TemplateExpr) -> RenderResult<TemplateValue> {
        self.meter.charge_step()?;
        match expr {
            TemplateExpr::Constant(value) => Ok(value.clone()),
            TemplateExpr::Name(name) => self.read_variable(name),
            other => self.run_nested(|this| this.evaluate_composed(other)),
        }
    }

    fn evaluate_composed(&mut self, expr: &TemplateExpr) -> RenderResult<TemplateValue> {
        match expr {
            TemplateExpr::Constant(_) | TemplateExpr::Name(_) => self.evaluate(expr),
            TemplateExpr::List(items) => TemplateValue::list(self.evaluate_all(items)?),
            TemplateExpr::Tuple(items) => TemplateValue::tuple(self.evaluate_all(items)?),
            TemplateExpr::Dict(entries) => {
                let mut values = Vec::new();
                for (key, value) in entries {
                    let (key, value) = (self.evaluate(key)?, self.evaluate(value)?);
                    set_entry(&mut values, key, value, self.meter)?;
                }
                TemplateValue::dict(values)
            }
            TemplateExpr::Negative(times, operand) => {
                let operand = self.evaluate(operand)?;
                (0..*times).try_fold(operand, |value, _| negate_number(&value))
            }
            TemplateExpr::Not(times, operand) => {
                let holds = self.evaluate(operand)?.is_true();
                Ok(TemplateValue::Bool(holds != (times % 2 == 1)))
            }
            TemplateExpr::Chain(first, others) => self.evaluate_chain(first, others),
            TemplateExpr::If(parts) => {
                let (value, condition, other) = &**parts;
                if self.evaluate(condition)?.is_true() {
                    return self.evaluate(value);
                }
                match other {
                    Some(other) => self.evaluate(other),
                    None => Ok(TemplateValue::Undefined(MissingValue::Of("if", "else".into()))),
                }
            }
            TemplateExpr::Postfix(operand, parts) => self.apply_postfixes(operand, parts, None),
        }
    }

    pub(super) fn read_variable(&mut self, name: &Arc<str>) -> RenderResult<TemplateValue> {
        let mut at = self.scope;
        loop {
            self.meter.charge_step()?;
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
            return Ok(TemplateValue::Function(Arc::clone(name)));
        }
        Ok(TemplateValue::Undefined(MissingValue::Name(Arc::clone(name))))
    }

    fn evaluate_all(&mut self, items: &[TemplateExpr]) -> RenderResult<Vec<TemplateValue>> {
        self.meter.charge_product(items.len(), size_of::<TemplateValue>())?;
        items.iter().map(|item| self.evaluate(item)).collect()
    }

    /// Applies operators of one precedence. `or` and `and` end with the first operand that decides; a comparison chain
    /// ends with the first comparison that fails.
    fn evaluate_chain(
        &mut self,
        first: &TemplateExpr,
        others: &[(Operator, TemplateExpr)],
    ) -> RenderResult<TemplateValue> {
        let mut left = self.evaluate(first)?;
        if let Some((Operator::Concat, _)) = others.first() {
            return self.concat_texts(&left, others);
        }
        let last = others.len() - 1;
        for (at, (operator, right)) in others.iter().enumerate() {
            match operator {
                Operator::Or if left.is_true() => return Ok(left),
                Operator::And if !left.is_true() => return Ok(left),
                Operator::Or | Operator::And => left = self.evaluate(right)?,
                Operator::Compare(comparison) => {
                    let right = self.evaluate(right)?;
                    let holds = compare_values(*comparison, &left, &right, self.meter)?;
                    if !holds || at == last {
                        return Ok(TemplateValue::Bool(holds));
                    }
                    left = right;
                }
                operator => {
                    let right = self.evaluate(right)?;
                    left = apply_operator(*operator, &left, &right, self.meter)?;
                }
            }
        }
        Ok(left)
    }

    fn concat_texts(
        &mut self,
        first: &TemplateValue,
        others: &[(Operator, TemplateExpr)],
    ) -> RenderResult<TemplateValue> {
        let mut out = MeteredText::new(self.meter);
        print::write_str(&mut out, first)?;
        for (_, part) in others {
            let part = self.evaluate(part)?;
            print::write_str(&mut out, &part)?;
        }
        Ok(TemplateValue::str(out.text))
    }

    /// Applies the suffixes of an operand. If the last one is a call, it gets `caller`.
    pub(super) fn apply_postfixes(
        &mut self,
        operand: &TemplateExpr,
        parts: &[Postfix],
        mut caller: Option<TemplateValue>,
    ) -> RenderResult<TemplateValue> {
        let mut value = self.evaluate(operand)?;
        let mut at = 0;
        while let Some(part) = parts.get(at) {
            at += 1;
            self.meter.charge_step()?;
            let next = parts.get(at);
            value = match (part, next) {
                (Postfix::Attribute(name), Some(Postfix::Call(line, arguments)))
                    if self.calls_method(&value, name)? =>
                {
                    at += 1;
                    let given = self.evaluate_arguments(arguments)?;
                    self.line = *line;
                    methods::call_method(&value, name, given, self.meter)?
                }
                (Postfix::Call(line, arguments), None) => {
                    self.evaluate_call(&value, *line, arguments, caller.take())?
                }
                (part, _) => self.apply_postfix(&value, part)?,
            };
        }
        Ok(value)
    }

    /// Calls a value.
    fn evaluate_call(
        &mut self,
        value: &TemplateValue,
        line: u32,
        arguments: &ArgumentList,
        caller: Option<TemplateValue>,
    ) -> RenderResult<TemplateValue> {
        let mut given = self.evaluate_arguments(arguments)?;
        given.named.extend(caller.map(|caller| ("caller".into(), caller)));
        let outside = std::mem::replace(&mut self.line, line);
        let result = self.run_nested(|this| this.call_value(value, given))?;
        self.line = outside;
        Ok(result)
    }

    /// Returns true if the call of an attribute is that of a method.
    fn calls_method(&self, value: &TemplateValue, name: &Arc<str>) -> RenderResult<bool> {
        Ok(match value {
            TemplateValue::Dict(dict) => {
                has_method(value, name) || dict.get_text(name, self.meter)?.is_none()
            }
            TemplateValue::Namespace(_) | TemplateValue::Loop(_) => false,
            _ => true,
        })
    }

    /// Applies an attribute, an item, a filter or a test.
    fn apply_postfix(
        &mut self,
        value: &TemplateValue,
        part: &Postfix,
    ) -> RenderResult<TemplateValue> {
        match part {
            Postfix::Attribute(name) => self.read_attribute(value, name),
            Postfix::Item(key) => {
                let key = self.evaluate(key)?;
                match (value, &key) {
                    (TemplateValue::Namespace(_), TemplateValue::Str(name)) => {
                        self.read_attribute(value, name)
                    }
                    _ => read_item(value, &key, self.meter),
                }
            }
            Postfix::Slice(bounds) => {
                let mut numbers = [None; 3];
                for (number, bound) in numbers.iter_mut().zip(bounds.iter()) {
                    let Some(bound) = bound else { continue };
                    *number = match self.evaluate(bound)? {
                        TemplateValue::None => None,
                        value => match value.as_int() {
                            Some(number) => Some(number),
                            None => {
                                return refuse_operation("slice indices must be integers or None");
                            }
                        },
                    };
                }
                slice_value(value, numbers, self.meter)
            }
            Postfix::Filter(name, arguments) => {
                let given = self.evaluate_arguments(arguments)?;
                self.run_nested(|this| this.filter_value(name, value, given))
            }
            Postfix::Test(name, arguments, negated) => {
                let given = self.evaluate_arguments(arguments)?;
                Ok(TemplateValue::Bool(
                    predicates::test_holds(name, value, given, self.meter)? != *negated,
                ))
            }
            Postfix::Call(line, arguments) => self.evaluate_call(value, *line, arguments, None),
        }
    }

    /// Evaluates `value.name`: an attribute, or else an item.
    fn read_attribute(
        &mut self,
        value: &TemplateValue,
        name: &Arc<str>,
    ) -> RenderResult<TemplateValue> {
        let found = match value {
            TemplateValue::Undefined(missing) => return Err(missing.failure()),
            TemplateValue::Namespace(at) => self.namespaces[*at].get(name).cloned(),
            TemplateValue::Loop(state) if OF_LOOPS.contains(&&**name) => {
                loop_attribute(state, name)
            }
            TemplateValue::Loop(_) => return unknown_name("attribute of loops", name, OF_LOOPS),
            value if has_method(value, name) => Some(TemplateValue::Function(Arc::clone(name))),
            TemplateValue::Dict(dict) => dict.get_text(name, self.meter)?.cloned(),
            _ => None,
        };
        Ok(found.unwrap_or_else(|| value.undefined(name)))
    }

    /// Evaluates arguments.
    pub(super) fn evaluate_arguments(
        &mut self,
        arguments: &ArgumentList,
    ) -> RenderResult<CallArguments> {
        let mut given = CallArguments {
            positional: self.evaluate_all(&arguments.positional)?,
            named: Vec::new(),
        };
        if let Some(items) = &arguments.items {
            let items = self.evaluate(items)?.items(self.meter)?;
            self.meter.charge_product(items.items.len(), size_of::<TemplateValue>())?;
            given.positional.extend(items.items.iter().cloned());
        }
        for (name, value) in &arguments.named {
            self.meter.charge_bytes(2 * size_of::<TemplateValue>())?;
            given.named.push((Arc::clone(name), self.evaluate(value)?));
        }
        Ok(given)
    }
}

/// Evaluates `value[key]`.
fn read_item(
    value: &TemplateValue,
    key: &TemplateValue,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let found = match value {
        TemplateValue::Undefined(missing) => return Err(missing.failure()),
        TemplateValue::Dict(_) if check_hashable(key).is_err() => None,
        TemplateValue::Dict(dict) => dict.get(key, meter)?.cloned(),
        TemplateValue::List(list) => {
            let index = key.as_int().and_then(|at| index_of(at, list.items.len()));
            index.map(|at| list.items[at].clone())
        }
        TemplateValue::Str(text) => {
            meter.charge_work(text.len())?;
            let index = key.as_int().and_then(|at| index_of(at, text.chars().count()));
            index.and_then(|at| text.chars().nth(at)).map(TemplateValue::char)
        }
        _ => None,
    };
    Ok(found.unwrap_or_else(|| match key {
        TemplateValue::Str(name) => value.undefined(name),
        TemplateValue::Int(at) => value.undefined(&at.to_string().into()),
        key => value.undefined(&key.kind().into()),
    }))
}

/// Returns an index counted from the beginning, or from the end if negative.
fn index_of(at: i128, length: usize) -> Option<usize> {
    let at = if at < 0 { at.checked_add(length as i128)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// Evaluates the attribute path of a filter: `name.0.key`.
pub(super) fn item_at_path(
    value: &TemplateValue,
    path: &TemplateValue,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let TemplateValue::Str(path) = path else { return read_item(value, path, meter) };
    let mut value = value.clone();
    for part in path.split('.') {
        let key = part.parse().map_or_else(|_| TemplateValue::str(part), TemplateValue::Int);
        value = read_item(&value, &key, meter)?;
    }
    Ok(value)
}

fn loop_attribute(state: &Loop, name: &str) -> Option<TemplateValue> {
    let (index, items) = (state.index, &state.items.items);
    let number = match name {
        "index" => index + 1,
        "index0" => index,
        "revindex" => items.len() - index,
        "revindex0" => items.len() - index - 1,
        "length" => items.len(),
        "first" => return Some(TemplateValue::Bool(index == 0)),
        "last" => return Some(TemplateValue::Bool(index + 1 == items.len())),
        "previtem" => return items.get(index.checked_sub(1)?).cloned(),
        "nextitem" => return items.get(index + 1).cloned(),
        _ => return None,
    };
    Some(TemplateValue::Int(number as i128))
}

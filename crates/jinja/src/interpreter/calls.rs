//! Calls of functions and macros, and filters that apply others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Interpreter;
use super::evaluation::{FUNCTIONS, item_at_path};
use crate::arguments::{CallArguments, int, text};
use crate::ast::Expr;
use crate::meter::{Failure, Outcome, refused};
use crate::value::{Closure, Missing, Value, set_entry};
use crate::{filters, predicates};

/// Maximum length of a range, as in Jinja's sandbox.
const LONGEST_RANGE: i128 = 100_000;

/// Maximum length of a date format.
const LONGEST_FORMAT: usize = 256;

impl Interpreter<'_> {
    /// Evaluates a call that gets `caller`.
    pub(super) fn call_with(&mut self, call: &Expr, caller: Value) -> Outcome<Value> {
        match call {
            Expr::Postfix(operand, parts) => self.parts(operand, parts, Some(caller)),
            other => self.evaluate(other),
        }
    }

    /// Calls a value.
    pub(super) fn call(&mut self, callee: &Value, given: CallArguments) -> Outcome<Value> {
        match callee {
            Value::Undefined(missing) => {
                let functions = FUNCTIONS.join("`, `");
                let remedy = Some(format!("there are the functions `{functions}`"));
                Err(Failure { remedy, ..missing.failure() })
            }
            Value::Function(name) => self.function(name, given),
            Value::Macro(closure) => self.run_macro(closure, given),
            other => refused(format!("'{}' object is not callable", other.kind())),
        }
    }

    fn function(&mut self, name: &str, given: CallArguments) -> Outcome<Value> {
        match name {
            "raise_exception" => {
                let [message] = given.bind(name, ["message"])?;
                let message = text(name, message.as_ref())?;
                refused(format!("the template raised: {message:.1000}"))
            }
            "strftime_now" => {
                let [format] = given.bind(name, ["format"])?;
                let format = text(name, format.as_ref())?;
                if format.len() > LONGEST_FORMAT {
                    return refused(format!(
                        "a date of more than {LONGEST_FORMAT} bytes of format"
                    ));
                }
                match jiff::fmt::strtime::format(&**format, self.now) {
                    Ok(text) => Ok(Value::str(text)),
                    Err(error) => refused(format!("strftime_now: {error}")),
                }
            }
            "range" => self.range(given),
            "namespace" => {
                let entries = self.entries(given)?;
                let named = entries.into_iter().filter_map(|(key, value)| match key {
                    Value::Str(name) => Some((name, value)),
                    _ => None,
                });
                let names: BTreeMap<Arc<str>, Value> = named.collect();
                self.meter.product(names.len() + 1, 3 * size_of::<Value>())?;
                self.namespaces.push(names);
                Ok(Value::Namespace(self.namespaces.len() - 1))
            }
            "dict" => Value::dict(self.entries(given)?),
            _ => refused(format!("the method `{name}` is called where it is named")),
        }
    }

    /// Returns the entries for `dict`: those of a dictionary, and keyword arguments.
    fn entries(&mut self, mut given: CallArguments) -> Outcome<Vec<(Value, Value)>> {
        let mut entries = Vec::new();
        match given.shift() {
            None => {}
            Some(Value::Dict(dict)) => {
                self.meter.product(dict.entries.len(), 2 * size_of::<Value>())?;
                entries.extend(dict.entries.iter().cloned());
            }
            Some(other) => return refused(format!("`dict` takes no '{}'", other.kind())),
        }
        for (name, value) in given.named {
            set_entry(&mut entries, Value::Str(name), value, self.meter)?;
        }
        Ok(entries)
    }

    fn range(&mut self, given: CallArguments) -> Outcome<Value> {
        let [a, b, step] = given.bind("range", ["start", "stop", "step"])?;
        let step = int("range", step.as_ref(), 1)?;
        let first = match a {
            Some(a) => int("range", Some(&a), 0)?,
            None => return refused("`range` lacks an argument"),
        };
        let (start, stop) = match b {
            Some(b) => (first, int("range", Some(&b), 0)?),
            None => (0, first),
        };
        if step == 0 {
            return refused("range() arg 3 must not be zero");
        }
        let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
        let length = if span > 0 { (span - 1) / step.saturating_abs() + 1 } else { 0 };
        if length > LONGEST_RANGE {
            return refused(format!("a range of more than {LONGEST_RANGE} numbers"));
        }
        self.meter.product(length as usize, size_of::<Value>())?;
        Value::list((0..length).map(|i| Value::Int(start + i * step)).collect())
    }

    fn run_macro(&mut self, closure: &Arc<Closure>, mut given: CallArguments) -> Outcome<Value> {
        let code = &closure.code;
        let line = self.line;
        let text = self.captured(|this| {
            this.within(closure.scope, |this| {
                let mut positional = std::mem::take(&mut given.positional).into_iter();
                for (name, default) in &code.parameters {
                    let named = given.named.iter().position(|(given, _)| given == name);
                    let value = match (positional.next(), named) {
                        (Some(_), Some(_)) => {
                            return refused(format!(
                                "`{}` got the argument `{name}` twice",
                                code.name
                            ));
                        }
                        (Some(value), None) => value,
                        (None, Some(at)) => given.named.remove(at).1,
                        (None, None) => match default {
                            Some(default) => this.evaluate(default)?,
                            None => Value::Undefined(Missing::Name(Arc::clone(name))),
                        },
                    };
                    this.set(name, value)?;
                }
                let caller = given.named.iter().position(|(name, _)| &**name == "caller");
                if let Some(at) = caller {
                    let (name, caller) = given.named.remove(at);
                    this.set(&name, caller)?;
                }
                if positional.next().is_some() {
                    let most = code.parameters.len();
                    return refused(format!("`{}` takes at most {most} arguments", code.name));
                }
                if let Some((name, _)) = given.named.first() {
                    return refused(format!("`{}` has no parameter `{name}`", code.name));
                }
                this.block(&code.body)
            })
        })?;
        self.line = line;
        Ok(Value::str(text))
    }

    /// Applies a filter.
    pub(super) fn filter(
        &mut self,
        name: &str,
        value: &Value,
        given: CallArguments,
    ) -> Outcome<Value> {
        match name {
            "map" => self.map(value, given),
            "select" | "reject" | "selectattr" | "rejectattr" => self.select(name, value, given),
            _ => filters::apply(name, value, given, self.meter),
        }
    }

    /// Applies a filter to each item, or returns an attribute of each.
    fn map(&mut self, value: &Value, mut given: CallArguments) -> Outcome<Value> {
        if !value.is_true() {
            return Value::list(Vec::new());
        }
        let items = value.items(self.meter)?;
        self.meter.product(items.items.len(), size_of::<Value>())?;
        let filter = given.shift();
        let mut results = Vec::with_capacity(items.items.len());
        if let Some(filter) = filter {
            let filter = Arc::clone(text("map", Some(&filter))?);
            for item in &items.items {
                let given = self.copied(&given)?;
                results.push(self.nested(|this| this.filter(&filter, item, given))?);
            }
            return Value::list(results);
        }
        let [attribute] = given.bind("map", ["attribute"])?;
        let Some(attribute) = attribute else {
            return refused("`map` lacks a filter or `attribute`");
        };
        for item in &items.items {
            results.push(item_at_path(item, &attribute, self.meter)?);
        }
        Value::list(results)
    }

    /// Copies the arguments for another item.
    fn copied(&self, given: &CallArguments) -> Outcome<CallArguments> {
        let n = given.positional.len() + 2 * given.named.len();
        self.meter.product(n, size_of::<Value>())?;
        Ok(given.clone())
    }

    /// Keeps the items that pass or fail a test; for `selectattr` and `rejectattr` the test applies to an attribute.
    fn select(&mut self, name: &str, value: &Value, mut given: CallArguments) -> Outcome<Value> {
        if !value.is_true() {
            return Value::list(Vec::new());
        }
        let attribute = if name.ends_with("attr") { given.shift() } else { None };
        if attribute.is_none() && name.ends_with("attr") {
            return refused(format!("`{name}` lacks an attribute"));
        }
        let test = match given.shift() {
            Some(test) => Some(Arc::clone(text(name, Some(&test))?)),
            None => None,
        };
        let mut chosen = Vec::new();
        for item in &value.items(self.meter)?.items {
            let tested = match &attribute {
                Some(attribute) => item_at_path(item, attribute, self.meter)?,
                None => item.clone(),
            };
            let holds = match &test {
                Some(test) => {
                    let given = self.copied(&given)?;
                    predicates::holds(test, &tested, given, self.meter)?
                }
                None => tested.is_true(),
            };
            if holds == name.starts_with("select") {
                self.meter.bytes(size_of::<Value>())?;
                chosen.push(item.clone());
            }
        }
        Value::list(chosen)
    }
}

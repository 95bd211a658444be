//! Calls of functions, macros, methods and loops, and filters and tests that apply others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Interpreter;
use crate::access::dotted;
use crate::arguments::{CallArguments, int, text};
use crate::ast::Expr;
use crate::meter::{Failure, Outcome, refused};
use crate::value::{Closure, List, Loop, Missing, Value, set, undefined};
use crate::{filters, methods, predicates};

/// Maximum length of a range, as in Jinja's sandbox.
const LONGEST_RANGE: i128 = 100_000;

/// Maximum length of a date format.
const LONGEST_FORMAT: usize = 256;

impl Interpreter<'_> {
    /// Evaluates an expression whose last part is a call that gets `caller`.
    pub(super) fn call_with(&mut self, call: &Expr, caller: Option<Value>) -> Outcome<Value> {
        match call {
            Expr::Postfix(operand, parts) => {
                let (before, last) = parts.split_at(parts.len() - 1);
                let value = self.parts(operand, before, None)?;
                self.parts(&Expr::Constant(value), last, caller)
            }
            other => self.evaluate(other),
        }
    }

    /// Calls a value.
    pub(super) fn call(&mut self, callee: &Value, given: CallArguments) -> Outcome<Value> {
        match callee {
            Value::Undefined(_) => Err(undefined(callee)),
            Value::Function(name) => self.function(name, given),
            Value::Macro(closure) => self.run_macro(closure, given),
            Value::Loop(state) => self.recurse(state, given),
            Value::Joiner(at) => {
                let (separator, used) = &mut self.joiners[*at];
                let first = !std::mem::replace(used, true);
                Ok(if first { Value::str("") } else { separator.clone() })
            }
            Value::Method(method) => match &method.0 {
                Value::Loop(state) => self.loop_method(state, &method.1, given),
                Value::Cycler(at) => Ok(self.cycle(*at, &*method.1 == "reset")),
                value => methods::call(value, &method.1, given, self.meter),
            },
            other => refused(format!("'{}' object is not callable", other.kind())),
        }
    }

    fn function(&mut self, name: &str, mut given: CallArguments) -> Outcome<Value> {
        match name {
            "raise_exception" => {
                let [message] = given.bind(name, ["message"])?;
                let message = text(name, message.as_ref())?;
                Err(Failure::Raised(message.chars().take(1000).collect()))
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
            "cycler" => {
                self.meter.bytes(2 * size_of::<Value>())?;
                if given.positional.is_empty() {
                    return refused("`cycler` takes at least one item");
                }
                self.cyclers.push((List::new(std::mem::take(&mut given.positional))?, 0));
                Ok(Value::Cycler(self.cyclers.len() - 1))
            }
            _ => {
                let [separator] = given.bind("joiner", ["sep"])?;
                self.meter.bytes(2 * size_of::<Value>())?;
                self.joiners.push((separator.unwrap_or_else(|| Value::str(", ")), false));
                Ok(Value::Joiner(self.joiners.len() - 1))
            }
        }
    }

    /// Returns the entries for `dict`: a dictionary or pairs, and keyword arguments.
    fn entries(&mut self, mut given: CallArguments) -> Outcome<Vec<(Value, Value)>> {
        let mut entries = Vec::new();
        match given.shift() {
            None => {}
            Some(Value::Dict(dict)) => {
                self.meter.product(dict.entries.len(), 2 * size_of::<Value>())?;
                entries.extend(dict.entries.iter().cloned());
            }
            Some(pairs) => {
                for pair in &pairs.items(self.meter)?.items {
                    match &pair.items(self.meter)?.items[..] {
                        [key, value] => set(&mut entries, key.clone(), value.clone(), self.meter)?,
                        _ => return refused("`dict` takes pairs of a key and a value"),
                    }
                }
            }
        }
        for (name, value) in given.named {
            set(&mut entries, Value::Str(name), value, self.meter)?;
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
                            None => Value::Undefined(Missing::Parameter(Arc::clone(name))),
                        },
                    };
                    this.set(name, value)?;
                }
                let caller = given.named.iter().position(|(name, _)| &**name == "caller");
                if let Some(at) = caller {
                    let (name, caller) = given.named.remove(at);
                    this.set(&name, caller)?;
                }
                this.set(&"varargs".into(), Value::tuple(positional.collect())?)?;
                let rest = given.named.drain(..).map(|(name, value)| (Value::Str(name), value));
                this.set(&"kwargs".into(), Value::dict(rest.collect())?)?;
                this.block(&code.body)
            })
        })?;
        self.line = line;
        Ok(Value::str(text))
    }

    /// Evaluates `loop(items)` of a recursive loop.
    fn recurse(&mut self, state: &Arc<Loop>, given: CallArguments) -> Outcome<Value> {
        let [items] = given.bind("loop", ["items"])?;
        let (Some((code, scope)), Some(items)) = (&state.recursive, items) else {
            return refused("`loop` is called, but the loop is not `recursive`");
        };
        let outside = std::mem::replace(&mut self.scope, *scope);
        let text = self.captured(|this| this.each(code, &items, state.level + 1));
        self.scope = outside;
        Ok(Value::str(text?))
    }

    fn loop_method(&mut self, state: &Loop, name: &str, given: CallArguments) -> Outcome<Value> {
        if name == "cycle" {
            let n = given.positional.len();
            return match state.index.checked_rem(n) {
                Some(at) => Ok(given.positional[at].clone()),
                None => refused("`loop.cycle` takes at least one item"),
            };
        }
        let now = Value::tuple(given.positional)?;
        let changed = match &self.changed[state.run] {
            Some(before) => !before.equals(&now, self.meter)?,
            None => true,
        };
        self.changed[state.run] = Some(now);
        Ok(Value::Bool(changed))
    }

    /// Returns the next item of a cycler.
    fn cycle(&mut self, at: usize, reset: bool) -> Value {
        let (items, next) = &mut self.cyclers[at];
        if reset {
            *next = 0;
            return Value::None;
        }
        let item = items.items[*next].clone();
        *next = (*next + 1) % items.items.len();
        item
    }

    /// Applies a filter.
    pub(super) fn filter(
        &mut self,
        name: &str,
        value: &Value,
        given: CallArguments,
    ) -> Outcome<Value> {
        self.meter.step()?;
        match name {
            "map" => self.map(value, given),
            "select" | "reject" | "selectattr" | "rejectattr" => self.select(name, value, given),
            _ => match filters::apply(name, value, given, self.meter) {
                Some(outcome) => outcome,
                None => refused(format!("there is no filter `{name:.60}`")),
            },
        }
    }

    /// Evaluates a test.
    pub(super) fn test(
        &mut self,
        name: &str,
        value: &Value,
        given: CallArguments,
    ) -> Outcome<bool> {
        self.meter.step()?;
        match predicates::apply(name, value, given, self.meter) {
            Some(outcome) => outcome,
            None => refused(format!("there is no test `{name:.60}`")),
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
        let [attribute, default] = given.bind("map", ["attribute", "default"])?;
        let Some(attribute) = attribute else {
            return refused("`map` lacks a filter or `attribute`");
        };
        for item in &items.items {
            let found = dotted(item, &attribute, self.meter)?;
            let replaced = default.as_ref().filter(|_| found.is_undefined());
            results.push(replaced.cloned().unwrap_or(found));
        }
        Value::list(results)
    }

    /// Copies the arguments for another item.
    fn copied(&self, given: &CallArguments) -> Outcome<CallArguments> {
        let n = given.positional.len() + 2 * given.named.len();
        self.meter.product(n, size_of::<Value>())?;
        Ok(CallArguments { positional: given.positional.clone(), named: given.named.clone() })
    }

    /// Keeps the items that pass or fail a test; for `selectattr` and `rejectattr` the test applies to an attribute.
    fn select(&mut self, name: &str, value: &Value, mut given: CallArguments) -> Outcome<Value> {
        if !value.is_true() {
            return Value::list(Vec::new());
        }
        let attribute = match name.ends_with("attr") {
            true => match given.shift() {
                Some(attribute) => Some(attribute),
                None => return refused(format!("`{name}` lacks an attribute")),
            },
            false => None,
        };
        let test = match given.shift() {
            Some(test) => Some(Arc::clone(text(name, Some(&test))?)),
            None => None,
        };
        let mut chosen = Vec::new();
        for item in &value.items(self.meter)?.items {
            let tested = match &attribute {
                Some(attribute) => dotted(item, attribute, self.meter)?,
                None => item.clone(),
            };
            let holds = match &test {
                Some(test) => {
                    let given = self.copied(&given)?;
                    self.test(test, &tested, given)?
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

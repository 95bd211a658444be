//! Calls of functions and macros, and filters that apply others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Interpreter;
use super::evaluation::{FUNCTIONS, item_at_path};
use crate::arguments::{CallArguments, int_argument, text_argument};
use crate::ast::TemplateExpr;
use crate::meter::{RenderFailure, RenderResult, refuse_operation};
use crate::value::{Closure, MissingValue, TemplateValue, set_entry};
use crate::{filters, predicates};

/// Maximum length of a range, as in Jinja's sandbox.
const LONGEST_RANGE: i128 = 100_000;

/// Maximum length of a date format.
const LONGEST_FORMAT: usize = 256;

impl Interpreter<'_> {
    /// Evaluates a call that gets `caller`.
    pub(super) fn call_with(
        &mut self,
        call: &TemplateExpr,
        caller: TemplateValue,
    ) -> RenderResult<TemplateValue> {
        match call {
            TemplateExpr::Postfix(operand, parts) => {
                self.apply_postfixes(operand, parts, Some(caller))
            }
            other => self.evaluate(other),
        }
    }

    /// Calls a value.
    pub(super) fn call_value(
        &mut self,
        callee: &TemplateValue,
        given: CallArguments,
    ) -> RenderResult<TemplateValue> {
        match callee {
            TemplateValue::Undefined(missing) => {
                let functions = FUNCTIONS.join("`, `");
                let remedy = Some(format!("there are the functions `{functions}`"));
                Err(RenderFailure { remedy, ..missing.failure() })
            }
            TemplateValue::Function(name) => self.call_function(name, given),
            TemplateValue::Macro(closure) => self.run_macro(closure, given),
            other => refuse_operation(format!("'{}' object is not callable", other.kind())),
        }
    }

    fn call_function(&mut self, name: &str, given: CallArguments) -> RenderResult<TemplateValue> {
        match name {
            "raise_exception" => {
                let [message] = given.bind_parameters(name, ["message"])?;
                let message = text_argument(name, message.as_ref())?;
                refuse_operation(format!("the template raised: {message:.1000}"))
            }
            "strftime_now" => {
                let [format] = given.bind_parameters(name, ["format"])?;
                let format = text_argument(name, format.as_ref())?;
                if format.len() > LONGEST_FORMAT {
                    return refuse_operation(format!(
                        "a date of more than {LONGEST_FORMAT} bytes of format"
                    ));
                }
                match jiff::fmt::strtime::format(&**format, self.now) {
                    Ok(text) => Ok(TemplateValue::str(text)),
                    Err(error) => refuse_operation(format!("strftime_now: {error}")),
                }
            }
            "range" => self.range_items(given),
            "namespace" => {
                let entries = self.dict_entries(given)?;
                let named = entries.into_iter().filter_map(|(key, value)| match key {
                    TemplateValue::Str(name) => Some((name, value)),
                    _ => None,
                });
                let names: BTreeMap<Arc<str>, TemplateValue> = named.collect();
                self.meter.charge_product(names.len() + 1, 3 * size_of::<TemplateValue>())?;
                self.namespaces.push(names);
                Ok(TemplateValue::Namespace(self.namespaces.len() - 1))
            }
            "dict" => TemplateValue::dict(self.dict_entries(given)?),
            _ => refuse_operation(format!("the method `{name}` is called where it is named")),
        }
    }

    /// Returns the entries for `dict`: those of a dictionary, and keyword arguments.
    fn dict_entries(
        &mut self,
        mut given: CallArguments,
    ) -> RenderResult<Vec<(TemplateValue, TemplateValue)>> {
        let mut entries = Vec::new();
        match given.take_first() {
            None => {}
            Some(TemplateValue::Dict(dict)) => {
                self.meter.charge_product(dict.entries.len(), 2 * size_of::<TemplateValue>())?;
                entries.extend(dict.entries.iter().cloned());
            }
            Some(other) => return refuse_operation(format!("`dict` takes no '{}'", other.kind())),
        }
        for (name, value) in given.named {
            set_entry(&mut entries, TemplateValue::Str(name), value, self.meter)?;
        }
        Ok(entries)
    }

    fn range_items(&mut self, given: CallArguments) -> RenderResult<TemplateValue> {
        let [a, b, step] = given.bind_parameters("range", ["start", "stop", "step"])?;
        let step = int_argument("range", step.as_ref(), 1)?;
        let Some(a) = a else { return refuse_operation("`range` lacks an argument") };
        let first = int_argument("range", Some(&a), 0)?;
        let (start, stop) = match b {
            Some(b) => (first, int_argument("range", Some(&b), 0)?),
            None => (0, first),
        };
        if step == 0 {
            return refuse_operation("range() arg 3 must not be zero");
        }
        let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
        let length = if span > 0 { (span - 1) / step.saturating_abs() + 1 } else { 0 };
        if length > LONGEST_RANGE {
            return refuse_operation(format!("a range of more than {LONGEST_RANGE} numbers"));
        }
        self.meter.charge_product(length as usize, size_of::<TemplateValue>())?;
        TemplateValue::list((0..length).map(|i| TemplateValue::Int(start + i * step)).collect())
    }

    fn run_macro(
        &mut self,
        closure: &Arc<Closure>,
        mut given: CallArguments,
    ) -> RenderResult<TemplateValue> {
        let code = &closure.code;
        let line = self.line;
        let text = self.capture_output(|this| {
            this.run_in_scope(closure.scope, |this| {
                let mut positional = std::mem::take(&mut given.positional).into_iter();
                for (name, default) in &code.parameters {
                    let named = given.named.iter().position(|(given, _)| given == name);
                    let value = match (positional.next(), named) {
                        (Some(_), Some(_)) => {
                            return refuse_operation(format!(
                                "`{}` got the argument `{name}` twice",
                                code.name
                            ));
                        }
                        (Some(value), None) => value,
                        (None, Some(at)) => given.named.remove(at).1,
                        (None, None) => match default {
                            Some(default) => this.evaluate(default)?,
                            None => TemplateValue::Undefined(MissingValue::Name(Arc::clone(name))),
                        },
                    };
                    this.set_variable(name, value)?;
                }
                let caller = given.named.iter().position(|(name, _)| &**name == "caller");
                if let Some(at) = caller {
                    let (name, caller) = given.named.remove(at);
                    this.set_variable(&name, caller)?;
                }
                if positional.next().is_some() {
                    let most = code.parameters.len();
                    return refuse_operation(format!(
                        "`{}` takes at most {most} arguments",
                        code.name
                    ));
                }
                if let Some((name, _)) = given.named.first() {
                    return refuse_operation(format!("`{}` has no parameter `{name}`", code.name));
                }
                this.run_block(&code.body)
            })
        })?;
        self.line = line;
        Ok(TemplateValue::str(text))
    }

    /// Applies a filter.
    pub(super) fn filter_value(
        &mut self,
        name: &str,
        value: &TemplateValue,
        given: CallArguments,
    ) -> RenderResult<TemplateValue> {
        match name {
            "map" => self.map_items(value, given),
            "select" | "reject" | "selectattr" | "rejectattr" => {
                self.select_items(name, value, given)
            }
            _ => filters::apply_filter(name, value, given, self.meter),
        }
    }

    /// Applies a filter to each item, or returns an attribute of each.
    fn map_items(
        &mut self,
        value: &TemplateValue,
        mut given: CallArguments,
    ) -> RenderResult<TemplateValue> {
        if !value.is_true() {
            return TemplateValue::list(Vec::new());
        }
        let items = value.items(self.meter)?;
        self.meter.charge_product(items.items.len(), size_of::<TemplateValue>())?;
        let filter = given.take_first();
        let mut results = Vec::with_capacity(items.items.len());
        if let Some(filter) = filter {
            let filter = Arc::clone(text_argument("map", Some(&filter))?);
            for item in &items.items {
                let given = self.copy_arguments(&given)?;
                results.push(self.run_nested(|this| this.filter_value(&filter, item, given))?);
            }
            return TemplateValue::list(results);
        }
        let [attribute] = given.bind_parameters("map", ["attribute"])?;
        let Some(attribute) = attribute else {
            return refuse_operation("`map` lacks a filter or `attribute`");
        };
        for item in &items.items {
            results.push(item_at_path(item, &attribute, self.meter)?);
        }
        TemplateValue::list(results)
    }

    /// Copies the arguments for another item.
    fn copy_arguments(&self, given: &CallArguments) -> RenderResult<CallArguments> {
        let n = given.positional.len() + 2 * given.named.len();
        self.meter.charge_product(n, size_of::<TemplateValue>())?;
        Ok(given.clone())
    }

    /// Keeps the items that pass or fail a test; for `selectattr` and `rejectattr` the test applies to an attribute.
    fn select_items(
        &mut self,
        name: &str,
        value: &TemplateValue,
        mut given: CallArguments,
    ) -> RenderResult<TemplateValue> {
        if !value.is_true() {
            return TemplateValue::list(Vec::new());
        }
        let attribute = if name.ends_with("attr") { given.take_first() } else { None };
        if attribute.is_none() && name.ends_with("attr") {
            return refuse_operation(format!("`{name}` lacks an attribute"));
        }
        let test = match given.take_first() {
            Some(test) => Some(Arc::clone(text_argument(name, Some(&test))?)),
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
                    let given = self.copy_arguments(&given)?;
                    predicates::test_holds(test, &tested, given, self.meter)?
                }
                None => tested.is_true(),
            };
            if holds == name.starts_with("select") {
                self.meter.charge_bytes(size_of::<TemplateValue>())?;
                chosen.push(item.clone());
            }
        }
        TemplateValue::list(chosen)
    }
}

//! Methods of texts and dictionaries.

use crate::arguments::CallArguments;
use crate::meter::{RenderFailure, RenderMeter, RenderResult, refuse_operation, unknown_name};
use crate::texts;
use crate::value::{Dict, TemplateValue};

/// Names of the methods of dictionaries.
const OF_DICTS: &[&str] = &["get", "items", "keys", "values"];

/// Returns true if values of this type have the method.
pub(crate) fn has_method(value: &TemplateValue, name: &str) -> bool {
    match value {
        TemplateValue::Str(_) => texts::METHODS.contains(&name),
        TemplateValue::Dict(_) => OF_DICTS.contains(&name),
        _ => false,
    }
}

/// Calls a method of a text or a dictionary.
pub(crate) fn call_method(
    value: &TemplateValue,
    name: &str,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    meter.charge_step()?;
    match value {
        TemplateValue::Str(text) => texts::call_method(text, name, given, meter),
        TemplateValue::Dict(dict) => of_dict(value, dict, name, given, meter),
        TemplateValue::Undefined(missing) => Err(missing.failure()),
        TemplateValue::List(_) => Err(RenderFailure {
            reason: format!("'{}' has no method `{name:.60}`", value.kind()),
            remedy: Some("a template changes no list; `a + [b]` is a longer one".to_owned()),
        }),
        other => refuse_operation(format!("'{}' has no method `{name:.60}`", other.kind())),
    }
}

fn of_dict(
    value: &TemplateValue,
    dict: &Dict,
    name: &str,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    match name {
        "get" => {
            let [key, default] = given.bind_parameters(name, ["key", "default"])?;
            let Some(key) = key else { return refuse_operation("`get` lacks an argument") };
            let found = dict.get(&key, meter)?.cloned();
            Ok(found.or(default).unwrap_or(TemplateValue::None))
        }
        "items" => {
            let [] = given.bind_parameters(name, [])?;
            TemplateValue::list(entry_pairs(dict, meter)?)
        }
        "keys" => {
            let [] = given.bind_parameters(name, [])?;
            Ok(TemplateValue::List(value.items(meter)?))
        }
        "values" => {
            let [] = given.bind_parameters(name, [])?;
            meter.charge_product(dict.entries.len(), size_of::<TemplateValue>())?;
            TemplateValue::list(dict.entries.iter().map(|(_, value)| value.clone()).collect())
        }
        _ => unknown_name("method of dictionaries", name, OF_DICTS),
    }
}

/// Returns the entries of a dictionary as pairs.
pub(crate) fn entry_pairs(dict: &Dict, meter: &RenderMeter) -> RenderResult<Vec<TemplateValue>> {
    // A pair, its allocation, and two values.
    meter.charge_product(dict.entries.len(), 4 * size_of::<TemplateValue>())?;
    let entries = dict.entries.iter();
    entries.map(|(key, value)| TemplateValue::tuple(vec![key.clone(), value.clone()])).collect()
}

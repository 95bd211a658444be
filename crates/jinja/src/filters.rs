//! Filters that depend only on their value and arguments. Filters that apply other filters are in the interpreter.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::arguments::{CallArguments, flag_argument, int_argument, text_argument};
use crate::lexer::is_white;
use crate::meter::{RenderMeter, RenderResult, refuse_operation, unknown_name};
use crate::methods;
use crate::print::{self, JsonOptions, MeteredText};
use crate::texts::{change_case, replace_text, strip_text};
use crate::value::{MissingValue, TemplateValue};

const NAMES: &[&str] = &[
    "capitalize",
    "count",
    "d",
    "default",
    "dictsort",
    "first",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "safe",
    "select",
    "selectattr",
    "string",
    "title",
    "tojson",
    "trim",
    "upper",
];

/// Applies a filter.
pub(crate) fn apply_filter(
    name: &str,
    value: &TemplateValue,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    meter.charge_step()?;
    match name {
        "default" | "d" => return default(value, given),
        "indent" => return indent_lines(value, given, meter),
        "int" => return to_integer(value, given),
        "join" => return join_items(value, given, meter),
        "tojson" => return dump_json(value, given, meter),
        "capitalize" | "lower" | "replace" | "title" | "trim" | "upper" => {
            return of_text(name, &text_of(value, meter)?, given, meter);
        }
        _ if !NAMES.contains(&name) => return unknown_name("filter", name, NAMES),
        _ => {}
    }
    let [] = given.bind_parameters(name, [])?;
    match name {
        "length" | "count" => count_items(value, meter),
        "string" => Ok(TemplateValue::Str(text_of(value, meter)?)),
        "list" => list_items(value, meter),
        "first" | "last" => first_or_last(value, name == "first", meter),
        "min" => extreme_item(value, Ordering::Less, meter),
        "max" => extreme_item(value, Ordering::Greater, meter),
        "dictsort" => sort_entries(value, meter),
        "items" => match value {
            TemplateValue::Undefined(_) => TemplateValue::list(Vec::new()),
            TemplateValue::Dict(dict) => TemplateValue::list(methods::entry_pairs(dict, meter)?),
            other => refuse_operation(format!("'{}' has no `items`", other.kind())),
        },
        // `safe`: nothing is escaped.
        _ => Ok(value.clone()),
    }
}

/// Returns `str(value)`.
fn text_of(value: &TemplateValue, meter: &RenderMeter) -> RenderResult<Arc<str>> {
    match value {
        TemplateValue::Str(text) => Ok(Arc::clone(text)),
        other => Ok(print::str_text(other, meter)?.into()),
    }
}

fn of_text(
    name: &str,
    of: &Arc<str>,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    match name {
        "trim" => strip_text(of, name, given, meter),
        "replace" => {
            let [old, new, most] = given.bind_parameters(name, ["old", "new", "count"])?;
            let most =
                usize::try_from(int_argument(name, most.as_ref(), -1)?).unwrap_or(usize::MAX);
            let (Some(old), Some(new)) = (old, new) else {
                return refuse_operation("`replace` takes two texts");
            };
            replace_text(of, &text_of(&old, meter)?, &text_of(&new, meter)?, most, meter)
        }
        _ => {
            // Words end at white space, hyphens and opening brackets.
            change_case(of, name, given, meter, |c| !(is_white(c) || "-({[<".contains(c)))
        }
    }
}

fn list_items(value: &TemplateValue, meter: &RenderMeter) -> RenderResult<TemplateValue> {
    let items = value.items(meter)?;
    if !items.tuple {
        return Ok(TemplateValue::List(items));
    }
    meter.charge_product(items.items.len(), size_of::<TemplateValue>())?;
    TemplateValue::list(items.items.clone())
}

fn default(value: &TemplateValue, given: CallArguments) -> RenderResult<TemplateValue> {
    let [default, boolean] = given.bind_parameters("default", ["default_value", "boolean"])?;
    let replaced = value.is_undefined() || (flag_argument(boolean.as_ref()) && !value.is_true());
    Ok(if replaced { default.unwrap_or_else(|| TemplateValue::str("")) } else { value.clone() })
}

/// Returns the number of characters, items or entries of a value.
fn count_items(value: &TemplateValue, meter: &RenderMeter) -> RenderResult<TemplateValue> {
    let length = match value {
        TemplateValue::Str(text) => {
            meter.charge_work(text.len())?;
            text.chars().count()
        }
        TemplateValue::List(list) => list.items.len(),
        TemplateValue::Dict(dict) => dict.entries.len(),
        TemplateValue::Undefined(_) => 0,
        other => {
            return refuse_operation(format!("object of type '{}' has no len()", other.kind()));
        }
    };
    Ok(TemplateValue::Int(length as i128))
}

/// Returns a whole number: a number without its fraction, or that of a text; else the default.
fn to_integer(value: &TemplateValue, given: CallArguments) -> RenderResult<TemplateValue> {
    let [default] = given.bind_parameters("int", ["default"])?;
    let number = match value {
        TemplateValue::Undefined(missing) => return Err(missing.failure()),
        TemplateValue::Float(number) => truncate_float(*number),
        TemplateValue::Str(text) => {
            let text = text.trim_matches(is_white);
            text.parse().ok().or_else(|| truncate_float(text.parse().ok()?))
        }
        other => other.as_int(),
    };
    Ok(number.map_or_else(|| default.unwrap_or(TemplateValue::Int(0)), TemplateValue::Int))
}

/// Returns a number without its fraction; `None` if it is too large or no number.
fn truncate_float(number: f64) -> Option<i128> {
    let fits = number.is_finite() && number.abs() < 1e38;
    fits.then(|| number.trunc() as i128)
}

/// Computes `json.dumps(value, ensure_ascii=False, ...)`, which `transformers` installs as `tojson`.
fn dump_json(
    value: &TemplateValue,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let parameters = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ensure_ascii, indent, separators, sort_keys] =
        given.bind_parameters("tojson", parameters)?;
    let indent = match &indent {
        None | Some(TemplateValue::None) => None,
        Some(indent) => Some(indent_text("tojson", Some(indent), 0, meter)?),
    };
    let separators = match &separators {
        None | Some(TemplateValue::None) => None,
        Some(pair) => match &pair.items(meter)?.items[..] {
            [TemplateValue::Str(item), TemplateValue::Str(key)] => {
                Some((item.to_string(), key.to_string()))
            }
            _ => return refuse_operation("`separators` is a pair of strings"),
        },
    };
    let item = if indent.is_some() { "," } else { ", " };
    let style = JsonOptions {
        ensure_ascii: flag_argument(ensure_ascii.as_ref()),
        sort_keys: flag_argument(sort_keys.as_ref()),
        separators: separators.unwrap_or_else(|| (item.to_owned(), ": ".to_owned())),
        indent,
    };
    Ok(TemplateValue::str(style.dumps(value, meter)?))
}

/// Returns an indentation: a text, or a number of spaces.
fn indent_text(
    of: &str,
    value: Option<&TemplateValue>,
    default: i128,
    meter: &RenderMeter,
) -> RenderResult<String> {
    let mut out = MeteredText::new(meter);
    match value {
        Some(TemplateValue::Str(text)) => out.push(text)?,
        value => {
            let spaces = int_argument(of, value, default)?.max(0);
            out.push_repeated(" ", usize::try_from(spaces).unwrap_or(usize::MAX))?;
        }
    }
    Ok(out.text)
}

/// Indents every line but the first; blank lines are not indented.
fn indent_lines(
    value: &TemplateValue,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let [width, first, blank] = given.bind_parameters("indent", ["width", "first", "blank"])?;
    let (first, blank) = (flag_argument(first.as_ref()), flag_argument(blank.as_ref()));
    let of = text_argument("indent", Some(value))?;
    let with = indent_text("indent", width.as_ref(), 4, meter)?;
    let mut out = MeteredText::new(meter);
    for (at, line) in of.split('\n').enumerate() {
        out.push(if at > 0 { "\n" } else { "" })?;
        let indented = if at == 0 { first } else { blank || !line.is_empty() };
        out.push(if indented { &with } else { "" })?;
        out.push(line)?;
    }
    Ok(TemplateValue::str(out.text))
}

fn join_items(
    value: &TemplateValue,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let [separator] = given.bind_parameters("join", ["d"])?;
    let separator = text_of(&separator.unwrap_or_else(|| TemplateValue::str("")), meter)?;
    let mut out = MeteredText::new(meter);
    for (at, item) in value.items(meter)?.items.iter().enumerate() {
        out.push(if at > 0 { &separator } else { "" })?;
        print::write_str(&mut out, item)?;
    }
    Ok(TemplateValue::str(out.text))
}

fn first_or_last(
    value: &TemplateValue,
    first: bool,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    if let TemplateValue::Str(text) = value {
        let char = if first { text.chars().next() } else { text.chars().next_back() };
        return Ok(char.map_or_else(no_item, TemplateValue::char));
    }
    let items = value.items(meter)?;
    let item = if first { items.items.first() } else { items.items.last() };
    Ok(item.cloned().unwrap_or_else(no_item))
}

fn no_item() -> TemplateValue {
    TemplateValue::Undefined(MissingValue::Of("an empty sequence", "item".into()))
}

/// Returns what a value is ordered by: a text in lower case, since the case does not count, or the value itself.
fn order_key(value: &TemplateValue, meter: &RenderMeter) -> RenderResult<TemplateValue> {
    match value {
        TemplateValue::Str(text) => {
            meter.charge_product(text.len(), 3)?;
            Ok(TemplateValue::str(text.to_lowercase()))
        }
        other => Ok(other.clone()),
    }
}

/// Returns the first item that is before all others in an order.
fn extreme_item(
    value: &TemplateValue,
    before: Ordering,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let mut best: Option<(TemplateValue, &TemplateValue)> = None;
    let items = value.items(meter)?;
    for item in &items.items {
        let key = order_key(item, meter)?;
        let better = match &best {
            None => true,
            Some((best, _)) => key.compare(best, meter)? == Some(before),
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(no_item, |(_, item)| item.clone()))
}

/// Returns the entries of a dictionary, sorted by key, each inserted before those that are above it.
fn sort_entries(value: &TemplateValue, meter: &RenderMeter) -> RenderResult<TemplateValue> {
    let TemplateValue::Dict(dict) = value else {
        return refuse_operation(format!("'{}' has no `items`", value.kind()));
    };
    let mut keys: Vec<TemplateValue> = Vec::new();
    let mut sorted = Vec::new();
    for ((key, _), pair) in dict.entries.iter().zip(methods::entry_pairs(dict, meter)?) {
        let key = order_key(key, meter)?;
        let mut at = keys.len();
        while at > 0 && key.compare(&keys[at - 1], meter)? == Some(Ordering::Less) {
            at -= 1;
        }
        meter.charge_product(2, size_of::<TemplateValue>())?;
        meter.charge_work((keys.len() - at) * size_of::<TemplateValue>())?;
        keys.insert(at, key);
        sorted.insert(at, pair);
    }
    TemplateValue::list(sorted)
}

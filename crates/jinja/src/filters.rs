//! Filters that depend only on their value and arguments. Filters that apply other filters are in the interpreter.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::arguments::{CallArguments, flag, int, text};
use crate::lexer::is_white;
use crate::meter::{Meter, Outcome, refused, unknown};
use crate::methods;
use crate::print::{self, Json, Out};
use crate::texts::{cased, replace, strip, titled};
use crate::value::{Missing, Value};

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
pub(crate) fn apply(
    name: &str,
    value: &Value,
    given: CallArguments,
    meter: &Meter,
) -> Outcome<Value> {
    meter.step()?;
    match name {
        "default" | "d" => return default(value, given),
        "indent" => return indent(value, given, meter),
        "int" => return whole(value, given),
        "join" => return join(value, given, meter),
        "tojson" => return tojson(value, given, meter),
        "capitalize" | "lower" | "replace" | "title" | "trim" | "upper" => {
            return of_text(name, &text_of(value, meter)?, given, meter);
        }
        _ if !NAMES.contains(&name) => return unknown("filter", name, NAMES),
        _ => {}
    }
    let [] = given.bind(name, [])?;
    match name {
        "length" | "count" => length(value, meter),
        "string" => Ok(Value::Str(text_of(value, meter)?)),
        "list" => list(value, meter),
        "first" | "last" => end(value, name == "first", meter),
        "min" => extreme(value, Ordering::Less, meter),
        "max" => extreme(value, Ordering::Greater, meter),
        "dictsort" => dictsort(value, meter),
        "items" => match value {
            Value::Undefined(_) => Value::list(Vec::new()),
            Value::Dict(dict) => Value::list(methods::entries(dict, meter)?),
            other => refused(format!("'{}' has no `items`", other.kind())),
        },
        // `safe`: nothing is escaped.
        _ => Ok(value.clone()),
    }
}

/// Returns `str(value)`.
fn text_of(value: &Value, meter: &Meter) -> Outcome<Arc<str>> {
    match value {
        Value::Str(text) => Ok(Arc::clone(text)),
        other => Ok(print::text(other, meter)?.into()),
    }
}

fn of_text(name: &str, of: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    match name {
        "trim" => strip(of, name, given, meter),
        "replace" => {
            let [old, new, most] = given.bind(name, ["old", "new", "count"])?;
            let most = usize::try_from(int(name, most.as_ref(), -1)?).unwrap_or(usize::MAX);
            let (Some(old), Some(new)) = (old, new) else {
                return refused("`replace` takes two texts");
            };
            replace(of, &text_of(&old, meter)?, &text_of(&new, meter)?, most, meter)
        }
        _ => {
            let [] = given.bind(name, [])?;
            meter.product(of.len(), 3)?;
            // Words end at white space, hyphens and opening brackets.
            let inside = |char: char| !(is_white(char) || "-({[<".contains(char));
            Ok(Value::str(if name == "title" { titled(of, inside) } else { cased(of, name) }))
        }
    }
}

fn list(value: &Value, meter: &Meter) -> Outcome<Value> {
    let items = value.items(meter)?;
    if !items.tuple {
        return Ok(Value::List(items));
    }
    meter.product(items.items.len(), size_of::<Value>())?;
    Value::list(items.items.clone())
}

fn default(value: &Value, given: CallArguments) -> Outcome<Value> {
    let [default, boolean] = given.bind("default", ["default_value", "boolean"])?;
    let replaced = value.is_undefined() || (flag(boolean.as_ref()) && !value.is_true());
    Ok(if replaced { default.unwrap_or_else(|| Value::str("")) } else { value.clone() })
}

/// Returns the number of characters, items or entries of a value.
fn length(value: &Value, meter: &Meter) -> Outcome<Value> {
    let length = match value {
        Value::Str(text) => {
            meter.work(text.len())?;
            text.chars().count()
        }
        Value::List(list) => list.items.len(),
        Value::Dict(dict) => dict.entries.len(),
        Value::Undefined(_) => 0,
        other => return refused(format!("object of type '{}' has no len()", other.kind())),
    };
    Ok(Value::Int(length as i128))
}

/// Returns a whole number: a number without its fraction, or that of a text; else the default.
fn whole(value: &Value, given: CallArguments) -> Outcome<Value> {
    let [default] = given.bind("int", ["default"])?;
    let truncate = |number: f64| {
        let fits = number.is_finite() && number.abs() < 1e38;
        fits.then(|| number.trunc() as i128)
    };
    let number = match value {
        Value::Undefined(missing) => return Err(missing.failure()),
        Value::Float(number) => truncate(*number),
        Value::Str(text) => {
            let text = text.trim_matches(is_white);
            text.parse().ok().or_else(|| truncate(text.parse().ok()?))
        }
        other => other.as_int(),
    };
    Ok(number.map_or_else(|| default.unwrap_or(Value::Int(0)), Value::Int))
}

/// Computes `json.dumps(value, ensure_ascii=False, ...)`, which `transformers` installs as `tojson`.
fn tojson(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let parameters = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ensure_ascii, indent, separators, sort_keys] = given.bind("tojson", parameters)?;
    let indent = match &indent {
        None | Some(Value::None) => None,
        Some(indent) => Some(indent_text("tojson", Some(indent), 0, meter)?),
    };
    let separators = match &separators {
        None | Some(Value::None) => None,
        Some(pair) => match &pair.items(meter)?.items[..] {
            [Value::Str(item), Value::Str(key)] => Some((item.to_string(), key.to_string())),
            _ => return refused("`separators` is a pair of strings"),
        },
    };
    let item = if indent.is_some() { "," } else { ", " };
    let style = Json {
        ensure_ascii: flag(ensure_ascii.as_ref()),
        sort_keys: flag(sort_keys.as_ref()),
        separators: separators.unwrap_or_else(|| (item.to_owned(), ": ".to_owned())),
        indent,
    };
    Ok(Value::str(style.dumps(value, meter)?))
}

/// Returns an indentation: a text, or a number of spaces.
fn indent_text(of: &str, value: Option<&Value>, default: i128, meter: &Meter) -> Outcome<String> {
    let mut out = Out::new(meter);
    match value {
        Some(Value::Str(text)) => out.push(text)?,
        value => {
            let spaces = int(of, value, default)?.max(0);
            out.fill(" ", usize::try_from(spaces).unwrap_or(usize::MAX))?;
        }
    }
    Ok(out.text)
}

/// Indents every line but the first; blank lines are not indented.
fn indent(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [width, first, blank] = given.bind("indent", ["width", "first", "blank"])?;
    let (first, blank) = (flag(first.as_ref()), flag(blank.as_ref()));
    let of = text("indent", Some(value))?;
    let with = indent_text("indent", width.as_ref(), 4, meter)?;
    let mut out = Out::new(meter);
    for (at, line) in of.split('\n').enumerate() {
        out.push(if at > 0 { "\n" } else { "" })?;
        let indented = if at == 0 { first } else { blank || !line.is_empty() };
        out.push(if indented { &with } else { "" })?;
        out.push(line)?;
    }
    Ok(Value::str(out.text))
}

fn join(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [separator] = given.bind("join", ["d"])?;
    let separator = text_of(&separator.unwrap_or_else(|| Value::str("")), meter)?;
    let mut out = Out::new(meter);
    for (at, item) in value.items(meter)?.items.iter().enumerate() {
        out.push(if at > 0 { &separator } else { "" })?;
        print::write(&mut out, item)?;
    }
    Ok(Value::str(out.text))
}

fn end(value: &Value, first: bool, meter: &Meter) -> Outcome<Value> {
    if let Value::Str(text) = value {
        let char = if first { text.chars().next() } else { text.chars().next_back() };
        return Ok(char.map_or_else(no_item, Value::char));
    }
    let items = value.items(meter)?;
    let item = if first { items.items.first() } else { items.items.last() };
    Ok(item.cloned().unwrap_or_else(no_item))
}

fn no_item() -> Value {
    Value::Undefined(Missing::Of("an empty sequence", "item".into()))
}

/// Returns what a value is ordered by: a text in lower case, since the case does not count, or the value itself.
fn order_key(value: &Value, meter: &Meter) -> Outcome<Value> {
    match value {
        Value::Str(text) => {
            meter.product(text.len(), 3)?;
            Ok(Value::str(text.to_lowercase()))
        }
        other => Ok(other.clone()),
    }
}

/// Returns the first item that is before all others in an order.
fn extreme(value: &Value, before: Ordering, meter: &Meter) -> Outcome<Value> {
    let mut best: Option<(Value, &Value)> = None;
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
fn dictsort(value: &Value, meter: &Meter) -> Outcome<Value> {
    let Value::Dict(dict) = value else {
        return refused(format!("'{}' has no `items`", value.kind()));
    };
    let mut keys: Vec<Value> = Vec::new();
    let mut sorted = Vec::new();
    for ((key, _), pair) in dict.entries.iter().zip(methods::entries(dict, meter)?) {
        let key = order_key(key, meter)?;
        let mut at = keys.len();
        while at > 0 && key.compare(&keys[at - 1], meter)? == Some(Ordering::Less) {
            at -= 1;
        }
        meter.product(2, size_of::<Value>())?;
        meter.work((keys.len() - at) * size_of::<Value>())?;
        keys.insert(at, key);
        sorted.insert(at, pair);
    }
    Value::list(sorted)
}

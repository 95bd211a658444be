//! Filters that depend only on their value and arguments. Filters that apply other filters are in the interpreter.

mod sequences;
mod texts;

use super::access::{dotted, own_attribute};
use super::arguments::{CallArguments, count, flag, int, text};
use super::format;
use super::meter::{Meter, Outcome, refused};
use super::methods;
use super::print::{self, Json};
use super::value::{Value, undefined};

/// Applies a filter; `None` if the name is unknown.
pub(crate) fn apply(
    name: &str,
    value: &Value,
    given: CallArguments,
    meter: &Meter,
) -> Option<Outcome<Value>> {
    let known = of_values(name, value, given, meter);
    match known {
        Ok(outcome) => Some(outcome),
        Err(given) => match sequences::apply(name, value, given, meter) {
            Ok(outcome) => Some(outcome),
            Err(given) => texts::apply(name, value, given, meter).ok(),
        },
    }
}

/// Outcome of a filter, or the arguments if the name is unknown.
type Found = Result<Outcome<Value>, CallArguments>;

fn of_values(name: &str, value: &Value, given: CallArguments, meter: &Meter) -> Found {
    Ok(match name {
        "default" | "d" => default(value, given),
        "length" | "count" => given.bind(name, []).and_then(|[]| length(value, meter)),
        "string" => given.bind(name, []).and_then(|[]| string(value, meter)),
        "safe" => given.bind(name, []).map(|[]| value.clone()),
        "int" => whole(value, given),
        "float" => real(value, given),
        "abs" => given.bind(name, []).and_then(|[]| absolute(value)),
        "round" => round(value, given),
        "tojson" => tojson(value, given, meter),
        "attr" => given
            .bind(name, ["name"])
            .and_then(|[name]| own_attribute(value, text("attr", name.as_ref())?)),
        "items" => given.bind(name, []).and_then(|[]| match value {
            Value::Undefined(_) => Value::list(Vec::new()),
            value => methods::items(value, meter),
        }),
        "format" => percent(value, given, meter),
        "pprint" => given.bind(name, ["verbose"]).and_then(|_| {
            let mut out = print::Out::new(meter);
            print::repr(&mut out, value)?;
            Ok(Value::str(out.text))
        }),
        _ => return Err(given),
    })
}

fn default(value: &Value, given: CallArguments) -> Outcome<Value> {
    let [default, boolean] = given.bind("default", ["default_value", "boolean"])?;
    let replaced = value.is_undefined() || (flag(boolean.as_ref(), false) && !value.is_true());
    Ok(if replaced { default.unwrap_or_else(|| Value::str("")) } else { value.clone() })
}

/// Returns the number of characters, items or entries of a value.
pub(crate) fn length(value: &Value, meter: &Meter) -> Outcome<Value> {
    let length = match value {
        Value::Str(text) => {
            meter.work(text.len())?;
            text.chars().count()
        }
        Value::List(list) | Value::Tuple(list) => list.items.len(),
        Value::Dict(dict) => dict.entries.len(),
        Value::Loop(state) => state.items.items.len(),
        Value::Undefined(_) => 0,
        other => return refused(format!("object of type '{}' has no len()", other.kind())),
    };
    Ok(Value::Int(length as i128))
}

fn string(value: &Value, meter: &Meter) -> Outcome<Value> {
    match value {
        Value::Str(_) => Ok(value.clone()),
        other => Ok(Value::str(print::text(other, meter)?)),
    }
}

fn whole(value: &Value, given: CallArguments) -> Outcome<Value> {
    let [default, base] = given.bind("int", ["default", "base"])?;
    let base = int("int", base.as_ref(), 10)?;
    let default = || default.unwrap_or(Value::Int(0));
    let truncated = |number: f64| {
        let fits = number.is_finite() && number.abs() < 1e38;
        fits.then(|| Value::Int(number.trunc() as i128))
    };
    Ok(match value {
        Value::Undefined(_) => return Err(undefined(value)),
        Value::Float(number) => truncated(*number).unwrap_or_else(default),
        Value::Str(text) => {
            let plain = text.trim().replace('_', "");
            let prefix = match base {
                16 => plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")),
                8 => plain.strip_prefix("0o").or_else(|| plain.strip_prefix("0O")),
                2 => plain.strip_prefix("0b").or_else(|| plain.strip_prefix("0B")),
                3..=36 => None,
                _ => return refused(format!("int() base must be from 2 to 36, not {base}")),
            };
            let digits = i128::from_str_radix(prefix.unwrap_or(&plain), base as u32);
            let number = digits.ok().map(Value::Int);
            let number = number.or_else(|| truncated(plain.parse().ok()?));
            number.unwrap_or_else(default)
        }
        other => other.as_int().map_or_else(default, Value::Int),
    })
}

fn real(value: &Value, given: CallArguments) -> Outcome<Value> {
    let [default] = given.bind("float", ["default"])?;
    let number = match value {
        Value::Undefined(_) => return Err(undefined(value)),
        Value::Str(text) => text.trim().replace('_', "").parse().ok(),
        other => other.as_float(),
    };
    Ok(number.map_or_else(|| default.unwrap_or(Value::Float(0.0)), Value::Float))
}

fn absolute(value: &Value) -> Outcome<Value> {
    match value {
        Value::Undefined(_) => Err(undefined(value)),
        Value::Float(number) => Ok(Value::Float(number.abs())),
        value => match value.as_int().and_then(i128::checked_abs) {
            Some(number) => Ok(Value::Int(number)),
            None => refused(format!("bad operand type for abs(): '{}'", value.kind())),
        },
    }
}

fn round(value: &Value, given: CallArguments) -> Outcome<Value> {
    let [precision, method] = given.bind("round", ["precision", "method"])?;
    let precision = int("round", precision.as_ref(), 0)?.clamp(-400, 400) as i32;
    let method = match &method {
        None => "common",
        method => &**text("round", method.as_ref())?,
    };
    let Some(number) = value.as_float() else {
        return refused(format!("'{}' cannot be rounded", value.kind()));
    };
    let scale = 10_f64.powi(precision);
    let rounded = match method {
        "ceil" => (number * scale).ceil() / scale,
        "floor" => (number * scale).floor() / scale,
        // Python rounds the exact decimal value, halves to even.
        "common" if precision >= 0 => {
            format!("{number:.*}", precision as usize).parse().unwrap_or(number)
        }
        "common" => (number * scale).round_ties_even() / scale,
        _ => return refused("the method of `round` is \"common\", \"ceil\" or \"floor\""),
    };
    Ok(match value {
        Value::Float(_) => Value::Float(rounded),
        _ if method == "common" => Value::Int(rounded as i128),
        _ => Value::Float(rounded),
    })
}

/// Computes `json.dumps(value, ensure_ascii=False, ...)`, which `transformers` installs as `tojson`.
fn tojson(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let parameters = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ensure_ascii, indent, separators, sort_keys] = given.bind("tojson", parameters)?;
    let indent = match &indent {
        None | Some(Value::None) => None,
        Some(Value::Str(text)) => Some(text.to_string()),
        Some(other) => {
            let spaces = count("tojson", Some(other), 0)?;
            meter.bytes(spaces)?;
            Some(" ".repeat(spaces))
        }
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
        ensure_ascii: flag(ensure_ascii.as_ref(), false),
        sort_keys: flag(sort_keys.as_ref(), false),
        separators: separators.unwrap_or_else(|| (item.to_owned(), ": ".to_owned())),
        indent,
    };
    Ok(Value::str(style.dumps(value, meter)?))
}

/// Computes `value % arguments`.
fn percent(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let pattern = match value {
        Value::Str(pattern) => pattern,
        other => return refused(format!("'{}' is no format", other.kind())),
    };
    let arguments = if given.named.is_empty() {
        Value::tuple(given.positional)?
    } else {
        let named = given.named.into_iter().map(|(name, value)| (Value::Str(name), value));
        Value::dict(named.collect())?
    };
    Ok(Value::str(format::percent(pattern, &arguments, meter)?))
}

/// Returns an attribute of an item, or the item itself without an attribute.
fn attribute_or_self(item: &Value, attribute: Option<&Value>, meter: &Meter) -> Outcome<Value> {
    match attribute {
        None | Some(Value::None) => Ok(item.clone()),
        Some(path) => dotted(item, path, meter),
    }
}

//! Attribute and item lookup, in the order of Jinja.

use std::sync::Arc;

use super::meter::{Meter, Outcome, refused};
use super::methods;
use super::value::{Loop, Missing, Value, undefined};

/// Evaluates `value.name`: an attribute, or else an item. Namespaces are handled in the interpreter.
pub(crate) fn attribute(value: &Value, name: &Arc<str>, meter: &Meter) -> Outcome<Value> {
    if value.is_undefined() {
        return Err(undefined(value));
    }
    if let Some(found) = own(value, name) {
        return Ok(found);
    }
    match value {
        Value::Dict(dict) => {
            let found = dict.text(name, meter)?.cloned();
            Ok(found.unwrap_or_else(|| missing(value, name)))
        }
        _ => Ok(missing(value, name)),
    }
}

/// Evaluates `value[key]`: an item, or else an attribute.
pub(crate) fn item(value: &Value, key: &Value, meter: &Meter) -> Outcome<Value> {
    let found = match (value, key) {
        (Value::Undefined(_), _) => return Err(undefined(value)),
        (Value::Dict(dict), Value::Str(name)) => dict.text(name, meter)?.cloned(),
        (Value::Dict(dict), key) => dict.get(key, meter)?.cloned(),
        (Value::List(list) | Value::Tuple(list), key) => {
            let place = key.as_int().and_then(|at| place(at, list.items.len()));
            place.map(|at| list.items[at].clone())
        }
        (Value::Str(text), key) => match key.as_int() {
            Some(at) => {
                meter.work(text.len())?;
                place(at, text.chars().count())
                    .and_then(|at| text.chars().nth(at))
                    .map(|char| Value::str(&*char.encode_utf8(&mut [0; 4])))
            }
            None => None,
        },
        _ => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    match key {
        Value::Str(name) => Ok(own(value, name).unwrap_or_else(|| missing(value, name))),
        Value::Int(at) => Ok(missing(value, &at.to_string().into())),
        key => Ok(missing(value, &key.kind().into())),
    }
}

/// Returns an index counted from the beginning, or from the end if negative.
fn place(at: i128, length: usize) -> Option<usize> {
    let at = if at < 0 { at.checked_add(length as i128)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

fn missing(value: &Value, name: &Arc<str>) -> Value {
    Value::Undefined(Missing::Of(value.kind(), Arc::clone(name)))
}

/// Returns an attribute that is not an item.
pub(crate) fn own_attribute(value: &Value, name: &Arc<str>) -> Outcome<Value> {
    if value.is_undefined() {
        return Err(undefined(value));
    }
    Ok(own(value, name).unwrap_or_else(|| missing(value, name)))
}

/// Returns an attribute that every value of the type has, independent of its content.
fn own(value: &Value, name: &Arc<str>) -> Option<Value> {
    match value {
        Value::Loop(state) => of_loop(state, name),
        _ => None,
    }
    .or_else(|| {
        let method = methods::has(value, name);
        method.then(|| Value::Method(Arc::new((value.clone(), Arc::clone(name)))))
    })
}

fn of_loop(state: &Loop, name: &str) -> Option<Value> {
    let (index, length) = (state.index, state.items.items.len());
    let neighbor = |at: Option<usize>| {
        let found = at.and_then(|at| state.items.items.get(at)).cloned();
        found.unwrap_or(Value::Undefined(Missing::Of("loop", name.into())))
    };
    let int = |number: usize| Value::Int(number as i128);
    Some(match name {
        "index" => int(index + 1),
        "index0" => int(index),
        "revindex" => int(length - index),
        "revindex0" => int(length - index - 1),
        "first" => Value::Bool(index == 0),
        "last" => Value::Bool(index + 1 == length),
        "length" => int(length),
        "depth" => int(state.level + 1),
        "depth0" => int(state.level),
        "previtem" => neighbor(index.checked_sub(1)),
        "nextitem" => neighbor(Some(index + 1)),
        _ => return None,
    })
}

/// Evaluates the path of a format field: `.name[0][key]`.
pub(crate) fn path(value: &Value, path: &str, meter: &Meter) -> Outcome<Value> {
    let (mut value, mut rest) = (value.clone(), path);
    while !rest.is_empty() {
        let end = rest[1..].find(['.', '[']).map_or(rest.len(), |end| end + 1);
        let (part, after) = rest.split_at(end);
        rest = after;
        value = match part.strip_prefix('[').map(|part| part.strip_suffix(']')) {
            Some(Some(key)) => {
                let key = key.parse().map_or_else(|_| Value::str(key), Value::Int);
                item(&value, &key, meter)?
            }
            Some(None) => return refused("`[` in a format is not closed"),
            None => attribute(&value, &part[1..].into(), meter)?,
        };
    }
    Ok(value)
}

/// Evaluates the attribute path of a filter: `name.0.key`.
pub(crate) fn dotted(value: &Value, path: &Value, meter: &Meter) -> Outcome<Value> {
    let Value::Str(path) = path else { return item(value, path, meter) };
    let mut value = value.clone();
    for part in path.split('.') {
        let key = part.parse().map_or_else(|_| Value::str(part), Value::Int);
        value = item(&value, &key, meter)?;
    }
    Ok(value)
}

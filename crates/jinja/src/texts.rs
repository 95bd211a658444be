//! Methods of texts, and the filters that do the same to the text of any value.

use std::sync::Arc;

use crate::arguments::{CallArguments, int, text};
use crate::lexer::is_white;
use crate::meter::{Meter, Outcome, refused, unknown};
use crate::print::Out;
use crate::value::Value;

/// Names of the methods of texts.
pub(crate) const METHODS: &[&str] = &[
    "capitalize",
    "endswith",
    "lower",
    "lstrip",
    "replace",
    "rstrip",
    "split",
    "startswith",
    "strip",
    "title",
    "upper",
];

/// Calls a method of a text.
pub(crate) fn call_method(
    of: &Arc<str>,
    name: &str,
    given: CallArguments,
    meter: &Meter,
) -> Outcome<Value> {
    // Every method reads the text.
    meter.work(of.len())?;
    match name {
        "capitalize" | "lower" | "title" | "upper" => {
            let [] = given.bind(name, [])?;
            meter.product(of.len(), 3)?;
            let inside = |char: char| char.is_alphabetic();
            Ok(Value::str(if name == "title" { titled(of, inside) } else { cased(of, name) }))
        }
        "strip" | "lstrip" | "rstrip" => strip(of, name, given, meter),
        "startswith" | "endswith" => has_end(of, name, given, meter),
        "split" => split(of, given, meter),
        "replace" => {
            let [old, new, most] = given.bind(name, ["old", "new", "count"])?;
            let most = usize::try_from(int(name, most.as_ref(), -1)?).unwrap_or(usize::MAX);
            replace(of, text(name, old.as_ref())?, text(name, new.as_ref())?, most, meter)
        }
        _ => unknown("method of texts", name, METHODS),
    }
}

/// Strips characters from the ends of a text; without an argument, white space as Python defines it.
pub(crate) fn strip(
    of: &Arc<str>,
    name: &str,
    given: CallArguments,
    meter: &Meter,
) -> Outcome<Value> {
    let [chars] = given.bind(name, ["chars"])?;
    let chars = match &chars {
        None | Some(Value::None) => None,
        chars => Some(text(name, chars.as_ref())?),
    };
    // Every character of the text may be searched for in `chars`.
    meter.work(of.len().saturating_mul(4 + chars.map_or(0, |chars| chars.len())))?;
    let goes = |char: char| chars.map_or_else(|| is_white(char), |chars| chars.contains(char));
    let part = if name == "rstrip" { of } else { of.trim_start_matches(goes) };
    let part = if name == "lstrip" { part } else { part.trim_end_matches(goes) };
    if part.len() == of.len() {
        return Ok(Value::Str(Arc::clone(of)));
    }
    meter.bytes(part.len())?;
    Ok(Value::str(part))
}

/// Changes the case of a text: `upper`, `lower` or `capitalize`.
pub(crate) fn cased(text: &str, name: &str) -> String {
    match name {
        "upper" => text.to_uppercase(),
        "lower" => text.to_lowercase(),
        _ => {
            let mut chars = text.chars();
            let first = chars.next().into_iter().flat_map(char::to_uppercase);
            first.chain(chars.as_str().to_lowercase().chars()).collect()
        }
    }
}

/// Capitalizes every word: the characters after which the next one is `inside`.
pub(crate) fn titled(text: &str, inside: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut starts = true;
    for char in text.chars() {
        if starts {
            out.extend(char.to_uppercase());
        } else {
            out.extend(char.to_lowercase());
        }
        starts = !inside(char);
    }
    out
}

/// Evaluates `startswith` and `endswith`, of a text or any of a tuple of texts.
fn has_end(of: &str, name: &str, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [wanted] = given.bind(name, ["part"])?;
    let has = |wanted: &Value| {
        meter.step()?;
        let wanted = text(name, Some(wanted))?;
        Ok(if name == "startswith" { of.starts_with(&**wanted) } else { of.ends_with(&**wanted) })
    };
    match &wanted {
        Some(Value::List(list)) if list.tuple => {
            for wanted in &list.items {
                if has(wanted)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        Some(wanted) => Ok(Value::Bool(has(wanted)?)),
        None => refused(format!("`{name}` lacks an argument")),
    }
}

/// Splits a text at a separator; without one, at white space.
fn split(of: &str, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [separator, most] = given.bind("split", ["sep", "maxsplit"])?;
    let most = int("split", most.as_ref(), -1)?;
    let most = usize::try_from(most).map_or(usize::MAX, |n| n.saturating_add(1));
    let separator = match &separator {
        None | Some(Value::None) => None,
        separator => Some(text("split", separator.as_ref())?),
    };
    let mut parts = Vec::new();
    let mut add = |part: &str| {
        // A value and an allocation.
        meter.bytes(part.len() + 2 * size_of::<Value>())?;
        parts.push(Value::str(part));
        Ok(())
    };
    if let Some(separator) = separator {
        if separator.is_empty() {
            return refused("empty separator");
        }
        of.splitn(most, &**separator).try_for_each(&mut add)?;
        return Value::list(parts);
    }
    let mut rest = of.trim_start_matches(is_white);
    for n in 1.. {
        let Some(end) = rest.find(is_white).filter(|_| n < most) else { break };
        add(&rest[..end])?;
        rest = rest[end..].trim_start_matches(is_white);
    }
    if !rest.is_empty() {
        add(rest)?;
    }
    Value::list(parts)
}

/// Replaces the first `most` occurrences of a part.
pub(crate) fn replace(
    of: &Arc<str>,
    old: &str,
    new: &str,
    most: usize,
    meter: &Meter,
) -> Outcome<Value> {
    meter.work(of.len() + old.len())?;
    let mut out = Out::new(meter);
    let mut done = 0;
    for (at, _) in of.match_indices(old).take(most) {
        out.push(&of[done..at])?;
        out.push(new)?;
        done = at + old.len();
    }
    out.push(&of[done..])?;
    Ok(Value::str(out.text))
}

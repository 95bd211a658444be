//! Methods of texts, and the filters that do the same to the text of any value.

use std::sync::Arc;

use crate::arguments::{CallArguments, int_argument, text_argument};
use crate::lexer::is_white;
use crate::meter::{RenderMeter, RenderResult, refuse_operation, unknown_name};
use crate::print::MeteredText;
use crate::value::TemplateValue;

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
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    // Every method reads the text.
    meter.charge_work(of.len())?;
    match name {
        "capitalize" | "lower" | "title" | "upper" => {
            change_case(of, name, given, meter, char::is_alphabetic)
        }
        "strip" | "lstrip" | "rstrip" => strip_text(of, name, given, meter),
        "startswith" | "endswith" => has_end(of, name, given, meter),
        "split" => split_text(of, given, meter),
        "replace" => {
            let [old, new, most] = given.bind_parameters(name, ["old", "new", "count"])?;
            let most =
                usize::try_from(int_argument(name, most.as_ref(), -1)?).unwrap_or(usize::MAX);
            replace_text(
                of,
                text_argument(name, old.as_ref())?,
                text_argument(name, new.as_ref())?,
                most,
                meter,
            )
        }
        _ => unknown_name("method of texts", name, METHODS),
    }
}

/// Strips characters from the ends of a text; without an argument, white space as Python defines it.
pub(crate) fn strip_text(
    of: &Arc<str>,
    name: &str,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let [chars] = given.bind_parameters(name, ["chars"])?;
    let chars = match &chars {
        None | Some(TemplateValue::None) => None,
        chars => Some(text_argument(name, chars.as_ref())?),
    };
    // Every character of the text may be searched for in `chars`.
    meter.charge_work(of.len().saturating_mul(4 + chars.map_or(0, |chars| chars.len())))?;
    let goes = |char: char| chars.map_or_else(|| is_white(char), |chars| chars.contains(char));
    let part = if name == "rstrip" { of } else { of.trim_start_matches(goes) };
    let part = if name == "lstrip" { part } else { part.trim_end_matches(goes) };
    if part.len() == of.len() {
        return Ok(TemplateValue::Str(Arc::clone(of)));
    }
    meter.charge_bytes(part.len())?;
    Ok(TemplateValue::str(part))
}

/// Changes the case of a text: `upper`, `lower`, `capitalize` or `title`, for which [`title_case`] has `inside`.
pub(crate) fn change_case(
    of: &str,
    name: &str,
    given: CallArguments,
    meter: &RenderMeter,
    inside: impl Fn(char) -> bool,
) -> RenderResult<TemplateValue> {
    let [] = given.bind_parameters(name, [])?;
    meter.charge_product(of.len(), 3)?;
    Ok(TemplateValue::str(match name {
        "upper" => of.to_uppercase(),
        "lower" => of.to_lowercase(),
        "title" => title_case(of, inside),
        _ => {
            let mut chars = of.chars();
            let first = chars.next().into_iter().flat_map(char::to_uppercase);
            first.chain(chars.as_str().to_lowercase().chars()).collect()
        }
    }))
}

/// Capitalizes every word: the characters after which the next one is `inside`.
fn title_case(text: &str, inside: impl Fn(char) -> bool) -> String {
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
fn has_end(
    of: &str,
    name: &str,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let [wanted] = given.bind_parameters(name, ["part"])?;
    match &wanted {
        Some(TemplateValue::List(list)) if list.tuple => {
            for wanted in &list.items {
                if has_part(of, name, wanted, meter)? {
                    return Ok(TemplateValue::Bool(true));
                }
            }
            Ok(TemplateValue::Bool(false))
        }
        Some(wanted) => Ok(TemplateValue::Bool(has_part(of, name, wanted, meter)?)),
        None => refuse_operation(format!("`{name}` lacks an argument")),
    }
}

/// Returns true if a text begins or ends with a part, whichever `name` asks.
fn has_part(of: &str, name: &str, part: &TemplateValue, meter: &RenderMeter) -> RenderResult<bool> {
    meter.charge_step()?;
    let part = text_argument(name, Some(part))?;
    Ok(if name == "startswith" { of.starts_with(&**part) } else { of.ends_with(&**part) })
}

/// Splits a text at a separator; without one, at white space.
fn split_text(of: &str, given: CallArguments, meter: &RenderMeter) -> RenderResult<TemplateValue> {
    let [separator, most] = given.bind_parameters("split", ["sep", "maxsplit"])?;
    let most = int_argument("split", most.as_ref(), -1)?;
    let most = usize::try_from(most).map_or(usize::MAX, |n| n.saturating_add(1));
    let separator = match &separator {
        None | Some(TemplateValue::None) => None,
        separator => Some(text_argument("split", separator.as_ref())?),
    };
    let mut parts = Vec::new();
    if let Some(separator) = separator {
        if separator.is_empty() {
            return refuse_operation("empty separator");
        }
        of.splitn(most, &**separator).try_for_each(|part| push_part(&mut parts, part, meter))?;
        return TemplateValue::list(parts);
    }
    let mut rest = of.trim_start_matches(is_white);
    for n in 1.. {
        let Some(end) = rest.find(is_white).filter(|_| n < most) else { break };
        push_part(&mut parts, &rest[..end], meter)?;
        rest = rest[end..].trim_start_matches(is_white);
    }
    if !rest.is_empty() {
        push_part(&mut parts, rest, meter)?;
    }
    TemplateValue::list(parts)
}

/// Adds a part of a text, and charges a value and an allocation.
fn push_part(parts: &mut Vec<TemplateValue>, part: &str, meter: &RenderMeter) -> RenderResult<()> {
    meter.charge_bytes(part.len() + 2 * size_of::<TemplateValue>())?;
    parts.push(TemplateValue::str(part));
    Ok(())
}

/// Replaces the first `most` occurrences of a part.
pub(crate) fn replace_text(
    of: &Arc<str>,
    old: &str,
    new: &str,
    most: usize,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    meter.charge_work(of.len() + old.len())?;
    let mut out = MeteredText::new(meter);
    let mut done = 0;
    for (at, _) in of.match_indices(old).take(most) {
        out.push(&of[done..at])?;
        out.push(new)?;
        done = at + old.len();
    }
    out.push(&of[done..])?;
    Ok(TemplateValue::str(out.text))
}

//! Methods of texts.

mod fill;

use std::sync::Arc;

use super::texts;
use crate::arguments::{CallArguments, flag, int, text};
use crate::format;
use crate::lexer::is_white;
use crate::meter::{Meter, Outcome, refused};
use crate::print::Out;
use crate::value::Value;

pub(crate) const NAMES: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];

/// Calls a method.
pub(crate) fn call(
    of: &Arc<str>,
    name: &str,
    given: CallArguments,
    meter: &Meter,
) -> Outcome<Value> {
    // Most methods read the text. None returns more than three times its bytes unless it charges that itself.
    meter.work(of.len())?;
    match name {
        "format" => Ok(Value::str(format::format(of, &given.positional, &given.named, meter)?)),
        "capitalize" | "casefold" | "lower" | "upper" | "swapcase" | "title" => {
            let [] = given.bind(name, [])?;
            meter.product(of.len(), 3)?;
            Ok(Value::str(cased(of, name)))
        }
        _ if name.starts_with("is") => {
            let [] = given.bind(name, [])?;
            Ok(Value::Bool(is(of, name)))
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = given.bind(name, ["chars"])?;
            let chars = match &chars {
                None | Some(Value::None) => None,
                chars => Some(text(name, chars.as_ref())?),
            };
            let part = strip(of, chars.map(|chars| &**chars), name, meter)?;
            part_of(of, part, meter)
        }
        "removeprefix" | "removesuffix" => {
            let [part] = given.bind(name, ["part"])?;
            let part = text(name, part.as_ref())?;
            let rest = match name {
                "removeprefix" => of.strip_prefix(&**part),
                _ => of.strip_suffix(&**part),
            };
            part_of(of, rest.unwrap_or(of), meter)
        }
        "startswith" | "endswith" => ends(of, name, given, meter),
        "find" | "rfind" | "index" | "rindex" | "count" => find(of, name, given, meter),
        "split" | "rsplit" => split(of, name, given, meter),
        "splitlines" => {
            let [keep] = given.bind(name, ["keepends"])?;
            texts(lines(of, flag(keep.as_ref(), false)), meter)
        }
        "partition" | "rpartition" => partition(of, name, given, meter),
        "join" => {
            let [items] = given.bind(name, ["items"])?;
            join(of, &items.unwrap_or(Value::None), meter)
        }
        "replace" => {
            let [old, new, most] = given.bind(name, ["old", "new", "count"])?;
            let most = int(name, most.as_ref(), -1)?;
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            replace(of, text(name, old.as_ref())?, text(name, new.as_ref())?, most, meter)
        }
        _ => fill::fill(of, name, given, meter),
    }
}

/// Returns a part of a text. If the part is the whole, it is not copied.
pub(crate) fn part_of(of: &Arc<str>, part: &str, meter: &Meter) -> Outcome<Value> {
    if part.len() == of.len() {
        return Ok(Value::Str(Arc::clone(of)));
    }
    meter.bytes(part.len())?;
    Ok(Value::str(part))
}

/// Strips characters from the ends of a text; without an argument, white space as Python defines it.
pub(crate) fn strip<'t>(
    text: &'t str,
    chars: Option<&str>,
    name: &str,
    meter: &Meter,
) -> Outcome<&'t str> {
    // Every character of the text is searched for in `chars`.
    let each = chars.map_or(1, str::len);
    meter.work(text.len().saturating_mul(each) / 16)?;
    let goes = |char: char| chars.map_or_else(|| is_white(char), |chars| chars.contains(char));
    let text = if name == "rstrip" { text } else { text.trim_start_matches(goes) };
    Ok(if name == "lstrip" { text } else { text.trim_end_matches(goes) })
}

pub(crate) fn cased(text: &str, name: &str) -> String {
    match name {
        "upper" => text.to_uppercase(),
        "lower" | "casefold" => text.to_lowercase(),
        "capitalize" => {
            let mut chars = text.chars();
            let first = chars.next().into_iter().flat_map(char::to_uppercase);
            first.chain(chars.as_str().to_lowercase().chars()).collect()
        }
        "swapcase" => {
            let swap = |char: char| match char.is_uppercase() {
                true => char.to_lowercase().to_string(),
                false => char.to_uppercase().to_string(),
            };
            text.chars().map(swap).collect()
        }
        _ => {
            let mut inside = false;
            let mut out = String::with_capacity(text.len());
            for char in text.chars() {
                match inside {
                    true => out.extend(char.to_lowercase()),
                    false => out.extend(char.to_uppercase()),
                }
                inside = char.is_alphabetic();
            }
            out
        }
    }
}

fn is(text: &str, name: &str) -> bool {
    let all = |holds: fn(char) -> bool| !text.is_empty() && text.chars().all(holds);
    let cased = |upper: bool| {
        let mut cased = text.chars().filter(|c| c.is_uppercase() || c.is_lowercase()).peekable();
        cased.peek().is_some() && cased.all(|char| char.is_uppercase() == upper)
    };
    match name {
        "isascii" => text.is_ascii(),
        "isspace" => all(is_white),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isdigit" | "isdecimal" => all(|char| char.is_ascii_digit()),
        "isnumeric" => all(char::is_numeric),
        "isupper" => cased(true),
        "islower" => cased(false),
        _ => {
            let has_letter = text.chars().any(char::is_alphabetic);
            has_letter && self::cased(text, "title") == text
        }
    }
}

fn ends(of: &str, name: &str, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [wanted, start, end] = given.bind(name, ["part", "start", "end"])?;
    let part = window(of, start.as_ref(), end.as_ref(), name)?.map_or("", |(_, part)| part);
    let holds = |wanted: &str| match name {
        "startswith" => part.starts_with(wanted),
        _ => part.ends_with(wanted),
    };
    match &wanted {
        Some(Value::Tuple(list)) => {
            for wanted in &list.items {
                meter.step()?;
                if holds(text(name, Some(wanted))?) {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        wanted => Ok(Value::Bool(holds(text(name, wanted.as_ref())?))),
    }
}

/// Returns the characters from `start` to `end`, and the number of characters before them; `None` if `start` is behind
/// the text.
fn window<'t>(
    of: &'t str,
    start: Option<&Value>,
    end: Option<&Value>,
    name: &str,
) -> Outcome<Option<(usize, &'t str)>> {
    let given = |bound: &Option<&Value>| !matches!(bound, None | Some(Value::None));
    if !given(&start) && !given(&end) {
        return Ok(Some((0, of)));
    }
    let length = of.chars().count() as i128;
    let bound = |bound: Option<&Value>, default: i128| {
        let at = int(name, bound.filter(|bound| !matches!(bound, Value::None)), default)?;
        Ok(if at < 0 { at.saturating_add(length).max(0) } else { at })
    };
    let (start, end) = (bound(start, 0)?, bound(end, length)?.min(length));
    if start > length {
        return Ok(None);
    }
    let byte = |at: i128| of.char_indices().nth(at as usize).map_or(of.len(), |(byte, _)| byte);
    Ok(Some((start as usize, &of[byte(start)..byte(end.max(start))])))
}

fn find(of: &str, name: &str, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [wanted, start, end] = given.bind(name, ["part", "start", "end"])?;
    let wanted = text(name, wanted.as_ref())?;
    meter.work(wanted.len())?;
    let Some((before, part)) = window(of, start.as_ref(), end.as_ref(), name)? else {
        return match name {
            "count" => Ok(Value::Int(0)),
            "find" | "rfind" => Ok(Value::Int(-1)),
            _ => refused("substring not found"),
        };
    };
    if name == "count" {
        return Ok(Value::Int(part.matches(&**wanted).count() as i128));
    }
    let found = match name.starts_with('r') {
        true => part.rfind(&**wanted),
        false => part.find(&**wanted),
    };
    match found {
        Some(byte) => Ok(Value::Int((before + part[..byte].chars().count()) as i128)),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => refused("substring not found"),
    }
}

fn split(of: &str, name: &str, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [separator, most] = given.bind(name, ["sep", "maxsplit"])?;
    let most =
        usize::try_from(int(name, most.as_ref(), -1)?).map_or(usize::MAX, |n| n.saturating_add(1));
    let separator = match &separator {
        None | Some(Value::None) => None,
        separator => Some(text(name, separator.as_ref())?),
    };
    if separator.is_some_and(|separator| separator.is_empty()) {
        return refused("empty separator");
    }
    let mut parts: Vec<&str> = Vec::new();
    let mut add = |part| {
        meter.bytes(size_of::<&str>())?;
        parts.push(part);
        Ok(())
    };
    match (separator, name) {
        (Some(separator), "split") => of.splitn(most, &**separator).try_for_each(&mut add)?,
        (Some(separator), _) => of.rsplitn(most, &**separator).try_for_each(&mut add)?,
        (None, "split") => {
            let mut rest = of.trim_start_matches(is_white);
            for n in 1.. {
                let end = rest.find(is_white).filter(|_| n < most);
                let Some(end) = end else { break };
                add(&rest[..end])?;
                rest = rest[end..].trim_start_matches(is_white);
            }
            if !rest.is_empty() {
                add(rest)?;
            }
        }
        (None, _) => {
            let mut rest = of.trim_end_matches(is_white);
            for n in 1.. {
                let start = rest.char_indices().rfind(|(_, char)| is_white(*char));
                let Some((at, char)) = start.filter(|_| n < most) else { break };
                add(&rest[at + char.len_utf8()..])?;
                rest = rest[..at].trim_end_matches(is_white);
            }
            if !rest.is_empty() {
                add(rest)?;
            }
        }
    }
    if name == "rsplit" {
        parts.reverse();
    }
    texts(parts.into_iter(), meter)
}

/// Splits a text into lines at Python's line breaks.
fn lines(text: &str, keep: bool) -> impl Iterator<Item = &str> {
    let ends = |char: char| {
        matches!(
            char,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(at) = rest.find(ends) else { return Some(std::mem::take(&mut rest)) };
        let end = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        let line = &rest[..if keep { at + end } else { at }];
        rest = &rest[at + end..];
        Some(line)
    })
}

fn partition(of: &str, name: &str, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [separator] = given.bind(name, ["sep"])?;
    let separator = text(name, separator.as_ref())?;
    if separator.is_empty() {
        return refused("empty separator");
    }
    let found = match name {
        "partition" => of.split_once(&**separator),
        _ => of.rsplit_once(&**separator),
    };
    let parts = match (found, name) {
        (Some((before, after)), _) => [before, separator, after],
        (None, "partition") => [of, "", ""],
        (None, _) => ["", "", of],
    };
    meter.bytes(of.len() + 8 * size_of::<Value>())?;
    Value::tuple(parts.into_iter().map(Value::str).collect())
}

/// Joins texts with a separator.
fn join(of: &str, items: &Value, meter: &Meter) -> Outcome<Value> {
    let mut out = Out::new(meter);
    for (at, item) in items.items(meter)?.items.iter().enumerate() {
        let Value::Str(text) = item else {
            let kind = item.kind();
            return refused(format!("sequence item {at}: expected str instance, {kind} found"));
        };
        if at > 0 {
            out.push(of)?;
        }
        out.push(text)?;
    }
    Ok(Value::str(out.text))
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
    if done == 0 && out.text.is_empty() {
        return Ok(Value::Str(Arc::clone(of)));
    }
    out.push(&of[done..])?;
    Ok(Value::str(out.text))
}

//! Filters of texts. Other values are converted to text first.

use std::sync::Arc;

use super::Found;
use crate::arguments::{CallArguments, count, flag, int, text};
use crate::lexer::is_white;
use crate::meter::{Meter, Outcome, refused};
use crate::methods;
use crate::methods::text::{cased, part_of, replace, strip};
use crate::print::{self, Out};
use crate::value::Value;

pub(crate) fn apply(name: &str, value: &Value, given: CallArguments, meter: &Meter) -> Found {
    let filter: fn(&Arc<str>, CallArguments, &Meter) -> Outcome<Value> = match name {
        "upper" => |text, given, meter| case("upper", text, given, meter),
        "lower" => |text, given, meter| case("lower", text, given, meter),
        "capitalize" => |text, given, meter| case("capitalize", text, given, meter),
        "title" => title,
        "trim" => trim,
        "replace" => replaced,
        "center" => |text, mut given, meter| {
            if given.positional.is_empty() && given.named.is_empty() {
                given.positional.push(Value::Int(80));
            }
            methods::call(&Value::Str(Arc::clone(text)), "center", given, meter)
        },
        "indent" => indent,
        "truncate" => truncate,
        "wordcount" => wordcount,
        "striptags" => striptags,
        "escape" | "e" | "forceescape" => escape,
        "urlencode" => urlencode,
        _ => return Err(given),
    };
    let printed = match (value, name) {
        (Value::Str(text), _) => Ok(Arc::clone(text)),
        (other, "indent") => refused(format!("`indent` takes a text, not '{}'", other.kind())),
        (other, "truncate") => return Ok(untruncated(other, given, meter)),
        (Value::Dict(_) | Value::List(_) | Value::Tuple(_), "urlencode") => {
            return Ok(urlencode_pairs(value, given, meter));
        }
        (other, _) => print::text(other, meter).map(Arc::from),
    };
    Ok(printed.and_then(|text| filter(&text, given, meter)))
}

fn case(name: &str, text: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [] = given.bind(name, [])?;
    meter.product(text.len(), 3)?;
    Ok(Value::str(cased(text, name)))
}

/// Capitalizes every word. Words end at white space, hyphens and opening brackets.
fn title(text: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [] = given.bind("title", [])?;
    meter.product(text.len(), 3)?;
    let mut out = String::with_capacity(text.len());
    let mut starts = true;
    for char in text.chars() {
        match starts {
            true => out.extend(char.to_uppercase()),
            false => out.extend(char.to_lowercase()),
        }
        starts = is_white(char) || "-({[<".contains(char);
    }
    Ok(Value::str(out))
}

fn trim(of: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [chars] = given.bind("trim", ["chars"])?;
    let chars = match &chars {
        None | Some(Value::None) => None,
        chars => Some(text("trim", chars.as_ref())?),
    };
    let part = strip(of, chars.map(|chars| &**chars), "strip", meter)?;
    part_of(of, part, meter)
}

fn replaced(of: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [old, new, most] = given.bind("replace", ["old", "new", "count"])?;
    let most = match &most {
        None | Some(Value::None) => usize::MAX,
        most => count("replace", most.as_ref(), 0)?,
    };
    let plain = |value: Option<Value>| match value {
        Some(Value::Str(text)) => Ok(text),
        Some(other) => print::text(&other, meter).map(Arc::from),
        None => refused("`replace` takes two texts"),
    };
    replace(of, &plain(old)?, &plain(new)?, most, meter)
}

/// Indents every line but the first; blank lines are not indented.
fn indent(of: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [width, first, blank] = given.bind("indent", ["width", "first", "blank"])?;
    let (first, blank) = (flag(first.as_ref(), false), flag(blank.as_ref(), false));
    let mut with = Out::new(meter);
    match &width {
        Some(Value::Str(text)) => with.push(text)?,
        width => with.fill(" ", count("indent", width.as_ref(), 4)?)?,
    }
    let mut out = Out::new(meter);
    for (at, line) in of.split('\n').enumerate() {
        if at > 0 {
            out.push("\n")?;
        }
        if if at == 0 { first } else { blank || !line.is_empty() } {
            out.push(&with.text)?;
        }
        out.push(line)?;
    }
    Ok(Value::str(out.text))
}

fn truncate(of: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [length, kill, end, leeway] =
        given.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let length = count("truncate", length.as_ref(), 255)?;
    let leeway = count("truncate", leeway.as_ref(), 5)?;
    let dots = Value::str("...");
    let end = text("truncate", Some(end.as_ref().unwrap_or(&dots)))?;
    meter.work(of.len())?;
    if of.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::Str(Arc::clone(of)));
    }
    let Some(kept) = length.checked_sub(end.chars().count()) else {
        return refused("`truncate` takes a length that its end fits into");
    };
    let byte = of.char_indices().nth(kept).map_or(of.len(), |(byte, _)| byte);
    let kept = &of[..byte];
    let kept = if flag(kill.as_ref(), false) {
        kept
    } else {
        kept.rsplit_once(' ').map_or(kept, |(words, _)| words)
    };
    let mut out = Out::new(meter);
    out.push(kept)?;
    out.push(end)?;
    Ok(Value::str(out.text))
}

/// Handles a value that is not a text: it cannot be truncated, but it may be short enough.
fn untruncated(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [length, _, _, leeway] =
        given.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let most = int("truncate", length.as_ref(), 255)? + int("truncate", leeway.as_ref(), 5)?;
    match super::length(value, meter)?.as_int() {
        Some(length) if length <= most => Ok(value.clone()),
        _ => refused(format!("`truncate` takes a text, not '{}'", value.kind())),
    }
}

fn wordcount(of: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [] = given.bind("wordcount", [])?;
    meter.work(of.len())?;
    let words = of.split(|char: char| !(char.is_alphanumeric() || char == '_'));
    Ok(Value::Int(words.filter(|word| !word.is_empty()).count() as i128))
}

/// Removes tags and comments, and collapses white space to single spaces.
fn striptags(of: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [] = given.bind("striptags", [])?;
    meter.product(of.len(), 2)?;
    let mut plain = String::with_capacity(of.len());
    let mut rest = &**of;
    while let Some(at) = rest.find('<') {
        let end = if rest[at..].starts_with("<!--") { "-->" } else { ">" };
        let Some(length) = rest[at..].find(end) else { break };
        plain.push_str(&rest[..at]);
        rest = &rest[at + length + end.len()..];
    }
    plain.push_str(rest);
    let words: Vec<&str> = plain.split(is_white).filter(|word| !word.is_empty()).collect();
    meter.product(words.len(), size_of::<&str>())?;
    Ok(Value::str(words.join(" ")))
}

fn escape(of: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [] = given.bind("escape", [])?;
    let mut out = Out::new(meter);
    let mut rest = &**of;
    while let Some(at) = rest.find(['&', '<', '>', '\'', '"']) {
        out.push(&rest[..at])?;
        out.push(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'\'' => "&#39;",
            _ => "&#34;",
        })?;
        rest = &rest[at + 1..];
    }
    out.push(rest)?;
    Ok(Value::str(out.text))
}

fn urlencode(of: &Arc<str>, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [] = given.bind("urlencode", [])?;
    let mut out = Out::new(meter);
    quote(&mut out, of, true)?;
    Ok(Value::str(out.text))
}

/// Writes a text with URL quoting.
fn quote(out: &mut Out<'_>, text: &str, path: bool) -> Outcome<()> {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => {
                out.push(char::from(byte).encode_utf8(&mut [0; 4]))?;
            }
            b'/' if path => out.push("/")?,
            b' ' if !path => out.push("+")?,
            _ => out.push(&format!("%{byte:02X}"))?,
        }
    }
    Ok(())
}

/// Encodes a dictionary or pairs as the query of a URL.
fn urlencode_pairs(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [] = given.bind("urlencode", [])?;
    let pairs = match value {
        Value::Dict(_) => methods::items(value, meter)?,
        other => other.clone(),
    };
    let mut out = Out::new(meter);
    for (at, pair) in pairs.items(meter)?.items.iter().enumerate() {
        let items = pair.items(meter)?;
        let [key, value] = &items.items[..] else {
            return refused("`urlencode` takes a text, a dictionary or pairs");
        };
        out.push(if at > 0 { "&" } else { "" })?;
        quote(&mut out, &print::text(key, meter)?, false)?;
        out.push("=")?;
        quote(&mut out, &print::text(value, meter)?, false)?;
    }
    Ok(Value::str(out.text))
}

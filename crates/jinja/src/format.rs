//! Python's two formatting syntaxes: `"%s" % value` and `"{}".format(value)`.

use super::access::path;
use super::meter::{Meter, Outcome, refused};
use super::print::{self, Out};
use super::value::{Value, undefined};

/// Format specification of a value.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    /// Alignment: `<`, `>`, `^` or `=` (between sign and digits).
    align: Option<char>,
    /// Prefix of nonnegative numbers: `+` or a space.
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    group: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// Maximum number of digits after the point, and maximum bytes of a number without fill.
const MOST_DIGITS: usize = 1000;

/// Computes `pattern % value`.
pub(crate) fn percent(pattern: &str, value: &Value, meter: &Meter) -> Outcome<String> {
    let mut out = Out::new(meter);
    let single = std::slice::from_ref(value);
    let arguments = match value {
        Value::Tuple(list) => &list.items[..],
        _ => single,
    };
    let (mut next, mut rest) = (0, pattern);
    while let Some(at) = rest.find('%') {
        out.push(&rest[..at])?;
        rest = &rest[at + 1..];
        let mut named = None;
        if let Some(key) = rest.strip_prefix('(') {
            let Some((key, after)) = key.split_once(')') else { return incomplete() };
            let Value::Dict(dict) = value else { return refused("format requires a mapping") };
            named = dict.text(key, meter)?.cloned();
            if named.is_none() {
                return refused(format!("the format asks for the key {key:.60?}"));
            }
            rest = after;
        }
        let (spec, after) = percent_spec(rest)?;
        rest = after;
        if spec.kind == Some('%') {
            out.push("%")?;
            continue;
        }
        let argument = match &named {
            Some(value) => value,
            None => {
                next += 1;
                match arguments.get(next - 1) {
                    Some(value) => value,
                    None => return refused("not enough arguments for format string"),
                }
            }
        };
        percent_value(&mut out, argument, spec)?;
    }
    if next < arguments.len() && matches!(value, Value::Tuple(_)) {
        return refused("not all arguments converted during string formatting");
    }
    if next == 0 && !pattern.contains('%') && !matches!(value, Value::Dict(_) | Value::List(_)) {
        return refused("not all arguments converted during string formatting");
    }
    out.push(rest)?;
    Ok(out.text)
}

fn incomplete<T>() -> Outcome<T> {
    refused("incomplete format")
}

/// Parses flags, width, precision and kind after a `%`.
fn percent_spec(text: &str) -> Outcome<(Spec, &str)> {
    let mut spec = Spec::default();
    let mut rest = text;
    while let Some(flag) = rest.chars().next().filter(|flag| "-+ #0".contains(*flag)) {
        match flag {
            '-' => spec.align = Some('<'),
            '#' => spec.alternate = true,
            '0' => spec.zero = true,
            sign => spec.sign = spec.sign.filter(|_| sign == ' ').or(Some(sign)),
        }
        rest = &rest[1..];
    }
    (spec.width, rest) = number(rest);
    if let Some(after) = rest.strip_prefix('.') {
        let (precision, after) = number(after);
        (spec.precision, rest) = (Some(precision), after);
    }
    let Some(kind) = rest.chars().next() else { return incomplete() };
    spec.kind = Some(kind);
    Ok((spec, &rest[kind.len_utf8()..]))
}

/// Parses the number at the beginning of a text. Returns 0 without one, and the maximum for one that is too large.
fn number(text: &str) -> (usize, &str) {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let number = if end == 0 { 0 } else { text[..end].parse().unwrap_or(usize::MAX) };
    (number, &text[end..])
}

fn percent_value(out: &mut Out<'_>, value: &Value, mut spec: Spec) -> Outcome<()> {
    let Some(kind) = spec.kind else { return incomplete() };
    // Zeros fill only numbers, and only in front of them.
    spec.zero &= spec.align.is_none();
    spec.align = spec.align.or(Some(if spec.zero { '=' } else { '>' }));
    match kind {
        's' | 'r' | 'a' => {
            let text = spelled(out, value, kind == 's')?;
            (spec.kind, spec.zero) = (None, false);
            padded(out, "", cut(&text, spec.precision), &spec)
        }
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let whole = match value {
                Value::Float(number) if number.is_finite() => Value::Int(number.trunc() as i128),
                other => other.clone(),
            };
            let digits = spec.precision.take().unwrap_or(0);
            spec.kind = Some(if "iu".contains(kind) { 'd' } else { kind });
            if digits > 0 && spec.width <= digits {
                (spec.zero, spec.width) = (true, digits);
            }
            write_number(out, &whole, &spec)
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => write_number(out, value, &spec),
        'c' => {
            let text = match value {
                Value::Str(text) => text.to_string(),
                other => character(other)?,
            };
            padded(out, "", &text, &spec)
        }
        other => refused(format!("unsupported format character {other:?}")),
    }
}

fn character(value: &Value) -> Outcome<String> {
    let code = value.as_int().and_then(|code| u32::try_from(code).ok()).and_then(char::from_u32);
    match code {
        Some(char) => Ok(char.to_string()),
        None => refused("%c requires an int or a char"),
    }
}

fn spelled(out: &Out<'_>, value: &Value, plain: bool) -> Outcome<String> {
    let mut text = out.like();
    if plain {
        print::write(&mut text, value)?
    } else {
        print::repr(&mut text, value)?
    }
    Ok(text.text)
}

/// Returns the first characters of a text.
fn cut(text: &str, most: Option<usize>) -> &str {
    let end = most.and_then(|most| text.char_indices().nth(most)).map(|(at, _)| at);
    &text[..end.unwrap_or(text.len())]
}

/// Writes a sign and a text, padded to the width.
fn padded(out: &mut Out<'_>, sign: &str, text: &str, spec: &Spec) -> Outcome<()> {
    let missing = spec.width.saturating_sub(sign.chars().count() + text.chars().count());
    let fill = match spec.fill {
        Some(fill) => fill.to_string(),
        None => if spec.zero { "0" } else { " " }.to_owned(),
    };
    let (before, between, after) = match spec.align {
        Some('<') => (0, 0, missing),
        Some('^') => (missing / 2, 0, missing - missing / 2),
        Some('=') => (0, missing, 0),
        _ => (missing, 0, 0),
    };
    out.fill(&fill, before)?;
    out.push(sign)?;
    out.fill(&fill, between)?;
    out.push(text)?;
    out.fill(&fill, after)
}

/// Writes a number according to the specification.
fn write_number(out: &mut Out<'_>, value: &Value, spec: &Spec) -> Outcome<()> {
    if value.is_undefined() {
        return Err(undefined(value));
    }
    let precision = spec.precision.unwrap_or(6);
    if precision > MOST_DIGITS {
        return refused(format!("a precision of {precision}; at most {MOST_DIGITS} is supported"));
    }
    let kind = spec.kind.unwrap_or(if matches!(value, Value::Float(_)) { 'r' } else { 'd' });
    let (negative, mut digits) = if "dxXobcn".contains(kind) {
        let Some(number) = value.as_int() else {
            return refused(format!("{kind:?} formats whole numbers, not '{}'", value.kind()));
        };
        (number < 0, whole_digits(number.unsigned_abs(), kind, spec.alternate))
    } else {
        let Some(number) = value.as_float() else {
            return refused(format!("{kind:?} formats numbers, not '{}'", value.kind()));
        };
        let digits = real_digits(number.abs(), kind, spec.precision, precision);
        (number.is_sign_negative() && !number.is_nan(), digits)
    };
    if let Some(group) = spec.group {
        digits = grouped(&digits, group);
    }
    let sign = match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(_)) => " ",
        (false, None) => "",
    };
    padded(out, sign, &digits, spec)
}

fn whole_digits(number: u128, kind: char, alternate: bool) -> String {
    match (kind, alternate) {
        ('x', false) => format!("{number:x}"),
        ('x', true) => format!("{number:#x}"),
        ('X', false) => format!("{number:X}"),
        ('X', true) => format!("{number:#X}"),
        ('o', false) => format!("{number:o}"),
        ('o', true) => format!("{number:#o}"),
        ('b', false) => format!("{number:b}"),
        ('b', true) => format!("{number:#b}"),
        _ => number.to_string(),
    }
}

fn real_digits(number: f64, kind: char, asked: Option<usize>, precision: usize) -> String {
    let upper = kind.is_ascii_uppercase();
    let digits = match kind.to_ascii_lowercase() {
        _ if !number.is_finite() => print::float(number, ["nan", "inf"]),
        'f' => format!("{number:.precision$}"),
        '%' => format!("{:.precision$}%", number * 100.0),
        'e' => exponent(&format!("{number:.precision$e}")),
        'r' if asked.is_none() => print::float(number, ["nan", "inf"]),
        _ => general(number, precision.max(1)),
    };
    if upper { digits.to_uppercase() } else { digits }
}

/// Returns an exponent with its sign and two digits.
fn exponent(scientific: &str) -> String {
    let (digits, power) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let power: i32 = power.parse().unwrap_or_default();
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.unsigned_abs())
}

/// Formats with `digits` significant digits, in the shorter notation, without trailing zeros.
fn general(number: f64, digits: usize) -> String {
    let scientific = format!("{number:.*e}", digits - 1);
    let power = scientific.split_once('e').and_then(|(_, power)| power.parse::<i64>().ok());
    let power = power.unwrap_or_default();
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..digits as i64).contains(&power) {
        let places = usize::try_from(digits as i64 - 1 - power).unwrap_or(0);
        return trimmed(&format!("{number:.places$}"));
    }
    let (mantissa, _) = scientific.split_once('e').unwrap_or((&scientific, ""));
    exponent(&format!("{}e{power}", trimmed(mantissa)))
}

/// Inserts thousands separators.
fn grouped(digits: &str, group: char) -> String {
    let end = digits.find(|char: char| !char.is_ascii_digit()).unwrap_or(digits.len());
    let mut out = String::new();
    for (at, digit) in digits[..end].chars().enumerate() {
        if at > 0 && (end - at).is_multiple_of(3) {
            out.push(group);
        }
        out.push(digit);
    }
    out + &digits[end..]
}

/// Computes `pattern.format(*positional, **named)`.
pub(crate) fn format(
    pattern: &str,
    positional: &[Value],
    named: &[(std::sync::Arc<str>, Value)],
    meter: &Meter,
) -> Outcome<String> {
    let mut out = Out::new(meter);
    let (mut next, mut rest) = (0, pattern);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        out.push(before)?;
        let doubled = &brace[..1];
        if brace[1..].starts_with(doubled) {
            out.push(doubled)?;
            rest = &brace[2..];
            continue;
        }
        let Some((field, after)) = brace[1..].split_once('}').filter(|_| doubled == "{") else {
            return refused("a single brace in a format; write it twice");
        };
        if field.contains('{') {
            return refused("a format within a format is not supported");
        }
        rest = after;
        let (place, spec) = field.split_once(':').unwrap_or((field, ""));
        let (place, conversion) = place.split_once('!').unwrap_or((place, ""));
        let end = place.find(['.', '[']).unwrap_or(place.len());
        let (first, place_path) = place.split_at(end);
        let index = if first.is_empty() {
            next += 1;
            Some(next - 1)
        } else {
            first.parse::<usize>().ok()
        };
        let value = match index {
            Some(index) => positional.get(index),
            None => named.iter().find(|(name, _)| &**name == first).map(|(_, value)| value),
        };
        let Some(value) = value else { return refused(format!("no argument for {{{place:.60}}}")) };
        let value = self::path(value, place_path, meter)?;
        place_value(&mut out, &value, conversion, spec)?;
    }
    out.push(rest)?;
    Ok(out.text)
}

fn place_value(out: &mut Out<'_>, value: &Value, conversion: &str, spec: &str) -> Outcome<()> {
    let plain = spec.is_empty() && matches!(value, Value::Bool(_));
    let mut spec = format_spec(spec)?;
    if value.is_number() && conversion.is_empty() && !plain {
        if spec.zero && spec.align.is_none() {
            spec.align = Some('=');
        }
        if spec.kind == Some('c') {
            return padded(out, "", &character(value)?, &spec);
        }
        return write_number(out, value, &spec);
    }
    if spec.kind.is_some_and(|kind| kind != 's') {
        return refused(format!("the format does not fit '{}'", value.kind()));
    }
    let text = spelled(out, value, conversion != "r")?;
    spec.align = spec.align.or(Some('<'));
    padded(out, "", cut(&text, spec.precision), &spec)
}

/// Parses `[[fill]align][sign][#][0][width][,][.precision][kind]`.
fn format_spec(text: &str) -> Outcome<Spec> {
    let mut spec = Spec::default();
    let mut chars = text.chars();
    let (first, second) = (chars.next(), chars.next());
    let aligns = |char: Option<char>| char.filter(|char| "<>^=".contains(*char));
    let mut rest = text;
    if let (Some(fill), Some(align)) = (first, aligns(second)) {
        (spec.fill, spec.align) = (Some(fill), Some(align));
        rest = &rest[fill.len_utf8() + 1..];
    } else if let Some(align) = aligns(first) {
        spec.align = Some(align);
        rest = &rest[1..];
    }
    if let Some(sign) = rest.chars().next().filter(|char| "+- ".contains(*char)) {
        spec.sign = Some(sign).filter(|sign| *sign != '-');
        rest = &rest[1..];
    }
    if let Some(after) = rest.strip_prefix('#') {
        (spec.alternate, rest) = (true, after);
    }
    if let Some(after) = rest.strip_prefix('0') {
        (spec.zero, rest) = (true, after);
    }
    (spec.width, rest) = number(rest);
    if let Some(group) = rest.chars().next().filter(|char| ",_".contains(*char)) {
        (spec.group, rest) = (Some(group), &rest[1..]);
    }
    if let Some(after) = rest.strip_prefix('.') {
        let (precision, after) = number(after);
        (spec.precision, rest) = (Some(precision), after);
    }
    let mut kinds = rest.chars();
    spec.kind = kinds.next();
    if kinds.next().is_some() {
        return refused(format!("{text:.60?} is no format"));
    }
    Ok(spec)
}

//! Numbers as they were written: integers beyond 64 bits, and Python's spellings.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

/// Parses JSON. An integer beyond 64 bits, of which a float would lose digits, becomes the text of its digits.
pub(super) fn parse_exactly<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(&quote_large_integers(text))
}

/// Puts integers beyond 64 bits in quotes. Strings stay as they are.
fn quote_large_integers(text: &str) -> Cow<'_, str> {
    let (mut quoted, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(&byte) = text.as_bytes().get(at) {
        let rest = &text[at..];
        let len = match byte {
            b'"' => string_length(rest),
            b'0'..=b'9' | b'-' => {
                let other = |c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c));
                rest.find(other).unwrap_or(rest.len())
            }
            _ => rest
                .find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
                .unwrap_or(rest.len()),
        };
        if is_large_integer(&rest[..len]) {
            quoted.push_str(&text[copied..at]);
            quoted.extend(["\"", &rest[..len], "\""]);
            copied = at + len;
        }
        at += len;
    }
    if quoted.is_empty() {
        return Cow::Borrowed(text);
    }
    quoted.push_str(&text[copied..]);
    Cow::Owned(quoted)
}

/// Returns the length of a string that begins a text, with its quotes.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// Returns true for a decimal integer that fits neither `i64` nor `u64`.
fn is_large_integer(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    digits.starts_with(|c: char| ('1'..='9').contains(&c))
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && word.parse::<i64>().is_err()
        && word.parse::<u64>().is_err()
}

/// Returns the number that a literal of Python is, with a sign: an integer, also in base 2, 8 or 16, or a float. Single `_` may be
/// between digits. An integer beyond 64 bits is the text of its literal. `None` if it is no number, or infinite.
pub(super) fn python_number(word: &str) -> Option<Value> {
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    let sign = if word.starts_with('-') { "-" } else { "" };
    let digits = without_underscores(unsigned)?;
    let lower = digits.to_ascii_lowercase();
    let bases = [("0x", 16), ("0o", 8), ("0b", 2)];
    if let Some((prefix, base)) = bases.into_iter().find(|(prefix, _)| lower.starts_with(prefix)) {
        let digits = lower[prefix.len()..].trim_start_matches('_');
        let is_digit = |c: char| c.is_digit(base);
        return (!digits.is_empty() && digits.chars().all(is_digit))
            .then(|| integer_value(sign, digits, base).unwrap_or_else(|| Value::from(word)));
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let is_zero = digits.bytes().all(|byte| byte == b'0');
        return (!digits.is_empty() && (is_zero || !digits.starts_with('0')))
            .then(|| integer_value(sign, &digits, 10).unwrap_or_else(|| Value::from(word)));
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte)) {
        return None;
    }
    Number::from_f64(format!("{sign}{digits}").parse().ok()?).map(Value::Number)
}

/// Returns an integer, unless it is beyond 64 bits.
fn integer_value(sign: &str, digits: &str, base: u32) -> Option<Value> {
    let signed = i64::from_str_radix(&format!("{sign}{digits}"), base).ok().map(Value::from);
    signed.or_else(|| {
        u64::from_str_radix(digits, base).ok().filter(|_| sign.is_empty()).map(Value::from)
    })
}

/// Removes single underscores between digits; `None` if one is elsewhere.
fn without_underscores(word: &str) -> Option<String> {
    let all = word.match_indices('_').all(|(at, _)| is_between_digits(word.as_bytes(), at));
    all.then(|| word.replace('_', ""))
}

/// Returns true if a digit is on both sides of a position. On its left may be the letter of a base, too.
fn is_between_digits(word: &[u8], at: usize) -> bool {
    let digit = |at: usize| word.get(at).is_some_and(u8::is_ascii_hexdigit);
    let based = at == 2 && word[0] == b'0' && b"xXoObB".contains(&word[1]);
    at > 0 && (digit(at - 1) || based) && digit(at + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_those_that_python_reads() {
        for (word, wanted) in [
            (".5", json!(0.5)),
            ("-.5", json!(-0.5)),
            ("5.", json!(5.0)),
            ("+3", json!(3)),
            ("-0", json!(0)),
            ("00", json!(0)),
            ("1_000", json!(1000)),
            ("1_000.25", json!(1000.25)),
            ("1e3", json!(1000.0)),
            ("1_0e1_0", json!(1e11)),
            ("2.E-1", json!(0.2)),
            ("0x_Ff", json!(255)),
            ("-0b101", json!(-5)),
            ("0o17", json!(15)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("18446744073709551616", json!("18446744073709551616")),
            ("-9223372036854775809", json!("-9223372036854775809")),
            ("0xFFFFFFFFFFFFFFFFF", json!("0xFFFFFFFFFFFFFFFFF")),
        ] {
            assert_eq!(python_number(word), Some(wanted), "{word}");
        }
        for word in [
            "", "-", ".", "_1", "1_", "1__0", "1_.5", "1._5", "007", "0x", "0xg", "1e", "e5",
            "1e999", "inf", "nan", "1j", "1.2.3", "--1", "five",
        ] {
            assert_eq!(python_number(word), None, "{word}");
        }
    }

    #[test]
    fn large_integers_of_json_keep_their_digits() {
        let large = "123456789012345678901234567890";
        let text =
            format!("{{\"a\": {large}, \"b\": [-{large}, 1, \"{large}\"], \"{large}\": 1.5e30}}");
        let wanted = json!({"a": large, "b": [format!("-{large}"), 1, large], large: 1.5e30});
        assert_eq!(parse_exactly::<Value>(&text).ok(), Some(wanted));
        for plain in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e300",
            "\"a \\\" 99999999999999999999\"",
            "\"é",
            "{",
        ] {
            assert!(matches!(quote_large_integers(plain), Cow::Borrowed(_)), "{plain}");
        }
    }
}

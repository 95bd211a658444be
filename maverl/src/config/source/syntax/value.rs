//! Values that are not TOML, and their probable intent.

/// Formats a bare word as TOML: numbers and booleans unchanged, texts in quotes.
pub(super) fn as_value(word: &str) -> String {
    let word = word.trim_end_matches(',');
    let plain = word.parse::<toml_edit::Value>().is_ok();
    if plain { word.to_owned() } else { format!("\"{word}\"") }
}

/// Returns message and help for a value that is not TOML.
pub(super) fn explain(key: &str, value: &str) -> Option<(String, String)> {
    let is = format!("`{key}` is {value}");
    if let Some(rest) = value.strip_prefix('=') {
        return Some((
            format!("`{key}` has two `=`"),
            format!("write `{key} = {}`", as_value(rest.trim())),
        ));
    }
    match value.to_lowercase().trim_end_matches(',') {
        "true" | "yes" | "on" => return Some((is, format!("write `{key} = true`"))),
        "false" | "no" | "off" => return Some((is, format!("write `{key} = false`"))),
        "none" | "null" | "nil" | "undefined" | "~" => {
            return Some((
                is,
                "TOML has no such value: remove the line, and the key has its default".to_owned(),
            ));
        }
        _ => {}
    }
    match value.chars().next()? {
        '"' | '\'' => text(key, value),
        '[' => list(key, value),
        '{' => inline(key, value),
        c if c.is_ascii_digit() || "+-.".contains(c) => number(key, value),
        _ => Some((
            is,
            format!(
                "a text is written in quotes: `{key} = \"{}\"`",
                value.trim_end_matches([';', ','])
            ),
        )),
    }
}

fn number(key: &str, value: &str) -> Option<(String, String)> {
    let is = format!("`{key}` is {value}");
    let digits = value.trim_start_matches(['+', '-']).replace('_', "");
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Some(
            if digits.len() > 1 && digits.starts_with('0') && digits.parse::<i64>().is_ok() {
                (
                    is,
                    format!(
                        "a number does not begin with 0: write `{key} = {}`",
                        digits.trim_start_matches('0')
                    ),
                )
            } else {
                (
                    format!("{is}, which is too large"),
                    format!("the largest whole number is {}", i64::MAX),
                )
            },
        );
    }
    let plain = value.trim_end_matches([',', ';', 'f', 'L', 'u', '%']).replace(',', "");
    let help = match value {
        _ if value.ends_with('%') => plain
            .parse::<f64>()
            .ok()
            .map(|share| format!("write a share of 1: `{key} = {}`", share / 100.0)),
        _ if value.starts_with('.') => Some(format!("write `{key} = 0{value}`")),
        _ if value.starts_with("-.") => Some(format!("write `{key} = -0{}`", &value[1..])),
        _ if value.ends_with([',', ';']) && plain.parse::<f64>().is_ok() => {
            Some(format!("nothing follows a value: write `{key} = {plain}`"))
        }
        _ if value.ends_with('.') => Some(format!("write `{key} = {value}0`")),
        _ if value.contains(',') && plain.parse::<f64>().is_ok() => Some(format!(
            "the point of a number is `.`, and `_` may divide its digits: `{key} = {plain}` or `{key} = {}`",
            value.replace(',', ".")
        )),
        _ if value.contains('/')
            && value.split('/').all(|part| part.trim().parse::<f64>().is_ok()) =>
        {
            Some("TOML does not calculate: write the number".to_owned())
        }
        _ if value.contains(['*', '^']) => {
            Some("TOML does not calculate: write the number".to_owned())
        }
        _ if plain.parse::<f64>().is_ok() => Some(format!("write `{key} = {plain}`")),
        _ => None,
    };
    Some((
        is,
        help.unwrap_or_else(|| {
            format!("write a plain number, or a text in quotes: `{key} = \"{value}\"`")
        }),
    ))
}

fn text(key: &str, value: &str) -> Option<(String, String)> {
    let open = value.chars().next()?;
    let inner = &value[open.len_utf8()..];
    let Some(end) = inner.find(open) else {
        let help = format!("write `{key} = {value}{open}`");
        return Some((format!("the text of `{key}` has no closing `{open}`"), help));
    };
    if open == '"' && inner[..end].contains('\\') {
        let help = format!(
            "write `/`, or single quotes, in which `\\` is itself: `{key} = '{}'`",
            &inner[..end]
        );
        return Some((format!("the text of `{key}` has a `\\` that TOML does not know"), help));
    }
    let rest = inner[end + open.len_utf8()..].trim();
    let help = match open {
        '\'' if rest.len() > 1 => format!(
            "a text with `'` in it stands in double quotes: `{key} = \"{}\"`",
            value.trim_matches('\'')
        ),
        _ => "a value ends with its line".to_owned(),
    };
    (!rest.is_empty()).then(|| (format!("`{rest}` follows the text of `{key}`"), help))
}

fn list(key: &str, value: &str) -> Option<(String, String)> {
    if value.matches('[').count() > value.matches(']').count() {
        return Some((
            format!("the list of `{key}` is not closed"),
            format!("write `{key} = {value}]`"),
        ));
    }
    if !value.contains(['"', '\'']) && value.contains(char::is_alphabetic) {
        let items =
            value.trim_matches(['[', ']', ' ']).split(',').map(|item| as_value(item.trim()));
        let items: Vec<String> = items.collect();
        return Some((
            format!("a text in the list of `{key}` has no quotes"),
            format!("write `{key} = [{}]`", items.join(", ")),
        ));
    }
    Some((
        format!("the list of `{key}` cannot be read"),
        "its items are divided by commas: `[1, 2]` or `[\"a\", \"b\"]`".to_owned(),
    ))
}

fn inline(key: &str, value: &str) -> Option<(String, String)> {
    let example = format!(
        "write `{key} = {{ a = 1, b = 2 }}` in one line, or a table with the header `[{key}]`"
    );
    if value.matches('{').count() > value.matches('}').count() {
        return Some((format!("the table of `{key}` is not closed in its line"), example));
    }
    if value.contains(':') && !value.contains('=') {
        return Some((format!("the keys of `{key}` have `:` in the place of `=`"), example));
    }
    let end = value.trim_end_matches(['}', ' ']);
    if end.ends_with(',') {
        let help = format!("write `{key} = {} }}`", end.trim_end_matches(','));
        return Some((format!("the table of `{key}` ends with a comma"), help));
    }
    Some((format!("the table of `{key}` cannot be read"), example))
}

//! Messages and help for unknown keys and for values of the wrong type.

use figment::error::{Actual, Kind};
use figment::value::{Dict, Value};

use super::alias;
use super::names::{did_you_mean, key, list};
use super::problems::Problems;
use crate::config::tables::{DeclaredTable, TABLES};

/// Maximum number of keys of an unknown table that are translated.
const TRANSLATED: usize = 40;

/// Reports the problem at a path, of which `depth` keys lead to `value` in a table.
pub(super) fn report(
    problems: &mut Problems<'_>,
    path: &[String],
    depth: usize,
    (kind, value): (&Kind, &Value),
) {
    let (path, item) = path.split_at(depth);
    let name = item.iter().fold(key(path), |name, index| format!("{name}[{index}]"));
    match kind {
        Kind::UnknownField(field, known) => {
            let help = unknown_help(problems, path, field, (known, value));
            problems.key(path, format!("unknown key `{name}`"), help);
        }
        Kind::UnknownVariant(found, known) => {
            let help = variant(path, found, known).map(|name| format!("did you mean \"{name}\"?"));
            let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
            let message = format!("`{name}` is {found:?}; expected one of {}", known.join(", "));
            problems.value(path, message, help);
        }
        Kind::InvalidType(Actual::Str(text), expected) if too_large(text, expected) => {
            problems.value(path, format!("`{name}` is {text}; the largest is {}", i64::MAX), None);
        }
        Kind::InvalidType(Actual::Seq, expected)
            if expected.starts_with("struct ") && has_tables(value) =>
        {
            let message = format!("`{name}` is a list of tables; expected a table");
            problems.value(path, message, table(path, &Actual::Seq));
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            let written =
                problems.written_text(path).filter(|_| item.is_empty()).map(str::to_owned);
            let shown = show_value(found, written.as_deref());
            let message = format!("`{name}` is {shown}; expected {}", range(found, expected));
            let help = instead(path, found, plain_type(expected), item.is_empty());
            problems.value(path, message, help);
        }
        Kind::InvalidLength(found, expected) => {
            let items = if *found == 1 { "item" } else { "items" };
            let message =
                format!("`{name}` has {found} {items}; expected {}", plain_type(expected));
            problems.value(path, message, None);
        }
        other => problems.value(path, format!("`{name}`: {other}"), None),
    }
}

/// Returns true for a list of tables, as `[[task]]` makes one.
fn has_tables(value: &Value) -> bool {
    let Value::Array(_, items) = value else { return false };
    items.first().is_some_and(|item| item.as_dict().is_some())
}

/// Returns true for a text that is a whole number beyond the range of TOML.
fn too_large(text: &str, expected: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let whole = expected.starts_with('u') || expected.starts_with("a nonzero ");
    whole && digits && !text.is_empty() && text.parse::<i64>().is_err()
}

/// Returns help for a key that does not exist in its table.
fn unknown_help(
    problems: &Problems<'_>,
    path: &[String],
    field: &str,
    (known, value): (&[&str], &Value),
) -> String {
    if let Some(help) = alias::renamed_key(path) {
        return help;
    }
    if let Some(name) = alias::moved_key(path) {
        return format!("did you mean {name}?");
    }
    let close = did_you_mean(field, known.iter().copied());
    let meant = close.map(|name| format!("did you mean `{name}`?"));
    let alias = alias::help(&path.join("."), problems.only_model());
    if let Value::Dict(_, table) = value {
        if let [agents, team, role] = path
            && agents == "agents"
        {
            return format!("a name with `/` is quoted as a whole: `[agents.\"{team}/{role}\"]`");
        }
        let lead = meant.or(alias);
        let keys = translated_keys(problems, (&path.join("."), close), table);
        let lines: Vec<String> = lead.into_iter().chain(keys).collect();
        return if lines.is_empty() { every(known) } else { lines.join("\n") };
    }
    let home = home_of(field);
    match (home, alias) {
        (Some(home), Some(alias)) => format!("{home}; in the sense of other trainers {alias}"),
        (Some(help), None) | (None, Some(help)) => help,
        (None, None) => meant.or_else(|| elsewhere(field)).unwrap_or_else(|| every(known)),
    }
}

/// Returns help for a key of other tables.
pub(crate) fn home_of(field: &str) -> Option<String> {
    let homes = titles_with(field);
    (!homes.is_empty()).then(|| format!("`{field}` is a key of {}", homes.join(" and ")))
}

/// Returns help for an option of the wrong type, from serde's message.
pub(crate) fn option_help(
    path: &[String],
    value: &serde_json::Value,
    error: &str,
) -> Option<String> {
    use serde_json::Value;
    let (_, expected) = error.split_once(", expected ")?;
    let found = match value {
        Value::Null => return None,
        Value::Bool(value) => Actual::Bool(*value),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), ..) => Actual::Unsigned(number.into()),
            (_, Some(number), _) => Actual::Signed(number.into()),
            (.., number) => Actual::Float(number?),
        },
        Value::String(text) => Actual::Str(text.clone()),
        Value::Array(_) => Actual::Seq,
        Value::Object(_) => Actual::Map,
    };
    match plain_type(expected) {
        "a table" => None,
        expected => instead(path, &found, expected, true),
    }
}

fn every(known: &[&str]) -> String {
    format!("its keys are {}", list(known.iter().copied()))
}

/// Returns a key of another table that differs in one or two letters.
fn elsewhere(field: &str) -> Option<String> {
    let keys = TABLES.iter().flat_map(|table| table.keys).map(|key| key.name);
    let close = did_you_mean(field, keys.filter(|key| key.len() > 3))?;
    let homes = titles_with(close).join(" and ");
    Some(format!("did you mean `{close}`, a key of {homes}?"))
}

/// Returns the titles of the tables that have a key.
fn titles_with(field: &str) -> Vec<String> {
    TABLES.iter().filter(|table| has(table, field)).map(DeclaredTable::title).collect()
}

/// Returns a line for each key of a table of another trainer: its name here, or the table that has a key of the same name. Keys of
/// the table with the name `close`, which was probably meant, have none.
fn translated_keys(
    problems: &Problems<'_>,
    (name, close): (&str, Option<&str>),
    table: &Dict,
) -> Vec<String> {
    let mut found = Vec::new();
    leaves(name, table, &mut |path, name| {
        let line = alias::line(path, problems.only_model());
        found.extend(line.or_else(|| home_line(path, name, close)));
    });
    let more = found.len().saturating_sub(TRANSLATED);
    found.truncate(TRANSLATED);
    found.extend((more > 0).then(|| format!("and {more} more")));
    found
}

/// Returns a line with the table that has a key; `None` if none has it, or one that was probably meant.
fn home_line(path: &str, name: &str, close: Option<&str>) -> Option<String> {
    let mut homes = TABLES.iter().filter(|table| name != "name" && has(table, name));
    let title = homes.clone().next()?.title();
    let is_close = homes.any(|table| table.place().iter().any(|part| Some(&**part) == close));
    (!is_close).then(|| format!("`{path}` belongs to {title}"))
}

/// Calls `with` for every key that has a value, also in nested tables, with the path to it and its name.
fn leaves(path: &str, table: &Dict, with: &mut impl FnMut(&str, &str)) {
    for (name, value) in table {
        let path = format!("{path}.{name}");
        match value {
            Value::Dict(_, inner) => leaves(&path, inner, with),
            _ => with(&path, name),
        }
    }
}

/// Returns the known value that was probably meant.
fn variant<'v>(path: &[String], found: &str, known: &[&'v str]) -> Option<&'v str> {
    let key = path.last().map_or("", String::as_str);
    let named = alias::value(key, found).and_then(|ours| known.iter().find(|name| **name == ours));
    named.copied().or_else(|| did_you_mean(found, known.iter().copied()))
}

/// Formats a value as it was written, or else as it was parsed.
fn show_value(found: &Actual, written: Option<&str>) -> String {
    match (found, written) {
        (Actual::Float(_), Some(written)) => written.to_owned(),
        (Actual::Bool(value), _) => value.to_string(),
        (Actual::Unsigned(value), _) => value.to_string(),
        (Actual::Signed(value), _) => value.to_string(),
        (Actual::Float(value), None) => value.to_string(),
        (Actual::Str(value), _) => format!("{value:?}"),
        (Actual::Seq, _) => "a list".to_owned(),
        (Actual::Map, _) => "a table".to_owned(),
        (other, _) => other.to_string(),
    }
}

/// Describes the expected type, with the violated bound if the number is out of range.
fn range(found: &Actual, expected: &str) -> String {
    let whole = plain_type(expected);
    let large = match found {
        Actual::Unsigned(n) => *n > u128::from(u32::MAX),
        Actual::Signed(n) => *n > i128::from(u32::MAX),
        _ => false,
    };
    if large && expected.ends_with("u32") {
        format!("{whole} to {}", u32::MAX)
    } else {
        whole.to_owned()
    }
}

/// Translates serde's expectations into the terms of the user.
pub(crate) fn plain_type(expected: &str) -> &str {
    match expected {
        "u32" | "u64" | "usize" => "a whole number from 0",
        "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => "a whole number from 1",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "text in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        "an array of length 4" => "a list of 4 numbers",
        "a tuple of size 2" => "a list of 2 numbers",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// Returns help for a number with a unit, of a key whose name ends with its own unit.
fn in_unit(name: &str, text: &str) -> Option<String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text[..text.len() - unit.len()].parse().ok()?;
    let (of_key, factor) = match (name.rsplit_once('_')?.1, unit.trim().to_lowercase().as_str()) {
        ("mib", "m" | "mb" | "mib") => ("MiB", 1.0),
        ("mib", "g" | "gb" | "gib") => ("MiB", 1024.0),
        ("s", "ms") => ("seconds", 1e-3),
        ("s", "s" | "sec" | "secs" | "seconds") => ("seconds", 1.0),
        ("s", "m" | "min" | "minute" | "minutes") => ("seconds", 60.0),
        ("s", "h" | "hour" | "hours") => ("seconds", 3600.0),
        _ => return None,
    };
    Some(format!("a number of {of_key} without a unit: write `{name} = {}`", number * factor))
}

/// Returns help for a value of the wrong type: the corrected line. `whole` is false for an item of a list.
fn instead(path: &[String], found: &Actual, expected: &str, whole: bool) -> Option<String> {
    let name = path.last()?;
    match (expected, found) {
        ("a table", _) => table(path, found),
        ("true or false", found) => {
            let text = match found {
                Actual::Str(text) => text.to_lowercase(),
                Actual::Unsigned(n) => n.to_string(),
                Actual::Signed(n) => n.to_string(),
                _ => return None,
            };
            let value = match text.as_str() {
                "true" | "yes" | "on" | "1" => "true",
                "false" | "no" | "off" | "0" => "false",
                _ => return None,
            };
            Some(format!("write `{name} = {value}`"))
        }
        (_, Actual::Str(text)) if text.parse::<f64>().is_ok() && expected.contains("number") => {
            Some("write it without quotes".to_owned())
        }
        (expected, Actual::Str(text)) if expected.contains("number") => {
            let none = ["all", "none", "null", "auto", "unlimited", "inf", "max", ""];
            let none = none.contains(&text.to_lowercase().as_str());
            let default = none.then(|| "without the line the key has its default".to_owned());
            default.or_else(|| in_unit(name, text))
        }
        (expected, Actual::Float(value)) if expected.starts_with("a whole number") => {
            let whole = value.fract() == 0.0 && *value >= 0.0 && *value < 1e18;
            whole.then(|| format!("write it without point and exponent: `{name} = {value:.0}`"))
        }
        ("text in quotes", found) if whole => match found {
            Actual::Bool(value) => Some(format!("write `{name} = \"{value}\"`")),
            Actual::Unsigned(value) => Some(format!("write `{name} = \"{value}\"`")),
            Actual::Signed(value) => Some(format!("write `{name} = \"{value}\"`")),
            Actual::Float(value) => Some(format!("write `{name} = \"{value}\"`")),
            Actual::Seq => Some("it is one text, not several".to_owned()),
            _ => None,
        },
        // A program with its arguments.
        ("a list", Actual::Str(text)) if name == "command" => {
            Some(format!("write `{name} = {:?}`", text.split_whitespace().collect::<Vec<_>>()))
        }
        ("a list", Actual::Str(text)) => Some(format!("write `{name} = [{text:?}]`")),
        ("a list", Actual::Unsigned(n)) => Some(format!("write `{name} = [{n}]`")),
        ("a list", Actual::Signed(n)) => Some(format!("write `{name} = [{n}]`")),
        _ => None,
    }
}

/// Returns help for a value in place of a table: the key in it that was meant.
fn table(path: &[String], found: &Actual) -> Option<String> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    if matches!(found, Actual::Seq) {
        return Some(format!("`[[{0}]]` makes a list: write `[{0}]`", key(path)));
    }
    let (last, value) = match (parts.as_slice(), found) {
        (
            [
                table @ ("models" | "endpoints" | "teachers" | "agents" | "rewards"
                | "worker_groups"),
                field,
            ],
            _,
        ) if is_key(table, field) => {
            return Some(format!("its keys stand under a name: `[{table}.{}]`", example(table)));
        }
        (["algorithm" | "orchestra" | "environment"], Actual::Str(text)) => {
            ("name", format!("{text:?}"))
        }
        (["algorithm", "advantage"], Actual::Str(text)) => ("kind", format!("{text:?}")),
        (["task"] | ["eval"], Actual::Str(text)) => ("data", format!("{text:?}")),
        (["eval"], Actual::Bool(false)) => ("before_and_after", "false".to_owned()),
        (["checkpoint"], Actual::Unsigned(n)) => ("every", n.to_string()),
        (["checkpoint"], Actual::Signed(n)) => ("every", n.to_string()),
        (["record"], Actual::Unsigned(n)) => ("tokens_every", n.to_string()),
        (["models"], Actual::Str(text)) => {
            return Some(format!("write `models.NAME.path = {text:?}`"));
        }
        (["models", _], Actual::Str(text)) => ("path", format!("{text:?}")),
        (["teachers" | "agents", _], Actual::Str(text)) => ("model", format!("{text:?}")),
        (["endpoints", _], Actual::Str(text)) => ("url", format!("{text:?}")),
        (["worker_groups", _], Actual::Str(text)) => ("device", format!("{text:?}")),
        (["rewards", _], found) => match found {
            Actual::Float(weight) => ("weight", weight.to_string()),
            Actual::Unsigned(weight) => ("weight", weight.to_string()),
            Actual::Signed(weight) => ("weight", weight.to_string()),
            Actual::Bool(true) => ("weight", "1.0".to_owned()),
            _ => return None,
        },
        ([.., "lora"], Actual::Bool(true)) => {
            return Some("write `lora = {}` for an adapter with every default".to_owned());
        }
        ([.., "lora"], Actual::Bool(false)) => {
            return Some("remove it: without it no adapter is trained".to_owned());
        }
        ([.., "lora"], Actual::Unsigned(rank)) => ("rank", rank.to_string()),
        ([.., "lora"], Actual::Signed(rank)) => ("rank", rank.to_string()),
        ([.., "optim"], Actual::Str(_)) => {
            let help = "the optimizer is AdamW; `optim = { lr = 1e-6 }` sets its step size";
            return Some(help.to_owned());
        }
        ([.., "optim"], Actual::Float(lr)) => ("lr", format!("{lr:?}")),
        _ => return Some(format!("write it as a table, `[{}]`, with keys in it", key(path))),
    };
    Some(format!("write `{}.{last} = {value}`", key(path)))
}

/// Returns true for a key of the tables in `[models]`, `[agents]` and so on.
fn is_key(table: &str, name: &str) -> bool {
    let inner = TABLES.iter().find(|known| known.title().starts_with(&format!("`[{table}.")));
    inner.is_some_and(|inner| has(inner, name))
}

/// Returns true if a table has a key.
fn has(table: &DeclaredTable, name: &str) -> bool {
    table.keys.iter().any(|key| key.name == name)
}

fn example(table: &str) -> &'static str {
    if table == "agents" { "\"team/role\"" } else { "NAME" }
}

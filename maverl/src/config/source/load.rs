//! The merged layers as a typed configuration, every unknown key and wrong type reported.

use figment::error::{Error, Kind};
use figment::value::Value;

use super::names::{key, path_within};
use super::problems::Problems;
use super::wrong;
use crate::config::Config;
use crate::settings::read;

/// Maximum number of wrong keys and values that are looked for: after each, the configuration is read again.
const MOST: usize = 1000;

/// The configuration of the merged layers. What is wrong is reported, taken out, and so has its default.
pub(super) fn config(problems: &mut Problems<'_>) -> Config {
    let mut value = problems.layers().merged_values().clone();
    read_repaired(&mut value, &[], read, problems).unwrap_or_default()
}

/// Reads a table at a place with `read`. Wrong values are reported and taken out; `None` if nothing can be read then.
pub(super) fn read_repaired<T>(
    value: &mut Value,
    table: &[String],
    read: fn(&Value) -> Result<T, Box<Error>>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    for _ in 0..MOST {
        let error = match read(value) {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        if let Kind::MissingField(field) = &error.kind {
            report_missing(problems, &error.path, field);
            if put_value(value, &path_within(&error.path, field), "".into()) {
                continue;
            }
        } else if let Some((depth, taken)) = take(value, &error.path) {
            let path = [table, &error.path].concat();
            let depth = table.len() + depth;
            wrong::report(problems, &path, depth, (&error.kind, &taken));
            problems.mark_removed(&path[..depth]);
            continue;
        }
        problems.report_whole(error.kind.to_string(), None);
        return None;
    }
    problems.report_whole(
        format!("{MOST} keys and values are wrong; the others were not looked at"),
        None,
    );
    None
}

fn report_missing(problems: &mut Problems<'_>, table: &[String], field: &str) {
    let message = format!("`{}` has no `{field}`", key(table));
    let help = "write `path = \"builtin:tiny\"`, or the path of a Hugging Face model directory";
    problems.key(&path_within(table, field), message, help.to_owned());
}

/// Takes out the innermost value on a path (a whole list for an item of it), with how many keys lead to it.
fn take(value: &mut Value, path: &[String]) -> Option<(usize, Value)> {
    let (first, rest) = path.split_first()?;
    let Value::Dict(_, dict) = value else { return None };
    if let Some((depth, taken)) = dict.get_mut(first).and_then(|inner| take(inner, rest)) {
        return Some((depth + 1, taken));
    }
    dict.remove(first).map(|taken| (1, taken))
}

fn put_value(value: &mut Value, path: &[String], new: Value) -> bool {
    let Value::Dict(_, dict) = value else { return false };
    match path {
        [] => false,
        [last] => dict.insert(last.clone(), new).is_none(),
        [first, rest @ ..] => dict.get_mut(first).is_some_and(|inner| put_value(inner, rest, new)),
    }
}

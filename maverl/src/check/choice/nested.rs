//! Unknown keys of tables within an option, such as those of `[[orchestra.nodes]]`.

use serde_json::{Value, json};

use crate::config::source::{Problems, alias, key, path_within, suggestion};

/// Reports every unknown key of the tables in an option, and returns the option without them.
pub(super) fn without_unknown<T>(
    at: &[String],
    value: &Value,
    build: &dyn Fn(&Value) -> Result<T, String>,
    problems: &mut Problems<'_>,
) -> Value {
    let name = at.last().map_or("", String::as_str);
    let Value::Array(items) = value else {
        let table = NestedTable { at, name: key(at) };
        return table.report_unknown_keys(value, |table| build(&json!({ name: table })), problems);
    };
    let mut known = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let (at, name_of_item) = (path_within(at, &i.to_string()), format!("{}[{i}]", key(at)));
        let table = NestedTable { at: &at, name: name_of_item };
        known.push(table.report_unknown_keys(item, |it| build(&json!({ name: [it] })), problems));
    }
    known.into()
}

/// A table within an option.
struct NestedTable<'a> {
    at: &'a [String],
    name: String,
}

impl NestedTable<'_> {
    /// Reports every unknown key of the table, and returns the table without them.
    fn report_unknown_keys<T>(
        &self,
        value: &Value,
        build: impl Fn(Value) -> Result<T, String>,
        problems: &mut Problems<'_>,
    ) -> Value {
        let Value::Object(mut table) = value.clone() else { return value.clone() };
        // Reading a table ends at its first unknown key.
        while let Err(error) = build(table.clone().into()) {
            let Some((field, known)) = unknown_field(&error) else { break };
            if table.remove(field).is_none() {
                break;
            }
            let help = alias::help(field, problems.only_model());
            let help = help.unwrap_or_else(|| suggestion(field, known.iter().copied()));
            let message = format!("unknown key `{}.{}`", self.name, key(&[field.to_owned()]));
            problems.key(&path_within(self.at, field), message, help);
        }
        table.into()
    }
}

/// Returns the unknown field of serde's message, and the fields that it names instead.
fn unknown_field(error: &str) -> Option<(&str, Vec<&str>)> {
    let (_, rest) = error.split_once("unknown field `")?;
    let (field, known) = rest.split_once("`, expected ")?;
    Some((field, known.split('`').skip(1).step_by(2).collect()))
}

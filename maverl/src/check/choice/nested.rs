//! Unknown keys of tables within an option, such as those of `[[orchestra.nodes]]`.

use serde_json::{Map, Value};

use crate::config::source::{Problems, alias, key, path_within, suggestion};

/// Reports every unknown key of the tables in an option, and returns the option without them.
pub(super) fn without_unknown(
    at: &[String],
    value: &Value,
    build: &dyn Fn(&Value) -> Result<(), String>,
    problems: &mut Problems<'_>,
) -> Value {
    let name = at.last().cloned().unwrap_or_default();
    let alone = |value: Value| build(&Value::Object(Map::from_iter([(name.clone(), value)])));
    match value {
        Value::Array(items) => {
            let mut known = Vec::new();
            for (i, item) in items.iter().enumerate() {
                let table = NestedTable {
                    at: &path_within(at, &i.to_string()),
                    name: format!("{}[{i}]", key(at)),
                };
                known.push(table.report_unknown_keys(
                    item,
                    |item| alone(vec![item].into()),
                    problems,
                ));
            }
            known.into()
        }
        _ => NestedTable { at, name: key(at) }.report_unknown_keys(value, alone, problems),
    }
}

/// A table within an option.
struct NestedTable<'a> {
    at: &'a [String],
    name: String,
}

impl NestedTable<'_> {
    /// Reports every unknown key of the table, and returns the table without them.
    fn report_unknown_keys(
        &self,
        value: &Value,
        build: impl Fn(Value) -> Result<(), String>,
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

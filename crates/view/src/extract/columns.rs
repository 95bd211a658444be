//! Rows as columns of one type each.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::compact::sort_by;
use maverl::output::visible;

/// Columns of texts of models, which CSV leaves out.
const TEXTS: [&str; 4] = ["answer", "prompt", "reply", "error"];

/// Values of a column; `None` where a row has none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TableColumn {
    Bool(Vec<Option<bool>>),
    Int(Vec<Option<i64>>),
    Float(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
}

/// Columns by name: the keys of rows first, then all others by name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableColumns {
    pub(crate) rows: usize,
    pub(crate) columns: Vec<(String, TableColumn)>,
}

impl TableColumns {
    /// Returns the columns of rows, with or without the texts of models.
    pub(crate) fn from_rows(rows: &[Map<String, Value>], texts: bool) -> Self {
        let mut names: Vec<&str> = Vec::new();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for name in rows.iter().flat_map(Map::keys) {
            if known.insert(name) && (texts || !TEXTS.contains(&name.as_str())) {
                names.push(name);
            }
        }
        sort_by(&mut names, |a, b| (column_rank(a), a).cmp(&(column_rank(b), b)));
        let columns = names.into_iter().map(|name| {
            (name.to_owned(), TableColumn::from_values(rows.iter().map(|row| row.get(name))))
        });
        Self { rows: rows.len(), columns: columns.collect() }
    }

    /// Writes CSV (RFC 4180) with a line of names.
    pub(crate) fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let names: Vec<String> = self.columns.iter().map(|(name, _)| quote_cell(name)).collect();
        writeln!(out, "{}", names.join(","))?;
        for row in 0..self.rows {
            let cells: Vec<String> =
                self.columns.iter().map(|(_, column)| column.csv_cell(row)).collect();
            writeln!(out, "{}", cells.join(","))?;
        }
        Ok(())
    }
}

impl TableColumn {
    fn from_values<'v>(values: impl Iterator<Item = Option<&'v Value>> + Clone) -> Self {
        let values = values.map(|value| value.filter(|value| !value.is_null()));
        let all = |is: fn(&Value) -> bool| values.clone().flatten().all(is);
        match () {
            () if all(Value::is_boolean) => {
                Self::Bool(values.map(|value| value.and_then(Value::as_bool)).collect())
            }
            () if all(Value::is_i64) => {
                Self::Int(values.map(|value| value.and_then(Value::as_i64)).collect())
            }
            () if all(Value::is_number) => {
                Self::Float(values.map(|value| value.and_then(Value::as_f64)).collect())
            }
            () => Self::Text(values.map(|value| value.map(value_text)).collect()),
        }
    }

    /// Returns a value as CSV; nothing if the row has none.
    fn csv_cell(&self, row: usize) -> String {
        let found = match self {
            Self::Bool(values) => values[row].map(|value| value.to_string()),
            Self::Int(values) => values[row].map(|value| value.to_string()),
            // As JSON writes it: the shortest text of the same number.
            Self::Float(values) => values[row].map(|value| Value::from(value).to_string()),
            Self::Text(values) => values[row].as_deref().map(quote_cell),
        };
        found.unwrap_or_default()
    }
}

pub(super) fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the rank of a column. The keys of a row come first.
fn column_rank(name: &str) -> usize {
    let keys = ["step", "stage", "n", "source", "task", "index", "turn", "path", "seat"];
    keys.iter().position(|key| *key == name).unwrap_or(keys.len())
}

/// Quotes a text if it needs quotes. A text that spreadsheets would take for a formula begins with an apostrophe. Hidden
/// characters are marked, as in a terminal.
fn quote_cell(text: &str) -> String {
    let text = visible(text).into_owned();
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t']);
    let text = if is_formula { format!("'{text}") } else { text };
    let needs_quotes = text.contains(['"', ',', '\n']);
    if needs_quotes { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn columns_have_one_type_and_rows_that_lack_one_are_empty() {
        let rows = [
            json!({ "loss": 1, "step": 1, "seat": "a,b", "reply": "secret", "good": true }),
            json!({ "loss": 0.1, "step": 2, "seat": "=1+1", "good": null, "n\"x": 1e-9 }),
            json!({ "loss": 0.2, "step": 3, "seat": "a\u{1b}[2J\u{202e}\r" }),
        ];
        let rows: Vec<_> = rows.iter().map(|row| row.as_object().unwrap().clone()).collect();
        let mut out = Vec::new();
        TableColumns::from_rows(&rows, false).write_csv(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "step,seat,good,loss,\"n\"\"x\"\n1,\"a,b\",true,1.0,\n2,'=1+1,,0.1,1e-9\n3,a<U+001B>[2J<U+202E><U+000D>,,0.2,\n";
        assert_eq!(text, expected);
        let all = TableColumns::from_rows(&rows, true);
        let of = |name: &str| all.columns.iter().find(|(of, _)| of == name).unwrap().1.clone();
        assert_eq!(of("step"), TableColumn::Int(vec![Some(1), Some(2), Some(3)]));
        assert_eq!(of("good"), TableColumn::Bool(vec![Some(true), None, None]));
        assert_eq!(of("reply"), TableColumn::Text(vec![Some("secret".to_owned()), None, None]));
    }
}

//! Metrics of a run by step, as columns.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Rows of `metrics.jsonl` and `timing.jsonl`, with rows of the same step merged.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// Steps, ascending.
    steps: Vec<u64>,
    /// Values of each name by the index of the step; NaN where there is none.
    columns: BTreeMap<String, Vec<f64>>,
}

impl Series {
    /// Adds a line. A line that is not a row is skipped: the file is verified elsewhere.
    pub(crate) fn add_line(&mut self, line: &[u8]) {
        let Ok(row) = serde_json::from_slice::<Map<String, Value>>(line) else { return };
        let Some(step) = row.get("step").and_then(Value::as_u64) else { return };
        let at = self.index_of(step);
        let numbers = row.iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
        for (name, value) in numbers.filter(|(name, _)| *name != "step") {
            if !self.columns.contains_key(name) {
                self.columns.insert(name.clone(), Vec::new());
            }
            if let Some(column) = self.columns.get_mut(name) {
                column.resize(column.len().max(at + 1), f64::NAN);
                column[at] = value;
            }
        }
    }

    /// Returns the index of a step; a new step gets one.
    fn index_of(&mut self, step: u64) -> usize {
        match self.steps.binary_search(&step) {
            Ok(at) => at,
            Err(at) => {
                self.steps.insert(at, step);
                for column in self.columns.values_mut().filter(|column| column.len() > at) {
                    column.insert(at, f64::NAN);
                }
                at
            }
        }
    }

    /// Returns the last step with a row.
    pub(crate) fn last_step(&self) -> Option<u64> {
        self.steps.last().copied()
    }

    /// Returns the names of all columns.
    pub(crate) fn column_names(&self) -> impl Iterator<Item = &str> {
        self.columns.keys().map(String::as_str)
    }

    /// Returns the values of a name with their steps.
    pub(crate) fn values_of(&self, name: &str) -> Vec<(u64, f64)> {
        let column = self.columns.get(name).map_or(&[][..], Vec::as_slice);
        let pairs = self.steps.iter().copied().zip(column.iter().copied());
        pairs.filter(|(_, value)| !value.is_nan()).collect()
    }

    /// Returns the columns that `names` selects, from a step on. A name may end with `*`; no name selects all. An answer
    /// with more than `most` values ends early, and `next` is the step at which to continue.
    pub(crate) fn select_columns(&self, names: &[&str], from: u64, most: usize) -> Value {
        let first = self.steps.partition_point(|step| *step < from);
        let columns = self.columns.iter().filter(|(name, _)| {
            names.is_empty() || names.iter().any(|pattern| fits_pattern(name, pattern))
        });
        let columns: Vec<_> = columns.collect();
        let fit = most / (columns.len() + 1);
        let end = self.steps.len().min(first.saturating_add(fit.max(1)));
        let columns = columns.into_iter().map(|(name, values)| {
            let column = (first..end).map(|at| values.get(at).copied().unwrap_or(f64::NAN));
            // NaN becomes null.
            (name.clone(), column.collect::<Vec<f64>>().into())
        });
        let columns: Map<String, Value> = columns.collect();
        object!({
            "steps": &self.steps[first..end], "columns": columns, "next": self.steps.get(end),
        })
    }
}

/// Returns true if a name is a pattern, or begins with one that ends with `*`.
fn fits_pattern(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Number of values of an answer of 8 MiB.
    const MOST: usize = (8 << 20) / 32;

    #[test]
    fn rows_of_a_step_are_one_and_missing_values_are_null() {
        let mut series = Series::default();
        for line in [
            "{\"step\":0,\"eval/a\":0.25}",
            "{\"step\":1,\"loss\":-0.1,\"kl\":1e-9}",
            "not json",
            "{\"step\":2,\"loss\":0.30000000000000004}",
            "{\"step\":2,\"eval/a\":0.5}",
        ] {
            series.add_line(line.as_bytes());
        }
        let all = series.select_columns(&[], 0, MOST);
        assert_eq!(all["steps"], json!([0, 1, 2]));
        assert_eq!(all["columns"]["eval/a"], json!([0.25, null, 0.5]));
        assert_eq!(all["columns"]["loss"], json!([null, -0.1, 0.30000000000000004]));
        assert_eq!(all["columns"]["kl"], json!([null, 1e-9, null]));
        let some = series.select_columns(&["eval/*", "kl"], 1, MOST);
        assert_eq!(
            some,
            json!({
                "steps": [1, 2], "columns": {"eval/a": [null, 0.5], "kl": [1e-9, null]}, "next": null,
            })
        );
        assert_eq!(series.values_of("loss"), [(1, -0.1), (2, 0.30000000000000004)]);
        assert_eq!(series.last_step(), Some(2));
    }

    #[test]
    fn more_values_than_fit_into_an_answer_are_several_answers() {
        let mut series = Series::default();
        let row: Map<String, Value> =
            (0..300).map(|i| (format!("a/{i}"), json!(-0.1 / 3.0))).collect();
        for step in 0..900 {
            let mut row = row.clone();
            row.insert("step".to_owned(), step.into());
            series.add_line(Value::from(row).to_string().as_bytes());
        }
        let (mut from, mut steps, mut answers) = (Some(0), Vec::new(), 0);
        while let Some(start) = from {
            let part = series.select_columns(&[], start, MOST);
            assert!(part.to_string().len() < 32 * MOST);
            let of_part = part["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
            assert!(part["columns"]["a/7"].as_array().is_some_and(|of| of.len() == of_part.len()));
            steps.extend(of_part.iter().filter_map(Value::as_u64));
            (from, answers) = (part["next"].as_u64(), answers + 1);
        }
        assert_eq!((steps, answers), ((0..900).collect(), 2));
        assert_eq!(series.select_columns(&["a/1"], 0, MOST)["next"], Value::Null);
        assert_eq!(series.select_columns(&[], 0, usize::MAX)["next"], Value::Null, "all of them");
    }
}

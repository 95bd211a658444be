//! What a task wants: an answer, files, rows of the database. Nothing but what is there in the end counts.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::start::Bench;
use super::state::{State, files};
use crate::env::EnvError;
use crate::env::math::{Verdict, calculate, compare};
use crate::env::search::exact_match;
use crate::task::Task;

/// What must be so at the end of an episode; all of it, and at least one thing.
#[derive(Debug, PartialEq)]
pub(super) struct Goal<'t> {
    /// One of them must be given.
    answers: Vec<&'t str>,
    /// Files that are to be written, or deleted (`null`), and no others.
    files: Option<&'t Map<String, Value>>,
    /// A query, and the rows it must give.
    query: Option<(&'t str, &'t [Value])>,
}

impl<'t> Goal<'t> {
    pub(super) fn read(task: &'t Task) -> Result<Self, EnvError> {
        let wrong = |what: &str| {
            EnvError::new(format!("the task `{}` of `{}`: {what}", task.id, task.source))
        };
        let answers = task.data.get("answers").and_then(Value::as_array);
        let answers = answers.into_iter().flatten().filter_map(Value::as_str).collect();
        let mut goal = Self { answers, files: None, query: None };
        match task.data.get("goal") {
            None => {}
            Some(Value::Object(wanted)) => goal.read_state(wanted).map_err(|what| wrong(&what))?,
            Some(other) => return Err(wrong(&format!("`goal` is {other}; write an object"))),
        }
        if goal.answers.is_empty() && goal.files.is_none() && goal.query.is_none() {
            return Err(wrong(
                "nothing to judge by; give its row an `answer`, or a `goal` of `files`, or of a `query` and its `rows`",
            ));
        }
        Ok(goal)
    }

    fn read_state(&mut self, wanted: &'t Map<String, Value>) -> Result<(), String> {
        let known = ["files", "query", "rows"];
        if let Some(key) = wanted.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!("`goal` has `{key}`; there is `files`, `query` and `rows`"));
        }
        self.files = match wanted.get("files") {
            None => None,
            Some(Value::Object(files))
                if files.values().all(|text| text.is_string() || text.is_null()) =>
            {
                Some(files)
            }
            Some(other) => {
                return Err(format!(
                    "`goal.files` is {other}; write texts, or null for a file that is gone, by path"
                ));
            }
        };
        self.query = match (wanted.get("query"), wanted.get("rows")) {
            (None, None) => None,
            (Some(Value::String(query)), Some(Value::Array(rows))) => {
                Some((query.as_str(), rows.as_slice()))
            }
            _ => {
                return Err(
                    "`goal` wants a `query`, a text, and its `rows`, a list of lists".to_owned()
                );
            }
        };
        Ok(())
    }

    /// Whether all of it is so.
    ///
    /// # Errors
    ///
    /// If the database cannot be asked.
    pub(super) fn met(
        &self,
        bench: &Bench,
        task: &Task,
        state: &State,
        answer: Option<&str>,
    ) -> Result<bool, EnvError> {
        let answered = || {
            let answer = answer.unwrap_or_default();
            self.answers.iter().any(|reference| says(answer, reference))
        };
        if !(self.answers.is_empty() || answered()) || !self.files_as_wanted(task, state) {
            return Ok(false);
        }
        match self.query {
            None => Ok(true),
            Some((query, rows)) => Ok(bench.rows(task, state, query)?.as_deref() == Some(rows)),
        }
    }

    /// The files that are to be changed say what they should, and no other was changed.
    fn files_as_wanted(&self, task: &Task, state: &State) -> bool {
        let Some(wanted) = self.files else { return true };
        let mut end = files(task);
        end.extend(
            wanted.iter().map(|(path, text)| (path.clone(), text.as_str().map(str::to_owned))),
        );
        // A file that never was and one that was written and deleted are the same; so is a line's end at the end.
        let there = |files: &BTreeMap<String, Option<String>>| -> Vec<(String, Option<String>)> {
            let trimmed = |text: &String| text.trim_end().to_owned();
            let gone = |path: &String| wanted.get(path).is_some_and(Value::is_null);
            let kept = files.iter().filter(|(path, text)| text.is_some() || gone(path));
            kept.map(|(path, text)| (path.clone(), text.as_ref().map(trimmed))).collect()
        };
        there(&end) == there(&state.files)
    }
}

/// Whether an answer is the reference: as a number if that is one, else word for word.
fn says(answer: &str, reference: &str) -> bool {
    let answer = answer.trim();
    if calculate(reference).is_err() {
        return exact_match(answer, reference);
    }
    // An expression that has the value is the question once more.
    let literal = answer.strip_prefix(['-', '+']).unwrap_or(answer);
    let literal = literal.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',');
    answer == reference || (literal && compare(answer, reference) == Verdict::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_number_or_words() {
        for (answer, reference) in [
            ("42", "42"),
            (" 42.0 ", "42"),
            ("1,200", "1200"),
            ("-3", "-3"),
            ("7/2", "7/2"),
            ("3.5", "7/2"),
            ("The lamp.", "lamp"),
        ] {
            assert!(says(answer, reference), "{answer} {reference}");
        }
        for (answer, reference) in [
            ("40 + 2", "42"),
            ("6*7", "42"),
            ("84/2", "42"),
            ("41 42", "42"),
            ("42 or 43", "42"),
            ("it is 42", "42"),
            ("\\boxed{42}", "42"),
            ("4.2", "42"),
            ("", "42"),
            ("lamp cup pen", "lamp"),
            ("", "lamp"),
        ] {
            assert!(!says(answer, reference), "{answer} {reference}");
        }
    }
}

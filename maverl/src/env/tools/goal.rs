//! Goal of a task: an answer, files, rows of the database. Only the final state counts.

use maverl_answers::{AnswerVerdict, calculate_exactly, compare_answers};
use serde_json::{Map, Value};

use super::files::check_clean;
use super::start::ToolSet;
use super::state::{State, files};
use crate::env::EnvError;
use crate::env::search::{exact_match, normalize};
use crate::task::Task;

/// First words of a read-only query.
const ASKING: [&str; 4] = ["SELECT", "WITH", "VALUES", "PRAGMA"];

/// Conditions that must all hold at the end of an episode; at least one is present.
#[derive(Debug, PartialEq)]
pub(super) struct Goal<'t> {
    /// Accepted answers; one of them must be given.
    answers: Vec<&'t str>,
    /// Files that must be written, or deleted (`null`); no others may change.
    files: Option<&'t Map<String, Value>>,
    /// A query, and the rows it must return.
    query: Option<(&'t str, &'t [Value])>,
}

impl<'t> Goal<'t> {
    pub(super) fn read(task: &'t Task) -> Result<Self, EnvError> {
        let answers = task.data.get("answers").and_then(Value::as_array);
        let answers = answers.into_iter().flatten().filter_map(Value::as_str).collect();
        let mut goal = Self { answers, files: None, query: None };
        match task.data.get("goal") {
            None => {}
            Some(Value::Object(wanted)) => {
                goal.read_state(wanted).map_err(|what| EnvError::of_task(task, what))?;
            }
            Some(other) => {
                let what = format!("`goal` is {other}; write an object");
                return Err(EnvError::of_task(task, what));
            }
        }
        if goal.answers.is_empty() && goal.files.is_none() && goal.query.is_none() {
            return Err(EnvError::of_task(
                task,
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

    /// Checks that some end of an episode satisfies all conditions.
    pub(super) fn can_be_reached(&self) -> Result<(), String> {
        let never = self
            .answers
            .iter()
            .find(|answer| normalize(answer).is_empty() && calculate_exactly(answer).is_err());
        if let Some(answer) = never {
            return Err(format!(
                "`answer` is {answer:?}, which nothing that is said can be; write a number or words"
            ));
        }
        self.files
            .into_iter()
            .flat_map(Map::keys)
            .try_for_each(|path| check_clean(path, "goal.files"))?;
        let Some((query, rows)) = self.query else { return Ok(()) };
        let word = first_word(query).to_ascii_uppercase();
        if !ASKING.contains(&word.as_str()) {
            return Err(format!("`goal.query` is {query:?}; write a SELECT"));
        }
        match rows.iter().find(|row| !is_row(row)) {
            None => Ok(()),
            Some(row) => Err(format!(
                "`goal.rows` has {row}; write each row as a list of numbers, texts and nulls"
            )),
        }
    }

    /// Checks that not all conditions hold when an episode begins.
    pub(super) fn can_be_missed(&self, task: &Task) -> Result<(), String> {
        let alone = self.answers.is_empty() && self.query.is_none();
        if alone && self.files_as_wanted(task, &State::open(task)) {
            return Err(
                "`goal.files` is as an episode begins; write what must have changed in the end"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Returns true if all conditions hold.
    ///
    /// # Errors
    ///
    /// If the database cannot be queried.
    pub(super) fn is_met(
        &self,
        tool_set: &ToolSet,
        task: &Task,
        state: &State,
        answer: Option<&str>,
    ) -> Result<bool, EnvError> {
        let mut references = self.answers.iter();
        let said = answer.unwrap_or_default();
        let answered = self.answers.is_empty() || references.any(|reference| says(said, reference));
        if !answered || !self.files_as_wanted(task, state) {
            return Ok(false);
        }
        match self.query {
            None => Ok(true),
            Some((query, rows)) => Ok(tool_set.rows(task, state, query)?.as_deref() == Some(rows)),
        }
    }

    /// Returns true if the named files have the wanted contents, and no other file was changed.
    fn files_as_wanted(&self, task: &Task, state: &State) -> bool {
        let Some(wanted) = self.files else { return true };
        let mut end = files(task);
        end.extend(
            wanted.iter().map(|(path, text)| (path.clone(), text.as_str().map(str::to_owned))),
        );
        // A file that never existed equals one that was written and deleted; a final newline is ignored.
        let [end, found] = [&end, &state.files].map(|files| {
            let kept = files.iter().filter(|(path, text)| {
                text.is_some() || wanted.get(*path).is_some_and(Value::is_null)
            });
            kept.map(|(path, text)| (path, text.as_deref().map(str::trim_end)))
        });
        end.eq(found)
    }
}

/// Returns true for a list of numbers, texts and nulls that is not empty.
fn is_row(row: &Value) -> bool {
    let cells = row.as_array().filter(|cells| !cells.is_empty());
    cells.is_some_and(|cells| {
        !cells.iter().any(|it| it.is_boolean() || it.is_array() || it.is_object())
    })
}

/// Returns the first word of a statement after comments.
fn first_word(sql: &str) -> &str {
    let mut rest = sql.trim_start();
    loop {
        let after = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n'),
            (_, Some(comment)) => comment.split_once("*/"),
            _ => break,
        };
        rest = after.map_or("", |(_, after)| after).trim_start();
    }
    rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default()
}

/// Returns true if an answer equals the reference: as a number if the reference is one, else word for word.
fn says(answer: &str, reference: &str) -> bool {
    let answer = answer.trim();
    if calculate_exactly(reference).is_err() {
        return !answer.is_empty() && exact_match(answer, reference);
    }
    // An unevaluated expression with the right value only repeats the question.
    let literal = answer.strip_prefix(['-', '+']).unwrap_or(answer);
    let literal = literal.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',');
    answer == reference || (literal && compare_answers(answer, reference) == AnswerVerdict::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_a_statement_stands_behind_its_comments() {
        for (sql, word) in [
            ("select 1", "select"),
            (" -- DELETE\n /* or\nso */SELECT*FROM t", "SELECT"),
            ("DELETE FROM t", "DELETE"),
            ("-- nothing", ""),
            ("(SELECT 1)", ""),
        ] {
            assert_eq!(first_word(sql), word, "{sql}");
        }
    }

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

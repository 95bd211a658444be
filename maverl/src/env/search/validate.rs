//! Checks of a search environment before it starts.

use std::borrow::Borrow;

use crate::builtin::facts;
use crate::env::{EnvError, check_answered};
use crate::task::{Task, TaskList};

/// Checks that every task has an answer.
pub(super) fn check_answers(
    tasks: impl IntoIterator<Item = impl Borrow<Task>>,
) -> Result<(), EnvError> {
    check_answered(tasks, |task| task.texts("answers").iter().any(|text| !text.trim().is_empty()))
}

/// Settings that are legal but probably not intended.
pub(super) fn option_warnings(corpus: &str, retriever: &str, tasks: &TaskList) -> Vec<String> {
    let mut warnings = Vec::new();
    // In a mixture, a source begins with the name of the component.
    let mut sources = tasks.sources().iter();
    let own = sources.any(|source| !source.split('/').take(2).any(|part| part == "facts"));
    if own && retriever.is_empty() && corpus == facts::NAME {
        warnings.push(format!(
            "the questions are not those of `{0}`, but `environment.corpus` is `{0}`: name a file of documents that \
             answer them",
            facts::NAME
        ));
    }
    warnings
}

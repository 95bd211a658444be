//! Checks of a search environment before it starts.

use crate::builtin::facts;
use crate::env::EnvError;
use crate::task::Task;

/// Checks that every task has an answer.
pub(super) fn check_answers(tasks: &[Task]) -> Result<(), EnvError> {
    let blank = |task: &&Task| task.texts("answers").iter().all(|text| text.trim().is_empty());
    match tasks.iter().find(blank) {
        Some(Task { id, source, .. }) => Err(EnvError::new(format!(
            "the task `{id}` of `{source}` has no answer to judge by; give its row an `answer`"
        ))),
        None => Ok(()),
    }
}

/// Settings that are legal but probably not intended.
pub(super) fn option_warnings(corpus: &str, retriever: &str, tasks: &[Task]) -> Vec<String> {
    let mut warnings = Vec::new();
    // In a mixture, a source begins with the name of the component.
    let of_facts = |task: &Task| task.source.split('/').take(2).any(|part| part == "facts");
    let own = tasks.iter().any(|task| !of_facts(task));
    if own && retriever.is_empty() && corpus == facts::NAME {
        warnings.push(format!(
            "the questions are not those of `{0}`, but `environment.corpus` is `{0}`: name a file of documents that \
             answer them",
            facts::NAME
        ));
    }
    warnings
}

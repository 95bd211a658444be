//! What is worth a warning before a search environment is started.

use super::{SearchEnvironment, texts};
use crate::builtin::facts;
use crate::task::Task;

/// What is legal, and probably not meant.
pub(super) fn warnings(search: &SearchEnvironment, tasks: &[Task]) -> Vec<String> {
    let mut warnings = Vec::new();
    let unanswered = |task: &&Task| texts(task, "answers").is_empty();
    let without: Vec<&Task> = tasks.iter().filter(unanswered).collect();
    if let Some(first) = without.first() {
        let (n, all) = (without.len(), tasks.len());
        let id = &first.id;
        warnings.push(format!(
            "{n} of {all} tasks have no `answers`, the first is `{id}`: no reply to them can be right"
        ));
    }
    // In a run of several worlds, a source begins with the world's name.
    let of_facts = |task: &Task| task.source.split('/').take(2).any(|part| part == "facts");
    let own = tasks.iter().any(|task| !of_facts(task));
    if own && search.retriever.is_empty() && search.corpus == facts::NAME {
        warnings.push(format!(
            "the questions are not those of `{0}`, but `environment.corpus` is `{0}`: name a file of documents that \
             answer them",
            facts::NAME
        ));
    }
    warnings
}

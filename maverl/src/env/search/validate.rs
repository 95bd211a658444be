//! Warnings about a search environment before it starts.

use crate::builtin::facts;
use crate::task::Task;

/// Settings that are legal but probably not intended.
pub(super) fn option_warnings(corpus: &str, retriever: &str, tasks: &[Task]) -> Vec<String> {
    let mut warnings = Vec::new();
    let unanswered = |task: &&Task| task.texts("answers").is_empty();
    let without: Vec<&Task> = tasks.iter().filter(unanswered).collect();
    if let Some(first) = without.first() {
        let (n, all) = (without.len(), tasks.len());
        let id = &first.id;
        warnings.push(format!(
            "{n} of {all} tasks have no `answers`, the first is `{id}`: their episodes end unscored"
        ));
    }
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

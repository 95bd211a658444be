//! Rows of supervised training that do not fit the models that are trained on them.

use std::collections::BTreeSet;

use crate::check::files::{LoadedTasks, Models, OpenedModel};
use crate::config::source::{Problems, path};
use crate::config::{Config, OverlongText};
use crate::data::{Misfit, RowTexts, misfits};
use crate::plan::{PolicyPlan, WorkerPlan};

/// Number of rows that a message names.
const NAMED: usize = 5;

/// Reports rows that a model cannot be trained on, and those that are longer than its context, as `task.overlong` says. Returns
/// warnings about rows that are left out or cut.
pub(crate) fn check_rows(
    config: &Config,
    loaded: &LoadedTasks,
    (policies, workers): (&[PolicyPlan], &[WorkerPlan]),
    models: &Models,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let trained = policies.iter().filter(|policy| policy.trained);
    let names: BTreeSet<&String> = trained.map(|policy| &workers[policy.worker].model).collect();
    let mut warnings = Vec::new();
    for name in names {
        // A model on the hub that is not downloaded has no tokenizer yet.
        let Some(OpenedModel { shape, tokenizer: Some(tokenizer), .. }) = models.get(name) else {
            continue;
        };
        let context = shape.max_position_embeddings;
        for (all_texts, key) in loaded.all_texts.iter().zip(["task", "eval"]) {
            let found = misfits(all_texts, tokenizer, context);
            let named = NamedRows { all_texts, model: name, context };
            if let Some(message) = named.refused_rows(&found) {
                problems.value(&path([key, "data"]), message, None);
            }
            let Some((message, all)) = named.overlong(&found) else { continue };
            match config.task.overlong {
                OverlongText::Drop if !all => {
                    warnings.push(format!("{message}: they are left out"))
                }
                OverlongText::Truncate => warnings.push(format!("{message}: they are cut")),
                OverlongText::Error | OverlongText::Drop => {
                    let help = "shorten them, or set `task.overlong` to \"drop\", which leaves such rows out, or to \"truncate\"";
                    problems.value(&path([key, "data"]), message, help.to_owned());
                }
            }
        }
    }
    warnings
}

/// Rows of a file, and the model that they are for.
struct NamedRows<'r> {
    all_texts: &'r [RowTexts],
    model: &'r str,
    context: usize,
}

impl NamedRows<'_> {
    /// Describes the rows that the model's template refuses.
    fn refused_rows(&self, found: &[(usize, Misfit)]) -> Option<String> {
        let reasons = found.iter().filter_map(|(i, misfit)| match misfit {
            Misfit::Refused(error) => Some(format!("{}: {error}", self.all_texts[*i].location)),
            Misfit::Overlong(_) => None,
        });
        self.list_rows(&reasons.collect::<Vec<_>>(), "cannot be rendered for", "\n")
    }

    /// Describes the rows that are too long. The second value is true if all are.
    fn overlong(&self, found: &[(usize, Misfit)]) -> Option<(String, bool)> {
        let rows = found.iter().filter_map(|(i, misfit)| match misfit {
            Misfit::Overlong(tokens) => {
                Some(format!("{} ({tokens} tokens)", self.all_texts[*i].location))
            }
            Misfit::Refused(_) => None,
        });
        let rows: Vec<String> = rows.collect();
        let what = format!("are longer than the context of {} of", self.context);
        let message = self.list_rows(&rows, &what, ", ")?;
        Some((message, rows.len() == self.all_texts.len()))
    }

    /// Formats the number of rows with the first of them.
    fn list_rows(&self, rows: &[String], what: &str, separator: &str) -> Option<String> {
        let (n, all) = (rows.len(), self.all_texts.len());
        if n == 0 {
            return None;
        }
        let more = n.saturating_sub(NAMED);
        let more = if more > 0 { format!("{separator}and {more} more") } else { String::new() };
        let first = rows.iter().take(NAMED).cloned().collect::<Vec<_>>().join(separator);
        Some(format!("{n} of {all} rows {what} model `{}`: {first}{more}", self.model))
    }
}

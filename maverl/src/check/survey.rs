//! Statistics of a plan's data: tasks by split, and tokens of their questions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::files::model_shape;
use super::team::prompt_tokens;
use crate::files::ModelFiles;
use crate::plan::{Plan, PlannedTasks};
use crate::text::Tokenizer;

/// Statistics of a plan's data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Survey {
    /// Splits in use with their number of tasks (at most `limit` and `eval.tasks`).
    pub splits: Vec<(String, usize)>,
    /// Questions of the training split, counted with each tokenizer.
    pub questions: Vec<Questions>,
}

/// Token statistics of questions for one model: each as the only user message, in the chat template. Text that an agent
/// adds is not included.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Questions {
    /// Name of the worker group.
    pub worker: String,
    /// Number of counted questions.
    pub counted: usize,
    /// Median number of tokens.
    pub median: usize,
    /// Number of tokens of the longest question.
    pub longest: usize,
    /// Number of tokens of the model's context.
    pub context: usize,
    /// Maximum reply length of the seats.
    pub max_tokens: usize,
    /// Number of questions that leave too little context for such a reply.
    pub too_long: usize,
}

/// Computes the statistics of a plan's data. Supervised training has no tasks. Without a downloaded tokenizer, nothing
/// is counted.
pub fn survey(plan: &Plan) -> Survey {
    let PlannedTasks { splits, questions: texts } = &plan.tasks;
    let questions = (0..plan.workers.len()).filter_map(|worker| questions(plan, worker, texts));
    Survey { splits: splits.clone(), questions: questions.collect() }
}

fn questions(plan: &Plan, worker: usize, texts: &[String]) -> Option<Questions> {
    if texts.is_empty() {
        return None;
    }
    let group = &plan.workers[worker];
    let seats = plan.seats.iter().filter(|seat| plan.policies[seat.policy].worker == worker);
    let max_tokens = seats.map(|seat| seat.sampling.max_tokens).max()?;
    let tokenizer = Tokenizer::load(&ModelFiles::new(&group.source)).ok()?;
    let tokenizer = tokenizer.with_template_kwargs(&group.chat_template_kwargs);
    let context = model_shape(&group.source).ok()?.max_position_embeddings;
    let counts = texts.iter().filter_map(|text| prompt_tokens(&tokenizer, text));
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    let too_long = counts.iter().filter(|tokens| *tokens + max_tokens > context).count();
    Some(Questions {
        worker: group.name.clone(),
        counted: counts.len(),
        median: *counts.get(counts.len() / 2)?,
        longest: *counts.last()?,
        context,
        max_tokens,
        too_long,
    })
}

impl Survey {
    /// Formats one line for the splits and one for each worker group; empty if there are no tasks.
    pub fn text(&self) -> String {
        let splits: Vec<String> =
            self.splits.iter().map(|(split, tasks)| format!("{split} {tasks}")).collect();
        if splits.is_empty() {
            return String::new();
        }
        let mut text = format!("tasks: {}\n", splits.join(", "));
        let mut lines: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for Questions { worker, counted, median, longest, context, max_tokens, .. } in
            &self.questions
        {
            let line = format!(
                "{counted} questions have {median} tokens in the median and {longest} at most; replies of {max_tokens} leave \
                 {} of {context} for a prompt",
                context.saturating_sub(*max_tokens)
            );
            lines.entry(line).or_default().push(worker);
        }
        for (line, workers) in lines {
            text += &format!("for {}: {line}\n", workers.join(", "));
        }
        text
    }

    /// Returns warnings about questions that do not fit.
    pub fn warnings(&self) -> Vec<String> {
        let unfit = self.questions.iter().filter(|questions| questions.too_long > 0);
        let said = unfit.map(|questions| {
            let Questions { worker, counted, longest, context, max_tokens, too_long, .. } = questions;
            format!(
                "{too_long} of {counted} questions, of up to {longest} tokens, leave no room for `max_tokens` = {max_tokens} \
                 in the context of {context} of worker group `{worker}`: their episodes end unscored; lower \
                 `sampling.max_tokens`"
            )
        });
        said.collect()
    }
}

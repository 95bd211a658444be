//! Statistics of a plan's data: tasks by split, and tokens of their questions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::files::model_shape;
use super::team::prompt_tokens;
use crate::config::Config;
use crate::data::{self, Placed, TaskChoice};
use crate::files::ModelFiles;
use crate::plan::Plan;
use crate::text::Tokenizer;

/// Maximum number of questions whose tokens are counted, spread evenly over the split.
const COUNTED: usize = 20_000;
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
///
/// # Errors
///
/// If the data, which were read when the plan was made, have become unreadable.
pub fn survey(plan: &Plan) -> Result<Survey, data::DataError> {
    let (tasks, held_out) = task_counts(plan)?;
    let mut splits = vec![(plan.config.task.split.clone(), tasks.len())];
    splits.retain(|(_, tasks)| *tasks > 0);
    splits.extend(held_out);
    let questions: Vec<Questions> = if tasks.is_empty() {
        Vec::new()
    } else {
        (0..plan.workers.len()).filter_map(|worker| questions(plan, worker, &tasks)).collect()
    };
    Ok(Survey { splits, questions })
}

/// Names of splits with the number of their tasks.
type SplitSizes = Vec<(String, usize)>;

/// Reads the tasks of training, and counts those of the other splits that are evaluated on.
fn task_counts(plan: &Plan) -> Result<(Vec<Placed>, SplitSizes), data::DataError> {
    let (config, base) = (&plan.config, plan.base.as_path());
    let source = config.eval.held_out(&config.task);
    let supervised = plan.algorithm.preset.is_supervised();
    let mut names = held_out(config);
    names.retain(|name| supervised || *name != config.task.split);
    names.dedup();
    let others = names.iter().map(|split| TaskChoice { split, limit: source.limit });
    let others: Vec<TaskChoice<'_>> = others.collect();
    let training = TaskChoice { split: &config.task.split, limit: config.task.limit };
    let together = config.eval.own_data(&config.task).is_none();
    let mut read = match (supervised, together) {
        (false, true) => {
            data::placed_choices(&config.task, &[&[training], &others[..]].concat(), base)?
        }
        (false, false) => data::placed_choices(&config.task, &[training], base)?,
        (true, _) => vec![Ok(Vec::new())],
    };
    if !others.is_empty() && (supervised || !together) {
        read.extend(data::placed_choices(&source, &others, base)?);
    }
    let mut read = read.into_iter();
    let tasks = read.next().unwrap_or_else(|| Ok(Vec::new()))?;
    let counts = names.into_iter().zip(read).map(|(name, tasks)| Ok((name, tasks?.len())));
    Ok((tasks, counts.collect::<Result<_, data::DataError>>()?))
}

/// Returns the splits that are evaluated on.
fn held_out(config: &Config) -> Vec<String> {
    let eval = config.eval.used(config.algorithm.name);
    let used = [(eval.before_and_after, eval.test_split), (eval.every > 0, eval.split)];
    used.into_iter().filter_map(|(used, split)| used.then_some(split)).collect()
}

fn questions(plan: &Plan, worker: usize, tasks: &[Placed]) -> Option<Questions> {
    let group = &plan.workers[worker];
    let seats = plan.seats.iter().filter(|seat| plan.policies[seat.policy].worker == worker);
    let max_tokens = seats.map(|seat| seat.sampling.max_tokens).max()?;
    let tokenizer = Tokenizer::load(&ModelFiles::new(&group.source)).ok()?;
    let tokenizer = tokenizer.with_template_kwargs(&group.chat_template_kwargs);
    let context = model_shape(&group.source).ok()?.max_position_embeddings;
    let every = tasks.len().div_ceil(COUNTED).max(1);
    let counts =
        tasks.iter().step_by(every).filter_map(|it| prompt_tokens(&tokenizer, &it.task.question));
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

//! Comparison of prompts with the context of their models, as far as the questions of tasks determine them.

use super::policy::Assignment;
use super::sampling::sampling_key;
use crate::check::files::{Models, OpenedModel};
use crate::config::source::Problems;
use crate::task::TaskList;
use crate::text::Tokenizer;
use crate::trajectory::{Message, Role};

/// Number of texts with the fewest bytes among which the prompt with the fewest tokens is searched.
const SHORTEST: usize = 8;

/// Reports seats whose replies leave no room for a prompt: neither for an empty one, nor for the shortest question if
/// every seat gets one.
pub(crate) fn check_prompts(
    assigned: &Assignment,
    models: &Models,
    tasks: &TaskList,
    problems: &mut Problems<'_>,
) {
    let Assignment { seats, policies, workers, .. } = assigned;
    let mut refused = Vec::new();
    let mut fits = seats.is_empty();
    for seat in seats {
        let worker = &workers[policies[seat.policy].worker];
        let Some(OpenedModel { shape, tokenizer: Some(tokenizer), .. }) = models.get(&worker.model)
        else {
            return;
        };
        let (context, most) = (shape.max_position_embeddings, seat.sampling.max_tokens);
        // A seat without any room is already reported.
        let Some(room) = context.checked_sub(most).filter(|room| *room > 0) else { return };
        let empty = prompt_tokens(tokenizer, "");
        let shortest = shortest(tasks).filter_map(|text| prompt_tokens(tokenizer, text)).min();
        let what = match (empty, shortest) {
            (Some(empty), _) if empty > room => format!("even an empty prompt takes {empty}"),
            (_, Some(shortest)) if shortest > room => {
                format!("the shortest question takes {shortest}")
            }
            _ => {
                fits = true;
                continue;
            }
        };
        let message = format!(
            "`max_tokens` is {most} for `{}`, which leaves {room} of the {context} tokens of model `{}` for prompts, and \
             {what}",
            seat.seat, worker.model
        );
        refused.push((seat, message, empty.is_some_and(|empty| empty > room)));
    }
    for (seat, message, certain) in refused {
        // Seats that do not get the question may have shorter prompts.
        if certain || !fits {
            let help = "a prompt and its reply share the context; lower `sampling.max_tokens`";
            problems.value(&sampling_key(problems, seat, "max_tokens"), message, help.to_owned());
        }
    }
}

/// Returns the shortest questions by bytes.
fn shortest(tasks: &TaskList) -> impl Iterator<Item = &str> {
    let mut texts: Vec<&str> = tasks.questions().collect();
    texts.sort_by_key(|text| text.len());
    texts.into_iter().take(SHORTEST)
}

/// Counts the tokens of a prompt with one user message and an opened assistant turn; `None` if the template refuses it.
pub(crate) fn prompt_tokens(tokenizer: &Tokenizer, text: &str) -> Option<usize> {
    let message = Message { role: Role::User, content: text.to_owned() };
    let rendered = tokenizer.render(&[message], true).ok()?;
    Some(tokenizer.encode_rendered(&rendered).ok()?.len())
}

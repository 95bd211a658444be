//! How seats sample: settings that training, or the context and vocabulary of a model, do not allow.

use crate::check::choice::setting_path;
use crate::config::Config;
use crate::config::source::{Problems, path};
use crate::files::HfConfig;
use crate::plan::SeatPlan;

/// Reports settings that cannot be used for training.
pub(crate) fn check_trainable(config: &Config, seats: &[SeatPlan], problems: &mut Problems<'_>) {
    // Without agents and endpoints, the problem of the orchestra says what is missing.
    let is_empty = seats.is_empty() && config.endpoints.is_empty();
    if !is_empty && !seats.iter().any(|seat| seat.trained) {
        let (message, help) = if seats.is_empty() {
            (
                "nothing is trained: every agent is an endpoint's",
                "remove `endpoint` from one of them; `maverl eval` evaluates a team without training it",
            )
        } else {
            (
                "nothing is trained: every agent, or its model, is frozen",
                "remove `frozen = true` from one of them",
            )
        };
        problems.report_whole(message.to_owned(), help.to_owned());
    }
    if !config.algorithm.name.generates() {
        return;
    }
    for seat in seats.iter().filter(|seat| seat.trained) {
        let s = &seat.sampling;
        if s.temperature == 0.0 {
            let message =
                format!("`{}` is trained, but its replies are greedy (temperature 0)", seat.seat);
            let help = "training needs replies that differ; `eval.temperature = 0` makes evaluation greedy";
            let at = sampling_key(problems, seat, "temperature");
            problems.value(&at, message, help.to_owned());
        }
        let repeats = s.repetition_penalty != 1.0;
        let filters = [
            ("top_k", s.top_k > 0),
            ("top_p", s.top_p < 1.0),
            ("min_p", s.min_p > 0.0),
            ("repetition_penalty", repeats),
        ];
        for (name, _) in filters.iter().filter(|(_, on)| *on) {
            let message = format!(
                "`{name}` is set for `{}`, which is trained with the ratio of unfiltered probabilities",
                seat.seat
            );
            let help = "remove it, or freeze the agent: log-probabilities of filtered samples would be wrong";
            let at = sampling_key(problems, seat, name);
            problems.value(&at, message, help.to_owned());
        }
    }
}

/// Reports seats that cannot sample from their model: replies do not fit in its context, or stop ids are not in its
/// vocabulary.
pub(crate) fn check_replies(
    seats: &[SeatPlan],
    model: &str,
    shape: &HfConfig,
    problems: &mut Problems<'_>,
) {
    let (context, rows) = (shape.max_position_embeddings, shape.vocab_size);
    for seat in seats {
        let (most, who) = (seat.sampling.max_tokens, &seat.seat);
        if most >= context {
            let message = format!(
                "`max_tokens` is {most} for `{who}`, and the context of model `{model}` is {context}: no prompt fits"
            );
            let help = "a prompt and its reply share the context; lower `sampling.max_tokens`";
            problems.value(&sampling_key(problems, seat, "max_tokens"), message, help.to_owned());
        }
        if let Some(id) = seat.sampling.stop_ids.iter().find(|id| **id as usize >= rows) {
            let message = format!(
                "`stop_ids` has {id} for `{who}`, and model `{model}` has ids from 0 to {}",
                rows.saturating_sub(1)
            );
            problems.value(&sampling_key(problems, seat, "stop_ids"), message, None);
        }
    }
}

/// Returns the path of the key that sets how a seat samples.
pub(crate) fn sampling_key(problems: &Problems<'_>, seat: &SeatPlan, name: &str) -> Vec<String> {
    let shared = path(["sampling", name]);
    setting_path(problems, &seat.seat, &format!("sampling.{name}"), Some(shared))
}

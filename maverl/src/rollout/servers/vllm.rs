//! Protocol of vLLM: `/v1/completions` with `return_token_ids`.

use serde_json::{Value, json};

use crate::rollout::servers::answer::{ServerAnswer, list, part, same_prompt};
use crate::rollout::servers::request::{AnswerProblem, Asked};
use crate::rollout::servers::routes::SentRoutes;

/// Route of generations.
pub(super) const GENERATE: &str = "/v1/completions";

/// Returns the name of the model that is asked for.
fn model<'r>(asked: &Asked<'r>) -> &'r str {
    if asked.weights.adapter { &asked.weights.label } else { asked.base }
}

/// Returns the parameters of sampling. All are sent, because defaults are those of the model's `generation_config.json`.
pub(super) fn sampling(asked: &Asked<'_>) -> Value {
    let sampling = asked.sampling;
    let mut parameters = json!({
        "max_tokens": asked.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": if sampling.top_k == 0 { -1 } else { i64::from(sampling.top_k) },
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "n": 1,
        "logprobs": 0,
        // Servers expect signed integers.
        "seed": asked.seed >> 1,
        "stop_token_ids": asked.stop_ids,
        "skip_special_tokens": false,
        "include_stop_str_in_output": true,
    });
    if !sampling.stop.is_empty() {
        parameters["stop"] = json!(sampling.stop);
    }
    parameters
}

/// Returns the body of a request.
pub(super) fn body(asked: &Asked<'_>) -> Value {
    let mut body = sampling(asked);
    body["model"] = json!(model(asked));
    body["prompt"] = json!(asked.prompt);
    body["return_token_ids"] = json!(true);
    body["stream"] = json!(false);
    body
}

/// Returns the one completion of an answer, if it is of the model that was asked for and was not aborted.
pub(super) fn one_completion<'v>(
    answer: &'v Value,
    asked: &Asked<'_>,
) -> Result<&'v Value, AnswerProblem> {
    let (found, wanted) = (part(answer, "/model")?, model(asked));
    if *found != wanted && !wanted.is_empty() {
        return Err(AnswerProblem::Wrong(format!(
            "sampled with the model {found}, not `{wanted}`"
        )));
    }
    let choices = list(answer, "/choices")?;
    let [choice] = choices else {
        return Err(AnswerProblem::Wrong(format!("gave {} completions, not 1", choices.len())));
    };
    match part(choice, "/finish_reason")?.as_str() {
        Some("abort") => Err(AnswerProblem::transient("aborted the request")),
        _ => Ok(choice),
    }
}

/// Returns an error if an answer shows another prompt than the one that was sent.
pub(super) fn same_ids(found: Option<&Value>, asked: &Asked<'_>) -> Result<(), AnswerProblem> {
    let sent = asked.prompt.iter().map(|id| Some(u64::from(*id)));
    match found.and_then(Value::as_array) {
        Some(found) if !found.iter().map(Value::as_u64).eq(sent) => {
            Err(AnswerProblem::Wrong("read another prompt than the one that was sent".to_owned()))
        }
        _ => Ok(()),
    }
}

/// Reads an answer with status 200.
pub(super) fn read(answer: &Value, asked: &Asked<'_>) -> Result<ServerAnswer, AnswerProblem> {
    let choice = one_completion(answer, asked)?;
    same_ids(choice.get("prompt_token_ids"), asked)?;
    same_prompt(&answer["usage"]["prompt_tokens"], asked)?;
    if choice.get("token_ids").is_none_or(Value::is_null) {
        return Err(AnswerProblem::Wrong(
            "answered without `token_ids`: it is too old for `return_token_ids`".to_owned(),
        ));
    }
    let ids = list(choice, "/token_ids")?;
    let logprobs = list(choice, "/logprobs/token_logprobs")?;
    let finish = part(choice, "/finish_reason")?.as_str().unwrap_or_default();
    let routes = sent_routes(choice, asked)?;
    Ok(ServerAnswer { routes, ..ServerAnswer::new(ids, logprobs, finish)? })
}

/// Returns the experts of the tokens of an answer, if they were asked for.
pub(super) fn sent_routes(
    choice: &Value,
    asked: &Asked<'_>,
) -> Result<Option<SentRoutes>, AnswerProblem> {
    asked.routes.then(|| SentRoutes::of_array(&choice["routed_experts"])).transpose()
}

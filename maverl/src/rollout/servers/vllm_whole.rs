//! Protocol of vLLM for full weights: `/inference/v1/generate`, whose answers name the weights of every token, and the commands
//! that load weights.

use serde_json::{Value, json};

use crate::rollout::servers::answer::{ServerAnswer, list, part, same_prompt};
use crate::rollout::servers::request::{AnswerProblem, Asked, ServedWeights};
use crate::rollout::servers::vllm::{one_completion, same_ids, sampling, sent_routes};

/// Route of generations.
pub(super) const GENERATE: &str = "/inference/v1/generate";
/// Route that sets the version of the weights.
const VERSION: &str = "/update_weight_version";
/// Route that calls a method of all workers of a server.
const CALL: &str = "/collective_rpc";
/// Route that removes the keys and values of earlier prompts.
const RESET: &str = "/reset_prefix_cache";
/// Routes of the commands, which a server has in its development mode alone.
pub(super) const COMMANDS: [&str; 3] = [VERSION, CALL, RESET];

/// Returns the commands that give a server full weights, in their order. The version is that of no weights until all of the
/// server are replaced, so no answer of that time is taken for one of either weights.
pub(super) fn load(weights: &ServedWeights) -> Vec<(&'static str, Value)> {
    let ServedWeights { label, dir, .. } = weights;
    vec![
        (VERSION, json!({ "new_version": format!("{label}-incomplete") })),
        (CALL, json!({ "method": "reload_weights", "kwargs": { "weights_path": dir } })),
        (RESET, json!({})),
        (VERSION, json!({ "new_version": label })),
    ]
}

/// Returns the problem of a server that answers a route with status 403 or 404, as it was started without it.
pub(super) fn not_open(route: &str, reason: &str) -> AnswerProblem {
    AnswerProblem::Wrong(format!(
        "{route}: {reason}; full weights need vLLM 0.32 or newer, started with `VLLM_SERVER_DEV_MODE=1` and `--enable-scale-out`"
    ))
}

/// Returns the body of a request.
pub(super) fn body(asked: &Asked<'_>) -> Value {
    let mut body = json!({
        "token_ids": asked.prompt,
        "sampling_params": sampling(asked),
        "return_token_ids": true,
        "stream": false,
    });
    if !asked.base.is_empty() {
        body["model"] = json!(asked.base);
    }
    body
}

/// Reads an answer with status 200.
pub(super) fn read(answer: &Value, asked: &Asked<'_>) -> Result<ServerAnswer, AnswerProblem> {
    let choice = one_completion(answer, asked)?;
    same_ids(answer.get("prompt_token_ids"), asked)?;
    same_prompt(&answer["usage"]["prompt_tokens"], asked)?;
    let ids = list(choice, "/token_ids")?;
    of_version(choice, ids.len(), &asked.weights.label)?;
    let scored = list(choice, "/logprobs/content")?;
    let [scored_ids, logprobs] = ["token_id", "logprob"]
        .map(|name| scored.iter().map(|its| its[name].clone()).collect::<Vec<Value>>());
    if ids.len() == scored.len() && ids != scored_ids {
        return Err(AnswerProblem::Wrong(
            "gave log-probs of other token ids than `token_ids`".to_owned(),
        ));
    }
    let finish = part(choice, "/finish_reason")?.as_str().unwrap_or_default();
    let routes = sent_routes(choice, asked)?;
    Ok(ServerAnswer { routes, ..ServerAnswer::new(ids, &logprobs, finish)? })
}

/// Returns an error unless every token was sampled by the weights of a label.
fn of_version(choice: &Value, tokens: usize, label: &str) -> Result<(), AnswerProblem> {
    let spans = choice.get("weight_versions").and_then(Value::as_array).ok_or_else(|| {
        AnswerProblem::Wrong(
            "answered without `weight_versions`: it is older than vLLM 0.32".to_owned(),
        )
    })?;
    let mut next = 0;
    for span in spans {
        if span["version"] != label {
            return Err(AnswerProblem::Missing(format!(
                "sampled with the weights {}, and `{label}` were published",
                span["version"]
            )));
        }
        if span["start"] != next {
            break;
        }
        next = span["end"].as_u64().unwrap_or_default();
    }
    if next != tokens as u64 {
        let spans = Value::from(spans.clone());
        return Err(AnswerProblem::Wrong(format!(
            "named the weights of other tokens than its {tokens}: {spans}"
        )));
    }
    Ok(())
}

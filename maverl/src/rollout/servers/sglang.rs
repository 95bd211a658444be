//! Protocol of SGLang: `/generate`.

use serde_json::{Value, json};

use crate::rollout::servers::answer::{ServerAnswer, list, part, same_prompt};
use crate::rollout::servers::request::{AnswerProblem, Asked};
use crate::rollout::servers::routes::SentRoutes;

/// Route of generations.
pub(super) const GENERATE: &str = "/generate";

/// Returns the body of a request.
pub(super) fn body(asked: &Asked<'_>) -> Value {
    let sampling = asked.sampling;
    let mut parameters = json!({
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": if sampling.top_k == 0 { -1 } else { i64::from(sampling.top_k) },
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "max_new_tokens": asked.max_tokens,
        "stop_token_ids": asked.stop_ids,
        "skip_special_tokens": false,
        "no_stop_trim": true,
        // Servers expect signed integers.
        "sampling_seed": asked.seed >> 1,
    });
    if !sampling.stop.is_empty() {
        parameters["stop"] = json!(sampling.stop);
    }
    let mut body = json!({
        "input_ids": asked.prompt,
        "sampling_params": parameters,
        "return_logprob": true,
        "stream": false,
    });
    if asked.routes {
        body["return_routed_experts"] = json!(true);
    }
    if asked.weights.adapter {
        body["lora_path"] = json!(asked.weights.label);
    }
    body
}

/// Reads an answer with status 200.
pub(super) fn read(answer: &Value, asked: &Asked<'_>) -> Result<ServerAnswer, AnswerProblem> {
    let finish = part(answer, "/meta_info/finish_reason/type")?.as_str().unwrap_or_default();
    if finish == "abort" {
        let reason = &answer["meta_info"]["finish_reason"]["message"];
        let reason = reason.as_str().unwrap_or("it gave no reason");
        return Err(AnswerProblem::transient(format!("aborted the request: {reason}")));
    }
    let version = &answer["meta_info"]["weight_version"];
    let weights = asked.weights;
    // The version of SGLang is that of the base.
    if !weights.adapter && !weights.label.is_empty() && *version != weights.label.as_str() {
        let (found, wanted) = (version.to_string(), &weights.label);
        return Err(AnswerProblem::Missing(format!(
            "sampled with the weights {found}, and `{wanted}` were published"
        )));
    }
    same_prompt(&answer["meta_info"]["prompt_tokens"], asked)?;
    let pairs = list(answer, "/meta_info/output_token_logprobs")?;
    let [logprobs, scored] = [0, 1].map(|column| {
        let column = pairs.iter().map(|pair| pair.get(column).cloned().unwrap_or_default());
        column.collect::<Vec<Value>>()
    });
    // Older servers have the ids beside the log-probs alone.
    let ids = match answer.get("output_ids").and_then(Value::as_array) {
        Some(ids) => ids.clone(),
        None => scored.clone(),
    };
    if ids.len() == scored.len() && ids != scored {
        return Err(AnswerProblem::Wrong(
            "gave log-probs of other token ids than `output_ids`".to_owned(),
        ));
    }
    let tokens = asked.prompt.len() + ids.len() - 1;
    let sent = &answer["meta_info"]["routed_experts"];
    let routes = asked.routes.then(|| SentRoutes::of_numbers(sent, tokens)).transpose()?;
    Ok(ServerAnswer { routes, ..ServerAnswer::new(&ids, &logprobs, finish)? })
}

//! Protocol of vLLM: `/v1/completions` with `return_token_ids`.

use serde_json::{Value, json};

use super::answer::{Answer, list, part, same_prompt};
use super::{Asked, Problem};

/// Route of generations.
pub(super) const GENERATE: &str = "/v1/completions";

/// Returns the name of the model that is asked for.
fn model<'r>(asked: &Asked<'r>) -> &'r str {
    if asked.weights.adapter { &asked.weights.label } else { asked.base }
}

/// Returns the body of a request. Every parameter is sent, because defaults are those of the model's `generation_config.json`.
pub(super) fn body(asked: &Asked<'_>) -> Value {
    let sampling = asked.sampling;
    let mut body = json!({
        "model": model(asked),
        "prompt": asked.prompt,
        "max_tokens": asked.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": if sampling.top_k == 0 { -1 } else { i64::from(sampling.top_k) },
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "n": 1,
        "logprobs": 0,
        "return_token_ids": true,
        // Servers expect signed integers.
        "seed": asked.seed >> 1,
        "stop_token_ids": asked.stop_ids,
        "skip_special_tokens": false,
        "include_stop_str_in_output": true,
        "stream": false,
    });
    if !sampling.stop.is_empty() {
        body["stop"] = json!(sampling.stop);
    }
    body
}

/// Reads an answer with status 200.
pub(super) fn read(answer: &Value, asked: &Asked<'_>) -> Result<Answer, Problem> {
    let (found, wanted) = (part(answer, "/model")?, model(asked));
    if *found != wanted {
        return Err(Problem::Wrong(format!("sampled with the model {found}, not `{wanted}`")));
    }
    let choices = list(answer, "/choices")?;
    let [choice] = choices else {
        return Err(Problem::Wrong(format!("gave {} completions, not 1", choices.len())));
    };
    let finish = part(choice, "/finish_reason")?.as_str().unwrap_or_default();
    if finish == "abort" {
        return Err(Problem::transient("aborted the request"));
    }
    if let Some(read) = choice.get("prompt_token_ids").and_then(Value::as_array)
        && !read.iter().map(Value::as_u64).eq(asked.prompt.iter().map(|id| Some(u64::from(*id))))
    {
        return Err(Problem::Wrong("read another prompt than the one that was sent".to_owned()));
    }
    same_prompt(&answer["usage"]["prompt_tokens"], asked)?;
    if choice.get("token_ids").is_none_or(Value::is_null) {
        return Err(Problem::Wrong(
            "answered without `token_ids`: it is too old for `return_token_ids`".to_owned(),
        ));
    }
    let ids = list(choice, "/token_ids")?;
    let logprobs = list(choice, "/logprobs/token_logprobs")?;
    Answer::new(ids, logprobs, finish)
}

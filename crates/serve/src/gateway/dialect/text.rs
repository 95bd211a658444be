//! Text completions.

use serde_json::{Map, Value, json};

use super::{message, refused};
use crate::refusal::Refusal;

/// Makes a request one for a chat completion.
pub(super) fn request(map: &mut Map<String, Value>) -> Result<(), Refusal> {
    let prompt = match map.remove("prompt") {
        Some(Value::Array(mut list)) if list.len() == 1 => list.pop(),
        prompt => prompt,
    };
    let Some(Value::String(prompt)) = prompt.filter(|prompt| *prompt != "") else {
        let what = "must be one text; a request here is one call, and its ids are made by the run's tokenizer";
        return Err(refused("prompt", what));
    };
    if map.remove("echo").is_some_and(|echo| echo == true) {
        return Err(refused("echo", "is true; leave it out"));
    }
    if map.remove("logprobs").is_some_and(|logprobs| !logprobs.is_null()) {
        let what = "is given; log-probs are in the rollouts of the run and in no answer";
        return Err(refused("logprobs", what));
    }
    map.insert("messages".to_owned(), json!([message("user", &prompt.into())]));
    Ok(())
}

/// Returns an answer in the form of text completions.
pub(super) fn answer(chat: &Value) -> Value {
    let mut answer = chat.clone();
    answer["object"] = "text_completion".into();
    for choice in answer["choices"].as_array_mut().into_iter().flatten() {
        let text = choice["message"]["content"].as_str().unwrap_or_default().to_owned();
        choice["text"] = text.into();
        if let Some(choice) = choice.as_object_mut() {
            choice.remove("message");
        }
    }
    answer
}

/// Returns the chunks of an answer; the last has the usage if it is wanted.
pub(super) fn chunks(answer: &Value, usage: bool) -> Vec<Value> {
    let chunk = |choices: Value| {
        let mut chunk = answer.clone();
        chunk["choices"] = choices;
        if let Some(chunk) = chunk.as_object_mut() {
            chunk.remove("usage");
        }
        chunk
    };
    let choices = answer["choices"].as_array().into_iter().flatten();
    let mut chunks: Vec<Value> = choices.map(|choice| chunk(json!([choice]))).collect();
    if usage {
        let mut last = chunk(json!([]));
        last["usage"] = answer["usage"].clone();
        chunks.push(last);
    }
    chunks
}

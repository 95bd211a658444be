//! Text completions.

use serde_json::{Map, Value, json};

use crate::openai::answer::{AnswerObject, Extra};
use crate::openai::chat::{ChatChoice, ChatCompletion};
use crate::openai::completions::{TextChoice, TextCompletion};
use crate::openai::responses::{message, refused};
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
pub(super) fn answer(chat: &ChatCompletion) -> TextCompletion {
    TextCompletion {
        id: chat.id.clone(),
        object: AnswerObject::Text,
        created: chat.created,
        model: chat.model.clone(),
        choices: choices(chat),
        system_fingerprint: None,
        usage: chat.usage,
        maverl: chat.maverl.clone(),
        prompt_token_ids: chat.prompt_token_ids.clone(),
    }
}

/// Returns the fields that every chunk of an answer has.
pub(super) fn extra(chat: &ChatCompletion) -> Extra {
    Extra { maverl: chat.maverl.clone(), prompt_token_ids: chat.prompt_token_ids.clone() }
}

/// Returns the choices of an answer in the form of text completions.
pub(super) fn choices(chat: &ChatCompletion) -> Vec<TextChoice> {
    chat.choices.iter().map(choice).collect()
}

fn choice(choice: &ChatChoice) -> TextChoice {
    TextChoice {
        index: choice.index,
        text: choice.message.content.clone().unwrap_or_default(),
        finish_reason: choice.finish_reason,
        token_ids: choice.token_ids.clone(),
        ..TextChoice::default()
    }
}

//! Text completions.

use serde_json::{Map, Value, json};

use crate::openai::chat::{ChatChoice, ChatCompletion};
use crate::openai::completions::{TextChoice, TextChunk, TextCompletion, TextObject};
use crate::openai::responses::{message, refused};
use crate::openai::writer::Header;
use crate::refusal::Refusal;
use crate::stream::Events;

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
        object: TextObject::TextCompletion,
        created: chat.created,
        model: chat.model.clone(),
        choices: choices(chat),
        system_fingerprint: None,
        usage: chat.usage,
        maverl: chat.maverl.clone(),
        prompt_token_ids: chat.prompt_token_ids.clone(),
    }
}

fn choices(chat: &ChatCompletion) -> Vec<TextChoice> {
    let choice = |choice: &ChatChoice| TextChoice {
        index: choice.index,
        text: choice.message.content.clone().unwrap_or_default(),
        logprobs: None,
        finish_reason: choice.finish_reason,
        stop_reason: None,
        token_ids: choice.token_ids.clone(),
        prompt_token_ids: None,
    };
    chat.choices.iter().map(choice).collect()
}

/// Sends an answer in chunks; the last has the usage if it is wanted.
pub(super) async fn stream(chat: &ChatCompletion, usage: bool, events: &Events) {
    let header = Header {
        id: chat.id.clone(),
        created: chat.created,
        model: chat.model.clone(),
        system_fingerprint: None,
    };
    let mut parts: Vec<Vec<TextChoice>> = choices(chat).into_iter().map(|one| vec![one]).collect();
    if usage {
        parts.push(Vec::new());
    }
    for part in parts {
        let usage = part.is_empty().then_some(Some(chat.usage));
        let chunk = TextChunk {
            prompt_token_ids: chat.prompt_token_ids.as_deref(),
            maverl: chat.maverl.clone(),
            usage,
            ..TextChunk::new(&header, part)
        };
        if !events.send(&chunk).await {
            return;
        }
    }
    events.done().await;
}

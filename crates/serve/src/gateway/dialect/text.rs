//! Text completions.

use serde_json::Value;

use crate::openai::Fields;
use crate::openai::answer::{AnswerObject, Extra};
use crate::openai::chat::{ChatChoice, ChatCompletion};
use crate::openai::completions::{TextChoice, TextCompletion};
use crate::openai::requests::TextCallRequest;
use crate::openai::responses::message;
use crate::refusal::Refusal;

/// Makes a request one for a chat completion.
pub(super) fn as_chat(fields: &mut Fields) -> Result<(), Refusal> {
    let TextCallRequest { prompt, echo, logprobs } = fields.read()?;
    let prompt = match prompt {
        Some(Value::Array(mut list)) if list.len() == 1 => list.pop(),
        prompt => prompt,
    };
    let Some(Value::String(prompt)) = prompt.filter(|prompt| *prompt != "") else {
        let what = "must be one text; a request here is one call, and its ids are made by the run's tokenizer";
        return Err(Refusal::unsupported_field("prompt", what));
    };
    if echo.is_some_and(|echo| echo == true) {
        return Err(Refusal::unsupported_field("echo", "is true; leave it out"));
    }
    if logprobs.is_some() {
        let what = "is given; log-probs are in the rollouts of the run and in no answer";
        return Err(Refusal::unsupported_field("logprobs", what));
    }
    fields.put_back("messages", vec![message("user", &prompt.into())].into());
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

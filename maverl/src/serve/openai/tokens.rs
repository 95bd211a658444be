//! Tokens and log-probs as OpenAI's protocol writes them.

use serde_json::{Map, Value, json};

use crate::model::Tokenizer;
use crate::runtime::Step;

/// Form of a token in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::serve) enum TokenForm {
    /// Its text. Bytes that are no whole characters are shown as U+FFFD; `bytes` has them.
    #[default]
    Text,
    /// `token_id:5`.
    Id,
}

/// Returns a token as text.
pub(in crate::serve) fn token_text(tokenizer: &Tokenizer, id: u32, form: TokenForm) -> String {
    match form {
        TokenForm::Id => format!("token_id:{id}"),
        TokenForm::Text => String::from_utf8_lossy(&tokenizer.token_bytes(id)).into_owned(),
    }
}

/// Returns a log-prob as JSON. The lowest are written as -9999: JSON has no infinity.
fn logprob(value: f32) -> Value {
    json!(f64::from(value.max(-9999.0)))
}

/// Returns the entries of `logprobs.content` of chat completions.
pub(in crate::serve) fn chat_logprobs(
    tokenizer: &Tokenizer,
    steps: &[Step],
    form: TokenForm,
) -> Vec<Value> {
    let entry = |id: u32, value: f32| {
        let mut entry = Map::new();
        entry.insert("token".to_owned(), token_text(tokenizer, id, form).into());
        entry.insert("logprob".to_owned(), logprob(value));
        entry.insert("bytes".to_owned(), tokenizer.token_bytes(id).into());
        entry
    };
    let step = |step: &Step| {
        let mut found = entry(step.id, step.logprob);
        let top = step.top.iter().map(|&(id, value)| Value::Object(entry(id, value)));
        found.insert("top_logprobs".to_owned(), top.collect());
        Value::Object(found)
    };
    steps.iter().map(step).collect()
}

/// Returns `logprobs` of text completions. A step without a log-prob is the first token of an echoed prompt. `offset` is
/// the length in characters of the text before the first step.
pub(in crate::serve) fn text_logprobs(
    tokenizer: &Tokenizer,
    first: Option<u32>,
    steps: &[Step],
    form: TokenForm,
    mut offset: usize,
) -> Value {
    let (mut tokens, mut values, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
    let mut place = |id: u32| {
        let text = String::from_utf8_lossy(&tokenizer.token_bytes(id)).chars().count();
        offsets.push(offset);
        offset += text;
    };
    if let Some(id) = first {
        tokens.push(Value::String(token_text(tokenizer, id, form)));
        values.push(Value::Null);
        tops.push(Value::Null);
        place(id);
    }
    for step in steps {
        tokens.push(token_text(tokenizer, step.id, form).into());
        values.push(logprob(step.logprob));
        let mut top = Map::new();
        for &(id, value) in &step.top {
            // Two tokens may have one text; the more probable one is kept.
            top.entry(token_text(tokenizer, id, form)).or_insert_with(|| logprob(value));
        }
        tops.push(Value::Object(top));
        place(step.id);
    }
    json!({"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets})
}

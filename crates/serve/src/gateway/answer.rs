//! Answers to calls, in OpenAI's shape.

use serde_json::{Map, Value, json};

use super::call::Call;
use super::dialect::Dialect;
use crate::openai::{Part, ReplyText, Shape, call_id, now};
use maverl::model::ChatMessage;
use maverl::tools::Call as ToolCall;
use maverl::trajectory::Turn;

/// A reply as its client is told it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) content: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<ToolCall>,
}

impl Told {
    /// Reads the reply of a turn; `rendered` is the prompt as the template rendered it.
    pub(super) fn read(turn: &Turn, call: &Call, rendered: &str) -> Self {
        let shape = match call.dialect {
            Dialect::Text => Shape::default(),
            Dialect::Chat | Dialect::Responses => Shape {
                thinking: rendered.trim_end().ends_with("<think>"),
                thoughts: true,
                calls: if call.tools.declared.is_empty() { 0 } else { call.tools.most },
                tagged: false,
            },
        };
        let (content, reasoning, calls) = Default::default();
        let mut told = Self { content, reasoning, calls };
        for part in ReplyText::whole(&turn.reply, &call.limits.stop, shape) {
            match part {
                Part::Content(text) => told.content.push_str(&text),
                Part::Reasoning(text) => told.reasoning.push_str(&text),
                Part::Call(call) => told.calls.push(call),
            }
        }
        told
    }

    /// Returns the message in the form of chat templates.
    pub(super) fn message(&self) -> ChatMessage {
        let message = ChatMessage::new("assistant", self.content.as_str());
        let add = |message: ChatMessage, call: &ToolCall| {
            message.with_tool_call(call.name.as_str(), call.arguments.clone())
        };
        self.calls.iter().fold(message, add)
    }

    /// Returns the message of the answer. Equal requests have equal ids of calls.
    fn json(&self, seed: u64) -> Map<String, Value> {
        let call = |(i, call): (usize, &ToolCall)| {
            let arguments = Value::Object(call.arguments.clone()).to_string();
            json!({
                "id": call_id(seed, i),
                "type": "function",
                "function": {"name": call.name, "arguments": arguments},
            })
        };
        let calls: Vec<Value> = self.calls.iter().enumerate().map(call).collect();
        let without = self.content.is_empty() && !calls.is_empty();
        let content = if without { Value::Null } else { self.content.as_str().into() };
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), content);
        message.insert("refusal".to_owned(), Value::Null);
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), self.reasoning.as_str().into());
        }
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        message
    }
}

/// A choice of an answer.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) told: Told,
    pub(super) seed: u64,
    pub(super) truncated: bool,
    /// Token ids of the prompt and of the reply, if the seat has them.
    pub(super) tokens: Option<(Vec<u32>, Vec<u32>)>,
    pub(super) version: u64,
}

/// Returns the whole answer to a call.
pub(super) fn answer(id: &str, call: &Call, choices: &[Choice]) -> Value {
    let listed: Vec<Value> = choices
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            let reason = match (choice.truncated, choice.told.calls.is_empty()) {
                (true, _) => "length",
                (false, false) => "tool_calls",
                (false, true) => "stop",
            };
            let message = choice.told.json(choice.seed);
            let mut listed = json!({
                "index": index, "message": message, "logprobs": null, "finish_reason": reason,
            });
            if let Some((_, ids)) = choice.tokens.as_ref().filter(|_| call.ids) {
                listed["token_ids"] = ids.clone().into();
            }
            listed
        })
        .collect();
    let prompt = choices.first().and_then(|choice| Some(&choice.tokens.as_ref()?.0));
    let sampled = choices.iter().filter_map(|choice| Some(choice.tokens.as_ref()?.1.len()));
    let (prompts, completions) = (prompt.map_or(0, Vec::len), sampled.sum::<usize>());
    let mut answer = json!({
        "id": id,
        "object": "chat.completion",
        "created": now(),
        "model": call.model,
        "choices": listed,
        "usage": {
            "prompt_tokens": prompts,
            "completion_tokens": completions,
            "total_tokens": prompts + completions,
        },
        "maverl": {
            "seed": choices.first().map(|choice| choice.seed.to_string()),
            "version": choices.first().map(|choice| choice.version),
        },
    });
    if let Some(prompt) = prompt.filter(|_| call.ids) {
        answer["prompt_token_ids"] = prompt.clone().into();
    }
    answer
}

/// Returns the chunks of an answer; the last has the usage if it is wanted.
pub(super) fn chunks(answer: &Value, usage: bool) -> Vec<Value> {
    let chunk = |choices: Value| {
        json!({
            "id": answer["id"],
            "object": "chat.completion.chunk",
            "created": answer["created"],
            "model": answer["model"],
            "choices": choices,
        })
    };
    let mut chunks = Vec::new();
    for choice in answer["choices"].as_array().into_iter().flatten() {
        let message = &choice["message"];
        let delta = |delta: Value, reason: &Value| {
            json!([{
                "index": choice["index"], "delta": delta, "logprobs": null, "finish_reason": reason,
            }])
        };
        let mut deltas = vec![json!({"role": "assistant", "content": ""})];
        for key in ["reasoning_content", "content"] {
            if let Some(text) = message[key].as_str().filter(|text| !text.is_empty()) {
                deltas.push(json!({key: text}));
            }
        }
        for (i, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let mut call = call.clone();
            call["index"] = i.into();
            deltas.push(json!({"tool_calls": [call]}));
        }
        chunks.extend(deltas.into_iter().map(|told| chunk(delta(told, &Value::Null))));
        let mut last = chunk(delta(json!({}), &choice["finish_reason"]));
        if let Some(ids) = choice.get("token_ids") {
            last["choices"][0]["token_ids"] = ids.clone();
        }
        chunks.push(last);
    }
    if let Some(ids) = answer.get("prompt_token_ids") {
        chunks[0]["prompt_token_ids"] = ids.clone();
    }
    if usage {
        let mut last = chunk(json!([]));
        last["usage"] = answer["usage"].clone();
        chunks.push(last);
    }
    chunks
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_chunks_of_an_answer_joined_are_the_answer() {
        let call = json!({"id": "call_1", "type": "function", "function": {"name": "f"}});
        let message = json!({"role": "assistant", "content": "hi", "reasoning_content": "so", "tool_calls": [call]});
        let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
        let answer = json!({"id": "a", "created": 1, "model": "m", "choices": [choice], "usage": {"total_tokens": 3}});
        let chunks = chunks(&answer, true);
        let deltas = || chunks.iter().filter_map(|chunk| chunk["choices"].get(0));
        let text = |key: &str| -> String {
            deltas().filter_map(|choice| choice["delta"][key].as_str()).collect()
        };
        assert_eq!((text("content"), text("reasoning_content")), ("hi".into(), "so".into()));
        let calls: Vec<&Value> =
            deltas().filter_map(|choice| choice["delta"].get("tool_calls")).collect();
        assert_eq!((calls.len(), &calls[0][0]["id"]), (1, &json!("call_1")));
        let reasons: Vec<&Value> = deltas().map(|choice| &choice["finish_reason"]).collect();
        assert_eq!(reasons.last().unwrap(), &&json!("tool_calls"));
        assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], 3);
    }
}

#![allow(clippy::unwrap_used)]

pub(crate) mod shapes;

use serde_json::{Value, json};

use super::events::MessageEvents;
use super::*;
use crate::openai::Fields;
use crate::openai::answer::{ChoicePart as _, FinishReason, TokenUsage};
use crate::openai::chat::{ChatChunkChoice, ChatCompletion, Delta, PartTokens, ToolCall};
use crate::refusal::Refusal;
use maverl::text::ChatMessage;
use maverl::tools::Call;

/// Returns a request as one for a chat completion.
fn converted(request: &Value) -> Result<Value, Refusal> {
    let mut fields = Fields::parse(request.to_string().as_bytes()).unwrap();
    as_chat(&mut fields)?;
    Ok(fields.into_value())
}

#[test]
fn a_request_becomes_one_for_a_chat_completion() {
    let chat = converted(&shapes::after_a_call()).unwrap();
    let call = |id: &str, command: &str| {
        let function = json!({"name": "Bash", "arguments": {"command": command}});
        json!({"type": "function", "id": id, "function": function})
    };
    let messages = json!([
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": "Fix the test."},
        {
            "role": "assistant", "content": "Let me look.", "reasoning_content": "I look first.",
            "tool_calls": [call("call_0a", "ls"), call("call_0b", "pwd")],
        },
        {"role": "tool", "tool_call_id": "call_0a", "content": "a.py"},
        {"role": "tool", "tool_call_id": "call_0b", "content": "/tmp\n\n[end]"},
        {"role": "user", "content": "Go on."},
    ]);
    assert_eq!(chat["messages"], messages);
    assert_eq!(chat["tools"][0]["function"]["name"], "Bash");
    assert_eq!(chat["tools"][0]["function"]["parameters"]["required"], json!(["command"]));
    for (name, value) in [
        ("tool_choice", json!("auto")),
        ("parallel_tool_calls", json!(false)),
        ("stop", json!(["END"])),
        ("max_tokens", json!(32000)),
        ("temperature", json!(1)),
        ("top_k", json!(40)),
    ] {
        assert_eq!(chat[name], value, "{name}");
    }
    assert!(chat.get("thinking").is_none() && chat.get("reasoning_effort").is_none(), "{chat}");
}

#[test]
fn choices_thoughts_and_forms_have_their_names_of_chat_completions() {
    let with = |name: &str, value: Value| {
        let mut request = shapes::after_a_call();
        request[name] = value;
        converted(&request).unwrap()
    };
    let choice = |value: Value| with("tool_choice", value)["tool_choice"].clone();
    assert_eq!(choice(json!({"type": "any"})), "required");
    assert_eq!(choice(json!({"type": "none"})), "none");
    let named = choice(json!({"type": "tool", "name": "Bash"}));
    assert_eq!(named, json!({"type": "function", "function": {"name": "Bash"}}));
    assert_eq!(with("thinking", json!({"type": "disabled"}))["reasoning_effort"], "none");
    let schema = json!({"type": "object"});
    let format = json!({"type": "json_schema", "schema": schema});
    let config = with("output_config", json!({"effort": "low", "format": format}));
    assert_eq!(config["reasoning_effort"], "low");
    assert_eq!(config["response_format"]["json_schema"]["schema"], schema);
}

#[test]
fn the_request_of_an_untrimmed_harness_keeps_its_system_message_in_the_middle() {
    let chat = converted(&shapes::untrimmed()).unwrap();
    let role = |message: &Value| message["role"].as_str().unwrap().to_owned();
    let roles: Vec<String> = chat["messages"].as_array().unwrap().iter().map(role).collect();
    assert_eq!(roles, ["system", "user", "system"]);
    assert_eq!(chat["messages"][0]["content"], "header: v1\n\nYou are an agent.\n\nBe brief.");
    assert_eq!(chat["tools"].as_array().unwrap().len(), 24);
    assert!(!chat.to_string().contains("cache_control"), "{chat}");
    assert_eq!(chat["reasoning_effort"], "high");
}

#[test]
fn an_error_names_the_place_of_the_request_as_it_was_written() {
    let image = json!({"type": "image", "source": {"type": "base64", "data": ""}});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "1"});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}});
    for (name, value, part) in [
        (
            "messages",
            json!([
                {"role": "user", "content": "x"}, {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result("toolu_1"), result("toolu_2")]},
            ]),
            "`messages[2].content[1].tool_use_id` is \"toolu_2\"",
        ),
        (
            "messages",
            json!([{"role": "user", "content": [result("toolu_1")]}]),
            "`messages[0].content[0].tool_use_id` is \"toolu_1\"",
        ),
        (
            "messages",
            json!([{"role": "user", "content": [image]}]),
            "`messages[0].content[0]` is of type \"image\"",
        ),
        (
            "messages",
            json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "{"}]),
            "`messages[1].role`",
        ),
        (
            "tools",
            json!([{"type": "bash_20250124", "name": "bash"}]),
            "`tools[0]` is of type \"bash_20250124\"",
        ),
        ("tools", json!([{"name": "a"}]), "`tools[0].input_schema` is missing"),
        ("tool_choice", json!({"type": "tool"}), "`tool_choice.name` is missing"),
        ("stop", json!(["x"]), "write `stop_sequences`"),
        ("n", json!(2), "`n` is a field of chat completions"),
        (
            "output_config",
            json!({"format": {"type": "text"}}),
            "`output_config.format` is of type \"text\"",
        ),
    ] {
        let mut request = shapes::after_a_call();
        request[name] = value;
        let message = converted(&request).unwrap_err().message;
        assert!(message.contains(part), "{message}");
    }
    let bare = json!({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "any"}});
    assert!(converted(&bare).unwrap_err().message.contains("there is no tool in `tools`"));
    let refusal = Refusal::field("stop", "has 17 texts; a request may have 16");
    let told = serde_json::to_value(refusal.anthropic_answer()).unwrap();
    assert_eq!(told["error"]["message"], "`stop_sequences` has 17 texts; a request may have 16");
    assert_eq!(
        (&told["type"], &told["error"]["type"]),
        (&json!("error"), &json!("invalid_request_error"))
    );
}

#[test]
fn an_error_has_the_type_of_its_status_and_a_full_context_its_words() {
    for (status, kind) in [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (409, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ] {
        let status = axum::http::StatusCode::from_u16(status).unwrap();
        let refusal = Refusal::new(status, "code", "what");
        let told = sent(&refusal.anthropic_answer());
        let error = json!({"type": kind, "message": "what", "param": null, "code": "code"});
        assert_eq!(told, json!({"type": "error", "error": error}));
    }
    let full = Refusal::invalid("messages", "no room").with_code("context_length_exceeded");
    let told = sent(&full.anthropic_answer());
    assert_eq!(told["error"]["message"], "prompt is too long: no room");
}

/// Returns a chat completion with thoughts, a text and two calls.
fn chat(content: &str, reason: &str, stop: &Value) -> ChatCompletion {
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let calls = if reason == "tool_calls" {
        json!([call("call_1", "{\"a\":[1]}"), call("call_2", "{}")])
    } else {
        json!([])
    };
    let message = json!({"role": "assistant", "content": content, "reasoning_content": "so", "tool_calls": calls});
    let choice = json!({"index": 0, "message": message, "finish_reason": reason, "stop_reason": stop, "token_ids": [1, 2]});
    let details = json!({"cached_tokens": 3});
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "prompt_tokens_details": details});
    serde_json::from_value(json!({
        "id": "msg-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage,
        "maverl": {"seed": 4, "version": 2}, "prompt_token_ids": [8, 9],
    }))
    .unwrap()
}

fn sent(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

#[test]
fn an_answer_has_its_thoughts_its_text_and_its_calls_as_blocks() {
    let answer = sent(&MessageAnswer::of_chat(
        &chat("hi", "tool_calls", &Value::Null),
        StopReason::MaxTokens,
    ));
    assert_eq!(
        answer["content"],
        json!([
            {"type": "thinking", "thinking": "so", "signature": answer["content"][0]["signature"]},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1]}},
            {"type": "tool_use", "id": "toolu_2", "name": "f", "input": {}},
        ])
    );
    assert_eq!(answer["content"][0]["signature"].as_str().unwrap().len(), 32);
    assert_eq!(
        (&answer["stop_reason"], &answer["stop_sequence"]),
        (&json!("tool_use"), &Value::Null)
    );
    let usage = json!({
        "input_tokens": 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3, "output_tokens": 2,
    });
    assert_eq!(answer["usage"], usage);
    let maverl = json!({"seed": 4, "version": 2, "prompt_token_ids": [8, 9], "token_ids": [1, 2]});
    assert_eq!(answer["maverl"], maverl);
    for (reason, stop, wanted, sequence) in [
        ("stop", Value::Null, "end_turn", Value::Null),
        ("stop", json!("END"), "stop_sequence", json!("END")),
        ("stop", json!(7), "end_turn", Value::Null),
        ("length", Value::Null, "model_context_window_exceeded", Value::Null),
    ] {
        let length = StopReason::ModelContextWindowExceeded;
        let answer = sent(&MessageAnswer::of_chat(&chat("", reason, &stop), length));
        assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!(wanted), &sequence));
        // There is always a text or a call.
        assert_eq!(answer["content"][1], json!({"type": "text", "text": ""}));
    }
}

/// Joins the events of a message as its clients do.
pub(crate) fn joined(events: &[Value]) -> Value {
    let mut message = Value::Null;
    let mut inputs: Vec<String> = Vec::new();
    for event in events {
        let at = event["index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str().unwrap() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                assert_eq!(at, message["content"].as_array().unwrap().len(), "{event}");
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                let delta = &event["delta"];
                let key = match delta["type"].as_str().unwrap() {
                    "text_delta" => "text",
                    "thinking_delta" => "thinking",
                    "signature_delta" => "signature",
                    _ => "partial_json",
                };
                let more = delta[key].as_str().unwrap();
                inputs[at].push_str(more);
                if key != "partial_json" {
                    let text = format!("{}{more}", message["content"][at][key].as_str().unwrap());
                    message["content"][at][key] = text.into();
                }
            }
            "content_block_stop" if message["content"][at]["type"] == "tool_use" => {
                message["content"][at]["input"] = serde_json::from_str(&inputs[at]).unwrap();
            }
            "content_block_stop" | "message_stop" => {}
            "message_delta" => {
                for key in ["stop_reason", "stop_sequence"] {
                    message[key] = event["delta"][key].clone();
                }
                message["usage"] = event["usage"].clone();
                for (key, value) in event["maverl"].as_object().into_iter().flatten() {
                    message["maverl"][key] = value.clone();
                }
            }
            other => panic!("{other}"),
        }
    }
    message
}

#[test]
fn the_events_of_a_message_joined_are_the_whole_one() {
    for (text, reason) in [("hi", "tool_calls"), ("", "tool_calls"), ("hi", "stop"), ("", "length")]
    {
        let chat = chat(text, reason, &Value::Null);
        let mut events = MessageEvents::new(StopReason::MaxTokens);
        let start = json!({"type": "message_start", "message": MessageAnswer::begun_chat(&chat)});
        let parts = chat.choices[0].parts().into_iter();
        let mut all: Vec<Value> =
            parts.flat_map(|part| events.of_part(part)).map(|it| sent(&it)).collect();
        all.extend(events.finish(chat.usage, None).iter().map(sent));
        all.insert(0, start);
        let whole = sent(&MessageAnswer::of_chat(&chat, StopReason::MaxTokens));
        assert_eq!(joined(&all), whole, "{text} {reason}");
        assert_eq!(all.last().unwrap()["type"], "message_stop");
        // Every block ends before the next one begins.
        let kinds: Vec<&str> = all.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let starts = kinds.iter().filter(|kind| **kind == "content_block_start").count();
        let stops = kinds.iter().filter(|kind| **kind == "content_block_stop").count();
        assert_eq!(starts, stops);
    }
}

#[test]
fn a_whole_message_has_its_blocks_in_the_order_of_the_streamed_one() {
    let call = |index: usize| {
        let call = Call { name: "f".to_owned(), arguments: Default::default() };
        Delta::call(ToolCall::new(7, index, &call))
    };
    let [reasoning, text] = [Delta::reasoning, Delta::content]
        .map(|kind: fn(String) -> Delta| move |text: &str| kind(text.to_owned()));
    // Thoughts after a text, and a text after a call, as gpt-oss writes them.
    let deltas = [
        reasoning("I "),
        reasoning("look."),
        text("Let me"),
        text(" look."),
        reasoning("Which?"),
        call(0),
        call(1),
        text("Done."),
    ];
    let (mut choice, mut events) =
        (ChatChunkChoice::choice(0), MessageEvents::new(StopReason::MaxTokens));
    let mut all = vec![json!({"type": "message_start", "message": {"content": []}})];
    let end = ChatChunkChoice::end(0, FinishReason::ToolCalls, None);
    let part = |delta| ChatChunkChoice::new(0, delta, PartTokens::default());
    for delta in deltas {
        all.extend(events.of_part(part(delta.clone())).iter().map(sent));
        part(delta).add_to(&mut choice);
    }
    end.add_to(&mut choice);
    all.extend(events.finish(TokenUsage::new(1, 2), None).iter().map(sent));
    let whole = ChatCompletion { choices: vec![choice], ..chat("", "stop", &Value::Null) };
    let whole = sent(&MessageAnswer::of_chat(&whole, StopReason::MaxTokens));
    assert_eq!(joined(&all)["content"], whole["content"]);
    let kinds = whole["content"].as_array().unwrap().iter().map(|block| &block["type"]);
    let kinds: Vec<&Value> = kinds.collect();
    assert_eq!(kinds, ["thinking", "text", "thinking", "tool_use", "tool_use", "text"]);
}

#[test]
fn a_later_system_message_opens_or_ends_a_message_of_the_user() {
    let told = |list: &[(&str, &str)]| {
        let messages = list.iter().map(|(role, text)| ChatMessage::new(*role, *text)).collect();
        let told = without_later_system(messages);
        told.iter().map(|it| format!("{}: {}", it.role(), it.text())).collect::<Vec<_>>()
    };
    let first = [("system", "s"), ("user", "a"), ("system", "t")];
    assert_eq!(told(&first), ["system: s", "user: a\n\nt"]);
    // A longer conversation begins as the shorter one did.
    let longer = [&first[..], &[("assistant", "b"), ("system", "u"), ("user", "c")]].concat();
    assert_eq!(told(&longer), ["system: s", "user: a\n\nt", "assistant: b", "user: u\n\nc"]);
    let between = [("assistant", "b"), ("system", "u"), ("assistant", "c")];
    assert_eq!(told(&between), ["assistant: b", "user: u", "assistant: c"]);
}

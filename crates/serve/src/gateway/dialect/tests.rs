#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

/// Returns a request as one for a chat completion.
fn converted(dialect: Dialect, request: &Value) -> Result<Value, Refusal> {
    let mut fields = Fields::parse(request.to_string().as_bytes()).unwrap();
    dialect.as_chat(&mut fields)?;
    Ok(fields.into_value())
}

#[test]
fn the_items_of_a_response_are_the_messages_of_its_conversation() {
    let call = |id: &str| json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": "f", "arguments": "{}"});
    let result = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "2"});
    let text = json!([{"type": "output_text", "text": "so", "annotations": []}]);
    let input = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": text},
        call("a"), call("b"), result("a"), result("b"), call("c"), result("c"),
    ]);
    let tool = json!({"type": "function", "name": "f", "parameters": {}, "strict": null});
    let request = json!({
        "model": "m", "instructions": "Be brief.", "input": input, "tools": [tool], "store": false, "include": [],
        "max_output_tokens": 9, "tool_choice": {"type": "function", "name": "f"}, "previous_response_id": null,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {}, "strict": true}},
    });
    let chat = converted(Dialect::Responses, &request).unwrap();
    let roles: Vec<&str> = chat["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]);
    assert_eq!(chat["messages"][1]["content"][0], json!({"type": "text", "text": "hi"}));
    assert_eq!(chat["messages"][2]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(chat["messages"][5]["tool_calls"][0]["id"], "c");
    assert_eq!(chat["tools"][0]["function"], json!({"name": "f", "parameters": {}}));
    assert_eq!(chat["tool_choice"]["function"]["name"], "f");
    assert_eq!(chat["max_completion_tokens"], 9);
    assert_eq!(chat["response_format"]["json_schema"]["name"], "x");
    assert!(chat.get("input").is_none() && chat.get("text").is_none(), "{chat}");
}

#[test]
fn a_stored_state_and_unknown_items_are_refused() {
    for (wrong, part) in [
        (json!({"input": "x", "previous_response_id": "resp_1"}), "nothing is stored"),
        (json!({"input": "x", "background": true}), "nothing is stored"),
        (json!({"model": "m"}), "`input` is missing"),
        (
            json!({"input": [{"type": "web_search_call"}]}),
            "`input[0]` is of type \"web_search_call\"",
        ),
    ] {
        let refusal = converted(Dialect::Responses, &wrong).unwrap_err();
        assert!(refusal.message.contains(part), "{}", refusal.message);
    }
    for wrong in
        [json!({}), json!({"prompt": ["a", "b"]}), json!({"prompt": [1, 2]}), json!({"prompt": ""})]
    {
        assert!(converted(Dialect::Text, &wrong).unwrap_err().message.contains("one text"));
    }
    for (name, value) in [("echo", json!(true)), ("logprobs", json!(1))] {
        let request = json!({"prompt": "x", name: value});
        assert!(converted(Dialect::Text, &request).is_err(), "{name}");
    }
}

fn chat(reason: &str) -> ChatCompletion {
    let call =
        json!({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": "hi", "reasoning_content": "so", "tool_calls": [call]});
    let choice = json!({"index": 0, "message": message, "finish_reason": reason, "token_ids": [1]});
    let usage = json!({"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3});
    let object = "chat.completion";
    let answer = json!({"id": "resp-1", "object": object, "created": 1, "model": "m", "choices": [choice], "usage": usage});
    serde_json::from_value(answer).unwrap()
}

/// Returns a value as a client reads it.
fn sent(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

fn response(reason: &str) -> responses::ResponsesAnswer {
    (&chat(reason)).into()
}

#[test]
fn the_events_of_a_response_end_with_the_whole_one() {
    let answer = sent(&response("tool_calls"));
    let kinds: Vec<&str> = answer["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(
        (&answer["status"], &answer["usage"]["input_tokens"]),
        (&json!("completed"), &json!(2))
    );
    assert_eq!(answer["token_ids"], json!([1]));
    let events: Vec<Value> = response_events(&response("tool_calls")).iter().map(sent).collect();
    let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
    assert_eq!(
        (kind(&events[0]), events[0]["response"]["output"].clone()),
        ("response.created".into(), json!([]))
    );
    let text: String = events
        .iter()
        .filter(|it| kind(it) == "response.output_text.delta")
        .map(|it| it["delta"].as_str().unwrap())
        .collect();
    assert_eq!(text, "hi");
    assert!(events.iter().enumerate().all(|(i, it)| it["sequence_number"] == i));
    assert_eq!(events.last().unwrap()["response"], answer);
    let cut = response("length");
    assert_eq!(sent(&cut)["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(kind(&sent(response_events(&cut).last().unwrap())), "response.incomplete");
}

/// Returns the events of an answer in chunks, as a client reads them.
async fn chunks(dialect: Dialect, answer: ChatCompletion, usage: bool) -> Vec<Value> {
    let metrics = ServerMetrics::new(&[]);
    let response = dialect.respond(Arc::new(answer), Some(usage), &metrics);
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<&str> = events.collect();
    let (done, events) = events.split_last().unwrap();
    assert_eq!(*done, "[DONE]");
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[tokio::test]
async fn a_text_completion_has_its_text_in_the_choice() {
    let answer = sent(&text::answer(&chat("stop")));
    assert_eq!(
        (&answer["object"], &answer["choices"][0]["text"]),
        (&json!("text_completion"), &json!("hi"))
    );
    assert!(answer["choices"][0].get("message").is_none());
    let chunks = chunks(Dialect::Text, chat("stop"), true).await;
    assert_eq!((chunks.len(), &chunks[1]["usage"]["total_tokens"]), (2, &json!(3)));
    assert!(chunks[0].get("usage").is_none());
}

#[tokio::test]
async fn the_chunks_of_an_answer_joined_are_the_answer() {
    let chunks = chunks(Dialect::Chat, chat("tool_calls"), true).await;
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

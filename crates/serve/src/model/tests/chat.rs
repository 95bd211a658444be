use super::*;
use maverl::runtime::Sampling;
use maverl::runtime::{Request, complete};
use maverl::text::ChatInput;
use maverl::text::ChatMessage;

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_every_field_of_openai() {
    let served = Served::start(ModelSettings::default()).await;
    let answer = served.chat(json!({"max_tokens": 8, "seed": 5})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let json = answer.json();
    assert!(json["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(json["object"], "chat.completion");
    assert_eq!(json["model"], "tiny");
    assert!(json["created"].as_u64().unwrap() > 1_600_000_000);
    assert!(json["system_fingerprint"].as_str().unwrap().starts_with("fp_"));
    assert_eq!(json["maverl"], json!({"seed": 5, "version": 0}));
    let choice = &json["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(choice["message"]["content"].is_string() && choice["message"]["refusal"].is_null());
    assert!(["stop", "length"].contains(&choice["finish_reason"].as_str().unwrap()));
    let usage = &json["usage"];
    let sum =
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], sum);
    assert!(usage["prompt_tokens_details"]["cached_tokens"].is_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_served_completion_is_that_of_a_run_to_the_bit() {
    let served = Served::start(ModelSettings::default()).await;
    let (base, tokenizer) = (served.host.base(), served.host.tokenizer());
    let messages = [ChatMessage::new("user", "Who wrote Magdor?")];
    let prompt = tokenizer.render_chat(&ChatInput::open(messages)).unwrap();
    let prompt = tokenizer.encode_rendered(&prompt).unwrap();
    for (seed, temperature) in [(1_u64, 1.0_f32), (2, 0.7), (u64::MAX, 1.3), (3, 0.0)] {
        let sampling = Sampling { temperature, max_tokens: 24, ..Sampling::default() };
        let request = Request::new(prompt.clone(), sampling.into(), seed);
        let expected = complete(base, tokenizer, request, |_| ()).unwrap();
        let fields = json!({
            "seed": seed, "temperature": temperature, "max_tokens": 24, "logprobs": true,
            "top_logprobs": 3, "return_token_ids": true,
        });
        let json = served.chat(fields).await.json();
        assert_eq!(json["prompt_token_ids"], json!(prompt));
        let choice = &json["choices"][0];
        assert_eq!(choice["token_ids"], json!(expected.ids));
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(entries.len(), expected.ids.len());
        for (entry, logprob) in entries.iter().zip(&expected.logprobs) {
            assert_eq!(entry["logprob"].as_f64().unwrap() as f32, *logprob);
            let top = entry["top_logprobs"].as_array().unwrap();
            assert_eq!(top.len(), 3);
            assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
            assert!(entry["logprob"].as_f64() <= top[0]["logprob"].as_f64());
        }
        let stops = tokenizer.stop_ids();
        let spoken: Vec<u32> =
            expected.ids.iter().copied().filter(|id| !stops.contains(id)).collect();
        assert_eq!(choice["message"]["content"], tokenizer.decode(&spoken));
    }
}

/// Joins the deltas of a stream; returns content, finish reason, usage and the last event.
fn joined(answer: &Answer) -> (String, Value, Value, String) {
    let (mut content, mut finish, mut usage) = (String::new(), Value::Null, Value::Null);
    let events = answer.events();
    for event in events.iter().filter(|event| *event != "[DONE]") {
        let chunk: Value = serde_json::from_str(event).unwrap();
        assert_eq!(chunk["object"], "chat.completion.chunk", "{chunk}");
        if chunk["usage"].is_object() {
            assert_eq!(chunk["choices"], json!([]));
            usage = chunk["usage"].clone();
        }
        for choice in chunk["choices"].as_array().unwrap() {
            content += choice["delta"]["content"].as_str().unwrap_or_default();
            if !choice["finish_reason"].is_null() {
                finish = choice["finish_reason"].clone();
            }
        }
    }
    (content, finish, usage, events.last().cloned().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deltas_of_a_stream_joined_are_the_whole_answer() {
    let served = Served::start(ModelSettings::default()).await;
    for seed in 0..8 {
        let fields = |stream: bool| {
            let mut fields =
                json!({"seed": seed, "max_tokens": 40, "temperature": 1.5, "stop": ["e ", "\n\n"]});
            if stream {
                merge(
                    &mut fields,
                    json!({"stream": true, "stream_options": {"include_usage": true}}),
                );
            }
            fields
        };
        let whole = served.chat(fields(false)).await.json();
        let stream = served.chat(fields(true)).await;
        assert!(stream.head.contains("text/event-stream"), "{}", stream.head);
        let (content, finish, usage, last) = joined(&stream);
        assert_eq!(content, whole["choices"][0]["message"]["content"]);
        assert_eq!(finish, whole["choices"][0]["finish_reason"]);
        assert_eq!(usage["completion_tokens"], whole["usage"]["completion_tokens"]);
        assert_eq!(usage["prompt_tokens"], whole["usage"]["prompt_tokens"]);
        assert_eq!(last, "[DONE]");
        assert!(!content.contains("e ") && !content.contains("\n\n"), "{content:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_chunk_has_the_role_and_the_ids_of_the_prompt_alone() {
    let served = Served::start(ModelSettings::default()).await;
    let fields = json!({
        "seed": 4, "max_tokens": 12, "stream": true, "return_token_ids": true, "logprobs": true, "n": 2,
    });
    let events = served.chat(fields).await.events();
    let chunks: Vec<Value> =
        events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert!(chunks[0]["prompt_token_ids"].as_array().is_some_and(|ids| !ids.is_empty()));
    assert!(chunks[1..].iter().all(|chunk| chunk["prompt_token_ids"].is_null()));
    let whole = served
        .chat(json!({"seed": 4, "max_tokens": 12, "return_token_ids": true, "n": 2}))
        .await
        .json();
    for index in 0..2 {
        let of = |chunk: &Value| chunk["choices"][0].clone();
        let mine = chunks.iter().map(of).filter(|choice| choice["index"] == index);
        let ids: Vec<Value> =
            mine.clone().filter_map(|c| c["token_ids"].as_array().cloned()).flatten().collect();
        assert_eq!(Value::from(ids.clone()), whole["choices"][index]["token_ids"]);
        let entries =
            mine.filter_map(|c| c["logprobs"]["content"].as_array().cloned()).flatten().count();
        assert_eq!(entries, ids.len());
    }
    assert_ne!(whole["choices"][0]["token_ids"], whole["choices"][1]["token_ids"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_that_was_drawn_repeats_the_answer() {
    let served = Served::start(ModelSettings::default()).await;
    let first = served.chat(json!({"max_tokens": 16, "temperature": 1.5})).await.json();
    let seed = first["maverl"]["seed"].as_u64().unwrap();
    assert!(seed < 1 << 53);
    let again =
        served.chat(json!({"max_tokens": 16, "temperature": 1.5, "seed": seed})).await.json();
    assert_eq!(first["choices"], again["choices"]);
    let other = served.chat(json!({"max_tokens": 16, "temperature": 1.5})).await.json();
    assert_ne!(other["maverl"]["seed"], seed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_or_id_ends_the_reply_and_is_named() {
    let served = Served::start(ModelSettings::default()).await;
    let whole =
        served.chat(json!({"seed": 1, "max_tokens": 30, "return_token_ids": true})).await.json();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let middle: String = text.chars().skip(3).take(2).collect();
    let cut = served.chat(json!({"seed": 1, "max_tokens": 30, "stop": middle})).await.json();
    let choice = &cut["choices"][0];
    assert_eq!(choice["message"]["content"].as_str().unwrap(), text.split(&middle).next().unwrap());
    assert_eq!(
        (&choice["finish_reason"], &choice["stop_reason"]),
        (&json!("stop"), &json!(middle))
    );
    let id = whole["choices"][0]["token_ids"][2].as_u64().unwrap();
    let cut =
        served.chat(json!({"seed": 1, "max_tokens": 30, "stop_token_ids": [id]})).await.json();
    let choice = &cut["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("stop"), &json!(id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_prompt_is_answered_in_the_words_that_clients_look_for() {
    let served = Served::start(ModelSettings::default()).await;
    let context = served.host.context();
    let answer = served.chat(json!({"max_tokens": context})).await;
    assert_eq!(answer.status, 400);
    let json = answer.json();
    assert_eq!(json["error"]["code"], "context_length_exceeded");
    let message = answer.message();
    assert!(
        message.starts_with(&format!("This model's maximum context length is {context}")),
        "{message}"
    );
    assert!(answer.head.contains("x-should-retry: false"), "{}", answer.head);
    let long = json!({"messages": [{"role": "user", "content": "city ".repeat(context + 1)}]});
    assert_eq!(served.chat(long).await.json()["error"]["code"], "context_length_exceeded");
}

/// Returns a request of a coding agent over `/v1/responses`, after it has run a command.
fn coding_agent() -> Value {
    let text = |text: &str| json!([{"type": "input_text", "text": text}]);
    let parameters = json!({
        "type": "object",
        "properties": {"command": {"type": "array", "items": {"type": "string"}}, "timeout_ms": {"type": "number"}},
        "required": ["command"], "additionalProperties": false,
    });
    let shell = json!({"type": "function", "name": "shell", "description": "Runs.", "strict": false, "parameters": parameters});
    json!({
        "model": "tiny", "instructions": "You are a coding agent.", "stream": true, "store": false,
        "input": [
            {"type": "message", "role": "developer", "content": text("Files are read-only.")},
            {"type": "message", "role": "user", "content": text("<cwd>/work</cwd>")},
            {"type": "message", "role": "user", "content": text("List the files.")},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": null, "encrypted_content": null},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]},
            {"type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\"]}", "call_id": "call_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": "{\"output\":\"a.txt\"}"},
        ],
        "tools": [shell], "tool_choice": "auto", "parallel_tool_calls": false,
        "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "low"},
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "019a", "max_output_tokens": 16,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_coding_agent_over_responses_are_accepted() {
    let served = Served::start(ModelSettings::default()).await;
    let mut body = coding_agent();
    let answer = ask(served.address(), "/v1/responses", Some(&body)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let events = answer.events();
    let parsed = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let kinds: Vec<String> =
        parsed.map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds[0], "response.created", "{kinds:?}");
    let last = kinds.last().unwrap();
    assert!(["response.completed", "response.incomplete"].contains(&last.as_str()), "{kinds:?}");
    // Tools that no chat template has are refused with their place.
    body["tools"].as_array_mut().unwrap().push(json!({"type": "custom", "name": "apply_patch"}));
    let refused = ask(served.address(), "/v1/responses", Some(&body)).await;
    assert!(refused.status == 400 && refused.body.contains("tools[1]"), "{}", refused.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_is_the_completion_of_its_conversation_whole_and_streamed() {
    let served = Served::start(ModelSettings::default()).await;
    let fields = json!({"max_tokens": 12, "seed": 3, "temperature": 1.3});
    let chat = served.chat(fields).await.json();
    let text = chat["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let mut body = json!({
        "model": "tiny", "input": "Who wrote Magdor?", "max_output_tokens": 12, "seed": 3, "temperature": 1.3,
        "store": false, "truncation": "disabled", "include": [],
    });
    let response = ask(served.address(), "/v1/responses", Some(&body)).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let response = response.json();
    assert_eq!(response["output"][0]["content"][0]["text"], text);
    assert_eq!(response["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
    body["stream"] = true.into();
    let events = ask(served.address(), "/v1/responses", Some(&body)).await.events();
    assert_eq!(events.last().unwrap(), "[DONE]");
    let events: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    assert_eq!(deltas.filter_map(|event| event["delta"].as_str()).collect::<String>(), text);
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"][0]["content"], response["output"][0]["content"]);
    assert!(last["id"].as_str().unwrap().starts_with("resp"), "{last}");
    for (name, value) in [("previous_response_id", json!("resp_1")), ("n", json!(2))] {
        let mut body = body.clone();
        body[name] = value;
        let refused = ask(served.address(), "/v1/responses", Some(&body)).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(name)));
    }
}

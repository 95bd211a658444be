//! Every row of the table of fields: what is honored, what is refused, and how.

use super::*;

/// Sends a chat completion with few tokens, and returns status, code and field of the error.
async fn refused(served: &Served, fields: Value) -> (u16, String, String) {
    let answer = served.chat(fields).await;
    if answer.status == 200 {
        return (200, String::new(), String::new());
    }
    let error = answer.json()["error"].clone();
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    assert!(!text("message").is_empty() && !text("type").is_empty(), "{error}");
    (answer.status, text("code"), text("param"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_special_token_that_is_a_stop_string_is_named_and_is_no_part_of_the_reply() {
    let served = Served::start(ModelSettings::default()).await;
    let stops = ["<|im_start|>", "<|endoftext|>"];
    let mut named = 0;
    for seed in 0..12 {
        let fields = json!({"max_tokens": 40, "seed": seed, "temperature": 4, "stop": stops, "return_token_ids": true});
        let answer = served.chat(fields).await.json();
        let choice = &answer["choices"][0];
        let last = choice["token_ids"].as_array().unwrap().last().unwrap().as_u64().unwrap();
        let tokenizer = served.host.tokenizer();
        let ends = stops.iter().find(|stop| tokenizer.token_id(stop) == Some(last as u32));
        if let Some(stop) = ends {
            assert_eq!(
                (&choice["finish_reason"], &choice["stop_reason"]),
                (&json!("stop"), &json!(stop))
            );
            assert!(!choice["message"]["content"].as_str().unwrap().contains(stop), "{choice}");
            named += 1;
        }
    }
    assert!(named > 0, "no reply ends so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_across_a_special_token_ends_the_reply_where_its_content_ends() {
    let served = Served::start(ModelSettings::default()).await;
    for seed in 0..12 {
        let fields =
            json!({"max_tokens": 30, "seed": seed, "temperature": 4, "return_token_ids": true});
        let free = served.chat(fields.clone()).await.json();
        let text = free["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        // Each two characters that follow each other in the text, also where a special token was between them.
        let characters: Vec<char> = text.chars().collect();
        let Some(pair) = characters.windows(2).nth(3) else { continue };
        let stop: String = pair.iter().collect();
        let mut bounded = fields;
        merge(&mut bounded, json!({"stop": [stop]}));
        let answer = served.chat(bounded).await.json();
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "stop", "{stop:?} {free} {answer}");
        assert_eq!(choice["stop_reason"], stop);
        let content = choice["message"]["content"].as_str().unwrap();
        assert_eq!(Some(content), text.split_once(&stop).map(|(before, _)| before));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_with_a_wrong_value_are_named() {
    let served = Served::start(ModelSettings::default()).await;
    let tool = json!({"type": "function", "function": {"name": "f"}});
    for (fields, param) in [
        (json!({"messages": null}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": "hi"}), "messages"),
        (json!({"messages": [{"role": "robot", "content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user", "content": 5}]}), "messages[0].content"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
            "messages[0].content[0]",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{}]}]}),
            "messages[0].tool_calls[0]",
        ),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_completion_tokens": -1}), "max_completion_tokens"),
        (json!({"temperature": -0.1}), "temperature"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": 1.5}), "top_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"min_p": 2}), "min_p"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"stop": ""}), "stop"),
        (json!({"stop": vec!["x"; 17]}), "stop"),
        (json!({"stop": [1]}), "stop"),
        (json!({"stop_token_ids": [-1]}), "stop_token_ids"),
        (json!({"stop_token_ids": [1_000_000]}), "stop_token_ids"),
        (json!({"seed": 1.5}), "seed"),
        (json!({"n": 0}), "n"),
        (json!({"n": 17}), "n"),
        (json!({"logprobs": 3}), "logprobs"),
        (json!({"top_logprobs": 3}), "top_logprobs"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"tools": "f"}), "tools"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0]"),
        (json!({"tools": [{"type": "function", "function": {}}]}), "tools[0]"),
        (json!({"tool_choice": "maybe"}), "tool_choice"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (
            json!({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
            "tool_choice",
        ),
        (json!({"response_format": {"type": "xml"}}), "response_format"),
        (
            json!({"response_format": {"type": "json_schema", "schema": {"type": "object"}}}),
            "response_format.json_schema.schema",
        ),
        (json!({"chat_template_kwargs": [1]}), "chat_template_kwargs"),
        (json!({"chat_template_kwargs": {"messages": []}}), "chat_template_kwargs"),
        (json!({"modalities": ["audio"]}), "modalities"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"),
        (json!({"stream": "yes"}), "stream"),
    ] {
        let (status, _, found) = refused(&served, fields.clone()).await;
        assert_eq!((status, found.as_str()), (400, param), "{fields}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_that_there_are_not_are_refused_and_their_neutral_values_accepted() {
    let served = Served::start(ModelSettings::default()).await;
    let tool = json!({"type": "function", "function": {"name": "f"}});
    for (name, neutral, wanted) in [
        ("presence_penalty", json!(0), json!(0.5)),
        ("frequency_penalty", json!(0.0), json!(-1)),
        ("logit_bias", json!({}), json!({"5": 1})),
        ("best_of", json!(1), json!(2)),
        ("suffix", json!(""), json!("end")),
        ("audio", json!(null), json!({"voice": "alloy"})),
        ("functions", json!([]), json!([{"name": "f"}])),
        ("min_tokens", json!(0), json!(4)),
        ("ignore_eos", json!(false), json!(true)),
        ("add_generation_prompt", json!(true), json!(false)),
        ("guided_json", json!(null), json!({"type": "object"})),
    ] {
        let (status, code, param) = refused(&served, json!({"max_tokens": 1, name: wanted})).await;
        assert_eq!((status, code.as_str(), param.as_str()), (400, "unsupported_parameter", name));
        assert_eq!(
            refused(&served, json!({"max_tokens": 1, name: neutral})).await.0,
            200,
            "{name}"
        );
    }
    let schema =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}});
    for fields in [
        json!({"response_format": {"type": "json_object"}}),
        json!({"response_format": schema}),
        json!({"tools": [tool], "tool_choice": "required"}),
        json!({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ] {
        let (status, code, _) = refused(&served, fields.clone()).await;
        assert_eq!((status, code.as_str()), (400, "unsupported_value"), "{fields}");
    }
    assert_eq!(
        refused(&served, json!({"max_tokens": 1, "response_format": {"type": "text"}})).await.0,
        200
    );
    let asks = ModelSettings { structured: Structured::Prompt, ..ModelSettings::default() };
    let served = Served::start(asks).await;
    let counted = async |fields: Value| {
        let answer = served.chat(fields).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let plain = counted(json!({"max_tokens": 1})).await;
    assert!(counted(json!({"max_tokens": 1, "response_format": schema})).await > plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_without_effect_change_nothing_and_unknown_ones_are_refused_if_strict() {
    let served = Served::start(ModelSettings::default()).await;
    let plain = served.chat(json!({"seed": 1, "max_tokens": 8})).await.json();
    let more = json!({
        "seed": 1, "max_tokens": 8, "user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "auto",
        "verbosity": "low", "prompt_cache_key": "k", "parallel_tool_calls": true, "tool_choice": "auto",
        "unknown_to_all": 1, "logprobs": false, "temperature": null,
    });
    assert_eq!(served.chat(more.clone()).await.json()["choices"], plain["choices"]);
    let strict = Served::start(ModelSettings { strict: true, ..ModelSettings::default() }).await;
    let found = refused(&strict, more).await;
    assert_eq!(found, (400, "unknown_parameter".to_owned(), "unknown_to_all".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn sampling_fields_are_honored() {
    let served = Served::start(ModelSettings::default()).await;
    let text = async |fields: Value| {
        let mut all = json!({"seed": 9, "max_tokens": 24, "temperature": 2.0});
        merge(&mut all, fields);
        let answer = served.chat(all).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["choices"][0]["message"]["content"].clone()
    };
    let plain = text(json!({})).await;
    let greedy = text(json!({"temperature": 0})).await;
    for fields in [
        json!({"top_k": 1}),
        json!({"top_p": 0.000001}),
        json!({"min_p": 1.0}),
        json!({"top_p": 0}),
    ] {
        assert_eq!(text(fields.clone()).await, greedy, "{fields}");
    }
    assert_ne!(plain, greedy);
    for off in [
        json!({"top_k": -1}),
        json!({"top_p": 1}),
        json!({"min_p": 0}),
        json!({"repetition_penalty": 1}),
    ] {
        assert_eq!(text(off.clone()).await, plain, "{off}");
    }
    assert_ne!(text(json!({"repetition_penalty": 5.0, "temperature": 0})).await, greedy);
    assert_ne!(text(json!({"seed": 10})).await, plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_two_limits_wins() {
    let served = Served::start(ModelSettings::default()).await;
    let fields =
        json!({"seed": 2, "temperature": 1.5, "max_completion_tokens": 3, "max_tokens": 9});
    let json = served.chat(fields).await.json();
    assert!(json["usage"]["completion_tokens"].as_u64().unwrap() <= 3, "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_all_their_forms_are_one_prompt() {
    let served = Served::start(ModelSettings::default()).await;
    let ids = async |messages: Value| {
        let answer = served
            .chat(json!({"max_tokens": 1, "return_token_ids": true, "messages": messages}))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["prompt_token_ids"].clone()
    };
    let plain = ids(
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a b"}]),
    )
    .await;
    let parts = ids(json!([
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}], "name": "x"},
        {"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]},
    ])).await;
    assert_eq!(plain, parts);
    let history = json!([
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    ]);
    let tool =
        json!({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}});
    let answer = served.chat(json!({"max_tokens": 1, "messages": history, "tools": [tool], "return_token_ids": true})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let ids: Vec<u32> = serde_json::from_value(answer.json()["prompt_token_ids"].clone()).unwrap();
    let text = served.host.tokenizer().decode_raw(&ids);
    assert!(text.contains("add") && text.contains("\"a\"") && !text.contains("\\\""), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_rendered_unless_there_shall_be_no_call() {
    let served = Served::start(ModelSettings::default()).await;
    let tool = json!({"type": "function", "function": {"name": "lookup_word", "description": "d", "strict": true}});
    let text = async |fields: Value| {
        let mut all = json!({"max_tokens": 1, "return_token_ids": true});
        merge(&mut all, fields);
        let json = served.chat(all).await.json();
        let ids: Vec<u32> = serde_json::from_value(json["prompt_token_ids"].clone()).unwrap();
        served.host.tokenizer().decode_raw(&ids)
    };
    let shown = text(json!({"tools": [tool]})).await;
    assert!(shown.contains("lookup_word") && !shown.contains("strict"), "{shown}");
    assert!(!text(json!({"tools": [tool], "tool_choice": "none"})).await.contains("lookup_word"));
    assert!(!text(json!({})).await.contains("lookup_word"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_at_most_4096_messages_and_256_tools() {
    let served = Served::start(ModelSettings::default()).await;
    let messages = |n: usize| json!({"messages": vec![json!({"role": "user", "content": "x"}); n]});
    let tool = |i: usize| json!({"type": "function", "function": {"name": format!("f{i}")}});
    let tools = |n: usize| json!({"tools": (0..n).map(tool).collect::<Vec<_>>()});
    for (fields, param, words) in [
        (messages(4097), "messages", "4097 messages; a request may have 4096"),
        (tools(257), "tools", "257 tools; a request may have 256"),
    ] {
        let answer = served.chat(fields).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)));
        assert!(answer.message().contains(words), "{}", answer.body);
    }
    // One less is read; the context of this model is shorter.
    for fields in [messages(4096), tools(256)] {
        let (status, code, _) = refused(&served, fields).await;
        assert_eq!((status, code.as_str()), (400, "context_length_exceeded"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_methods_models_and_bodies_that_are_not_there_are_answered_in_openais_shape() {
    let served = Served::start(ModelSettings::default()).await;
    let address = served.address();
    let answer = served.chat(json!({"model": "gpt-4"})).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].clone()),
        (404, json!("model_not_found"))
    );
    assert!(answer.message().contains("there is `tiny`"), "{}", answer.body);
    let answer = ask(address, "/v1/responses", Some(&json!({}))).await;
    assert_eq!(answer.status, 400);
    assert!(answer.message().contains("`input` is missing"), "{}", answer.body);
    assert_eq!(ask(address, "/v2/x", None).await.json()["error"]["type"], "not_found_error");
    let answer = ask(address, "/v1/chat/completions", None).await;
    assert_eq!(answer.status, 405);
    assert!(answer.head.contains("allow: post"), "{}", answer.head);
    let raw = |body: &str| {
        let length = body.len();
        format!(
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    for body in ["", "{", "[]", "\"x\"", "{\"prompt\": \"\u{fffd}\", "] {
        let sent = raw(body);
        let answer =
            tokio::task::spawn_blocking(move || crate::testing::exchange(address, sent.as_bytes()));
        let answer = answer.await.unwrap();
        assert_eq!(
            (answer.status, answer.json()["error"]["type"].clone()),
            (400, json!("invalid_request_error")),
            "{body}"
        );
    }
    let models = ask(address, "/v1/models", None).await.json();
    let model = &models["data"][0];
    for (key, value) in
        [("id", "tiny"), ("object", "model"), ("owned_by", "maverl"), ("root", "builtin:tiny")]
    {
        assert_eq!(model[key], value);
    }
    assert!(
        model["created"].is_u64() && model["max_model_len"].is_u64() && model["parent"].is_null()
    );
    assert_eq!(ask(address, "/v1/models/tiny", None).await.json(), *model);
    assert_eq!(ask(address, "/v1/models/a/b", None).await.status, 404);
}

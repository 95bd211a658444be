//! Anthropic's Messages API on a served model.

use std::collections::BTreeSet;
use std::path::Path;

use maverl_kernels::sample::derive_seed;

use super::*;
use crate::anthropic::tests::{joined, shapes};
use crate::testing::{exchange, request, stride};

const ROUTE: &str = "/v1/messages";

/// Returns a short request.
fn short(fields: Value) -> Value {
    let messages = json!([{"role": "user", "content": "Who wrote Magdor?"}]);
    let mut body = json!({"model": "tiny", "max_tokens": 24, "messages": messages});
    merge(&mut body, fields);
    body
}

async fn message(served: &Served, fields: Value) -> Answer {
    ask(served.address(), ROUTE, Some(&short(fields))).await
}

/// Returns the events of a stream, whose names are their types.
fn events(answer: &Answer) -> Vec<Value> {
    assert!(answer.head.contains("text/event-stream"), "{}", answer.head);
    let events = answer.body.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    });
    events.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_has_the_ids_of_the_chat_completion_whole_and_streamed() {
    let served = Served::start(ModelSettings::default()).await;
    for seed in 0..6 {
        let sampling =
            json!({"seed": seed, "temperature": 1.2, "max_tokens": 24, "return_token_ids": true});
        let system = json!({"role": "system", "content": "Be brief."});
        let user = json!({"role": "user", "content": "Who wrote Magdor?"});
        let mut asked = sampling.clone();
        merge(&mut asked, json!({"messages": [system, user], "stop": ["e "]}));
        let chat = served.chat(asked).await.json();
        let mut asked = sampling;
        merge(&mut asked, json!({"system": "Be brief.", "stop_sequences": ["e "]}));
        let whole = message(&served, asked.clone()).await;
        assert_eq!(whole.status, 200, "{}", whole.body);
        let whole = whole.json();
        let choice = &chat["choices"][0];
        assert_eq!(whole["maverl"]["token_ids"], choice["token_ids"]);
        assert_eq!(whole["maverl"]["prompt_token_ids"], chat["prompt_token_ids"]);
        assert_eq!(
            whole["content"],
            json!([{"type": "text", "text": choice["message"]["content"]}])
        );
        let stopped = choice["stop_reason"] == "e ";
        let reason = match choice["finish_reason"].as_str().unwrap() {
            "length" => "max_tokens",
            _ if stopped => "stop_sequence",
            _ => "end_turn",
        };
        assert_eq!(
            (&whole["stop_reason"], &whole["stop_sequence"]),
            (&json!(reason), &choice["stop_reason"])
        );
        assert_eq!(whole["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
        assert!(whole["id"].as_str().unwrap().starts_with("msg-") && whole["model"] == "tiny");
        asked["stream"] = true.into();
        let events = events(&message(&served, asked).await);
        assert_eq!(events.last().unwrap()["type"], "message_stop");
        let mut streamed = joined(&events);
        streamed["id"] = whole["id"].clone();
        streamed["usage"] = whole["usage"].clone();
        assert_eq!(streamed, whole);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_with_the_cached_tokens_that_it_ends_with() {
    let served = Served::start(ModelSettings::default()).await;
    let messages = json!([{"role": "user", "content": "city ".repeat(100)}]);
    let mut cached = Vec::new();
    for _ in 0..2 {
        let fields = json!({"messages": messages, "max_tokens": 2, "stream": true});
        let events = events(&message(&served, fields).await);
        let [first, last] = [&events[0]["message"]["usage"], &events[events.len() - 2]["usage"]];
        for key in ["input_tokens", "cache_read_input_tokens"] {
            assert_eq!(first[key], last[key], "{key}");
        }
        cached.push(first["cache_read_input_tokens"].as_u64().unwrap());
    }
    assert!(cached[1] > cached[0], "{cached:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tokens_that_are_counted_are_those_of_the_prompt() {
    let served = Served::start(ModelSettings::default()).await;
    let mut body = shapes::after_a_call();
    for name in ["max_tokens", "stream"] {
        body.as_object_mut().unwrap().shift_remove(name);
    }
    let counted = ask(served.address(), "/v1/messages/count_tokens", Some(&body)).await;
    assert_eq!(counted.status, 200, "{}", counted.body);
    let counted = counted.json();
    merge(&mut body, json!({"max_tokens": 2}));
    let answer = ask(served.address(), ROUTE, Some(&body)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let usage = &answer.json()["usage"];
    let read = ["input_tokens", "cache_read_input_tokens"].map(|key| usage[key].as_u64().unwrap());
    assert_eq!(counted, json!({"input_tokens": read[0] + read[1]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_above_the_context_is_cut_and_a_prompt_above_it_is_refused() {
    let served = Served::start(ModelSettings::default()).await;
    // The reply of a high temperature fills the context.
    let fields =
        json!({"max_tokens": 32000, "temperature": 5.0, "seed": 1, "return_token_ids": true});
    let full = message(&served, fields).await.json();
    let tokens = |key: &str| full["maverl"][key].as_array().unwrap().len();
    let used = tokens("prompt_token_ids") + tokens("token_ids");
    let wanted = if used == 512 { "model_context_window_exceeded" } else { "end_turn" };
    assert_eq!(full["stop_reason"], wanted, "{used}");
    let cut = message(&served, json!({"max_tokens": 3, "temperature": 5.0, "seed": 1})).await;
    assert_eq!(cut.json()["stop_reason"], "max_tokens");
    // As many tokens as the context leaves are no fewer than were asked for.
    let left = 512 - tokens("prompt_token_ids");
    let whole = message(&served, json!({"max_tokens": left, "temperature": 5.0, "seed": 1})).await;
    let wanted = if used == 512 { "max_tokens" } else { "end_turn" };
    assert_eq!(whole.json()["stop_reason"], wanted, "{left}");
    for words in [800, 100_000] {
        let messages = json!([{"role": "user", "content": "city ".repeat(words)}]);
        let refused = message(&served, json!({"messages": messages})).await;
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, &error["type"]), (400, &json!("invalid_request_error")));
        assert!(refused.message().starts_with("prompt is too long: "), "{error}");
        assert!(refused.head.contains("x-should-retry: false"), "{}", refused.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_harnesses_are_accepted() {
    let settings = ModelSettings { strict: true, ..ModelSettings::default() };
    let served = Served::start(settings).await;
    let mut trimmed = shapes::after_a_call();
    trimmed["stream"] = false.into();
    let answer = ask(served.address(), &format!("{ROUTE}?beta=true"), Some(&trimmed)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    // Its 24 tools alone are more than the context of the model.
    let long = ask(served.address(), ROUTE, Some(&shapes::untrimmed())).await;
    assert!(
        long.status == 400 && long.message().starts_with("prompt is too long"),
        "{}",
        long.body
    );
    let mut one = shapes::untrimmed();
    one["tools"].as_array_mut().unwrap().truncate(1);
    one["max_tokens"] = 8.into();
    let events = events(&ask(served.address(), ROUTE, Some(&one)).await);
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    one["surprise"] = 1.into();
    let strict = ask(served.address(), ROUTE, Some(&one)).await;
    assert!(strict.status == 400 && strict.message().starts_with("`surprise`"), "{}", strict.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_system_message_is_the_user_s_where_the_template_refuses_it() {
    let dir = tempfile::tempdir().unwrap();
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    for entry in std::fs::read_dir(files).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    let config = dir.path().join("tokenizer_config.json");
    let mut written: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    let template = written["chat_template"].as_str().unwrap().to_owned();
    let strict = "{%- for message in messages %}{%- if message.role == 'system' and not loop.first %}\
                  {{- raise_exception('system is first') }}{%- endif %}{%- endfor %}";
    written["chat_template"] = format!("{strict}{template}").into();
    std::fs::write(&config, written.to_string()).unwrap();
    let source = ModelSource::Directory(dir.path().to_owned());
    let [lenient, refusing] = [
        Served::start(ModelSettings::default()).await,
        Served::of(&source, ModelSettings::default()).await,
    ];
    let later = json!({"messages": [
        {"role": "user", "content": "Hi."}, {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."},
    ]});
    let joined = json!({"messages": [
        {"role": "user", "content": "Hi."}, {"role": "user", "content": "Be brief.\n\nGo."},
    ]});
    let ids = async |served: &Served, messages: &Value| {
        let mut fields = messages.clone();
        merge(&mut fields, json!({"return_token_ids": true, "max_tokens": 1}));
        let answer = message(served, fields).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["maverl"]["prompt_token_ids"].clone()
    };
    let told = ids(&refusing, &joined).await;
    assert_eq!(ids(&refusing, &later).await, told);
    assert_ne!(ids(&lenient, &later).await, told);
    // A chat completion is refused, as ever.
    assert_eq!(refusing.chat(later).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_form_of_anthropic_s() {
    let served = Served::start(ModelSettings::default()).await;
    let unknown = message(&served, json!({"model": "none"})).await;
    let kind = |answer: &Answer| {
        let json = answer.json();
        assert_eq!(json["type"], "error", "{json}");
        (answer.status, json["error"]["type"].as_str().unwrap().to_owned())
    };
    assert_eq!(kind(&unknown), (404, "not_found_error".to_owned()));
    let path = ask(served.address(), "/v1/messages/batches", Some(&json!({}))).await;
    assert_eq!(kind(&path), (404, "not_found_error".to_owned()));
    let method = ask(served.address(), ROUTE, None).await;
    assert_eq!(kind(&method), (405, "invalid_request_error".to_owned()));
    assert!(method.head.contains("allow: post"), "{}", method.head);
    let missing = message(&served, json!({"max_tokens": null})).await;
    assert_eq!(kind(&missing), (400, "invalid_request_error".to_owned()));
    assert!(missing.message().starts_with("`max_tokens` is missing"), "{}", missing.body);
    let demanded =
        json!({"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "any"}});
    let demanded = message(&served, demanded).await;
    assert!(demanded.message().starts_with("`tool_choice`"), "{}", demanded.body);
    // Chat completions keep OpenAI's form.
    let chat = served.chat(json!({"model": "none"})).await.json();
    assert!(chat.get("type").is_none() && chat["error"]["code"] == "model_not_found", "{chat}");
    let head = "anthropic-version: 2023-06-01\r\n";
    let sent = request("/v1/chat/completions", Some(&json!({"model": "none"})), head);
    let address = served.address();
    let asked = tokio::task::spawn_blocking(move || exchange(address, sent.as_bytes()));
    let chat = asked.await.unwrap().json();
    assert!(chat.get("type").is_none() && chat["error"]["code"].is_string(), "{chat}");
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_in_the_form_of_the_client() {
    let served = Served::start(ModelSettings::default()).await;
    let get = async |path: &str, head: &str| {
        let (address, sent) = (served.address(), request(path, None, head));
        let asked = move || exchange(address, sent.as_bytes());
        tokio::task::spawn_blocking(asked).await.unwrap()
    };
    let version = "anthropic-version: 2023-06-01\r\n";
    let listed = get("/v1/models", version).await.json();
    let model = &listed["data"][0];
    assert_eq!((&model["id"], &model["type"]), (&json!("tiny"), &json!("model")));
    let created = model["created_at"].as_str().unwrap();
    assert!(created.starts_with("20") && created.ends_with('Z'), "{created}");
    assert_eq!((&listed["has_more"], &listed["first_id"]), (&json!(false), &json!("tiny")));
    assert_eq!(get("/v1/models/tiny", version).await.json()["display_name"], "tiny");
    assert_eq!(get("/v1/models/none", version).await.json()["type"], "error");
    assert_eq!(get("/v1/models", "").await.json()["object"], "list");
    // Coding agents ask for nothing but an answer first.
    let head = "HEAD / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let address = served.address();
    let alive = tokio::task::spawn_blocking(move || exchange(address, head.as_bytes())).await;
    assert_eq!(alive.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_spoiled_requests_are_refused_with_the_place_that_is_wrong() {
    let served = Served::start(ModelSettings::default()).await;
    let requests = [shapes::untrimmed(), shapes::after_a_call()];
    let places = requests.each_ref().map(shapes::places);
    let mut named = BTreeSet::new();
    let mut refused = 0;
    for case in (0..10_000_u64).step_by(stride(50)) {
        let (draw, which) = (derive_seed(5, case), case as usize / 50 % 2);
        let place = &places[which][draw as usize % places[which].len()];
        let spoiled = place.spoil(&requests[which], draw >> 32);
        let answer = ask(served.address(), ROUTE, Some(&spoiled)).await;
        assert_eq!(answer.status, 400, "{} {case}: {}", place.path, answer.body);
        assert!(place.is_named_by(&answer.message()), "{} {case}: {}", place.path, answer.body);
        named.insert(place.path.clone());
        refused += 1;
    }
    let all: usize = places.iter().map(Vec::len).sum();
    println!("{refused} requests were refused at {} of {all} places", named.len());
    assert_eq!(message(&served, json!({})).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_scrambled_requests_are_counted_or_refused() {
    let served = Served::start(ModelSettings::default()).await;
    let body = shapes::after_a_call();
    let (mut counted, mut refused) = (0, 0);
    for case in (0..10_000_u64).step_by(stride(50)) {
        let bytes = shapes::scramble(&body, derive_seed(6, case));
        let head = format!(
            "POST /v1/messages/count_tokens HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            bytes.len()
        );
        let (address, sent) = (served.address(), [head.as_bytes(), &bytes].concat());
        let answer = tokio::task::spawn_blocking(move || exchange(address, &sent)).await.unwrap();
        match answer.status {
            200 => counted += 1,
            // The name of the model may be another one.
            400 | 404 => refused += usize::from(!answer.message().is_empty()),
            status => panic!("{case}: {status} {}", answer.body),
        }
    }
    println!("{counted} requests were counted, {refused} refused");
    assert!(counted > 0 && refused > 0);
}

#[cfg(feature = "grammar")]
#[tokio::test(flavor = "multi_thread")]
async fn a_demanded_call_is_a_block_whole_and_streamed() {
    let settings = ModelSettings { structured: Structured::Grammar, ..ModelSettings::default() };
    let served = Served::start(settings).await;
    let schema = json!({
        "type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"],
        "additionalProperties": false,
    });
    let fields = json!({
        "tools": [{"name": "add", "input_schema": schema}], "tool_choice": {"type": "tool", "name": "add"},
        "max_tokens": 120, "seed": 4, "temperature": 1.5,
    });
    let whole = message(&served, fields.clone()).await;
    assert_eq!(whole.status, 200, "{}", whole.body);
    let whole = whole.json();
    assert_eq!(whole["stop_reason"], "tool_use", "{whole}");
    let block = whole["content"].as_array().unwrap().last().unwrap();
    assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), &json!("add")));
    assert!(block["input"]["a"].is_i64(), "{block}");
    let id = block["id"].as_str().unwrap();
    assert!(id.len() == 30 && id.starts_with("toolu_"), "{id}");
    let mut streamed = fields;
    streamed["stream"] = true.into();
    let events = events(&message(&served, streamed).await);
    let call = events.iter().find(|event| event["delta"]["type"] == "input_json_delta").unwrap();
    let partial: Value =
        serde_json::from_str(call["delta"]["partial_json"].as_str().unwrap()).unwrap();
    assert_eq!(partial, block["input"]);
    assert_eq!(joined(&events)["content"], whole["content"]);
}

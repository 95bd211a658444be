//! Calls in Anthropic's protocol.

use super::*;
use crate::anthropic::tests::{joined, shapes};
use crate::testing::stride;

const ROUTE: &str = "/v1/messages";

fn message(messages: &Value) -> Value {
    json!({"model": "a", "max_tokens": 32000, "messages": messages})
}

/// Returns everything about an episode that a run records of it, as text.
fn recorded(episode: &Episode) -> String {
    format!("{:?} {:?}", episode.turns, episode.outcome)
}

/// Calls a tool, then repeats the result.
fn calls(_: &Ask, messages: &[Message]) -> String {
    let last = messages.last().unwrap();
    match last.content.as_str() {
        "add" => {
            "<think>\nTwo numbers.\n</think>\n\nFirst.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"
                .to_owned()
        }
        other => format!("It is {other}."),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_episode_by_messages_is_that_by_chat_completions() {
    let talker = || Talker { say: calls, yields: |_| 1 };
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let by_chat = Played::of(options(&["a"]), talker()).await;
    let function = json!({"name": "add", "description": "Adds.", "parameters": schema});
    let chat = |messages: Value| json!({"model": "a", "max_tokens": 32000, "messages": messages, "tools": [{"type": "function", "function": function}]});
    let system = json!({"role": "system", "content": "Be brief."});
    let path = "/v1/chat/completions";
    let said = by_chat.post(path, chat(json!([system, user("add")]))).await.json();
    let reply = said["choices"][0]["message"].clone();
    let result =
        json!({"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "1"});
    let next = by_chat.post(path, chat(json!([system, user("add"), reply, result]))).await.json();
    assert_eq!(content(&next), "It is 1.");
    let by_chat = by_chat.finish("yes").await;

    let by_message = Played::of(options(&["a"]), talker()).await;
    let tools = json!([{"name": "add", "description": "Adds.", "input_schema": schema}]);
    let ask = |messages: Value| {
        let mut body = message(&messages);
        body["system"] = "Be brief.".into();
        body["tools"] = tools.clone();
        body
    };
    let said = by_message.post(ROUTE, ask(json!([user("add")]))).await.json();
    let kinds: Vec<&str> =
        said["content"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(
        (kinds, &said["stop_reason"]),
        (vec!["thinking", "text", "tool_use"], &json!("tool_use"))
    );
    assert_eq!(said["content"][2]["input"], json!({"a": 1}));
    let id = said["content"][2]["id"].as_str().unwrap();
    assert!(id.starts_with("toolu_"), "{id}");
    let result =
        json!({"type": "tool_result", "tool_use_id": id, "content": "1", "is_error": false});
    let reply = json!({"role": "assistant", "content": said["content"]});
    let again = json!([user("add"), reply, {"role": "user", "content": [result]}]);
    let mut streamed = ask(again);
    streamed["stream"] = true.into();
    let answer = by_message.post(ROUTE, streamed).await;
    let events: Vec<Value> =
        answer.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(joined(&events)["content"], json!([{"type": "text", "text": "It is 1."}]));
    // A part of the reward may name the answer.
    let part = json!({"name": "style", "value": 0.5, "of": {"completion": said["id"]}});
    assert_eq!(by_message.post("/parts", part).await.status, 200);
    let by_message = by_message.finish("yes").await;

    assert_eq!(recorded(&by_message), recorded(&by_chat));
    assert_eq!(metric(&by_message, "gateway/prefix_reuse"), Some(1.0));
    assert_eq!(by_message.turn_reward(0).map(|reward| reward - 0.5), by_chat.turn_reward(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_goes_on_with_what_was_sampled_and_counts_without_a_turn() {
    let played = Played::start(options(&["a"])).await;
    let mut body = shapes::untrimmed();
    body["stream"] = false.into();
    let counted = played.post("/v1/messages/count_tokens?beta=true", body.clone()).await;
    assert_eq!(counted.status, 200, "{}", counted.body);
    let said = played.post("/v1/messages?beta=true", body.clone()).await.json();
    assert_eq!(said["content"][0]["text"], " MODE: PLAN. ");
    assert_eq!(counted.json()["input_tokens"], said["usage"]["input_tokens"]);
    // The mark of the cache moves to the newest block.
    let messages = body["messages"].as_array_mut().unwrap();
    messages[0]["content"][1].as_object_mut().unwrap().shift_remove("cache_control");
    messages.push(json!({"role": "assistant", "content": said["content"]}));
    messages.push(json!({"role": "user", "content": [
        {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
    ]}));
    let next = played.post(ROUTE, body).await.json();
    assert_eq!(next["content"][0]["text"], " GO ON. ");
    let episode = played.finish("yes").await;
    assert_eq!(episode.turns.len(), 2);
    assert_eq!(metric(&episode, "gateway/prefix_reuse"), Some(1.0));
    assert_eq!(prompt(&episode.turns[1])[3], " MODE: PLAN. ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_sequence_is_named_and_a_retry_is_no_turn() {
    let played = Played::start(options(&["a"])).await;
    let mut body = message(&json!([user("hi")]));
    body["stop_sequences"] = json!(["Z", "I"]);
    let said = played.post(ROUTE, body.clone()).await.json();
    assert_eq!(
        (&said["content"][0]["text"], &said["stop_reason"]),
        (&json!(" H"), &json!("stop_sequence"))
    );
    assert_eq!(said["stop_sequence"], "I");
    let again = played.send(ROUTE, Some(&body), "x-stainless-retry-count: 1\r\n").await.json();
    assert_eq!(again["id"], said["id"]);
    assert_eq!(played.finish("yes").await.turns.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_refusals_have_the_form_of_anthropic_s() {
    let played = Played::start(ProgramOptions { max_turns: most(1), ..options(&["a", "b"]) }).await;
    let send = async |head: String| {
        let path = format!("/episodes/{}{ROUTE}", played.id);
        let sent = crate::testing::request(&path, Some(&message(&json!([user("hi")]))), &head);
        let address = played.address;
        tokio::task::spawn_blocking(move || exchange(address, sent.as_bytes())).await.unwrap()
    };
    for wrong in [String::new(), "x-api-key: mv-0\r\n".to_owned()] {
        let refused = send(wrong).await;
        let error = refused.json();
        assert_eq!((refused.status, &error["type"]), (401, &json!("error")));
        assert_eq!(error["error"]["type"], "authentication_error");
    }
    assert_eq!(send(format!("x-api-key: {}\r\n", played.key)).await.status, 200);
    let limited = send(format!("x-api-key: {}\r\n", played.key)).await;
    let error = &limited.json()["error"];
    assert_eq!((limited.status, &error["type"]), (400, &json!("invalid_request_error")));
    assert_eq!(error["code"], "episode_limit");
    let listed = played.send("/v1/models", None, "anthropic-version: 2023-06-01\r\n").await.json();
    assert_eq!(
        (&listed["data"][1]["id"], &listed["data"][1]["type"]),
        (&json!("b"), &json!("model"))
    );
    let unknown = json!({"model": "c", "max_tokens": 1, "messages": [user("hi")]});
    let unknown = played.post(ROUTE, unknown).await;
    assert_eq!(unknown.json()["error"]["type"], "not_found_error");
    assert!(played.finish("yes").await.score().unwrap().solved);
}

#[tokio::test(flavor = "multi_thread")]
async fn spoiled_messages_are_refused_and_their_episode_goes_on_as_without_them() {
    let played = Played::start(options(&["a"])).await;
    let said = played.post(ROUTE, message(&json!([user("hi")]))).await.json();
    let body = shapes::after_a_call();
    let mut places = shapes::places(&body);
    // Sampling has no effect here, be it right or wrong.
    places.retain(|place| !["temperature", "top_p", "top_k"].contains(&place.path.as_str()));
    let mut refused = 0;
    for case in (0..2_000_u64).step_by(stride(20)) {
        let draw = maverl_kernels::sample::derive_seed(7, case);
        let place = &places[draw as usize % places.len()];
        let answer = played.post(ROUTE, place.spoil(&body, draw >> 32)).await;
        assert_eq!(answer.status, 400, "{}: {}", place.path, answer.body);
        assert!(place.is_named_by(&answer.message()), "{}: {}", place.path, answer.body);
        refused += 1;
    }
    let again = json!([user("hi"), {"role": "assistant", "content": said["content"]}, user("go")]);
    played.post(ROUTE, message(&again)).await;
    let episode = played.finish("yes").await;
    println!("{refused} requests were refused");
    assert_eq!(prompt(&episode.turns[1]), ["hi", " HI ", "go"]);
    let told = (paths(&episode), metric(&episode, "gateway/limits"));
    assert_eq!(told, (vec!["0".into(), "1".into()], Some(0.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_told_where_messages_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&["big", "small"]);
    let text = "env | grep ANTHROPIC | sort >&2; exit 3";
    options.command = ["sh", "-c", text].map(str::to_owned).into();
    options.env.insert("ANTHROPIC_MODEL".to_owned(), "small".to_owned());
    let runner = program(options, &dir, |_| 1);
    let episode = runner.play(EpisodeRequest { task: task("p"), index: 0, seed: 3 }).await;
    let Outcome::Unscored(fault) = &episode.outcome else { panic!("the program crashes") };
    let told = &fault.message;
    for line in [
        "ANTHROPIC_API_KEY=\n",
        "ANTHROPIC_AUTH_TOKEN=***\n",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL=small\n",
        "ANTHROPIC_DEFAULT_OPUS_MODEL=big\n",
        "ANTHROPIC_DEFAULT_SONNET_MODEL=big\n",
        "ANTHROPIC_MODEL=small",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(!told.contains("/v1"), "{told}");
}
